//! Reductions of segments: neighbouring elements along an axis, in any numbers.
//!
//! ```no_run
//! use reduce_kernels::{
//!     Mean, ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     reduce,
//! };
//!
//! // The mean of the nodes of each graph of a batch: `nodes` has the shape [nodes, features], and
//! // graph number `g` has the nodes from `offsets[g]` up to `offsets[g + 1]`.
//! # fn example(
//! #     client: &Client,
//! #     nodes: &TensorHandle,
//! #     offsets: &TensorHandle,
//! # ) -> Result<(), ReduceError> {
//! let graphs = reduce(Mean, nodes).over(0).segments(offsets).run(client)?;
//! # Ok(()) }
//! ```

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::ElementType;

use crate::{error::ReduceError, host};

pub use crate::{
    groups::{GroupByKeys, Groups, group_by_keys},
    keyed_reduction::KeyedReduction,
    segmented_reduction::SegmentedReduction,
};

/// The offsets of segments that keys name, for [`Reduction::segments`](crate::Reduction::segments): element number `i` of the
/// axis belongs to segment number `keys[i]`. The keys must be sorted; a segment that none names has
/// no elements, and elements with other keys than `0..segments` belong to none.
///
/// Keys are a tensor of one dimension, of i32, i64, u32 or u64. Nothing is read back: of keys that
/// are not sorted, the offsets are arbitrary, and none exceeds the number of keys. They are of u32,
/// or of u64 if there are more keys than u32 counts.
///
/// ```no_run
/// use reduce_kernels::{Max, ReduceError, cubecl, reduce, segments::offsets_of_sorted_keys};
///
/// # use cubecl::{prelude::*, std::tensor::TensorHandle};
/// // The greatest value of each of 1000 users, whose events are sorted by user.
/// # fn example(
/// #     client: &Client,
/// #     values: &TensorHandle,
/// #     users: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// let offsets = offsets_of_sorted_keys(client, users, 1000)?;
/// let greatest = reduce(Max, values).segments(&offsets).run(client)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Keys of several dimensions or of another type, more segments than their type counts, and a device
/// that lacks the type, the indices or the memory.
pub fn offsets_of_sorted_keys(
    client: &Client,
    keys: &TensorHandle,
    segments: usize,
) -> Result<TensorHandle, ReduceError> {
    host::segments::keys::offsets_of_sorted_keys(client, keys, segments)
}

/// The offsets of segments of these lengths, for [`Reduction::segments`](crate::Reduction::segments): one more than there are
/// lengths, of the same type. The first segment begins with the first element of the axis.
///
/// Lengths are a tensor of one dimension, of i32, i64, u32 or u64. Nothing is read back: a negative
/// length counts as 0, and sums that the type does not hold wrap.
///
/// ```no_run
/// use reduce_kernels::{Max, ReduceError, cubecl, reduce, segments::offsets_of_lengths};
///
/// # use cubecl::{prelude::*, std::tensor::TensorHandle};
/// # fn example(
/// #     client: &Client,
/// #     tokens: &TensorHandle,
/// #     lengths: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// let offsets = offsets_of_lengths(client, lengths)?;
/// let sentences = reduce(Max, tokens).over(0).segments(&offsets).run(client)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Lengths of several dimensions or of another type, and a device that lacks the type, the indices or
/// the memory.
pub fn offsets_of_lengths(
    client: &Client,
    lengths: &TensorHandle,
) -> Result<TensorHandle, ReduceError> {
    host::segments::lengths::offsets_of_lengths(client, lengths)
}

/// The number of the segment of each of `len` elements of an axis, as `element`: i32 or i64. It is the
/// inverse of [`offsets_of_sorted_keys`], and what a gather needs to bring results of segments back to
/// their elements. Elements before the first segment get -1, and those behind the last one the number
/// of segments.
///
/// Nothing is read back: of offsets that descend, the numbers are arbitrary within these limits.
///
/// ```no_run
/// use reduce_kernels::{ElementType, ReduceError, cubecl, segments::keys_of_offsets};
///
/// # use cubecl::{prelude::*, std::tensor::TensorHandle};
/// # fn example(client: &Client, offsets: &TensorHandle) -> Result<(), ReduceError> {
/// let users = keys_of_offsets(client, offsets, 1 << 20, ElementType::I32)?; // shape [1 << 20]
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Offsets of several dimensions or of another type than those of segments, another type than i32 and
/// i64 or one that does not hold the number of segments, and a device that lacks a type, the indices or
/// the memory.
pub fn keys_of_offsets(
    client: &Client,
    offsets: &TensorHandle,
    len: usize,
    element: ElementType,
) -> Result<TensorHandle, ReduceError> {
    host::segments::keys::keys_of_offsets(client, offsets, len, element)
}
