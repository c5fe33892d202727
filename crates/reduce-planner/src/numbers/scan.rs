//! The numbers of plans for scans.

use super::{Nonsense, count, power_of_two};

/// The numbers for scans. Those without a measurement rest on reasoning alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ScanTuning {
    /// Most loads of a row that one unit scans alone. The loads and stores of neighbouring units
    /// follow each other in memory only if each row is one of them.
    pub unit_loads: u32,
    /// The same where planes do not exchange values: shared memory and its barriers cost more.
    pub unit_loads_without_planes: u32,
    /// Loads in flight of a unit that has a vector of columns alone.
    pub unit_loads_across: u32,
    /// Most loads of a row for each lane of a plane that scans it alone, and loads in flight of a
    /// lane. Sums of f32 65536 × 1024 took 142 us in planes whose lanes have 8 loads, and 137 in
    /// cubes of 64 units with 4.
    pub plane_loads: u32,
    /// Most loads of a row for each lane where a light scan has several results. Through Vulkan,
    /// maxima of f32 65,536 × 1024 with their positions took 207 us on one H200 in planes whose
    /// lanes have 8 loads, and 239 to 248 in cubes of 64 and 128 units; of 16,384 × 4096, 226 in
    /// planes, and 238 to 266 in cubes.
    #[cfg_attr(feature = "serde", serde(default = "plane_loads_of_several_results"))]
    pub plane_loads_of_several_results: u32,
    /// Loads in flight of a lane where a light scan has several results. Maxima of f32 65,536 ×
    /// 1024 with their positions took 223 us through Vulkan with 2, in cubes of one plane, and 243
    /// with 4.
    #[cfg_attr(feature = "serde", serde(default = "several_results_loads"))]
    pub several_results_loads: u32,
    /// Most loads of a row for each lane where operators merge many fields or take exponentials.
    pub plane_loads_of_long_functions: u32,
    /// Most loads of a row for each lane where operators take exponentials of wide elements.
    /// Logarithms of their sums of f32 16,384 × 4096 took 134 us in cubes of 128 units with 8
    /// loads, and 141 in planes; of 8192 × 8192 135 and 145. Cubes were not timed through Vulkan.
    #[cfg_attr(feature = "serde", serde(default = "plane_loads_of_exponentials"))]
    pub plane_loads_of_exponentials: u32,
    /// Loads in flight along rows where operators merge many fields, in planes half as many for
    /// several results, and in cubes also where operators take exponentials. Lanes and units merge
    /// once for each chunk, so larger chunks are fewer merges, but they exchange elements through
    /// shared memory: variances of f32 65,536 × 1024 in 8 lanes took 178 us on one H200 with 4, and
    /// 155 with 8; through Vulkan 237 with 2, 181 with 4 and 196 with 8.
    #[cfg_attr(feature = "serde", serde(default = "many_fields_loads"))]
    pub many_fields_loads: u32,
    /// Loads in flight of lanes of a plane where operators take exponentials. Logarithms of their
    /// sums of f32 65,536 × 1024 took 133 to 137 us with 4, and 132 with 8; through Vulkan 151 with
    /// 2, 144 with 4, and 179 with 8.
    #[cfg_attr(feature = "serde", serde(default = "exponential_loads"))]
    pub exponential_loads: u32,
    /// Loads of a row for each lane where operators take exponentials of wide elements: logarithms
    /// of their sums of f32 1,048,576 × 64 took 134 us with 4, and 152 in half as many lanes.
    #[cfg_attr(feature = "serde", serde(default = "exponential_loads_per_lane"))]
    pub exponential_loads_per_lane: u32,
    /// Loads in flight in place of both where elements are narrower than 4 bytes. Logarithms of
    /// sums of exponentials of bf16 65,536 × 1024 took 98 us with 4 in 16 lanes, and 90 with 8;
    /// through Vulkan 110 and 105.
    #[cfg_attr(feature = "serde", serde(default = "narrow_long_function_loads"))]
    pub narrow_long_function_loads: u32,
    /// Loads of a row for each lane of a plane where operators merge many fields, twice as many of
    /// narrow elements, and half as many for several results. A row has as many lanes as that
    /// takes, because each merges what the others have: variances of f32 65,536 × 1024 took 160 us
    /// on one H200 with 16 for each lane, and 155 with 32; of bf16 129 with 32, and 124 with 64;
    /// means and variances of f32 221 with 16, and 236 with 32.
    #[cfg_attr(feature = "serde", serde(default = "many_fields_loads_per_lane"))]
    pub many_fields_loads_per_lane: u32,
    /// Units of a cube whose planes scan rows for operators that merge many fields or take
    /// exponentials. Planes of exponentials of wide elements have a cube each: a plane took 132 us
    /// where two took 133. Through Vulkan, all have: two took 2 to 10 % longer.
    #[cfg_attr(feature = "serde", serde(default = "long_function_units_per_cube"))]
    pub long_function_units_per_cube: u32,
    /// Units of a cube whose units or planes do not share rows.
    pub independent_units_per_cube: u32,
    /// Most units of a cube that scans a row.
    pub units_per_cube: u32,
    /// The same where planes do not exchange values: one unit of 16 adds up the totals of these,
    /// and one of all those of the former.
    pub units_per_cube_without_planes: u32,
    /// Loads in flight of each of them.
    pub cube_loads: u32,
    /// Loads in flight where so many units, at most, hold a row as one chunk. Sums of f32 65,536 ×
    /// 1024 along axis 1 took 130.4 us on one H200 in 64 units with 4 loads, and 128.0 in 128 with
    /// 2; of 32,768 × 2048 134 and 131, of bf16 32,768 × 4096 140 and 130. Of f32 16,384 × 4096,
    /// 256 units with 4 took as long as 512 with 2. Maxima with their positions of 65,536 × 1024
    /// took 222 and 250.
    #[cfg_attr(feature = "serde", serde(default = "short_row_loads"))]
    pub short_row_loads: u32,
    /// These units.
    #[cfg_attr(feature = "serde", serde(default = "short_row_units"))]
    pub short_row_units: u32,
    /// Fewest units of a cube: shorter rows share one.
    pub least_units_per_cube: u32,
    /// Most units of a cube that scans columns.
    pub units_per_cube_across: u32,
    /// Units that scan columns on each multiprocessor, if there are so many columns.
    pub units_per_multiprocessor_across: u32,
    /// Rows that a unit of such a cube takes at a time. A sum of f32 8192 × 8192 along axis 0 took
    /// 143 us on one H200 with 4, and 156 with 8 and with 16.
    pub cube_loads_across: u32,
    /// The same where elements are narrower than 4 bytes. Half as many units share such columns. A
    /// sum of bf16 8192 × 8192 along axis 0 took 78 us with 16 in 32 units for each column, 99 with
    /// 4 in 64 and 110 with 8 in 32; that of 16384 × 4096 87.6 with 16 in 64, and 119.5 with 4 in
    /// 128; that of f16 alike.
    #[cfg_attr(feature = "serde", serde(default = "cube_narrow_loads_across"))]
    pub cube_narrow_loads_across: u32,
    /// Cubes for each multiprocessor from which on there are so many columns that larger cubes with
    /// more loads pay, because they take fewer chunks one after the other. A sum of f32 64 × 1024 ×
    /// 1024 along axis 1, of 16384 vectors of columns, took 169 us in cubes of 64 units with 4
    /// loads, 149 in cubes of 128 with 8, 141 in cubes of 256 with 8, and 137 with 16.
    #[cfg_attr(feature = "serde", serde(default = "many_cubes_across"))]
    pub many_cubes_across: u32,
    /// Units of such a cube.
    #[cfg_attr(feature = "serde", serde(default = "many_units_per_cube_across"))]
    pub many_units_per_cube_across: u32,
    /// Loads of each of them.
    #[cfg_attr(feature = "serde", serde(default = "many_loads_across"))]
    pub many_loads_across: u32,
    /// Units of a cube that looks back, and their loads. Larger chunks look back less often.
    pub look_back_units: u32,
    /// Loads of a unit of such a cube.
    pub look_back_loads: u32,
    /// The same where elements are narrower than 4 bytes. A sum of 2²⁸ bf16 took 306 us with 8
    /// loads, and 291 with 16; that of f32 590 and 606.
    #[cfg_attr(feature = "serde", serde(default = "look_back_narrow_loads"))]
    pub look_back_narrow_loads: u32,
    /// Units of a cube that looks back of columns.
    pub look_back_units_across: u32,
    /// Elements that a unit of such a cube has in its registers.
    pub look_back_elements_across: u32,
    /// Bytes that each unit of a cube that looks back along a row keeps in shared memory, besides
    /// those in its registers. A sum of 2²⁸ f32 took 595 us on one H200 with 8 loads of 16 bytes in
    /// registers, 554 with 4 and 8 in shared memory, 597 with 4 and 4, and 648 with 8 and 8, which
    /// took 100 registers. Of f64, 687 and 590; maxima of 2²⁶ with their positions, 355 and 293. A
    /// sum of 2²⁸ bf16 took 286 in registers alone, and 324 so; one of f32 16 × 4,194,305 along
    /// axis 1, whose rows begin inside vectors, 154 and 176.
    #[cfg_attr(feature = "serde", serde(default = "look_back_shared_bytes"))]
    pub look_back_shared_bytes: u32,
    /// Loads that these units have in registers.
    #[cfg_attr(feature = "serde", serde(default = "look_back_loads_beside_shared"))]
    pub look_back_loads_beside_shared: u32,
    /// Fewest cubes for each multiprocessor whose units keep some there. A sum of 2²⁴ f32, which
    /// has 11, took 46 us in registers alone.
    #[cfg_attr(feature = "serde", serde(default = "look_back_shared_cubes"))]
    pub look_back_shared_cubes: u32,
    /// Fewest cubes that look back for each multiprocessor, unless chunks were of one load.
    pub look_back_cubes: u32,
    /// Fewest vectors of a row that begins and ends inside vectors. The lanes that have its ends
    /// take their elements one by one.
    pub peeled_row_vectors: u32,
    /// Units that reside on a multiprocessor, as far as their registers allow.
    pub units_per_multiprocessor: u32,
    /// Units for each multiprocessor that a split aims at: those that reside, in one wave. Each
    /// part has an accumulator of its own, which cubes of later parts read.
    pub split_units_per_multiprocessor: u32,
    /// Fewest chunks of a row that a cube of a split has.
    pub chunks_per_part: u32,
    /// Time in which the units of a row learn from each other what lies before them, by plane
    /// operations, in nanoseconds.
    pub plane_exchange_ns: u32,
    /// The same through shared memory alone.
    pub shared_exchange_ns: u32,
    /// Picoseconds that a multiprocessor takes for a field of an accumulator that a unit of a row
    /// merges, where operators merge many fields or take exponentials.
    #[cfg_attr(feature = "serde", serde(default = "merge_ps"))]
    pub merge_ps: u32,
    /// Rows for each multiprocessor that batch-invariant plans are made for.
    pub reference_rows: u32,
}

