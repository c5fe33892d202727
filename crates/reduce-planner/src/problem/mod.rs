//! A reduction, stated once and brought into one canonical form.
//!
//! Two reductions whose tensors lie in memory in the same way give equal problems, whatever their
//! shapes look like: dimensions of one index are dropped, the rest are ordered by stride, and
//! neighbours that follow each other without a gap are merged. FFTW's planner does the same (Frigo
//! and Johnson, "The design and implementation of FFTW3", 2005).

mod applied;
mod display;
mod layout;
mod list;
mod list_scan;
mod reference;
mod scan;
mod segments;
mod statement;
mod top_k;

use crate::{
    element::ElementType,
    error::{ProblemError, Role},
    numerics::Numerics,
};
pub use applied::{AppliedProblem, AppliedSpec, Companion};
use layout::{DimOfAll, canonical, strides_of};
pub use layout::{KeptDim, ReducedDim, row_major_strides, span};
pub use list::ListProblem;
pub use list_scan::ListScanProblem;
pub use scan::{ScanProblem, ScanSpec};
pub use segments::{IndicesSpec, SegmentsProblem, SegmentsSpec};
use statement::{
    Statement, check_count, check_output, check_rank, checked_span, second_span, select,
};
pub use top_k::{Over, Probabilities, SelectedSpec, TopKProblem};

/// What accumulating an element costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementCost {
    /// Additions, products, comparisons and the like.
    Plain,
    /// An exponential, a logarithm or the like.
    Exponential,
    /// A power: a logarithm, a product and an exponential, with special cases.
    Power,
}

impl ElementCost {
    /// Whether an element takes an exponential, a logarithm, a power or the like.
    #[must_use]
    pub const fn is_transcendental(self) -> bool {
        matches!(self, ElementCost::Exponential | ElementCost::Power)
    }
}

/// What the planner needs to know about an operator.
///
/// ```
/// use reduce_planner::OperatorClass;
///
/// // The index of the largest element: a value and an index, 4 bytes each.
/// const ARG_MAX: OperatorClass =
///     OperatorClass::new("argmax", 8).fields(2).positional().undefined_on_empty();
/// assert!(ARG_MAX.positional && !ARG_MAX.defined_on_empty);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct OperatorClass {
    /// The name in messages, such as `sum`.
    pub name: &'static str,
    /// Bytes of one accumulator: the sum over its fields.
    pub accumulator_bytes: usize,
    /// Fields of one accumulator. The second launch of a split binds a buffer for each.
    pub fields: usize,
    /// Whether the result depends on the positions of the elements (arg operators).
    pub positional: bool,
    /// Whether a reduction of no elements has a value.
    pub defined_on_empty: bool,
    /// What accumulating an element costs.
    pub element_cost: ElementCost,
    /// Whether units take the elements of several loads at once. Along the reduction, a unit then
    /// has one accumulator, and not one for each component of a load.
    pub blockwise: bool,
    /// Bytes of the accumulators of both passes together, if units that hold all elements of an
    /// output can take them in two passes.
    pub passes_bytes: Option<usize>,
    /// What makes the bits of its results the same on every device, if anything does.
    pub reproducible: Reproducible,
}

/// What makes the bits of an operator's results the same on every device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reproducible {
    /// Nothing: its functions are rounded in ways that devices and compilers differ in.
    #[default]
    No,
    /// The order in which elements are combined, which follows from their positions
    /// ([`reproducible`](crate::reproducible)).
    ByPosition,
    /// Nothing is rounded: any order gives the same results, as those of integers, extrema and
    /// positions.
    Exact,
}

impl OperatorClass {
    /// An operator whose accumulator has one field of `accumulator_bytes` bytes. It ignores
    /// positions, is defined on no elements, and accumulates elements at a plain cost.
    #[must_use]
    pub const fn new(name: &'static str, accumulator_bytes: usize) -> Self {
        Self {
            name,
            accumulator_bytes,
            fields: 1,
            positional: false,
            defined_on_empty: true,
            element_cost: ElementCost::Plain,
            blockwise: false,
            passes_bytes: None,
            reproducible: Reproducible::No,
        }
    }

    /// The number of fields of an accumulator. Their bytes together are `accumulator_bytes`.
    #[must_use]
    pub const fn fields(self, fields: usize) -> Self {
        Self { fields, ..self }
    }

    /// The result depends on the positions of the elements.
    #[must_use]
    pub const fn positional(self) -> Self {
        Self { positional: true, ..self }
    }

    /// A reduction of no elements has no value.
    #[must_use]
    pub const fn undefined_on_empty(self) -> Self {
        Self { defined_on_empty: false, ..self }
    }

