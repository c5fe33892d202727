//! What a reduction can be described for: a tensor, or only its description.

use core::fmt;

use cubecl::{server::Handle, std::tensor::TensorHandle};
use reduce_planner::{ElementType, InputSpec, row_major_strides};

use crate::{element::element_type, error::ReduceError};

/// What a [`Reduction`](crate::Reduction) is described for: a `TensorHandle`, which can be reduced,
/// or a [`TensorDescription`], which answers every question that needs no data.
pub trait Input: fmt::Debug + sealed::Layout {}

impl Input for TensorHandle {}

impl Input for TensorDescription {}

/// Element type, shape and strides of a tensor that need not exist yet.
///
/// A framework that records operations before it runs them knows no more than this, but it must
/// know the shapes and types of results, and report bad requests to its caller.
///
/// ```
/// use reduce_kernels::{ElementType, TensorDescription, operators::MaxWithIndex, reduce};
///
/// let x = TensorDescription::row_major(ElementType::F16, [2, 3, 4]);
/// let largest = reduce(MaxWithIndex, &x).over([0, 2]).keep_dims(false);
/// assert_eq!(largest.output_shape()?, [3]);
/// assert_eq!(largest.output_types()?, (ElementType::F16, ElementType::U32));
/// # Ok::<(), reduce_kernels::ReduceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorDescription {
    element: ElementType,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl TensorDescription {
    /// A tensor without gaps whose last axis varies fastest.
    pub fn row_major(element: ElementType, shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        let strides = row_major_strides(&shape);
        Self { element, shape, strides }
    }

    /// A tensor with the given strides, in elements.
    pub fn strided(
        element: ElementType,
        shape: impl Into<Vec<usize>>,
        strides: impl Into<Vec<usize>>,
    ) -> Self {
        Self { element, shape: shape.into(), strides: strides.into() }
    }
}

pub(crate) mod sealed {
    use super::*;

    /// Where the elements lie. Outside this crate, nothing implements [`Input`].
    pub trait Layout {
        /// Element type, shape, strides and alignment.
        fn spec(&self) -> Result<InputSpec<'_>, ReduceError>;

        /// Bytes of the buffer from the first element on, if there is a buffer.
        fn buffer_bytes(&self) -> Option<u64>;
    }

    impl Layout for TensorHandle {
        fn spec(&self) -> Result<InputSpec<'_>, ReduceError> {
            Ok(InputSpec {
                element: element_type(self.dtype)?,
                shape: self.shape(),
                strides: self.strides(),
                alignment: alignment_of(self.handle.offset_start.unwrap_or(0)),
            })
        }

        fn buffer_bytes(&self) -> Option<u64> {
            Some(buffer_bytes(&self.handle))
        }
    }

    impl Layout for TensorDescription {
        fn spec(&self) -> Result<InputSpec<'_>, ReduceError> {
            Ok(InputSpec {
                element: self.element,
                shape: &self.shape,
                strides: &self.strides,
                alignment: alignment_of(0),
            })
        }

        fn buffer_bytes(&self) -> Option<u64> {
            None
        }
    }
}

/// Bytes of a buffer between its offsets.
pub(crate) fn buffer_bytes(handle: &Handle) -> u64 {
    bytes_between(handle.size(), handle.offset_start, handle.offset_end)
}

/// Bytes of a buffer between its offsets; 0 if they cross.
pub(crate) fn bytes_between(size: u64, start: Option<u64>, end: Option<u64>) -> u64 {
    size.saturating_sub(start.unwrap_or(0)).saturating_sub(end.unwrap_or(0))
}

/// Alignment in bytes of an address that lies `offset` bytes into a buffer. Buffers themselves are
/// aligned to the widest load, of 16 bytes.
pub(crate) fn alignment_of(offset: u64) -> usize {
    const WIDEST_LOAD_LOG2: u32 = 4;
    1 << offset.trailing_zeros().min(WIDEST_LOAD_LOG2)
}
