//! The selection of a few elements of each slice.
//!
//! [`request`] is the task, and [`launch`] launches it. [`quantiles`] selects the elements that
//! quantiles lie between, and interpolates.

pub(crate) mod launch;
pub(crate) mod quantiles;
pub(crate) mod request;
