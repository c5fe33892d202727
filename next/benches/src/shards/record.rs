//! The times of one run of `shards`, as JSON and as lines.

use std::{fmt, path::Path};

use reduce_kernels::Device;
use reduce_programs::{FileError, gigabytes_per_second, write};
use serde::{Deserialize, Serialize};

use super::{CutCase, Work};

/// Everything that one run of `shards` measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardsRecord {
    /// CubeCL's name of the runtime: `cuda`, `wgpu<spirv>`.
    pub runtime: String,
    /// The first device as the planner sees it.
    pub device: Device,
    /// Number of devices.
    pub devices: usize,
    /// Why shards were simulated on one device; `None` if they lay on several.
    pub lack: Option<String>,
    /// The times on several devices.
    pub timings: Vec<ShardsTiming>,
    /// The times of shards that were simulated on one device.
    pub simulated: Vec<SimulatedTiming>,
    /// Tensors that do not fit the memory of their devices.
    pub skipped: Vec<Skipped>,
}

/// The time of an operator on some devices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShardsTiming {
    /// The operator.
    pub work: Work,
    /// The tensor.
    pub case: CutCase,
    /// Number of devices.
    pub gpus: usize,
    /// Time per call in a stream of back-to-back calls, until the last device has finished.
    pub microseconds: f64,
    /// Bytes of the whole tensor over `microseconds`, in 10⁹ bytes per second.
    pub gigabytes_per_second: f64,
    /// For each shard, the time of an ordinary reduction of it while the other devices idle.
    /// Empty on one device.
    pub local_microseconds: Vec<f64>,
    /// [`exchange_microseconds`]; `None` on one device.
    pub exchange_microseconds: Option<f64>,
    /// [`efficiency`]; `None` if the tensor was not timed on one device.
    pub efficiency: Option<f64>,
}

/// The time of shards that lie on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulatedTiming {
    /// The operator.
    pub work: Work,
    /// The tensor.
    pub case: CutCase,
    /// Number of shards.
    pub shards: usize,
    /// Time of the reduction of all shards to partial results and of their merge.
    pub microseconds: f64,
    /// Time of an ordinary reduction of the whole tensor.
    pub whole_microseconds: f64,
}

/// A tensor that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The tensor.
    pub case: CutCase,
    /// Number of devices, or of simulated shards.
    pub gpus: usize,
    /// Bytes that one device needs for its shard.
    pub needed: u64,
    /// Bytes that it has for a shard.
    pub available: u64,
}

/// The rate on some devices, over that of as many single ones: 1 if the exchange costs nothing.
pub fn efficiency(rate: f64, gpus: usize, rate_of_one: f64) -> f64 {
    rate / (gpus as f64 * rate_of_one)
}

/// What a call takes beyond the slowest of the reductions of single shards: the exchange, the merge
/// and the host's work for the other devices. `None` for less than two shards. It can be below 0
/// where both are equal up to noise.
pub fn exchange_microseconds(call: f64, local: &[f64]) -> Option<f64> {
    let slowest = local.iter().copied().reduce(f64::max)?;
    (local.len() > 1).then_some(call - slowest)
}

impl ShardsTiming {
    /// States the times, with what follows from them. `rate_of_one` is the rate on one device.
    pub fn new(
        work: Work,
        case: CutCase,
        gpus: usize,
        microseconds: f64,
        local_microseconds: Vec<f64>,
        rate_of_one: Option<f64>,
    ) -> Self {
        let rate = gigabytes_per_second(case.bytes(case.rows), microseconds);
        Self {
            work,
            gpus,
            microseconds,
            gigabytes_per_second: rate,
            exchange_microseconds: exchange_microseconds(microseconds, &local_microseconds),
            local_microseconds,
            efficiency: rate_of_one.map(|of_one| efficiency(rate, gpus, of_one)),
            case,
        }
    }
}

impl fmt::Display for ShardsTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { work, case, gpus, microseconds, gigabytes_per_second, .. } = self;
        write!(
            f,
            "SHARDS {work} {case} on {gpus}: {microseconds:.1} us {gigabytes_per_second:.0} GB/s"
        )?;
        if let Some(efficiency) = self.efficiency {
            write!(f, ", efficiency {efficiency:.2}")?;
        }
        match self.exchange_microseconds {
            Some(exchange) => write!(f, ", exchange {exchange:.1} us"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SimulatedTiming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { work, case, shards, microseconds, whole_microseconds } = self;
        let rate = gigabytes_per_second(case.bytes(case.rows), *microseconds);
        let ratio = microseconds / whole_microseconds;
        write!(
            f,
            "SIMULATED {work} {case} in {shards}: {microseconds:.1} us {rate:.1} GB/s, \
             whole {whole_microseconds:.1} us, ratio {ratio:.2}"
        )
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { case, gpus, needed, available } = self;
        write!(
            f,
            "SKIPPED {case} on {gpus}: a shard needs {needed} bytes, a device has {available}"
        )
    }
}

impl ShardsRecord {
    /// Writes the record, whole or not at all.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let mut text = serde_json::to_string_pretty(self).expect("a record has no keys but text");
        text.push('\n');
        write(path, &text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_was_measured() {
        let case = CutCase { rows: 1 << 32, outputs: None };
        let one = ShardsTiming::new(Work::Sum, case.clone(), 1, 3720.0, vec![], None);
        assert_eq!(one.to_string(), "SHARDS sum f32 [4294967296] axis 0 on 1: 3720.0 us 4618 GB/s");
        let rate_of_one = Some(one.gigabytes_per_second);
        let two = ShardsTiming::new(Work::Sum, case, 2, 1900.0, vec![1875.0, 1862.0], rate_of_one);
        assert_eq!(
            two.to_string(),
            "SHARDS sum f32 [4294967296] axis 0 on 2: 1900.0 us 9042 GB/s, efficiency 0.98, \
             exchange 25.0 us"
        );
    }

    #[test]
    fn efficiency_and_exchange_follow_from_times() {
        assert_eq!(efficiency(9000.0, 2, 4500.0), 1.0);
        assert_eq!(efficiency(9000.0, 4, 4500.0), 0.5);
        assert_eq!(exchange_microseconds(30.0, &[10.0, 12.5, 11.0]), Some(17.5));
        assert_eq!(exchange_microseconds(10.0, &[10.5, 9.0]), Some(-0.5));
        assert_eq!(exchange_microseconds(30.0, &[10.0]), None);
        assert_eq!(exchange_microseconds(30.0, &[]), None);
    }

    #[test]
    fn a_skipped_case_has_both_sizes() {
        let case = CutCase { rows: 50_000_000_000, outputs: None };
        let (needed, available) = (200_000_000_000, 140_000_000_000);
        assert_eq!(
            Skipped { case, gpus: 1, needed, available }.to_string(),
            "SKIPPED f32 [50000000000] axis 0 on 1: a shard needs 200000000000 bytes, a device has \
             140000000000"
        );
    }
}
