//! The constants that decisions rest on. Each carries what it was measured with; docs/TUNING.md
//! tells how to measure again.
//!
//! Where no device is named, it is one H200 through CUDA 13.0, f32 sums, cold L2, median of 9, on
//! 2026-11-21.

/// Bytes that a unit has in flight before it uses the first, along the reduction.
///
/// 8192 × 8192 along axis 1 with a plane per row: 67.7 us with 2 loads of 16 bytes, 63.3 with 4, 66.2
/// with 8. A cube of 256 per row hides it better: 62.6, 62.5 and 61.9.
pub const BYTES_IN_FLIGHT_ALONG: usize = 64;

/// The same across outputs, where fewer units reside. 16 × 32 × 64 × 32 × 64 over axes 1, 3 in cubes of
/// 8 × 32 units: 64.8 us with 4 loads of 16 bytes, 63.3 with 8. 65536 × 64 × 7 along axis 1, loads of
/// 4 bytes: 42.5 us with 4, 39.4 with 16.
pub const BYTES_IN_FLIGHT_ACROSS: usize = 128;

/// Bytes in flight along the reduction for accumulators of more than two fields: pushes take long enough to
/// leave loads waiting. var of 65536 × 1024 along axis 1: 74.2 us with 64 bytes, 69.1 with 128; along axis
/// 0, where each lane has an accumulator: 72.2 and 85.9.
pub const BYTES_IN_FLIGHT_HEAVY: usize = 128;

/// Elements in flight for such accumulators. var of 8192 × 8192 bf16 along axis 1 with 32: 51.3 us.
pub const ELEMENTS_IN_FLIGHT_HEAVY: usize = 32;

/// Bytes in flight where elements pass an exponential, across outputs and for groups of lanes. logsumexp of
/// 65536 × 1024 along axis 1, 8 lanes a row: 68.0 us with 32 bytes, over 70 with 64; along axis 0: 68.9 and
/// 95.7. Cubes take more: 4096 × 50257 along axis 1 took 217.7 us with 32, 198.4 with 64.
pub const BYTES_IN_FLIGHT_TRANSCENDENTAL: usize = 32;

/// Most outputs that a team has in flight together, where each is short. Not measured apart.
pub const OUTPUTS_IN_FLIGHT: usize = 8;

/// The same for accumulators of several fields, which hold registers. Not measured apart.
pub const OUTPUTS_IN_FLIGHT_HEAVY: usize = 2;

/// A run that starts or ends off a vector's boundary is read in vectors from this many of the widest on;
/// shorter runs take the widest vector that divides them. 2^20 rows of 63 in vectors of 4: 68.7 us, 97 %
/// of the floor; 2^21 rows of 31 in vectors of 2: 108 us, 62 %.
pub const RAGGED_RUN_MIN: usize = 8;

/// Units of a cube in which each unit or plane works for itself. 8192 × 8192 along axis 1, a plane
/// per row: 63.3 us with 256, 63.1 with 128.
pub const INDEPENDENT_UNITS: u32 = 256;

/// The same for accumulators of several fields. var of 65536 × 1024 along axis 1: 74.1 us with 256, 69.1 with
/// 128; argmax: 65.4 and 65.1.
pub const INDEPENDENT_UNITS_HEAVY: u32 = 128;

/// Most units of a cube that works on one output together. 64 × 256 × 56 × 56 over axes 0, 2, 3:
/// 51.6 us with 256, 49.7 with 512, 49.9 with 1024.
pub const COOPERATING_UNITS: u32 = 512;

/// The same for accumulators of more than two fields. var of 65536 × 1024 along axis 0: 102.8 us with 512,
/// 77.4 with 256.
pub const COOPERATING_UNITS_HEAVY: u32 = 256;

/// Units of a cube that stands across outputs that fill the device. 16 × 32 × 64 × 32 × 64 over axes
/// 1, 3: 63.3 us with 256, 66.6 with 512; over axes 2, 3: 63.2 with 256, 67.0 with 512.
pub const ACROSS_UNITS: u32 = 256;

/// Fewest units per vector of outputs in such a cube. 256 × 2^18 along axis 0: 64.0 us with 8.
pub const ACROSS_WORKERS: u64 = 8;

/// Bytes that neighbouring units should read side by side, where units stand across outputs.
/// 65536 × 1024 along axis 0 in 12 cubes of 64 × 8 units per output: 64.8 us with 128 bytes; in cubes of
/// 16 × 32 units 68.7 with 512.
pub const ACROSS_SEGMENT_BYTES: usize = 128;

/// The same where rows start off a vector's boundary, so that each segment shares a memory sector with the
/// next. 2^18 × 255 along axis 0 in cubes of 1024 units: 75.3 us with 256 bytes, 75.1 with 512.
pub const UNALIGNED_SEGMENT_BYTES: usize = 256;

