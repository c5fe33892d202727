//! The request of one selection, as plain data, and what it becomes.

use std::{borrow::Cow, cell::RefCell, thread::LocalKey};

use cubecl::{ir::AddressType, prelude::*, server::Handle};
use reduce_planner::{
    AppliedProblem, Combine, Device, ElementType, Illegal, InputSpec, Numerics, Over, Plan,
    PlanError, Probabilities, ProblemError, Role, Schedule, SecondSpec, SelectedSpec, TopKMethod,
    TopKPlan, TopKProblem, check_limits, reduced_axes, row_major_strides,
};

use super::mask::{self, MaskLaunch};
#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedOperand, RecordedTopK};
use crate::{
    error::{Reason, ReduceError},
    host::{
        bound::{byte_count, check_input, check_span},
        cache::{Asked, Held, Known, Remembered},
        call::{Task, prepare},
        client::has_wide_math,
        launched::Noted,
        reduce::{
            PreparedReduction,
            dispatch::team,
            request::{OutputLayout, ReduceRequest, Wanted},
        },
        scratch::table,
        settings,
        types::{applied_type, check_computes, check_kernels},
    },
    kernels::top_k::selection::{OrderLaunch, Selection},
    operator::{Operator, OperatorRef, Signature, TypeRequest, builtin::SoftmaxSums, rules},
};

/// The name in messages.
pub(crate) const NAME: &str = "top_k";

/// Which elements come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Order {
    /// Whether the largest come first, rather than the smallest.
    pub(crate) largest: bool,
    /// Whether NaN comes after all numbers, rather than before them.
    pub(crate) nan_last: bool,
    /// Whether the selected elements are in the order of their positions.
    pub(crate) by_position: bool,
    /// Whether slices with NaN give NaN alone.
    pub(crate) nan_spreads: bool,
}

impl Order {
    /// The largest first, or the smallest. NaN comes before all numbers.
    pub(crate) fn new(largest: bool) -> Self {
        Self { largest, nan_last: false, by_position: false, nan_spreads: false }
    }

    /// The argument of a launch, which puts elements in the order of their values even if they are
    /// to be in that of their positions.
    pub(super) fn of_values(self) -> OrderLaunch {
        Self { by_position: false, ..self }.argument()
    }

    /// The argument of a launch.
    pub(super) fn argument(self) -> OrderLaunch {
        let all_if = |set: bool| if set { u32::MAX } else { 0 };
        OrderLaunch::new(
            all_if(!self.largest),
            all_if(!self.nan_last),
            all_if(!self.by_position),
            all_if(self.nan_spreads),
        )
    }
}

/// Everything that decides how a selection is launched, apart from its buffers and its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TopKRequest<'a> {
    pub(crate) element: ElementType,
    pub(crate) shape: Cow<'a, [usize]>,
    pub(crate) strides: Cow<'a, [usize]>,
    /// The largest number of bytes of which the address of the first element is known to be a
    /// multiple.
    pub(crate) alignment: usize,
    /// The axes of a slice; `None` means all axes.
    pub(crate) axes: Option<Cow<'a, [usize]>>,
    pub(crate) keep_dims: bool,
    pub(crate) k: usize,
    /// The elements to write of each slice; `None` means all.
    pub(crate) ranks: Option<Ranks<'a>>,
    /// Whether new outputs have all elements of one rank side by side.
    pub(crate) ranks_first: bool,
    /// Whether shorter slices are selected as a whole.
    pub(crate) or_fewer: bool,
    pub(crate) order: Order,
    /// Over which elements the probabilities add up to 1 that are written in place of values, if
    /// these are not written.
    pub(crate) probabilities: Option<Over>,
    /// The type of the values, if one was asked for.
    pub(crate) values: Option<ElementType>,
    /// What the bits of probabilities may depend on. Elements are not computed with.
    pub(crate) numerics: Numerics,
    /// The type of the positions, if one was asked for.
    pub(crate) positions: Option<ElementType>,
    /// The tensor whose elements are written in place of positions in the slice, if there is one.
    pub(crate) table: Option<PositionTable<'a>>,
    /// Shape and strides of supplied outputs.
    pub(crate) output: Option<OutputLayout<'a>>,
    /// Strides of the tensor to write with nothing but the selected elements, if that is what the
    /// selection is for. Then it gives the last of them alone, and keeps all axes.
    pub(crate) mask: Option<Cow<'a, [usize]>>,
    /// Elements that supplied buffers hold, if the outputs are a part of what these are for.
    pub(crate) places: usize,
    pub(crate) plan: Option<TopKPlan>,
}

