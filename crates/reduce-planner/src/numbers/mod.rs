//! The numbers that decisions rest on, as data of a device.
//!
//! Each field says what was measured. docs/TUNING.md says how to measure again. Unless a field
//! names another device, the measurements are from one NVIDIA H200 with CUDA 13.0: f32 sums with a
//! cold L2 cache, median of 9, on 2026-11-21 and 22. "Not measured" marks a number that rests on
//! reasoning alone.

/// Checks one number by its rule. A `row` has rules of its own, and `any` number makes sense.
macro_rules! rule {
    (any, $field:ident, $row:ident) => {
        let _ = $field;
    };
    (row, $field:ident, $row:ident) => {
        $field.check_rules(concat!(stringify!($field), "."))?;
    };
    ($rule:ident, $field:ident, $row:ident) => {
        $rule(*$field as u64)
            .map_err(|expected| Nonsense::new($row, stringify!($field), *$field, expected))?;
    };
}

/// Says for each number of a type by which rule it makes sense. A field that is not named does not
/// compile.
macro_rules! rules {
    ($name:ident { $($rule:ident: $($field:ident),+;)+ }) => {
        impl $name {
            /// Finds a number that breaks its rule.
            pub(crate) fn check_rules(&self, row: &'static str) -> Result<(), Nonsense> {
                let Self { $($($field),+),+ } = self;
                $($($crate::numbers::rule!($rule, $field, row);)+)+
                Ok(())
            }
        }
    };
}

pub(crate) use {rule, rules};

mod applied;
mod invariant;
mod list;
mod scan;
mod segments;
mod top_k;

pub use self::{
    applied::AppliedTuning,
    invariant::InvariantTuning,
    list::ListTuning,
    scan::ScanTuning,
    segments::{SegmentTiles, SegmentsTuning},
    top_k::TopKTuning,
};

