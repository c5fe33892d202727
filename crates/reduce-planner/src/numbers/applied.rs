//! The numbers of plans for applied reductions.

use super::{Nonsense, count, percent, power_of_two};

/// The numbers for reductions whose results are applied to their own elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct AppliedTuning {
    /// Bytes of a tile that a unit holds along the reduction, where units are enough. It sets the
    /// units per output: the loads of the tile over the loads that a unit holds, which are these
    /// bytes over the bytes of a load, rounded up to a power of two. The estimate does not ask it.
    /// Softmax of f32 65536 × 1024 took 133.2 us with 64 bytes and 136.6 with 128, that of bf16
    /// 8192 × 8192 took 83.2, and 94.9 with 128.
    pub held_bytes_along: usize,
    /// Most bytes that a unit of a large cube holds along the reduction. A unit holds one load at
    /// least, also where a load has more bytes. More bytes leave no registers for 1024 units. Units
    /// of smaller cubes may have more loads: those of rows with edges, and of rows whose results
    /// are narrow.
    pub most_held_bytes_along: usize,
    /// Most loads among which these bytes are divided, unless one plane holds the tile. Softmax of
    /// f32 65536 × 1002 took 142 us with 4 loads of 8 bytes in each of 128 units, and 148 with 8 in
    /// 64; that of bf16 65536 × 1004 took 73 with 8 in a plane of 32, and 83 with 4 in 64.
    #[cfg_attr(feature = "serde", serde(default = "held_loads_along"))]
    pub held_loads_along: usize,
    /// Bytes of a load from which on short rows are read in whole vectors, in place of wider ones
    /// with head and tail peeled. Softmax of bf16 500001 × 100 took 65 us in vectors of 8 bytes,
    /// and 83 in peeled ones of 16; that of f32 16384 × 5002 took 177, and 205.
    #[cfg_attr(feature = "serde", serde(default = "unpeeled_load_bytes"))]
    pub unpeeled_load_bytes: usize,
    /// Most bytes of such a row. Longer ones are not measured.
    #[cfg_attr(feature = "serde", serde(default = "unpeeled_row_bytes"))]
    pub unpeeled_row_bytes: usize,
    /// Most loads of a lane that shares a row with others of its plane, or has it for itself.
    /// Softmax of f32 2000003 × 10 took 59 us with 2 loads of 8 bytes in each of 4 lanes, 71 with 3
    /// in 2, and 91 with 1 in 8; that of f32 262144 × 256 took 137.8 with 2 of 16 bytes, and 139.6
    /// with 4.
    #[cfg_attr(feature = "serde", serde(default = "short_loads"))]
    pub short_loads: usize,
    /// The same where a load has 4 bytes or less. Softmax of bf16 4000003 × 10 took 62 us with 5
    /// loads in 1 unit, 70 with 3 in each of 2 lanes, and 164 with 1 in each of 8.
    #[cfg_attr(feature = "serde", serde(default = "short_narrow_loads"))]
    pub short_narrow_loads: usize,
    /// Most units of a cube that holds a tile of two inputs along the reduction, where they can
    /// hold it. Rows of bf16 4096 × 14336 that are normalised with a weight and quantised took 67
    /// us with 256 units and 7 loads, and 105 with 512 and 4; with a residual in place of the
    /// weight 108, and 141 with 1024 and 2. Sums of bf16 8192 × 8192 that are normalised took
    /// 144.5, and 145.7 with 512 units.
    #[cfg_attr(feature = "serde", serde(default = "pair_units_per_cube"))]
    pub pair_units_per_cube: u32,
    /// Most loads of each of these units.
    #[cfg_attr(feature = "serde", serde(default = "pair_loads"))]
    pub pair_loads: usize,
    /// Most units of a cube that others should reside beside, where there are enough tiles: while
    /// some cubes write or wait, others read. Registers hold a row in no larger cube if each unit
    /// of such a one has [`beside_held_bytes`](Self::beside_held_bytes) at most. Softmax of bf16
    /// 16384 × 20480 took 541 us in cubes of 1024, and 339 in cubes of 512; layer normalisation of
    /// f32 16384 × 10240 took 514 us in cubes of 1024.
    #[cfg_attr(feature = "serde", serde(default = "beside_units_per_cube"))]
    pub beside_units_per_cube: u32,
    /// Most bytes of elements, as computed with, that a unit of such a cube holds in registers.
    /// With 192, layer normalisation of bf16 16384 × 24576 took 535 us, and 428 with the row in
    /// shared memory.
    #[cfg_attr(feature = "serde", serde(default = "beside_held_bytes"))]
    pub beside_held_bytes: usize,
    /// Rate of a cube that has no other beside it, where elements are narrower than 4 bytes, in
    /// percent of memory's. Softmax of bf16 16384 × 32768 took 674 us in registers of 1024 units,
    /// and that of f32 8192 × 32768 took 540, the rate of shorter rows.
    #[cfg_attr(feature = "serde", serde(default = "alone_narrow_rate_percent"))]
    pub alone_narrow_rate_percent: u32,
    /// Bytes of a tile that a unit holds across outputs, where units are enough. Softmax of f32
    /// 64 × 512 × 1024 over axis 1 took 71.6 us with 128 bytes, 72.1 with 256 and 87.6 with 64.
    pub held_bytes_across: usize,
    /// Most bytes that a unit holds across outputs. Not measured.
    pub most_held_bytes_across: usize,
    /// Fewest bytes that adjacent units read side by side: across outputs, units of adjacent tiles;
    /// along the reduction, units of one tile. There it is also the lower bound of the units per
    /// output of a tile that registers hold, unless the tile has fewer loads or is short.
    pub segment_bytes: usize,
    /// Units of a cube in which units work for themselves. Not measured.
    pub independent_units_per_cube: u32,
    /// Units of a cube in which the lanes of a plane share tiles, or as many units through shared
    /// memory, which was not timed. An RMS norm of bf16 65,536 × 1024 took 67.0 us on one H200 with
    /// 64, 68.3 with 128 and 68.1 with 256; softmax of f32 131,072 × 512 took 129.2, 130.7 and
    /// 130.7. Of rows of 1 KiB and less, both take as long. Rows with edges do without it: bf16
    /// 71,495 × 575 took 45.0 with 64, and 44.5 with 128.
    #[cfg_attr(feature = "serde", serde(default = "plane_units_per_cube"))]
    pub plane_units_per_cube: u32,
    /// Most units of a cube that holds its tiles across outputs. Not measured.
    pub across_units_per_cube: u32,
    /// Bytes that each unit has in flight where the rest of a tile goes to shared memory. Not
    /// measured.
    pub shared_bytes_in_flight: usize,
    /// Rate of plans that hold tiles in shared memory, in percent of memory's. Cubes that have a
    /// multiprocessor for themselves do not read while they write. Softmax of f32 4096 × 50257
    /// took 537 us, and 501 with tiles read again; that of bf16 8192 × 128256 took 1249 us,
    /// and 1498.
    pub shared_rate_percent: u32,
    /// Fewest units of a cube that holds a row in shared memory, if several such cubes reside on a
    /// multiprocessor. Softmax of bf16 16384 × 32000 took 566 us with 256 units, 581 with 512, 602
    /// with 128, and 688 in registers.
    #[cfg_attr(feature = "serde", serde(default = "shared_units_per_cube"))]
    pub shared_units_per_cube: u32,
    /// Rate of plans with such cubes, in percent of memory's.
    #[cfg_attr(feature = "serde", serde(default = "shared_beside_rate_percent"))]
    pub shared_beside_rate_percent: u32,
    /// Whether cubes that share a tile may wait for each other, and cubes that reduce segments for
    /// those of earlier tiles. Without it, no plan has such cubes, even where the device keeps the
    /// promise that this takes ([`Device::forward_progress`]).
    ///
    /// [`Device::forward_progress`]: crate::Device::forward_progress
    #[cfg_attr(feature = "serde", serde(default = "cubes_wait"))]
    pub cubes_wait: bool,
    /// Bytes that each unit has in flight where several cubes share a tile, and holds in
    /// registers; one more load if fewer places stay empty. Softmax of f32 4096 × 50257 took
    /// 480 us with 4 loads and 12 in shared memory, 440 with 5 and 10, 582 with 8 and none;
    /// that of bf16 8192 × 128256 took 1212 us with 4 and 12, 1322 with 2 and 14, and 1980
    /// with 8 and none.
    pub by_cubes_bytes_in_flight: usize,
    /// Units of each of these cubes along the reduction. The two took 482 and 1212 us with 128,
    /// 495 and 1240 with 64, 493 and 1284 with 256, 528 and 1284 with 512.
    pub by_cubes_units_per_cube: u32,
    /// Units among which the shared memory of a multiprocessor is divided. Not measured.
    pub by_cubes_units_per_multiprocessor: u32,
    /// Cubes per multiprocessor below which more share a tile. Softmax of f32 4096 × 1024 over
    /// axis 0 took 16.8 us in 16 cubes per tile, and 30.4 in 33.
    pub by_cubes_per_multiprocessor: u32,
    /// Most bytes of partials that they publish, and that cubes which reduce segments do. The bytes
    /// stay allocated between calls. Not measured.
    pub published_bytes: u64,
    /// Rate of such plans, in percent of memory's. A batch normalisation of f32 64 × 256 × 56 × 56
    /// took 150 us, and 163 with tiles read again.
    pub by_cubes_rate_percent: u32,
    /// The rate of such plans where elements are narrower than 4 bytes and the accumulator has
    /// many fields, which cubes for themselves take in two passes: layer normalisation of bf16
    /// 8192 × 128256 took 1827 us, and 1686 with tiles in shared memory.
    pub by_cubes_narrow_rate_percent: u32,
    /// Bytes that each unit has in flight where tiles are read again: 4096 rows of 50257 f32 took
    /// 504 us with 128 bytes and 611 with 64.
    pub read_again_bytes_in_flight: usize,
    /// Units of a cube that reads a tile again. Not measured.
    pub read_again_units_per_cube: u32,
    /// Share of the cache that tiles may take if they are read again, in percent. Not measured.
    pub cached_percent: u32,
    /// Time of reading a byte again from the cache, in percent of that from memory. Not measured.
    pub cached_read_percent: u32,
    /// Units of a cube that applies results which an earlier launch made. Not measured.
    pub apply_units_per_cube: u32,
    /// Loads that such a unit has in flight. Not measured.
    pub apply_loads_in_flight: usize,
}