/// Elements to write, by their numbers among the selected ones, from 0 and below `k`, in descending
/// order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ranks<'a> {
    /// Elements to write of each slice.
    pub(crate) count: usize,
    /// Words to have on the device: the numbers of all slices and what a launch after the selection
    /// reads beside them, or, if slices have tables of their own, what the launch before it reads,
    /// which writes the tables.
    pub(crate) words: Cow<'a, [u32]>,
    /// Words of the table of a slice, if each has one. It begins with the numbers of the slice. The
    /// outputs of a rank then lie side by side.
    pub(crate) words_of_slice: Option<usize>,
}

impl<'a> Ranks<'a> {
    /// These numbers for all slices, and no other words.
    pub(crate) fn of_all(numbers: Vec<u32>) -> Self {
        Self { count: numbers.len(), words: Cow::Owned(numbers), words_of_slice: None }
    }
}

/// A tensor of positions to write: its type, and its strides along the axes of the input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PositionTable<'a> {
    pub(crate) element: ElementType,
    pub(crate) strides: Cow<'a, [usize]>,
}

impl PositionTable<'_> {
    /// As a second input. It is read one element at a time, for which any alignment does.
    fn spec(&self) -> SecondSpec<'_> {
        let Self { element, ref strides } = *self;
        SecondSpec { element, strides, alignment: element.bytes() }
    }
}

/// A selection whose axes, types and strides have been checked.
#[derive(Debug)]
pub(crate) struct StatedTopK {
    pub(crate) problem: TopKProblem,
    pub(crate) signature: Signature,
    /// Shape of the values and of the positions.
    pub(crate) shape: Vec<usize>,
    /// Their strides.
    pub(crate) strides: Vec<usize>,
    /// The axis of the selected elements in that shape.
    pub(crate) axis: usize,
    /// The launch that writes a mask, if there is one.
    pub(super) mask: Option<AppliedProblem>,
}

/// A selection that is ready to launch, except for its buffers.
#[derive(Debug)]
pub(crate) struct PreparedTopK {
    pub(super) order: Order,
    /// The words of the elements to write, if not all are; see [`Ranks::words`].
    pub(super) ranks: Option<Handle>,
    /// Words of the table of a slice, if each has one.
    pub(super) words_of_slice: Option<usize>,
    pub(super) stated: StatedTopK,
    /// `None` if nothing is selected.
    pub(super) launch: Option<TopKLaunch>,
    /// The reduction to what makes probabilities of elements, where the selection does not find it
    /// itself.
    pub(super) softmax: Option<PreparedReduction>,
    pub(super) noted: Noted,
}

/// The numbers of the launches of a plan.
#[derive(Debug)]
pub(crate) struct TopKLaunch {
    pub(super) plan: TopKPlan,
    pub(super) address: AddressType,
    pub(super) selection: Selection,
    pub(super) grid: [u32; 3],
    pub(super) further: Further,
    pub(super) mask: Option<MaskLaunch>,
}

/// The launches after the first that select.
#[derive(Clone, Copy, Debug)]
pub(super) enum Further {
    None,
    /// The selection among what several cubes leave of each slice.
    Among {
        selection: Selection,
        grid: [u32; 3],
    },
    /// Merges of runs.
    Runs(RunLaunches),
}

/// The numbers of the launches that merge runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLaunches {
    /// Runs of a slice.
    pub(super) runs: usize,
    /// Units of a cube.
    pub(super) units: u32,
    /// A unit for each entry.
    pub(super) merging: [u32; 3],
    /// A unit for each selected element.
    pub(super) storing: [u32; 3],
    /// Runs of the selected elements of a slice, and a cube for each run of all slices, if they are
    /// put in the order of their positions.
    pub(super) by_position: Option<(usize, [u32; 3])>,
    /// A cube for each slice, if probabilities are stored.
    pub(super) probabilities: Option<(Selection, [u32; 3])>,
}

/// Most units of a cube that merges runs or stores what is selected. Each takes one entry.
const RUN_UNITS: u32 = 128;

