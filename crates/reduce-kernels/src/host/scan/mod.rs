//! Scans: the results of a reduction at each of its positions. [`request`] holds what the caller
//! asked for and states it, and [`launch`] launches it.

pub(crate) mod launch;
pub(crate) mod request;
