//! Errors: what can be wrong with a problem, a device or a plan.

use core::fmt;

use crate::{
    element::ElementType, illegal::Illegal, kind::ScheduleKind, numerics::Numerics,
    refusal::Refusal, scan::ScanReason,
};

/// What a tensor is to a call, in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The input, or the first of two.
    Input,
    /// The second of two inputs.
    SecondInput,
    /// A tensor beside the input that is applied to its elements, such as a weight.
    Operand,
    /// A result.
    Output,
    /// The tensor that shards are cut from.
    WholeOfShards,
    /// The words of partial results.
    Words,
    /// The classes of a cross-entropy.
    Classes,
    /// The positions that a selection writes in place of those in the slice.
    Positions,
    /// A tensor of lengths, of segments or of the rows that a mask is for.
    Lengths,
    /// The offsets at which segments begin.
    Offsets,
    /// The indices of the elements that segments have.
    Indices,
    /// The keys that say to which segment or group an element belongs.
    Keys,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::SecondInput => "second input",
            Self::Operand => "operand",
            Self::Output => "output",
            Self::WholeOfShards => "whole of the shards",
            Self::Words => "words",
            Self::Classes => "classes",
            Self::Positions => "tensor of positions",
            Self::Lengths => "tensor of lengths",
            Self::Offsets => "tensor of offsets",
            Self::Indices => "tensor of indices",
            Self::Keys => "tensor of keys",
        })
    }
}

/// Why a problem could not be stated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProblemError {
    /// An axis is not below the tensor's rank.
    #[error("axis {axis} is out of range for a tensor of rank {rank}")]
    AxisOutOfRange {
        /// The axis as given.
        axis: usize,
        /// The rank of the input.
        rank: usize,
    },
    /// An axis was named twice.
    #[error("axis {axis} is given more than once for a tensor of rank {rank}")]
    AxisRepeated {
        /// The axis as given.
        axis: usize,
        /// The rank of the input.
        rank: usize,
    },
    /// Shape and strides of a tensor differ in length.
    #[error("the {tensor} has {dims} dimensions but {strides} strides")]
    RankMismatch {
        /// What the tensor is to the reduction.
        tensor: Role,
        /// Length of the shape.
        dims: usize,
        /// Length of the strides.
        strides: usize,
    },
    /// A number of elements or an offset does not fit the host's address width.
    #[error(
        "the {tensor} of shape {shape:?} and strides {strides:?} spans more elements than this \
         machine can address"
    )]
    TooLarge {
        /// What the tensor is to the reduction.
        tensor: Role,
        /// The shape as given.
        shape: Vec<usize>,
        /// The strides as given, in elements.
        strides: Vec<usize>,
    },
    /// The operator has no value for a reduction of no elements.
    #[error("`{operator}` of no elements is undefined: shape {shape:?} reduced over axes {axes:?}")]
    EmptyReduction {
        /// Name of the operator.
        operator: &'static str,
        /// Shape of the input.
        shape: Vec<usize>,
        /// The reduced axes.
        axes: Vec<usize>,
    },
    /// The input is no shard of a larger reduction.
    #[error(
        "indices {start}..{} of axis {axis} are no shard of {of}: {}",
        start.saturating_add(*extent),
        if *is_reduced { "they reach past its end" } else { "the axis is not reduced" }
    )]
    Shard {
        /// The axis along which the whole is cut.
        axis: usize,
        /// Index of the shard's first element along the axis.
        start: usize,
        /// Extent of the shard along the axis.
        extent: usize,
        /// Extent of the whole along the axis.
        of: usize,
        /// Whether the axis is reduced.
        is_reduced: bool,
    },
    /// The elements of a shard do not follow those of the shards before it.
    #[error(
        "a scan of shards along axis {axis} also goes along axis {outer}, which comes before it: \
         elements of the shards would be mixed up; cut axis {outer}"
    )]
    ShardInside {
        /// The axis along which the whole is cut.
        axis: usize,
        /// The first scanned axis of several elements.
        outer: usize,
    },
    /// The results of a positional operator are not applied to elements.
    #[error("`{operator}` gives positions, which cannot be applied to elements")]
    PositionalApplied {
        /// Name of the operator.
        operator: &'static str,
    },
    /// A list of tensors has no positions.
    #[error("`{operator}` gives positions, which a list of tensors does not have")]
    PositionalList {
        /// Name of the operator.
        operator: &'static str,
    },
    /// A selection without axes has no slices.
    #[error("`{operator}` needs an axis, and none is given")]
    NoAxes {
        /// Name of the operator.
        operator: &'static str,
    },
    /// Slices have fewer elements than are to be selected.
    #[error("the {k} first of {len} elements were asked for")]
    TooFewElements {
        /// Elements to select of each slice.
        k: usize,
        /// Elements of a slice.
        len: usize,
    },
    /// Segments lie along one axis.
    #[error("segments lie along one axis, and {axes} are reduced")]
    SegmentAxes {
        /// Reduced axes that cannot be merged.
        axes: usize,
    },
    /// Kernels number segments whose results are applied in 32 bits.
    #[error("{segments} segments are too many for their results to be applied")]
    AppliedSegments {
        /// Number of segments.
        segments: usize,
    },
    /// Offsets are integers of 32 or 64 bits.
    #[error("offsets are i32, i64, u32 or u64, not {found}")]
    Offsets {
        /// Type of the offsets.
        found: ElementType,
    },
    /// Indices of elements are integers of 32 or 64 bits.
    #[error("indices are i32, i64, u32 or u64, not {found}")]
    Indices {
        /// Type of the indices.
        found: ElementType,
    },
    /// The operator has no value for a list without tensors.
    #[error("`{operator}` of no tensors is undefined")]
    EmptyList {
        /// Name of the operator.
        operator: &'static str,
    },
    /// A tensor of a list cannot be reduced.
    #[error("tensor {nth} of the list: {error}")]
    Listed {
        /// Index of the tensor in the list, counted from 0.
        nth: usize,
        /// What is wrong with it.
        error: Box<ProblemError>,
    },
    /// Two outputs may be stored in one element.
    #[error(
        "the output of shape {shape:?} and strides {strides:?} may store two results in one element"
    )]
    OutputOverlaps {
        /// Extents of the kept axes.
        shape: Vec<usize>,
        /// Output strides of the kept axes, in elements.
        strides: Vec<usize>,
    },
}

