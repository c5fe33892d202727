//! The kernels and what they share.
//!
//! # Kernels
//!
//! - [`single_pass`]: the schedules unit, plane and cube. They differ only in the
//!   [`Team`](team::Team) that works on an output tile, which is a constant of the kernel.
//! - [`split_single_pass`]: a split whose last cube merges the partial results.
//! - [`split_two_pass`] and [`merge`]: the two launches of a split where 64-bit atomics are missing
//!   or the partial results take too much memory. [`merge`] also merges partial results of shards.
//! - [`list`]: many tensors at once, and the launch that merges their partials.
//! - [`segments`]: neighbouring elements of an axis in any numbers, and the launch that merges what
//!   lies in several tiles.
//! - [`scan`]: the results of a reduction at each of its positions, of one tensor or of many.
//! - [`application`]: a reduction whose results are applied to its own elements, in the same launch
//!   or in one of its own.
//! - [`cross_entropy`]: what concerns one element of each slice, that of its class.
//! - [`masks`]: masks that are added to scores.
//! - [`compact`]: elements that satisfy a predicate, side by side.
//! - [`nibbles`]: integers of 4 bits, two in a byte.
//! - [`top_k`]: the largest or smallest elements of each slice.
//!
//! # Glossary
//!
//! - *unit*, *plane*, *cube*: CubeCL's words for a thread, a warp or subgroup, a block or
//!   workgroup.
//! - *along*, *across*: whether neighbouring elements of the input belong to one output, or to
//!   neighbouring outputs ([`Direction`](reduce_planner::Direction)).
//! - *output tile*: what one team computes. It is one output along, and one vector of neighbouring
//!   outputs across.
//! - *team*: the units of a cube that work on one tile. Their *members* are counted from 0.
//! - *share*: the loads of a tile that one unit takes.
//! - *block*: the loads that a unit has in flight, which an operator may take together.
//! - *inner dimension*: the innermost dimension in the access's direction.
//! - *components*: the elements of a vector.
//! - *lanes*: units of a plane that exchange values.
//! - *held*: kept in registers or shared memory after it has been loaded.
//! - *peeled*: read with whole vectors in the middle and element by element at both edges.
//! - *realigned*: read in aligned vectors although rows start elsewhere; see [`realign`].
//! - *adjacent tiles*: tiles that the units of a cube read side by side.
//! - *published partials*: partial results that cubes pass to the last one of their tile.
//!
//! # From the load to the result
//!
//! [`args`] holds the arguments of a launch, [`geometry`] locates tiles, [`companion`] reads
//! tensors beside the input, and [`team`] assigns units. A [`Share`](share::Share) is what one unit
//! takes of a tile, with all that is needed to load it; a [`Reducer`](reducer::Reducer) is the
//! operator with all that its functions need. Nearly every function takes one of them or both.
//!
//! A unit's [`load`]s go into accumulators in [`accumulate`], through the tree of [`pairwise`];
//! [`combine`], [`realign`] and [`total()`](total::total) make one accumulator of a team's;
//! [`partials`] passes it between cubes, and [`target`] stores what becomes of it. Where units have
//! [`held`] all elements of a tile, they may take them twice.
//!
//! # Along and across
//!
//! An accumulator has one component along the reduction ([`Single`](crate::operator::Single)), and
//! as many as a load across outputs ([`Wide`](crate::operator::Wide)). Functions are generic over
//! that width `N`, and an entry point chooses it once, by the direction of the access. Where only
//! one of the two can arrive, a function says so with `resized`, which generates no code.

mod accumulate;
pub(crate) mod application;
pub(crate) mod args;
pub(crate) mod at_once;
pub(crate) mod cache;
mod combine;
pub(crate) mod compact;
pub(crate) mod companion;
mod conversion;
pub(crate) mod cross_entropy;
pub(crate) mod geometry;
pub(crate) mod held;
mod lanes;
pub(crate) mod list;
pub(crate) mod load;
pub(crate) mod masks;
pub(crate) mod merge;
pub(crate) mod nibbles;
pub(crate) mod pairwise;
pub(crate) mod partials;
mod realign;
mod reducer;
pub(crate) mod scan;
pub(crate) mod segments;
mod share;
pub(crate) mod single_pass;
pub(crate) mod split_single_pass;
pub(crate) mod split_two_pass;
mod target;
pub(crate) mod team;
pub(crate) mod top_k;
mod total;
