//! The choice of a plan for a selection, step by step. Read [`choose_top_k`] from top to bottom.

use super::plan::{TopKMethod, TopKPlan};
use crate::{
    choose::{Choice, Explained, cubes_wanted, floor_power_of_two},
    device::Device,
    error::PlanError,
    estimate::Estimate,
    limits,
    plan::Access,
    problem::{Direction, Problem, TopKProblem},
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
/// or a grid of as many cubes as there are runs.
pub fn choose_top_k(problem: &TopKProblem, device: &Device) -> Result<Choice<TopKPlan>, PlanError> {
    // 1. No plan can run a type that the device lacks, or indices that are too narrow.
    limits::check_limits(problem.slices(), device, problem.output_span() as u64)?;

    // 2. A few units hold a short slice in registers. Of others, a buffer in shared memory holds
    //    what may be among the first elements. Where that does not hold what `k` needs, it serves
    //    as a run. Few elements with given numbers are found in windows if a buffer would have a
    //    large part of a row that a cache holds, or if there are so many rows that reading each a
    //    few times is sooner done than sorting.
    let windows = in_windows(problem, device);
    let tuning = device.tuning.top_k;
    let slices = problem.slices();
    let (words, _) = TopKPlan::entry_words(problem);
    let is_cached = slices.reduction_len() <= tuning.cached_words as usize / words;
    let is_most = problem.k() >= slices.reduction_len() / tuning.window_fraction.max(1) as usize;
    let plan = in_registers(problem, device)
        .or_else(|| windows.filter(|_| is_cached && is_most))
        .or_else(|| buffered(problem, device))
        .unwrap_or_else(|| {
            let runs = in_runs(problem, device);
            let time = |plan: &TopKPlan| plan.estimate(problem, device).device_ns();
            windows.filter(|plan| time(plan) < time(&runs)).unwrap_or(runs)
        });
    plan.check(problem, device)?;
    let estimate = plan.estimate(problem, device);
    Ok(Choice::only(plan, estimate))
}

/// The plan of slices in registers, if they are short and `k` is small.
fn in_registers(problem: &TopKProblem, device: &Device) -> Option<TopKPlan> {
    let tuning = device.tuning.top_k;
    let slices = problem.slices();
    let (len, k) = (slices.reduction_len(), problem.k());
    let adjacent = adjacent_slices(slices.outputs(), widest(slices, device).direction, device);

    // 1. Each unit has about as many elements as registers hold, and there are as many units as
    //    selected elements, so that one of their first elements is a threshold.
    let most = tuning.held_units.min(device.max_units_per_cube / adjacent).max(1) as usize;
    let usual = len.div_ceil(tuning.held_elements as usize).next_power_of_two().min(most);
    let units = usual.max(k.min(len).next_power_of_two());
    if units > most || len.div_ceil(units) > tuning.most_held_elements as usize {
        return None;
    }
    let units = u32::try_from(units).ok()?;

    // 2. They are read in vectors if these divide the slices.
    let access = widest(slices, device);
    let access = if access.peeled { Access::new(access.direction) } else { access };
    let loads = len.div_ceil(access.vector * units as usize).max(1);
    let access = access.with_loads_in_flight(loads);

    let plan =
        TopKPlan { method: TopKMethod::Registers, units_per_slice: units, ..TopKPlan::new(access) };
    let needed = u32::try_from(plan.needed(problem)).ok()?;
    let plan = TopKPlan { buffer: needed.next_power_of_two(), ..plan };
    let most = u64::from(tuning.together_units.min(device.max_units_per_cube));
    let plan = plan.with_slices(most, together(access.direction, adjacent.into()), problem, device);
    plan.check(problem, device).is_ok().then_some(plan)
}

/// The plan of windows, if few elements with given numbers of long rows are written.
fn in_windows(problem: &TopKProblem, device: &Device) -> Option<TopKPlan> {
    let tuning = device.tuning.top_k;
    let slices = problem.slices();
    let len = slices.reduction_len();
    if len < tuning.least_window as usize || problem.written() > TopKPlan::FEW_NUMBERS {
        return None;
    }

    let (words, _) = TopKPlan::entry_words(problem);
    let access = widest(slices, device);
    let loads = tuning.window_words as usize / words / access.vector;
    let most = floor_power_of_two(tuning.units_per_cube.min(device.max_units_per_cube).into());
    // Less than a plane would leave some of its units idle.
    let units = len.div_ceil(tuning.window_elements.max(1) as usize).next_power_of_two() as u64;
    let units = units.max(floor_power_of_two(device.plane_size_max.into())).min(most) as u32;
    let plan = TopKPlan {
        method: TopKMethod::Window,
        units_per_slice: units,
        buffer: units.max(tuning.window_buffer),
        digit_bits: 8,
        ..TopKPlan::new(access.with_loads_in_flight(loads.max(1)))
    };
    plan.check(problem, device).is_ok().then_some(plan)
}

/// The plan of buffers, if shared memory holds what `k` needs.
fn buffered(problem: &TopKProblem, device: &Device) -> Option<TopKPlan> {
    let tuning = device.tuning.top_k;
    let slices = problem.slices();
    let (len, k) = (slices.reduction_len() as u64, problem.k() as u64);

    // 1. Slices are read in vectors along themselves, or element by element side by side. A unit
    //    offers only so many elements at a time.
    let access = widest(slices, device);
    let loads = (tuning.bytes_in_flight / (access.vector * slices.input().bytes())).max(1);
    let offered = tuning.offered.min(TopKPlan::MOST_OFFERED);
    let most_loads = (offered / access.vector).min(Access::MOST_LOADS_IN_FLIGHT);
    let loads = match access.direction {
        Direction::Along => loads,
        Direction::Across => tuning.adjacent_loads as usize,
    };
    let access = access.with_loads_in_flight(loads.min(most_loads).max(1));

    // 2. A buffer holds a short slice as a whole. Of a long one, it holds `k` entries and as many
    //    as pass the threshold before the next cut. Four units of a slice count by digits of 4
    //    bits.
    let most = u64::from(tuning.units_per_cube.min(device.max_units_per_cube));
    let adjacent = adjacent_slices(slices.outputs(), access.direction, device);
    let adjacent = u64::from(adjacent).min(most / 4).max(1);
    let mut plan = TopKPlan::new(access);
    let needed = plan.needed(problem);
    let wanted = (4 * k).max(u64::from(tuning.buffer) / adjacent);
    let held = wanted.min(len).max(needed).next_power_of_two();

    // 3. Each unit of a slice has a few loads of it, and its entries fit registers. Digits of 8
    //    bits take half as many counts, and 1 KiB of shared memory for each slice.
    let offered = (access.vector * access.loads_in_flight) as u64;
    let wanted = (len / offered).max(held / u64::from(tuning.entries_per_unit));
    let multiprocessors = u64::from(device.multiprocessors.max(1));
    let of_slice = multiprocessors * u64::from(tuning.units_per_multiprocessor)
        / slices.outputs().max(1) as u64;
    let wide = of_slice.max(tuning.usual_units.into()).min(most);
    let widest = match access.direction {
        Direction::Along => wide,
        Direction::Across => u64::from(tuning.adjacent_units).min(most / adjacent).max(1),
    };
    let least = u64::from(tuning.least_units).min(most);
    let units = floor_power_of_two(wanted.clamp(least.min(widest), widest));
    let many = adjacent == 1 && units >= 16 && len > u64::from(tuning.few_elements);
    plan.units_per_slice = u32::try_from(units).ok()?;
    plan.buffer = u32::try_from(held.max(units)).unwrap_or(1 << 31);
    plan.digit_bits = if many { 8 } else { 4 };

    // 4. Where shared memory is short, the buffer is as small as `k` and the units allow.
    while !plan.fits(problem, device) && u64::from(plan.buffer) / 2 >= needed.max(units) {
        plan.buffer /= 2;
    }
    while !plan.fits(problem, device) && 2 * u64::from(plan.units_per_slice) <= most {
        plan.units_per_slice *= 2;
    }
    if !plan.fits(problem, device) {
        return None;
    }

    // 5. A cube takes several slices if they are short, or read side by side.
    let most_together = match access.direction {
        Direction::Along => most.min(tuning.together_units.into()),
        Direction::Across => most,
    };
    let slices = together(access.direction, adjacent);
    plan = plan.with_slices(most_together, slices, problem, device);

    // 6. Few long slices are shared by several cubes, each of which leaves its first `k` elements.
    let of_cube = u64::from(plan.units_per_slice) * u64::from(plan.slices_per_cube);
    let wanted = cubes_wanted(device, tuning.cubes_per_multiprocessor) * most / of_cube.max(1);
    let rounds = u64::from(tuning.least_rounds).saturating_mul(offered);
    let each = rounds.saturating_mul(plan.units_per_slice.into()).max(4 * k);
    let cubes = (wanted / plan.cubes(problem).max(1)).min(len / each.max(1)).max(1);
    plan.cubes_per_slice = u32::try_from(cubes).unwrap_or(u32::MAX);
    if cubes > 1 && access.direction == Direction::Along {
        let larger = TopKPlan { buffer: plan.buffer.max(tuning.shared_buffer), ..plan };
        plan = if larger.fits(problem, device) { larger } else { plan };
    }
    // A device may not bind the entries that cubes leave beside everything else.
    let alone = TopKPlan { cubes_per_slice: 1, ..plan };
    Some(if plan.check(problem, device).is_ok() { plan } else { alone })
}

/// The plan of runs as long as the device's shared memory and the units of a cube allow.
fn in_runs(problem: &TopKProblem, device: &Device) -> TopKPlan {
    let tuning = device.tuning.top_k;
    let access = Access::new(widest(problem.slices(), device).direction);
    let units =
        tuning.units_per_cube.min(floor_power_of_two(device.max_units_per_cube.into()) as u32);
    let len = problem.slices().reduction_len();
    let mut plan = TopKPlan {
        method: TopKMethod::Runs,
        units_per_slice: units,
        buffer: units.saturating_mul(tuning.entries_per_unit),
        ..TopKPlan::new(access)
    };
    while plan.shared_bytes(problem) > device.shared_memory_bytes && plan.buffer > 1 {
        plan.buffer /= 2;
        plan.units_per_slice = plan.units_per_slice.min(plan.buffer);
    }
    plan.cubes_per_slice = u32::try_from(len.div_ceil(plan.buffer as usize)).unwrap_or(u32::MAX);
    plan
}

/// How the slices are read, one load after the other. Neighbouring slices are read by units side by
/// side, because a unit has the entries of one slice.
fn widest(slices: &Problem, device: &Device) -> Access {
    let widest = Access::widest(slices, device);
    match widest.direction {
        Direction::Along => widest,
        Direction::Across => Access::new(Direction::Across),
    }
}

/// Slices of a cube that units read side by side, a power of two.
fn adjacent_slices(outputs: usize, direction: Direction, device: &Device) -> u32 {
    match direction {
        Direction::Along => 1,
        Direction::Across => {
            let slices = u32::try_from(outputs.max(1)).unwrap_or(u32::MAX);
            let most = device.tuning.top_k.adjacent_slices;
            slices.min(most).next_power_of_two()
        }
    }
}

/// Most slices of a cube.
fn together(direction: Direction, adjacent: u64) -> u64 {
    match direction {
        Direction::Along => u64::MAX,
        Direction::Across => adjacent,
    }
}

impl TopKPlan {
    /// How often windows usually read a row for each wanted number: to count it twice, and to append
    /// what is left.
    const WINDOWS: f64 = 3.0;

    /// A plan without units.
    fn new(access: Access) -> Self {
        Self {
            version: Self::VERSION,
            method: TopKMethod::Buffer,
            access,
            units_per_slice: 1,
            slices_per_cube: 1,
            cubes_per_slice: 1,
            buffer: 1,
            digit_bits: 2,
        }
    }

    /// Whether units take the entries of the buffer, and shared memory holds them.
    fn fits(&self, problem: &TopKProblem, device: &Device) -> bool {
        self.buffer <= Self::MOST_ENTRIES_PER_UNIT.saturating_mul(self.units_per_slice)
            && self.shared_bytes(problem) <= device.requestable_shared_bytes()
    }

    /// The plan with as many slices of a cube as there are, as `most` units take, and as shared
    /// memory holds without a request, but no more than `together`.
    fn with_slices(
        mut self,
        most: u64,
        together: u64,
        problem: &TopKProblem,
        device: &Device,
    ) -> Self {
        let outputs = problem.slices().outputs().max(1) as u64;
        while u64::from(self.slices_per_cube) < together.min(outputs) {
            let doubled = Self { slices_per_cube: 2 * self.slices_per_cube, ..self };
            let units = u64::from(doubled.units_per_slice) * u64::from(doubled.slices_per_cube);
            if units > most || doubled.shared_bytes(problem) > device.shared_memory_bytes {
                break;
            }
            self = doubled;
        }
        self
    }

    /// What the plan should take for `problem` on `device`: the bytes at the bandwidth, and the
    /// launches.
    #[must_use]
    pub fn estimate(&self, problem: &TopKProblem, device: &Device) -> Estimate {
        let profile = &device.profile;
        let launches = f64::from(self.launch_count());
        // Each merge reads and writes what the one before has left.
        let reads = match self.method {
            TopKMethod::Buffer | TopKMethod::Registers => 1.0,
            TopKMethod::Window => {
                // Without a row for each multiprocessor, some have nothing to do.
                let busy = self.cubes(problem) as f64 / f64::from(device.multiprocessors.max(1));
                Self::WINDOWS * problem.written() as f64 / busy.min(1.0)
            }
            TopKMethod::Runs => 4.0 * launches,
        };
        let bytes = problem.bytes() as f64 * reads;
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
