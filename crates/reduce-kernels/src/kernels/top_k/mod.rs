//! The first elements of each slice in an order of values: its `k` largest or smallest.
//!
//! A team reads a slice once. Each element becomes an [`entry`]: the words of its [`keys`], then
//! those of its position ([`offer`]). Entries are compared as one long number, and no two are
//! equal, so the result depends neither on the order in which units append nor on how elements are
//! dealt to them.
//!
//! - [`buffered`]: what is not behind a threshold waits in a [`buffer`] in shared memory. When it
//!   is full, a [`cut`] leaves its first `k` entries and raises the threshold to the last of them,
//!   so nearly every further element of random data is refused by one comparison. At the end, the
//!   `k` entries are put in order ([`sort`]). Several cubes may share a slice: each leaves its
//!   first `k` entries in memory, and a second launch reads those in place of elements.
//! - [`registers`]: a few units hold a short slice, and no buffer is ever cut.
//! - [`window`]: of few elements with given numbers, a cube counts what lies around each.
//! - [`runs`]: sorted runs in memory, for more elements than a buffer holds.
//!
//! [`mask`] compares each element of the input with the last entry of its slice.
//!
//! Each of them may write [`probabilities`] in place of values.

mod buffer;
pub(crate) mod buffered;
pub(crate) mod candidates;
mod cut;
mod entry;
mod fixed;
pub(crate) mod interpolate;
mod keys;
pub(crate) mod mask;
mod offer;
mod one_per_slice;
pub(crate) mod places;
mod probabilities;
pub(crate) mod registers;
pub(crate) mod runs;
pub(crate) mod selected;
pub(crate) mod selection;
mod selector;
mod sort;
mod undecided;
pub(crate) mod window;
