//! The constants that decisions rest on. Each carries what it was measured with; docs/TUNING.md
//! tells how to measure again.

/// Independent loads that a unit has in flight before it uses the first.
pub const LOADS_IN_FLIGHT: usize = 4;

/// A run that starts or ends off a vector's boundary is read in vectors from this many vectors on;
/// shorter runs take the widest vector that divides them.
pub const RAGGED_RUN_MIN: usize = 8;

/// Units of a cube in which each unit or plane works for itself.
pub const INDEPENDENT_UNITS: u32 = 256;

/// Most units of a cube that works on one output together.
pub const COOPERATING_UNITS: u32 = 512;

/// Bytes that neighbouring units should read side by side, where units stand across outputs.
pub const ACROSS_SEGMENT_BYTES: usize = 128;

/// Cubes per multiprocessor below which work is spread over more, smaller cubes.
pub const CUBES_PER_MULTIPROCESSOR: u32 = 4;

/// Most units of the cube that merges the partial results of a split.
pub const MERGE_UNITS: u32 = 256;

/// Nanoseconds that starting and ending one cube takes of its multiprocessor's slot.
pub const CUBE_NS: f64 = 700.0;

/// Nanoseconds of one step of a combination through shared memory, its barrier included.
pub const SHARED_STEP_NS: f64 = 60.0;
