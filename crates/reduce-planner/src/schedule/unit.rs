//! One unit per output. For many outputs: neighbouring units stand across them, or each reads a
//! run so short that its cache lines are still warm when the next load comes.

use super::{cubes_wanted, independent_units};
use crate::{Access, Device, Problem, Refusal, Schedule, tuning};

/// Sizes the schedule. It applies to every problem.
///
/// # Errors
///
/// None today; the signature is that of every schedule.
pub fn size(problem: &Problem, device: &Device, access: Access) -> Result<Schedule, Refusal> {
    let wanted_cubes = cubes_wanted(device, tuning::UNIT_CUBES_PER_MULTIPROCESSOR);
    let mut units = independent_units(device);
    while units > device.plane_size_max.max(32)
        && access.groups(problem).div_ceil(u64::from(units)) < wanted_cubes
    {
        units /= 2;
    }
    Ok(Schedule::Unit { units })
}
