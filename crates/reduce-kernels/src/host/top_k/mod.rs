//! The selection of a few elements of each slice.
//!
//! [`request`] is the task, and [`launch`] launches it. [`parts`] selects from slices that come in
//! parts: the first elements of each part, then the first of those. [`quantiles`] selects the
//! elements that quantiles lie between, and interpolates. [`mask`] writes the input with nothing
//! but the selected elements.

pub(crate) mod launch;
pub(crate) mod mask;
pub(crate) mod parts;
pub(crate) mod quantiles;
pub(crate) mod request;
