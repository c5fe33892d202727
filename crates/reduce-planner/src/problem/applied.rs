//! A reduction whose results are applied to each element of its own input.

use super::{
    DimOfAll, InputSpec, OperatorClass, Problem, Second, SecondSpec, canonical, count_of_extents,
    layout::span, may_overlap, reduced_axes, row_major_strides, second_span, strides_of,
};
use crate::{ElementType, ProblemError};

/// Where the elements that results were applied to go, and further tensors that are read with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AppliedSpec<'a> {
    /// Type of the output's elements.
    pub element: ElementType,
    /// Strides of the output, one for each axis of the input. `None` is row-major.
    pub strides: Option<&'a [usize]>,
    /// The second input of a reduction of pairs.
    pub second: Option<&'a SecondSpec<'a>>,
    /// The strides of each companion, one for each axis of the input: 0 where it has one index.
    /// The results come first, then the second input if there is one, and then the operands.
    pub companions: &'a [&'a [usize]],
}

/// The strides of a tensor that is read or written beside the input, for each canonical dimension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Companion {
    /// Strides along the kept dimensions.
    pub kept: Vec<usize>,
    /// Strides along the reduced dimensions.
    pub reduced: Vec<usize>,
}

/// A validated, canonical reduction whose results are applied to each element of its input.
///
/// Its [`Problem`] is that of the reduction, with the output that results are applied to in place
/// of the results: `output_stride` and `position_stride` are strides in that output.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AppliedProblem {
    pub(super) problem: Problem,
    pub(super) companions: Vec<Companion>,
    /// Elements from the first to the last of the companion that spans most.
    pub(super) companion_span: usize,
    pub(super) stores_results: bool,
}

impl AppliedProblem {
    /// States a reduction of `input` over `axes` (all axes if `None`) and its application.
    ///
    /// # Errors
    ///
    /// Those of [`Problem::new`], for an output of the shape of the input. Positional operators are
    /// refused.
    pub fn new(
        operator: OperatorClass,
        input: &InputSpec<'_>,
        axes: Option<&[usize]>,
        applied: &AppliedSpec<'_>,
    ) -> Result<Self, ProblemError> {
        let rank = input.shape.len();
        let mismatch =
            |tensor, strides| Err(ProblemError::RankMismatch { tensor, dims: rank, strides });
        if operator.positional {
            return Err(ProblemError::PositionalApplied { operator: operator.name });
        }
        if input.strides.len() != rank {
            return mismatch("input", input.strides.len());
        }
        let is_reduced = reduced_axes(rank, axes)?;
        let contiguous = row_major_strides(input.shape);
        let output = applied.strides.unwrap_or(&contiguous);
        if output.len() != rank {
            return mismatch("output", output.len());
        }
        if let Some(short) = applied.companions.iter().find(|strides| strides.len() != rank) {
            return mismatch("operand", short.len());
        }
        let too_large = |tensor, strides: &[usize]| ProblemError::TooLarge {
            tensor,
            shape: input.shape.to_vec(),
            strides: strides.to_vec(),
        };
        let span_of = |tensor, strides: &[usize]| {
            span(input.shape, strides).ok_or_else(|| too_large(tensor, strides))
        };
        count_of_extents(input.shape).ok_or_else(|| too_large("input", input.strides))?;
        let input_span = span_of("input", input.strides)?;
        let output_span = span_of("output", output)?;
        let second_span = match applied.second {
            Some(second) => second_span(input.shape, second.strides)?,
            None => 0,
        };
        let mut companion_span = 0;
        for strides in applied.companions {
            companion_span = companion_span.max(span_of("operand", strides)?);
        }
        if may_overlap(input.shape, output) {
            return Err(ProblemError::OutputOverlaps {
                shape: input.shape.to_vec(),
                strides: output.to_vec(),
            });
        }
        // The second input comes after the companions.
        let all_strides = || {
            let second = applied.second.map(|second| second.strides);
            applied.companions.iter().copied().chain(second)
        };
        let axes_of = |reduced: bool| {
            let axes = (0..rank).filter(|&axis| is_reduced[axis] == reduced);
            let dims = axes.map(|axis| DimOfAll {
                extent: input.shape[axis],
                stride: input.strides[axis],
                other: output[axis],
                companions: all_strides().map(|strides| strides[axis]).collect(),
            });
            canonical(dims.collect())
        };
        let (kept, reduced) = (axes_of(false), axes_of(true));
        let companion =
            |nth| Companion { kept: strides_of(&kept, nth), reduced: strides_of(&reduced, nth) };
        let count = applied.companions.len();
        let companions = (0..count).map(companion).collect();
        let second = applied.second.map(|second| Second {
            element: second.element,
            alignment: second.alignment,
            strides: companion(count),
            span: second_span,
        });
        let problem = Problem {
            operator,
            input: input.element,
            results: vec![applied.element],
            alignment: input.alignment,
            second,
            kept: kept.iter().map(DimOfAll::kept).collect(),
            reduced: reduced.iter().map(DimOfAll::reduced).collect(),
            input_span,
            output_span,
            positions: None,
        };
        Ok(Self { problem, companions, companion_span, stores_results: false })
    }

    /// The same, with the results of the reduction as outputs beside the elements that they were
    /// applied to.
    #[must_use]
    pub fn storing_results(self) -> Self {
        Self { stores_results: true, ..self }
    }

    /// Whether the results of the reduction are outputs too.
    #[must_use]
    pub fn stores_results(&self) -> bool {
        self.stores_results
    }

    /// The reduction, with the output in place of its results.
    #[must_use]
    pub fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The strides of each companion, in the order of [`AppliedSpec::companions`].
    #[must_use]
    pub fn companions(&self) -> &[Companion] {
        &self.companions
    }

    /// Type of the output's elements.
    #[must_use]
    pub fn output(&self) -> ElementType {
        self.problem.results[0]
    }

    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.problem.outputs() * self.problem.reduction_len()
    }

    /// The largest number that an index into this problem must hold.
    pub(crate) fn index_span(&self) -> u64 {
        self.problem.index_span().max(self.companion_span as u64)
    }

    /// Bytes of all elements of the inputs.
    pub(crate) fn read_bytes(&self) -> u64 {
        (self.elements() as u64).saturating_mul(self.pair_bytes() as u64)
    }

    /// Bytes of an element of the input, and of one of the second if there is one.
    pub(crate) fn pair_bytes(&self) -> usize {
        let second = self.problem.second.as_ref().map_or(0, |second| second.element.bytes());
        self.problem.input.bytes() + second
    }

    /// Bytes that must move: each element of the inputs is read once, and each of the output is
    /// written once. Companions are not counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let written = (self.elements() as u64).saturating_mul(self.output().bytes() as u64);
        self.read_bytes().saturating_add(written)
    }
}
