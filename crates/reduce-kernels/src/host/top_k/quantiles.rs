//! Quantiles: a selection of few elements, and the launch that interpolates between them. If some
//! elements do not count, two launches before the selection find out which elements it writes.

use cubecl::{ir::AddressType, prelude::*, server::Handle, std::tensor::TensorHandle};
use reduce_planner::{Device, ElementType, Illegal, PlanError, TopKPlan, check_limits};

use super::{
    launch::{ReadyTopK, Selecting},
    request::{Order, Ranks, TopKRequest},
};
use crate::{
    element::{memory_type, storage_type},
    error::{Reason, ReduceError},
    host::{
        arguments::{count, merging_types},
        bound::Bound,
        cache,
        call::Call,
        reduce::{
            Inputs, PreparedReduction,
            launch::ReductionLaunch,
            request::{ReduceRequest, Wanted},
        },
        scratch::{allocated, in_words},
        settings,
        types::{applied_type, check_computes},
    },
    kernels::{
        args::{ApplicationTypes, KernelTypesArg},
        top_k::{
            interpolate::interpolate,
            places::{Placing, WORDS_OF_QUANTILE, place_quantiles},
        },
    },
    operator::{Operator, OperatorRef, builtin::CountNumbers, rules},
};

/// Units of a cube of the launches beside the selection.
const UNITS: u32 = 128;

/// A quantile between two of the elements that a selection writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Weighted {
    /// Ranks of the lower and the upper element in the selection.
    pub(crate) ranks: [usize; 2],
    /// How far the quantile lies from the lower to the upper one, from 0 to 1.
    pub(crate) weight: f64,
}

/// Quantiles of the elements that are not NaN, whose number only the device knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OfNumbers<'q> {
    /// The quantiles, from 0 to 1.
    pub(crate) q: &'q [f64],
    /// What is added to the place of each; see [`Placing::Continuous`].
    pub(crate) addends: &'q [f64],
    pub(crate) placing: Placing,
}

/// Quantiles as a selection and a launch that interpolates.
pub(crate) struct QuantilesCall<'a> {
    /// What comes before the selection if NaN does not count.
    numbers: Option<NumbersCall<'a>>,
    selection: Call<'a, TopKRequest<'a>>,
    quantiles: usize,
    /// The type that kernels interpolate in.
    real: ElementType,
    /// The type of the results.
    output: ElementType,
}

