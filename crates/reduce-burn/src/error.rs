//! The error type of this crate.

use burn_backend::DType;
use burn_tensor::kind::Kind;
use reduce_kernels::ReduceError;

/// Why a reduction or an application was refused. The functions of this crate panic with its
/// message, as Burn's own functions do; [`ReduceBackend`](crate::backend::ReduceBackend) returns
/// it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReduceBurnError {
    /// The tensor has no such axis.
    #[error("axis {axis} is out of range for a tensor of rank {rank}")]
    AxisOutOfRange {
        /// The axis as the caller gave it.
        axis: i64,
        /// The tensor's rank.
        rank: usize,
    },
    /// An axis is named twice.
    #[error("axis {axis} of a tensor of rank {rank} is given more than once")]
    AxisRepeated {
        /// The axis as the caller gave it the second time.
        axis: i64,
        /// The tensor's rank.
        rank: usize,
    },
    /// The result was asked for with another rank than it has.
    #[error("the result has shape {shape:?} and so rank {}, not {asked}", shape.len())]
    Rank {
        /// The rank in the type of the result.
        asked: usize,
        /// The result's shape.
        shape: Vec<usize>,
    },
    /// The operator does not take tensors of this kind.
    #[error("`{operator}` does not reduce tensors of kind {kind:?}")]
    Kind {
        /// Name of the operator.
        operator: &'static str,
        /// The tensor's kind.
        kind: Kind,
    },
    /// The two tensors of a function are of two kinds.
    #[error("`{function}` takes tensors of one kind, and {kinds:?} were given")]
    Kinds {
        /// Name of the function.
        function: &'static str,
        /// The kinds of the tensors.
        kinds: [Kind; 2],
    },
    /// The reduction has no elements, and the operator has no value for that.
    #[error("there are no elements to reduce, and `{operator}` has no value for that")]
    Empty {
        /// Name of the operator.
        operator: &'static str,
    },
    /// No function scans with the operator.
    #[error("no function scans with `{operator}`")]
    NoScan {
        /// Name of the operator.
        operator: &'static str,
    },
    /// More elements are to be selected than the axis has.
    #[error("the {k} first of {len} elements were asked for")]
    TooFewElements {
        /// Elements to select.
        k: usize,
        /// Elements along the axis.
        len: usize,
    },
    /// A quantile is not a number from 0 to 1.
    #[error("a quantile of {q} is not from 0 to 1")]
    Quantile {
        /// The number that was asked for.
        q: f64,
    },
    /// The largest magnitude cannot become this integer.
    #[error("`most` is {most}, and must be above 0 and at most {largest} in {dtype:?}")]
    Most {
        /// What the largest magnitude was to become.
        most: f64,
        /// The largest integer of the type.
        largest: f64,
        /// The type of the integers.
        dtype: DType,
    },
    /// A function of a list of tensors was given none.
    #[error("`{function}` takes one tensor at least")]
    NoTensors {
        /// Name of the function.
        function: &'static str,
    },
    /// The tensors of a list are on several devices.
    #[error("`{function}` takes tensors of one device")]
    Devices {
        /// Name of the function.
        function: &'static str,
    },
    /// More operands were given than the function takes, or fewer than it needs.
    #[error("`{function}` takes {least} to {most} operands, and {found} were given")]
    OperandCount {
        /// Name of the function.
        function: &'static str,
        /// The number that it needs.
        least: usize,
        /// The number that it takes at most.
        most: usize,
        /// The number that was given.
        found: usize,
    },
    /// The shape of an operand does not broadcast to that of the tensor.
    #[error(
        "the {operand} has shape {found:?}: it must have rank {}, and along each axis of \
         {shape:?} that extent or 1",
        shape.len()
    )]
    OperandShape {
        /// What the operand is to the function.
        operand: &'static str,
        /// Shape of the operand.
        found: Vec<usize>,
        /// Shape of the tensor.
        shape: Vec<usize>,
    },
    /// There is not one class for each slice of the logits.
    #[error("classes of shape {expected:?} are needed, one for each slice, and not {found:?}")]
    Classes {
        /// Shape of the classes.
        found: Vec<usize>,
        /// The shape that they need. The axis of the classes may also stay with size 1.
        expected: Vec<usize>,
    },
    /// There is not one weight for each class.
    #[error("{classes} weights of classes are needed, and not the shape {found:?}")]
    ClassWeights {
        /// Shape of the weights.
        found: Vec<usize>,
        /// Number of classes.
        classes: usize,
    },
    /// Offsets of segments are not of one dimension, or there is none.
    #[error(
        "offsets of segments have one dimension and an element at least, not the shape {found:?}"
    )]
    Offsets {
        /// Their shape.
        found: Vec<usize>,
    },
    /// Keys of groups are not of one dimension.
    #[error("keys of groups have one dimension, not the shape {found:?}")]
    Keys {
        /// Their shape.
        found: Vec<usize>,
    },
    /// The groups are those of another axis.
    #[error("groups of elements of the shape {found:?} are not those of an axis of {len}")]
    Groups {
        /// Shape of the keys.
        found: Vec<usize>,
        /// Elements of the axis.
        len: usize,
    },
    /// Segments lie along one axis.
    #[error("segments lie along one axis, and {axes} were given")]
    SegmentAxes {
        /// The number of axes.
        axes: usize,
    },
    /// The function is not applied to segments.
    #[error("`{function}` is not applied to segments")]
    NoSegments {
        /// Name of the function.
        function: &'static str,
    },
    /// Kernels cannot read elements of this type.
    #[error("tensors of {0:?} cannot be reduced")]
    Element(DType),
    /// reduce-kernels refused it.
    #[error(transparent)]
    Reduce(#[from] ReduceError),
}