    /// What accumulating an element costs.
    #[must_use]
    pub const fn element_cost(self, element_cost: ElementCost) -> Self {
        Self { element_cost, ..self }
    }

    /// Results are the same on every device if elements are combined in the order of their
    /// positions. Reduced dimensions then join only where their positions do.
    #[must_use]
    pub const fn by_position(self) -> Self {
        Self { reproducible: Reproducible::ByPosition, ..self }
    }

    /// Results are the same on every device, whatever the order of the elements.
    #[must_use]
    pub const fn exact(self) -> Self {
        Self { reproducible: Reproducible::Exact, ..self }
    }

    /// Units that hold all elements of an output can take them in two passes, whose accumulators
    /// have so many bytes together.
    #[must_use]
    pub const fn in_passes(self, bytes: usize) -> Self {
        Self { passes_bytes: Some(bytes), ..self }
    }

    /// Units take the elements of several loads at once.
    #[must_use]
    pub const fn blockwise(self) -> Self {
        Self { blockwise: true, ..self }
    }
}

/// Where the elements of the input lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InputSpec<'a> {
    /// Type of the elements.
    pub element: ElementType,
    /// Number of indices along each axis.
    pub shape: &'a [usize],
    /// Strides in elements. A stride of 0 repeats an element (broadcast).
    pub strides: &'a [usize],
    /// A number of bytes that is known to divide the address of the first element.
    pub alignment: usize,
}

/// Where the elements of a second input lie, each of which goes with one of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SecondSpec<'a> {
    /// Type of the elements.
    pub element: ElementType,
    /// Strides in elements, one for each axis of the first input: 0 where an element is repeated.
    pub strides: &'a [usize],
    /// A number of bytes that is known to divide the address of the first element.
    pub alignment: usize,
}

/// The second input of a canonical reduction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Second {
    element: ElementType,
    alignment: usize,
    strides: Companion,
    span: usize,
}

impl Second {
    /// Type of the elements.
    #[must_use]
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// A number of bytes that is known to divide the address of the first element.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// The strides along the canonical dimensions.
    #[must_use]
    pub fn strides(&self) -> &Companion {
        &self.strides
    }

    /// Number of elements from the first to the last that is touched, 0 if there are none.
    #[must_use]
    pub fn span(&self) -> usize {
        self.span
    }
}

/// Which part of a larger tensor the input is: along one axis, the indices from `start` on.
/// Positions are then those of the larger tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardSpec {
    /// The axis along which the larger tensor is cut.
    pub axis: usize,
    /// Index of the input's first element along the axis.
    pub start: usize,
    /// Number of indices of the larger tensor along the axis.
    pub of: usize,
}

/// The positions of a shard's elements, where the whole has more than the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Positions {
    /// Position of the shard's first element.
    start: usize,
    /// Number of elements of the whole reduction.
    count: usize,
}

/// Where the results go. An operator with several results has one output tensor for each, and all
/// have the same strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutputSpec<'a> {
    /// Type of each result.
    pub elements: &'a [ElementType],
    /// One stride in elements for each kept axis, in the order of the input. `None` is row-major.
    pub strides: Option<&'a [usize]>,
}

/// A validated, canonical reduction.
///
/// Dimensions are ordered from the largest stride to the smallest. Broadcast dimensions (stride 0)
/// come first, because reading along them gains nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    operator: OperatorClass,
    input: ElementType,
    results: Vec<ElementType>,
    alignment: usize,
    second: Option<Second>,
    kept: Vec<KeptDim>,
    reduced: Vec<ReducedDim>,
    input_span: usize,
    output_span: usize,
    /// `None` if the input is the whole tensor or the operator ignores positions.
    positions: Option<Positions>,
    numerics: Numerics,
}

/// Whether the elements that lie next to each other in memory belong to one output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Direction {
    /// Neighbouring elements belong to one output: units read along the reduction.
    Along,
    /// Neighbouring elements belong to neighbouring outputs: units read across the outputs.
    Across,
}

impl Problem {
    /// States a reduction of `input` over `axes` (all axes if `None`) into `output`.
    ///
    /// # Errors
    ///
    /// Those of [`with_inputs`](Self::with_inputs).
    pub fn new(
        operator: OperatorClass,
        input: &InputSpec<'_>,
        axes: Option<&[usize]>,
        output: &OutputSpec<'_>,
    ) -> Result<Self, ProblemError> {
        Self::with_inputs(operator, input, None, None, axes, output)
    }

