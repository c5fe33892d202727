//! Reductions of segments: neighbouring elements along one axis, of any numbers.

use core::fmt;

use super::{
    Problem,
    statement::{check_output, checked_span},
};
use crate::{
    element::ElementType,
    error::{PlanError, ProblemError, Role},
    numerics::Numerics,
};

/// Where the results of segments go, and what tells where segments begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SegmentsSpec {
    /// Number of segments.
    pub segments: usize,
    /// The stride in elements from the result of one segment to that of the next.
    pub segment_stride: usize,
    /// Type of the offsets: i32, i64, u32 or u64.
    pub offsets: ElementType,
}

/// The reduction of each segment of an axis. Segment number `s` has the elements from offset number
/// `s` up to the next offset, which only the device knows.
///
/// ```
/// use reduce_planner::{
///     ElementType, InputSpec, OperatorClass, OutputSpec, Problem, SegmentsProblem, SegmentsSpec,
/// };
///
/// // 1000 sums of 2^20 rows of 64 elements.
/// let input = InputSpec {
///     element: ElementType::F32,
///     shape: &[1 << 20, 64],
///     strides: &[64, 1],
///     alignment: 256,
/// };
/// let output = OutputSpec { elements: &[ElementType::F32], strides: Some(&[1]) };
/// let axis = Problem::new(OperatorClass::new("sum", 4), &input, Some(&[0]), &output)?;
/// let segments =
///     SegmentsSpec { segments: 1000, segment_stride: 64, offsets: ElementType::U32 };
/// let problem = SegmentsProblem::new(axis, &segments)?;
/// assert_eq!((problem.axis().reduction_len(), problem.segments()), (1 << 20, 1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SegmentsProblem {
    axis: Problem,
    segments: usize,
    segment_stride: usize,
    offsets: ElementType,
    span: usize,
}

impl SegmentsProblem {
    /// States the reduction of segments of the one axis that `axis` reduces.
    ///
    /// # Errors
    ///
    /// A problem that reduces several axes, offsets that are not of integers of 32 or 64 bits, and
    /// results that do not fit the host's address width or of which two lie in one place.
    pub fn new(axis: Problem, spec: &SegmentsSpec) -> Result<Self, ProblemError> {
        let SegmentsSpec { segments, segment_stride, offsets } = *spec;
        let axes = axis.reduced().len();
        if axes > 1 {
            return Err(ProblemError::SegmentAxes { axes });
        }
        if !matches!(
            offsets,
            ElementType::I32 | ElementType::I64 | ElementType::U32 | ElementType::U64
        ) {
            return Err(ProblemError::Offsets { found: offsets });
        }
        let kept = axis.kept();
        let shape: Vec<usize> = kept.iter().map(|dim| dim.extent).chain([segments]).collect();
        let strides: Vec<usize> =
            kept.iter().map(|dim| dim.output_stride).chain([segment_stride]).collect();
        let span = checked_span(Role::Output, &shape, &strides)?;
        check_output(&shape, &strides)?;
        Ok(Self { axis, segments, segment_stride, offsets, span })
    }

    /// The reduction of the whole axis, whose output is that of the first segment.
    #[must_use]
    pub fn axis(&self) -> &Problem {
        &self.axis
    }

    /// Number of segments.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// The stride from the result of one segment to that of the next.
    #[must_use]
    pub fn segment_stride(&self) -> usize {
        self.segment_stride
    }

    /// Type of the offsets, of which there is one more than there are segments.
    #[must_use]
    pub fn offsets(&self) -> ElementType {
        self.offsets
    }

    /// Number of elements from the first to the last that each result touches.
    #[must_use]
    pub fn output_span(&self) -> usize {
        self.span
    }

    /// Bytes that must move: each distinct element and each offset is read once, and each result is
    /// written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let results = self.axis.outputs().saturating_mul(self.axis.result_bytes());
        let read = self.axis.bytes().saturating_sub(results as u64);
        let written = results.saturating_mul(self.segments);
        let offsets = self.segments.saturating_add(1).saturating_mul(self.offsets.bytes());
        read.saturating_add(written as u64).saturating_add(offsets as u64)
    }

    /// Refuses promises about bits that segments do not keep: those of a segment depend on where in
    /// the axis it begins.
    ///
    /// # Errors
    ///
    /// [`PlanError::SegmentNumerics`].
    pub(crate) fn check_numerics(&self) -> Result<(), PlanError> {
        match self.axis.numerics() {
            Numerics::Deterministic => Ok(()),
            numerics => Err(PlanError::SegmentNumerics { numerics }),
        }
    }
}

impl fmt::Display for SegmentsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, segments, segment_stride, offsets, span } = self;
        write!(f, "{segments} segments by {offsets}, {segment_stride} apart, span {span} | {axis}")
    }
}