rules!(ScanTuning {
    power_of_two: unit_loads, unit_loads_without_planes, unit_loads_across, plane_loads,
        plane_loads_of_several_results, several_results_loads, plane_loads_of_long_functions,
        plane_loads_of_exponentials, many_fields_loads, exponential_loads,
        exponential_loads_per_lane,
        narrow_long_function_loads, many_fields_loads_per_lane, long_function_units_per_cube,
        independent_units_per_cube, units_per_cube, units_per_cube_without_planes, cube_loads,
        least_units_per_cube, units_per_cube_across, cube_loads_across, look_back_units,
        look_back_loads, look_back_narrow_loads, look_back_units_across,
        look_back_elements_across, look_back_shared_bytes, look_back_loads_beside_shared,
        short_row_loads, short_row_units, cube_narrow_loads_across, many_units_per_cube_across,
        many_loads_across;
    count: units_per_multiprocessor, split_units_per_multiprocessor, chunks_per_part,
        units_per_multiprocessor_across, many_cubes_across, look_back_cubes,
        look_back_shared_cubes, plane_exchange_ns, shared_exchange_ns, merge_ps,
        peeled_row_vectors, reference_rows;
});

impl ScanTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            unit_loads: 1,
            unit_loads_without_planes: 4,
            unit_loads_across: 8,
            plane_loads: 4,
            plane_loads_of_several_results: plane_loads_of_several_results(),
            several_results_loads: several_results_loads(),
            plane_loads_of_long_functions: 64,
            plane_loads_of_exponentials: plane_loads_of_exponentials(),
            many_fields_loads: many_fields_loads(),
            exponential_loads: exponential_loads(),
            exponential_loads_per_lane: exponential_loads_per_lane(),
            narrow_long_function_loads: narrow_long_function_loads(),
            many_fields_loads_per_lane: many_fields_loads_per_lane(),
            long_function_units_per_cube: long_function_units_per_cube(),
            independent_units_per_cube: 128,
            units_per_cube: 512,
            units_per_cube_without_planes: 64,
            cube_loads: 4,
            short_row_loads: short_row_loads(),
            short_row_units: short_row_units(),
            least_units_per_cube: 64,
            units_per_cube_across: 512,
            units_per_multiprocessor_across: 512,
            cube_loads_across: 4,
            cube_narrow_loads_across: cube_narrow_loads_across(),
            many_cubes_across: many_cubes_across(),
            many_units_per_cube_across: many_units_per_cube_across(),
            many_loads_across: many_loads_across(),
            look_back_units: 256,
            look_back_loads: 8,
            look_back_narrow_loads: look_back_narrow_loads(),
            look_back_units_across: 256,
            look_back_elements_across: 64,
            look_back_shared_bytes: look_back_shared_bytes(),
            look_back_loads_beside_shared: look_back_loads_beside_shared(),
            look_back_shared_cubes: look_back_shared_cubes(),
            look_back_cubes: 2,
            peeled_row_vectors: 64,
            units_per_multiprocessor: 1024,
            split_units_per_multiprocessor: 1024,
            chunks_per_part: 2,
            plane_exchange_ns: 150,
            shared_exchange_ns: 400,
            merge_ps: merge_ps(),
            reference_rows: 8,
        }
    }

    /// Those of one NVIDIA H200 through Vulkan, where they differ.
    pub(super) const fn vulkan() -> Self {
        Self {
            plane_loads_of_several_results: 64,
            several_results_loads: 2,
            plane_loads_of_exponentials: 64,
            many_fields_loads: 4,
            exponential_loads: 4,
            long_function_units_per_cube: 32,
            ..Self::h200()
        }
    }
}

