//! The error type of this crate.

use core::{error::Error, fmt};

use reduce_planner::{ElementType, Over, PlanError, ProblemError, Role};

use crate::operator::{InvalidParameter, TypeRequest};

/// Why a call was refused, or what [`confirm`](crate::confirm) found.
///
/// The message names the values that are wrong. [`kind`](Self::kind) says what a caller can act
/// upon, and [`source`](Error::source) gives the planner's error, that of partial results or that
/// of shards, if the call failed with one:
///
/// ```
/// use std::error::Error;
///
/// use reduce_kernels::{ElementType, ErrorKind, Sum, TensorDescription, reduce};
/// use reduce_kernels::planner::ProblemError;
///
/// let x = TensorDescription::row_major(ElementType::F32, [8, 1024]);
/// let error = reduce(Sum, &x).over(2).output_shape().unwrap_err();
/// assert_eq!(error.to_string(), "axis 2 is out of range for a tensor of rank 2");
/// assert_eq!(error.kind(), ErrorKind::Shape);
/// let source = error.source().and_then(|source| source.downcast_ref());
/// assert_eq!(source, Some(&ProblemError::AxisOutOfRange { axis: 2, rank: 2 }));
/// ```
///
/// A call that returns one of these has launched nothing and written nothing, unless
/// [`launched`](Self::launched) says otherwise.
///
/// The error is as large as a pointer.
#[derive(Clone, PartialEq)]
pub struct ReduceError(Box<Reason>);

/// What a caller can act upon when a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Axes, shapes or strides do not describe the call, or there is nothing to reduce and the
    /// operator has no value for that.
    Shape,
    /// The call does not take elements of this type, or the operator's type rule refuses the
    /// combination of types. Conversion of the tensor may help.
    Type,
    /// A parameter of an operator or of a function is out of its range, or an offset of segments
    /// is.
    Parameter,
    /// The operator or the function has another number of inputs, operands or results, is another
    /// one than the recorded one, or gives positions where the call has none.
    Arguments,
    /// The given plan or the given description of a device is wrong.
    Plan,
    /// The device, its backend or this build of the crate cannot run the call. Another device may.
    Unsupported,
    /// A buffer is too small for its tensor, or starts where the device cannot bind it.
    Buffer,
    /// The device has no memory for scratch buffers, or allocates no buffer as large as the result.
    Memory,
    /// Work that had been launched before failed on the device.
    Device,
    /// Partial results cannot be merged.
    Partials,
    /// Tensors do not make a sharded tensor, or two sharded tensors lie differently.
    Shards,
}

