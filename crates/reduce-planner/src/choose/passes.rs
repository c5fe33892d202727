//! Plans whose units hold all elements of an output and take them in two passes.
//!
//! Two simple operators need fewer fields and fewer operations than one that must do for elements
//! in any order: a variance then has the sum and the largest magnitude, and after them the sum of
//! distances and of their squares. It pays for rows that a few units hold in their registers. Along
//! them, loads of single elements serve where rows begin off the boundary of a vector: all loads of
//! a row are in flight, so many small ones move as many bytes as a few wide ones.

use crate::{
    device::Device,
    plan::{
        Access, Combine, Plan, Schedule,
        check::{check_access, check_numbers},
        div_ceil,
    },
    problem::{Direction, Problem},
};

/// Most elements that a unit holds, as each takes a register when it has been converted.
const MOST_ELEMENTS: u64 = 64;

/// Most bytes that a unit holds. var of f32 8192 × 8192 along axis 1 took 70.6 us on one H200 with
/// 256 bytes, and 68.4 with 128.
const MOST_BYTES: u64 = 224;

/// Most elements that a unit holds of several outputs.
const MOST_ELEMENTS_OF_SEVERAL: usize = 32;

/// Most outputs that a team holds.
const MOST_OUTPUTS: usize = 4;

/// Units of a cube, and most of an output. While those of a larger cube wait for the last load of
/// their row, or for each other, too little else is under way: norm_l2 of bf16 16,384 × 16,384 along
/// axis 1 took 128 us in cubes of 256 units on one H200, 146 of 512 and 161 of 1024, and logsumexp
/// of 8192 × 32,000 took 214 in cubes of 1024, and 129 in one pass.
const UNITS: u32 = 256;

/// The plans for a problem along the reduction. None if the operator takes elements in one pass.
pub(super) fn plans(widest: Access, problem: &Problem, device: &Device) -> Vec<Plan> {
    let has_passes = problem.operator().passes_bytes.is_some();
    if !has_passes || widest.direction != Direction::Along {
        return Vec::new();
    }
    let mut plans = Vec::new();
    for access in accesses(widest, problem, device) {
        let loads = access.loads_per_output(problem);
        let mut units = 1u32;
        while units <= UNITS.min(device.max_units_per_cube) && u64::from(units) < 2 * loads {
            let each = div_ceil(loads, u64::from(units));
            let held = each.saturating_mul(access.vector as u64);
            let second = problem.second().map_or(0, |second| second.element().bytes());
            let bytes = held.saturating_mul((problem.input().bytes() + second) as u64);
            let fits = held <= MOST_ELEMENTS && bytes <= MOST_BYTES;
            if fits && each <= Access::MOST_LOADS_IN_FLIGHT as u64 {
                let access = access.with_loads_in_flight(each as usize);
                plans_of(access, units, problem, device, &mut plans);
            }
            units *= 2;
        }
    }
    plans
}

/// The ways to read rows: the widest one, that without edges, and single elements.
fn accesses(widest: Access, problem: &Problem, device: &Device) -> Vec<Access> {
    let plain = |vector: usize| Access::new(Direction::Along).with_vector(vector);
    let mut whole = widest.vector;
    while check_access(plain(whole), problem, device).is_err() {
        whole /= 2;
    }
    let mut accesses = vec![widest, plain(whole), plain(1)];
    accesses.dedup_by_key(|access| (access.vector, access.peeled));
    accesses
}

/// Adds the plans with so many units for each output.
fn plans_of(access: Access, units: u32, problem: &Problem, device: &Device, plans: &mut Vec<Plan>) {
    let units_per_cube = UNITS.min(device.max_units_per_cube);
    let in_plane = device.plane_operations && units <= device.plane_size_min;
    let schedule = match units {
        1 => Schedule::Unit { units_per_cube },
        _ if in_plane => Schedule::Plane { lanes_per_output: units, units_per_cube },
        _ => {
            let combine = match device.plane_operations {
                true => Combine::Plane { lanes: device.plane_size_min },
                false => Combine::Shared,
            };
            let outputs_per_cube = units_per_cube / units;
            Schedule::Cube { units_per_output: units, outputs_per_cube, combine }
        }
    };
    let mut outputs = 1;
    while outputs <= MOST_OUTPUTS {
        let several = access.with_outputs_in_flight(outputs).with_in_passes(true);
        let held = outputs * access.loads_in_flight * access.vector;
        let plan = Plan::new(several, schedule);
        let fits = outputs == 1 || held <= MOST_ELEMENTS_OF_SEVERAL;
        if fits && check_numbers(&plan, problem, device).is_ok() {
            plans.push(plan);
        }
        outputs *= 2;
    }
}
