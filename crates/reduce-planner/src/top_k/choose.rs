//! The choice of a plan for a selection, step by step. Read [`choose_top_k`] from top to bottom.

use super::plan::{TopKMethod, TopKPlan};
use crate::{
    choose::{Choice, Explained, cubes_wanted, floor_power_of_two},
    device::Device,
    error::PlanError,
    estimate::Estimate,
    limits,
    plan::Access,
    problem::{Direction, TopKProblem},
    refusal::NoRefusal,
};

impl Explained for TopKPlan {
    type Refusal = NoRefusal;
}

/// Chooses a plan for a selection on a device.
///
/// # Errors
///
/// The description of the device makes no sense, the device lacks an element type or wide indices,
/// or its shared memory does not hold twice `k` entries.
pub fn choose_top_k(problem: &TopKProblem, device: &Device) -> Result<Choice<TopKPlan>, PlanError> {
    let tuning = device.tuning.top_k;
    let slices = problem.slices();
    let (len, k) = (slices.reduction_len() as u64, problem.k() as u64);

    // 1. No plan can run a type that the device lacks, or indices that are too narrow.
    limits::check_limits(slices, device, problem.output_span() as u64)?;

    // 2. Slices are read in vectors along themselves, or element by element side by side. A unit
    //    offers only so many elements at a time.
    let access = access(problem, device);

    // 3. A buffer holds a short slice as a whole. Of a long one, it holds `k` entries and as many as
    //    pass the threshold before the next cut.
    let most = u64::from(tuning.units_per_cube.min(device.max_units_per_cube));
    let adjacent = match access.direction {
        Direction::Along => 1,
        // Four units of a slice count by digits of 4 bits.
        Direction::Across => u64::from(tuning.adjacent_slices).min(most / 4).max(1),
    };
    let wanted = (4 * k).max(u64::from(tuning.buffer) / adjacent);
    let needed = (2 * k).min(len).max(2);
    let held = wanted.min(len).max(needed).next_power_of_two();

    // 4. Each unit of a slice has a few loads of it, and its entries fit registers.
    let offered = (access.vector * access.loads_in_flight) as u64;
    let wanted = (len / offered).max(held / u64::from(tuning.entries_per_unit));
    let (least, widest) = (u64::from(tuning.least_units).min(most), (most / adjacent).max(1));
    let units = floor_power_of_two(wanted.clamp(least.min(widest), widest));
    // Digits of 8 bits take half as many counts, and 1 KiB of shared memory for each slice.
    let many = adjacent == 1 && units >= 16 && len > u64::from(tuning.few_elements);
    let mut plan = TopKPlan {
        version: TopKPlan::VERSION,
        method: TopKMethod::Buffer,
        access,
        units_per_slice: u32::try_from(units).unwrap_or(u32::MAX),
        slices_per_cube: 1,
        cubes_per_slice: 1,
        buffer: u32::try_from(held.max(units)).unwrap_or(1 << 31),
        digit_bits: if many { 8 } else { 4 },
    };
    // Where shared memory is short, the buffer is as small as `k` and the units allow. One that would
    // not hold what `k` needs serves as a run.
    let entries = u64::from(TopKPlan::MOST_ENTRIES_PER_UNIT);
    while !plan.fits(entries, problem, device) && u64::from(plan.buffer) / 2 >= needed.max(units) {
        plan.buffer /= 2;
    }
    while !plan.fits(entries, problem, device) && 2 * u64::from(plan.units_per_slice) <= most {
        plan.units_per_slice *= 2;
    }
    if !plan.fits(entries, problem, device) {
        plan = runs(plan, problem, device);
        plan.check(problem, device)?;
        let estimate = plan.estimate(problem, device);
        return Ok(Choice::only(plan, estimate));
    }

    // 5. A cube takes several slices if they are short, or read side by side.
    let outputs = slices.outputs().max(1) as u64;
    let together = match access.direction {
        Direction::Along => most / u64::from(plan.units_per_slice),
        Direction::Across => adjacent,
    };
    let together = floor_power_of_two(together.min(outputs.next_power_of_two()).max(1));
    while u64::from(plan.slices_per_cube) < together {
        let doubled = TopKPlan { slices_per_cube: 2 * plan.slices_per_cube, ..plan };
        let units = u64::from(doubled.units_per_slice) * u64::from(doubled.slices_per_cube);
        if units > most || doubled.shared_bytes(problem) > device.shared_memory_bytes {
            break;
        }
        plan = doubled;
    }

    // 6. Few long slices are shared by several cubes, each of which leaves its first `k` elements.
    let wanted = cubes_wanted(device, tuning.cubes_per_multiprocessor);
    let rounds = u64::from(tuning.least_rounds).saturating_mul(offered);
    let each = rounds.saturating_mul(plan.units_per_slice.into()).max(4 * k);
    let cubes = (wanted / plan.cubes(problem).max(1)).min(len / each.max(1)).max(1);
    if cubes > 1 {
        plan.cubes_per_slice = u32::try_from(cubes).unwrap_or(u32::MAX);
    }
    plan.check(problem, device)?;
    let estimate = plan.estimate(problem, device);
    Ok(Choice::only(plan, estimate))
}

