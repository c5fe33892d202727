//! The choice of a plan, step by step. Read [`choose`] from top to bottom.
//!
//! | question | file |
//! | --- | --- |
//! | Which way is the input read, in what vectors, with how much in flight? | `access.rs` |
//! | When does a schedule apply, what size has it? | `unit.rs`, `plane.rs`, `cube.rs`, `split.rs` |
//! | What should a plan take? | `cost.rs` |
//! | Which numbers is that based on, and what was measured? | `../tuning/` |
//! | What may a plan never do? | `../plan/check.rs` |

mod access;
mod candidates;
mod cost;
mod cube;
mod plane;
mod sizing;
mod split;
mod unit;

pub(crate) use sizing::{FEW_FIELDS, cubes_wanted, floor_power_of_two};

use crate::{
    Access, Device, Estimate, Plan, PlanError, Problem, Reason, Refusal, Schedule, ScheduleKind,
    limits, plan::check::check_schedule,
};

/// A plan with its estimate, and the reasons against all other schedules.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Choice {
    /// The plan that was taken.
    pub plan: Plan,
    /// What the plan should take, launches included.
    pub estimate: Estimate,
    /// The schedules that were not taken, in the order of [`ScheduleKind::ALL`].
    pub refused: Vec<Refusal>,
    /// The next best plans of the search, from the fastest to the slowest as estimated, at most
    /// [`Choice::MOST_RUNNERS_UP`]. They may have the same schedule as the plan that was taken.
    pub runners_up: Vec<Candidate>,
}

impl Choice {
    /// Most runners-up that a choice keeps.
    pub const MOST_RUNNERS_UP: usize = 7;

    /// What the plan should take, launches included, in microseconds.
    #[must_use]
    pub fn expected_microseconds(&self) -> f64 {
        self.estimate.microseconds()
    }
}

/// Chooses a plan for a problem on a device.
///
/// # Errors
///
/// The description of the device makes no sense, the device lacks an element type or wide indices,
/// or no schedule applies. See [`PlanError`].
pub fn choose(problem: &Problem, device: &Device) -> Result<Choice, PlanError> {
    // 1. No plan can run a type that the device lacks, or indices that are too narrow.
    limits::check(problem, device)?;

    // 2. The input is read in the widest vectors that its layout allows, with as many loads in
    //    flight as the device wants. Cubes may realign rows for wider ones.
    let accesses = Accesses::of(problem, device);

    // 3. Each schedule either says why it does not apply, or is sized. The access is then fitted to
    //    it (`Access::fitted`): no more loads in flight than a unit has, and several outputs in
    //    flight where each is short. The plan is estimated.
    let mut candidates: Vec<(Plan, Estimate)> = Vec::with_capacity(ScheduleKind::ALL.len());
    let mut refused: Vec<Refusal> = Vec::with_capacity(ScheduleKind::ALL.len());
    for kind in ScheduleKind::ALL {
        match candidate(kind, problem, device, accesses) {
            Ok(candidate) => candidates.push(candidate),
            Err(refusal) => refused.push(refusal),
        }
    }

    // 4. The fastest candidate is taken. Of equals, it is the one that is cheapest to start.
    let fastest = candidates.iter().min_by(|a, b| a.1.total_ns().total_cmp(&b.1.total_ns()));
    let Some(&(plan, best)) = fastest else {
        return Err(PlanError::NoSchedule { device: device.name.clone(), refusals: refused });
    };

    // 5. All other candidates are refused because they are slower.
    let slower = candidates.iter().filter(|candidate| candidate.0 != plan);
    refused.extend(slower.map(|&(plan, estimate)| {
        let (best_microseconds, best_limit) = (best.microseconds(), best.limit());
        let reason = Reason::Slower { estimate, best_microseconds, best_limit };
        Refusal::new(plan.schedule.kind(), reason)
    }));
    refused.sort_by_key(|refusal| refusal.schedule);
    let mut runners_up = self::candidates(problem, device)?;
    runners_up.retain(|candidate| candidate.plan != plan);
    runners_up.truncate(Choice::MOST_RUNNERS_UP);
    Ok(Choice { plan, estimate: best, refused, runners_up })
}

/// A plan that could run, and what it should take.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Candidate {
    /// The plan.
    pub plan: Plan,
    /// What it should take, launches included.
    pub estimate: Estimate,
}

