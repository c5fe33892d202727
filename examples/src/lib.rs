//! What the example programs share: arrays in NumPy's format, numbers, results, and progress on a
//! terminal.

mod array;
mod npy;
mod number;
mod progress;
mod results;

pub use array::{Array, ArrayError};
pub use number::Number;
pub use progress::progress;
pub use results::{ResultError, download};