/// A device is described with a number that no device has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the device `{device}` is described with {field} = {value}, which must be {expected}")]
#[non_exhaustive]
pub struct DeviceError {
    /// Name of the device.
    pub device: String,
    /// The field of [`Device`](crate::Device), such as `tuning.light.loads_per_lane`.
    pub field: String,
    /// Its value.
    pub value: u64,
    /// What the value must be.
    pub expected: &'static str,
}

/// Why no plan can run a problem on a device, or why a given plan may not.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The description of the device makes no sense. See [`Device::check`](crate::Device::check).
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device has no such element type.
    #[error("{device} has no {element}")]
    ElementUnsupported {
        /// Name of the device.
        device: String,
        /// The type that is missing.
        element: ElementType,
    },
    /// The tensors need larger indices than the device has.
    #[error("{device} indexes at most {limit} elements, and the problem needs {span}")]
    IndexTooNarrow {
        /// Name of the device.
        device: String,
        /// The largest number that the device's indices hold.
        limit: u64,
        /// The largest number that an index of this problem must hold.
        span: u64,
    },
    /// The reduction is to be reproducible, and has no such form.
    #[error("{operator}{} has no form with the same bits on every device", Aside(.of))]
    NotReproducible {
        /// Name of the operator.
        operator: &'static str,
        /// What it is asked for, if nothing of that has one: `of a list`, or `applied to its
        /// elements`.
        of: Option<&'static str>,
    },
    /// The bits of a segment's result depend on where in the axis it begins.
    #[error("the results of segments are deterministic, and {numerics} ones are asked for")]
    SegmentNumerics {
        /// What bits may depend on.
        numerics: Numerics,
    },
    /// No schedule applies.
    #[error("no schedule can run this problem on {device}: {}", Joined(.refusals))]
    NoSchedule {
        /// Name of the device.
        device: String,
        /// Why each schedule does not apply.
        refusals: Vec<Refusal>,
    },
    /// A schedule does not apply to a scan.
    #[error("the schedule does not apply to this scan on {device}: {}", Joined(.refusals))]
    NoScanSchedule {
        /// Name of the device.
        device: String,
        /// Why it does not apply.
        refusals: Vec<Refusal<ScheduleKind, ScanReason>>,
    },
    /// No plan for an applied reduction can run.
    #[error("no plan can apply this reduction on {device}: {reasons}")]
    NoAppliedPlan {
        /// Name of the device.
        device: String,
        /// Why each plan does not apply.
        reasons: String,
    },
    /// The plan was made by another version of the planner.
    #[error("the plan has version {found}, and this planner runs version {expected}")]
    Version {
        /// Version of the plan.
        found: u32,
        /// Version of this planner.
        expected: u32,
    },
    /// The plan does not fit the problem or the device.
    #[error("the plan `{plan}` cannot run this problem on {device}: {reason}")]
    Unfit {
        /// The plan in words.
        plan: String,
        /// Name of the device.
        device: String,
        /// What does not fit.
        reason: Illegal,
    },
}

impl PlanError {
    /// Whether the reduction has no reproducible form. A caller may ask for other numerics.
    #[must_use]
    pub fn is_not_reproducible(&self) -> bool {
        matches!(self, PlanError::NotReproducible { .. })
    }

    /// Whether the device lacks an element type. A caller may convert the tensor.
    #[must_use]
    pub fn is_unsupported_element(&self) -> bool {
        matches!(self, PlanError::ElementUnsupported { .. })
    }

    /// Whether the problem is too large for the device's indices. A caller may reduce it in parts.
    #[must_use]
    pub fn is_too_large(&self) -> bool {
        matches!(self, PlanError::IndexTooNarrow { .. })
    }

    /// Whether a given plan is at fault: it is of another version, or does not fit the problem or
    /// the device. A caller may choose another plan.
    #[must_use]
    pub fn is_unfit_plan(&self) -> bool {
        matches!(self, PlanError::Version { .. } | PlanError::Unfit { .. })
    }
}

/// Refusals, separated by semicolons.
struct Joined<'a, R>(&'a [R]);

/// Further words about what was named.
struct Aside<'a>(&'a Option<&'static str>);

impl fmt::Display for Aside<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |words| write!(f, " {words}"))
    }
}

impl<R: fmt::Display> fmt::Display for Joined<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, refusal) in self.0.iter().enumerate() {
            let separator = if nth == 0 { "" } else { "; " };
            write!(f, "{separator}{refusal}")?;
        }
        Ok(())
    }
}
