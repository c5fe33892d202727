//! The choice of a plan for segments, step by step.

use super::plan::{SegmentsPlan, check_device};
use crate::{
    choose::{Choice, Explained, cubes_wanted, floor_power_of_two},
    device::Device,
    error::PlanError,
    plan::{Access, check::check_access},
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

    // 1. Units read vectors, with as many bytes in flight as the device wants. Along the axis, they
    //    read elements where a segment ends in a vector, as at the edges of rows.
    let access = Access::widest(axis, device);
    let access = match access.direction {
        Direction::Along if access.vector > 1 => access.with_peeled(true),
        _ => access,
    };
    let access = match check_access(access, axis, device) {
        Ok(()) => access,
        Err(_) => Access::new(access.direction),
    };
    let bytes = access.vector * axis.input().bytes();
    let loads = (tuning.bytes_in_flight / bytes).clamp(1, Access::MOST_LOADS_IN_FLIGHT);
    let access = access.with_loads_in_flight(loads);

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
        access,
        units_per_cube: narrow(units),
        side_by_side: narrow(side_by_side),
        cubes: 1,
        merging_units: narrow(units.min(tuning.merging_units.into())),
    };

    // 3. Their accumulators fit shared memory.
    while plan.shared_bytes(problem) > device.shared_memory_bytes && plan.units_per_cube > 1 {
        plan.units_per_cube /= 2;
        plan.side_by_side = plan.side_by_side.min(plan.units_per_cube);
    }

    // 4. There are as many cubes as fill the device, or as there are tiles. Some write the results
    //    of segments without elements.
    let tiles = plan.blocks(problem).saturating_mul(plan.tiles(problem) as u64);
    let segments = problem.segments() as u64 / u64::from(plan.units_per_cube);
    let most = cubes_wanted(device, tuning.cubes_per_multiprocessor);
    plan.cubes = narrow(tiles.max(segments).clamp(1, most.max(1)));
    plan.check(problem, device)?;
    let estimate = plan.estimate(problem, device);
    Ok(Choice::only(plan, estimate))
}
