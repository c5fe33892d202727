//! Quantiles: a selection of few elements, and the launch that interpolates between them.

use std::borrow::Cow;

use cubecl::{ir::AddressType, prelude::*, server::Handle, std::tensor::TensorHandle};
use reduce_planner::{Device, ElementType, Illegal, PlanError, TopKPlan, check_limits};

use super::{
    launch::Selecting,
    request::{Order, TopKRequest},
};
use crate::{
    element::{memory_type, storage_type},
    error::{Reason, ReduceError},
    host::{
        arguments::{count, merging_types},
        bound::Bound,
        cache,
        call::Call,
        scratch::in_words,
        types::{applied_type, check_computes},
    },
    kernels::{
        args::{ApplicationTypes, KernelTypesArg},
        top_k::interpolate::interpolate,
    },
};

/// Units of a cube of the second launch.
const UNITS: u32 = 128;

/// A quantile between two of the elements that a selection writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weighted {
    /// Ranks of the lower and the upper element in the selection.
    pub(crate) ranks: [usize; 2],
    /// How far the quantile lies from the lower to the upper one, from 0 to 1.
    pub(crate) weight: f64,
}

/// Quantiles as a selection and a launch that interpolates.
pub(crate) struct QuantilesCall<'a> {
    selection: Call<'a, TopKRequest<'a>>,
    quantiles: usize,
    /// The type that kernels interpolate in.
    real: ElementType,
    /// The type of the results.
    output: ElementType,
}

impl<'a> QuantilesCall<'a> {
    /// The call that finds `weighted` quantiles from the elements that `request` selects, for
    /// results of the type `output`, or of the usual one. The ranks to write are chosen here.
    ///
    /// # Errors
    ///
    /// A type that is not of floating point, and ranks that 32 bits do not hold.
    pub(crate) fn new(
        request: TopKRequest<'a>,
        device: Option<&'a Device>,
        weighted: &[Weighted],
        output: Option<ElementType>,
    ) -> Result<Self, ReduceError> {
        let element = request.element;
        let real = applied_type(element, None, output);
        let usual = if element.is_float() { element } else { ElementType::F32 };
        let output = output.unwrap_or(usual);
        if !output.is_float() {
            return Err(Reason::QuantileType { found: output }.into());
        }
        let number = |rank: usize| {
            u32::try_from(rank).map_err(|_| ReduceError::from(Reason::Rank { found: rank }))
        };
        // Each element is written once.
        let ranks = weighted.iter().flat_map(|quantile| quantile.ranks).map(number);
        let mut ranks = ranks.collect::<Result<Vec<u32>, _>>()?;
        ranks.sort_unstable_by(|left, right| right.cmp(left));
        ranks.dedup();
        let place = |rank: usize| ranks.partition_point(|&other| other as usize > rank) as u32;
        let places = weighted.iter().flat_map(|quantile| quantile.ranks.map(place));
        let weights = weighted.iter().flat_map(|quantile| words(quantile.weight, real));
        let request = TopKRequest {
            beside_ranks: Cow::Owned(places.chain(weights).collect()),
            ranks: Some(Cow::Owned(ranks)),
            ranks_first: true,
            order: Order { nan_spreads: true, ..request.order },
            ..request
        };
        let (parameters, apply_parameters) = (Vec::new(), Vec::new());
        let selection = Call { task: request, device, plans: None, parameters, apply_parameters };
        Ok(Self { selection, quantiles: weighted.len(), real, output })
    }

    /// The type of the results.
    pub(crate) fn output_type(&self) -> ElementType {
        self.output
    }

    /// The plan that runs.
    pub(crate) fn plan(
        &self,
        client: &Client,
        bytes: Option<u64>,
    ) -> Result<TopKPlan, ReduceError> {
        Ok(self.selection.plan(client, &[bytes])?.plan)
    }

    /// Launches into a new tensor of this shape, in which all results of a quantile lie side by
    /// side.
    pub(crate) fn run(
        self,
        client: &Client,
        input: &TensorHandle,
        shape: Vec<usize>,
    ) -> Result<TensorHandle, ReduceError> {
        let Self { selection, quantiles, real, output } = self;
        let device = cache::device(client);
        check_computes(client, &device, real)?;
        // Results are stored, and not computed with.
        if !device.has(output) {
            let device = device.name.clone();
            return Err(PlanError::ElementUnsupported { device, element: output }.into());
        }
        let prepared = selection.prepared(client)?;
        let problem = &prepared.stated.problem;
        let outputs = problem.slices().outputs();
        let total = outputs * quantiles;
        let wide =
            check_limits(problem.slices(), &device, total.max(problem.output_span()) as u64)?;
        let units = UNITS.min(device.max_units_per_cube);
        let cubes = (total as u64).div_ceil(units.into());
        let grid = device.grid(cubes).ok_or_else(|| {
            let reason = Illegal::Grid { cubes, merging: false };
            let (plan, device) = ("interpolation".to_owned(), device.name.clone());
            ReduceError::from(PlanError::Unfit { plan, device, reason })
        })?;
        let handle = client.empty(total.max(1) * output.bytes());
        let results = TensorHandle::new_contiguous(shape, handle, storage_type(output));
        let [values, _] = prepared.run_new(client, Selecting::from(input, None))?;
        // There are ranks unless there is nothing to select.
        let Some(ranks) = &prepared.ranks else { return Ok(results) };
        let words = problem.written() + selection.task.beside_ranks.len();
        let element = problem.slices().input();
        let own = |handle: &Handle, len: usize, bytes: usize| {
            Bound::own(handle.clone().binding(), len, bytes).elements()
        };
        // SAFETY: the selection has written an element of each rank of each slice.
        unsafe {
            interpolate::launch_unchecked(
                client,
                count(grid),
                CubeDim::new_1d(units),
                if wide { AddressType::U64 } else { AddressType::U32 },
                KernelTypesArg {
                    stored: memory_type(element),
                    results: [memory_type(output); 3],
                    hardware_math: false,
                    application: Some(ApplicationTypes {
                        real: storage_type(real),
                        output: memory_type(output),
                        operands: [storage_type(real); 3],
                    }),
                    ..merging_types(client, &prepared.stated.signature)
                },
                own(&values.handle, problem.output_span(), element.bytes()),
                own(ranks, words, size_of::<u32>()),
                own(&results.handle, total, output.bytes()),
                problem.written(),
                quantiles,
                outputs,
                total,
            );
        }
        Ok(results)
    }
}

/// The bits of a weight.
fn words(weight: f64, real: ElementType) -> Vec<u32> {
    match real {
        ElementType::F64 => in_words(weight.to_bits()).to_vec(),
        _ => vec![(weight as f32).to_bits()],
    }
}