impl<'a> TopKRequest<'a> {
    /// The selection of the `k` largest elements over `axes`.
    pub(crate) fn new(input: InputSpec<'a>, axes: Option<&'a [usize]>, k: usize) -> Self {
        Self {
            element: input.element,
            shape: Cow::Borrowed(input.shape),
            strides: Cow::Borrowed(input.strides),
            alignment: input.alignment,
            axes: axes.map(Cow::Borrowed),
            keep_dims: true,
            k,
            ranks: None,
            ranks_first: false,
            or_fewer: false,
            order: Order::new(true),
            probabilities: None,
            values: None,
            numerics: settings::numerics(),
            positions: None,
            table: None,
            output: None,
            mask: None,
            places: 0,
            plan: None,
        }
    }

    /// The same of the last of the `k` elements alone.
    ///
    /// # Errors
    ///
    /// A `k` of 0, or of more than 32 bits.
    pub(crate) fn only_last(self) -> Result<Self, ReduceError> {
        let k = if self.or_fewer { self.k.min(self.slices()?.0) } else { self.k };
        let rank = k.checked_sub(1).and_then(|rank| u32::try_from(rank).ok());
        let rank = rank.ok_or_else(|| ReduceError::from(Reason::Rank { found: k }))?;
        // It is the last by value, in whichever order the elements would be put.
        let order = Order { by_position: false, ..self.order };
        Ok(Self { ranks: Some(Ranks::of_all(vec![rank])), order, ..self })
    }

    /// The same from a part of the slices, whose results are candidates: as many elements as it has
    /// and no more than `k`, in the order that is asked for. What has one rank lies side by side.
    pub(crate) fn of_part(self, positions: ElementType) -> Self {
        Self {
            or_fewer: true,
            ranks_first: true,
            probabilities: None,
            values: None,
            positions: Some(positions),
            ..self
        }
    }

