//! The numbers of plans for selections.

use super::{Nonsense, count, power_of_two};

/// The numbers for the selection of a few elements of each slice. The measurements beside them are
/// of one H100 on 2026-11-25, in CUDA, of kernels that changed between them: times that one
/// sentence compares are of the same kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct TopKTuning {
    /// Most units of a cube.
    pub units_per_cube: u32,
    /// Fewest units of a slice.
    pub least_units: u32,
    /// Units of all slices for each multiprocessor: where there are many slices, each has fewer. 50
    /// of each of 512 rows of 128256 f32 took 113 us with 512 units for each and 131 with 256, and
    /// the 100th value of each of 4096 rows of 8192 took 117 with 128 and 158 with 256.
    pub units_per_multiprocessor: u32,
    /// Fewest units of a slice that has work for them.
    pub usual_units: u32,
    /// Entries of a buffer that holds no more than `k` needs. 64 of each of 256 rows of 131072 f32
    /// took 61 us with 512, 67 with 1024 and 73 with 2048, 50 of each of 512 rows of 128256 took
    /// 113 with 512 and 121 with 1024, and the 100th value of each of 4096 rows of 8192 took 96
    /// with 512 and 117 with 1024.
    pub buffer: u32,
    /// The same of a row that several cubes share, whose second launch selects among what they
    /// leave. 100 of 2^28 f32 took 457 us with 1024, 458 with 2048 and 513 with 512.
    pub shared_buffer: u32,
    /// Entries that a unit takes when a buffer is cut.
    pub entries_per_unit: u32,
    /// Bytes that a unit has in flight. 64 of each of 256 rows of 131072 f32 took 62 us with 64 and
    /// 68 with 128 and 512 units, and 59 with 128 and 256 units.
    pub bytes_in_flight: usize,
    /// Most elements that a unit offers at a time. 32 make code and registers of a selection of
    /// bf16 so many that it took 153 us where that of f32, with 16, took 87.
    pub offered: usize,
    /// Slices of a cube that are read side by side. 32 of each of 1024 columns of 65536 f32 took
    /// 281 us with 8, 32 units for each and 8 loads in flight, 312 with 16, and 411 with 16, 16
    /// units and 16 loads.
    pub adjacent_slices: u32,
    /// Units of each of them.
    pub adjacent_units: u32,
    /// Loads of a unit in flight there.
    pub adjacent_loads: u32,
    /// Elements of a slice up to which entries are counted by digits of 4 bits.
    pub few_elements: u32,
    /// Elements that a unit holds of a slice in registers, if there are not too many. 8 of each of
    /// 65536 rows of 128 f32 took 28 us with 8, 50 with 16 and 44 with 4.
    pub held_elements: u32,
    /// Most elements that it holds. 8 of each of 65536 rows of 1024 f32 took 130 us with 32
    /// elements in each of 32 units, and 152 with 16 in each of 64.
    pub most_held_elements: u32,
    /// Most units that hold a slice in registers.
    pub held_units: u32,
    /// Most units of a cube that works on several rows. 8 of each of 65536 rows of 128 took 28 us
    /// with 128 units and 29 with 256, those of 1024 took 130 and 125, and the 100th value of each
    /// of 4096 rows of 8192 took 109 with one row of 128 units and 159 with four.
    pub together_units: u32,
    /// Fewest elements of a row in which a few given numbers are found by windows.
    pub least_window: u32,
    /// Elements of the row for each unit then.
    pub window_elements: u32,
    /// Words of keys that such a unit has in flight.
    pub window_words: u32,
    /// Most words of keys of a row that a cache holds, so that reading it again costs little.
    pub cached_words: u32,
    /// Windows are sooner done with such a row than a buffer if they find the last of more than one
    /// of so many elements.
    pub window_fraction: u32,
    /// Fewest entries of the buffer that holds a last window.
    pub window_buffer: u32,
    /// Cubes of the most units per multiprocessor that slices are split for; more of smaller ones.
    pub cubes_per_multiprocessor: u32,
    /// Fewest rounds of loads of a cube that shares a slice with others.
    pub least_rounds: u32,
}

rules!(TopKTuning {
    power_of_two: units_per_cube, least_units, usual_units, buffer, shared_buffer, entries_per_unit, adjacent_slices, adjacent_units,
        held_elements, most_held_elements, held_units, together_units, window_buffer;
    count: units_per_multiprocessor, bytes_in_flight, offered, adjacent_loads, few_elements, least_window, window_elements, window_words, cached_words, window_fraction, cubes_per_multiprocessor, least_rounds;
});

impl TopKTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            units_per_cube: 512,
            least_units: 16,
            units_per_multiprocessor: 2048,
            usual_units: 128,
            buffer: 512,
            shared_buffer: 1024,
            entries_per_unit: 4,
            bytes_in_flight: 64,
            offered: 16,
            adjacent_slices: 8,
            adjacent_units: 32,
            adjacent_loads: 8,
            few_elements: 256,
            held_elements: 8,
            most_held_elements: 32,
            held_units: 32,
            together_units: 128,
            least_window: 1024,
            window_elements: 64,
            window_words: 16,
            cached_words: 32768,
            window_fraction: 128,
            window_buffer: 256,
            cubes_per_multiprocessor: 2,
            least_rounds: 4,
        }
    }
}
