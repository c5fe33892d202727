//! What can go wrong before anything is launched.

use reduce_planner::{ElementType, PlanError, ProblemError};

/// Why a reduction was not launched. Nothing has been written when one of these is returned.
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
    #[error("tensors of {0} cannot be reduced: supported are f16, bf16, f32, f64, i32 and u32")]
    StorageType(String),
    /// The operator has no rule for these types.
    #[error("`{operator}` of {input} cannot give {output}")]
    Types {
        /// Name of the operator.
        operator: &'static str,
        /// Type of the input.
        input: ElementType,
        /// The requested output type, or the input's if none was requested.
        output: ElementType,
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
}
