//! What the example programs share: arrays in NumPy's format, numbers and results.

mod array;
mod npy;
mod number;
mod results;

pub use array::{Array, ArrayError};
pub use number::Number;
pub use results::{ResultError, download};