/// The numbers that the choice of a plan on one device rests on.
///
/// A tuning is part of a [`Device`](crate::Device). Change a field to plan with another number:
///
/// ```
/// use reduce_planner::Device;
///
/// let mut device = Device::h200();
/// device.tuning.split_cubes_per_multiprocessor = 4;
/// device.check()?;
/// # Ok::<(), reduce_planner::DeviceError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Tuning {
    /// Accumulators that take one register's worth of an element, such as a sum's.
    pub light: AccumulatorTuning,
    /// Accumulators that take two, such as a value and its index.
    pub medium: AccumulatorTuning,
    /// Accumulators that take more, such as a variance's five fields.
    pub heavy: AccumulatorTuning,
    /// What replaces the rows above along the reduction if units take the elements of several loads
    /// at once. A unit then has one accumulator, and not one for each component of a load.
    ///
    /// The row is that of operators which take an exponential or the like, and of accumulators of
    /// more than three fields. Arg forms have as many elements in flight as light accumulators.
    /// Others of two or three fields are light, but for the size of cooperating cubes. One field is
    /// light.
    ///
    /// bf16 65536 × 1024 along axis 1 with 4 and 8 loads of 16 bytes in 8 lanes, and 4 in 32 lanes:
    /// argmax 40.6, 36.1 and 45.0 us; var 39.6, 40.0 and 63.1; logsumexp 41.8, 41.8 and 54.6. bf16
    /// 8192 × 32000 along axis 1 with 4 loads in cubes of 128 and 512: argmax 133 and 166 us;
    /// logsumexp 141 and over 170; norm_l2 126 and 145. norm_l2 of f32 65536 × 1024 took 69.0 in 16
    /// lanes, and 64.7 as light accumulators.
    pub blockwise: AccumulatorTuning,
    /// What replaces the numbers above for operators that take an exponential or the like of each
    /// element.
    pub transcendental: TranscendentalTuning,
    /// What plans for applied reductions rest on.
    #[cfg_attr(feature = "serde", serde(default = "AppliedTuning::h200"))]
    pub applied: AppliedTuning,
    /// What plans for lists of tensors rest on.
    #[cfg_attr(feature = "serde", serde(default = "ListTuning::h200"))]
    pub list: ListTuning,
    /// What batch-invariant plans rest on.
    #[cfg_attr(feature = "serde", serde(default = "InvariantTuning::h200"))]
    pub invariant: InvariantTuning,
    /// What plans for segments rest on.
    #[cfg_attr(feature = "serde", serde(default = "SegmentsTuning::h200"))]
    pub segments: SegmentsTuning,
    /// What plans for selections rest on.
    #[cfg_attr(feature = "serde", serde(default = "TopKTuning::h200"))]
    pub top_k: TopKTuning,
    /// What plans for scans rest on.
    #[cfg_attr(feature = "serde", serde(default = "ScanTuning::h200"))]
    pub scan: ScanTuning,

    /// Fewest loads that a unit has in flight. Not measured.
    pub least_loads_in_flight: usize,
    /// Fewest widest vectors in an inner dimension whose head and tail are peeled. A shorter inner
    /// dimension takes the widest vector that divides it. 2²⁰ rows of 63 in peeled vectors of 4
    /// took 68.7 us (97 % of the floor). 2²¹ rows of 31 in peeled vectors of 2 took 108 us (62 %).
    pub peeled_inner_vectors: usize,
    /// Cubes per multiprocessor that must remain where a team has several outputs in flight. Not
    /// measured.
    pub several_outputs_cubes_per_multiprocessor: u32,

    /// Cubes per multiprocessor that the unit schedule aims at. 256 × 2¹⁸ along axis 0 took 68.0 us
    /// with 1024 cubes of 64 units, and 64.2 with 2048 of 32.
    pub unit_cubes_per_multiprocessor: u32,
    /// The same where units read single elements across outputs. Rows then start off a vector's
    /// boundary, neighbouring planes share memory sectors, and larger cubes share fewer. Not
    /// measured apart.
    pub unit_cubes_per_multiprocessor_unaligned: u32,
    /// Fewest units in a cube of the unit schedule, beside the largest plane. Not measured.
    pub unit_least_units_per_cube: u32,

    /// Loads per lane of the plane schedule across outputs. 2¹⁹ × 64 × 2 along axis 1 took 95.1 us
    /// with 2 loads in each of 32 lanes, and 69.7 with 8 in each of 8.
    pub plane_loads_per_lane_across: u64,

    /// Units of a cube whose teams are smaller than this. Several outputs share such a cube,
    /// because a smaller cube leaves most of its slot empty. Not measured.
    pub small_team_units_per_cube: u32,
    /// How many times as many units a large cube has. Large cubes serve splits that would have too
    /// many partials, and single elements across outputs. 2²¹ × 32 along axis 0 took 76.5 us with
    /// 396 cubes of 512 units, and 69.1 with 132 of 1024. 2¹⁸ × 255 along axis 0 took 75.3 with
    /// 1024.
    pub large_cube_factor: u32,
    /// Units of a cube across outputs that fill the device. 16 × 32 × 64 × 32 × 64 over axes 1, 3
    /// took 63.3 us with 256 and 66.6 with 512. Over axes 2, 3 it took 63.2 and 67.0.
    pub across_units_per_cube: u32,
    /// Fewest units per output tile in such a cube. 256 × 2¹⁸ along axis 0 took 64.0 us with 8.
    pub across_least_units_per_output: u64,
    /// The share of the units resident on the device that such cubes fill together: one in this
    /// number. Not measured apart.
    pub across_resident_divisor: u32,
    /// Most components of a load across outputs whose accumulators have two or three fields,
    /// because each component has an accumulator. bf16 8192 × 8192 along axis 0 took, with 8
    /// components and with 4: argmax 56.0 and 43.1 us, logsumexp 64.2 and 51.3.
    pub across_components: usize,
    /// The same for accumulators of more than three fields. var along axis 0 took, with 4 loads of
    /// 4 components and with 8 of 2: f32 65536 × 1024 in 12 cubes of 256 units 72.5 and 71.8 us, on
    /// Vulkan 161 and 87.8. bf16 8192 × 8192 took 64.9 with 8 loads of 4 in 3 cubes, and 51.1 with
    /// 8 of 2 in 2. The Vulkan driver gives a multiprocessor less shared memory than CUDA, so that
    /// fewer cubes reside together.
    pub across_components_many_fields: usize,
    /// By how much a plan of other numbers must be expected to be faster than those that the rules
    /// below give, in percent of its time, before it is taken. The rules rest on measurements, and
    /// estimates are off by some percent. With 4, 8 and 12, the choice was more than 11.0, 12.7 and
    /// 13.7 % slower than the best of about 24 timed plans in one of 20 cases (502 cases).
    pub search_margin_percent: u32,
    /// Bytes that adjacent units should read next to each other across outputs. 65536 × 1024 along
    /// axis 0 in 12 cubes of 64 × 8 units per output took 64.8 us with 128 bytes. In cubes of 16 ×
    /// 32 units it took 68.7 with 512.
    pub across_segment_bytes: usize,
    /// The same where units read single elements. Rows then start off a vector's boundary, and each
    /// segment shares a memory sector with the next. 2¹⁸ × 255 along axis 0 in cubes of 1024 units
    /// took 75.3 us with 256 bytes, and 75.1 with 512.
    pub across_segment_bytes_unaligned: usize,
    /// Bytes that memory moves at least. Where segments start off a vector's boundary, the planes
    /// at both sides of a boundary move the same sector, and L1 does not join the two: 65536 × 1023
    /// along axis 0, 128 bytes a plane, took 84.3 us, and 65536 × 1024 took 66 to 72. Sectors of 32
    /// bytes are from NVIDIA's documentation.
    pub sector_bytes: usize,
    /// Bytes of a line of a multiprocessor's cache, which looks up one line at a time. From
    /// NVIDIA's documentation.
    pub line_bytes: usize,
    /// Bytes of a page of the memory, which opens one page of a bank at a time. A unit that reads
    /// an inner dimension of 256 bytes alone, beside 512 others, drew 78 % of the bandwidth, and
    /// one of 4 KiB 59 % (f32 1048576 × 64 and 65536 × 1024 along axis 1). 1 KiB is from the
    /// standard of HBM3.
    pub page_bytes: usize,
    /// Widest elements, in bytes, whose rows are realigned for accumulators of several fields.
    /// 65536 × 1023 along axis 0 took, with single elements and with realigned rows: f32 as sum
    /// 72.6 and 70.7 us, as argmax 73.9 and 76.6, as var 78.6 and 81.3; bf16 as sum 65.2 and 42.2,
    /// as argmax 84.3 and 66.8.
    pub realigned_narrow_bytes: usize,
    /// How much units without a column of their own weigh where rows are realigned: the exponent of
    /// all columns of the blocks over those of the row, in percent. Such units leave fewer loads in
    /// flight, of which there are plenty. Not measured apart.
    pub realigned_idle_exponent_percent: u32,
    /// Of the widths of a block of realigned rows, those count as good whose score has this share
    /// of the best one's. 65536 × 1023 along axis 0 took 70.7 us in windows of 32 vectors, whose
    /// score is the best, 73.2 in windows of 16 (94 % of that score), and 79.3 in windows of 8 (83
    /// %).
    pub realigned_width_percent: u32,
    /// An inner dimension of up to this many segments is read by one row of units. Not measured.
    pub across_segments_per_row: u64,

    /// Cubes per multiprocessor that a split aims at: as many as reside together. Of cubes of 512
    /// units those are two, because CubeCL 0.11 gives a sum 50 registers. A third would wait for
    /// the others and then work alone. Among 16 plans for each of some 30 whole reductions of one
    /// field, cubes of 512 units with 4 loads in flight took 1.5 % longer than the fastest with 2,
    /// in the geometric mean, and 4.5 % with 3, at most 9 and 18 %. Across outputs they took 4 %
    /// longer with 2, and 13 % with 3.
    pub split_cubes_per_multiprocessor: u32,
    /// The same for a split into large cubes. See `large_cube_factor` for its measurement.
    pub split_large_cubes_per_multiprocessor: u32,
    /// Rounds of loads of a unit from which on a split of rows has eight times as many cubes as
    /// reside together, and more loads in flight; of 64-bit elements, four times as many and as
    /// many loads. With 4 loads, the sum of 2³⁰ f32 (496 rounds) took 971.6 us on one H200 in 264
    /// cubes of 512 units, 953.9 in 1056 and 953.4 in 4224. On another one, it took 954 in 264 and
    /// in 792.
    #[cfg_attr(feature = "serde", serde(default = "split_long_rounds"))]
    pub split_long_rounds: u64,
    /// Fewest elements of rows of which splits across outputs read vectors of twice the usual
    /// length, where accumulators have many fields and rows begin inside lines: of f32 50,000 ×
    /// 2500, both took 133 us on one H200; of 100,000 × 1000, 116 us so, and 107 in usual ones.
    /// Through Vulkan, variances of 10,000 × 10,000 along axis 0 took 142 us in such vectors, and
    /// 116 in usual ones.
    #[cfg_attr(feature = "serde", serde(default = "doubled_columns"))]
    pub doubled_columns: usize,
    /// Fewest bytes of one input that a unit of a split along rows has in flight, if they are more
    /// than other schedules leave it. Through SPIR-V, a sum of 2²⁸ f32 took 266 us on one H200 with
    /// 4 loads of 16 bytes, and 244 with 8; of 2²⁴, 25.7 and 23.2.
    #[cfg_attr(feature = "serde", serde(default = "split_at_least"))]
    pub split_bytes_in_flight_along: usize,
    /// Units up to which cubes of such a split may grow, if they are more than other schedules
    /// allow. Through SPIR-V, a variance of 2²⁶ f32 took 77.5 us in 256 cubes of 256 units and 73.0
    /// in 264 of 512, a logarithm of the sum of exponentials 89 and 70, an L2 norm 72.5 and 68.4.
    #[cfg_attr(feature = "serde", serde(default = "at_least_units"))]
    pub split_units_per_cube_along: u32,
    /// Fewest units of a cube whose planes or units have accumulators of more than three fields for
    /// themselves, along the reduction. Through SPIR-V, variances of f32 4096 × 50,256 took 209 to
    /// 216 us on one H200 in cubes of 128 units and 199 to 200 in cubes of 256, and means and
    /// variances of bf16 8192 × 32,000 took 136.9 and 133.0.
    #[cfg_attr(feature = "serde", serde(default = "at_least_units"))]
    pub many_fields_units_per_cube_along: u32,
    /// Most bytes that a unit of a split has in flight across outputs. With two cubes of 512 units
    /// on each multiprocessor, 8 loads of 16 bytes took 3.1 % longer than the fastest of 16 plans,
    /// in the geometric mean of 15 cases, and 4 loads 4.1 % (17 cases).
    pub split_bytes_in_flight_across: usize,
    /// Partials of one block of outputs up to which a split has its usual cubes. The last cube
    /// takes too long to merge more, so there are fewer cubes, large ones if the last can merge.
    /// 2²¹ × 32 along axis 0 took 76.5 us with 12672 partials, and 69.1 with 4224.
    pub partials_per_block: u64,
    /// Most bytes of published partials. A split with more of them merges in a second launch. The
    /// bytes stay allocated between calls. Variances of f32 10,000 × 10,000 along axis 0 publish
    /// 1.2 MB in 3 cubes and take 98 us on one H200; of 8192 × 8191, 1.3 MB in 4 cubes took 73 us,
    /// and 79 in two launches. Those of 131,072 × 2047 took 310 us with 1 MiB, in larger cubes, and
    /// take 338.
    pub published_bytes: u64,
    /// Most units of a cube of the second launch, which reads a few KiB. Not measured apart.
    pub merge_units_per_cube: u32,

    /// A unit reads an inner dimension of up to this many bytes at the full bandwidth. The rest of
    /// a cache line is still in the cache when the unit's next load comes. 2²⁴ rows of 32 bytes
    /// took 140.4 us with a unit per row, and 163.0 with two lanes. 2²⁰ rows of 128 bytes took 45.0
    /// us with a unit per row, and 41.8 with eight lanes.
    pub cached_inner_bytes: usize,
    /// If a team's loads in flight cover one in this number of the row, the reads of neighbouring
    /// teams are effectively contiguous. Not measured.
    pub contiguous_row_divisor: usize,
    /// Bytes that such reads count as at least: the rest of half a cache line is read soon. Not
    /// measured.
    pub contiguous_row_bytes: usize,
}

