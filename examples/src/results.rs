//! Results of reductions on the host.

use reduce_kernels::{
    ReduceError,
    cubecl::{future, prelude::*, std::tensor::TensorHandle},
    element_type,
};

use crate::Array;

/// Why results are missing.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// The library refused the reduction.
    #[error(transparent)]
    Refused(#[from] ReduceError),
    /// The device failed while it ran the reduction.
    #[error("the device failed: {0}")]
    Device(String),
}

impl ResultError {
    /// What a runtime of CubeCL reports, in one line.
    pub fn device(error: impl std::fmt::Debug) -> Self {
        let text = format!("{error:?}");
        Self::Device(text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

/// Waits for results and reads them, all at once.
///
/// # Errors
///
/// The device failed.
pub fn download(client: &Client, results: &[TensorHandle]) -> Result<Vec<Array>, ResultError> {
    let handles = results.iter().map(|result| result.handle.clone()).collect();
    let fetched = future::block_on(client.read_async(handles)).map_err(ResultError::device)?;
    let arrays = results.iter().zip(fetched).map(|(result, bytes)| {
        let element = element_type(result.dtype)?;
        let shape = result.shape().to_vec();
        let len = shape.iter().product::<usize>() * element.bytes();
        let strides = result.strides().to_vec();
        Ok(Array { element, shape, strides, bytes: bytes[..len].to_vec() })
    });
    arrays.collect()
}
