//! The segments of an axis, as data.

use core::iter;

use burn_backend::{Backend, DType, TensorMetadata, get_device_settings, tensor::IntTensor};
use burn_tensor::Shape;

use crate::{error::ReduceBurnError, tensor::AnyTensor};

/// The tensors that say which elements of an axis segments have. They are the last ones of an operation
/// that has segments.
#[derive(Clone, Debug)]
pub struct Members<B: Backend> {
    /// Where segments begin: among the elements of the axis, or among the indices.
    pub offsets: IntTensor<B>,
    /// The elements of groups, if segments do not have neighbours.
    pub groups: Option<GroupTensors<B>>,
}

/// The elements of an axis by group.
#[derive(Clone, Debug)]
pub struct GroupTensors<B: Backend> {
    /// The elements in the order of their groups, those of no group last.
    pub indices: IntTensor<B>,
    /// The group of each element.
    pub keys: IntTensor<B>,
}

impl<B: Backend> Members<B> {
    /// Neighbours, by the offsets of segments.
    pub fn neighbours(offsets: IntTensor<B>) -> Self {
        Self { offsets, groups: None }
    }

    /// The tensors: the offsets, and then the indices and the keys of groups.
    pub fn into_tensors(self) -> impl Iterator<Item = AnyTensor<B>> {
        let groups = self.groups.map(|groups| [groups.indices, groups.keys]);
        iter::once(self.offsets).chain(groups.into_iter().flatten()).map(AnyTensor::Int)
    }
}

/// The segments of an axis: how many there are, and the types of the tensors that say which elements
/// they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segments {
    count: usize,
    offsets: DType,
    groups: Option<GroupTypes>,
}

/// The elements that have groups: how many there are, and the types of their tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupTypes {
    len: usize,
    indices: DType,
    keys: DType,
}

impl GroupTypes {
    /// Elements of the axis.
    pub fn count(self) -> usize {
        self.len
    }

    /// Type of the indices.
    pub fn indices(self) -> DType {
        self.indices
    }

    /// Type of the keys.
    pub fn keys(self) -> DType {
        self.keys
    }
}

impl Segments {
    /// Those of an axis of `len` elements.
    ///
    /// # Errors
    ///
    /// Tensors of another number of dimensions than one, no offset, and groups of another number of
    /// elements.
    pub fn new<B: Backend>(members: &Members<B>, len: usize) -> Result<Self, ReduceBurnError> {
        let shape = members.offsets.shape();
        let count = (shape.num_dims() == 1).then(|| shape[0].checked_sub(1)).flatten();
        let count = count.ok_or_else(|| ReduceBurnError::Offsets { found: shape.to_vec() })?;
        let groups = members.groups.as_ref().map(|GroupTensors { indices, keys }| {
            let (indices_shape, keys_shape) = (indices.shape(), keys.shape());
            match indices_shape == keys_shape && keys_shape.to_vec() == [len] {
                true => Ok(GroupTypes { len, indices: indices.dtype(), keys: keys.dtype() }),
                false => Err(ReduceBurnError::Groups { found: keys_shape.to_vec(), len }),
            }
        });
        Ok(Self { count, offsets: members.offsets.dtype(), groups: groups.transpose()? })
    }

    /// Number of the tensors that say which elements segments have.
    pub fn tensors(self) -> usize {
        if self.groups.is_some() { 3 } else { 1 }
    }

    /// The elements that have groups, if segments do not have neighbours.
    pub fn groups(self) -> Option<GroupTypes> {
        self.groups
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
        let segments = Segments::new::<B>(&Members::neighbours(offsets.clone()), len)?;
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

/// Groups of the elements of an axis by keys in any order. Keys that are no number below that of groups
/// name none. The results are the indices of the elements in the order of their groups, and where groups
/// begin among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grouping {
    len: usize,
    keys: DType,
    groups: usize,
}

impl Grouping {
    /// That of keys.
    ///
    /// # Errors
    ///
    /// They have another number of dimensions than one.
    pub fn new<B: Backend>(keys: &IntTensor<B>, groups: usize) -> Result<Self, ReduceBurnError> {
        let shape = keys.shape();
        match shape.num_dims() {
            1 => Ok(Self { len: shape[0], keys: keys.dtype(), groups }),
            _ => Err(ReduceBurnError::Keys { found: shape.to_vec() }),
        }
    }

    /// Number of keys.
    pub fn count(self) -> usize {
        self.len
    }

    /// Type of the keys.
    pub fn keys(self) -> DType {
        self.keys
    }

    /// Number of groups.
    pub fn groups(self) -> usize {
        self.groups
    }

    /// The type of the results.
    pub fn dtype(self) -> DType {
        if u32::try_from(self.len).is_ok() { DType::U32 } else { DType::U64 }
    }
}
