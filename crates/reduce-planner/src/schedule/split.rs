//! Several cubes per output. For outputs too few to fill the device: each cube publishes its
//! partial results, and the cube that finishes last, or a second launch, merges them in the order of
//! the cubes.

use super::{
    cube::{self, Block, Sharing},
    cubes_wanted, floor_power_of_two, units_limit,
};
use crate::{
    Access, Device, Direction, Merge, Plan, Problem, Reason, Refusal, Schedule, ScheduleKind,
    schedule, tuning,
};

/// Sizes the schedule: enough cubes for every multiprocessor, but no more than keep several loads
/// for each unit.
///
/// # Errors
///
/// The reduction is too short for two cubes, or the outputs fill the device without splitting.
pub fn size(problem: &Problem, device: &Device, access: Access) -> Result<Schedule, Refusal> {
    let refuse = |reason| Refusal { schedule: ScheduleKind::Split, reason };
    let steps = access.steps(problem);
    let blocks_of =
        |block: &Block| access.groups(problem).div_ceil(u64::from(block.outputs)).max(1);
    let mut block = cube::block(problem, device, access, Sharing::Several);
    let mut blocks = blocks_of(&block);
    let mut wanted = cubes_wanted(device, tuning::SPLIT_CUBES_PER_MULTIPROCESSOR);
    if 2 * blocks > wanted {
        return Err(refuse(Reason::OutputsFillDevice { cubes: blocks, wanted }));
    }
    let lanes = match access.direction {
        Direction::Along => 1,
        Direction::Across => access.vector as u64,
    };
    let partials = wanted / blocks * u64::from(block.outputs) * lanes;
    if partials > tuning::PARTIALS_PER_BLOCK {
        // The last cube would merge for long: fewer cubes, each larger.
        block = cube::block(problem, device, access, Sharing::SeveralLarge);
        blocks = blocks_of(&block);
        wanted = cubes_wanted(device, 1).max(2 * blocks);
    }
    let loads = u64::from(block.workers) * access.in_flight as u64;
    let most = steps / loads.max(1);
    let cubes = (wanted / blocks).min(most);
    if cubes < 2 {
        return Err(refuse(Reason::TooShortToSplit { loads: steps, needed: 2 * loads }));
    }
    let last_cube = Schedule::Split {
        cubes: cubes as u32,
        workers: block.workers,
        outputs: block.outputs,
        combine: block.combine,
        merge: Merge::LastCube,
    };
    if schedule::check(&Plan::new(access, last_cube), problem, device).is_ok() {
        return Ok(last_cube);
    }
    let scalar =
        Access { direction: Direction::Along, vector: 1, ragged: false, in_flight: 1, batch: 1 };
    let units = u64::from(units_limit(problem, device, scalar, tuning::MERGE_UNITS));
    let outputs = (problem.outputs() as u64)
        .next_power_of_two()
        .min(u64::from(device.plane_size_min.max(1)))
        .min(units);
    let workers = (units / outputs).min(floor_power_of_two(cubes));
    Ok(Schedule::Split {
        cubes: cubes as u32,
        workers: block.workers,
        outputs: block.outputs,
        combine: block.combine,
        merge: Merge::SecondLaunch { workers: workers as u32, outputs: outputs as u32 },
    })
}

/// Outputs of one cube: the lanes of its vectors counted apart where these lie across outputs.
pub(crate) fn outputs_per_cube(access: Access, schedule: Schedule) -> u32 {
    match access.direction {
        Direction::Along => schedule.outputs(),
        Direction::Across => schedule.outputs().saturating_mul(access.vector as u32),
    }
}