rules!(Tuning {
    row: light, medium, heavy, blockwise, transcendental, applied, list,
        invariant, segments, top_k, scan;
    power_of_two: unit_least_units_per_cube, small_team_units_per_cube, large_cube_factor,
        across_units_per_cube, across_least_units_per_output, across_components,
        across_components_many_fields, across_segment_bytes, across_segment_bytes_unaligned,
        sector_bytes, line_bytes, page_bytes, split_bytes_in_flight_along,
        split_units_per_cube_along, many_fields_units_per_cube_along,
        split_bytes_in_flight_across, merge_units_per_cube;
    count: least_loads_in_flight, peeled_inner_vectors, several_outputs_cubes_per_multiprocessor,
        unit_cubes_per_multiprocessor, unit_cubes_per_multiprocessor_unaligned,
        plane_loads_per_lane_across, across_resident_divisor, across_segments_per_row,
        split_cubes_per_multiprocessor, split_large_cubes_per_multiprocessor, split_long_rounds,
        partials_per_block, cached_inner_bytes, contiguous_row_divisor, contiguous_row_bytes;
    percent: realigned_idle_exponent_percent, realigned_width_percent;
    any: search_margin_percent, realigned_narrow_bytes, published_bytes, doubled_columns;
});

/// The rounds of a long row in descriptions of devices that do not say.
const fn split_long_rounds() -> u64 {
    200
}

