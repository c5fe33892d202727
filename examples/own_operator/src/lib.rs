//! A user's own operators, element map and application, on the public interface of
//! `reduce-kernels` alone.
//!
//! - [`MeanAngle`]: an operator whose accumulator has two fields, the mean of angles;
//! - [`Slope`]: an operator of two inputs, the slope of a line through points;
//! - [`SquaredError`]: a map applied to each element as it is loaded, with a number that is given
//!   at run time;
//! - [`ToUnitRange`]: an application, which takes the results of a reduction back to its elements.
//!
//! `docs/ADDING_AN_OPERATOR.md` in the repository walks through this crate.
//! `cargo run -p reduce-own-operator --features wgpu` shows them;
//! `cargo test -p reduce-own-operator --features wgpu` runs all under every schedule.

mod mean_angle;
mod slope;
mod squared_error;
mod to_unit_range;

pub use mean_angle::MeanAngle;
pub use slope::Slope;
pub use squared_error::SquaredError;
pub use to_unit_range::ToUnitRange;
