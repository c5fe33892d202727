//! One file per schedule: when it applies, and how it is sized.

pub mod cube;
pub mod plane;
pub mod split;
pub mod unit;

use crate::{
    Access, Combine, Device, Direction, Merge, Plan, Problem, Refusal, Schedule, ScheduleKind,
    choice::{INDEX_SLACK, NARROW_LIMIT},
    tuning,
};

/// Sizes the schedule `kind` for a problem, or says why it does not apply.
///
/// # Errors
///
/// The reason as a [`Refusal`].
pub fn size(
    kind: ScheduleKind,
    problem: &Problem,
    device: &Device,
    access: Access,
) -> Result<Schedule, Refusal> {
    match kind {
        ScheduleKind::Unit => unit::size(problem, device, access),
        ScheduleKind::Plane => plane::size(problem, device, access),
        ScheduleKind::Cube => cube::size(problem, device, access),
        ScheduleKind::Split => split::size(problem, device, access),
    }
}

/// Bytes of one unit's accumulator: one per lane of the vector where it lies across outputs.
pub(crate) fn accumulator_bytes(problem: &Problem, access: Access) -> usize {
    let lanes = match access.direction {
        Direction::Along => 1,
        Direction::Across => access.vector,
    };
    problem.operator().accumulator_bytes.saturating_mul(lanes)
}

/// Shared memory that a cube of `workers` × `outputs` units needs to combine, in bytes.
pub(crate) fn shared_bytes(
    problem: &Problem,
    access: Access,
    workers: u32,
    outputs: u32,
    combine: Combine,
) -> usize {
    let slots = match combine {
        Combine::Plane { lanes } => workers.div_ceil(lanes) * outputs,
        Combine::Shared => workers * outputs,
    };
    (slots as usize).saturating_mul(accumulator_bytes(problem, access))
}

/// Checks the numbers of a plan's schedule against the limits that its kernels rely on.
pub(crate) fn check(plan: &Plan, problem: &Problem, device: &Device) -> Result<(), String> {
    let schedule = plan.schedule;
    let units = match schedule {
        Schedule::Unit { units } => Some(units),
        Schedule::Plane { lanes, units } => units.is_multiple_of(lanes.max(1)).then_some(units),
        Schedule::Cube { workers, outputs, .. } | Schedule::Split { workers, outputs, .. } => {
            workers.checked_mul(outputs)
        }
    };
    let units = units.ok_or("the units of a cube do not divide among its outputs")?;
    power_of_two("units per cube", units, device.max_units_per_cube)?;
    power_of_two("units per output", schedule.workers(), units)?;
    match schedule.combine() {
        None => {}
        Some(combine @ Combine::Plane { lanes }) => {
            check_plane(plan, device, units, lanes)?;
            if !matches!(schedule, Schedule::Plane { .. }) {
                let (workers, outputs) = (schedule.workers(), schedule.outputs());
                let bytes = shared_bytes(problem, plan.access, workers, outputs, combine);
                fits_shared(bytes, device)?;
            }
        }
        Some(Combine::Shared) => {
            let bytes = shared_bytes(
                problem,
                plan.access,
                schedule.workers(),
                schedule.outputs(),
                Combine::Shared,
            );
            fits_shared(bytes, device)?;
        }
    }
    if let Schedule::Split { cubes, merge, .. } = schedule {
        check_split(plan, problem, device, cubes, merge)?;
    }
    fits_bindings(plan, problem, device)?;
    fits_grid(plan.cubes(problem), "cubes", device)
}