/// The value of a tuning that was written before there was this field.
const fn plane_loads_of_several_results() -> u32 {
    4
}

/// The value of a tuning that was written before there was this field.
const fn several_results_loads() -> u32 {
    4
}

/// The value of a tuning that was written before there was this field.
const fn plane_loads_of_exponentials() -> u32 {
    16
}

/// The value of a tuning that was written before there was this field.
const fn many_fields_loads() -> u32 {
    8
}

/// The value of a tuning that was written before there was this field.
const fn exponential_loads() -> u32 {
    8
}

/// The value of a tuning that was written before there was this field.
const fn exponential_loads_per_lane() -> u32 {
    4
}

/// The value of a tuning that was written before there was this field.
const fn narrow_long_function_loads() -> u32 {
    8
}

/// The value of a tuning that was written before there was this field.
const fn many_fields_loads_per_lane() -> u32 {
    32
}

/// The value of a tuning that was written before there was this field.
const fn long_function_units_per_cube() -> u32 {
    64
}

/// The value of a tuning that was written before there was this field.
const fn cube_narrow_loads_across() -> u32 {
    16
}

/// The value of a tuning that was written before there was this field.
const fn many_cubes_across() -> u32 {
    3
}

/// The value of a tuning that was written before there was this field.
const fn many_units_per_cube_across() -> u32 {
    256
}

/// The value of a tuning that was written before there was this field.
const fn many_loads_across() -> u32 {
    8
}

/// The value of a tuning that was written before there was this field.
const fn look_back_narrow_loads() -> u32 {
    16
}

/// The value of a tuning that was written before there was this field.
const fn look_back_shared_bytes() -> u32 {
    128
}

/// The value of a tuning that was written before there was this field.
const fn look_back_loads_beside_shared() -> u32 {
    4
}

/// The value of a tuning that was written before there was this field.
const fn look_back_shared_cubes() -> u32 {
    16
}

/// The value of a tuning that was written before there was this field.
const fn short_row_loads() -> u32 {
    2
}

/// The value of a tuning that was written before there was this field.
const fn short_row_units() -> u32 {
    256
}

/// The value of a tuning that was written before there was this field.
const fn merge_ps() -> u32 {
    150
}