/// The reduction that counts the numbers of each slice, and how quantiles are placed among them.
struct NumbersCall<'a> {
    counts: Call<'a, ReduceRequest<'a>>,
    placing: Placing,
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
        let (real, output) = types(request.element, output)?;
        // Each element is written once.
        let ranks = weighted.iter().flat_map(|quantile| quantile.ranks).map(in_a_word);
        let mut ranks = ranks.collect::<Result<Vec<u32>, _>>()?;
        ranks.sort_unstable_by(|left, right| right.cmp(left));
        ranks.dedup();
        let place = |rank: usize| ranks.partition_point(|&other| other as usize > rank) as u32;
        let places = weighted.iter().flat_map(|quantile| quantile.ranks.map(place));
        let weights = weighted.iter().flat_map(|quantile| words(quantile.weight, real));
        let ranks = Ranks {
            count: ranks.len(),
            words: ranks.iter().copied().chain(places).chain(weights).collect(),
            words_of_slice: None,
        };
        let order = Order { nan_spreads: true, ..request.order };
        let selection = selecting(TopKRequest { order, ..request }, device, ranks);
        Ok(Self { numbers: None, selection, quantiles: weighted.len(), real, output })
    }

    /// The call that finds quantiles of the elements that are not NaN. The elements that `request`
    /// selects are those for slices of `len` numbers: less numbers need no others.
    ///
    /// # Errors
    ///
    /// A type that is not of floating point, and slices whose elements 32 bits do not count.
    pub(crate) fn of_numbers(
        request: TopKRequest<'a>,
        len: usize,
        device: Option<&'a Device>,
        quantiles: OfNumbers<'_>,
        output: Option<ElementType>,
    ) -> Result<Self, ReduceError> {
        let OfNumbers { q, addends, placing } = quantiles;
        let (real, output) = types(request.element, output)?;
        in_a_word(len)?;
        // In the order in which their ranks descend.
        let mut order: Vec<usize> = (0..q.len()).collect();
        order.sort_by(|&left, &right| match request.order.largest {
            true => q[left].total_cmp(&q[right]),
            false => q[right].total_cmp(&q[left]),
        });
        let described = order.iter().flat_map(|&nth| -> [u32; WORDS_OF_QUANTILE] {
            let ([whole, high, low], addend) = (fixed(q[nth]), fixed(addends[nth]));
            [nth as u32, whole, high, low, addend[0], addend[1], addend[2]]
        });
        let ranks = Ranks {
            count: 2 * q.len(),
            words: described.collect(),
            words_of_slice: Some(q.len() * (4 + words_of(real))),
        };
        let counts = ReduceRequest {
            operator: OperatorRef(CountNumbers::DEFINITION.erased()),
            element: request.element,
            shape: request.shape.clone(),
            strides: request.strides.clone(),
            second: None,
            alignment: request.alignment,
            axes: request.axes.clone(),
            keep_dims: true,
            accumulator: None,
            outputs: [None; 3],
            output: None,
            plan: None,
            wanted: Wanted::Results,
            shard: None,
            numerics: settings::numerics(),
        };
        let (parameters, apply_parameters) = (Vec::new(), Vec::new());
        let counts = Call { task: counts, device, plans: None, parameters, apply_parameters };
        let order = Order { nan_last: true, ..request.order };
        let selection = selecting(TopKRequest { order, ..request }, device, ranks);
        let numbers = Some(NumbersCall { counts, placing });
        Ok(Self { numbers, selection, quantiles: q.len(), real, output })
    }

    /// The type of the results.
    pub(crate) fn output_type(&self) -> ElementType {
        self.output
    }

    /// The selection.
    #[cfg(feature = "serde")]
    pub(crate) fn selection(&self) -> &TopKRequest<'a> {
        &self.selection.task
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
        let Self { numbers, selection, quantiles, real, output } = self;
        let device = cache::device(client);
        check_computes(client, &device, real)?;
        // Results are stored, and not computed with.
        if !device.has(output) {
            let device = device.name.clone();
            return Err(PlanError::ElementUnsupported { device, element: output }.into());
        }
        let prepared = selection.prepared(client)?;
        let counting = match &numbers {
            Some(NumbersCall { counts, .. }) => Some(counts.prepared(client)?),
            None => None,
        };
        let problem = &prepared.stated.problem;
        let outputs = problem.slices().outputs();
        let total = outputs * quantiles;
        let words_of_slice = prepared.words_of_slice.unwrap_or(0);
        let span = total.max(problem.output_span()).max(outputs.saturating_mul(words_of_slice));
        let wide = check_limits(problem.slices(), &device, span as u64)?;
        let address = if wide { AddressType::U64 } else { AddressType::U32 };
        let units = UNITS.min(device.max_units_per_cube);
        let grid = |threads: usize| {
            let cubes = (threads as u64).div_ceil(units.into());
            device.grid(cubes).ok_or_else(|| {
                let reason = Illegal::Grid { cubes, merging: false };
                let (plan, device) = ("interpolation".to_owned(), device.name.clone());
                ReduceError::from(PlanError::Unfit { plan, device, reason })
            })
        };
        let (interpolating, placing_grid) = (grid(total)?, grid(outputs)?);
        let handle = client.empty(total.max(1) * output.bytes());
        let results = TensorHandle::new_contiguous(shape, handle, storage_type(output));
        // There are words of ranks unless there is nothing to select.
        let (Some(words), Some(ranks)) = (&prepared.ranks, &selection.task.ranks) else {
            return Ok(results);
        };
        // Nothing is launched before all is checked.
        let numbers = numbers.as_ref().zip(counting.as_ref()).map(|(numbers, counting)| {
            ReadyNumbers::new(client, counting, input, outputs * words_of_slice, numbers.placing)
        });
        let numbers = numbers.transpose()?;
        let tables = numbers.as_ref().map(|numbers| numbers.tables.clone());
        let selecting = Selecting { tables: tables.as_ref(), ..Selecting::from(input, None) };
        let selected = prepared.new_outputs(client);
        let bindings = selected.each_ref().map(|output| output.handle.clone().binding());
        let stream = Some(selected[0].handle.stream.value);
        let ready = prepared.ready(client, selecting, bindings, stream)?;
        let element = problem.slices().input();
        let own = |handle: &Handle, len: usize, bytes: usize| {
            Bound::own(handle.clone().binding(), len, bytes).elements()
        };
        let described = || own(words, ranks.words.len(), size_of::<u32>());
        if let Some(ReadyNumbers { counting, counts, tables, placing }) = numbers {
            counting.into_iter().for_each(ReductionLaunch::run);
            // SAFETY: the reduction has written a count for each slice, and each slice has a table.
            unsafe {
                place_quantiles::launch_unchecked(
                    client,
                    count(placing_grid),
                    CubeDim::new_1d(units),
                    address,
                    own(&counts, outputs, size_of::<u32>()),
                    described(),
                    own(&tables, outputs * words_of_slice, size_of::<u32>()),
                    quantiles,
                    outputs,
                    (problem.k() - 1) as u32,
                    u32::from(selection.task.order.largest),
                    placing,
                    words_of(real),
                );
            }
        }
        ready.into_iter().for_each(ReadyTopK::run);
        let tables = match &tables {
            Some(tables) => own(tables, outputs * words_of_slice, size_of::<u32>()),
            None => described(),
        };
        // SAFETY: the selection has written an element of each rank of each slice.
        unsafe {
            interpolate::launch_unchecked(
                client,
                count(interpolating),
                CubeDim::new_1d(units),
                address,
                KernelTypesArg {
                    stored: memory_type(element),
                    results: [memory_type(output); 3],
                    hardware_math: false,
                    application: Some(ApplicationTypes {
                        real: storage_type(real),
                        outputs: [memory_type(output); 3],
                        operands: [storage_type(real); 3],
                    }),
                    ..merging_types(client, &prepared.stated.signature)
                },
                own(&selected[0].handle, problem.output_span(), element.bytes()),
                tables,
                own(&results.handle, total, output.bytes()),
                problem.written(),
                words_of_slice,
                quantiles,
                outputs,
                total,
            );
        }
        Ok(results)
    }
}

