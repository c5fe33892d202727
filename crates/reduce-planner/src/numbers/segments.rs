//! The numbers of plans for segments.

use super::{Nonsense, count, power_of_two};

/// The numbers for reductions of segments. They come from a trial in CUDA C++ that is not in this
/// repository, and have not been measured with the kernels of this library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct SegmentsTuning {
    /// Most units of a cube.
    pub units_per_cube: u32,
    /// Most outputs, or vectors of outputs, that a cube has side by side.
    pub side_by_side: u32,
    /// Most units of a cube that merges what lies in several tiles.
    pub merging_units: u32,
    /// Bytes that a unit has in flight.
    pub bytes_in_flight: usize,
    /// Most cubes per multiprocessor.
    pub cubes_per_multiprocessor: u32,
}

rules!(SegmentsTuning {
    power_of_two: units_per_cube, side_by_side, merging_units;
    count: bytes_in_flight, cubes_per_multiprocessor;
});

impl SegmentsTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            units_per_cube: 256,
            side_by_side: 32,
            merging_units: 64,
            bytes_in_flight: 64,
            cubes_per_multiprocessor: 16,
        }
    }
}
