//! The error type of this crate.

use reduce_planner::{ElementType, PlanError, ProblemError};

use crate::{
    PartialsError, ShardsError,
    operator::{InvalidParameter, TypeRequest},
};

/// Why a reduction was refused, or what [`confirm`](crate::confirm) found.
///
/// A reduction that returns one of these has launched nothing and written nothing, unless
/// [`launched`](Self::launched) says otherwise.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReduceError {
    /// The axes, shapes or strides do not describe a reduction.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The device cannot run the reduction, or the given plan does not fit it.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The client is a software adapter that takes kernels as SPIR-V. What CubeCL 0.11 writes for it
    /// is not valid, and Mesa's ends the process. Without the feature `vulkan`, the same adapter
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
    /// A recorded reduction is by another operator.
    #[error("the recorded reduction is by `{recorded}`, not by `{found}`")]
    OtherOperator {
        /// Name of the recorded operator.
        recorded: String,
        /// Name of the operator that was given.
        found: String,
    },
    /// The operator takes another number of inputs.
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
    Partials(#[from] PartialsError),
    /// Tensors do not make a sharded tensor, or a sharded tensor cannot be reduced.
    #[error(transparent)]
    Shards(#[from] ShardsError),
    /// The call failed after it had launched something; see [`launched`](ReduceError::launched).
    #[error("{error}; the call had launched work before")]
    Launched {
        /// What failed.
        error: Box<ReduceError>,
    },
    /// A tensor of a list cannot be read.
    #[error("tensor {nth} of the list: {error}")]
    Listed {
        /// Index of the tensor in the list, counted from 0.
        nth: usize,
        /// What is wrong with it.
        error: Box<ReduceError>,
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
    /// Classes are integers.
    #[error("classes are integers, not {found}")]
    ClassType {
        /// Type of the classes.
        found: ElementType,
    },
    /// There is not one class for each slice of the logits.
    #[error("classes of shape {expected:?} are needed, one for each slice, and not {found:?}")]
    ClassShape {
        /// Shape of the classes.
        found: Vec<usize>,
        /// The shape that they need. The axis of the classes may also stay with size 1.
        expected: Vec<usize>,
    },
    /// The output of an application cannot have this type.
    #[error("`{apply}` gives floating point elements, not {output}")]
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
    /// that should have written them failed, perhaps because one of its own inputs is such a tensor.
    /// [`confirm`](crate::confirm) detects this, and the exchange of shards.
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
        /// `input`, `second input`, `operand`, `output` or `words`.
        tensor: &'static str,
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
        /// `input`, `second input`, `output` or `words`.
        tensor: &'static str,
        /// Offset of the tensor in its buffer, in bytes.
        offset: u64,
        /// The offset must be a multiple of this number of bytes.
        alignment: u64,
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
    /// Whether the call that returned this error had launched something before it failed.
    ///
    /// Only [`run_sharded`](crate::Reduction::run_sharded) and
    /// [`run_sharded_through_host`](crate::Reduction::run_sharded_through_host) over the cut axis
    /// return such errors, because devices exchange what their launches give. What has been
    /// launched then reads the inputs, and writes partial results and results in buffers of the
    /// call's own, which it drops. No tensor of the caller is written, so the call can be repeated.
    ///
    /// If the error within is [`ShardsError::NoNccl`], the devices did not connect, and only words
    /// of the connection were launched. These devices may never answer again: docs/SCALE.md says
    /// what that means.
    ///
    /// Every other call checks all that it can refuse before its first launch.
    ///
    /// [`confirm`](crate::confirm) launches nothing: its errors are about earlier calls.
    #[must_use]
    pub fn launched(&self) -> bool {
        matches!(self, Self::Launched { .. })
    }

    /// This error, of a call that has launched something.
    pub(crate) fn after_launch(self) -> Self {
        Self::Launched { error: Box::new(self) }
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
