//! The choice of a plan for segments, step by step.

use super::plan::{SegmentsMerge, SegmentsPlan, check_device};
use crate::{
    choose::{Choice, Explained, cubes_wanted, floor_power_of_two},
    device::Device,
    error::PlanError,
    numbers::SegmentTiles,
    plan::{Access, Combine, check::check_access},
    problem::{Direction, SegmentsProblem},
    refusal::NoRefusal,
};

impl Explained for SegmentsPlan {
    type Refusal = NoRefusal;
}

/// Chooses a plan for a reduction of segments on a device. It depends on the number of segments and
/// not on their lengths.
///
/// # Errors
///
/// The description of the device makes no sense, the device lacks an element type, wide indices or
/// bindings, or the problem asks for numerics that segments do not have.
pub fn choose_segments(
    problem: &SegmentsProblem,
    device: &Device,
) -> Result<Choice<SegmentsPlan>, PlanError> {
    check_device(problem, device)?;
    let (axis, tuning) = (problem.axis(), device.tuning.segments);

    // 1. Units read vectors. Along the axis, they read elements at the edges of rows, and all elements
    //    that indices name.
    let access = Access::widest(axis, device);
    let access = match access.direction {
        Direction::Along if problem.indices().is_some() => Access::new(Direction::Along),
        Direction::Along if access.vector > 1 => access.with_peeled(true),
        _ => access,
    };
    let access = match check_access(access, axis, device) {
        Ok(()) => access,
        Err(_) => Access::new(access.direction),
    };

    // 2. A launch costs more than waiting for tiles that were begun earlier.
    let units = u64::from(tuning.merging_units.min(device.max_units_per_cube));
    let second = SegmentsMerge::SecondLaunch { units_per_cube: narrow(floor_power_of_two(units)) };
    let looks_back = planned(SegmentsMerge::LookBack, access, problem, device);
    let plan = match looks_back.check(problem, device) {
        Ok(()) => looks_back,
        Err(_) => planned(second, access, problem, device),
    };
    plan.check(problem, device)?;
    let estimate = plan.estimate(problem, device);
    Ok(Choice::only(plan, estimate))
}

/// A plan that reads in this way and merges in this one, if the device can.
fn planned(
    merge: SegmentsMerge,
    access: Access,
    problem: &SegmentsProblem,
    device: &Device,
) -> SegmentsPlan {
    let (axis, tuning) = (problem.axis(), device.tuning.segments);
    let tiles = tiles_of(merge, access, problem, device);
    let loads = match access.direction {
        Direction::Along => tiles.elements_per_unit / access.vector,
        Direction::Across => tiles.elements_per_unit,
    };
    let access = access.with_loads_in_flight(loads.clamp(1, Access::MOST_LOADS_IN_FLIGHT));

    // 3. Neighbouring units read neighbouring outputs, if there are any.
    let most = tiles.units_per_cube.min(device.max_units_per_cube);
    let units = floor_power_of_two(most.into());
    let most_side_by_side = |units: u64| match merge {
        // Each output needs a unit that looks back.
        SegmentsMerge::LookBack => (units / access.outputs_per_tile().max(1) as u64).max(1),
        SegmentsMerge::SecondLaunch { .. } => units,
    };
    let side_by_side = match access.direction {
        Direction::Along => 1,
        Direction::Across => {
            let row = access.inner_len(axis).div_ceil(access.vector).max(1) as u64;
            row.next_power_of_two().min(tuning.side_by_side.into()).min(most_side_by_side(units))
        }
    };
    let mut plan = SegmentsPlan {
        version: SegmentsPlan::VERSION,
        access,
        units_per_cube: narrow(units),
        side_by_side: narrow(side_by_side),
        combine: Combine::Shared,
        steps: 1,
        cubes: 1,
        merge,
    };

    // 4. What they tell each other fits shared memory, of which cubes take no more than leaves room
    //    for others.
    let most_bytes = device.shared_memory_bytes.min(tuning.shared_bytes);
    while plan.shared_bytes(problem) > most_bytes {
        let loads = plan.access.loads_in_flight;
        if plan.units_per_cube > tuning.fewest_units {
            plan.units_per_cube /= 2;
        } else if loads > 1 {
            plan.access = plan.access.with_loads_in_flight(loads / 2);
        } else if plan.units_per_cube > 1 {
            plan.units_per_cube /= 2;
        } else {
            break;
        }
        let most = most_side_by_side(plan.units_per_cube.into());
        plan.side_by_side = plan.side_by_side.min(narrow(most));
    }

    // 5. A cube has one tile, of as many steps as it takes.
    let most =
        cubes_wanted(device, (tiles.units_per_multiprocessor / plan.units_per_cube).max(1)).max(1);
    let steps = plan.in_parts_of(plan.step(), problem) as u64;
    let of_all = plan.blocks(problem).saturating_mul(steps);
    plan.steps = narrow(of_all.div_ceil(most).clamp(1, steps.min(tuning.most_steps.into())));
    plan.cubes = narrow(plan.blocks(problem).saturating_mul(plan.tiles(problem) as u64).max(1));

    // 6. Planes take steps of their own, without barriers of the cube.
    let lanes = device.plane_size_min;
    let in_planes = SegmentsPlan { combine: Combine::Plane { lanes }, ..plan };
    match in_planes.check(problem, device) {
        Ok(()) => in_planes,
        Err(_) => plan,
    }
}

/// How long tiles are. A second launch would take long for many short ones.
fn tiles_of(
    merge: SegmentsMerge,
    access: Access,
    problem: &SegmentsProblem,
    device: &Device,
) -> SegmentTiles {
    let (axis, tuning) = (problem.axis(), &device.tuning.segments);
    let large = axis.operator().accumulator_bytes >= tuning.large_bytes;
    match (access.direction, large) {
        (Direction::Along, true) if merge == SegmentsMerge::LookBack => tuning.large_along,
        (Direction::Along, _) => tuning.along,
        (Direction::Across, false) => tuning.across,
        (Direction::Across, true) => tuning.large_across,
    }
}

fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
