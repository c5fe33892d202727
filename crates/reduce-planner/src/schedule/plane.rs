//! A group of lanes within a plane per output: no shared memory, no barrier. For many outputs of
//! medium length; groups narrower than the plane let several short rows share one.

use super::{floor_power_of_two, independent_units, loads_per_lane};
use crate::{Access, Device, Direction, Problem, Reason, Refusal, Schedule, ScheduleKind, tuning};

/// Sizes the schedule: along the reduction, as many lanes as have a few loads each; across outputs,
/// what a plane has left once neighbouring outputs fill a memory segment or a run.
///
/// # Errors
///
/// The device reports no plane operations, or a group of lanes has nothing to share.
pub fn size(problem: &Problem, device: &Device, access: Access) -> Result<Schedule, Refusal> {
    let refuse = |reason| Refusal { schedule: ScheduleKind::Plane, reason };
    if !device.plane_operations {
        return Err(refuse(Reason::NoPlaneOperations));
    }
    let plane = device.plane_size_min;
    let steps = access.steps(problem);
    if steps < 2 || plane < 2 {
        return Err(refuse(Reason::NothingToShare { loads: steps }));
    }
    let lanes = match access.direction {
        Direction::Along => {
            floor_power_of_two(steps / loads_per_lane(problem)).clamp(2, u64::from(plane))
        }
        Direction::Across => {
            if device.plane_size_min != device.plane_size_max {
                return Err(refuse(Reason::PlaneSizeVaries {
                    min: device.plane_size_min,
                    max: device.plane_size_max,
                }));
            }
            // Wider rows fill planes, and cubes read them better.
            let abreast = access.run_loads(problem).next_power_of_two();
            let segment = tuning::ACROSS_SEGMENT_BYTES / (access.vector * problem.input().bytes());
            let fills_segment = access.run_loads(problem) >= segment.max(1) as u64;
            if fills_segment || 2 * abreast > u64::from(plane) {
                let abreast = abreast.min(u64::from(plane));
                return Err(refuse(Reason::OutputsFillPlane { abreast, plane }));
            }
            let enough = floor_power_of_two(steps / tuning::LOADS_PER_LANE).max(2);
            (u64::from(plane) / abreast).min(enough)
        }
    };
    let units = independent_units(problem, device);
    Ok(Schedule::Plane { lanes: lanes as u32, units })
}
