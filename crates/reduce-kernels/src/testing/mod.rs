//! What a test of an operator of your own needs (feature `testing`).

mod laws;
mod plans;

pub use laws::{BrokenLaw, Law, check_laws};
pub use plans::{every_plan, widest_plans};
