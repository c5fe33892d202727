//! Reductions of segments. [`request`] holds what the caller asked for and states it as the
//! reduction of an axis and the number of its segments; [`launch`] launches what a plan says, and
//! [`keys`] makes offsets of sorted keys and keys of offsets, [`lengths`] offsets of lengths, and
//! [`grouping`] offsets and indices of keys in any order. [`integers`] describes such tensors.

pub(crate) mod grouping;
pub(crate) mod integers;
pub(crate) mod keys;
pub(crate) mod launch;
pub(crate) mod lengths;
pub(crate) mod request;
