//! The segments of an axis, as data.

use burn_backend::{Backend, DType, TensorMetadata, get_device_settings, tensor::IntTensor};
use burn_tensor::Shape;

use crate::error::ReduceBurnError;

/// The segments of an axis: how many there are, and the type of their offsets. The offsets are the
/// last tensor of an operation that has segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    count: usize,
    offsets: DType,
}

impl Segments {
    /// Those of a tensor of offsets.
    ///
    /// # Errors
    ///
    /// It has another number of dimensions than one, or no element.
    pub fn new<B: Backend>(offsets: &IntTensor<B>) -> Result<Self, ReduceBurnError> {
        let shape = offsets.shape();
        let count = (shape.num_dims() == 1).then(|| shape[0].checked_sub(1)).flatten();
        let count = count.ok_or_else(|| ReduceBurnError::Offsets { found: shape.to_vec() })?;
        Ok(Self { count, offsets: offsets.dtype() })
    }

    /// Number of segments.
    pub fn count(self) -> usize {
        self.count
    }

    /// Type of the offsets, of which there is one more than there are segments.
    pub fn offsets(self) -> DType {
        self.offsets
    }
}

/// The one axis that has segments.
pub(crate) fn axis_of(axes: &[usize]) -> Result<usize, ReduceBurnError> {
    match *axes {
        [axis] => Ok(axis),
        _ => Err(ReduceBurnError::SegmentAxes { axes: axes.len() }),
    }
}

/// The number of the segment of each element of an axis, from the offsets. Elements before the first
/// segment have -1, and those behind the last one the number of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentNumbers {
    segments: Segments,
    len: usize,
    dtype: DType,
}

impl SegmentNumbers {
    /// Those of an axis of `len` elements, of the device's integer type.
    ///
    /// # Errors
    ///
    /// Those of [`Segments::new`].
    pub fn new<B: Backend>(offsets: &IntTensor<B>, len: usize) -> Result<Self, ReduceBurnError> {
        let segments = Segments::new::<B>(offsets)?;
        let dtype = get_device_settings::<B>(&offsets.device()).int_dtype.into();
        Ok(Self { segments, len, dtype })
    }

    /// The segments.
    pub fn segments(self) -> Segments {
        self.segments
    }

    /// The type of the numbers.
    pub fn dtype(self) -> DType {
        self.dtype
    }

    /// The shape of the numbers.
    pub fn shape(self) -> Shape {
        Shape::from([self.len])
    }
}
