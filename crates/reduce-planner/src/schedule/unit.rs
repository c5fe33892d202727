//! One unit per output. For many outputs: neighbouring units stand across them, or each reads a
//! run so short that its cache lines are still warm when the next load comes.

use super::{cubes_wanted, independent_units};
use crate::{Access, Device, Direction, Problem, Refusal, Schedule, tuning};

/// Sizes the schedule. It applies to every problem.
///
/// # Errors
///
/// None today; the signature is that of every schedule.
pub fn size(problem: &Problem, device: &Device, access: Access) -> Result<Schedule, Refusal> {
    // Where rows start off a vector's boundary, neighbouring planes share memory sectors.
    let each = match (access.direction, access.vector) {
        (Direction::Across, 1) => 2,
        _ => tuning::UNIT_CUBES_PER_MULTIPROCESSOR,
    };
    let wanted_cubes = cubes_wanted(device, each);
    let mut units = independent_units(problem, device);
    while units > device.plane_size_max.max(32)
        && access.groups(problem).div_ceil(u64::from(units)) < wanted_cubes
    {
        units /= 2;
    }
    Ok(Schedule::Unit { units })
}
