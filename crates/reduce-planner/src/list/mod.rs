//! Plans for lists of tensors that are reduced together.
//!
//! A launch binds a buffer for each of its tensors. Its cubes are dealt to the tensors by their
//! size, and store partials. A last launch merges those of each tensor, and those of all tensors.
//! The floor is to read each element once; a framework that launches for each tensor pays for its
//! launches.

mod application;
mod choose;
mod plan;
mod variations;

pub use application::{AppliedListPlan, AppliedListProblem, ListApplication, choose_applied_list};
pub use choose::choose_list;
pub(crate) use choose::{KernelBuffers, estimate};
pub use plan::{ListLaunch, ListPlan, ListShare};
pub(crate) use variations::{candidates_applied_list, candidates_list};
