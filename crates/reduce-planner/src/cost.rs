//! What a plan should take: a roofline with the parallelism that the plan leaves unused.
//!
//! Little's law gives the bandwidth that loads in flight can sustain (bytes in flight over
//! latency); the device's own bandwidth caps it. Launches and the work of combining come on top.
//! The model ranks schedules for one problem; it is no forecast to the microsecond.

use crate::{Access, Combine, Device, Direction, Merge, Problem, Schedule, tuning};

/// Nanoseconds that `schedule` should take, launches included.
pub fn estimate_ns(problem: &Problem, device: &Device, access: Access, schedule: Schedule) -> f64 {
    let groups = access.groups(problem).max(1) as f64;
    let steps = access.steps(problem).max(1) as f64;
    let workers = f64::from(schedule.workers().max(1)) * f64::from(schedule.cubes_per_output());
    let multiprocessors = f64::from(device.multiprocessors.max(1));
    let batch = access.batch.max(1) as f64;
    let cubes = (groups / (batch * f64::from(schedule.outputs()))).ceil()
        * f64::from(schedule.cubes_per_output());

    let resident = f64::from(device.units_per_multiprocessor.max(1)) * multiprocessors;
    let units = (groups / batch * workers).min(resident);
    let loads = (steps / workers).min(access.in_flight as f64) * batch;
    let load_bytes = access.vector as f64 * problem.input().bytes() as f64;
    let latency = device.latency_ns.max(1) as f64;
    let sustained = units * loads * load_bytes / latency;

    // One multiprocessor draws more than its share when others idle, but cubes do not divide evenly.
    let occupied = (cubes / (tuning::CUBES_FOR_BANDWIDTH * multiprocessors)).min(1.0);
    let reachable = device.bandwidth.max(1) as f64 * 1e-9 * occupied;
    // Latency bounds every load, the bandwidth only what must come from memory: broadcast elements
    // are loaded often and moved once.
    let loading = groups * steps * load_bytes / sustained;
    let moving = problem.bytes() as f64 / reachable;
    let reading = loading.max(moving) / locality(problem, device, access, schedule);

    let slots = (resident / f64::from(schedule.units())).max(1.0);
    let starting = cubes * tuning::CUBE_NS / slots;
    let steps_shared = match schedule.combine() {
        Some(Combine::Shared) => schedule.workers().max(1).ilog2(),
        Some(Combine::Plane { lanes }) => (schedule.workers() / lanes.max(1)).max(1).ilog2(),
        None => 0,
    };
    let handing_over = match schedule {
        Schedule::Split { merge: Merge::LastCube, .. } => tuning::HAND_OVER_NS,
        _ => 0.0,
    };
    let combining = f64::from(steps_shared) * tuning::SHARED_STEP_NS + handing_over;
    let launching = f64::from(schedule.launches()) * device.launch_ns as f64;
    launching + reading.max(starting) + latency + combining
}

/// Share of the bandwidth that the access pattern leaves.
fn locality(problem: &Problem, device: &Device, access: Access, schedule: Schedule) -> f64 {
    let element = problem.input().bytes();
    let run = access.run_len(problem).saturating_mul(element);
    let abreast = match (access.direction, schedule) {
        (Direction::Along, _) if run <= tuning::CACHED_RUN_BYTES => return 1.0,
        (Direction::Along, _) => schedule.workers(),
        (Direction::Across, Schedule::Plane { lanes, .. }) => device.plane_size_min / lanes.max(1),
        (Direction::Across, _) => schedule.outputs(),
    };
    if access.direction == Direction::Along {
        if matches!(schedule, Schedule::Cube { .. }) && abreast <= device.plane_size_min {
            return tuning::CUBE_OF_ONE_PLANE_EFFICIENCY;
        }
        // A team that has much of a run in flight leaves no gap to the team beside it.
        let team =
            (abreast as usize).saturating_mul(access.vector).saturating_mul(access.in_flight);
        if abreast > 1 && team.saturating_mul(4) >= access.run_len(problem) {
            return 1.0;
        }
        // A unit alone comes back to its line before the line is lost, mostly.
        if abreast == 1 && run <= tuning::ACROSS_SEGMENT_BYTES {
            return tuning::LONE_UNIT_EFFICIENCY;
        }
    }
    let side_by_side = (abreast as usize).saturating_mul(access.vector);
    let mut segment = side_by_side.saturating_mul(element).min(run);
    // Where outputs side by side cover whole runs, and these lie one behind the other, the workers read
    // on in the next.
    let dense = problem.reduced().last().is_some_and(|dim| dim.stride == access.run_len(problem));
    let covered = (1..2).contains(&(side_by_side / access.run_len(problem).max(1)));
    if access.direction == Direction::Across && dense && covered {
        segment = segment.saturating_mul(schedule.workers() as usize);
    }
    let efficiency = tuning::SEGMENT_EFFICIENCY.iter().find(|(bytes, _)| segment >= *bytes);
    efficiency.map_or(0.2, |&(_, share)| share)
}