/// What is wrong, with the values that the message names.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Reason {
    /// The axes, shapes or strides do not describe a reduction.
    #[error(transparent)]
    Problem(ProblemError),
    /// The device cannot run the reduction, or the given plan does not fit it.
    #[error(transparent)]
    Plan(PlanError),
    /// The client is a software adapter that takes kernels as SPIR-V. What CubeCL 0.11 writes for
    /// it is not valid, and Mesa's ends the process. Without the feature `vulkan`, the same adapter
    /// takes kernels as WGSL, which is right.
    #[error(
        "{device} does not run CubeCL's SPIR-V: build without the feature `vulkan`, for kernels as \
         WGSL"
    )]
    SoftwareSpirv {
        /// Name of the adapter.
        device: String,
    },
    /// This crate does not reduce tensors of this storage type.
    #[error("tensors of {0} cannot be reduced: supported are {names}", names = ElementType::names())]
    StorageType(String),
    /// The operator's type rule refuses this combination of types.
    #[error("`{operator}` {}", in_words(request))]
    Types {
        /// Name of the operator.
        operator: String,
        /// The types that were requested.
        request: TypeRequest,
    },
    /// A parameter of the operator is out of range.
    #[error("`{operator}`: {invalid}")]
    Parameter {
        /// Name of the operator.
        operator: String,
        /// The parameter, its value and the values that it may have.
        invalid: InvalidParameter,
    },
    /// The operator computes in f64 and calls the device's own exponentials, logarithms, powers or
    /// angles, which the device has for f32 only.
    ///
    /// Your own operators can use the exponentials, logarithms and powers of f64 in
    /// [`operator::math`](crate::operator::math).
    #[error(
        "`{operator}` cannot compute in {element} on {device}: functions that it calls, such as `exp` \
         or `sin`, are f32 only there; accumulate in f32"
    )]
    Transcendental {
        /// Name of the operator.
        operator: String,
        /// The type that the operator would compute in.
        element: ElementType,
        /// Name of the device.
        device: String,
    },
    /// A type was requested for a result that the operator does not have.
    #[error("`{operator}` has no result {nth}: it has {results}, counted from 0")]
    NoSuchResult {
        /// Name of the operator.
        operator: String,
        /// Index of the requested result, counted from 0.
        nth: usize,
        /// Number of results that the operator has.
        results: usize,
    },
    /// A recorded call is by another operator, or applies another function.
    #[cfg(feature = "serde")]
    #[error("the recorded call is by `{recorded}`, not by `{found}`")]
    OtherOperator {
        /// Name of the recorded operator.
        recorded: String,
        /// Name of the operator that was given.
        found: String,
    },
    /// A recorded reduction has another number of inputs than its operator takes. Elsewhere types
    /// rule that out.
    #[error("`{operator}` takes {expected} inputs, and {found} were given")]
    Inputs {
        /// Name of the operator.
        operator: String,
        /// The number of inputs that it takes: 1, or 2 for an operator of pairs.
        expected: usize,
        /// The number of inputs that were given.
        found: usize,
    },
    /// The axes of the second input are not the last ones of the first.
    #[error(
        "the second input has shape {second:?}, which does not broadcast to that of the first, \
         {first:?}"
    )]
    SecondShape {
        /// Shape of the first input.
        first: Vec<usize>,
        /// Shape of the second input.
        second: Vec<usize>,
    },
    /// Partial results cannot be merged.
    #[error(transparent)]
    Partials(PartialsError),
    /// Tensors do not make a sharded tensor, or a sharded tensor cannot be reduced.
    #[error(transparent)]
    Shards(ShardsError),
    /// The call failed after it had launched something; see [`launched`](ReduceError::launched).
    #[error("{error}; the call had launched work before")]
    Launched {
        /// What failed.
        error: ReduceError,
    },
    /// A tensor of a list cannot be read.
    #[error("tensor {nth} of the list: {error}")]
    Listed {
        /// Index of the tensor in the list, counted from 0.
        nth: usize,
        /// What is wrong with it.
        error: ReduceError,
    },
    /// Elements of two types are not selected together.
    #[error(
        "tensor {nth} of the list is of {other}, and tensor 0 of {first}: both are needed alike"
    )]
    ListTypes {
        /// Index of the tensor in the list, counted from 0.
        nth: usize,
        /// Type of the first tensor.
        first: ElementType,
        /// Type of this tensor.
        other: ElementType,
    },
    /// An operand does not lie over the axes that it was given for.
    #[error(
        "operand {nth} has shape {found:?}: one extent is needed for each of the axes {axes:?}, 1 or \
         that of the input of shape {shape:?}"
    )]
    OperandShape {
        /// Index of the operand, counted from 0.
        nth: usize,
        /// Shape of the operand.
        found: Vec<usize>,
        /// The axes of the input that it lies over.
        axes: Vec<usize>,
        /// Shape of the input.
        shape: Vec<usize>,
    },
    /// More operands were given than the function takes.
    #[error("`{apply}` takes {most} operands, and {found} were given")]
    TooManyOperands {
        /// Name of the function.
        apply: &'static str,
        /// Most operands that it takes.
        most: usize,
        /// The number of operands that were given.
        found: usize,
    },
    /// A recorded call has another number of outputs than the function gives.
    #[error("`{apply}` gives {expected} outputs, not {found}")]
    AppliedOutputs {
        /// Name of the function.
        apply: &'static str,
        /// Outputs that it gives for an element.
        expected: usize,
        /// Outputs of the call.
        found: usize,
    },
    /// Classes are integers.
    #[error("classes are integers, not {found}")]
    ClassType {
        /// Type of the classes.
        found: ElementType,
    },
    /// The number of an element counts from 1, up to the largest number of 32 bits.
    #[error("elements are counted from 1 up to {}, and {found} was asked for", u32::MAX)]
    Rank {
        /// The number that was asked for.
        found: usize,
    },
    /// Quantiles are of floating point.
    #[error("quantiles are of floating point, not {found}")]
    QuantileType {
        /// The type that was asked for.
        found: ElementType,
    },
    /// Probabilities are of floating point, and not wider than the elements unless these have 16
    /// bits.
    #[error(
        "probabilities of {input} elements are of floating point of no more bits than f32 or \
             they have, not {found}"
    )]
    ProbabilityTypes {
        /// Type of the elements.
        input: ElementType,
        /// The type that was asked for, or that of the elements.
        found: ElementType,
    },
    /// A mask has the input's shape and elements, so it has no such option.
    #[error("a mask of the selected elements has no {option}")]
    Mask {
        /// The option.
        option: &'static str,
    },
    /// What parts of slices give does not tell the probabilities.
    #[error("slices in parts give no probabilities over {over}")]
    ProbabilitiesInParts {
        /// The elements over which they were to add up to 1.
        over: Over,
    },
    /// A quantile is not a number from 0 to 1.
    #[error("quantile {nth} is {found}, which is not from 0 to 1")]
    Quantile {
        /// Its number among those that were asked for.
        nth: usize,
        /// Its value.
        found: f64,
    },
    /// There is not one position to write for each element.
    #[error("the positions have shape {found:?}, and the input {input:?}")]
    PositionsShape {
        /// Shape of the input.
        input: Vec<usize>,
        /// Shape of the positions.
        found: Vec<usize>,
    },
    /// There is not one element of a tensor for each slice of the logits, or for each class.
    #[error("{what} of shape {expected:?} are needed, and not {found:?}")]
    SliceShape {
        /// What the tensor has.
        what: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// The shape that it needs. The axis of the classes may also stay with size 1.
        expected: Vec<usize>,
    },
    /// The output of an application cannot have this type.
    #[error("`{apply}` does not give elements of {output}")]
    AppliedType {
        /// Name of the function.
        apply: &'static str,
        /// The type that was asked for.
        output: ElementType,
    },
    /// The device did not provide the scratch memory through which cubes pass partial results.
    #[error("{bytes} bytes of scratch memory could not be had from the device: {reason}")]
    Scratch {
        /// Size of the scratch buffer in bytes.
        bytes: u64,
        /// What failed.
        reason: String,
    },
    /// The bytes of a tensor were never written: the device had no memory for them, or the work
    /// that should have written them failed, perhaps because one of its own inputs is such a
    /// tensor. [`confirm`](crate::confirm) detects this, and the exchange of shards.
    #[error("tensor {nth}, {bytes} bytes, was never written: {reason}")]
    Unwritten {
        /// Index of the tensor in the list given to `confirm`, or among the inputs of a shard,
        /// counted from 0.
        nth: usize,
        /// Size of its buffer in bytes.
        bytes: u64,
        /// What failed.
        reason: String,
    },
    /// Work that had been launched failed on the device. Launching does not wait for the device;
    /// [`confirm`](crate::confirm) does, and reports this. So does the exchange of shards.
    #[error("the device failed: {reason}")]
    Device {
        /// CubeCL's message.
        reason: String,
    },
    /// The shape and the strides of a tensor reach past the end of its buffer.
    #[error("the {tensor} spans {needed} bytes, but its buffer holds {available}")]
    BufferTooSmall {
        /// What the tensor is to the call.
        tensor: Role,
        /// Bytes from the start of the first element to the end of the last.
        needed: u64,
        /// Bytes of the buffer that belong to the tensor.
        available: u64,
    },
    /// The result is larger than the largest buffer of the device.
    #[error("the result takes {needed} bytes, the device allocates {available} at most")]
    OutputTooLarge {
        /// Size of the result in bytes.
        needed: u64,
        /// Size of the largest buffer that the device allocates, in bytes.
        available: u64,
    },
    /// The tensor starts at an offset at which the device cannot bind a buffer.
    #[error(
        "the {tensor} starts {offset} bytes into its buffer, which is no multiple of {alignment}"
    )]
    Misaligned {
        /// What the tensor is to the call.
        tensor: Role,
        /// Offset of the tensor in its buffer, in bytes.
        offset: u64,
        /// The offset must be a multiple of this number of bytes.
        alignment: u64,
    },
    /// Offsets are not of one dimension, or there are none.
    #[error("offsets have one dimension and at least one element, not the shape {found:?}")]
    OffsetsShape {
        /// Their shape.
        found: Vec<usize>,
    },
    /// Indices are not of one dimension.
    #[error("indices have one dimension, not the shape {found:?}")]
    IndicesShape {
        /// Their shape.
        found: Vec<usize>,
    },
    /// The groups are those of another number of elements.
    #[error("groups of {keys} elements are not those of an axis of {len}")]
    GroupedElements {
        /// Number of the elements that were grouped.
        keys: usize,
        /// Elements of the axis.
        len: usize,
    },
    /// A function is applied to elements that indices name, each of which may have several results.
    #[error(
        "`{apply}` is applied to segments of neighbours or to groups, not to elements by indices"
    )]
    AppliedIndices {
        /// Name of the function.
        apply: &'static str,
    },
    /// So many groups are not counted.
    #[error(
        "{groups} groups are too many: their numbers are of 32 bits, and there are fewer than 2^32 - 1"
    )]
    Groups {
        /// Number of groups.
        groups: usize,
    },
    /// An operand has segments, and the reduction does not.
    #[error("operand {nth} has segments, and the reduction has none")]
    OperandOfNoSegments {
        /// Index of the operand, counted from 0.
        nth: usize,
    },
    /// Keys are not of one dimension.
    #[error("keys have one dimension, not the shape {found:?}")]
    KeysShape {
        /// Their shape.
        found: Vec<usize>,
    },
    /// Lengths are not of one dimension.
    #[error("lengths have one dimension, not the shape {found:?}")]
    LengthsShape {
        /// Their shape.
        found: Vec<usize>,
    },
    /// Lengths are not integers of 32 or 64 bits.
    #[error("lengths are i32, i64, u32 or u64, not {found}")]
    Lengths {
        /// Their type.
        found: ElementType,
    },
    /// The lengths of a mask are not integers.
    #[error("lengths are integers, not {found}")]
    LengthType {
        /// Their type.
        found: ElementType,
    },
    /// A mask that is added to scores is of floating point.
    #[error("masks of 0 and -inf are of floating point of 16 bits or more, not {found}")]
    MaskType {
        /// The type that was asked for.
        found: ElementType,
    },
    /// What is packed in 4 bits each is not an integer.
    #[error("integers are packed in 4 bits each, not {found}")]
    PackedType {
        /// Type of the elements.
        found: ElementType,
    },
    /// What holds packed integers is not a byte.
    #[error("bytes of u8 hold packed integers of 4 bits, not {found}")]
    PackedBytes {
        /// Type of the elements.
        found: ElementType,
    },
    /// Integers of 4 bits do not become elements of this type.
    #[error(
        "integers of 4 bits become integers, or floating point of 16 bits or more, not {found}"
    )]
    UnpackedType {
        /// The type that was asked for.
        found: ElementType,
    },
    /// Not all integers along the last axis have another one in their byte.
    #[error(
        "integers of 4 bits are packed in pairs along the last axis, and {extent} are not even"
    )]
    OddExtent {
        /// Extent of the last axis.
        extent: usize,
    },
    /// There is no axis along which integers are packed.
    #[error("integers of 4 bits are packed along the last axis, and a tensor of rank 0 has none")]
    NoLastAxis,
    /// Elements do not get the numbers of so many segments in this type.
    #[error("numbers of {segments} segments are of i32 or i64, which must hold them, not {found}")]
    KeysOfOffsets {
        /// The type that was asked for.
        found: ElementType,
        /// Number of segments.
        segments: usize,
    },
    /// Keys of this type do not name so many segments.
    #[error("keys of {found} do not name {segments} segments: keys are of i32, i64, u32 or u64")]
    Keys {
        /// Their type.
        found: ElementType,
        /// The number of segments.
        segments: usize,
    },
    /// An offset descends or lies outside of the axis.
    #[error("offset number {nth} is {found}, and must be from {least} to {len}")]
    Offset {
        /// Its number.
        nth: usize,
        /// Its value.
        found: i128,
        /// The offset before it, or 0.
        least: i128,
        /// Elements of the axis.
        len: usize,
    },
    /// The supplied output does not have the shape of the result.
    #[error("the result has shape {expected:?}, the supplied output {found:?}")]
    OutputShape {
        /// Shape of the result.
        expected: Vec<usize>,
        /// Shape of the supplied output.
        found: Vec<usize>,
    },
    /// The supplied outputs of an operator with several results differ in their strides.
    #[error("outputs of one reduction need the same strides: {first:?} and {other:?} differ")]
    OutputStrides {
        /// Strides of the first output.
        first: Vec<usize>,
        /// Strides of an output that differs.
        other: Vec<usize>,
    },
}

