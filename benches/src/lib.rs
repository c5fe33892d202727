//! Cases, data and timing shared by the benchmarks.

mod case;
mod data;
mod measure;

pub use case::{Case, CaseError};
pub use data::inputs;
pub use measure::{microseconds_per_call, run};
