//! What the example programs share: arrays in NumPy's format, numbers, results, the choice of a
//! backend, and manners on the command line.

mod array;
mod backend;
pub mod command_line;
mod npy;
mod number;
mod results;

pub use array::{Array, ArrayError, Staged};
pub use backend::{Backend, BackendError, HELP as BACKEND_HELP, OnDevice, on_device};
pub use number::Number;
pub use results::{ResultError, download};
