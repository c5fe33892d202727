//! Waiting for launched work, and finding out whether it ran.

use cubecl::{future::block_on, prelude::*, server::Handle, std::tensor::TensorHandle};

use crate::{
    error::ReduceError,
    host::scratch::{first_lost, unwritten},
};

/// Waits for the client's stream and reports whether its work ran. `tensors` are the inputs and
/// results of that work.
///
/// CubeCL allocates and launches on a thread of its own, after the call that asked for it has
/// returned. If it cannot allocate an input or a result, it drops the launch. By then, the
/// reduction has returned `Ok`, and `client.sync()` returns `Ok` too: CubeCL 0.11 keeps a failure
/// with the buffers that were not written, and tells it to whoever reads them. `confirm` asks
/// without reading. Call it before you trust a result, wherever memory may run out.
///
/// ```no_run
/// use reduce_kernels::{ReduceError, confirm, cubecl, sum};
/// use cubecl::{prelude::*, std::tensor::TensorHandle};
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let rows = sum(client, x, [1])?;
/// confirm(client, [x, &rows])?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Errors of [`ErrorKind::Device`](crate::ErrorKind::Device):
///
/// - the first of the tensors whose bytes were never written;
/// - otherwise the error that `client.sync()` reports.
pub fn confirm<'a>(
    client: &Client,
    tensors: impl IntoIterator<Item = &'a TensorHandle>,
) -> Result<(), ReduceError> {
    let synced = block_on(client.sync());
    let handles: Vec<Handle> = tensors.into_iter().map(|tensor| tensor.handle.clone()).collect();
    if let Some((nth, error)) = first_lost(client, &handles) {
        return Err(unwritten(nth, &handles[nth], &error));
    }
    synced.map_err(ReduceError::device)
}
