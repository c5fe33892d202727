//! What a plan should take: a roofline with the parallelism that the plan leaves unused.
//!
//! Little's law gives the bandwidth that loads in flight can sustain (bytes in flight over
//! latency); the device's own bandwidth caps it. Launches and the work of combining come on top.
//! The model ranks schedules for one problem; it is no forecast to the microsecond.

use crate::{Access, Combine, Device, Direction, Problem, Schedule, tuning};

/// Nanoseconds that `schedule` should take, launches included.
pub fn estimate_ns(problem: &Problem, device: &Device, access: Access, schedule: Schedule) -> f64 {
    let groups = access.groups(problem).max(1) as f64;
    let steps = access.steps(problem).max(1) as f64;
    let workers = f64::from(schedule.workers()) * f64::from(schedule.cubes_per_output());
    let multiprocessors = f64::from(device.multiprocessors);
    let cubes =
        (groups / f64::from(schedule.outputs())).ceil() * f64::from(schedule.cubes_per_output());

    let resident = f64::from(device.units_per_multiprocessor) * multiprocessors;
    let units = (groups * workers).min(resident);
    let loads = (steps / workers).min(tuning::LOADS_IN_FLIGHT as f64);
    let load_bytes = (access.vector * problem.input().bytes()) as f64;
    let latency = device.latency_ns as f64;
    let sustained = units * loads * load_bytes / latency;

    // One multiprocessor draws about twice its share when others idle.
    let reachable = device.bandwidth as f64 * 1e-9 * (2.0 * cubes / multiprocessors).min(1.0);
    let rate = sustained.min(reachable) * locality(problem, access, schedule);
    let moving = problem.bytes() as f64 / rate;

    let slots = (resident / f64::from(schedule.units())).max(1.0);
    let starting = cubes * tuning::CUBE_NS / slots;
    let steps_shared = match schedule.combine() {
        Some(Combine::Shared) => schedule.workers().ilog2(),
        Some(Combine::Plane { lanes }) => (schedule.workers() / lanes).max(1).ilog2(),
        None => 0,
    };
    let combining = f64::from(steps_shared) * tuning::SHARED_STEP_NS;
    let launching = f64::from(schedule.launches()) * device.launch_ns as f64;
    launching + moving.max(starting) + latency + combining
}

/// Share of each memory transaction that the units use before it is lost.
fn locality(problem: &Problem, access: Access, schedule: Schedule) -> f64 {
    let load = access.vector * problem.input().bytes();
    let run = access.run_len(problem) * problem.input().bytes();
    let abreast = match access.direction {
        Direction::Along => schedule.workers() as usize,
        Direction::Across => schedule.outputs() as usize,
    };
    let segment = (abreast * load).min(run);
    // A unit that walks a short run alone finds the rest of the line in cache.
    let line = tuning::ACROSS_SEGMENT_BYTES;
    if access.direction == Direction::Along && run <= line {
        return 1.0;
    }
    match segment {
        128.. => 1.0,
        64.. => 0.9,
        32.. => 0.7,
        16.. => 0.35,
        _ => 0.2,
    }
}