impl ReduceError {
    /// The error of a parameter that the rule of an operator or of a function refuses: see
    /// [`Operator::PARAMETERS`](crate::Operator::PARAMETERS). For code that checks parameters
    /// before it has a tensor.
    #[must_use]
    pub fn parameter(operator: impl Into<String>, invalid: InvalidParameter) -> Self {
        Reason::Parameter { operator: operator.into(), invalid }.into()
    }

    /// What a caller can act upon. If the error is about one tensor of a list or one shard, the
    /// kind is that of what is wrong with it.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &*self.0 {
            Reason::Problem(error) => kind_of_problem(error),
            Reason::Plan(error) => kind_of_plan(error),
            Reason::SecondShape { .. }
            | Reason::OperandShape { .. }
            | Reason::SliceShape { .. }
            | Reason::PositionsShape { .. }
            | Reason::OffsetsShape { .. }
            | Reason::IndicesShape { .. }
            | Reason::GroupedElements { .. }
            | Reason::AppliedIndices { .. }
            | Reason::OperandOfNoSegments { .. }
            | Reason::KeysShape { .. }
            | Reason::LengthsShape { .. }
            | Reason::OutputShape { .. }
            | Reason::OutputStrides { .. }
            | Reason::OddExtent { .. }
            | Reason::NoLastAxis => ErrorKind::Shape,
            Reason::StorageType(_)
            | Reason::Types { .. }
            | Reason::ListTypes { .. }
            | Reason::ClassType { .. }
            | Reason::KeysOfOffsets { .. }
            | Reason::Lengths { .. }
            | Reason::LengthType { .. }
            | Reason::MaskType { .. }
            | Reason::PackedType { .. }
            | Reason::PackedBytes { .. }
            | Reason::UnpackedType { .. }
            | Reason::Keys { .. }
            | Reason::QuantileType { .. }
            | Reason::ProbabilityTypes { .. }
            | Reason::AppliedType { .. } => ErrorKind::Type,
            Reason::Parameter { .. }
            | Reason::Quantile { .. }
            | Reason::Rank { .. }
            | Reason::Groups { .. }
            | Reason::Offset { .. } => ErrorKind::Parameter,
            Reason::NoSuchResult { .. }
            | Reason::Inputs { .. }
            | Reason::ProbabilitiesInParts { .. }
            | Reason::Mask { .. }
            | Reason::AppliedOutputs { .. }
            | Reason::TooManyOperands { .. } => ErrorKind::Arguments,
            #[cfg(feature = "serde")]
            Reason::OtherOperator { .. } => ErrorKind::Arguments,
            Reason::SoftwareSpirv { .. } | Reason::Transcendental { .. } => ErrorKind::Unsupported,
            Reason::BufferTooSmall { .. } | Reason::Misaligned { .. } => ErrorKind::Buffer,
            Reason::Scratch { .. } | Reason::OutputTooLarge { .. } => ErrorKind::Memory,
            Reason::Unwritten { .. } | Reason::Device { .. } => ErrorKind::Device,
            Reason::Partials(_) => ErrorKind::Partials,
            Reason::Shards(ShardsError::Shard { error, .. })
            | Reason::Launched { error }
            | Reason::Listed { error, .. } => error.kind(),
            Reason::Shards(ShardsError::NoCollectives { .. } | ShardsError::NoNccl { .. }) => {
                ErrorKind::Unsupported
            }
            Reason::Shards(_) => ErrorKind::Shards,
        }
    }

    /// Whether the device, its backend or this build of the crate cannot run the call, although
    /// nothing is wrong with it. Another device may run it.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        self.kind() == ErrorKind::Unsupported
    }

    /// Whether the device has no memory for the scratch buffers of the call, or allocates no buffer
    /// as large as its result. The memory of a result itself is allocated after the call;
    /// [`confirm`](crate::confirm) says whether that failed, with an error of
    /// [`ErrorKind::Device`].
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.kind() == ErrorKind::Memory
    }

    /// Whether the call that returned this error had launched something before it failed.
    ///
    /// Only [`run_sharded`](crate::Reduction::run_sharded) and
    /// [`run_sharded_through_host`](crate::Reduction::run_sharded_through_host) over the cut axis
    /// return such errors, because devices exchange what their launches give. What has been
    /// launched then reads the inputs, and writes partial results and results in buffers of the
    /// call's own, which it drops. No tensor of the caller is written, so the call can be repeated.
    ///
    /// If its [`kind`](Self::kind) is [`ErrorKind::Unsupported`], NCCL did not connect the devices,
    /// and only words of the connection were launched. These devices may never answer again:
    /// docs/SCALE.md says what that means.
    ///
    /// Every other call checks all that it can refuse before its first launch.
    ///
    /// [`confirm`](crate::confirm) launches nothing: its errors are about earlier calls.
    #[must_use]
    pub fn launched(&self) -> bool {
        matches!(*self.0, Reason::Launched { .. })
    }

    /// The error of work that failed on the device, from CubeCL's.
    pub(crate) fn device(error: impl fmt::Display) -> Self {
        Reason::Device { reason: error.to_string() }.into()
    }

    /// This error, of a call that has launched something.
    pub(crate) fn after_launch(self) -> Self {
        Reason::Launched { error: self }.into()
    }

    /// What is wrong.
    #[cfg(test)]
    pub(crate) fn reason(&self) -> &Reason {
        &self.0
    }
}

