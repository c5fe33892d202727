//! A list of tensors that one operator reduces together, and the application of its results.
//!
//! [`request`] is the task of the reduction, and [`launch`] launches it. [`apply`] is the task that
//! applies the results. It holds the reduction as it is prepared in `request`. Both read tensors by
//! the launches in [`reading`]. [`scan`] is the task that scans each tensor.

pub(crate) mod apply;
pub(crate) mod launch;
mod reading;
pub(crate) mod request;
pub(crate) mod scan;
