//! Decides how to launch a tensor reduction on a GPU.
//!
//! [`Problem`] + [`Device`] → [`Plan`]: pure host code with no GPU crate among its dependencies. A
//! plan can be made, compared, printed, saved and tested on a machine without a GPU; the crate
//! `reduce-kernels` runs it.
//!
//! ```
//! use reduce_planner::*;
//!
//! // The sum over the last axis of a row-major 8192 × 8192 tensor of f32, on an H200.
//! let sum = OperatorClass { name: "sum", accumulator_bytes: 4, fields: 1, positional: false, defined_on_empty: true, transcendental: false };
//! let input = InputSpec { element: ElementType::F32, shape: &[8192, 8192], strides: &[8192, 1], alignment: 256 };
//! let output = OutputSpec { elements: &[ElementType::F32], strides: None };
//! let problem = Problem::new(sum, &input, Some(&[1]), &output)?;
//!
//! let choice = choose(&problem, &Device::h200())?;
//! assert_eq!(choice.plan.schedule.kind(), ScheduleKind::Cube);
//! println!("{}", choice.plan);
//! for refusal in &choice.refused {
//!     println!("not {refusal}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(missing_docs)]

mod choice;
pub mod cost;
mod device;
mod element;
mod error;
mod plan;
mod problem;
pub mod schedule;
pub mod tuning;

pub use choice::{Choice, Reason, Refusal, choose, force, needs_wide_indices};
pub use device::Device;
pub use element::{ElementType, UnknownElementType};
pub use error::{DeviceError, PlanError, ProblemError};
pub use plan::{Access, Combine, Merge, Plan, Schedule, ScheduleKind};
pub use problem::{
    Direction, InputSpec, KeptDim, OperatorClass, OutputSpec, Problem, ReducedDim, reduced_axes,
    row_major_strides, span,
};