fn kind_of_problem(error: &ProblemError) -> ErrorKind {
    match error {
        ProblemError::PositionalApplied { .. } | ProblemError::PositionalList { .. } => {
            ErrorKind::Arguments
        }
        ProblemError::Offsets { .. } | ProblemError::Indices { .. } => ErrorKind::Type,
        ProblemError::Listed { error, .. } => kind_of_problem(error),
        _ => ErrorKind::Shape,
    }
}

fn kind_of_plan(error: &PlanError) -> ErrorKind {
    match error {
        PlanError::Device(_) => ErrorKind::Plan,
        error if error.is_unfit_plan() => ErrorKind::Plan,
        _ => ErrorKind::Unsupported,
    }
}

impl From<Reason> for ReduceError {
    fn from(reason: Reason) -> Self {
        Self(Box::new(reason))
    }
}

impl From<ProblemError> for ReduceError {
    fn from(error: ProblemError) -> Self {
        Reason::Problem(error).into()
    }
}

impl From<PlanError> for ReduceError {
    fn from(error: PlanError) -> Self {
        Reason::Plan(error).into()
    }
}

impl From<PartialsError> for ReduceError {
    fn from(error: PartialsError) -> Self {
        Reason::Partials(error).into()
    }
}

impl From<ShardsError> for ReduceError {
    fn from(error: ShardsError) -> Self {
        Reason::Shards(error).into()
    }
}