/// Partial results of one block of outputs up to which a split has its usual cubes; the last cube merges
/// more for too long. 2^21 × 32 along axis 0: 76.5 us with 396 cubes of 512 units (12672 partial
/// results), 69.1 with 132 of 1024 (4224).
pub const PARTIALS_PER_BLOCK: u64 = 4096;

/// Loads that each lane of a group should have. 2^20 rows of 32: 50.2 us with a load for each of 8
/// lanes, 35.9 with two for each of 4. 2^19 rows of 128: 97.8 us with one, 65.5 with two, 65.6 with four.
pub const LOADS_PER_LANE: u64 = 2;

/// The same for accumulators of two fields, which take longer to merge. argmax of 65536 × 1024 along axis
/// 1: 65.6 us with 8, 65.1 with 16, 65.7 with 32.
pub const LOADS_PER_LANE_MEDIUM: u64 = 16;

/// The same for more fields. var of 65536 × 1024 along axis 1: 100.8 us with 8, 69.6 with 16, 69.1 with 32.
pub const LOADS_PER_LANE_HEAVY: u64 = 32;

/// Cubes per multiprocessor that must remain where a team takes several outputs at a time. Not measured.
pub const CUBES_PER_MULTIPROCESSOR: u32 = 16;

/// Cubes per multiprocessor that a unit per output aims at. 256 × 2^18 along axis 0: 68.0 us with 1024
/// cubes of 64 units, 64.2 with 2048 of 32.
pub const UNIT_CUBES_PER_MULTIPROCESSOR: u32 = 12;

/// Cubes per multiprocessor that a split aims at: as many as reside at a time with the registers
/// that four loads in flight take. 2^28 elements in cubes of 512: 244.1 us with 2 per
/// multiprocessor, 241.3 with 3, 250.9 with 4, of which one waits for the others.
pub const SPLIT_CUBES_PER_MULTIPROCESSOR: u32 = 3;

/// Most bytes through which the cubes of a split hand their partial results to the last one; beyond,
/// a second launch merges. They stay allocated between calls. Not measured.
pub const HAND_OVER_BYTES: u64 = 1 << 20;

/// Nanoseconds from the last partial result to the first use of it by the last cube. An estimate that
/// decides between a cube per output and a split of little data.
pub const HAND_OVER_NS: f64 = 2500.0;

/// Most units of the cube that merges the partial results of a split. Not measured apart: the merge
/// reads a few KiB.
pub const MERGE_UNITS: u32 = 256;

/// Nanoseconds that starting and ending one cube takes of its multiprocessor's slot: 2^24 rows of 8
/// in cubes of 32 units took 321.5 us for 2^20 cubes on 132 × 64 slots.
pub const CUBE_NS: f64 = 700.0;

/// Nanoseconds of one step of a combination through shared memory, its barrier included: an
/// estimate that only breaks ties.
pub const SHARED_STEP_NS: f64 = 60.0;

/// Share of the bandwidth that remains where a team reads segments of at least so many bytes at a
/// time. 8192 × 8192 bf16 along axis 1: 37.2 us with a plane per row (512 bytes), 33.2 with 256 units. The
/// shorter segments follow the 32 bytes of a memory sector.
pub const SEGMENT_EFFICIENCY: [(usize, f64); 5] =
    [(2048, 1.0), (128, 0.98), (64, 0.85), (32, 0.7), (16, 0.35)];

/// Runs up to this many bytes are read whole by one unit: the rest of a line is in cache when the
/// next load comes. 2^24 rows of 32 bytes: 140.4 us with a unit per row, 163.0 with two lanes; 2^20
/// rows of 128 bytes: 45.0 us with a unit per row, 41.8 with eight lanes.
pub const CACHED_RUN_BYTES: usize = 64;

/// Share of the bandwidth that remains where a unit reads a longer run, up to a line, by itself. 2^20
/// rows of 32: 45.2 us with a unit per row, 35.9 with four lanes.
pub const LONE_UNIT_EFFICIENCY: f64 = 0.75;

/// Cubes per multiprocessor that draw the whole bandwidth. 50257 × 4096 along axis 0: 214.0 us with 128
/// cubes on 132 multiprocessors, 191.9 split into 384; 8192 × 8192 bf16: 36.2 and 39.4.
pub const CUBES_FOR_BANDWIDTH: f64 = 1.0;

/// Share of the bandwidth that remains where a cube gives each output no more units than a plane has. logsumexp of 65536 × 1024 along
/// axis 1: 78.5 us with 32 units of a cube per row, 68.0 with 8 lanes of a plane; argmax: 68.2 and 65.1 with
/// 16; var: 80.0 and 69.1 with 8.
pub const CUBE_OF_ONE_PLANE_EFFICIENCY: f64 = 0.9;