    /// Like [`new`](Self::new), of one input or of two, which may be a shard of larger tensors.
    ///
    /// # Errors
    ///
    /// An axis is out of range or repeated, the rank of strides differs from that of the shape, a
    /// span overflows, the operator has no value for the reduction of no elements, outputs may
    /// overlap, or the shard is no part of the reduction: its axis is not reduced, or it reaches
    /// past the end of the whole. See [`ProblemError`].
    pub fn with_inputs(
        operator: OperatorClass,
        input: &InputSpec<'_>,
        second: Option<&SecondSpec<'_>>,
        shard: Option<ShardSpec>,
        axes: Option<&[usize]>,
        output: &OutputSpec<'_>,
    ) -> Result<Self, ProblemError> {
        let rank = input.shape.len();
        check_rank(Role::Input, rank, input.strides)?;
        let is_reduced = reduced_axes(rank, axes)?;
        let input_span = checked_span(Role::Input, input.shape, input.strides)?;
        let second_span = second_span(input.shape, second)?;
        check_count(input)?;
        let kept_shape = select(input.shape, &is_reduced, false);
        let reduced_shape = select(input.shape, &is_reduced, true);
        let whole = shard.map(|shard| shard.whole(input.shape, &is_reduced)).transpose()?;
        let contiguous = row_major_strides(&kept_shape);
        let kept_strides = output.strides.unwrap_or(&contiguous);
        check_rank(Role::Output, kept_shape.len(), kept_strides)?;
        let output_span = checked_span(Role::Output, &kept_shape, kept_strides)?;
        check_output(&kept_shape, kept_strides)?;
        let reduces_nothing = reduced_shape.contains(&0);
        if reduces_nothing && !kept_shape.contains(&0) && !operator.defined_on_empty {
            return Err(ProblemError::EmptyReduction {
                operator: operator.name,
                shape: input.shape.to_vec(),
                axes: (0..rank).filter(|&axis| is_reduced[axis]).collect(),
            });
        }

        let ordered = operator.reproducible == Reproducible::ByPosition;
        let reduced_strides = match (operator.positional || ordered, &whole) {
            (true, Some(whole)) => row_major_strides(&select(whole, &is_reduced, true)),
            (true, None) => row_major_strides(&reduced_shape),
            (false, _) => vec![0; reduced_shape.len()],
        };
        let (mut kept, mut reduced) = (kept_strides.iter(), reduced_strides.iter());
        let stride = |&is_reduced: &bool| if is_reduced { reduced.next() } else { kept.next() };
        let output_strides: Vec<usize> = is_reduced.iter().filter_map(stride).copied().collect();
        let positions = match (shard, whole) {
            (Some(shard), Some(whole)) if operator.positional => {
                Some(Positions::of(shard, &whole, &is_reduced))
            }
            _ => None,
        };
        // If nothing is loaded, the strides of the inputs have no meaning.
        let none = vec![0; rank];
        let strides = |strides| if reduces_nothing { none.as_slice() } else { strides };
        let statement = Statement {
            operator,
            input: InputSpec { strides: strides(input.strides), ..*input },
            second: second.map(|second| SecondSpec { strides: strides(second.strides), ..*second }),
            companions: &[],
            is_reduced: &is_reduced,
            results: output.elements.to_vec(),
            output_strides: &output_strides,
            input_span,
            second_span,
            output_span,
            positions,
        };
        Ok(statement.canonical().0)
    }

    /// The same problem, for plans whose bits depend on no more than this.
    #[must_use]
    pub fn with_numerics(self, numerics: Numerics) -> Self {
        let problem = Self { numerics, ..self };
        match problem.is_by_position() {
            true => problem.in_order_of_positions(),
            false => problem,
        }
    }

    /// Whether elements must be combined in the tree of their positions.
    pub(crate) fn is_by_position(&self) -> bool {
        self.numerics.is_reproducible() && self.operator.reproducible == Reproducible::ByPosition
    }

    /// The reduced dimensions in the order of positions, rather than in that of memory: loads then
    /// follow each other as positions do.
    fn in_order_of_positions(mut self) -> Self {
        let mut order: Vec<usize> = (0..self.reduced.len()).collect();
        order.sort_by_key(|&nth| core::cmp::Reverse(self.reduced[nth].position_stride));
        self.reduced = order.iter().map(|&nth| self.reduced[nth]).collect();
        if let Some(second) = &mut self.second {
            let strides = order.iter().map(|&nth| second.strides.reduced[nth]).collect();
            second.strides.reduced = strides;
        }
        self
    }

    /// What the bits of a result may depend on.
    #[must_use]
    pub fn numerics(&self) -> Numerics {
        self.numerics
    }

    /// The operator's class.
    #[must_use]
    pub fn operator(&self) -> OperatorClass {
        self.operator
    }

    /// Type of the input's elements.
    #[must_use]
    pub fn input(&self) -> ElementType {
        self.input
    }

    /// Type of each result of an output. Most operators have one result.
    #[must_use]
    pub fn results(&self) -> &[ElementType] {
        &self.results
    }