/// The rows with longer vectors in descriptions of devices that do not say.
const fn doubled_columns() -> usize {
    2048
}

/// The bytes in flight of a split along rows in descriptions of devices that do not say.
const fn split_at_least() -> usize {
    1
}

/// Fewest units of a cube in descriptions of devices that do not say: other rules decide.
const fn at_least_units() -> u32 {
    1
}

/// The numbers that depend on how many registers an accumulator takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct AccumulatorTuning {
    /// Bytes that a unit has in flight along the reduction before it uses the first.
    ///
    /// Light: 8192 × 8192 along axis 1 with a plane per row took 67.7 us with 2 loads of 16 bytes,
    /// 63.3 with 4, and 66.2 with 8. With a cube of 256 per row it took 62.6, 62.5 and 61.9. Heavy:
    /// var of 65536 × 1024 along axis 1 took 74.2 us with 64 bytes, and 69.1 with 128, because
    /// pushes take long enough to leave loads waiting.
    pub bytes_in_flight_along: usize,
    /// Elements that a unit has in flight along the reduction at most. Heavy: var of 8192 × 8192
    /// bf16 along axis 1 took 51.3 us with 32. Light and medium: 64 never limits.
    pub elements_in_flight_along: usize,
    /// Bytes that a unit has in flight across outputs, where fewer units reside.
    ///
    /// Light: 16 × 32 × 64 × 32 × 64 over axes 1, 3 in cubes of 8 × 32 units took 64.8 us with 4
    /// loads of 16 bytes, and 63.3 with 8. 65536 × 64 × 7 along axis 1 with loads of 4 bytes took
    /// 42.5 with 4, and 39.4 with 16. Medium: argmax of 10000 × 10000 along axis 0 took 104.5 us
    /// with 64 bytes, and 111.1 with 128. Heavy: var of 65536 × 1024 along axis 0 with 2 components
    /// took 70.6 us with 64 bytes, and 75.9 with 32.
    pub bytes_in_flight_across: usize,
    /// Loads that a unit has in flight across outputs at most. Light: 16 never limits. Medium:
    /// argmax of bf16 8192 × 8192 along axis 0, in loads of 4 elements, took 46.1 us with 4, and
    /// 43.5 with
    /// 8. Heavy: not measured.
    pub loads_in_flight_across: usize,
    /// Most outputs that a team has in flight together where each is short. Accumulators of several
    /// fields hold more registers. Not measured apart.
    pub outputs_in_flight: usize,
    /// Units of a cube in which each unit or plane works for itself.
    ///
    /// Light: 8192 × 8192 along axis 1 with a plane per row took 63.3 us with 256, and 63.1 with
    /// 128. Heavy: var of 65536 × 1024 along axis 1 took 74.1 us with 256, and 69.1 with 128.
    /// Medium: argmax took 65.4 and 65.1.
    pub independent_units_per_cube: u32,
    /// Most units of a cube that works on one output together.
    ///
    /// Light: 64 × 256 × 56 × 56 over axes 0, 2, 3 took 51.6 us with 256, 49.7 with 512, and 49.9
    /// with 1024. Heavy: var of 65536 × 1024 along axis 0 took 102.8 us with 512, and 77.4 with
    /// 256.
    pub cooperating_units_per_cube: u32,
    /// Loads that each lane or unit of a team should have along the reduction. The larger an
    /// accumulator, the longer it takes to merge.
    ///
    /// Light: 2²⁰ rows of 32 took 50.2 us with one load for each of 8 lanes, and 35.9 with two for
    /// each of 4. 2¹⁹ rows of 128 took 97.8 us with one, 65.5 with two, and 65.6 with four. Medium:
    /// argmax of 65536 × 1024 along axis 1 took 65.6 us with 8, 65.1 with 16, and 65.7 with 32.
    /// Heavy: var of 65536 × 1024 along axis 1 took 100.8 us with 8, 69.6 with 16, and 69.1 with
    /// 32.
    pub loads_per_lane: u64,
}

