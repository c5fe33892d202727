//! The time that no reduction can undercut, measured in the same run.

use reduce_kernels::{ElementType, Sum, cubecl::prelude::*, reduce};
use serde::{Deserialize, Serialize};

use crate::{
    measure::{MeasureError, gigabytes_per_second, microseconds_per_call},
    random::random_inputs,
};

/// Smallest sum that measures the read bandwidth, in bytes, unless the limit is lower.
const SMALLEST_SUM: u64 = 1 << 30;

/// How often its size doubles, up to the limit.
const DOUBLINGS: u32 = 2;

/// The two costs of which floors consist.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Floor {
    /// The best rate of full f32 sums of 1, 2 and 4 GiB, in 10⁹ bytes per second. If the limit is
    /// below 4 GiB, a sum as large as the limit replaces those above it.
    pub read_gigabytes_per_second: f64,
    /// The time per call of a sum of 1024 elements in a stream of calls, in microseconds: the cost
    /// of one launch.
    pub launch_microseconds: f64,
}

impl Floor {
    /// Measures both, with sums of at most `most_bytes`.
    ///
    /// # Errors
    ///
    /// What the library refuses and what the device reports.
    pub fn measure(
        client: &Client,
        most_bytes: u64,
        sample_seconds: f64,
    ) -> Result<Self, MeasureError> {
        let most = most_bytes.min(largest_buffer(client));
        let mut sizes: Vec<u64> = (0..=DOUBLINGS).map(|i| SMALLEST_SUM << i).collect();
        let largest = most.min(SMALLEST_SUM << DOUBLINGS);
        sizes.retain(|&bytes| bytes < largest);
        sizes.push(largest);
        let mut read = 0.0f64;
        for bytes in sizes {
            let elements = bytes / 4;
            let us = sum_microseconds(client, elements, sample_seconds)?;
            read = read.max(gigabytes_per_second(4 * elements, us));
        }
        let launch_microseconds = sum_microseconds(client, 1024, sample_seconds)?;
        Ok(Self { read_gigabytes_per_second: read, launch_microseconds })
    }

    /// Least microseconds in which a call can move `bytes`.
    pub fn microseconds(&self, bytes: u64) -> f64 {
        bytes as f64 / self.read_gigabytes_per_second / 1e3 + self.launch_microseconds
    }
}

/// Most bytes that a buffer can have: CubeCL rounds what it allocates up to whole units of
/// alignment.
pub fn largest_buffer(client: &Client) -> u64 {
    let memory = &client.properties().memory;
    memory.max_page_size / memory.alignment * memory.alignment
}

fn sum_microseconds(
    client: &Client,
    elements: u64,
    sample_seconds: f64,
) -> Result<f64, MeasureError> {
    let shape = [elements as usize];
    let inputs = random_inputs(client, ElementType::F32, &shape, &[1], None);
    let mut rotation = inputs.iter().cycle();
    let us = microseconds_per_call(client, sample_seconds, || {
        reduce(Sum, rotation.next().expect("there is an input")).run(client)?;
        Ok(())
    })?;
    drop(inputs);
    client.memory_cleanup().expect("no program records a graph");
    Ok(us)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units: GB/s are bytes per nanosecond.
    #[test]
    fn a_floor_is_a_launch_and_the_bytes() {
        let floor = Floor { read_gigabytes_per_second: 4000.0, launch_microseconds: 9.0 };
        assert!((floor.microseconds(4_000_000_000) - 1009.0).abs() < 1e-9);
    }
}
