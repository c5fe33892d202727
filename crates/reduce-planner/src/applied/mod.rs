//! Plans for reductions whose results are applied to each element of their own input.
//!
//! The elements are needed twice: for the results, and when these are applied. A plan says where
//! they are in between. The first floor is to read each element once and to write it once.

mod candidates;
mod choose;
pub(crate) mod invariant;
mod plan;
mod variations;

pub use candidates::AppliedReason;
pub use choose::{choose_applied, force_applied};
pub use plan::{AppliedKind, AppliedPlan, ApplyLaunch};
pub(crate) use variations::candidates_applied;
