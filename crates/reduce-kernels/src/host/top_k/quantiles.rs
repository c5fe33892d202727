//! Quantiles: a selection of few elements, and the launch that interpolates between them.

use std::borrow::Cow;

use cubecl::{ir::AddressType, prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Device, ElementType, PlanError, TopKPlan, check_limits};

use super::request::{Order, TopKRequest};
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

/// Where a quantile lies among elements in ascending order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Between {
    /// Numbers of the two elements.
    pub(crate) lower: usize,
    pub(crate) upper: usize,
    /// How far it lies from the lower to the upper one, from 0 to 1.
    pub(crate) weight: f64,
}

/// The selection for quantiles, without types.
pub(crate) struct QuantilesCall<'a> {
    /// The selection of all elements of a slice, which keeps all axes. Its order and its number of
    /// elements are chosen here.
    pub(crate) request: TopKRequest<'a>,
    pub(crate) device: Option<&'a Device>,
    /// One for each quantile.
    pub(crate) between: Vec<Between>,
    /// Elements of a slice.
    pub(crate) len: usize,
    /// The type of the results, if one was asked for.
    pub(crate) output: Option<ElementType>,
}

impl<'a> QuantilesCall<'a> {
    /// The type of the results.
    pub(crate) fn output_type(&self) -> Result<ElementType, ReduceError> {
        let element = self.request.element;
        let usual = if element.is_float() { element } else { ElementType::F32 };
        let output = self.output.unwrap_or(usual);
        match output.is_float() {
            true => Ok(output),
            false => Err(Reason::QuantileType { found: output }.into()),
        }
    }

    /// The selection of the elements that the quantiles lie between: the lower and the upper one of
    /// each, from the end of the slice that has fewer elements before them.
    pub(crate) fn selection(&self) -> Call<'a, TopKRequest<'a>> {
        let Self { len, .. } = *self;
        let numbers = || self.between.iter().flat_map(|between| [between.lower, between.upper]);
        let (least, most) = (numbers().min().unwrap_or(0), numbers().max().unwrap_or(0));
        let largest = len - 1 - least < most;
        let from_end = |nth: usize| if largest { len - 1 - nth } else { nth };
        let k = 1 + if largest { len - 1 - least } else { most };
        // The plan's check finds that indices of 32 bits count the entries of a buffer; runs of more
        // are refused by `checked`.
        let ranks = numbers().map(|nth| from_end(nth) as u32).collect();
        let order = Order { largest, nan_last: false, by_position: false, nan_spreads: true };
        let request = TopKRequest {
            k,
            ranks: Some(Cow::Owned(ranks)),
            beside_ranks: Cow::Owned(self.weights()),
            order,
            ..self.request.clone()
        };
        let (parameters, apply_parameters) = (Vec::new(), Vec::new());
        Call { task: request, device: self.device, plans: None, parameters, apply_parameters }
    }

    /// Checks that numbers of elements have 32 bits.
    fn checked(&self) -> Result<(), ReduceError> {
        let (limit, span) = (u64::from(u32::MAX), self.len as u64);
        match span > limit {
            true => {
                let device = self.device.map_or_else(String::new, |device| device.name.clone());
                Err(PlanError::IndexTooNarrow { device, limit, span }.into())
            }
            false => Ok(()),
        }
    }

    /// The plan that runs.
    pub(crate) fn plan(
        &self,
        client: &Client,
        bytes: Option<u64>,
    ) -> Result<TopKPlan, ReduceError> {
        self.checked()?;
        Ok(self.selection().plan(client, &[bytes])?.plan)
    }

    /// Launches into a new tensor of this shape, in which all results of a quantile lie side by side.
    pub(crate) fn run(
        &self,
        client: &Client,
        input: &TensorHandle,
        shape: Vec<usize>,
    ) -> Result<TensorHandle, ReduceError> {
        self.checked()?;
        let output = self.output_type()?;
        let element = self.request.element;
        let real = self.real();
        let mut selection = self.selection();
        let stated = selection.stated()?;
        let outputs = stated.problem.slices().outputs();
        let quantiles = self.between.len();
        let device = cache::device(client);
        check_computes(client, &device, real)?;
        check_computes(client, &device, output)?;
        let new = |element: ElementType, len: usize| client.empty(len.max(1) * element.bytes());
        // The selected elements of all slices lie side by side, one rank after the other. All axes
        // are kept, so that the axis of the ranks is that of the input.
        let selected_shape = stated.shape;
        let (_, ranked) = selection.task.slices()?;
        let strides = with_ranks_first(&selected_shape, ranked);
        let layout = (Cow::Owned(selected_shape.clone()), Cow::Owned(strides.clone()));
        selection.task.output = Some(layout);
        let len = outputs * 2 * quantiles;
        let [value, position, _] = stated.signature.results;
        let tensor = |element: ElementType| {
            let handle = new(element, len);
            TensorHandle::new(
                handle,
                selected_shape.clone(),
                strides.clone(),
                storage_type(element),
            )
        };
        let (values, positions) = (tensor(value), tensor(position));
        let results = new(output, outputs * quantiles);
        let results = TensorHandle::new_contiguous(shape, results, storage_type(output));
        let total = outputs * quantiles;
        let cubes = (total as u64).div_ceil(UNITS.min(device.max_units_per_cube).into());
        let wide = check_limits(stated.problem.slices(), &device, len as u64)?;
        let grid = device.grid(cubes).ok_or_else(|| {
            let (device, limit) = (device.name.clone(), u64::from(u32::MAX));
            PlanError::IndexTooNarrow { device, limit, span: total as u64 }
        })?;
        let bindings = [values.clone().binding(), positions.binding()];
        let signature = stated.signature;
        let ranks = selection.prepared(client)?.ranks.clone();
        let words = 2 * quantiles + selection.task.beside_ranks.len();
        selection.run_into(client, input, bindings)?;
        // There are ranks unless there is nothing to select.
        let Some(ranks) = ranks else { return Ok(results) };
        let own = |handle: cubecl::server::Handle, len: usize, element: ElementType| {
            Bound::own(handle.binding(), len, element.bytes())
        };
        // SAFETY: the selection has written both elements of each quantile of each slice.
        unsafe {
            interpolate::launch_unchecked(
                client,
                count(grid),
                CubeDim::new_1d(UNITS.min(device.max_units_per_cube)),
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
                    ..merging_types(client, &signature)
                },
                own(values.handle, len, element).elements(),
                Bound::own(ranks.binding(), words, size_of::<u32>()).elements(),
                own(results.handle.clone(), total, output).elements(),
                2 * quantiles,
                outputs,
                total,
            );
        }
        Ok(results)
    }

    /// The type that kernels interpolate in.
    fn real(&self) -> ElementType {
        applied_type(self.request.element, None, self.output)
    }

    /// The bits of each quantile's weight.
    fn weights(&self) -> Vec<u32> {
        let weights = self.between.iter().map(|between| between.weight);
        match self.real() {
            ElementType::F64 => weights.flat_map(|weight| in_words(weight.to_bits())).collect(),
            _ => weights.map(|weight| (weight as f32).to_bits()).collect(),
        }
    }
}

/// The strides of selected elements of a shape whose ranks are outermost and whose other axes are
/// row-major.
fn with_ranks_first(shape: &[usize], ranked: usize) -> Vec<usize> {
    let mut stride = 1usize;
    let mut strides = vec![0; shape.len()];
    for axis in (0..shape.len()).rev().filter(|&axis| axis != ranked) {
        strides[axis] = stride;
        stride *= shape[axis];
    }
    strides[ranked] = stride;
    strides
}
