//! The speed of a device, as data: what the cost model needs.

use crate::numbers::{Nonsense, count, from_percent, percent, rules};

/// How fast a device is.
///
/// The program `calibrate` measures a profile on a device (`calibrate.rs`). The times are those of
/// one call in a stream of calls, whose inputs come from memory and not from a cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Profile {
    /// Where the numbers come from, in words.
    pub origin: String,
    /// Read bandwidth in bytes per second.
    pub bandwidth: u64,
    /// Host time of one launch, in nanoseconds. Calls follow each other no faster.
    pub launch_ns: u64,
    /// Time that the device takes from the end of one launch to the first load of the next, in
    /// nanoseconds.
    pub gap_ns: u64,
    /// Time from the issue of a load to its value, in nanoseconds.
    pub latency_ns: u64,
    /// Time that starting and ending a cube takes of its place on a multiprocessor, in nanoseconds.
    pub cube_ns: u64,
    /// Time from the start of one cube to that of the next on the whole device, in picoseconds. One
    /// place hands out the cubes of all multiprocessors. On an H200, 262144 cubes took 168 us,
    /// whether they had 32 units, 64 or 128.
    pub dispatch_ps: u64,
    /// Time of one step of a combination through shared memory with its barrier, for each field of
    /// the accumulator, in nanoseconds.
    pub shared_step_ns: u64,
    /// Time in which a cube moves the windows of realigned rows to their outputs, for each field of
    /// the accumulator, in nanoseconds.
    pub realign_ns: u64,
    /// Time in which a multiprocessor reads an element along realigned rows a second time and moves
    /// it to its place in a vector, in picoseconds.
    #[cfg_attr(feature = "serde", serde(default = "shift_ps"))]
    pub shift_ps: u64,
    /// Time from the publication of the last partial to its first use by the last cube, in
    /// nanoseconds.
    pub publish_ns: u64,
    /// Time by which a cube that publishes delays the others of its output, in picoseconds: they
    /// count in one place.
    pub arrive_ps: u64,
    /// Time in which a unit of the last cube reads and merges one accumulator of a partial, in
    /// nanoseconds: it reads all fields together. With any of 100 to 322 on one H200, estimates of
    /// the plans of a case differed from their times by 7.9 to 8.0 % in 76 cases with splits, and by
    /// 8.7 % with 322 for each word of 32 bits. It is the largest that leaves the choices for one
    /// field as they were measured.
    pub merge_ns: u64,
    /// Time in which a multiprocessor issues the instructions of a load, in picoseconds.
    pub load_ps: u64,
    /// Time in which a multiprocessor looks up one cache line for a load of a plane, in
    /// picoseconds. It counts for lines beyond those that the plane's bytes fill: a plane that
    /// reads two bytes in each of 32 rows touches up to 32 lines.
    pub line_ps: u64,
    /// Time in which a multiprocessor issues one step of a combination, for each unit and each word
    /// of 32 bits of its accumulator, in picoseconds.
    pub combine_ps: u64,
    /// The same for an element in an accumulator of one field.
    pub light_ps: u64,
    /// The same for an element in an accumulator of two or three fields.
    pub medium_ps: u64,
    /// The same for an element in an accumulator of more fields.
    pub heavy_ps: u64,
    /// The same for an element of which an exponential or the like is taken.
    pub transcendental_ps: u64,
    /// What the power of an element takes beside that, as in `norm_p`. On an H200, norm_p of f16
    /// [16, 206, 65536] along axis 0 took 301 us with its best plan, and its bytes take 104 us.
    pub power_ps: u64,
    /// What an element whose position counts takes beside that.
    pub position_ps: u64,
    /// What an integer takes beside that if a result is a float. Units convert each element.
    pub convert_ps: u64,
    /// What an element of eight bytes takes beside that.
    pub wide_ps: u64,
    /// How much longer an element takes in a last round that is not full, in percent. The kernel
    /// asks of each element of such a round whether it exists.
    pub partial_percent: u64,
    /// How many times as long a unit takes for its own instructions as a full multiprocessor takes
    /// for those of one unit.
    pub serial_factor: u64,
    /// How many times as long the first cubes take for the instructions of one round, which come
    /// from memory, as a full multiprocessor takes for those of one unit.
    pub first_round_factor: u64,
    /// How well waiting, moving and computing overlap: the exponent of their norm, in tenths. 10
    /// adds them up, and a large number takes the longest.
    pub overlap_tenths: u64,
    /// How much longer a cube takes if its units need twice the registers that there are, in
    /// percent.
    pub spill_percent: u64,
    /// How much of what planes read twice, at both sides of a boundary within a memory sector,
    /// comes from memory twice, in percent.
    pub sector_percent: u64,
    /// How much of that the planes of a cube share if they have one round of loads, in percent.
    /// They start together, and find each other's sectors in the cache. Later they drift apart:
    /// with `n` rounds they share an `n`th of it.
    pub first_round_percent: u64,
    /// Bandwidth of the cache that all multiprocessors share, in percent of the memory's. It counts
    /// where several cubes read the same sectors, because each output has a part of them.
    pub cache_percent: u64,
    /// Most bandwidth that one multiprocessor draws, in percent of its share of the memory's. It
    /// counts where fewer cubes than multiprocessors are left to run. On an H200 with 132
    /// multiprocessors, 56 cubes of 512 units drew 72 % of the bandwidth.
    pub multiprocessor_percent: u64,
    /// The share of the bandwidth that remains where a unit reads an inner dimension of several
    /// loads alone, in percent. It mostly finds its cache line again.
    pub lone_unit_percent: u64,
    /// The share of the bandwidth that remains where a cube gives an output no more units than a
    /// plane has, in percent.
    pub small_team_percent: u64,
    /// The share of the bandwidth that remains where adjacent units read segments of so many bytes
    /// at a time, from long to short; the shares in between are interpolated.
    pub segments: [SegmentEfficiency; 8],
    /// The registers of a unit, on which it depends how many cubes reside on a multiprocessor.
    pub registers: RegisterUse,
    /// Bytes of shared memory that the system takes of each cube. 1024 is from NVIDIA's
    /// documentation.
    pub reserved_shared_bytes: u64,
}

