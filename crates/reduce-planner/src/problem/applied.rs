//! A reduction whose results are applied to each element of its own input.

use super::{
    Direction, InputSpec, OperatorClass, Problem, Second, SecondSpec, SegmentsProblem, Statement,
    check_count, check_output, check_rank, checked_span, reduced_axes, row_major_strides,
    second_span,
};
use crate::{
    element::ElementType,
    error::{ProblemError, Role},
    numerics::Numerics,
};

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
    /// The outputs beside the first: their types, and their strides as those of the first.
    pub further: &'a [(ElementType, Option<&'a [usize]>)],
}

/// The strides of a tensor that is read or written beside the input, for each canonical dimension.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Companion {
    /// Strides along the kept dimensions.
    pub kept: Vec<usize>,
    /// Strides along the reduced dimensions.
    pub reduced: Vec<usize>,
}

impl Companion {
    /// The stride along the inner dimension of accesses in this direction, if there is one.
    #[must_use]
    pub fn inner(&self, direction: Direction) -> Option<usize> {
        match direction {
            Direction::Along => self.reduced.last().copied(),
            Direction::Across => self.kept.last().copied(),
        }
    }
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
    /// Types of the outputs beside the first, whose strides are the last companions.
    pub(super) further: Vec<ElementType>,
    pub(super) segments: Option<AppliedSegments>,
}

