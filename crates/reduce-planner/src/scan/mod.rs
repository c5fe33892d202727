//! Plans for scans: the results of a reduction at each of its positions.
//!
//! The units of a cube hold a chunk of a row in registers, learn from each other what lies before
//! their elements, and go on to the next chunk. A row that is long, beside few others, has several
//! cubes: a first launch reduces the part of each, and a second one scans the parts, each from what
//! lies before it. The floor is one read of the input and one write of the results.

mod choose;
mod cost;
mod list;
mod plan;

pub use choose::{ScanReason, choose_scan, force_scan};
pub use list::{ListScanLaunch, ListScanPlan, choose_list_scan};
pub use plan::{ScanParts, ScanPlan};