/// The plan of runs as long as the device's shared memory and `units` of a cube allow.
fn runs(plan: TopKPlan, problem: &TopKProblem, device: &Device) -> TopKPlan {
    let tuning = device.tuning.top_k;
    let access = Access::new(plan.access.direction);
    let units =
        tuning.units_per_cube.min(floor_power_of_two(device.max_units_per_cube.into()) as u32);
    let len = problem.slices().reduction_len();
    let buffer = units.saturating_mul(tuning.entries_per_unit);
    let mut plan = TopKPlan {
        method: TopKMethod::Runs,
        access,
        units_per_slice: units,
        slices_per_cube: 1,
        buffer,
        digit_bits: 2,
        ..plan
    };
    while plan.shared_bytes(problem) > device.shared_memory_bytes && plan.buffer > 1 {
        plan.buffer /= 2;
        plan.units_per_slice = plan.units_per_slice.min(plan.buffer);
    }
    plan.cubes_per_slice = u32::try_from(len.div_ceil(plan.buffer as usize)).unwrap_or(u32::MAX);
    plan
}

/// How the slices are read.
fn access(problem: &TopKProblem, device: &Device) -> Access {
    let slices = problem.slices();
    let widest = Access::widest(slices, device);
    let bytes = device.tuning.top_k.bytes_in_flight;
    let access = match widest.direction {
        Direction::Along => widest,
        Direction::Across => Access::new(Direction::Across),
    };
    let loads = (bytes / (access.vector * slices.input().bytes())).max(1);
    let most = (TopKPlan::MOST_OFFERED / access.vector).min(Access::MOST_LOADS_IN_FLIGHT);
    access.with_loads_in_flight(loads.min(most).max(1))
}

impl TopKPlan {
    /// Whether units take the entries of the buffer, so many each, and shared memory holds them.
    fn fits(&self, entries: u64, problem: &TopKProblem, device: &Device) -> bool {
        u64::from(self.buffer) <= entries * u64::from(self.units_per_slice)
            && self.shared_bytes(problem) <= device.requestable_shared_bytes()
    }

    /// What the plan should take for `problem` on `device`: the bytes at the bandwidth, and the
    /// launches.
    #[must_use]
    pub fn estimate(&self, problem: &TopKProblem, device: &Device) -> Estimate {
        let profile = &device.profile;
        let launches = f64::from(self.launch_count());
        // Each merge reads and writes what the one before has left.
        let bytes = problem.bytes() as f64 * if launches > 2.0 { 4.0 * launches } else { 1.0 };
        let bandwidth = profile.bandwidth.max(1) as f64 * 1e-9;
        Estimate::streamed(
            launches * profile.launch_ns as f64,
            launches * profile.gap_ns as f64,
            2.0 * profile.latency_ns as f64,
            bytes / bandwidth,
            1.0,
        )
    }
}
