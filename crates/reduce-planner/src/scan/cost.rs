//! What a plan for a scan should take.

use super::{ScanPlan, plan::has_long_functions};
use crate::{
    choose::norm,
    device::Device,
    estimate::Estimate,
    plan::{Access, Combine},
    problem::{Direction, ScanProblem},
};

impl ScanPlan {
    /// What the plan should take for `problem` on `device`: its bytes at the bandwidth, the chunks
    /// that cubes wait for one after the other, and its launches.
    #[must_use]
    pub fn estimate(&self, problem: &ScanProblem, device: &Device) -> Estimate {
        let (profile, tuning) = (&device.profile, device.tuning.scan);
        let launches = f64::from(self.launches());
        // The first of two launches reads the input too.
        let bytes = match self.launches() {
            2 => problem.bytes().saturating_add(problem.read_bytes()),
            _ => problem.bytes(),
        };
        let bandwidth = profile.bandwidth.max(1) as f64 * 1e-9;
        let transfer_ns = bytes as f64 / bandwidth;
        let locality = self.locality(problem, device);
        let resident_cubes = self.resident_cubes(problem, device);
        let places = f64::from(resident_cubes) * f64::from(device.multiprocessors);
        let waves = (self.cubes(problem) as f64 / places).max(1.0);
        let exchange_ns = match (self.units_per_output, self.combine) {
            (0 | 1, _) => 0.0,
            (_, Combine::Plane { .. }) => f64::from(tuning.plane_exchange_ns),
            (_, Combine::Shared) => f64::from(tuning.shared_exchange_ns),
        };
        let chunks = self.chunks_per_cube(problem) as f64;
        let waited = profile.latency_ns as f64 + exchange_ns;
        let of_cube = profile.cube_ns as f64 + chunks * waited;
        let waiting_ns = launches * waves.ceil() * of_cube;
        let exponent = profile.overlap_tenths.max(10) as f64 / 10.0;
        let busy = f64::from(device.multiprocessors).min(self.cubes(problem) as f64).max(1.0);
        let issue_ns = launches * self.merging_ps(problem, device) * 1e-3 / busy;
        // Cubes that look back wait for each other. On one H200, the running sum of bf16 59 × 2 ×
        // 69,028 along axis 2 took 29.5 us in 3 cubes for each row, and 18.2 in one.
        let merge_ns = if self.looks_back() { profile.publish_ns as f64 } else { 0.0 };
        Estimate {
            issue_ns,
            together_ns: norm([waiting_ns, transfer_ns / locality, issue_ns], exponent),
            rounds: self.chunks_per_cube(problem),
            resident_cubes,
            waves,
            merge_ns,
            ..Estimate::streamed(
                launches * profile.launch_ns as f64,
                launches * profile.gap_ns as f64,
                waiting_ns,
                transfer_ns,
                locality,
            )
        }
    }

    /// Picoseconds in which one multiprocessor would merge what the units of rows have for each
    /// chunk: each unit in as many steps as halve them, and once before and after, where that takes
    /// long. Variances of bf16 65,536 × 1024 took 209 us on one H200 in 32 lanes with 4 loads, 152 in
    /// 16 with 8, and 133 in 8 with 8.
    fn merging_ps(&self, problem: &ScanProblem, device: &Device) -> f64 {
        let of_row = problem.problem();
        let merges = self.units_per_output > 1 && self.access.direction == Direction::Along;
        if !merges || !has_long_functions(problem) {
            return 0.0;
        }
        let units = of_row.outputs() as f64 * f64::from(self.units_per_output);
        let steps = f64::from(self.units_per_output.ilog2()) + 2.0;
        let of_field = f64::from(device.tuning.scan.merge_ps);
        units * self.chunks(problem) as f64 * steps * of_row.operator().fields as f64 * of_field
    }

    /// The share of the memory's rate that remains where neighbouring units read short segments.
    fn locality(&self, problem: &ScanProblem, device: &Device) -> f64 {
        let of_row = problem.problem();
        let Access { direction, vector, .. } = self.access;
        let load = vector.saturating_mul(of_row.input().bytes());
        let side_by_side = match direction {
            // The rows of a chunk follow each other in memory if each is one chunk.
            Direction::Along if self.chunks(problem) <= 1 => self.units_per_cube(),
            // Lanes that exchange elements read a chunk one line after the other.
            Direction::Along if self.transposes(problem) => {
                self.units_per_output.saturating_mul(self.access.loads_in_flight as u32)
            }
            Direction::Along => self.units_per_output,
            Direction::Across => self.outputs_per_cube,
        };
        let bytes = load.saturating_mul(side_by_side as usize);
        let whole = device.tuning.line_bytes.max(1);
        (bytes.min(whole) as f64 / whole as f64).max(0.1)
    }
}