rules!(Profile {
    row: registers;
    count: cache_percent, multiprocessor_percent;
    percent: sector_percent, first_round_percent, lone_unit_percent, small_team_percent;
    norm_exponent: overlap_tenths;
    any: origin, bandwidth, launch_ns, gap_ns, latency_ns, cube_ns, dispatch_ps, shared_step_ns,
        realign_ns, shift_ps, publish_ns, arrive_ps, merge_ns, load_ps, line_ps, combine_ps, light_ps,
        medium_ps, heavy_ps, transcendental_ps, power_ps, position_ps, convert_ps, wide_ps,
        partial_percent, serial_factor, first_round_factor, spill_percent, segments,
        reserved_shared_bytes;
});

/// How many registers the compiler of a device gives to a unit. The planner has no compiler, so
/// most of these numbers are fitted to measured times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct RegisterUse {
    /// Registers beside those below, such as those of addresses.
    pub other: u64,
    /// Registers in which a unit computes, for each word of 32 bits of an accumulator.
    pub working: u64,
    /// Registers that a peeled access needs beside that. Not measured apart.
    pub peeling: u64,
    /// Registers come in multiples of this number. From NVIDIA's documentation.
    pub step: u64,
    /// Most registers of a unit. From NVIDIA's documentation.
    pub most: u64,
}

rules!(RegisterUse {
    count: step, most;
    any: other, working, peeling;
});

/// An entry of [`Profile::segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct SegmentEfficiency {
    /// Bytes of a segment, at least 1.
    pub bytes: usize,
    /// The share of the bandwidth that remains.
    pub percent: u64,
}

const fn segment(bytes: usize, percent: u64) -> SegmentEfficiency {
    SegmentEfficiency { bytes, percent }
}

/// [`Profile::shift_ps`] of profiles that do not say, and of NVIDIA's devices. It is computed and
/// awaits a measurement: about two and a half instructions for each element, of which a
/// multiprocessor issues 128 in 0.6 ns.
const fn shift_ps() -> u64 {
    12
}

impl RegisterUse {
    /// NVIDIA's compiler. `other` and `working` are fitted to the times of an H200.
    const fn h200() -> Self {
        Self { other: 16, working: 6, peeling: 4, step: 8, most: 255 }
    }
}