    /// The request with lists that it owns.
    pub(super) fn into_owned(self) -> TopKRequest<'static> {
        let owned = |list: Cow<'_, [usize]>| Cow::Owned(list.into_owned());
        TopKRequest {
            shape: owned(self.shape),
            strides: owned(self.strides),
            axes: self.axes.map(owned),
            ranks: self
                .ranks
                .map(|ranks| Ranks { words: Cow::Owned(ranks.words.into_owned()), ..ranks }),
            table: self.table.map(|PositionTable { element, strides }| {
                let strides = owned(strides);
                PositionTable { element, strides }
            }),
            output: self.output.map(|(shape, strides)| (owned(shape), owned(strides))),
            mask: self.mask.map(owned),
            ..self
        }
    }

    /// The elements of a slice, and the axis of the selected ones if all axes of a slice are kept.
    pub(crate) fn slices(&self) -> Result<(usize, usize), ReduceError> {
        let is_reduced = reduced_axes(self.shape.len(), self.axes.as_deref())?;
        let Some(ranked) = is_reduced.iter().rposition(|&reduced| reduced) else {
            return Err(ProblemError::NoAxes { operator: NAME }.into());
        };
        // If a product of extents overflows, the problem refuses the shape.
        let extents = self.shape.iter().zip(&is_reduced).filter(|&(_, &reduced)| reduced);
        let len = extents.fold(1usize, |len, (&extent, _)| len.saturating_mul(extent));
        Ok((len, ranked))
    }

    /// Checks the request and constructs its problem.
    pub(crate) fn resolve(&self) -> Result<StatedTopK, ReduceError> {
        let shape = &self.shape[..];
        let is_reduced = reduced_axes(shape.len(), self.axes.as_deref())?;
        let (len, ranked) = self.slices()?;
        let k = if self.or_fewer { self.k.min(len) } else { self.k };
        let probabilities = self.probabilities.map(|over| self.check_probabilities(over));
        let probabilities = probabilities.transpose()?;
        // Positions of a tensor are written as they are, so no other type will do.
        let table = self.table.as_ref().map(|table| table.element);
        let request = TypeRequest {
            input: self.element,
            accumulator: None,
            outputs: [
                self.values.filter(|_| probabilities.is_none()),
                self.positions.or(table),
                None,
            ],
            reduction_len: len,
        };
        let mut signature = rules::value_and_index(&request)
            .filter(|signature| table.is_none_or(|element| element == signature.results[1]))
            // Elements are not converted.
            .filter(|_| {
                let values = self.values.unwrap_or(self.element);
                probabilities.is_some() || values == self.element
            })
            .ok_or_else(|| Reason::Types { operator: NAME.to_owned(), request })?;
        if let Some(Probabilities { element, .. }) = probabilities {
            signature.results[0] = element;
        }
        let written = self.ranks.as_ref().map(|ranks| ranks.count);
        let left = self.axes_left(&is_reduced, ranked);
        let extent = |&axis: &usize| match (is_reduced[axis], axis == ranked) {
            (false, _) => shape[axis],
            (true, true) => written.unwrap_or(k),
            (true, false) => 1,
        };
        let selected_shape: Vec<usize> = left.iter().map(extent).collect();
        let axis = left.iter().position(|&axis| axis == ranked);
        let axis = axis.expect("the axis of the ranks is left");
        let dense = match self.ranks_first {
            true => with_ranks_first(&selected_shape, axis),
            false => row_major_strides(&selected_shape),
        };
        let strides = match &self.output {
            Some((found, _)) if found[..] != selected_shape => {
                let (expected, found) = (selected_shape, found.to_vec());
                return Err(Reason::OutputShape { expected, found }.into());
            }
            Some((_, strides)) if strides.len() != selected_shape.len() => {
                let (dims, strides) = (selected_shape.len(), strides.len());
                let tensor = Role::Output;
                return Err(ProblemError::RankMismatch { tensor, dims, strides }.into());
            }
            Some((_, strides)) => &strides[..],
            None => &dense[..],
        };
        let selected = SelectedSpec {
            positions: signature.results[1],
            kept_strides: &strides_of(&left, strides, |axis| !is_reduced[axis]),
            rank_stride: strides_of(&left, strides, |axis| axis == ranked)[0],
            written,
            probabilities,
        };
        let input = InputSpec {
            element: self.element,
            shape,
            strides: &self.strides,
            alignment: self.alignment,
        };
        let table = self.table.as_ref().map(PositionTable::spec);
        let axes = self.axes.as_deref();
        let problem = TopKProblem::with_positions(&input, table.as_ref(), axes, k, &selected)?;
        let mask = match &self.mask {
            Some(output) => Some(mask::state(&input, axes, &is_reduced, strides, output)?),
            None => None,
        };
        let problem = if mask.is_some() { problem.masked() } else { problem };
        let strides = strides.to_vec();
        Ok(StatedTopK { problem, signature, shape: selected_shape, strides, axis, mask })
    }

    /// The probabilities to write. They are computed in f64 of elements of f64, otherwise in f32.
    fn check_probabilities(&self, over: Over) -> Result<Probabilities, ReduceError> {
        let (input, element) = (self.element, self.values.unwrap_or(self.element));
        if self.numerics.is_reproducible() {
            let (operator, of) = (NAME, Some("with probabilities"));
            return Err(PlanError::NotReproducible { operator, of }.into());
        }
        let is_wider = element == ElementType::F64 && input != element;
        match input.is_float() && element.is_float() && !is_wider {
            true => Ok(Probabilities { over, element }),
            false => Err(Reason::ProbabilityTypes { input, found: element }.into()),
        }
    }

    /// The reduction to the largest element of each slice and one over the sum of exponentials,
    /// which lie where the outputs of the slice begin.
    fn softmax(&self, stated: &StatedTopK) -> Result<ReduceRequest<'_>, ReduceError> {
        let is_reduced = reduced_axes(self.shape.len(), self.axes.as_deref())?;
        let (_, ranked) = self.slices()?;
        let left = self.axes_left(&is_reduced, ranked);
        let is_kept = |axis: usize| !is_reduced[axis];
        let kept = |list: &[usize]| Cow::Owned(strides_of(&left, list, is_kept));
        let real = Some(applied_type(self.element, None, None));
        // Selections have the same bits in every batch, and so have their probabilities.
        let numerics = match self.numerics {
            Numerics::Deterministic => Numerics::BatchInvariant,
            numerics => numerics,
        };
        Ok(ReduceRequest {
            operator: OperatorRef(SoftmaxSums::DEFINITION.erased().with_numerics(numerics)),
            element: self.element,
            shape: Cow::Borrowed(&self.shape),
            strides: Cow::Borrowed(&self.strides),
            second: None,
            alignment: self.alignment,
            axes: self.axes.as_deref().map(Cow::Borrowed),
            keep_dims: false,
            accumulator: None,
            outputs: [real, real, None],
            output: Some((kept(&stated.shape), kept(&stated.strides))),
            plan: None,
            wanted: Wanted::Results,
            shard: None,
            numerics,
        })
    }

    /// The axes of the input that the outputs have. The last axis of a slice becomes that of the
    /// ranks.
    fn axes_left(&self, is_reduced: &[bool], ranked: usize) -> Vec<usize> {
        let is_left = |&axis: &usize| self.keep_dims || !is_reduced[axis] || axis == ranked;
        (0..is_reduced.len()).filter(is_left).collect()
    }
}