/// The segments of an application.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AppliedSegments {
    /// The reduction alone.
    pub(super) reduction: SegmentsProblem,
    /// The stride of each companion from one segment to the next.
    pub(super) strides: Vec<usize>,
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
        let (shape, rank) = (input.shape, input.shape.len());
        if operator.positional {
            return Err(ProblemError::PositionalApplied { operator: operator.name });
        }
        check_rank(Role::Input, rank, input.strides)?;
        let is_reduced = reduced_axes(rank, axes)?;
        let contiguous = row_major_strides(shape);
        let output_strides = applied.strides.unwrap_or(&contiguous);
        check_rank(Role::Output, rank, output_strides)?;
        for strides in applied.companions {
            check_rank(Role::Operand, rank, strides)?;
        }
        check_count(input)?;
        let input_span = checked_span(Role::Input, shape, input.strides)?;
        let output_span = checked_span(Role::Output, shape, output_strides)?;
        let second_span = second_span(shape, applied.second)?;
        let mut companion_span = 0;
        for strides in applied.companions {
            companion_span = companion_span.max(checked_span(Role::Operand, shape, strides)?);
        }
        check_output(shape, output_strides)?;
        let mut companions = applied.companions.to_vec();
        for (_, strides) in applied.further {
            let strides = strides.unwrap_or(&contiguous);
            check_rank(Role::Output, rank, strides)?;
            companion_span = companion_span.max(checked_span(Role::Output, shape, strides)?);
            check_output(shape, strides)?;
            companions.push(strides);
        }
        let statement = Statement {
            operator,
            input: *input,
            second: applied.second.copied(),
            companions: &companions,
            is_reduced: &is_reduced,
            results: vec![applied.element],
            output_strides,
            input_span,
            second_span,
            output_span,
            positions: None,
        };
        let (problem, companions) = statement.canonical();
        let further = applied.further.iter().map(|&(element, _)| element).collect();
        Ok(Self {
            problem,
            companions,
            companion_span,
            stores_results: false,
            further,
            segments: None,
        })
    }

    /// The same for each segment of the axis, in place of the whole axis. `reduction` is the
    /// reduction of the segments alone, and `strides` are those of each companion from one segment
    /// to the next: that of the results, and 0 where an operand has no segments.
    ///
    /// # Errors
    ///
    /// A companion that spans more than the host's address width, more segments than 32 bits count,
    /// and not one stride for each companion.
    pub fn of_segments(
        self,
        reduction: SegmentsProblem,
        strides: &[usize],
    ) -> Result<Self, ProblemError> {
        check_rank(Role::Operand, self.companions.len(), strides)?;
        let segments = reduction.segments();
        if u32::try_from(segments).is_err() {
            return Err(ProblemError::AppliedSegments { segments });
        }
        let Problem { kept, reduced, .. } = &self.problem;
        let kept = kept.iter().map(|dim| dim.extent);
        let reduced = reduced.iter().map(|dim| dim.extent);
        let shape: Vec<usize> = kept.chain(reduced).chain([segments]).collect();
        let mut companion_span = self.companion_span;
        for (companion, &stride) in self.companions.iter().zip(strides) {
            let all = [&companion.kept[..], &companion.reduced[..], &[stride]].concat();
            companion_span = companion_span.max(checked_span(Role::Operand, &shape, &all)?);
        }
        let segments = Some(AppliedSegments { reduction, strides: strides.to_vec() });
        Ok(Self { companion_span, segments, ..self })
    }

    /// The reduction of segments alone, if there are segments.
    #[must_use]
    pub fn segments(&self) -> Option<&SegmentsProblem> {
        self.segments.as_ref().map(|segments| &segments.reduction)
    }

    /// The stride of each companion from one segment to the next. Empty if there are no segments.
    #[must_use]
    pub fn segment_strides(&self) -> &[usize] {
        self.segments.as_ref().map_or(&[], |segments| &segments.strides)
    }

    /// The same, with the results of the reduction as outputs beside the elements that they were
    /// applied to.
    #[must_use]
    pub fn storing_results(self) -> Self {
        Self { stores_results: true, ..self }
    }

    /// The same problem, for plans whose bits depend on no more than this.
    #[must_use]
    pub fn with_numerics(self, numerics: Numerics) -> Self {
        Self { problem: self.problem.with_numerics(numerics), ..self }
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

    /// The strides of each companion, in the order of [`AppliedSpec::companions`], and then of the
    /// outputs beside the first.
    #[must_use]
    pub fn companions(&self) -> &[Companion] {
        &self.companions
    }

    /// Type of the first output's elements.
    #[must_use]
    pub fn output(&self) -> ElementType {
        self.problem.results[0]
    }

    /// Types of the outputs beside the first. Their strides are those of the last companions.
    #[must_use]
    pub fn further(&self) -> &[ElementType] {
        &self.further
    }

    /// [`Problem::reference`] with its application, which has no segments. Of a companion, plans
    /// ask no more than whether its elements are neighbours along the inner reduced dimension.
    pub(crate) fn reference(&self, outputs: usize, aligned: usize, widest: usize) -> Self {
        let problem = self.problem.reference(outputs, aligned, widest);
        let inner = |companion: &Companion| companion.reduced.last() == Some(&1);
        let companions = self.companions.iter().map(|companion| Companion {
            kept: Vec::new(),
            reduced: vec![usize::from(inner(companion))],
        });
        let companions = companions.collect();
        let (stores_results, further) = (self.stores_results, self.further.clone());
        Self { problem, companions, companion_span: 0, stores_results, further, segments: None }
    }

    /// Number of elements.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.problem.outputs() * self.problem.reduction_len()
    }

    /// The largest number that an index into this problem must hold.
    pub(crate) fn index_span(&self) -> u64 {
        let results = self.segments().map_or(0, SegmentsProblem::output_span);
        self.problem.index_span().max(self.companion_span as u64).max(results as u64)
    }

    /// Bytes of all elements of the inputs. What slices share counts once.
    pub(crate) fn read_bytes(&self) -> u64 {
        let each = (self.elements() as u64).saturating_mul(self.pair_bytes() as u64);
        let shared = self.problem.second.as_ref().filter(|_| self.second_is_shared());
        let shared =
            shared.map_or(0, |second| self.problem.reduction_len() * second.element.bytes());
        each.saturating_add(shared as u64)
    }

    /// Bytes of an element of the input, and of one of the second if there is one that slices do
    /// not share.
    pub(crate) fn pair_bytes(&self) -> usize {
        let second = self.problem.second.as_ref().filter(|_| !self.second_is_shared());
        self.problem.input.bytes() + second.map_or(0, |second| second.element.bytes())
    }

    /// Whether there is a second input of which all slices have the same elements, such as weights.
    /// It counts as their own where results do not depend on the batch: one slice cannot tell.
    #[must_use]
    pub fn second_is_shared(&self) -> bool {
        let second = self.problem.second.as_ref();
        let repeats = |second: &Second| second.strides.kept.iter().all(|&stride| stride == 0);
        let may_differ = !self.problem.numerics().is_batch_invariant();
        may_differ && self.problem.outputs() > 1 && second.is_some_and(repeats)
    }

    /// Bytes that must move: each element of the inputs is read once, and each of the output is
    /// written once. A second input that all slices share counts once for all of them. Companions
    /// are not counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let outputs = core::iter::once(&self.problem.results[0]).chain(&self.further);
        let each: usize = outputs.map(|output| output.bytes()).sum();
        let written = (self.elements() as u64).saturating_mul(each as u64);
        self.read_bytes().saturating_add(written)
    }
}
