//! What the example programs share: arrays in NumPy's format, and the choice of a backend.

mod array;
mod backend;

pub use array::{Array, ArrayError};
pub use backend::{Backend, BackendError, OnDevice, on_device};
