//! What every problem goes through: checks of its tensors, and the canonical form.

use super::{
    Companion, DimOfAll, InputSpec, OperatorClass, Positions, Problem, Second, SecondSpec,
    ShardSpec, canonical,
    layout::{count_of_extents, may_overlap, row_major_strides, span},
    strides_of,
};
use crate::{
    element::ElementType,
    error::{ProblemError, Role},
    numerics::Numerics,
};

/// A reduction whose tensors were checked.
pub(super) struct Statement<'a> {
    pub(super) operator: OperatorClass,
    pub(super) input: InputSpec<'a>,
    pub(super) second: Option<SecondSpec<'a>>,
    /// The strides of each companion along the axes of the input.
    pub(super) companions: &'a [&'a [usize]],
    pub(super) is_reduced: &'a [bool],
    pub(super) results: Vec<ElementType>,
    /// For each axis of the input, the stride in the output. Results have no reduced axes. These
    /// have their stride in the order of positions instead.
    pub(super) output_strides: &'a [usize],
    pub(super) input_span: usize,
    pub(super) second_span: usize,
    pub(super) output_span: usize,
    pub(super) positions: Option<Positions>,
}

impl Statement<'_> {
    /// The problem in canonical form, and the strides of each companion along its dimensions.
    pub(super) fn canonical(self) -> (Problem, Vec<Companion>) {
        let (kept, reduced) = (self.dims(false), self.dims(true));
        let companion =
            |nth| Companion { kept: strides_of(&kept, nth), reduced: strides_of(&reduced, nth) };
        let count = self.companions.len();
        let companions = (0..count).map(companion).collect();
        let second = self.second.map(|second| Second {
            element: second.element,
            alignment: second.alignment,
            strides: companion(count),
            span: self.second_span,
        });
        let problem = Problem {
            operator: self.operator,
            input: self.input.element,
            results: self.results,
            alignment: self.input.alignment,
            second,
            kept: kept.iter().map(DimOfAll::kept).collect(),
            reduced: reduced.iter().map(DimOfAll::reduced).collect(),
            input_span: self.input_span,
            output_span: self.output_span,
            positions: self.positions,
            numerics: Numerics::default(),
        };
        (problem, companions)
    }

    /// The canonical dimensions of the reduced axes, or of the kept ones. The second input comes
    /// after the companions.
    fn dims(&self, reduced: bool) -> Vec<DimOfAll> {
        let beside = || {
            let second = self.second.map(|second| second.strides);
            self.companions.iter().copied().chain(second)
        };
        let axes = (0..self.is_reduced.len()).filter(|&axis| self.is_reduced[axis] == reduced);
        let dims = axes.map(|axis| DimOfAll {
            extent: self.input.shape[axis],
            stride: self.input.strides[axis],
            other: self.output_strides[axis],
            companions: beside().map(|strides| strides[axis]).collect(),
        });
        canonical(dims.collect())
    }
}

/// Checks that a tensor of so many dimensions has as many strides.
pub(super) fn check_rank(tensor: Role, dims: usize, strides: &[usize]) -> Result<(), ProblemError> {
    match strides.len() == dims {
        true => Ok(()),
        false => Err(ProblemError::RankMismatch { tensor, dims, strides: strides.len() }),
    }
}

/// Number of elements from the first to the last that a tensor touches.
pub(super) fn checked_span(
    tensor: Role,
    shape: &[usize],
    strides: &[usize],
) -> Result<usize, ProblemError> {
    span(shape, strides).ok_or_else(|| too_large(tensor, shape, strides))
}

/// Checks that no product of extents of the input overflows.
pub(super) fn check_count(input: &InputSpec<'_>) -> Result<(), ProblemError> {
    let count = count_of_extents(input.shape);
    count.map(|_| ()).ok_or_else(|| too_large(Role::Input, input.shape, input.strides))
}

/// The span of a second input along the axes of the first, and 0 if there is none.
pub(super) fn second_span(
    shape: &[usize],
    second: Option<&SecondSpec<'_>>,
) -> Result<usize, ProblemError> {
    let Some(SecondSpec { strides, .. }) = second else { return Ok(0) };
    check_rank(Role::SecondInput, shape.len(), strides)?;
    checked_span(Role::SecondInput, shape, strides)
}

/// Checks that no two elements of the output share a place.
pub(super) fn check_output(shape: &[usize], strides: &[usize]) -> Result<(), ProblemError> {
    match may_overlap(shape, strides) {
        true => {
            Err(ProblemError::OutputOverlaps { shape: shape.to_vec(), strides: strides.to_vec() })
        }
        false => Ok(()),
    }
}

fn too_large(tensor: Role, shape: &[usize], strides: &[usize]) -> ProblemError {
    ProblemError::TooLarge { tensor, shape: shape.to_vec(), strides: strides.to_vec() }
}

impl ShardSpec {
    /// The shape of the whole that the shard is of.
    pub(super) fn whole(
        self,
        shape: &[usize],
        is_reduced: &[bool],
    ) -> Result<Vec<usize>, ProblemError> {
        let Self { axis, start, of } = self;
        let &extent =
            shape.get(axis).ok_or(ProblemError::AxisOutOfRange { axis, rank: shape.len() })?;
        let fits = start.checked_add(extent).is_some_and(|end| end <= of);
        if !is_reduced[axis] || !fits {
            let is_reduced = is_reduced[axis];
            return Err(ProblemError::Shard { axis, start, extent, of, is_reduced });
        }
        let mut whole = shape.to_vec();
        whole[axis] = of;
        match count_of_extents(&whole) {
            Some(_) => Ok(whole),
            None => Err(too_large(Role::WholeOfShards, &whole, &row_major_strides(&whole))),
        }
    }
}

impl Positions {
    /// The positions of a shard in a whole of this shape.
    pub(super) fn of(shard: ShardSpec, whole: &[usize], is_reduced: &[bool]) -> Self {
        let before = is_reduced[..shard.axis].iter().filter(|&&reduced| reduced).count();
        let reduced = select(whole, is_reduced, true);
        // The product of the whole's extents does not overflow, so neither do these.
        let stride = row_major_strides(&reduced)[before];
        Self { start: shard.start * stride, count: reduced.iter().product() }
    }
}

/// The values of the reduced axes, or of the kept ones.
pub(super) fn select(values: &[usize], is_reduced: &[bool], reduced: bool) -> Vec<usize> {
    let pairs = values.iter().zip(is_reduced);
    pairs.filter(|&(_, &is_reduced)| is_reduced == reduced).map(|(&value, _)| value).collect()
}