/// The strides of those of the `left` axes that are wanted.
fn strides_of(left: &[usize], strides: &[usize], wanted: impl Fn(usize) -> bool) -> Vec<usize> {
    let pairs = left.iter().zip(strides);
    pairs.filter(|&(&axis, _)| wanted(axis)).map(|(_, &stride)| stride).collect()
}

/// The strides of selected elements of a shape whose ranks are outermost and whose other axes are
/// row-major.
pub(super) fn with_ranks_first(shape: &[usize], ranked: usize) -> Vec<usize> {
    let mut stride = 1usize;
    let mut strides = vec![0; shape.len()];
    for axis in (0..shape.len()).rev().filter(|&axis| axis != ranked) {
        strides[axis] = stride;
        stride = stride.saturating_mul(shape[axis]);
    }
    strides[ranked] = stride;
    strides
}

impl Asked for TopKRequest<'_> {
    type Request = TopKRequest<'static>;

    fn is(&self, known: &TopKRequest<'static>) -> bool {
        self == known
    }

    fn to_request(&self) -> TopKRequest<'static> {
        self.clone().into_owned()
    }
}

/// The tensors are the input, and that of positions to write if there is one.
impl Task for TopKRequest<'_> {
    type Stated = StatedTopK;
    type Problem = TopKProblem;
    type Launch = TopKLaunch;

    fn state(&self) -> Result<StatedTopK, ReduceError> {
        self.resolve()
    }

    fn problem(stated: &StatedTopK) -> &TopKProblem {
        &stated.problem
    }

    fn given(&self) -> Option<&TopKPlan> {
        self.plan.as_ref()
    }

    /// Keys of elements of 64 bits are computed in 64 bits, all others in 32.
    fn check_types(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedTopK,
    ) -> Result<(), ReduceError> {
        check_kernels(client)?;
        check_computes(client, device, stated.signature.value)?;
        let Some(Probabilities { element, .. }) = stated.problem.probabilities() else {
            return Ok(());
        };
        // Probabilities are stored in this type, and computed in another.
        if !device.has(element) {
            let device = device.name.clone();
            return Err(PlanError::ElementUnsupported { device, element }.into());
        }
        let real = applied_type(self.element, None, None);
        check_computes(client, device, real)?;
        if real == ElementType::F64 && !has_wide_math(client, false) {
            let (operator, device) = (NAME.to_owned(), device.name.clone());
            return Err(Reason::Transcendental { operator, element: real, device }.into());
        }
        Ok(())
    }

    fn check_bytes(&self, stated: &StatedTopK, bytes: &[Option<u64>]) -> Result<(), ReduceError> {
        let slices = stated.problem.slices();
        if let Some(&Some(available)) = bytes.first() {
            check_input(slices, available)?;
        }
        if let (Some(&Some(available)), Some(table)) = (bytes.get(1), slices.second()) {
            check_span(Role::Positions, table.span(), table.element(), available)?;
        }
        Ok(())
    }

    fn check_outputs(&self, client: &Client, stated: &StatedTopK) -> Result<(), ReduceError> {
        let available = client.properties().memory.max_page_size;
        let results = stated.signature.results[..2].iter();
        let needed = results.map(|&element| byte_count(stated.problem.output_span(), element));
        let of_mask = stated.mask.as_ref();
        let of_mask = of_mask.map(|mask| byte_count(mask.problem().output_span(), mask.output()));
        let needed = needed.chain(of_mask);
        match needed.max().filter(|&needed| self.output.is_none() && needed > available) {
            Some(needed) => Err(Reason::OutputTooLarge { needed, available }.into()),
            None => Ok(()),
        }
    }

    fn is_empty(stated: &StatedTopK) -> bool {
        stated.problem.output_span() == 0
    }

    fn launch(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedTopK,
        plan: &TopKPlan,
    ) -> Result<TopKLaunch, ReduceError> {
        let problem = &stated.problem;
        let unfit = |reason| -> ReduceError {
            let (plan, device) = (plan.to_string(), device.name.clone());
            PlanError::Unfit { plan, device, reason }.into()
        };
        let grid = |cubes| {
            let grid = device.grid(cubes);
            grid.ok_or_else(|| unfit(Illegal::Grid { cubes, merging: false }))
        };
        let entries = entries_left(problem, plan) as u64;
        if plan.leaves_entries() {
            let bytes = entries.saturating_mul(size_of::<u32>() as u64);
            let available = client.properties().memory.max_page_size;
            if bytes > available {
                return Err(unfit(Illegal::PartialsBuffer { bytes, available }));
            }
        }
        let words_of_slice = self.ranks.as_ref().and_then(|ranks| ranks.words_of_slice);
        let tables = problem.slices().outputs().saturating_mul(words_of_slice.unwrap_or(0));
        let span = problem.output_span().max(self.places).max(tables) as u64;
        let span = entries.max(span);
        let wide = check_limits(problem.slices(), device, span)?;
        let (key_words, position_words) = TopKPlan::entry_words(problem);
        let over = problem.probabilities().map(|of| of.over);
        let selection = Selection {
            team: team(&reading(plan, plan.slices_per_cube), device),
            capacity: plan.buffer,
            digit_bits: plan.digit_bits,
            key_words,
            position_words,
            probabilities: over.filter(|_| !plan.leaves_entries()),
        };
        let storing = Selection { probabilities: over, ..selection };
        let slices = problem.slices().outputs() as u64;
        let further = match plan.method {
            TopKMethod::Runs => {
                let units = RUN_UNITS.min(device.max_units_per_cube);
                let cubes = |entries: u64| grid(entries.div_ceil(units.into()));
                let of_selected = problem.k().div_ceil(plan.buffer as usize);
                let written = problem.written() as u64;
                let by_position = match self.order.by_position {
                    true => Some((of_selected, grid(slices * of_selected as u64)?)),
                    false => None,
                };
                Further::Runs(RunLaunches {
                    runs: plan.cubes_per_slice as usize,
                    units,
                    merging: cubes(entries)?,
                    storing: cubes(slices * written)?,
                    by_position,
                    probabilities: match over {
                        Some(_) => Some((storing, grid(slices)?)),
                        None => None,
                    },
                })
            }
            _ if plan.leaves_entries() => {
                let team = team(&reading(plan, 1), device);
                Further::Among { selection: Selection { team, ..storing }, grid: grid(slices)? }
            }
            _ => Further::None,
        };
        Ok(TopKLaunch {
            plan: *plan,
            address: if wide { AddressType::U64 } else { AddressType::U32 },
            selection,
            grid: grid(plan.cubes(problem))?,
            further,
            mask: match &stated.mask {
                Some(applied) => Some(MaskLaunch::new(applied, device)?),
                None => None,
            },
        })
    }

    fn prepare(
        &self,
        client: &Client,
        device: &Device,
        stated: StatedTopK,
        launch: Option<TopKLaunch>,
    ) -> Result<PreparedTopK, ReduceError> {
        // A buffer of 0 bytes cannot be made, and where nothing is launched there may be no ranks.
        let ranks = self.ranks.as_ref().filter(|_| launch.is_some());
        let words_of_slice = ranks.and_then(|ranks| ranks.words_of_slice);
        let ranks = ranks.map(|ranks| table(client, &ranks.words)).transpose()?;
        let sums = launch.as_ref().and_then(|launch| launch.plan.sums_before(&stated.problem));
        let softmax = match sums {
            Some(sums) => {
                let reduction = prepare(&self.softmax(&stated)?, client, device, false, |_| None)?;
                // The plan's sentence and its estimate are about this problem.
                debug_assert_eq!(reduction.resolved.problem, *sums);
                Some(reduction)
            }
            None => None,
        };
        // Only floats have a NaN.
        let nan_spreads = self.order.nan_spreads && self.element.is_float();
        let (order, noted) = (Order { nan_spreads, ..self.order }, Noted::default());
        Ok(PreparedTopK { order, ranks, words_of_slice, stated, launch, softmax, noted })
    }

    #[cfg(feature = "serde")]
    fn recorded(&self) -> Option<RecordedCall> {
        let recorded = || RecordedTopK::of(self).ok().map(RecordedCall::TopK);
        if self.plan.is_none() { recorded() } else { None }
    }
}

