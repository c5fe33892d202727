//! Tests for operators of your own (feature `testing`).
//!
//! - [`check_laws`] checks the laws of an operator, on which every schedule relies;
//! - [`check_every_plan`] runs an operator under every schedule and compares it with a naive
//!   reference;
//! - [`every_plan`] and [`widest_plans`] list plans, for tests that are written by hand.
//!
//! Mapped operators are tested in the same way: `check_laws` takes a [`Mapped`](crate::Mapped), and
//! `check_every_plan` takes a reduction with its map.

mod decode;
mod error;
mod laws;
mod layout;
mod plans;
mod random;
mod reference;
mod tolerance;

pub use error::{Run, TestError};
pub use laws::{Law, check_laws};
pub use layout::Layout;
pub use plans::{every_plan, widest_plans};
pub use random::Random;
pub use reference::check_every_plan;
pub use tolerance::Tolerance;
