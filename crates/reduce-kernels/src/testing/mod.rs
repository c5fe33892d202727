//! Tests for operators of your own (feature `testing`).
//!
//! - [`check_laws`] checks the laws of an operator, on which every schedule relies;
//! - [`check_every_plan`] runs an operator under every schedule and compares it with a naive
//!   reference;
//! - [`every_plan`] and [`widest_plans`] list plans, for tests that are written by hand.
//!
//! Operators of two inputs and mapped operators are tested by the same calls: `check_laws` takes
//! triples of pairs for an operator of two inputs, and both functions take a
//! [`Mapped`](crate::operator::Mapped).

mod decode;
mod error;
mod inputs;
mod laws;
mod layout;
mod plans;
mod random;
mod reference;
mod tolerance;

pub use error::{Run, TestError};
pub use inputs::{EachInput, InputTensors};
pub use laws::{Law, check_laws};
pub use layout::Layout;
pub use plans::{every_plan, widest_plans};
pub use random::Random;
pub use reference::check_every_plan;
pub use tolerance::Tolerance;