    /// A number of bytes that is known to divide the address of the first input element.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// The second input, if there is one.
    #[must_use]
    pub fn second(&self) -> Option<&Second> {
        self.second.as_ref()
    }

    /// The kept dimensions in canonical form.
    #[must_use]
    pub fn kept(&self) -> &[KeptDim] {
        &self.kept
    }

    /// The reduced dimensions in canonical form.
    #[must_use]
    pub fn reduced(&self) -> &[ReducedDim] {
        &self.reduced
    }

    /// Number of outputs. Each has all of the operator's results.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.kept.iter().map(|dim| dim.extent).product()
    }

    /// Number of elements that go into each result.
    #[must_use]
    pub fn reduction_len(&self) -> usize {
        self.reduced.iter().map(|dim| dim.extent).product()
    }

    /// Whether the input is a shard of a larger tensor and the operator gives positions in it.
    #[must_use]
    pub fn is_shard(&self) -> bool {
        self.positions.is_some()
    }

    /// Position of the first element: 0, unless the input is a shard and the operator gives
    /// positions.
    #[must_use]
    pub fn first_position(&self) -> usize {
        self.positions.map_or(0, |positions| positions.start)
    }

    /// Number of elements from the first to the last that the input touches, 0 if it has none.
    #[must_use]
    pub fn input_span(&self) -> usize {
        self.input_span
    }

    /// Number of elements from the first to the last that the output touches, 0 if it has none.
    #[must_use]
    pub fn output_span(&self) -> usize {
        self.output_span
    }

    /// Bytes of one output's results.
    fn result_bytes(&self) -> usize {
        self.results.iter().map(|result| result.bytes()).sum()
    }

    /// Bytes that must move: each distinct input element is read once, each result is written once.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        if self.outputs() == 0 {
            return 0;
        }
        let second = self.second.as_ref().map_or(0, |second| {
            let kept = self.kept.iter().zip(&second.strides.kept);
            let reduced = self.reduced.iter().zip(&second.strides.reduced);
            let kept = kept.map(|(dim, &stride)| (dim.extent, stride));
            let reduced = reduced.map(|(dim, &stride)| (dim.extent, stride));
            distinct(kept.chain(reduced)).saturating_mul(second.element.bytes() as u64)
        });
        self.bytes_of_first().saturating_add(second)
    }

    /// Those of the first input and of the results.
    fn bytes_of_first(&self) -> u64 {
        let outputs = self.outputs() as u64;
        if outputs == 0 {
            return 0;
        }
        let kept = self.kept.iter().map(|dim| (dim.extent, dim.stride));
        let reduced = self.reduced.iter().map(|dim| (dim.extent, dim.stride));
        let first = distinct(kept.chain(reduced)).saturating_mul(self.input.bytes() as u64);
        first.saturating_add(outputs.saturating_mul(self.result_bytes() as u64))
    }

    /// The largest number that an index into this problem must hold.
    #[must_use]
    pub fn index_span(&self) -> u64 {
        let second = self.second.as_ref().map_or(0, |second| second.span);
        let positions = self.positions.map_or(0, |positions| positions.count);
        let counts = [self.outputs(), self.reduction_len(), positions];
        [self.input_span, second, self.output_span].into_iter().chain(counts).max().unwrap_or(0)
            as u64
    }

    /// Whether the input's innermost dimension is reduced (along) or kept (across).
    #[must_use]
    pub fn direction(&self) -> Direction {
        let innermost = |stride: Option<usize>| match stride {
            None | Some(0) => usize::MAX,
            Some(stride) => stride,
        };
        let kept = innermost(self.kept.last().map(|dim| dim.stride));
        let reduced = innermost(self.reduced.last().map(|dim| dim.stride));
        if kept < reduced { Direction::Across } else { Direction::Along }
    }
}

/// The number of different elements under these extents and strides.
fn distinct(dims: impl Iterator<Item = (usize, usize)>) -> u64 {
    dims.filter(|&(_, stride)| stride != 0)
        .fold(1, |count: u64, (extent, _)| count.saturating_mul(extent as u64))
}

/// Marks the axes to reduce among `rank` axes. `None` reduces all of them.
///
/// # Errors
///
/// An axis is out of range or given twice.
pub fn reduced_axes(rank: usize, axes: Option<&[usize]>) -> Result<Vec<bool>, ProblemError> {
    let Some(axes) = axes else {
        return Ok(vec![true; rank]);
    };
    let mut is_reduced = vec![false; rank];
    for &axis in axes {
        match is_reduced.get_mut(axis) {
            None => return Err(ProblemError::AxisOutOfRange { axis, rank }),
            Some(true) => return Err(ProblemError::AxisRepeated { axis, rank }),
            Some(seen) => *seen = true,
        }
    }
    Ok(is_reduced)
}