rules!(AccumulatorTuning {
    power_of_two: bytes_in_flight_along, elements_in_flight_along, bytes_in_flight_across,
        loads_in_flight_across, outputs_in_flight, independent_units_per_cube,
        cooperating_units_per_cube;
    count: loads_per_lane;
});

/// What replaces the numbers of [`AccumulatorTuning`] for operators that take an exponential, a
/// logarithm or a power of each element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct TranscendentalTuning {
    /// Bytes that a unit has in flight across outputs, if it takes elements one by one. logsumexp
    /// of 65536 × 1024 along axis 0 took 68.9 us with 32, and 95.7 with 64.
    pub bytes_in_flight_across: usize,
    /// The same if it takes the elements of several loads at once. logsumexp of 65536 × 1024 along
    /// axis 0 took 79.3 us with 32, and 74.6 with 64.
    pub blockwise_bytes_in_flight_across: usize,
    /// Most elements of up to two bytes that a unit has in flight along the reduction, if it takes
    /// the elements of several loads at once. Each takes a register of four bytes when it is
    /// converted. logsumexp of bf16 along axis 1 took, with 2 and with 4 loads of 8 elements: 8192
    /// × 32000 132.8 and 147.3 us, 65536 × 1024 39.5 and 39.9. Wider elements keep their number:
    /// f32 4096 × 50257 took 198.4 with 8 loads of 4, and 211.8 with 4.
    pub blockwise_narrow_elements_in_flight_along: usize,
    /// Most bytes that a lane of the plane schedule has in flight. logsumexp of 65536 × 1024 along
    /// axis 1 with 8 lanes a row took 68.0 us with 32, and over 70 with 64. Cubes take more: 4096 ×
    /// 50257 along axis 1 took 217.7 us with 32, and 198.4 with 64.
    pub plane_bytes_in_flight: usize,
    /// Units of a cube in which each unit or plane works for itself. Not measured apart.
    pub independent_units_per_cube: u32,
    /// Loads that each lane should have, for medium and heavy accumulators. Light ones keep their
    /// number. Not measured apart.
    pub loads_per_lane: u64,
}

