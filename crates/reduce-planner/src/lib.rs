//! Decides how to launch a tensor reduction on a GPU.
//!
//! [`choose`] takes a [`Problem`] and a [`Device`] and gives a [`Plan`]. All of it is host code
//! without a GPU crate among its dependencies. A plan can be made, compared, printed, saved and
//! tested on a machine without a GPU. The crate `reduce-kernels` runs it.
//!
//! ```
//! use reduce_planner::*;
//!
//! // The sum over the last axis of a row-major 4096 × 32768 tensor of f32, on an H200.
//! let sum = OperatorClass::new("sum", 4);
//! let input = InputSpec {
//!     element: ElementType::F32,
//!     shape: &[4096, 32768],
//!     strides: &[32768, 1],
//!     alignment: 256,
//! };
//! let output = OutputSpec { elements: &[ElementType::F32], strides: None };
//! let problem = Problem::new(sum, &input, Some(&[1]), &output)?;
//!
//! let choice = choose(&problem, &Device::h200())?;
//! assert_eq!(choice.plan.schedule.kind(), ScheduleKind::Cube);
//! println!("{}", choice.plan);
//! println!("{}", choice.estimate);
//! for refusal in &choice.refused {
//!     println!("not {refusal}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to look
//!
//! Each file uses only files above it.
//!
//! | file | content |
//! | --- | --- |
//! | `element.rs`, `kind.rs`, `numerics.rs` | names of element types, of schedules, and of what bits depend on |
//! | `estimate.rs`, `illegal.rs` | the expected time of a plan, and the rules that one may break |
//! | `refusal.rs`, `error.rs` | reasons against schedules, and errors |
//! | `numbers/` | every number that a decision rests on, with its measurement |
//! | `profile.rs` | how fast a device is |
//! | `device.rs` | a device: facts, speed and tuning |
//! | `problem/` | a reduction in canonical form |
//! | `limits.rs` | what no plan can mend |
//! | `plan/` | a plan as data, the rules it must obey, its sentence |
//! | `choose/` | the choice, step by step |
//! | `calibrate.rs` | a device's speed from measured times |
//! | `applied/` | plans for results that are applied to their own elements |
//! | `list/` | plans for lists of tensors |
//! | `scan/` | plans for the results at every position |
//! | `top_k/` | plans for the selection of a few elements of each slice |
//! | `measure/` | the choice of a plan by measuring |
//! | `planned.rs` | what problems of all kinds have in common |
//! | `store/` | measured plans in a file |
//!
//! # Features
//!
//! `serde` lets plans, devices, choices and what `tune` measured be saved and read, and adds
//! `PlanStore`: measured plans in a file.
#![deny(missing_docs)]

mod applied;
mod calibrate;
mod choose;
mod device;
mod element;
mod error;
mod estimate;
mod illegal;
mod kind;
mod limits;
mod list;
mod measure;
mod numbers;
mod numerics;
mod plan;
mod planned;
mod problem;
mod profile;
mod refusal;
pub mod reproducible;
mod scan;
mod segments;
#[cfg(feature = "serde")]
mod store;
mod top_k;

pub use applied::{
    AppliedKind, AppliedPlan, AppliedReason, ApplyLaunch, choose_applied, force_applied,
};
pub use calibrate::{Fit, Observation, fit};
pub use choose::{Candidate, Choice, Explained, candidates, choose, force};
pub use device::Device;
pub use element::{ElementType, UnknownElementType};
pub use error::{DeviceError, PlanError, ProblemError, Role};
pub use estimate::{Estimate, Limit};
pub use illegal::{Illegal, Quantity};
pub use kind::ScheduleKind;
pub use limits::{applied_needs_wide_indices, check_index_span, check_limits, needs_wide_indices};
pub use list::{
    AppliedListPlan, AppliedListProblem, ListApplication, ListLaunch, ListPlan, ListShare,
    choose_applied_list, choose_list,
};
pub use measure::{Failure, Outcome, Tried, TuneError, TuneOptions, Tuned, tune};
pub use numbers::{
    AccumulatorTuning, AppliedTuning, InvariantTuning, ListTuning, ScanTuning, SegmentTiles,
    SegmentsTuning, TopKTuning, TranscendentalTuning, Tuning,
};
pub use numerics::{Numerics, UnknownNumerics};
pub use plan::{Access, Combine, Merge, Plan, RealignedBlocks, Schedule};
pub use planned::{AnyPlan, Planned};
pub use problem::{
    AppliedProblem, AppliedSpec, Companion, Direction, ElementCost, IndicesSpec, InputSpec,
    KeptDim, ListProblem, ListScanProblem, OperatorClass, OutputSpec, Over, Probabilities, Problem,
    ReducedDim, Reproducible, ScanProblem, ScanSpec, Second, SecondSpec, SegmentsProblem,
    SegmentsSpec, SelectedSpec, ShardSpec, TopKProblem, reduced_axes, row_major_strides, span,
};
pub use profile::{Profile, RegisterUse, SegmentEfficiency};
pub use refusal::{NoRefusal, Reason, Refusal};
pub use scan::{
    ListScanLaunch, ListScanPlan, ScanParts, ScanPlan, ScanReason, choose_list_scan, choose_scan,
    force_scan,
};
pub use segments::{Digit, GroupingPlan, SegmentsMerge, SegmentsPlan, choose_segments};
#[cfg(feature = "serde")]
pub use store::{PlanStore, StoreError, TunedPlan};
pub use top_k::{TopKMethod, TopKPlan, TopKReason, candidates_top_k, choose_top_k};

/// The examples of the README are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