impl fmt::Debug for ReduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ReduceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl Error for ReduceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &*self.0 {
            Reason::Problem(error) => Some(error),
            Reason::Plan(error) => Some(error),
            Reason::Partials(error) => Some(error),
            Reason::Shards(error) => Some(error),
            Reason::Launched { error } | Reason::Listed { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Describes a refused request: `of f32 cannot accumulate in f16`, for example.
fn in_words(request: &TypeRequest) -> String {
    let TypeRequest { input, accumulator, outputs, reduction_len } = request;
    let mut words = match u32::try_from(*reduction_len) {
        Ok(_) => format!("of {input} cannot"),
        Err(_) => format!("of {reduction_len} elements of {input} cannot"),
    };
    if let Some(accumulator) = accumulator {
        words += &format!(" accumulate in {accumulator}");
    }
    let outputs: Vec<&str> = outputs.iter().flatten().map(|output| output.name()).collect();
    if !outputs.is_empty() {
        let join = if accumulator.is_some() { " and" } else { "" };
        words += &format!("{join} give {}", outputs.join(" and "));
    }
    if accumulator.is_none() && outputs.is_empty() {
        words += " be reduced";
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_as_large_as_a_pointer() {
        assert_eq!(size_of::<Result<(), ReduceError>>(), size_of::<usize>());
    }

    #[test]
    fn the_kind_and_the_source_are_those_of_what_is_within() {
        let within = ReduceError::from(ProblemError::AxisOutOfRange { axis: 2, rank: 2 });
        let shard = ReduceError::from(ShardsError::Shard { nth: 1, error: within.clone() });
        let launched = shard.clone().after_launch();
        assert_eq!(
            launched.to_string(),
            "shard 1: axis 2 is out of range for a tensor of rank 2; the call had launched work \
             before"
        );
        assert_eq!([&within, &shard, &launched].map(ReduceError::kind), [ErrorKind::Shape; 3]);
        assert!(launched.launched() && !shard.launched());
        let source = launched.source().and_then(|source| source.downcast_ref());
        assert_eq!(source, Some(&shard));
    }
}

/// Why partial results cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartialsError {
    /// There is nothing to merge.
    #[error("there are no partial results to merge")]
    None,
    /// Two partial results do not belong together.
    #[error("partial results 0 and {nth} differ in their {what}: {first} and {other}")]
    Differ {
        /// Index of the second in the list, counted from 0.
        nth: usize,
        /// What differs: `parameters`, `types`, `shape` or `shard`.
        what: &'static str,
        /// That of the first.
        first: String,
        /// That of the other.
        other: String,
    },
    /// A shard does not begin where the one before it ends.
    #[error("partial result {nth} begins at index {start} of axis {axis}, not at {expected}")]
    Order {
        /// Index in the list, counted from 0.
        nth: usize,
        /// The axis along which the whole is cut.
        axis: usize,
        /// Where the shard begins.
        start: usize,
        /// Where the shard before it ends.
        expected: usize,
    },
    /// Shards of the whole are missing.
    #[error("shards cover indices {start}..{end} of axis {axis}, not all {of}")]
    Incomplete {
        /// The axis along which the whole is cut.
        axis: usize,
        /// The first index that is covered.
        start: usize,
        /// The index after the last that is covered.
        end: usize,
        /// Number of indices of the whole.
        of: usize,
    },
    /// Positions of several tensors would be mixed up.
    #[error("`{operator}` gives positions: partial results of shards are needed, not of tensors")]
    Positional {
        /// Name of the operator.
        operator: String,
    },
    /// The operator has no value for no elements, and no elements went into the partial results.
    #[error("`{operator}` of no elements is undefined")]
    Empty {
        /// Name of the operator.
        operator: String,
    },
    /// The description is of another operator.
    #[error("the partial results are of `{described}`, not of `{operator}`")]
    Operator {
        /// Name of the operator in the description.
        described: String,
        /// Name of the operator that was given.
        operator: String,
    },
    /// Partial results are not of what comes before a scan.
    #[error(
        "the partial results that come before a scan and the scan differ in their {what}: \
         {partials} and {scan}"
    )]
    Scan {
        /// What differs: `operator`, `parameters`, `types`, `rows` or `shard`.
        what: &'static str,
        /// That of the partial results.
        partials: String,
        /// That of the scan.
        scan: String,
    },
    /// The partial results lie on another device than that of the client.
    #[error("partial result {nth} lies on another device than that of the client")]
    OtherDevice {
        /// Index in the list, counted from 0.
        nth: usize,
    },
    /// Types that suit each of the partial results do not hold what all together may give.
    #[error(
        "{count} elements need wider types than each of the partial results has; ask for them with \
         `accumulate_in` or `output_type`, or name the shards"
    )]
    TooMany {
        /// Number of elements of all together.
        count: usize,
    },
    /// A part of a selection does not begin where the one before it ends.
    #[error("the positions of partial result {nth} begin at {first}, not at {expected}")]
    Positions {
        /// Index in the list, counted from 0.
        nth: usize,
        /// Where its positions begin.
        first: usize,
        /// Where those of the one before it end; 0 of the first.
        expected: usize,
    },
    /// The type of positions does not hold those of a part of a selection.
    #[error("{positions} does not hold positions below {end}; ask for another `position_type`")]
    PositionType {
        /// Type of the positions.
        positions: ElementType,
        /// The number after the last position.
        end: usize,
    },
    /// A description that another version of this crate wrote, or whose numbers contradict each
    /// other.
    #[error("no partial results of this version can have {what}")]
    Description {
        /// What is impossible.
        what: String,
    },
    /// The values, or the positions, of a part of a selection are not a row-major tensor of the
    /// type and the shape that the description asks for.
    #[error(
        "the {tensor} must be a row-major tensor of {element} of shape {expected:?}, not {found}"
    )]
    Selected {
        /// What the tensor is: `values` or `positions`.
        tensor: &'static str,
        /// The type of its elements.
        element: ElementType,
        /// Selected elements of each slice, slices.
        expected: [usize; 2],
        /// Type, shape and strides of the tensor.
        found: String,
    },
    /// The words are not a row-major tensor of u32 of the shape that the description asks for.
    #[error("the words must be a row-major tensor of u32 of shape {expected:?}, not {found}")]
    Words {
        /// Slots, words of an accumulator, outputs.
        expected: [usize; 3],
        /// Type, shape and strides of the tensor.
        found: String,
    },
}