rules!(TranscendentalTuning {
    power_of_two: bytes_in_flight_across, blockwise_bytes_in_flight_across,
        blockwise_narrow_elements_in_flight_along, plane_bytes_in_flight,
        independent_units_per_cube;
    count: loads_per_lane;
});

/// How many registers an accumulator takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    Light,
    Medium,
    Heavy,
}

impl Weight {
    /// The weight of an accumulator beside elements of `element_bytes` bytes, which are held in
    /// words of at least 32 bits.
    pub(crate) fn of(accumulator_bytes: usize, element_bytes: usize) -> Self {
        match accumulator_bytes.div_ceil(element_bytes.max(4)) {
            0..=1 => Self::Light,
            2 => Self::Medium,
            _ => Self::Heavy,
        }
    }
}

/// The numbers for one operator: its row of the tuning, with what transcendental functions replace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) accumulator: AccumulatorTuning,
    /// Most bytes that a lane of the plane schedule has in flight, if limited.
    pub(crate) plane_bytes_in_flight: Option<usize>,
}

impl Tuning {
    /// Those measured on one NVIDIA H200 through Vulkan, where they differ from CUDA's.
    #[must_use]
    pub const fn vulkan() -> Self {
        Self {
            segments: SegmentsTuning::vulkan(),
            scan: ScanTuning::vulkan(),
            doubled_columns: 1 << 30,
            split_bytes_in_flight_along: 128,
            split_units_per_cube_along: 512,
            many_fields_units_per_cube_along: 256,
            ..Self::h200()
        }
    }

