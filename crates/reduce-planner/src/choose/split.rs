//! The split schedule: several cubes share an output.
//!
//! It serves outputs that are too few to fill the device. Each cube publishes its partials. The
//! last cube to finish, or a second launch, merges them in the order of the cubes.

use super::{
    cube::{self, Block, Sharing},
    sizing::{cubes_wanted, floor_power_of_two, units_limit},
};
use crate::{
    Access, Device, Direction, Merge, Plan, Problem, Reason, Schedule, plan::check::check_schedule,
};

/// Sizes the schedule: enough cubes for every multiprocessor, but no more than leave several loads
/// for each unit.
///
/// # Errors
///
/// The outputs fill the device without a split, or the reduction is too short for two cubes.
pub(super) fn size(problem: &Problem, device: &Device, access: Access) -> Result<Schedule, Reason> {
    let tuning = &device.tuning;
    let tiles = access.output_tiles(problem);
    let blocks_of = |block: &Block| tiles.div_ceil(u64::from(block.outputs_per_cube)).max(1);

    // Does it apply? Two cubes for each block of outputs must find room on the device.
    let mut block = cube::block(problem, device, access, Sharing::Several);
    let mut blocks = blocks_of(&block);
    let mut wanted = cubes_wanted(device, tuning.split_cubes_per_multiprocessor);
    if blocks.saturating_mul(2) > wanted {
        return Err(Reason::OutputsFillDevice { cubes: blocks, wanted });
    }

    // The last cube would take long to merge many partials: take fewer cubes, each larger.
    let partials = (wanted / blocks)
        .saturating_mul(u64::from(block.outputs_per_cube))
        .saturating_mul(access.outputs_per_tile() as u64);
    if partials > tuning.partials_per_block {
        block = cube::block(problem, device, access, Sharing::SeveralLarge);
        blocks = blocks_of(&block);
        let fewer = cubes_wanted(device, tuning.split_large_cubes_per_multiprocessor);
        wanted = fewer.max(blocks.saturating_mul(2));
    }

    // Does it apply? Each unit of two cubes must have its loads in flight.
    let loads = access.loads_per_output(problem);
    let loads_per_cube = u64::from(block.units_per_output) * access.loads_in_flight as u64;
    let cubes = (wanted / blocks).min(loads / loads_per_cube.max(1));
    if cubes < 2 {
        let needed = loads_per_cube.saturating_mul(2);
        return Err(Reason::TooShortToSplit { loads, needed });
    }

    // The last cube merges if the rules allow it.
    let merged_by = |merge| Schedule::Split {
        cubes_per_output: cubes as u32,
        units_per_output: block.units_per_output,
        outputs_per_cube: block.outputs_per_cube,
        combine: block.combine,
        merge,
    };
    let schedule = merged_by(Merge::LastCube);
    if check_schedule(&Plan::new(access, schedule), problem, device).is_ok() {
        return Ok(schedule);
    }
    Ok(merged_by(second_launch(problem, device, cubes)))
}

/// Sizes the second launch, which reads the partials one by one.
fn second_launch(problem: &Problem, device: &Device, cubes: u64) -> Merge {
    let single = Access::new(Direction::Along);
    let wanted = device.tuning.merge_units_per_cube;
    let units = u64::from(units_limit(problem, device, single, wanted));
    let outputs = (problem.outputs() as u64)
        .next_power_of_two()
        .min(u64::from(device.plane_size_min.max(1)))
        .min(units);
    let units_per_output = (units / outputs).min(floor_power_of_two(cubes));
    Merge::SecondLaunch {
        units_per_output: units_per_output as u32,
        outputs_per_cube: outputs as u32,
    }
}
