//! What a test of an operator of your own needs (feature `testing`).
//!
//! - [`check_laws`] holds an operator to the laws that every schedule relies on;
//! - [`check_every_plan`] runs it under every schedule, and compares it with a naive reference;
//! - [`every_plan`] and [`widest_plans`] are the plans, for tests that are written by hand.
//!
//! Mapped operators are tested like others: `check_laws` takes a [`Mapped`](crate::Mapped), and
//! `check_every_plan` a reduction with its map.

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