    /// The numbers measured on one NVIDIA H200.
    #[must_use]
    pub const fn h200() -> Self {
        let light = AccumulatorTuning {
            bytes_in_flight_along: 64,
            elements_in_flight_along: 64,
            bytes_in_flight_across: 128,
            loads_in_flight_across: 16,
            outputs_in_flight: 8,
            independent_units_per_cube: 256,
            cooperating_units_per_cube: 512,
            loads_per_lane: 2,
        };
        let medium = AccumulatorTuning {
            bytes_in_flight_across: 64,
            loads_in_flight_across: 8,
            outputs_in_flight: 2,
            independent_units_per_cube: 128,
            cooperating_units_per_cube: 256,
            loads_per_lane: 16,
            // What is not named here changes with `light`.
            ..light
        };
        let heavy = AccumulatorTuning {
            bytes_in_flight_along: 128,
            elements_in_flight_along: 32,
            loads_per_lane: 32,
            // What is not named here changes with `medium`.
            ..medium
        };
        let blockwise = AccumulatorTuning {
            bytes_in_flight_along: 128,
            elements_in_flight_along: 32,
            // What is not named here changes with `medium`.
            ..medium
        };
        let transcendental = TranscendentalTuning {
            bytes_in_flight_across: 32,
            blockwise_bytes_in_flight_across: 64,
            blockwise_narrow_elements_in_flight_along: 16,
            plane_bytes_in_flight: 32,
            independent_units_per_cube: 256,
            loads_per_lane: 32,
        };
        Self {
            light,
            medium,
            heavy,
            blockwise,
            transcendental,
            applied: AppliedTuning::h200(),
            list: ListTuning::h200(),
            invariant: InvariantTuning::h200(),
            segments: SegmentsTuning::h200(),
            top_k: TopKTuning::h200(),
            scan: ScanTuning::h200(),
            search_margin_percent: 4,
            least_loads_in_flight: 2,
            peeled_inner_vectors: 8,
            several_outputs_cubes_per_multiprocessor: 16,
            unit_cubes_per_multiprocessor: 12,
            unit_cubes_per_multiprocessor_unaligned: 2,
            unit_least_units_per_cube: 32,
            plane_loads_per_lane_across: 8,
            small_team_units_per_cube: 64,
            large_cube_factor: 2,
            across_units_per_cube: 256,
            across_least_units_per_output: 8,
            across_resident_divisor: 2,
            across_components: 4,
            across_components_many_fields: 2,
            across_segment_bytes: 128,
            across_segment_bytes_unaligned: 512,
            sector_bytes: 32,
            line_bytes: 128,
            page_bytes: 1024,
            realigned_narrow_bytes: 2,
            realigned_idle_exponent_percent: 25,
            realigned_width_percent: 98,
            across_segments_per_row: 2,
            split_cubes_per_multiprocessor: 2,
            split_large_cubes_per_multiprocessor: 1,
            split_long_rounds: split_long_rounds(),
            doubled_columns: doubled_columns(),
            split_bytes_in_flight_along: split_at_least(),
            split_units_per_cube_along: at_least_units(),
            many_fields_units_per_cube_along: at_least_units(),
            split_bytes_in_flight_across: 128,
            partials_per_block: 4096,
            published_bytes: 1 << 22,
            merge_units_per_cube: 256,
            cached_inner_bytes: 64,
            contiguous_row_divisor: 4,
            contiguous_row_bytes: 64,
        }
    }

