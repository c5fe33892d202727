//! A reduction whose results are applied to the elements of its input.
//!
//! [`request`] is the task. A plan that launches the reduction on its own holds it as it is
//! prepared in [`reduce`](super::reduce). [`cross_entropy`] applies results to one element of each
//! slice.

pub(crate) mod cross_entropy;
pub(crate) mod launch;
pub(crate) mod request;