/// Why tensors do not make a sharded tensor, or why one cannot be reduced.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ShardsError {
    /// There is no shard.
    #[error("a sharded tensor needs a shard")]
    None,
    /// Two shards lie on one device.
    #[error("shards {first} and {second} both lie on {device}")]
    SameDevice {
        /// Index of a shard, counted from 0.
        first: usize,
        /// Index of a later shard.
        second: usize,
        /// The device.
        device: String,
    },
    /// Two shards have elements of different types.
    #[error("shard 0 is of {first}, and shard {nth} of {other}")]
    Types {
        /// Index of the shard, counted from 0.
        nth: usize,
        /// Type of the first shard.
        first: ElementType,
        /// Type of this shard.
        other: ElementType,
    },
    /// The extents of two shards differ along an axis that is not cut.
    #[error("shard 0 has shape {first:?}, and shard {nth} {other:?}: {}", cut_in_words(*.cut))]
    Shapes {
        /// Index of the shard, counted from 0.
        nth: usize,
        /// The axis along which the tensor is cut; `None` if it is the same on all devices.
        cut: Option<usize>,
        /// Shape of the first shard.
        first: Vec<usize>,
        /// Shape of this shard.
        other: Vec<usize>,
    },
    /// The second input does not lie as the first does.
    #[error("the second input does not lie as the first does: {reason}")]
    Second {
        /// What differs.
        reason: String,
    },
    /// A selection from slices, or a scan of them, that are cut along an inner axis: their parts do
    /// not follow each other in the order of positions.
    #[error(
        "slices are cut along axis {axis}, and axis {outer} of them comes before it: positions of \
         the shards would be mixed up; cut axis {outer}"
    )]
    CutInside {
        /// The axis along which the tensor is cut.
        axis: usize,
        /// The axis of a slice that comes before it.
        outer: usize,
    },
    /// A shard cannot be reduced.
    #[error("shard {nth}: {error}")]
    Shard {
        /// Index of the shard, counted from 0.
        nth: usize,
        /// What is wrong.
        error: ReduceError,
    },
    /// The backend cannot exchange data between devices.
    #[error(
        "{backend} has no collectives in CubeCL: reduce over the cut axis with \
         `run_sharded_through_host`, or exchange partial results yourself \
         (`Reduction::partials_of_shard`, `merge_partials`)"
    )]
    NoCollectives {
        /// Name of the backend.
        backend: String,
    },
    /// NCCL, through which CUDA devices exchange data, cannot be called.
    #[error("NCCL is needed to reduce over the cut axis: {reason}")]
    NoNccl {
        /// What is missing.
        reason: String,
    },
}

fn cut_in_words(cut: Option<usize>) -> String {
    match cut {
        None => "replicas are equal".into(),
        Some(axis) => format!("they may differ along axis {axis} alone"),
    }
}
