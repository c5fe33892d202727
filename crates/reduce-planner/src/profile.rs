//! The speed of a device, as data: what the cost model needs.

use crate::tuning::{Nonsense, check, count, percent};

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
    /// Time of one step of a combination through shared memory with its barrier, for each field of
    /// the accumulator, in nanoseconds.
    pub shared_step_ns: u64,
    /// Time in which a cube moves the windows of realigned rows to their outputs, for each field of
    /// the accumulator, in nanoseconds.
    pub realign_ns: u64,
    /// Time from the publication of the last partial to its first use by the last cube, in
    /// nanoseconds.
    pub publish_ns: u64,
    /// Time by which a cube that publishes delays the others of its output, in picoseconds: they
    /// count in one place.
    pub arrive_ps: u64,
    /// Time in which a unit of the last cube reads and merges one word of 32 bits of a partial, in
    /// nanoseconds.
    pub merge_ns: u64,
    /// Time in which a multiprocessor issues the instructions of a load, in picoseconds.
    pub load_ps: u64,
    /// The same for an element in an accumulator of one field.
    pub light_ps: u64,
    /// The same for an element in an accumulator of two or three fields.
    pub medium_ps: u64,
    /// The same for an element in an accumulator of more fields.
    pub heavy_ps: u64,
    /// The same for an element of which an exponential or the like is taken.
    pub transcendental_ps: u64,
    /// What an element whose position counts takes beside that.
    pub position_ps: u64,
    /// What an element of eight bytes takes beside that.
    pub wide_ps: u64,
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
    /// The share of the bandwidth that remains where a unit reads an inner dimension of several
    /// loads alone, in percent. It mostly finds its cache line again.
    pub lone_unit_percent: u64,
    /// The share of the bandwidth that remains where a cube gives an output no more units than a
    /// plane has, in percent.
    pub small_team_percent: u64,
    /// The share of the bandwidth that remains where adjacent units read segments of so many bytes
    /// at a time, from long to short; the shares in between are interpolated.
    pub segments: [SegmentEfficiency; 8],
}

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

impl Profile {
    /// One NVIDIA H200 through CUDA.
    ///
    /// Fitted to the times of about 24 plans for each of 502 cases. The bandwidth is that of long
    /// samples.
    #[must_use]
    pub fn h200() -> Self {
        Self {
            origin: "fitted to 11000 times on one NVIDIA H200 through CUDA, 2026-11-23".into(),
            bandwidth: 4_430_000_000_000,
            launch_ns: 7633,
            gap_ns: 1894,
            latency_ns: 468,
            cube_ns: 340,
            shared_step_ns: 186,
            realign_ns: 1995,
            publish_ns: 2750,
            arrive_ps: 2997,
            merge_ns: 364,
            load_ps: 18,
            light_ps: 14,
            medium_ps: 26,
            heavy_ps: 63,
            transcendental_ps: 108,
            position_ps: 15,
            wide_ps: 52,
            serial_factor: 220,
            first_round_factor: 300,
            overlap_tenths: 27,
            spill_percent: 200,
            sector_percent: 40,
            lone_unit_percent: 68,
            small_team_percent: 92,
            segments: [
                segment(2048, 99),
                segment(512, 95),
                segment(256, 94),
                segment(128, 93),
                segment(64, 90),
                segment(32, 89),
                segment(16, 50),
                segment(8, 25),
            ],
        }
    }

    /// One NVIDIA H100 with HBM3 through CUDA, as the program `calibrate` measured it. No plan was
    /// tuned there.
    #[must_use]
    pub fn h100() -> Self {
        Self {
            origin: "measured on one NVIDIA H100 through CUDA by calibrate, 2026-11-23".into(),
            bandwidth: 3_079_884_481_483,
            launch_ns: 7538,
            gap_ns: 1507,
            latency_ns: 563,
            cube_ns: 340,
            shared_step_ns: 91,
            realign_ns: 1995,
            publish_ns: 2753,
            arrive_ps: 2997,
            merge_ns: 283,
            load_ps: 18,
            light_ps: 14,
            medium_ps: 26,
            heavy_ps: 63,
            transcendental_ps: 91,
            position_ps: 15,
            wide_ps: 52,
            serial_factor: 220,
            first_round_factor: 300,
            overlap_tenths: 35,
            spill_percent: 200,
            sector_percent: 40,
            lone_unit_percent: 82,
            small_team_percent: 100,
            segments: [
                segment(2048, 100),
                segment(512, 97),
                segment(256, 97),
                segment(128, 94),
                segment(64, 82),
                segment(32, 79),
                segment(16, 74),
                segment(8, 25),
            ],
        }
    }

