//! Masks that are added to scores before their softmax.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::ElementType;

use crate::{error::ReduceError, host};

/// The causal mask of attention, for [`MaskedSoftmax`](crate::normalize::MaskedSoftmax): a tensor
/// of shape `[queries, keys]` that is 0 where a query sees a key, and `-inf` elsewhere.
///
/// Query number `q` sees key number `k` if `k <= q + keys - queries`, both counted from 0. The last
/// query sees all keys, and each query before it sees one key less. With as many queries as keys,
/// this is the lower triangle. With fewer queries than keys, the queries are the last ones of a
/// sequence whose earlier keys are in a cache (PyTorch's `causal_lower_right`). With more, the
/// first `queries - keys` queries see nothing, and their softmax is NaN.
///
/// The mask broadcasts to scores of shape `[batch, heads, queries, keys]`. The softmax reads it
/// once for each batch and each head, mostly from the cache of the device. One mask serves all
/// layers of a model. This does not wait for the device.
///
/// ```no_run
/// use reduce_kernels::{
///     ElementType, ReduceError,
///     cubecl::{prelude::*, std::tensor::TensorHandle},
///     normalize::{MaskedSoftmax, causal_mask},
/// };
///
/// # fn example(
/// #     client: &Client,
/// #     scores: &TensorHandle, // shape [batch, heads, 128, 4096], of f16
/// # ) -> Result<(), ReduceError> {
/// let mask = causal_mask(client, 128, 4096, ElementType::F16)?;
/// let weights = MaskedSoftmax { scale: 0.125 }.of(scores, &mask, 3).run(client)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// An `element` that is not of floating point of 16 bits or more, and a device that lacks the type,
/// the indices or the memory. Nothing is launched then.
pub fn causal_mask(
    client: &Client,
    queries: usize,
    keys: usize,
    element: ElementType,
) -> Result<TensorHandle, ReduceError> {
    host::masks::causal_mask(client, queries, keys, element)
}

/// The mask of rows of different lengths, for [`MaskedSoftmax`](crate::normalize::MaskedSoftmax): a
/// tensor of the shape of `lengths` with a last axis of `keys`. In the row of each length, the
/// first elements are 0, as many as the length says, and the others are `-inf`.
///
/// Lengths are integers, of any shape and strides. Nothing is read back: a length below 0 counts as
/// 0, and one above `keys` as `keys`. The softmax of a row of length 0 is NaN.
///
/// Lengths of shape `[batch, 1, 1]` give a mask of shape `[batch, 1, 1, keys]`, which broadcasts to
/// scores of shape `[batch, heads, queries, keys]`. The softmax reads its rows once for each head
/// and each query, mostly from the cache of the device. This does not wait for the device.
///
/// ```no_run
/// use reduce_kernels::{
///     ElementType, ReduceError,
///     cubecl::{prelude::*, std::tensor::TensorHandle},
///     normalize::{MaskedSoftmax, length_mask},
/// };
///
/// # fn example(
/// #     client: &Client,
/// #     scores: &TensorHandle, // shape [batch, heads, queries, 4096], of f16
/// #     lengths: &TensorHandle, // shape [batch, 1, 1], of i32
/// # ) -> Result<(), ReduceError> {
/// let mask = length_mask(client, lengths, 4096, ElementType::F16)?;
/// let weights = MaskedSoftmax { scale: 0.125 }.of(scores, &mask, 3).run(client)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Lengths that are not integers, an `element` that is not of floating point of 16 bits or more, a
/// buffer of lengths that is too small, and a device that lacks a type, the indices or the memory.
/// Nothing is launched then.
pub fn length_mask(
    client: &Client,
    lengths: &TensorHandle,
    keys: usize,
    element: ElementType,
) -> Result<TensorHandle, ReduceError> {
    host::masks::length_mask(client, lengths, keys, element)
}
