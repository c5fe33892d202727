//! Lists of plans that a test should run: every kind that can run, not only the one that the
//! planner chooses.

use reduce_planner::{Access, Device, Direction, Plan, Problem, Schedule, ScheduleKind};

/// Loads in flight of these plans. Each load in flight is another copy of the same code, and
/// compilers take most of the time of a test. The plans that the planner chooses have more loads in
/// flight.
const MOST_LOADS: usize = 4;

/// Outputs in flight where a plan has several.
const SEVERAL: usize = 2;

/// Every kind of plan that can run a problem on a device: each schedule, read in the widest
/// vectors, in narrow ones and in single elements, along the reduction and across outputs, with
/// rows realigned and not.
///
/// ```
/// use reduce_kernels::{Device, ElementType, Sum, TensorDescription, reduce, testing::every_plan};
///
/// let x = TensorDescription::row_major(ElementType::F32, [64, 4096]);
/// let problem = reduce(Sum, &x).over(1).problem()?;
/// let device = Device::h200();
/// let plans = every_plan(&problem, &device);
/// assert!(!plans.is_empty() && plans.iter().all(|plan| plan.check(&problem, &device).is_ok()));
/// # Ok::<(), reduce_kernels::ReduceError>(())
/// ```
pub fn every_plan(problem: &Problem, device: &Device) -> Vec<Plan> {
    let single = |direction| Access::new(direction).with_loads_in_flight(3);
    let mut narrow = device.clone();
    narrow.max_vector = 2;
    let mut accesses = vec![
        Access::widest(problem, device),
        Access::widest(problem, &narrow),
        single(Direction::Along),
        single(Direction::Across),
    ];
    accesses.dedup();
    accesses.extend(Access::realigned(problem, device));
    plans_reading(problem, device, &accesses)
}

/// Every schedule that can run a problem in the widest vectors, with rows realigned and not.
///
/// ```
/// use reduce_kernels::{
///     Device, ElementType, Sum, TensorDescription, reduce, testing::widest_plans,
/// };
///
/// let x = TensorDescription::row_major(ElementType::F32, [64, 4096]);
/// let problem = reduce(Sum, &x).over(1).problem()?;
/// let device = Device::h200();
/// let plans = widest_plans(&problem, &device);
/// assert!(!plans.is_empty() && plans.iter().all(|plan| plan.check(&problem, &device).is_ok()));
/// # Ok::<(), reduce_kernels::ReduceError>(())
/// ```
pub fn widest_plans(problem: &Problem, device: &Device) -> Vec<Plan> {
    let mut accesses = vec![Access::widest(problem, device)];
    accesses.extend(Access::realigned(problem, device));
    plans_reading(problem, device, &accesses)
}

/// Plans with these accesses: each schedule, splits that are merged by the last cube and by a
/// second launch, plans with one and with several outputs in flight, and those that hold all
/// elements for two passes.
fn plans_reading(problem: &Problem, device: &Device, accesses: &[Access]) -> Vec<Plan> {
    // Without 64-bit atomics, a second launch merges what a split leaves.
    let mut without_atomics = device.clone();
    without_atomics.wide_atomics = false;
    let sizings = ScheduleKind::ALL
        .map(|kind| (kind, device))
        .into_iter()
        .chain([(ScheduleKind::Split, &without_atomics)]);
    let mut plans: Vec<Plan> = Vec::new();
    for &access in accesses {
        let loads = access.loads_in_flight.min(MOST_LOADS);
        for (kind, sizing) in sizings.clone() {
            let access = access.with_loads_in_flight(loads);
            let Ok(schedule) = Schedule::sized(kind, problem, sizing, access) else { continue };
            for outputs in [1, SEVERAL] {
                let access = access
                    .with_loads_in_flight(loads.min(MOST_LOADS / outputs))
                    .with_outputs_in_flight(outputs);
                // All loads of an output, if units take its elements in two passes.
                let units = u64::from(schedule.units_per_output());
                let all = access.loads_per_output(problem).div_ceil(units) as usize;
                let held = access.with_loads_in_flight(all.max(1)).with_in_passes(true);
                let both = [access, held].map(|access| Plan::new(access, schedule));
                let legal = |plan: &Plan| plan.check(problem, device).is_ok();
                plans.extend(both.into_iter().filter(legal));
            }
        }
    }
    plans.sort_by_key(|plan| format!("{plan:?}"));
    plans.dedup();
    plans
}
