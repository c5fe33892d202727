//! The choice of a plan for segments, step by step.

use super::plan::{SegmentsPlan, check_device};
use crate::{
    choose::{Choice, Explained, cubes_wanted, floor_power_of_two},
    device::Device,
    error::PlanError,
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
    let loads = match access.direction {
        Direction::Along => tuning.elements_per_unit / access.vector,
        Direction::Across => tuning.rows_per_unit,
    };
    let loads = loads.clamp(1, Access::MOST_LOADS_IN_FLIGHT);

    // 2. Neighbouring units read neighbouring outputs, if there are any.
    let units = floor_power_of_two(tuning.units_per_cube.min(device.max_units_per_cube).into());
    let side_by_side = match access.direction {
        Direction::Along => 1,
        Direction::Across => {
            let row = access.inner_len(axis).div_ceil(access.vector).max(1) as u64;
            row.next_power_of_two().min(tuning.side_by_side.into()).min(units)
        }
    };
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let mut plan = SegmentsPlan {
        version: SegmentsPlan::VERSION,
        access: access.with_loads_in_flight(loads),
        units_per_cube: narrow(units),
        side_by_side: narrow(side_by_side),
        combine: Combine::Shared,
        steps: 1,
        cubes: 1,
        merging_units: narrow(units.min(tuning.merging_units.into())),
    };

    // 3. What they tell each other fits shared memory, of which cubes take no more than leaves room
    //    for others.
    let most = device.shared_memory_bytes.min(tuning.shared_bytes);
    while plan.shared_bytes(problem) > most {
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
        plan.side_by_side = plan.side_by_side.min(plan.units_per_cube);
    }

    // 4. Planes take steps of their own, without barriers of the cube.
    let in_planes =
        SegmentsPlan { combine: Combine::Plane { lanes: device.plane_size_min }, ..plan };
    if in_planes.check(problem, device).is_ok() {
        plan = in_planes;
    }

    // 5. A cube has one tile, of as many steps as it takes.
    let resident = match access.direction {
        Direction::Along => tuning.units_along,
        Direction::Across => tuning.units_across,
    };
    let most = cubes_wanted(device, (resident / plan.units_per_cube).max(1)).max(1);
    let steps = plan.in_parts_of(plan.step(), problem) as u64;
    let of_all = plan.blocks(problem).saturating_mul(steps);
    plan.steps = narrow(of_all.div_ceil(most).clamp(1, steps.min(tuning.most_steps.into())));
    plan.cubes = narrow(plan.blocks(problem).saturating_mul(plan.tiles(problem) as u64).max(1));
    plan.check(problem, device)?;
    let estimate = plan.estimate(problem, device);
    Ok(Choice::only(plan, estimate))
}
