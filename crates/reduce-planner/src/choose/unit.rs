//! The unit schedule: one unit per output.
//!
//! It serves many outputs. Neighbouring units work on adjacent outputs, or each unit reads an inner
//! dimension so short that its cache line is still in the cache at the next load.

use super::sizing::{cubes_wanted, independent_units};
use crate::{
    device::Device,
    plan::{Access, Schedule},
    problem::{Direction, Problem},
};

/// Sizes the schedule. It applies to every problem.
pub(super) fn size(problem: &Problem, device: &Device, access: Access) -> Schedule {
    let tuning = &device.tuning;
    let each = match (access.direction, access.vector) {
        (Direction::Across, 1) => tuning.unit_cubes_per_multiprocessor_unaligned,
        _ => tuning.unit_cubes_per_multiprocessor,
    };
    // Smaller cubes until every multiprocessor has enough of them.
    let wanted = cubes_wanted(device, each);
    let least = device.plane_size_max.max(tuning.unit_least_units_per_cube);
    let tiles = access.output_tiles(problem);
    let mut units = independent_units(problem, device);
    while units > least && tiles.div_ceil(u64::from(units)) < wanted {
        units /= 2;
    }
    Schedule::Unit { units_per_cube: units }
}