/// Launches that write a table for each slice, whose checks have all passed.
struct ReadyNumbers<'a> {
    counting: Option<ReductionLaunch<'a>>,
    counts: Handle,
    tables: Handle,
    placing: Placing,
}

impl<'a> ReadyNumbers<'a> {
    fn new(
        client: &'a Client,
        counting: &'a PreparedReduction,
        input: &'a TensorHandle,
        words: usize,
        placing: Placing,
    ) -> Result<Self, ReduceError> {
        let problem = &counting.resolved.problem;
        let counts = allocated(client, problem.outputs() * size_of::<u32>())?;
        let tables = allocated(client, words * size_of::<u32>())?;
        let inputs = Inputs::bind(client, problem, input, None)?;
        let (stream, outputs) = (counts.stream.value, vec![counts.clone().binding()]);
        let counting = counting.ready(client, &[], inputs, Some(stream), outputs)?;
        Ok(Self { counting, counts, tables, placing })
    }
}

/// The type that kernels interpolate in, and the type of the results, for elements of a type.
fn types(
    element: ElementType,
    output: Option<ElementType>,
) -> Result<(ElementType, ElementType), ReduceError> {
    let real = applied_type(element, None, output);
    let output = output.unwrap_or(rules::computed(element, ElementType::F32));
    match output.is_float() {
        true => Ok((real, output)),
        false => Err(Reason::QuantileType { found: output }.into()),
    }
}

/// A selection that writes some of its elements.
fn selecting<'a>(
    request: TopKRequest<'a>,
    device: Option<&'a Device>,
    ranks: Ranks<'a>,
) -> Call<'a, TopKRequest<'a>> {
    let task = TopKRequest { ranks: Some(ranks), ranks_first: true, ..request };
    Call { task, device, plans: None, parameters: Vec::new(), apply_parameters: Vec::new() }
}

/// A number of elements as a word.
fn in_a_word(number: usize) -> Result<u32, ReduceError> {
    u32::try_from(number).map_err(|_| Reason::Rank { found: number }.into())
}

/// A number from 0 to 1 in fixed point: an integer, and the two words of a fraction.
fn fixed(number: f64) -> [u32; 3] {
    let scaled = (number * 2f64.powi(64)).round() as u128;
    [(scaled >> 64) as u32, (scaled >> 32) as u32, scaled as u32]
}

/// Words of a weight.
fn words_of(real: ElementType) -> usize {
    real.bytes() / size_of::<u32>()
}

/// The bits of a weight.
fn words(weight: f64, real: ElementType) -> Vec<u32> {
    match real {
        ElementType::F64 => in_words(weight.to_bits()).to_vec(),
        _ => vec![(weight as f32).to_bits()],
    }
}