rules!(AppliedTuning {
    power_of_two: held_bytes_along, most_held_bytes_along, pair_units_per_cube,
        beside_units_per_cube, held_bytes_across, most_held_bytes_across, segment_bytes,
        independent_units_per_cube, plane_units_per_cube, across_units_per_cube,
        shared_bytes_in_flight,
        shared_units_per_cube, by_cubes_bytes_in_flight, by_cubes_units_per_cube,
        by_cubes_units_per_multiprocessor, read_again_bytes_in_flight, read_again_units_per_cube,
        apply_units_per_cube, apply_loads_in_flight;
    count: held_loads_along, unpeeled_load_bytes, unpeeled_row_bytes, short_loads,
        short_narrow_loads, pair_loads, beside_held_bytes, by_cubes_per_multiprocessor;
    percent: alone_narrow_rate_percent, shared_rate_percent, shared_beside_rate_percent,
        by_cubes_rate_percent, by_cubes_narrow_rate_percent, cached_percent, cached_read_percent;
    any: cubes_wait, published_bytes;
});

/// The value of a tuning that was written before there was this field.
#[cfg(feature = "serde")]
const fn cubes_wait() -> bool {
    true
}

/// The same.
#[cfg(feature = "serde")]
const fn plane_units_per_cube() -> u32 {
    AppliedTuning::h200().plane_units_per_cube
}

