//! The sizes around the one that a schedule's rules give: each number halved and doubled. There are
//! only a few cubes of a split for each multiprocessor, so their number also changes by a third.

use crate::{Access, Combine, Direction, Problem, Schedule};

/// The schedule itself, followed by those with some numbers halved or doubled, each once. Some may
/// break the rules (`plan/check.rs`).
pub(super) fn sizes(schedule: Schedule, problem: &Problem, access: Access) -> Vec<Schedule> {
    let mut sizes = vec![schedule];
    match schedule {
        Schedule::Unit { units_per_cube } => {
            for units_per_cube in beside(units_per_cube) {
                sizes.push(Schedule::Unit { units_per_cube });
            }
        }
        Schedule::Plane { lanes_per_output, units_per_cube } => {
            for lanes_per_output in beside(lanes_per_output) {
                sizes.push(Schedule::Plane { lanes_per_output, units_per_cube });
            }
            for units_per_cube in beside(units_per_cube) {
                sizes.push(Schedule::Plane { lanes_per_output, units_per_cube });
            }
        }
        Schedule::Cube { units_per_output, outputs_per_cube, combine } => {
            for (units_per_output, outputs_per_cube) in
                blocks(access, units_per_output, outputs_per_cube)
            {
                let combine = combined(combine, units_per_output);
                sizes.push(Schedule::Cube { units_per_output, outputs_per_cube, combine });
            }
        }
        Schedule::Split {
            cubes_per_output,
            units_per_output,
            outputs_per_cube,
            combine,
            merge,
        } => {
            let loads = access.loads_per_output(problem).max(1);
            let mut push = |cubes: u64, units_per_output, outputs_per_cube| {
                let most = (loads / u64::from(units_per_output)).max(2);
                let combine = combined(combine, units_per_output);
                sizes.push(Schedule::Split {
                    cubes_per_output: cubes.clamp(2, most) as u32,
                    units_per_output,
                    outputs_per_cube,
                    combine,
                    merge,
                });
            };
            let cubes = u64::from(cubes_per_output);
            for cubes in [cubes / 3, cubes / 2, cubes * 2 / 3, cubes * 4 / 3, cubes * 2] {
                push(cubes, units_per_output, outputs_per_cube);
            }
            for (units, outputs) in blocks(access, units_per_output, outputs_per_cube) {
                push(cubes, units, outputs);
                // As many units of an output altogether.
                let times = f64::from(units_per_output) / f64::from(units);
                push((cubes as f64 * times) as u64, units, outputs);
            }
        }
    }
    let mut distinct: Vec<Schedule> = Vec::with_capacity(sizes.len());
    for size in sizes {
        if !distinct.contains(&size) {
            distinct.push(size);
        }
    }
    distinct
}

/// Half and twice a number.
fn beside(number: u32) -> [u32; 2] {
    [(number / 2).max(1), number.saturating_mul(2)]
}

/// The blocks beside a cube's: fewer and more units for an output, and more outputs or fewer.
fn blocks(access: Access, units: u32, outputs: u32) -> Vec<(u32, u32)> {
    let [fewer_units, more_units] = beside(units);
    let [fewer_outputs, more_outputs] = beside(outputs);
    match access.direction {
        Direction::Along => vec![
            (fewer_units, outputs),
            (more_units, outputs),
            ((units / 4).max(1), outputs),
            (units, more_outputs),
        ],
        Direction::Across => vec![
            (fewer_units, outputs),
            (more_units, outputs),
            (units, fewer_outputs),
            (units, more_outputs),
            (fewer_units, more_outputs),
            (more_units, fewer_outputs),
        ],
    }
}

/// How so many units of an output combine, where a schedule with other units has `combine`.
fn combined(combine: Combine, units_per_output: u32) -> Combine {
    match combine {
        Combine::Plane { lanes } if units_per_output < lanes => Combine::Shared,
        combine => combine,
    }
}
