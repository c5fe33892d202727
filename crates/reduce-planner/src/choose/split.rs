//! The split schedule: several cubes share an output.
//!
//! It serves outputs that are too few to fill the device. Each cube publishes its partials. The
//! last cube to finish, or a second launch, merges them in the order of the cubes.

use super::{
    cube::{self, Block, Sharing},
    sizing::{
        cubes_wanted, floor_power_of_two, long_waves, rows_share_lines, short_run, units_limit,
    },
};
use crate::{
    device::Device,
    plan::{Access, Merge, Plan, Schedule, check::check_schedule},
    problem::{Direction, Problem},
    refusal::Reason,
};

/// Sizes the schedule: enough cubes for every multiprocessor, but no more than leave several loads
/// for each unit.
///
/// # Errors
///
/// The outputs fill the device without a split, or the reduction is too short for two cubes.
pub(super) fn size(problem: &Problem, device: &Device, access: Access) -> Result<Schedule, Reason> {
    let tuning = &device.tuning;
    let access = access.for_split(problem, device);
    let blocks_of = |block: &Block| access.cube_blocks(problem, block.outputs_per_cube).max(1);

    // Does it apply? Two cubes for each block of outputs must find room on the device.
    let mut usual = cube::block(problem, device, access, Sharing::Several);
    let mut wanted = cubes_wanted(device, tuning.split_cubes_per_multiprocessor);
    let mut blocks = blocks_of(&usual);
    if blocks.saturating_mul(2) > wanted {
        // Where rows share lines of the cache, few wide cubes read fewer lines twice. Sums of f32
        // 10,000 × 10,000 along axis 0 took 102 us on one H200 in 3 cubes of 8 × 64 units, 104 in 5
        // and 106 in 7. Of several fields, cubes are smaller: positions of maxima took 98.5 us in 3
        // cubes of 8 × 32 units, and 106 without a split, and variances 101 and 109.
        let wide = cube::block(problem, device, access, Sharing::SeveralWide);
        let across = access.direction == Direction::Across;
        let fewer = blocks_of(&wide);
        let is_wide = across && access.vector > 1 && rows_share_lines(problem, device);
        if !is_wide || fewer.saturating_mul(2) > wanted {
            return Err(Reason::OutputsFillDevice { cubes: blocks, wanted });
        }
        (usual, blocks) = (wide, fewer);
        if problem.operator().fields == 1 {
            let large = cubes_wanted(device, tuning.split_large_cubes_per_multiprocessor);
            wanted = large.max(2 * fewer);
        }
    }
    let wanted = match access.direction {
        Direction::Along => wanted.saturating_mul(waves(problem, device, access, &usual, wanted)),
        Direction::Across => wanted,
    };
    let partials = (wanted / blocks)
        .saturating_mul(u64::from(usual.outputs_per_cube))
        .saturating_mul(access.outputs_per_tile() as u64);
    // Of short runs, few units share an output, so larger cubes would have no more of them.
    let is_usual = partials <= tuning.partials_per_block
        || access.direction == Direction::Along && short_run(problem, device).is_some();
    if is_usual {
        let cubes = cubes(problem, access, &usual, wanted / blocks)?;
        let merged = merged_by_last_cube(problem, device, access, &usual, cubes);
        return Ok(merged.unwrap_or_else(|| second_launch(problem, device, &usual, cubes)));
    }

    // The last cube would take long to merge many partials: take fewer cubes, each larger. Their
    // accumulators may need too much memory for the last cube to merge at all. Then the cubes stay
    // as they are, with as many units altogether.
    let large = cube::block(problem, device, access, Sharing::SeveralLarge);
    let fewer = cubes_wanted(device, tuning.split_large_cubes_per_multiprocessor);
    let cubes_of = |block: &Block, wanted: u64| {
        let blocks = blocks_of(block);
        cubes(problem, access, block, wanted.max(2 * blocks) / blocks)
    };
    let cubes_of_large = cubes_of(&large, fewer)?;
    if let Some(schedule) = merged_by_last_cube(problem, device, access, &large, cubes_of_large) {
        return Ok(schedule);
    }
    let times = u64::from(large.units() / usual.units().max(1));
    let merged = cubes_of(&usual, fewer.saturating_mul(times))
        .ok()
        .and_then(|cubes| merged_by_last_cube(problem, device, access, &usual, cubes));
    Ok(merged.unwrap_or_else(|| second_launch(problem, device, &large, cubes_of_large)))
}

/// How many times as many cubes as reside together a split of rows should have. Those of very long
/// rows, which all began together, drift apart, and memory is no longer read in order.
fn waves(problem: &Problem, device: &Device, access: Access, block: &Block, residing: u64) -> u64 {
    let outputs = problem.outputs().max(1) as u64;
    let loads = access.loads_per_output(problem).saturating_mul(outputs);
    let per_round = residing * u64::from(block.units()) * access.loads_in_flight as u64;
    match loads / per_round.max(1) >= device.tuning.split_long_rounds {
        true => long_waves(problem),
        false => 1,
    }
}

/// The cubes of a block of outputs: as many as wanted, if each unit has its loads in flight.
///
/// # Errors
///
/// Two cubes have too few loads.
fn cubes(problem: &Problem, access: Access, block: &Block, wanted: u64) -> Result<u64, Reason> {
    let loads = access.loads_per_output(problem);
    let loads_per_cube = u64::from(block.units_per_output) * access.loads_in_flight as u64;
    let cubes = wanted.min(loads / loads_per_cube.max(1));
    if cubes < 2 {
        let needed = loads_per_cube.saturating_mul(2);
        return Err(Reason::TooShortToSplit { loads, needed });
    }
    Ok(cubes)
}

fn schedule(block: &Block, cubes: u64, merge: Merge) -> Schedule {
    Schedule::Split {
        cubes_per_output: cubes as u32,
        units_per_output: block.units_per_output,
        outputs_per_cube: block.outputs_per_cube,
        combine: block.combine,
        merge,
    }
}

/// The schedule whose last cube merges, if the rules allow it.
fn merged_by_last_cube(
    problem: &Problem,
    device: &Device,
    access: Access,
    block: &Block,
    cubes: u64,
) -> Option<Schedule> {
    let schedule = schedule(block, cubes, Merge::LastCube);
    check_schedule(&Plan::new(access, schedule), problem, device).is_ok().then_some(schedule)
}

/// The schedule with a second launch.
fn second_launch(problem: &Problem, device: &Device, block: &Block, cubes: u64) -> Schedule {
    schedule(block, cubes, merge_separately(problem, device, cubes))
}

/// A second launch that merges the partials of so many cubes. It reads them one by one.
pub(super) fn merge_separately(problem: &Problem, device: &Device, cubes: u64) -> Merge {
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