/// Lanes that exchange values: whole planes, in one plane.
fn check_plane(plan: &Plan, device: &Device, units: u32, lanes: u32) -> Result<(), String> {
    let interleaved = plan.access.direction == Direction::Across;
    if !device.plane_operations {
        return Err("the device reports no plane operations".into());
    }
    power_of_two("lanes per group", lanes, device.plane_size_min)?;
    if units < device.plane_size_min {
        return Err(format!("{units} units are less than a plane"));
    }
    match plan.schedule {
        Schedule::Plane { .. } if lanes < 2 => {
            Err("one lane per output is the unit schedule".into())
        }
        // Across outputs, a group's lanes stand `plane / lanes` apart in one plane.
        Schedule::Plane { .. } if interleaved && device.plane_size_min != device.plane_size_max => {
            Err("planes of varying size cannot be dealt out across outputs".into())
        }
        Schedule::Plane { .. } => Ok(()),
        _ if interleaved => {
            Err("across outputs, the workers of a cube combine in shared memory".into())
        }
        schedule if schedule.workers() < lanes => {
            Err(format!("{} units per output do not fill {lanes} lanes", schedule.workers()))
        }
        _ => Ok(()),
    }
}

/// Partial results that indices can count, and a merge that the device can do.
fn check_split(
    plan: &Plan,
    problem: &Problem,
    device: &Device,
    cubes: u32,
    merge: Merge,
) -> Result<(), String> {
    if cubes < 2 {
        return Err("a split needs two cubes per output".into());
    }
    let units = plan.schedule.units();
    if u64::from(cubes) * u64::from(units) * plan.access.in_flight as u64 > INDEX_SLACK {
        return Err(format!("{cubes} cubes per output stride past {INDEX_SLACK} loads at a time"));
    }
    let outputs = u64::from(split::outputs_per_cube(plan.access, plan.schedule));
    let partials = plan.cubes(problem).saturating_mul(outputs);
    if partials > NARROW_LIMIT || plan.cubes(problem) > NARROW_LIMIT {
        return Err(format!("{partials} partial results are more than {NARROW_LIMIT}"));
    }
    match merge {
        Merge::LastCube => {
            if !device.wide_atomics {
                return Err("the device has no 64-bit atomics".into());
            }
            if outputs > u64::from(units) {
                return Err(format!("{units} units cannot merge {outputs} outputs"));
            }
            // Mesa's software adapter drops iterations of idle lanes that wait beside busy ones.
            if units < device.plane_size_max {
                let plane = device.plane_size_max;
                return Err(format!("{units} units that merge do not fill a plane of {plane}"));
            }
            if plan.cubes(problem) > u64::from(device.max_cube_count[0]) {
                return Err("a grid of more than one row may hold cubes without work".into());
            }
            let words = problem.operator().accumulator_bytes.div_ceil(4);
            let bytes = plan.hand_over_words(problem, words).saturating_mul(8);
            if bytes > tuning::HAND_OVER_BYTES {
                return Err(format!(
                    "{bytes} bytes to hand over are more than {}",
                    tuning::HAND_OVER_BYTES
                ));
            }
            // The units combine once for the cube, and once for the output, in memory of its own.
            let (workers, blocks) = (plan.schedule.workers(), plan.schedule.outputs());
            let combine = plan.schedule.combine().unwrap_or(Combine::Shared);
            let first = shared_bytes(problem, plan.access, workers, blocks, combine);
            let second = (units as usize).saturating_mul(problem.operator().accumulator_bytes);
            fits_shared(first.saturating_add(second).saturating_add(size_of::<u32>()), device)
        }
        Merge::SecondLaunch { workers, outputs } => {
            let units = workers.checked_mul(outputs).ok_or("too many units in the merge")?;
            power_of_two("units per merging cube", units, device.max_units_per_cube)?;
            power_of_two("merging units per output", workers, units)?;
            let bytes = (units as usize).saturating_mul(problem.operator().accumulator_bytes);
            fits_shared(bytes, device)?;
            let cubes = (problem.outputs() as u64).div_ceil(u64::from(outputs));
            fits_grid(cubes, "merging cubes", device)
        }
    }
}

