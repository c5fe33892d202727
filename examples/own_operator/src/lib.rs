//! A user's own operator and a user's own element map, on the public interface of `reduce-kernels`
//! alone.
//!
//! - [`MeanAngle`]: an operator whose accumulator has two fields, the mean of angles;
//! - [`SquaredError`]: a map applied to each element as it is loaded, with a number that is given
//!   at run time.
//!
//! `docs/ADDING_AN_OPERATOR.md` in the repository walks through this crate.
//! `cargo run -p reduce-own-operator --features vulkan` shows both;
//! `cargo test -p reduce-own-operator --features vulkan` runs both under every schedule.

mod mean_angle;
mod squared_error;

pub use mean_angle::MeanAngle;
pub use squared_error::SquaredError;
