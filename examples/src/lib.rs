//! What the example programs share: arrays in NumPy's format, numbers and results, and the
//! operators, axes, selections and scans of a command line.

mod array;
mod axes;
mod function;
mod npy;
mod number;
mod operation;
mod over;
mod results;
mod scan;

pub use array::{Array, ArrayError};
pub use axes::{AxesArgument, AxisError};
pub use function::Function;
pub use number::Number;
pub use operation::{AppliedFunction, Operation, OperationError, Parameters, SecondInput, refuse};
pub use over::OverArgument;
pub use results::{ResultError, download};
pub use scan::{ScanArguments, Scanned};