    /// The numbers for an operator whose accumulator has this weight.
    pub(crate) fn row(&self, weight: Weight, transcendental: bool, blockwise: bool) -> Row {
        let accumulator = match weight {
            Weight::Light => self.light,
            Weight::Medium => self.medium,
            Weight::Heavy => self.heavy,
        };
        if !transcendental {
            return Row { accumulator, plane_bytes_in_flight: None };
        }
        let with = self.transcendental;
        let loads_per_lane = match weight {
            Weight::Light => accumulator.loads_per_lane,
            Weight::Medium | Weight::Heavy => with.loads_per_lane,
        };
        Row {
            accumulator: AccumulatorTuning {
                bytes_in_flight_across: match blockwise {
                    true => with.blockwise_bytes_in_flight_across,
                    false => with.bytes_in_flight_across,
                },
                independent_units_per_cube: with.independent_units_per_cube,
                loads_per_lane,
                ..accumulator
            },
            plane_bytes_in_flight: Some(with.plane_bytes_in_flight),
        }
    }
}

impl Default for Tuning {
    /// The numbers of [`Tuning::h200`].
    fn default() -> Self {
        Self::h200()
    }
}

/// The share of 1 that a percentage is.
pub(crate) fn from_percent(percent: impl Into<u64>) -> f64 {
    percent.into() as f64 / 100.0
}

/// A number that makes no sense.
pub(crate) struct Nonsense {
    /// The row with a dot, or nothing.
    pub(crate) row: &'static str,
    pub(crate) field: &'static str,
    pub(crate) value: u64,
    pub(crate) expected: &'static str,
}

impl Nonsense {
    pub(crate) fn new(
        row: &'static str,
        field: &'static str,
        value: impl TryInto<u64>,
        expected: &'static str,
    ) -> Self {
        Self { row, field, value: value.try_into().unwrap_or(u64::MAX), expected }
    }
}

fn power_of_two(value: u64) -> Result<(), &'static str> {
    let fits = value.is_power_of_two() && value <= 1 << 16;
    fits.then_some(()).ok_or("a power of two up to 65536")
}

pub(crate) fn count(value: u64) -> Result<(), &'static str> {
    (1..=1 << 20).contains(&value).then_some(()).ok_or("from 1 to 1048576")
}

pub(crate) fn percent(value: u64) -> Result<(), &'static str> {
    (1..=100).contains(&value).then_some(()).ok_or("from 1 to 100")
}
