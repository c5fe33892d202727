//! The kernels and what they share.
//!
//! The schedules unit, plane and cube differ only in the [`Team`](crate::combine::Team) that works
//! on an output, which is a constant of the kernel: [`one_pass`] is all three. [`split_once`] is a split
//! whose last cube merges; [`split`] and [`merge`] are the two launches of one where 64-bit atomics are
//! missing.
//!
//! Words: a *group* is one output (`Along`) or a vector of neighbouring outputs (`Across`); a *run* is
//! the innermost dimension in the access's direction; a *step* is one load of a group's work; the
//! *workers* of a team share a group, each with the steps of its *share*; a cube's units are *abreast*
//! where they stand across neighbouring groups.

mod cascade;
mod fold;
pub(crate) mod geometry;
mod hand_over;
pub(crate) mod merge;
pub(crate) mod one_pass;
mod read;
pub(crate) mod split;
pub(crate) mod split_once;
mod whole;
mod work;
