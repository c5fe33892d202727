//! The numbers of plans for segments.

use super::{Nonsense, count, power_of_two};

/// The numbers for reductions of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct SegmentsTuning {
    /// Along the axis. As many cubes as reside together begin all tiles at once.
    pub along: SegmentTiles,
    /// The same for [large](Self::large_bytes) accumulators, where cubes look back: steps in which segments end take longest
    /// where pushes and merges are long, and short tiles balance them. Of 2^26 f32 in 100,000 segments,
    /// logsumexp took 160 us in place of 171, and argmax 155 in place of 170.
    pub large_along: SegmentTiles,
    /// Across outputs. Sums of [2^20, 64] f32 in 65,536 segments took 82 us, and 94 with 256 units of 8
    /// rows.
    pub across: SegmentTiles,
    /// The same for large accumulators. Softmax of the same took 364 us, and 434 with 128 units of 16
    /// rows.
    pub large_across: SegmentTiles,
    /// Bytes from which on an accumulator is large.
    pub large_bytes: usize,
    /// Units of a cube from which on shares get shorter where shared memory is short.
    pub fewest_units: u32,
    /// Most outputs, or vectors of outputs, that a cube has side by side.
    pub side_by_side: u32,
    /// Most units of a cube that merges what lies in several tiles.
    pub merging_units: u32,
    /// Most bytes of shared memory of a cube.
    pub shared_bytes: usize,
    /// Most steps of a tile.
    pub most_steps: u32,
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
    row: along, large_along, across, large_across;
    power_of_two: fewest_units, side_by_side, merging_units, applied_units_per_cube,
        grouping_units_per_cube;
    count: large_bytes, shared_bytes, most_steps, applied_blocks, grouping_keys_per_unit,
        grouping_digit_bits, grouping_digit_bits_alone;
});

/// How long the tiles of a reduction of segments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct SegmentTiles {
    /// Most units of a cube.
    pub units_per_cube: u32,
    /// Elements of an output that a unit takes at a time.
    pub elements_per_unit: usize,
    /// Units per multiprocessor.
    pub units_per_multiprocessor: u32,
}

rules!(SegmentTiles {
    power_of_two: units_per_cube;
    count: elements_per_unit, units_per_multiprocessor;
});

impl SegmentTiles {
    const fn new(
        units_per_cube: u32,
        elements_per_unit: usize,
        units_per_multiprocessor: u32,
    ) -> Self {
        Self { units_per_cube, elements_per_unit, units_per_multiprocessor }
    }
}

impl SegmentsTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            along: SegmentTiles::new(256, 16, 768),
            large_along: SegmentTiles::new(64, 16, 1536),
            across: SegmentTiles::new(128, 16, 512),
            large_across: SegmentTiles::new(256, 8, 1024),
            large_bytes: 8,
            fewest_units: 64,
            side_by_side: 32,
            merging_units: 256,
            shared_bytes: 48 << 10,
            most_steps: 64,
            applied_units_per_cube: 128,
            applied_blocks: 4,
            grouping_units_per_cube: 256,
            grouping_keys_per_unit: 16,
            grouping_digit_bits: 8,
            grouping_digit_bits_alone: 4,
        }
    }

    /// Those for the same through Vulkan, where no cube waits and compilers keep fewer loads in
    /// registers. Sums of [2^20, 64] f32 in 65,536 segments took 290 us with the numbers of CUDA, and
    /// 162 with these; 2^26 keys of 100,000 groups 2845 us with 16 keys a unit, and 1782 with 8.
    pub(super) const fn vulkan() -> Self {
        let across = SegmentTiles::new(256, 8, 1024);
        Self { across, large_across: across, grouping_keys_per_unit: 8, ..Self::h200() }
    }
}
