//! The sizes around the one that a schedule's rules give: each number halved and doubled. There are
//! only a few cubes of a split for each multiprocessor, so their number also changes by a third.
//!
//! Cubes of a split along rows are not made larger where accumulators have several fields, unless
//! elements take long: on one H200, cubes of 512 units took 6 to 21 % longer than the fastest of 16
//! plans in the geometric means of such cases, and cubes of 256 units 4 %, but the estimates are
//! alike.

use crate::{
    plan::{Access, Combine, Schedule},
    problem::{Direction, Problem},
};

/// Most schedules of which [`sizes`] takes the distinct ones: those of a split across outputs.
const MOST_SIZES: usize = 18;

/// The schedule itself, followed by those with some numbers halved or doubled, each once. Some may
/// break the rules (`plan/check.rs`).
pub(super) fn sizes(schedule: Schedule, problem: &Problem, access: Access) -> Vec<Schedule> {
    let mut sizes = Vec::with_capacity(MOST_SIZES);
    sizes.push(schedule);
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
            // Long rows may have many cubes, of which each begins while others are under way.
            let along = access.direction == Direction::Along;
            if along {
                let in_flight = u64::from(units_per_output) * access.loads_in_flight as u64;
                let most = loads / in_flight.max(1);
                for cubes in [cubes * 4, cubes * 16].into_iter().filter(|&cubes| cubes <= most) {
                    push(cubes, units_per_output, outputs_per_cube);
                }
            }
            let operator = problem.operator();
            let grows = !along || operator.fields == 1 || operator.element_cost.is_transcendental();
            let blocks = blocks(access, units_per_output, outputs_per_cube);
            for (units, outputs) in blocks.filter(|block| grows || block.0 <= units_per_output) {
                push(cubes, units, outputs);
                // As many units of an output altogether.
                let times = f64::from(units_per_output) / f64::from(units);
                push((cubes as f64 * times) as u64, units, outputs);
            }
        }
    }
    // Units beyond the loads of an output are idle, and the estimates take their loads for others
    // that lie side by side. Realigned rows may need as many as the schedule has.
    let most = access.loads_per_output(problem).next_power_of_two();
    let most = most.max(schedule.units_per_output().into());
    let is_busy = |size: Schedule| u64::from(size.units_per_output()) <= most;
    // There are too few for a set to be faster.
    let mut distinct = 0;
    for nth in 0..sizes.len() {
        let size = sizes[nth];
        if (nth == 0 || is_busy(size)) && !sizes[..distinct].contains(&size) {
            sizes[distinct] = size;
            distinct += 1;
        }
    }
    sizes.truncate(distinct);
    sizes
}

/// Half and twice a number.
fn beside(number: u32) -> [u32; 2] {
    [(number / 2).max(1), number.saturating_mul(2)]
}

/// The blocks beside a cube's: fewer and more units for an output, and more outputs or fewer.
fn blocks(access: Access, units: u32, outputs: u32) -> impl Iterator<Item = (u32, u32)> {
    let [fewer_units, more_units] = beside(units);
    let [fewer_outputs, more_outputs] = beside(outputs);
    let [third, fourth] = match access.direction {
        Direction::Along => [((units / 4).max(1), outputs), (units, more_outputs)],
        Direction::Across => [(units, fewer_outputs), (units, more_outputs)],
    };
    let both = [(fewer_units, more_outputs), (more_units, fewer_outputs)];
    let across = access.direction == Direction::Across;
    let both = both.into_iter().filter(move |_| across);
    [(fewer_units, outputs), (more_units, outputs), third, fourth].into_iter().chain(both)
}

/// How so many units of an output combine, where a schedule with other units has `combine`.
fn combined(combine: Combine, units_per_output: u32) -> Combine {
    match combine {
        Combine::Plane { lanes } if units_per_output < lanes => Combine::Shared,
        combine => combine,
    }
}
