//! The plane schedule: lanes of one plane share an output.
//!
//! It serves many outputs of medium length. It needs no shared memory and no barrier. If an output
//! takes fewer lanes than a plane has, several outputs share a plane.

use super::sizing::{floor_power_of_two, independent_units, row};
use crate::{
    device::Device,
    plan::{Access, Schedule},
    problem::{Direction, Problem},
    refusal::Reason,
};

/// Sizes the schedule. Along the reduction, an output gets as many lanes as have a few loads each.
/// Across outputs, it gets what adjacent outputs leave of a plane.
///
/// # Errors
///
/// The device reports no plane operations, an output has too few loads, or adjacent outputs fill a
/// plane.
pub(super) fn size(problem: &Problem, device: &Device, access: Access) -> Result<Schedule, Reason> {
    if !device.plane_operations {
        return Err(Reason::NoPlaneOperations);
    }
    let plane = device.plane_size_min;
    let loads = access.loads_per_output(problem);
    if loads < 2 || plane < 2 {
        return Err(Reason::NothingToShare { loads });
    }
    let lanes = match access.direction {
        Direction::Along => {
            let each = row(problem, device).accumulator.loads_per_lane;
            floor_power_of_two(loads / each).clamp(2, u64::from(plane))
        }
        Direction::Across => {
            let (min, max) = (device.plane_size_min, device.plane_size_max);
            if min != max {
                return Err(Reason::PlaneSizeVaries { min, max });
            }
            // Longer inner dimensions fill planes, and cubes read them better.
            let tuning = &device.tuning;
            let inner = access.loads_per_inner(problem);
            let adjacent = inner.next_power_of_two();
            let load_bytes = access.vector.saturating_mul(problem.input().bytes()).max(1);
            let segment = tuning.across_segment_bytes / load_bytes;
            if inner >= segment.max(1) as u64 || 2 * adjacent > u64::from(plane) {
                let adjacent = adjacent.min(u64::from(plane));
                return Err(Reason::OutputsFillPlane { adjacent, plane });
            }
            let enough = floor_power_of_two(loads / tuning.plane_loads_per_lane_across).max(2);
            (u64::from(plane) / adjacent).min(enough)
        }
    };
    Ok(Schedule::Plane {
        lanes_per_output: lanes as u32,
        units_per_cube: independent_units(problem, device),
    })
}