/// The plan of a reduction that reads slices as a selection does, so many in each cube.
pub(super) fn reading(plan: &TopKPlan, slices_per_cube: u32) -> Plan {
    let schedule = Schedule::Cube {
        units_per_output: plan.units_per_slice,
        outputs_per_cube: slices_per_cube,
        combine: Combine::Shared,
    };
    Plan::new(plan.access, schedule)
}

/// Entries that the cubes of all slices leave.
pub(super) fn entries_left(problem: &TopKProblem, plan: &TopKPlan) -> usize {
    let of_cube = match plan.method {
        TopKMethod::Runs => plan.buffer as usize,
        _ => problem.k(),
    };
    let of_slice = (plan.cubes_per_slice as usize).saturating_mul(of_cube);
    problem.slices().outputs().saturating_mul(of_slice)
}

thread_local! {
    static KNOWN: RefCell<Known<TopKRequest<'static>>> = RefCell::default();
}

impl Remembered for TopKRequest<'static> {
    type Prepared = PreparedTopK;

    fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
        &KNOWN
    }

    fn held(&self, _: &PreparedTopK) -> Held {
        let ranks = self.ranks.as_ref().map_or(0, |ranks| size_of_val(&ranks.words[..]));
        let of_ranks = Held { host: ranks, device: ranks };
        Held::of_axes::<Self, PreparedTopK>(self.shape.len()).plus(of_ranks)
    }
}