/// Buffers of the launch that binds most. Ragged runs bind the input twice.
fn fits_bindings(plan: &Plan, problem: &Problem, device: &Device) -> Result<(), String> {
    let inputs = 1 + usize::from(plan.access.ragged);
    let (fields, results) = (problem.operator().fields, problem.results().len());
    let bindings = match plan.schedule {
        Schedule::Split { merge: Merge::LastCube, .. } => inputs + 1 + results,
        Schedule::Split { merge: Merge::SecondLaunch { .. }, .. } => {
            fields.saturating_add(inputs.max(results))
        }
        _ => inputs + results,
    };
    if bindings as u64 <= u64::from(device.max_bindings) {
        Ok(())
    } else {
        Err(format!(
            "a launch binds {bindings} buffers, the device {} at most",
            device.max_bindings
        ))
    }
}

fn fits_grid(cubes: u64, what: &str, device: &Device) -> Result<(), String> {
    match device.spread(cubes) {
        Some(_) => Ok(()),
        None => Err(format!("{cubes} {what} pass the grid's limits")),
    }
}

fn power_of_two(what: &str, value: u32, max: u32) -> Result<(), String> {
    if value.is_power_of_two() && value <= max {
        Ok(())
    } else {
        Err(format!("{value} {what} is no power of two up to {max}"))
    }
}

fn fits_shared(bytes: usize, device: &Device) -> Result<(), String> {
    if bytes <= device.shared_memory_bytes {
        Ok(())
    } else {
        Err(format!(
            "{bytes} bytes of shared memory, the device has {}",
            device.shared_memory_bytes
        ))
    }
}

/// The largest power of two that is at most `value` (1 for 0).
pub(crate) fn floor_power_of_two(value: u64) -> u64 {
    1 << value.max(1).ilog2()
}

/// The largest power of two up to the wanted number of units that the device and its shared memory
/// (all units combining there) allow.
pub(crate) fn units_limit(problem: &Problem, device: &Device, access: Access, wanted: u32) -> u32 {
    let by_memory = device.shared_memory_bytes / accumulator_bytes(problem, access).max(1);
    let limit = (by_memory as u64).min(u64::from(wanted)).min(u64::from(device.max_units_per_cube));
    floor_power_of_two(limit) as u32
}

/// How many registers an accumulator takes beside the elements that go into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// One field: no more than the elements.
    Light,
    /// Two fields.
    Medium,
    /// More.
    Heavy,
}

/// The weight of a problem's accumulators.
pub(crate) fn weight(problem: &Problem) -> Weight {
    let word = problem.input().bytes().max(4);
    match problem.operator().accumulator_bytes.div_ceil(word) {
        0..=1 => Weight::Light,
        2 => Weight::Medium,
        _ => Weight::Heavy,
    }
}

/// Most units of a cube that works on one output together.
pub(crate) fn cooperating_units(problem: &Problem) -> u32 {
    match weight(problem) {
        Weight::Heavy => tuning::COOPERATING_UNITS_HEAVY,
        _ => tuning::COOPERATING_UNITS,
    }
}

/// Loads that each lane of a group should have: the more, the longer accumulators take to merge.
pub(crate) fn loads_per_lane(problem: &Problem) -> u64 {
    match weight(problem) {
        Weight::Light => tuning::LOADS_PER_LANE,
        Weight::Medium if !problem.operator().transcendental => tuning::LOADS_PER_LANE_MEDIUM,
        _ => tuning::LOADS_PER_LANE_HEAVY,
    }
}

/// Units of a cube whose units or planes work independently.
pub(crate) fn independent_units(problem: &Problem, device: &Device) -> u32 {
    let wanted = match weight(problem) {
        Weight::Light => tuning::INDEPENDENT_UNITS,
        _ if problem.operator().transcendental => tuning::INDEPENDENT_UNITS,
        _ => tuning::INDEPENDENT_UNITS_HEAVY,
    };
    let most = device.max_units_per_cube.min(wanted);
    floor_power_of_two(u64::from(most)) as u32
}

/// Cubes that give every multiprocessor `each`.
pub(crate) fn cubes_wanted(device: &Device, each: u32) -> u64 {
    u64::from(device.multiprocessors) * u64::from(each)
}
