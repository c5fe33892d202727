//! Cases, times and reports shared by the benchmarks.
#![deny(missing_docs)]

pub mod applying;
mod call;
mod call_cost;
mod case;
#[cfg(feature = "cubek")]
mod cubek;
mod kernel_time;
pub mod listing;
pub mod pairing;
mod probe;
mod record;
pub mod regret;
pub mod report;
pub mod scanning;
pub mod selecting;
pub mod shards;
mod stated;
pub mod sweep;
pub mod tune;
pub mod turns;

pub use call::{inputs, run};
pub use call_cost::{CallCost, CallingThread};
pub use case::{Case, CaseError, Over};
#[cfg(feature = "cubek")]
pub use cubek::fastest_routine;
pub use kernel_time::Delay;
pub use probe::probes;
pub use record::{CubekTiming, Record, RecordError, Timing, Tried};
pub use stated::{PlanTextError, Stated, StatedCase};
