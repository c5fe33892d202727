//! What the example programs and the benchmarks share: the choice of a backend, the command line,
//! files that appear whole or not at all, random inputs, timing, progress on a terminal, and the
//! parts of pictures.
#![deny(missing_docs)]

mod backend;
mod bits;
pub mod canvas;
pub mod command_line;
mod file;
mod floor;
mod measure;
mod progress;
mod random;

pub use backend::{
    Backend, BackendError, Device, HELP as BACKEND_HELP, OnDevice, device, on_device,
};
pub use bits::hash;
pub use file::{FileError, Staged, read, write};
pub use floor::{Floor, largest_buffer};
pub use measure::{
    MeasureError, gigabytes_per_second, median, microseconds_on_all, microseconds_per_call,
    sample_of_calls, wait,
};
pub use progress::progress;
pub use random::{random_inputs, rotated_inputs};
