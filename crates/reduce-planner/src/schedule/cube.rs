//! The units of one cube per output, or per block of neighbouring outputs. For long reductions with
//! outputs enough to fill the device.

use super::{cubes_wanted, floor_power_of_two, units_limit};
use crate::{
    Access, Combine, Device, Direction, Problem, Reason, Refusal, Schedule, ScheduleKind, tuning,
};

/// The block of units that works on `outputs` outputs with `workers` units each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) workers: u32,
    pub(crate) outputs: u32,
    pub(crate) combine: Combine,
}

/// Sizes the schedule.
///
/// # Errors
///
/// Fewer than two loads per output: there is nothing to share.
pub fn size(problem: &Problem, device: &Device, access: Access) -> Result<Schedule, Refusal> {
    let steps = access.steps(problem);
    if steps < 2 {
        let reason = Reason::NothingToShare { loads: steps };
        return Err(Refusal { schedule: ScheduleKind::Cube, reason });
    }
    let wanted = cubes_wanted(device, tuning::CUBES_PER_MULTIPROCESSOR);
    let Block { workers, outputs, combine } = block(problem, device, access, wanted);
    Ok(Schedule::Cube { workers, outputs, combine })
}

/// Sizes a block so that its units have several loads each and, where outputs stand side by side,
/// read whole memory segments; narrower where fewer than `wanted` cubes would result.
pub(crate) fn block(problem: &Problem, device: &Device, access: Access, wanted: u64) -> Block {
    let steps = access.steps(problem).max(1);
    let units = units_limit(problem, device, access, tuning::COOPERATING_UNITS);
    match access.direction {
        Direction::Along => {
            let loads = access.in_flight as u64;
            let enough = floor_power_of_two(steps.div_ceil(loads).min(u64::from(units))) as u32;
            let lanes = device.plane_size_min.max(1);
            let by_plane = device.plane_operations && steps >= u64::from(lanes);
            let least = if by_plane { lanes } else { 2 };
            let workers = enough.clamp(least.min(units), units);
            let combine = if by_plane && workers >= lanes {
                Combine::Plane { lanes }
            } else {
                Combine::Shared
            };
            // A small group would leave most of a cube's slot empty: let several share the cube.
            let outputs = (64.min(units) / workers).max(1);
            Block { workers, outputs, combine }
        }
        Direction::Across => {
            let bytes = access.vector * problem.input().bytes();
            let segment = (tuning::ACROSS_SEGMENT_BYTES / bytes).max(1) as u64;
            let groups = access.groups(problem);
            let mut outputs = groups.next_power_of_two().min(4 * segment).min(u64::from(units));
            while outputs > segment && groups.div_ceil(outputs) < wanted {
                outputs /= 2;
            }
            let workers = (u64::from(units) / outputs).min(floor_power_of_two(steps)).max(1);
            Block { workers: workers as u32, outputs: outputs as u32, combine: Combine::Shared }
        }
    }
}