#[cfg(feature = "serde")]
impl RecordedTopK {
    /// The selection of a request.
    ///
    /// # Errors
    ///
    /// Axes that the input does not have, and none.
    pub(crate) fn of(request: &TopKRequest<'_>) -> Result<Self, ReduceError> {
        let is_reduced = reduced_axes(request.shape.len(), request.axes.as_deref())?;
        let (len, ranked) = request.slices()?;
        let left = request.axes_left(&is_reduced, ranked);
        let dense = match request.ranks_first {
            true => Some(request.resolve()?.strides),
            false => None,
        };
        let supplied = request.output.as_ref().map(|(_, strides)| strides.to_vec());
        let is_kept = |axis: usize| !is_reduced[axis] || axis == ranked;
        let of_kept = |strides: Vec<usize>| strides_of(&left, &strides, is_kept);
        Ok(Self {
            k: if request.or_fewer { request.k.min(len) } else { request.k },
            written: request.ranks.as_ref().map(|ranks| ranks.count),
            element: request.element,
            shape: request.shape.to_vec(),
            strides: request.strides.to_vec(),
            alignment: request.alignment,
            axes: request.axes.as_ref().map(|axes| axes.to_vec()),
            positions: request.positions,
            probabilities: match request.probabilities {
                Some(over) => Some(request.check_probabilities(over)?),
                None => None,
            },
            table: request.table.as_ref().map(|PositionTable { element, strides }| {
                RecordedOperand::new(*element, strides, element.bytes())
            }),
            output_strides: supplied.or(dense).map(of_kept),
            mask_strides: request.mask.as_ref().map(|strides| strides.to_vec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The planner states the reduction before probabilities over slices as the launch does, for
    /// elements of every type.
    #[test]
    fn the_planner_knows_the_sums() {
        let floats = ElementType::ALL.into_iter().filter(|element| element.is_float());
        for element in floats {
            let (shape, strides) = ([6, 50, 40], [2000, 1, 50]);
            let input = InputSpec { element, shape: &shape, strides: &strides, alignment: 16 };
            for axes in [&[1][..], &[0, 2], &[0, 1, 2]] {
                let request = TopKRequest {
                    probabilities: Some(Over::Slice),
                    ..TopKRequest::new(input, Some(axes), 9)
                };
                let stated = request.resolve().unwrap();
                let reduction = request.softmax(&stated).unwrap().resolve().unwrap();
                assert_eq!(stated.problem.sums(), Some(&reduction.problem), "{element} {axes:?}");
            }
        }
    }
}
