//! Cases, data, timing and reports shared by the benchmarks.
#![deny(missing_docs)]

mod call_cost;
mod case;
#[cfg(feature = "cubek")]
mod cubek;
mod data;
mod floor;
mod kernel_time;
mod measure;
mod record;
pub mod report;
pub mod sweep;

pub use call_cost::CallCost;
pub use case::{Case, CaseError, Over};
#[cfg(feature = "cubek")]
pub use cubek::fastest_routine;
pub use data::inputs;
pub use floor::{Floor, largest_buffer};
pub use kernel_time::Delay;
pub use measure::{MeasureError, microseconds_per_call, run};
pub use record::{
    CubekTiming, FileError, Record, Staged, Timing, Tried, gigabytes_per_second, read, write,
};
