//! The kernels and what they share.
//!
//! The schedules unit, plane and cube differ only in the [`Team`](crate::combine::Team) that works
//! on an output, which is a constant of the kernel: [`one_pass`] is all three. [`split`] and
//! [`merge`] are the two launches of a split.

mod fold;
pub(crate) mod geometry;
pub(crate) mod merge;
pub(crate) mod one_pass;
mod read;
pub(crate) mod split;
mod work;
