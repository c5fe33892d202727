//! The numbers of plans for segments.

use super::{Nonsense, count, power_of_two};

/// The numbers for reductions of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct SegmentsTuning {
    /// Most units of a cube along the axis.
    pub units_per_cube: u32,
    /// The same across outputs. Sums of [2^20, 64] f32 in 65,536 segments took 84 us with 128 units of
    /// 16 rows, and 94 with 256 units of 8 rows.
    pub units_per_cube_across: u32,
    /// Bytes of an accumulator from which on cubes that look back have `large_units_per_cube` units, and
    /// there are more of them than reside together: steps in which segments end take longest where
    /// pushes and merges are long, and short tiles balance them. Of 2^26 f32 in 100,000 segments,
    /// logsumexp took 160 us in place of 171, and argmax 155 in place of 170.
    pub large_bytes: usize,
    /// Most units of such a cube.
    pub large_units_per_cube: u32,
    /// Units of a cube from which on shares get shorter where shared memory is short.
    pub fewest_units: u32,
    /// Most outputs, or vectors of outputs, that a cube has side by side.
    pub side_by_side: u32,
    /// Most units of a cube that merges what lies in several tiles.
    pub merging_units: u32,
    /// Elements that a unit takes at a time along the axis.
    pub elements_per_unit: usize,
    /// Elements of each output that it takes at a time across outputs.
    pub rows_per_unit: usize,
    /// Most bytes of shared memory of a cube.
    pub shared_bytes: usize,
    /// Most steps of a tile.
    pub most_steps: u32,
    /// Units per multiprocessor along the axis: those that reside together, so that all tiles begin
    /// at once.
    pub units_along: u32,
    /// The same for cubes that look back and have large accumulators.
    pub large_units_along: u32,
    /// The same across outputs.
    pub units_across: u32,
    /// Most units of a cube that applies results. Softmax of 2^26 f32 in 100,000 segments took 325 us
    /// with 128 units, 334 with 256 and 351 with 512.
    pub applied_units_per_cube: u32,
    /// Blocks of loads of a cube that applies results. More of them leave fewer cubes, each of which
    /// searches for the segments of its elements: 372 us with 1 block of 256 units, 334 with 4 and 360
    /// with 16.
    pub applied_blocks: u32,
    /// Most units of a cube that groups keys.
    pub grouping_units_per_cube: u32,
    /// Keys of such a unit.
    pub grouping_keys_per_unit: u32,
    /// Most bits of a digit that planes count.
    pub grouping_digit_bits: u32,
    /// The same where each unit counts for itself, and has counts of its own in shared memory.
    pub grouping_digit_bits_alone: u32,
}

rules!(SegmentsTuning {
    power_of_two: units_per_cube, units_per_cube_across, large_units_per_cube, fewest_units,
        side_by_side, merging_units, applied_units_per_cube, grouping_units_per_cube;
    count: large_bytes, elements_per_unit, rows_per_unit, shared_bytes, most_steps, units_along,
        large_units_along, units_across,
        applied_blocks, grouping_keys_per_unit, grouping_digit_bits, grouping_digit_bits_alone;
});

impl SegmentsTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            units_per_cube: 256,
            units_per_cube_across: 128,
            large_bytes: 8,
            large_units_per_cube: 64,
            fewest_units: 64,
            side_by_side: 32,
            merging_units: 256,
            elements_per_unit: 16,
            rows_per_unit: 16,
            shared_bytes: 48 << 10,
            most_steps: 64,
            units_along: 768,
            large_units_along: 1536,
            units_across: 512,
            applied_units_per_cube: 128,
            applied_blocks: 4,
            grouping_units_per_cube: 256,
            grouping_keys_per_unit: 16,
            grouping_digit_bits: 8,
            grouping_digit_bits_alone: 4,
        }
    }
}
