//! The units of one cube per output, or per block of neighbouring outputs. For long reductions with
//! outputs enough to fill the device.

use super::{cooperating_units, floor_power_of_two, loads_per_lane, units_limit};
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
    let Block { workers, outputs, combine } = block(problem, device, access, Sharing::No);
    Ok(Schedule::Cube { workers, outputs, combine })
}

/// Whether several cubes share an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// Each output has one cube.
    No,
    /// Several cubes.
    Several,
    /// Several large cubes, so that there are fewer.
    SeveralLarge,
}

/// Sizes a block so that its units have several loads each and, where outputs stand side by side,
/// read whole memory segments.
pub(crate) fn block(problem: &Problem, device: &Device, access: Access, sharing: Sharing) -> Block {
    let steps = access.steps(problem).max(1);
    let wanted = match sharing {
        Sharing::SeveralLarge => 2 * cooperating_units(problem),
        // Rows off a vector's boundary: the wider, the fewer sectors are shared with other cubes.
        Sharing::No if access.direction == Direction::Across && access.vector == 1 => {
            2 * cooperating_units(problem)
        }
        _ => cooperating_units(problem),
    };
    let units = units_limit(problem, device, access, wanted);
    match access.direction {
        Direction::Along => {
            let loads = (access.in_flight as u64).max(loads_per_lane(problem));
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
            let units = u64::from(units);
            let segment = match access.vector {
                1 => tuning::UNALIGNED_SEGMENT_BYTES,
                _ => tuning::ACROSS_SEGMENT_BYTES,
            };
            let segment = (segment / bytes).max(1) as u64;
            let run = access.run_loads(problem).next_power_of_two();
            // A little more than a segment of vectors is one row of units too.
            let one_row = run <= segment || (access.vector > 1 && run <= 2 * segment);
            let abreast = (if one_row { run } else { segment }).min(units);
            let (workers, outputs) = if sharing != Sharing::No {
                (units / abreast, abreast)
            } else {
                // As many units as half fill the device, in one wave.
                let resident = u64::from(device.units_per_multiprocessor) / 2;
                let wave = resident * u64::from(device.multiprocessors);
                let fill = floor_power_of_two(wave / access.groups(problem).max(1));
                let most = units / abreast;
                let workers = fill.clamp(tuning::ACROSS_WORKERS.min(most), most);
                let together = match access.vector {
                    1 => units,
                    _ => u64::from(tuning::ACROSS_UNITS).min(units),
                };
                let outputs = together / workers;
                (workers, outputs.max(abreast))
            };
            let workers = workers.min(floor_power_of_two(steps)).max(1);
            Block { workers: workers as u32, outputs: outputs as u32, combine: Combine::Shared }
        }
    }
}
