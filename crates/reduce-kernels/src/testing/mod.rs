//! What a test of an operator of your own needs (feature `testing`).

mod laws;

pub use laws::{BrokenLaw, Law, check_laws};
