//! The numbers of plans for selections.

use super::{Nonsense, count, power_of_two};

/// The numbers for the selection of a few elements of each slice. Those that a measurement stands
/// beside are from a trial in CUDA C++ that CubeCL's kernels follow; the kernels themselves have
/// not been measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct TopKTuning {
    /// Most units of a cube.
    pub units_per_cube: u32,
    /// Fewest units of a slice.
    pub least_units: u32,
    /// Entries of a buffer that holds no more than `k` needs. The trial took 48 us for 64 of each
    /// of 256 rows of 131072 f32 with 2048.
    pub buffer: u32,
    /// Entries that a unit takes when a buffer is cut.
    pub entries_per_unit: u32,
    /// Bytes that a unit has in flight. The trial had 64 and 128.
    pub bytes_in_flight: usize,
    /// Slices of a cube that are read side by side.
    pub adjacent_slices: u32,
    /// Elements of a slice up to which entries are counted by digits of 4 bits.
    pub few_elements: u32,
    /// Elements that a unit holds of a slice in registers.
    pub held_elements: u32,
    /// Most units that hold a slice in registers.
    pub held_units: u32,
    /// Most units of a cube whose units hold slices in registers.
    pub held_cube_units: u32,
    /// Cubes per multiprocessor that slices are split for.
    pub cubes_per_multiprocessor: u32,
    /// Fewest rounds of loads of a cube that shares a slice with others.
    pub least_rounds: u32,
}

rules!(TopKTuning {
    power_of_two: units_per_cube, least_units, buffer, entries_per_unit, adjacent_slices,
        held_elements, held_units, held_cube_units;
    count: bytes_in_flight, few_elements, cubes_per_multiprocessor, least_rounds;
});

impl TopKTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            units_per_cube: 512,
            least_units: 16,
            buffer: 2048,
            entries_per_unit: 4,
            bytes_in_flight: 64,
            adjacent_slices: 32,
            few_elements: 256,
            held_elements: 16,
            held_units: 64,
            held_cube_units: 256,
            cubes_per_multiprocessor: 2,
            least_rounds: 4,
        }
    }
}