/// All plans that the search for a problem compares, from the fastest to the slowest as estimated.
///
/// # Errors
///
/// Those of [`choose`].
pub fn candidates(problem: &Problem, device: &Device) -> Result<Vec<Candidate>, PlanError> {
    limits::check(problem, device)?;
    let accesses = Accesses::of(problem, device);
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut refusals = Vec::new();
    for kind in ScheduleKind::ALL {
        let in_cubes = matches!(kind, ScheduleKind::Cube | ScheduleKind::Split);
        let realigned = accesses.realigned.filter(|_| in_cubes);
        for access in [Some(accesses.widest), realigned].into_iter().flatten() {
            let sized = match Schedule::sized(kind, problem, device, access) {
                Ok(sized) => sized,
                Err(refusal) => {
                    refusals.push(refusal);
                    continue;
                }
            };
            for schedule in candidates::sizes(sized, problem, access) {
                let fitted = access.fitted(problem, device, schedule);
                let loads = fitted.loads_in_flight;
                for loads in [loads, loads * 2, (loads / 2).max(1)] {
                    let access = fitted.with_loads_in_flight(loads);
                    let plan = Plan::new(access, schedule);
                    let known = candidates.iter().any(|candidate| candidate.plan == plan);
                    if !known && plan.check(problem, device).is_ok() {
                        let estimate = plan.estimate(problem, device);
                        candidates.push(Candidate { plan, estimate });
                    }
                }
            }
        }
    }
    if candidates.is_empty() {
        return Err(PlanError::NoSchedule { device: device.name.clone(), refusals });
    }
    candidates.sort_by(|a, b| a.estimate.total_ns().total_cmp(&b.estimate.total_ns()));
    Ok(candidates)
}

/// A plan with the schedule `kind`, whatever other schedules would take. It serves tests and
/// comparisons.
///
/// # Errors
///
/// The description of the device makes no sense, the device lacks what the problem needs, or the
/// schedule does not apply ([`PlanError::NoSchedule`] with its refusal).
pub fn force(kind: ScheduleKind, problem: &Problem, device: &Device) -> Result<Plan, PlanError> {
    limits::check(problem, device)?;
    let accesses = Accesses::of(problem, device);
    match candidate(kind, problem, device, accesses) {
        Ok((plan, _)) => Ok(plan),
        Err(refusal) => {
            Err(PlanError::NoSchedule { device: device.name.clone(), refusals: vec![refusal] })
        }
    }
}

/// The ways to read the input: in the widest vectors, and with rows realigned where that gives
/// wider ones and may pay.
#[derive(Clone, Copy)]
struct Accesses {
    widest: Access,
    realigned: Option<Access>,
}

impl Accesses {
    /// Accumulators of several fields have realigned rows only where elements are narrow. Moving
    /// them to their outputs takes what wide vectors save otherwise.
    fn of(problem: &Problem, device: &Device) -> Self {
        let narrow = problem.input().bytes() <= device.tuning.realigned_narrow_bytes;
        let pays = problem.operator().fields == 1 || narrow;
        let widest = Access::widest(problem, device);
        let realigned = if pays { widest.widened(problem, device) } else { None };
        Self { widest, realigned }
    }
}

/// The faster plan with one schedule that obeys the rules, or the reason against it.
fn candidate(
    kind: ScheduleKind,
    problem: &Problem,
    device: &Device,
    accesses: Accesses,
) -> Result<(Plan, Estimate), Refusal> {
    let estimated = |plan: Plan| (plan, plan.estimate(problem, device));
    let widest = legal(kind, problem, device, accesses.widest).map(estimated);
    let in_cubes = matches!(kind, ScheduleKind::Cube | ScheduleKind::Split);
    let realigned = accesses.realigned.filter(|_| in_cubes);
    let realigned = realigned.and_then(|access| legal(kind, problem, device, access).ok());
    match (widest, realigned.map(estimated)) {
        (Err(_), Some(realigned)) => Ok(realigned),
        (Ok(widest), Some(realigned)) if realigned.1.total_ns() < widest.1.total_ns() => {
            Ok(realigned)
        }
        (widest, _) => widest,
    }
}

/// A plan with one schedule and one access that obeys the rules, or the reason against it.
fn legal(
    kind: ScheduleKind,
    problem: &Problem,
    device: &Device,
    access: Access,
) -> Result<Plan, Refusal> {
    let schedule = Schedule::sized(kind, problem, device, access)?;
    let plan = Plan::new(access.fitted(problem, device, schedule), schedule);
    check_schedule(&plan, problem, device)
        .map_err(|limit| Refusal::new(kind, Reason::PassesLimits { limit }))?;
    Ok(plan)
}

impl Schedule {
    /// Sizes the schedule `kind` for a problem that is read in the given way on a device that
    /// [`Device::check`] accepts.
    ///
    /// It serves tests and comparisons. [`Plan::check`] tells whether a plan with the schedule may
    /// run.
    ///
    /// # Errors
    ///
    /// The schedule does not apply.
    pub fn sized(
        kind: ScheduleKind,
        problem: &Problem,
        device: &Device,
        access: Access,
    ) -> Result<Self, Refusal> {
        let sized = match kind {
            ScheduleKind::Unit => Ok(unit::size(problem, device, access)),
            ScheduleKind::Plane => plane::size(problem, device, access),
            ScheduleKind::Cube => cube::size(problem, device, access),
            ScheduleKind::Split => split::size(problem, device, access),
        };
        sized.map_err(|reason| Refusal::new(kind, reason))
    }
}
