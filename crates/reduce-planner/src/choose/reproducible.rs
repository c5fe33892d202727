//! Plans whose units and cubes divide the lanes that all reproducible plans have.
//!
//! The length of a slice gives the number of its lanes, a power of two
//! ([`lanes`](crate::reproducible::lanes)). The components of a vector along the reduction, the
//! accumulators of a unit, the units of a cube and the cubes of an output multiply to it. A plan
//! that a free search finds has its own number of units. Here it gets the accumulators and cubes
//! that make up the rest.

use super::{Accesses, sizing::floor_power_of_two, split::merge_separately};
use crate::{
    device::Device,
    numerics::Numerics,
    plan::{Access, Combine, Merge, Plan, Schedule, check::check_numbers, div_ceil},
    problem::{Direction, Problem},
    reproducible::lanes,
};

/// The way to read the input: no vector has elements of another lane than its components.
pub(super) fn accesses(problem: &Problem, device: &Device) -> Accesses {
    let widest = Access::by_position(device.load_bytes, true, problem, device);
    // Between realigned rows that follow each other, the lanes of vectors would move.
    let moves = widest.realigns_along() && problem.reduced().len() > 1;
    let widest = match moves {
        true => Access::widest_up_to(device.load_bytes, false, problem, device),
        false => widest,
    };
    Accesses { widest, other: None }
}

/// The plans with the right number of lanes that are like those which a search `found`, each once.
pub(super) fn plans(
    found: impl IntoIterator<Item = Plan>,
    access: Access,
    problem: &Problem,
    device: &Device,
) -> Vec<Plan> {
    let mut plans = Vec::new();
    let sizes = (0..=device.max_units_per_cube.max(1).ilog2()).map(|log| 1 << log);
    let further = sizes.map(|units| Plan::new(access, alone(units, access, device)));
    for plan in found.into_iter().chain(further) {
        for plan in divisions(&plan, problem, device).into_iter().flatten() {
            if !plans.contains(&plan) {
                plans.push(plan);
            }
        }
    }
    plans
}

/// A cube of about 256 units, of which so many share an output: lanes of a plane if they can.
fn alone(units: u32, access: Access, device: &Device) -> Schedule {
    let most = floor_power_of_two(device.max_units_per_cube.into()) as u32;
    let cube = most.min(256).max(units);
    let planes = access.direction == Direction::Along && device.plane_operations;
    if planes && (2..=device.plane_size_min).contains(&units) {
        return Schedule::Plane { lanes_per_output: units, units_per_cube: cube };
    }
    let combine = match access.direction {
        Direction::Along if device.plane_operations && units >= device.plane_size_min => {
            Combine::Plane { lanes: device.plane_size_min }
        }
        _ => Combine::Shared,
    };
    Schedule::Cube { units_per_output: units, outputs_per_cube: cube / units, combine }
}

/// The plans with the units of this one: what remains of the lanes goes to cubes, or first to the
/// accumulators of a unit.
fn divisions(plan: &Plan, problem: &Problem, device: &Device) -> [Option<Plan>; 2] {
    let Plan { access, schedule, .. } = *plan;
    let along = access.direction == Direction::Along;
    let components = if along { access.vector } else { 1 };
    let all = (lanes(problem.reduction_len()) / components).max(1);
    let units = (schedule.units_per_output() as usize).min(all);
    let rest = all / units;
    // Along the reduction, loads of one unit lie side by side only where it has the row alone.
    let most = match along && units > 1 {
        true => 1,
        false => access.loads_in_flight.next_power_of_two().clamp(8, Access::MOST_LOADS_IN_FLIGHT),
    };
    let with = |accumulators: usize| {
        divided(plan, units as u32, accumulators, rest / accumulators, problem, device)
    };
    let accumulators = rest.min(most);
    [with(1), if accumulators > 1 { with(accumulators) } else { None }]
}

/// The plan with this division of the lanes, if it is legal.
fn divided(
    plan: &Plan,
    units: u32,
    accumulators: usize,
    cubes: usize,
    problem: &Problem,
    device: &Device,
) -> Option<Plan> {
    let Plan { access, schedule, .. } = *plan;
    // Cubes that share a row with others have it alone: estimates know no others, and two cubes of
    // 16 units for each of 8 rows, of 1024 f32 each, took an L2 norm from 64 to 77 us on one H200.
    let outputs_per_cube = match access.direction {
        Direction::Along if cubes > 1 => 1,
        _ => (schedule.units_per_cube() / units).max(1),
    };
    let units_per_cube = units * outputs_per_cube;
    let combine = match schedule.combine() {
        Some(Combine::Plane { lanes }) if access.direction == Direction::Along => {
            Combine::Plane { lanes: lanes.min(units) }
        }
        _ => Combine::Shared,
    };
    let cubes = u32::try_from(cubes).ok()?;
    let split = |merge: Merge| Schedule::Split {
        cubes_per_output: cubes,
        units_per_output: units,
        outputs_per_cube,
        combine,
        merge,
    };
    let (schedule, instead) = match (cubes, schedule) {
        (1, _) if units == 1 => (Schedule::Unit { units_per_cube }, None),
        (1, Schedule::Plane { .. }) => {
            (Schedule::Plane { lanes_per_output: units, units_per_cube }, None)
        }
        (1, _) => (Schedule::Cube { units_per_output: units, outputs_per_cube, combine }, None),
        _ => {
            let separately = merge_separately(problem, device, cubes.into());
            (split(Merge::LastCube), Some(split(separately)))
        }
    };
    let turns = access.loads_per_output(problem);
    let turns = div_ceil(turns, u64::from(units) * u64::from(cubes) * accumulators as u64);
    let turns = turns.max(1).next_power_of_two().min(Access::MOST_LOADS_IN_FLIGHT as u64);
    let most = floor_power_of_two(access.loads_in_flight as u64) as usize;
    let loads = (accumulators * turns as usize).min(most.max(accumulators));
    let single = access
        .with_accumulators(accumulators)
        .with_loads_in_flight(loads)
        .with_outputs_in_flight(1);
    let several = single.with_outputs_in_flight(access.outputs_in_flight);
    let accesses = [several, single].into_iter();
    let schedules = [Some(schedule), instead].into_iter().flatten();
    let mut candidates = schedules
        .flat_map(|schedule| accesses.clone().map(move |access| Plan::new(access, schedule)));
    let plan = candidates
        .find(|plan| plan.has_lanes(problem) && check_numbers(plan, problem, device).is_ok())?;
    Some(plan.with_numerics(Numerics::Reproducible))
}
