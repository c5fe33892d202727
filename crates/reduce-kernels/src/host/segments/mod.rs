//! Reductions of segments. [`request`] holds what the caller asked for and states it as the
//! reduction of an axis and the number of its segments; [`launch`] launches what a plan says, and
//! [`keys`] makes offsets of sorted keys and keys of offsets, and [`lengths`]
//! offsets of lengths.

pub(crate) mod keys;
pub(crate) mod launch;
pub(crate) mod lengths;
pub(crate) mod request;