    /// A device of which a data sheet tells the bandwidth. All other numbers are those of the H200,
    /// with the launches that wgpu takes there.
    fn of_data_sheet(origin: &str, bandwidth: u64) -> Self {
        let launch_ns = 10_000;
        Self { origin: origin.into(), bandwidth, launch_ns, ..Self::h200() }
    }

    /// An NVIDIA GeForce RTX 4090: 1008 GB/s, from the data sheet.
    #[must_use]
    pub fn rtx4090() -> Self {
        Self::of_data_sheet(
            "bandwidth from NVIDIA's data sheet, the rest of the H200",
            1_008_000_000_000,
        )
    }

    /// An AMD Radeon RX 7900 XTX: 960 GB/s, from the data sheet.
    #[must_use]
    pub fn rx7900xtx() -> Self {
        Self::of_data_sheet(
            "bandwidth from AMD's data sheet, the rest of the H200",
            960_000_000_000,
        )
    }

    /// An Apple M2 Max: 400 GB/s, from the technical specifications.
    #[must_use]
    pub fn m2_max() -> Self {
        Self::of_data_sheet(
            "bandwidth from Apple's specifications, the rest of the H200",
            400_000_000_000,
        )
    }

    /// Intel Iris Xe graphics of a laptop processor with LPDDR4X-4266 on 128 bits: 68 GB/s.
    #[must_use]
    pub fn iris_xe() -> Self {
        Self::of_data_sheet(
            "bandwidth of LPDDR4X-4266 on 128 bits, the rest of the H200",
            68_000_000_000,
        )
    }

    /// Mesa's software Vulkan adapter on two processor cores.
    ///
    /// Fitted to the times of about 11 plans for each of 47 cases. The model is that of a GPU: its
    /// estimates are off by 29 % there (median of the chosen plans).
    #[must_use]
    pub fn software_adapter() -> Self {
        Self {
            origin: "fitted to 523 times on llvmpipe with two cores, 2026-11-23".into(),
            bandwidth: 136_000_000_000,
            launch_ns: 37_516,
            gap_ns: 30_563,
            latency_ns: 10,
            cube_ns: 2100,
            shared_step_ns: 8188,
            realign_ns: 1995,
            publish_ns: 115_595,
            arrive_ps: 300_000,
            merge_ns: 2000,
            load_ps: 3678,
            light_ps: 1254,
            medium_ps: 1807,
            heavy_ps: 2681,
            transcendental_ps: 7365,
            position_ps: 980,
            wide_ps: 500,
            serial_factor: 25,
            first_round_factor: 1,
            overlap_tenths: 15,
            spill_percent: 200,
            sector_percent: 40,
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
        }
    }

    /// The share of the bandwidth that remains where adjacent units read segments of `bytes` bytes.
    pub(crate) fn efficiency_of_segment(&self, bytes: usize) -> f64 {
        let [longest, .., shortest] = &self.segments;
        if bytes >= longest.bytes {
            return longest.percent as f64 / 100.0;
        }
        if bytes <= shortest.bytes {
            return shortest.percent as f64 / 100.0;
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
        // Every field is named here, so that a new one is not forgotten.
        let Self {
            origin: _,
            bandwidth: _,
            launch_ns: _,
            gap_ns: _,
            latency_ns: _,
            cube_ns: _,
            shared_step_ns: _,
            realign_ns: _,
            publish_ns: _,
            arrive_ps: _,
            merge_ns: _,
            load_ps: _,
            light_ps: _,
            medium_ps: _,
            heavy_ps: _,
            transcendental_ps: _,
            position_ps: _,
            wide_ps: _,
            serial_factor: _,
            first_round_factor: _,
            overlap_tenths,
            spill_percent: _,
            sector_percent,
            lone_unit_percent,
            small_team_percent,
            segments,
        } = self;
        let (overlap_tenths, sector_percent) = (*overlap_tenths, *sector_percent);
        let (lone_unit_percent, small_team_percent) = (*lone_unit_percent, *small_team_percent);
        check!("", norm_exponent, overlap_tenths);
        check!("", percent, sector_percent, lone_unit_percent, small_team_percent);
        let (row, mut before) = ("segments.", None);
        for &SegmentEfficiency { bytes, percent: share } in segments {
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
