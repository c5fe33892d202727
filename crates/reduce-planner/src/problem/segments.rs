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
    /// The indices of the elements that segments have, if these are not neighbours.
    pub indices: Option<IndicesSpec>,
}

/// A list of elements of an axis, by their indices, which only the device knows. Segments have
/// neighbouring entries of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IndicesSpec {
    /// Number of entries. An element of the axis may have several, or none.
    pub len: usize,
    /// Type of the indices: i32, i64, u32 or u64.
    pub element: ElementType,
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
///     SegmentsSpec { segments: 1000, segment_stride: 64, offsets: ElementType::U32, indices: None };
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
    indices: Option<IndicesSpec>,
    span: usize,
}

impl SegmentsProblem {
    /// States the reduction of segments of the one axis that `axis` reduces.
    ///
    /// # Errors
    ///
    /// A problem that reduces several axes, offsets or indices that are not of integers of 32 or 64
    /// bits, and results that do not fit the host's address width or of which two lie in one place.
    pub fn new(axis: Problem, spec: &SegmentsSpec) -> Result<Self, ProblemError> {
        let SegmentsSpec { segments, segment_stride, offsets, indices } = *spec;
        let axes = axis.reduced().len();
        if axes > 1 {
            return Err(ProblemError::SegmentAxes { axes });
        }
        if !counts(offsets) {
            return Err(ProblemError::Offsets { found: offsets });
        }
        if let Some(IndicesSpec { element: found, .. }) = indices.filter(|of| !counts(of.element)) {
            return Err(ProblemError::Indices { found });
        }
        let kept = axis.kept();
        let shape: Vec<usize> = kept.iter().map(|dim| dim.extent).chain([segments]).collect();
        let strides: Vec<usize> =
            kept.iter().map(|dim| dim.output_stride).chain([segment_stride]).collect();
        let span = checked_span(Role::Output, &shape, &strides)?;
        check_output(&shape, &strides)?;
        Ok(Self { axis, segments, segment_stride, offsets, indices, span })
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

    /// The indices of the elements that segments have, if these are not neighbours.
    #[must_use]
    pub fn indices(&self) -> Option<IndicesSpec> {
        self.indices
    }

    /// What offsets count: the elements of the axis, or the entries of a list of indices. An axis
    /// without elements has no entries.
    #[must_use]
    pub fn entries(&self) -> usize {
        let of_axis = self.axis.reduction_len();
        self.indices.filter(|_| of_axis > 0).map_or(of_axis, |indices| indices.len)
    }

    /// Number of elements from the first to the last that each result touches.
    #[must_use]
    pub fn output_span(&self) -> usize {
        self.span
    }

    /// Bytes that must move: each distinct element, each offset and each index is read once, and each
    /// result is written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let results = self.axis.outputs().saturating_mul(self.axis.result_bytes());
        let read = self.axis.bytes().saturating_sub(results as u64);
        let written = results.saturating_mul(self.segments);
        let offsets = self.segments.saturating_add(1).saturating_mul(self.offsets.bytes());
        let indices =
            self.indices.map_or(0, |indices| indices.len.saturating_mul(indices.element.bytes()));
        let beside = offsets.saturating_add(indices);
        read.saturating_add(written as u64).saturating_add(beside as u64)
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

/// Whether a type holds offsets and indices.
fn counts(element: ElementType) -> bool {
    matches!(element, ElementType::I32 | ElementType::I64 | ElementType::U32 | ElementType::U64)
}

impl fmt::Display for SegmentsProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { axis, segments, segment_stride, offsets, indices, span } = self;
        write!(f, "{segments} segments by {offsets}")?;
        if let Some(IndicesSpec { len, element }) = indices {
            write!(f, " of {len} indices by {element}")?;
        }
        write!(f, ", {segment_stride} apart, span {span} | {axis}")
    }
}
