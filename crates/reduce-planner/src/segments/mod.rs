//! Plans for reductions of segments, neighbouring elements of an axis in any numbers.
//!
//! Units take equal shares of the axis and not of the segments, because only the device knows how
//! long those are: one may have all elements, and others none. What a share has of a segment that
//! goes on elsewhere is merged in the order of the shares, first in a cube and then by the cube in whose
//! tile the segment ends, or in a second launch. The floor is one read of the input and of the offsets.

mod choose;
mod grouping;
mod plan;

pub use choose::choose_segments;
pub use grouping::{Digit, GroupingPlan};
pub use plan::{SegmentsMerge, SegmentsPlan};