/// The same.
#[cfg(feature = "serde")]
const fn pair_units_per_cube() -> u32 {
    AppliedTuning::h200().pair_units_per_cube
}

/// The same.
#[cfg(feature = "serde")]
const fn pair_loads() -> usize {
    AppliedTuning::h200().pair_loads
}

/// The same.
#[cfg(feature = "serde")]
const fn beside_units_per_cube() -> u32 {
    AppliedTuning::h200().beside_units_per_cube
}

/// The same.
#[cfg(feature = "serde")]
const fn beside_held_bytes() -> usize {
    AppliedTuning::h200().beside_held_bytes
}

/// The same.
#[cfg(feature = "serde")]
const fn alone_narrow_rate_percent() -> u32 {
    AppliedTuning::h200().alone_narrow_rate_percent
}

/// The same.
#[cfg(feature = "serde")]
const fn shared_units_per_cube() -> u32 {
    AppliedTuning::h200().shared_units_per_cube
}

/// The same.
#[cfg(feature = "serde")]
const fn shared_beside_rate_percent() -> u32 {
    AppliedTuning::h200().shared_beside_rate_percent
}

/// The same.
#[cfg(feature = "serde")]
const fn short_loads() -> usize {
    AppliedTuning::h200().short_loads
}

/// The same.
#[cfg(feature = "serde")]
const fn short_narrow_loads() -> usize {
    AppliedTuning::h200().short_narrow_loads
}

/// The same.
#[cfg(feature = "serde")]
const fn held_loads_along() -> usize {
    AppliedTuning::h200().held_loads_along
}

/// The same.
#[cfg(feature = "serde")]
const fn unpeeled_load_bytes() -> usize {
    AppliedTuning::h200().unpeeled_load_bytes
}

/// The same.
#[cfg(feature = "serde")]
const fn unpeeled_row_bytes() -> usize {
    AppliedTuning::h200().unpeeled_row_bytes
}

impl AppliedTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            held_bytes_along: 64,
            most_held_bytes_along: 128,
            held_loads_along: 5,
            unpeeled_load_bytes: 8,
            unpeeled_row_bytes: 1 << 15,
            short_loads: 2,
            short_narrow_loads: 5,
            pair_units_per_cube: 256,
            pair_loads: 8,
            beside_units_per_cube: 512,
            beside_held_bytes: 160,
            alone_narrow_rate_percent: 76,
            held_bytes_across: 128,
            most_held_bytes_across: 256,
            segment_bytes: 128,
            independent_units_per_cube: 128,
            plane_units_per_cube: 64,
            across_units_per_cube: 512,
            shared_bytes_in_flight: 64,
            shared_rate_percent: 80,
            shared_units_per_cube: 256,
            shared_beside_rate_percent: 92,
            cubes_wait: true,
            by_cubes_bytes_in_flight: 64,
            by_cubes_units_per_cube: 128,
            by_cubes_units_per_multiprocessor: 1024,
            by_cubes_per_multiprocessor: 2,
            published_bytes: 1 << 24,
            by_cubes_rate_percent: 90,
            by_cubes_narrow_rate_percent: 78,
            read_again_bytes_in_flight: 128,
            read_again_units_per_cube: 1024,
            cached_percent: 60,
            cached_read_percent: 35,
            apply_units_per_cube: 256,
            apply_loads_in_flight: 4,
        }
    }
}
