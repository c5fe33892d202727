//! What the example programs share: arrays in NumPy's format, numbers and results, and the
//! operators, axes and selections of a command line.

mod array;
mod axes;
mod npy;
mod number;
mod operation;
mod over;
mod results;

pub use array::{Array, ArrayError};
pub use axes::{AxesArgument, AxisError};
pub use number::Number;
pub use operation::{AppliedFunction, Operation, OperationError, Parameters, SecondInput};
pub use over::OverArgument;
pub use results::{ResultError, download};
