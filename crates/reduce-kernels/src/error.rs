//! What can go wrong.

use reduce_planner::{ElementType, PlanError, ProblemError};

use crate::operator::{InvalidParameter, TypeRequest};

/// Why a reduction was not launched, or what [`confirm`](crate::confirm) found. A reduction that returns one
/// of these has launched and written nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ReduceError {
    /// Axes, shapes or strides that make no reduction.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// The device cannot run it, or the given plan does not fit.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The tensor's storage type is none that this crate reduces.
    #[error("tensors of {0} cannot be reduced: supported are {names}", names = ElementType::names())]
    StorageType(String),
    /// The operator has no rule for these types.
    #[error("`{operator}` {}", in_words(request))]
    Types {
        /// Name of the operator.
        operator: String,
        /// What was asked for.
        request: TypeRequest,
    },
    /// The operator cannot work with one of its parameters.
    #[error("`{operator}`: {invalid}")]
    Parameter {
        /// Name of the operator.
        operator: String,
        /// The parameter.
        invalid: InvalidParameter,
    },
    /// The operator calls the device's own exponentials, logarithms, powers or angles, and the device has
    /// them for f32 only. [`operator::math`](crate::operator::math) has exponentials, logarithms and
    /// powers of f64 for operators of your own.
    #[error(
        "`{operator}` cannot compute in {element} on {device}: functions that it calls, such as `exp` \
         or `sin`, are f32 only there; accumulate in f32"
    )]
    Transcendental {
        /// Name of the operator.
        operator: String,
        /// The type it would compute in.
        element: ElementType,
        /// Name of the device.
        device: String,
    },
    /// A type was asked for of a result that the operator does not have.
    #[error("`{operator}` has no result {nth}: it has {results}, counted from 0")]
    NoSuchResult {
        /// Name of the operator.
        operator: String,
        /// Which result was asked for.
        nth: usize,
        /// How many it has.
        results: usize,
    },
    /// The memory through which cubes pass partial results could not be had.
    #[error("{bytes} bytes of scratch memory could not be had from the device: {reason}")]
    Scratch {
        /// Bytes of the buffer.
        bytes: u64,
        /// What failed.
        reason: String,
    },
    /// A tensor's buffer was never allocated: the device had no memory for it. Launches that bind it were
    /// dropped. Only [`confirm`](crate::confirm) can tell.
    #[error("the buffer of tensor {nth}, {bytes} bytes, was never allocated")]
    NotAllocated {
        /// Which of the tensors.
        nth: usize,
        /// Bytes of its buffer.
        bytes: u64,
    },
    /// The device reported a failure of work that had been launched. Only [`confirm`](crate::confirm) waits
    /// for that.
    #[error("the device failed: {reason}")]
    Device {
        /// What CubeCL says.
        reason: String,
    },
    /// The shape and strides reach beyond the buffer.
    #[error("the {tensor} spans {needed} bytes, but its buffer holds {available}")]
    BufferTooSmall {
        /// `input` or `output`.
        tensor: &'static str,
        /// Bytes from the first element to the last.
        needed: u64,
        /// Bytes of the buffer.
        available: u64,
    },
    /// The result does not fit a buffer of the device.
    #[error("the result takes {needed} bytes, the device allocates {available} at most")]
    OutputTooLarge {
        /// Bytes of the result.
        needed: u64,
        /// Bytes of the largest buffer.
        available: u64,
    },
    /// The tensor starts where the device cannot bind a buffer.
    #[error(
        "the {tensor} starts {offset} bytes into its buffer, which is no multiple of {alignment}"
    )]
    Misaligned {
        /// `input` or `output`.
        tensor: &'static str,
        /// Where it starts, in bytes.
        offset: u64,
        /// What that must be a multiple of, in bytes.
        alignment: u64,
    },
    /// The supplied output is of another shape than the result.
    #[error("the result has shape {expected:?}, the supplied output {found:?}")]
    OutputShape {
        /// Shape of the result.
        expected: Vec<usize>,
        /// Shape of the supplied output.
        found: Vec<usize>,
    },
    /// The supplied outputs of an operator with several results lie in different ways.
    #[error("outputs of one reduction need the same strides: {first:?} and {other:?} differ")]
    OutputStrides {
        /// Strides of the first.
        first: Vec<usize>,
        /// Strides of one that differs.
        other: Vec<usize>,
    },
}

/// What was asked for and refused.
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
