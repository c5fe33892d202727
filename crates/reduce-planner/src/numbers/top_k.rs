//! The numbers of plans for selections.

use super::{Nonsense, count, power_of_two};

/// The numbers for the selection of a few elements of each slice. The measurements beside them are
/// of H100s on 2026-11-25 and 2026-11-27, in CUDA, of kernels that changed between them: times that one
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
    /// of each of 512 rows of 128256 f32 took 113 us with 512 units for each and 131 with 256.
    pub units_per_multiprocessor: u32,
    /// Fewest units of a slice that has work for them. 64 of each of 8192 rows of 4096 f32 took 140
    /// us with 128 units and 128 with 64, and 200 of each of 16384 rows of 2000 took 563 and 498.
    pub usual_units: u32,
    /// Entries of a buffer that holds no more than `k` needs, and the least `k` for which it holds
    /// no more than twice as many. 64 of each of 256 rows of 131072 f32 took 61 us with 512, 67
    /// with 1024 and 73 with 2048. The fourth value of each of 4096 rows of 8192 took 58 with 128,
    /// 69 with 256 and 81 with 512. 200 of each of 16384 rows of 2000 took 447 with 512 and 500 with
    /// 1024, and 1000 of each of 1000 rows of 5000 took 120 with 2048 and 132 with 4096.
    pub buffer: u32,
    /// The same of a row that several cubes share, whose second launch selects among what they
    /// leave. 100 of 2^28 f32 took 457 us with 1024, 458 with 2048 and 513 with 512.
    pub shared_buffer: u32,
    /// Entries that a unit takes when a buffer is cut. 100 of each of 16384 rows of 512 f32 took 134
    /// us with 32 units for each row and 178 with 64.
    pub entries_per_unit: u32,
    /// Entries of a run for each unit that sorts it.
    pub entries_of_run: u32,
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
    /// Entries of a unit from which a cube of all units has half of them, because registers have no
    /// room for two such cubes: 1024 of each of 256 rows of 131072 f32 took 104 us with 256 units
    /// and a buffer of 4096, 108 with 256 and 2048, and 128 with 512 and either. More entries than
    /// these are counted by digits of 8 bits. 64 of each of 256 rows of 131072 took 57 us with
    /// digits of 4 bits and 63 with 8, where a unit has one entry; 64 of each of 8192 rows of 4096
    /// took 117 and 130 where it has four; 200 of each of 16384 rows of 2000 took 593 and 563 where
    /// it has eight.
    pub several_entries: u32,
    /// Most units that have twice the loads in flight, if they have no more entries. 64 of each of
    /// 8192 rows of 4096 took 101 us with 8 loads and 117 with 4, 64 units for each row. With 512
    /// units, those of 256 rows of 131072 took 65 and 57.
    pub most_loading_units: u32,
    /// Elements that a unit holds of a slice in registers, if there are not too many. 8 of each of
    /// 65536 rows of 128 f32 took 28 us with 8, 50 with 16 and 44 with 4.
    pub held_elements: u32,
    /// Most elements that it holds. 8 of each of 65536 rows of 1024 f32 took 130 us with 32
    /// elements in each of 32 units, and 152 with 16 in each of 64.
    pub most_held_elements: u32,
    /// Most units that hold a slice in registers, if its elements decide that.
    pub held_units: u32,
    /// Most units that hold it if `k` does. 32 of each of 65536 rows of 1024 took 177 us with 64
    /// units that hold a row, and 361 with the best buffer.
    pub most_held_units: u32,
    /// Most units of a cube that works on several rows. 8 of each of 65536 rows of 1024 f32 took 99.3
    /// us with two rows of 32 units, 102.3 with four and 101.5 with one. Rows that share a cube wait
    /// for each other's cuts: 64 of each of 8192 rows of 4096 took 140 with one row of 128 units and
    /// 190 with two.
    pub together_units: u32,
    /// Fewest elements of a row in which a few given numbers are found by windows.
    pub least_window: u32,
    /// Most units of a row that has a multiprocessor for itself. The element in the middle of 2^22
    /// f32 took 996 us with 1024 units and 1659 with 512.
    pub lone_window_units: u32,
    /// Elements of the row for each unit then.
    pub window_elements: u32,
    /// Words of keys that such a unit has in flight.
    pub window_words: u32,
    /// Most words of keys of a row that a cache holds, so that reading it again costs little.
    pub cached_words: u32,
    /// Fewest entries of the buffer that holds a last window.
    pub window_buffer: u32,
    /// Cubes of the most units per multiprocessor that slices are split for; more of smaller ones.
    pub cubes_per_multiprocessor: u32,
    /// Fewest rounds of loads of a cube that shares a slice with others.
    pub least_rounds: u32,
}

rules!(TopKTuning {
    power_of_two: units_per_cube, least_units, usual_units, buffer, shared_buffer, entries_per_unit, entries_of_run, adjacent_slices, adjacent_units,
        held_elements, most_held_elements, held_units, most_held_units, together_units, window_buffer, lone_window_units, several_entries, most_loading_units;
    count: units_per_multiprocessor, bytes_in_flight, offered, adjacent_loads, least_window, window_elements, window_words, cached_words, cubes_per_multiprocessor, least_rounds;
});

impl TopKTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            units_per_cube: 512,
            least_units: 16,
            units_per_multiprocessor: 2048,
            usual_units: 64,
            buffer: 128,
            shared_buffer: 1024,
            entries_per_unit: 16,
            entries_of_run: 4,
            bytes_in_flight: 64,
            offered: 16,
            adjacent_slices: 8,
            adjacent_units: 32,
            adjacent_loads: 8,
            several_entries: 4,
            most_loading_units: 128,
            held_elements: 8,
            most_held_elements: 32,
            held_units: 32,
            most_held_units: 64,
            together_units: 64,
            least_window: 1024,
            lone_window_units: 1024,
            window_elements: 64,
            window_words: 16,
            cached_words: 32768,
            window_buffer: 256,
            cubes_per_multiprocessor: 2,
            least_rounds: 4,
        }
    }
}
