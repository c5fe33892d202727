//! What only waiting can tell: whether work that was launched has run.

use cubecl::{future::block_on, prelude::*, std::tensor::TensorHandle};

use crate::{ReduceError, host::scratch::is_allocated};

/// Waits for the work of the client's stream, and says whether it ran, with `tensors` as its inputs and
/// results.
///
/// CubeCL 0.10 allocates and launches on the device's own thread, after the calls that asked for it have
/// returned. Where the memory of an input or a result cannot be had, it drops the launch: a reduction has said
/// `Ok` by then, `client.sync()` says `Ok` too, reading the result that was not allocated panics, and
/// reading one that was gives whatever its memory held. This call tells, so make it where memory may run
/// out, before a result is trusted.
///
/// ```no_run
/// use reduce_kernels::{ReduceError, confirm, cubecl, sum};
/// use cubecl::{prelude::*, std::tensor::TensorHandle};
///
/// # fn example<R: Runtime>(client: &ComputeClient<R>, x: &TensorHandle<R>) -> Result<(), ReduceError> {
/// let rows = sum(client, x, [1])?;
/// confirm(client, [x, &rows])?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// [`ReduceError::NotAllocated`] for the first tensor without memory; else [`ReduceError::Device`] with what
/// `client.sync()` reports. Either way the stream's errors are told: the next call reports later ones alone.
pub fn confirm<'a, R: Runtime>(
    client: &ComputeClient<R>,
    tensors: impl IntoIterator<Item = &'a TensorHandle<R>>,
) -> Result<(), ReduceError> {
    let synced = block_on(client.sync());
    for (nth, tensor) in tensors.into_iter().enumerate() {
        if !is_allocated(client, &tensor.handle) {
            return Err(ReduceError::NotAllocated { nth, bytes: tensor.handle.size() });
        }
    }
    synced.map_err(|error| ReduceError::Device { reason: error.to_string() })
}
