//! Plans for the selection of a few elements of each slice.
//!
//! Units read a slice once and keep what may be among its first `k` elements in a buffer in shared
//! memory, which is cut to `k` when it is full. The floor is one read of the input. More elements
//! than shared memory holds are sorted in runs, which further launches merge.

mod beside;
mod candidates;
mod choose;
mod cost;
mod plan;

pub use candidates::candidates_top_k;
pub use choose::{TopKReason, choose_top_k};
pub use plan::{TopKMethod, TopKPlan};
