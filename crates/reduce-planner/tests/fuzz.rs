//! Fuzz targets: whatever comes from outside, the planner neither panics nor gives a plan that may
//! not run.
//!
//! The test command gives each target random bytes for a second. Ten minutes for one target, with
//! overflow checks, and the number of inputs at the end:
//!
//! ```sh
//! CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
//! BOLERO_RANDOM_TEST_TIME_MS=600000 \
//! cargo test --release -p reduce-planner --test fuzz plans -- --nocapture
//! ```
//!
//! A failure prints a seed. With `BOLERO_RANDOM_SEED=<seed>` in its environment, the same command
//! tries that input first.

mod support;

use std::cell::Cell;

use reduce_planner::{
    Access, Device, Estimate, Plan, PlanError, PlanStore, Problem, ScheduleKind, TunedPlan,
    candidates, choose, force, needs_wide_indices,
};
use support::{Bytes, walk::walk_case};

/// Most bytes of an input. Few decide on more.
const MOST_BYTES: usize = 2048;

/// Inputs that a target has seen, and those among them that led to what the target is about.
#[derive(Default)]
struct Seen {
    inputs: Cell<u64>,
    useful: Cell<u64>,
}

impl Seen {
    /// Runs a target on one input. It says whether the input was useful.
    fn count(&self, bytes: &[u8], target: fn(&mut Bytes<'_>) -> bool) {
        self.inputs.set(self.inputs.get() + 1);
        self.useful.set(self.useful.get() + u64::from(target(&mut Bytes(bytes))));
    }

    /// Prints the numbers. A target that no input gets through tests nothing.
    fn report(&self, target: &str) {
        let (inputs, useful) = (self.inputs.get(), self.useful.get());
        println!("{target}: {inputs} inputs, {useful} useful");
        assert!(useful > 0 || inputs < 1000, "{inputs} inputs, none of them useful");
    }
}

macro_rules! fuzz {
    ($($(#[$doc:meta])* $target:ident;)*) => {
        mod targets {
            $(#[test] fn $target() {
                let seen = std::panic::AssertUnwindSafe(super::Seen::default());
                bolero::check!()
                    .with_max_len(super::MOST_BYTES)
                    .for_each(|bytes: &[u8]| seen.count(bytes, super::$target));
                seen.report(stringify!($target));
            })*
        }
    };
}

fuzz! {
    plans;
    devices;
    stores;
    problems;
    walks;
}

/// A problem of usual or hostile numbers.
fn any_problem(bytes: &mut Bytes<'_>) -> Option<Problem> {
    if bytes.once_in(4) {
        return support::hostile_problem(bytes).ok();
    }
    let operator = support::operator(bytes);
    let scale = bytes.pick(&[16, 1000, 1 << 20]);
    support::problem(bytes, operator, |bytes| match bytes.byte() % 4 {
        0 => 1 << bytes.below(21),
        _ => bytes.below(scale),
    })
    .ok()
}

/// A preset, or one with other numbers.
fn any_device(bytes: &mut Bytes<'_>) -> Option<Device> {
    match bytes.byte() % 4 {
        0 => Some(Device::h200()),
        1 => Some(Device::software_adapter()),
        _ => support::device(bytes),
    }
}

/// What is true of every estimate: JSON has no infinity, and the choice compares the totals.
fn assert_finite(estimate: &Estimate, plan: Plan, problem: &Problem) {
    let terms = [
        estimate.launch_ns,
        estimate.gap_ns,
        estimate.waiting_ns,
        estimate.transfer_ns,
        estimate.issue_ns,
        estimate.together_ns,
        estimate.merge_ns,
        estimate.memory_ns(),
        estimate.total_ns(),
        estimate.alone_ns(),
    ];
    let finite = terms.iter().all(|term| term.is_finite() && *term >= 0.0);
    let locality = estimate.locality > 0.0 && estimate.locality <= 1.0;
    assert!(finite && locality, "{estimate:?} of {plan} for {problem}");
}

/// What is true of every plan that may run.
fn assert_sound(plan: Plan, problem: &Problem, device: &Device) {
    plan.check(problem, device).unwrap();
    assert_finite(&plan.estimate(problem, device), plan, problem);
    let Access { vector, loads_in_flight, outputs_in_flight, .. } = plan.access;
    let in_flight = loads_in_flight * outputs_in_flight;
    assert!((1..=Access::MOST_LOADS_IN_FLIGHT).contains(&in_flight), "{plan}");
    assert!(vector.is_power_of_two() && vector <= device.max_vector, "{plan}");
    let units = plan.schedule.units_per_cube();
    assert!(units.is_power_of_two() && units <= device.max_units_per_cube, "{plan}");
    let tiles = u64::from(plan.schedule.outputs_per_cube()) * outputs_in_flight as u64;
    let blocks = plan.cubes(problem) / u64::from(plan.schedule.cubes_per_output());
    assert!(blocks * tiles >= plan.output_tiles(problem), "{plan} for {problem}");
    let grid = device.grid(plan.cubes(problem)).unwrap().map(u128::from);
    assert!(grid.iter().product::<u128>() >= u128::from(plan.cubes(problem)), "{plan}");
    if !needs_wide_indices(problem) && blocks > 0 {
        // The last index of a load: units without loads compute it too.
        let units = u128::from(plan.schedule.units_per_output())
            * u128::from(plan.schedule.cubes_per_output());
        let loads = u128::from(plan.access.loads_per_output(problem));
        assert!(loads + units * in_flight as u128 <= 1 << 31, "{plan} for {problem}");
    }
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

/// Whatever the choice gives may run, and is the fastest of its kind.
fn assert_choice_sound(problem: &Problem, device: &Device) -> Result<Plan, PlanError> {
    let choice = choose(problem, device)?;
    assert_sound(choice.plan, problem, device);
    assert_finite(&choice.estimate, choice.plan, problem);
    let _ = choice.refused.iter().map(ToString::to_string).collect::<String>();
    for candidate in candidates(problem, device)? {
        assert_sound(candidate.plan, problem, device);
        assert_finite(&candidate.estimate, candidate.plan, problem);
    }
    for kind in ScheduleKind::ALL {
        match force(kind, problem, device) {
            Ok(plan) => assert_sound(plan, problem, device),
            Err(error) => drop(error.to_string()),
        }
    }
    let text = serde_json::to_string(&choice).unwrap();
    serde_json::from_str::<reduce_planner::Choice>(&text).unwrap();
    Ok(choice.plan)
}

/// Plans of any origin. Useful ones may run.
fn plans(bytes: &mut Bytes<'_>) -> bool {
    let way = bytes.byte() % 8;
    let (Some(problem), Some(device)) = (any_problem(bytes), any_device(bytes)) else {
        return false;
    };
    let chosen = |bytes: &mut Bytes<'_>| {
        let kind = bytes.pick(&ScheduleKind::ALL);
        force(kind, &problem, &device).ok().unwrap_or_else(|| support::plan(bytes))
    };
    let plan = match way {
        0 => serde_json::from_slice(bytes.0).ok(),
        1 | 2 => {
            let text = serde_json::to_string_pretty(&chosen(bytes)).unwrap();
            serde_json::from_str(&support::edited(bytes, &text)).ok()
        }
        3 => Some(support::plan(bytes)),
        _ => {
            let mut plan = chosen(bytes);
            for _ in 0..1 + bytes.below(3) {
                plan = support::beside(bytes, plan);
            }
            Some(plan)
        }
    };
    let Some(plan) = plan else { return false };
    let _ = (plan.to_string(), plan.cubes(&problem), plan.output_tiles(&problem));
    let _ = plan.published_words(&problem, usize::from(bytes.byte()));
    match plan.check(&problem, &device) {
        Ok(()) => {
            assert_sound(plan, &problem, &device);
            true
        }
        Err(error) => {
            let _ = (error.to_string(), plan.estimate(&problem, &device).to_string());
            false
        }
    }
}

/// Devices of any origin. Those that pass their check get plans for any problem, or an error.
fn devices(bytes: &mut Bytes<'_>) -> bool {
    let Some(problem) = any_problem(bytes) else { return false };
    let device = match bytes.byte() % 8 {
        0 => serde_json::from_slice(bytes.0).ok(),
        1 => {
            let text = serde_json::to_string(&Device::h200()).unwrap();
            serde_json::from_str(&support::edited(bytes, &text)).ok()
        }
        _ => support::device(bytes),
    };
    let Some(device) = device else { return false };
    let choice = match device.check() {
        Ok(()) => assert_choice_sound(&problem, &device),
        Err(error) => {
            let _ = error.to_string();
            assert_eq!(choose(&problem, &device).unwrap_err(), PlanError::Device(error));
            return false;
        }
    };
    choice.is_ok()
}

/// Files of plans of any origin. Those that are read give only plans that may run.
fn stores(bytes: &mut Bytes<'_>) -> bool {
    if bytes.once_in(8) {
        let text = String::from_utf8_lossy(bytes.0);
        return PlanStore::parse(&text, &Device::h200()).is_ok();
    }
    let device = bytes.pick(&[Device::h200, Device::software_adapter])();
    let mut store = PlanStore::new(&device);
    let mut problems = Vec::new();
    for _ in 0..1 + bytes.below(3) {
        if let Some(problem) = any_problem(bytes)
            && let Ok(choice) = choose(&problem, &device)
        {
            let tuned = TunedPlan::new(choice.plan, bytes.number(), bytes.number());
            store.insert(&problem, &device, tuned).unwrap();
            assert_eq!(store.plan_for(&problem, &device), Some(choice.plan));
            problems.push(problem);
        }
    }
    let text = store.to_json().unwrap();
    let read = PlanStore::parse(&text, &device).unwrap();
    assert!(read.iter().eq(store.iter()));
    // Most edits of the header only make it another one.
    let from = if bytes.once_in(4) { 0 } else { text.find("\"plans\"").unwrap() };
    let edited = text[..from].to_owned() + &support::edited(bytes, &text[from..]);
    match PlanStore::parse(&edited, &device) {
        Ok(read) => {
            for problem in &problems {
                if let Some(plan) = read.plan_for(problem, &device) {
                    assert_sound(plan, problem, &device);
                }
            }
            let again = PlanStore::parse(&read.to_json().unwrap(), &device).unwrap();
            assert_eq!(again, read);
            edited != text
        }
        Err(error) => {
            let _ = error.to_string();
            false
        }
    }
}

/// Problems of any shapes, strides and axes. Those that are stated get plans on the presets.
fn problems(bytes: &mut Bytes<'_>) -> bool {
    let problem = match support::hostile_problem(bytes) {
        Ok(problem) => problem,
        Err(error) => {
            let _ = error.to_string();
            return false;
        }
    };
    let _ = (problem.to_string(), problem.bytes(), problem.index_span(), problem.direction());
    let on_h200 = assert_choice_sound(&problem, &Device::h200());
    let _ = assert_choice_sound(&problem, &Device::software_adapter());
    on_h200.is_ok()
}

/// Legal plans load each element exactly once. `covering.rs` does this for the same cases always.
fn walks(bytes: &mut Bytes<'_>) -> bool {
    let mut walked = false;
    walk_case(bytes, 1 << 16, |_| walked = true);
    walked
}