impl Profile {
    /// One NVIDIA H200 through CUDA.
    ///
    /// Fitted to the times of about 24 plans for each of 502 cases. The bandwidth is that of long
    /// samples. `multiprocessor_percent` is the one that four fits to the times of 534 cases with
    /// the kernels of CubeCL 0.11 agreed about.
    #[must_use]
    pub fn h200() -> Self {
        Self {
            origin: "fitted to 18800 times on two NVIDIA H200 through CUDA, 2026-11-29".into(),
            bandwidth: 4_430_000_000_000,
            launch_ns: 7633,
            gap_ns: 2323,
            latency_ns: 422,
            cube_ns: 360,
            dispatch_ps: 556,
            shared_step_ns: 133,
            realign_ns: 1751,
            shift_ps: shift_ps(),
            publish_ns: 2482,
            arrive_ps: 1511,
            merge_ns: 315,
            load_ps: 36,
            line_ps: 85,
            combine_ps: 20,
            light_ps: 16,
            medium_ps: 13,
            heavy_ps: 40,
            transcendental_ps: 68,
            power_ps: 110,
            position_ps: 19,
            convert_ps: 11,
            wide_ps: 54,
            partial_percent: 41,
            serial_factor: 195,
            first_round_factor: 408,
            overlap_tenths: 26,
            spill_percent: 198,
            sector_percent: 48,
            first_round_percent: 94,
            cache_percent: 179,
            multiprocessor_percent: 165,
            lone_unit_percent: 80,
            small_team_percent: 95,
            segments: [
                segment(2048, 97),
                segment(512, 92),
                segment(256, 92),
                segment(128, 91),
                segment(64, 88),
                segment(32, 88),
                segment(16, 53),
                segment(8, 25),
            ],
            registers: RegisterUse::h200(),
            reserved_shared_bytes: 1024,
        }
    }

    /// One NVIDIA H100 with HBM3 through CUDA.
    ///
    /// Fitted to the times of about 18 plans for each of 150 cases. The bandwidth and the time of a
    /// launch are those that the program `calibrate` measured. The rules were not tuned there, and
    /// `merge_ns` was fitted when it counted for each word of an accumulator.
    #[must_use]
    pub fn h100() -> Self {
        Self {
            origin: "fitted to 2675 times on one NVIDIA H100 through CUDA, 2026-11-23".into(),
            bandwidth: 3_079_884_481_483,
            launch_ns: 7538,
            gap_ns: 3766,
            latency_ns: 760,
            cube_ns: 401,
            dispatch_ps: 557,
            shared_step_ns: 90,
            realign_ns: 2075,
            shift_ps: shift_ps(),
            publish_ns: 2839,
            arrive_ps: 2884,
            merge_ns: 200,
            load_ps: 22,
            line_ps: 83,
            combine_ps: 35,
            light_ps: 9,
            medium_ps: 26,
            heavy_ps: 69,
            transcendental_ps: 101,
            power_ps: 110,
            position_ps: 19,
            convert_ps: 10,
            wide_ps: 53,
            partial_percent: 40,
            serial_factor: 109,
            first_round_factor: 305,
            overlap_tenths: 35,
            spill_percent: 160,
            sector_percent: 40,
            first_round_percent: 100,
            cache_percent: 187,
            multiprocessor_percent: 335,
            lone_unit_percent: 76,
            small_team_percent: 99,
            segments: [
                segment(2048, 100),
                segment(512, 97),
                segment(256, 92),
                segment(128, 91),
                segment(64, 80),
                segment(32, 80),
                segment(16, 80),
                segment(8, 59),
            ],
            registers: RegisterUse::h200(),
            reserved_shared_bytes: 1024,
        }
    }

    /// A device of which a data sheet tells the bandwidth. All other numbers are those of the H200,
    /// with the launches that wgpu takes there.
    fn from_data_sheet(origin: &str, bandwidth: u64) -> Self {
        let launch_ns = 10_000;
        Self { origin: origin.into(), bandwidth, launch_ns, ..Self::h200() }
    }

    /// An NVIDIA GeForce RTX 4090: 1008 GB/s, from the data sheet.
    #[must_use]
    pub fn rtx4090() -> Self {
        Self::from_data_sheet(
            "bandwidth from NVIDIA's data sheet, the rest of the H200",
            1_008_000_000_000,
        )
    }

    /// An AMD Radeon RX 7900 XTX: 960 GB/s, from the data sheet.
    #[must_use]
    pub fn rx7900xtx() -> Self {
        Self::from_data_sheet(
            "bandwidth from AMD's data sheet, the rest of the H200",
            960_000_000_000,
        )
    }

    /// An Apple M2 Max: 400 GB/s, from the technical specifications.
    #[must_use]
    pub fn m2_max() -> Self {
        Self::from_data_sheet(
            "bandwidth from Apple's specifications, the rest of the H200",
            400_000_000_000,
        )
    }

    /// Intel Iris Xe graphics of a laptop processor with LPDDR4X-4266 on 128 bits: 68 GB/s.
    #[must_use]
    pub fn iris_xe() -> Self {
        Self::from_data_sheet(
            "bandwidth of LPDDR4X-4266 on 128 bits, the rest of the H200",
            68_000_000_000,
        )
    }

    /// Mesa's software Vulkan adapter on two processor cores.
    ///
    /// Fitted to the times of about 11 plans for each of 47 cases. The model is that of a GPU: its
    /// estimates are off by 21 % there (median of the chosen plans). `merge_ns` was fitted when it
    /// counted for each word of an accumulator.
    #[must_use]
    pub fn software_adapter() -> Self {
        Self {
            origin: "fitted to 523 times on llvmpipe with two cores, 2026-11-23".into(),
            bandwidth: 136_000_000_000,
            launch_ns: 37_899,
            gap_ns: 24_556,
            latency_ns: 10,
            cube_ns: 2100,
            dispatch_ps: 176_081,
            shared_step_ns: 6399,
            realign_ns: 1995,
            shift_ps: 600,
            publish_ns: 211_088,
            arrive_ps: 301_359,
            merge_ns: 7320,
            load_ps: 3544,
            line_ps: 1021,
            combine_ps: 7129,
            light_ps: 1308,
            medium_ps: 739,
            heavy_ps: 2715,
            transcendental_ps: 2659,
            power_ps: 8907,
            position_ps: 3168,
            convert_ps: 98,
            wide_ps: 500,
            partial_percent: 65,
            serial_factor: 19,
            first_round_factor: 1,
            overlap_tenths: 18,
            spill_percent: 200,
            sector_percent: 40,
            first_round_percent: 1,
            cache_percent: 187,
            multiprocessor_percent: 100,
            lone_unit_percent: 100,
            small_team_percent: 100,
            segments: [
                segment(2048, 100),
                segment(512, 100),
                segment(256, 100),
                segment(128, 100),
                segment(64, 100),
                segment(32, 100),
                segment(16, 90),
                segment(8, 80),
            ],
            registers: RegisterUse::h200(),
            reserved_shared_bytes: 1024,
        }
    }

    /// The share of the bandwidth that remains where adjacent units read segments of `bytes` bytes.
    pub(crate) fn efficiency_of_segment(&self, bytes: usize) -> f64 {
        let [longest, .., shortest] = &self.segments;
        if bytes >= longest.bytes {
            return from_percent(longest.percent);
        }
        if bytes <= shortest.bytes {
            return from_percent(shortest.percent);
        }
        let after = self.segments.iter().position(|entry| entry.bytes <= bytes).unwrap_or(1);
        let (long, short) = (self.segments[after - 1], self.segments[after]);
        let (low, high) = (short.percent as f64, long.percent as f64);
        let part = (bytes - short.bytes) as f64 / (long.bytes - short.bytes) as f64;
        (low + part * (high - low)) / 100.0
    }

    /// Checks that every number makes sense.
    ///
    /// # Errors
    ///
    /// A number that does not.
    pub(crate) fn check(&self) -> Result<(), Nonsense> {
        self.check_rules("")?;
        let (row, mut before) = ("segments.", None);
        for &SegmentEfficiency { bytes, percent: share } in &self.segments {
            percent(share).map_err(|expected| Nonsense::new(row, "percent", share, expected))?;
            count(bytes as u64).map_err(|expected| Nonsense::new(row, "bytes", bytes, expected))?;
            if before.is_some_and(|before| bytes >= before) {
                return Err(Nonsense::new(row, "bytes", bytes, "less than in the entry before"));
            }
            before = Some(bytes);
        }
        Ok(())
    }
}

fn norm_exponent(value: u64) -> Result<(), &'static str> {
    (10..=1000).contains(&value).then_some(()).ok_or("from 10 to 1000")
}
