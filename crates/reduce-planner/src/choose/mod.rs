//! The choice of a plan for a reduction, step by step. Read [`choose`] from top to bottom. The
//! choice for results that are applied to their elements is in `../applied/choose.rs`, that for
//! lists in `../list/choose.rs` and `../list/application.rs`.
//!
//! | question | file |
//! | --- | --- |
//! | Which way is the input read, in what vectors, with how much in flight? | `access.rs` |
//! | When does a schedule apply, what size has it? | `unit.rs`, `plane.rs`, `cube.rs`, `split.rs` |
//! | Which other sizes are compared with it? | `candidates.rs` |
//! | Which plans hold all elements, for two passes? | `passes.rs` |
//! | What changes if bits must not depend on the number of outputs? | `invariant.rs` |
//! | What changes if bits must be the same on every device? | `reproducible.rs` |
//! | What should a plan take? | `cost.rs` |
//! | Which numbers is that based on, and what was measured? | `../numbers/` |
//! | What may a plan never do? | `../plan/check.rs` |
//! | What does a choice tell? | `choice.rs` |

mod access;
mod candidates;
mod choice;
mod cost;
mod cube;
pub(crate) mod invariant;
mod passes;
mod plane;
mod reproducible;
mod sizing;
mod split;
mod unit;

pub use choice::{Candidate, Choice, Explained};
pub(crate) use cost::norm;
pub(crate) use sizing::{FEW_FIELDS, cubes_wanted, floor_power_of_two};

use cost::Costs;
use sizing::has_costly_blocks;

use crate::{
    device::Device,
    error::PlanError,
    kind::ScheduleKind,
    limits,
    numbers::from_percent,
    plan::{
        Access, Plan, Schedule,
        check::{check_beside, check_schedule},
        div_ceil,
    },
    problem::{Direction, Problem},
    refusal::{Reason, Refusal},
};

impl Explained for Plan {
    type Refusal = Refusal;

    fn is_of_kind(&self, other: &Self) -> bool {
        self.schedule.kind() == other.schedule.kind()
    }
}

/// Chooses a plan for a problem on a device.
///
/// # Errors
///
/// The description of the device makes no sense, the device lacks an element type or wide indices,
/// or no schedule applies. See [`PlanError`].
pub fn choose(problem: &Problem, device: &Device) -> Result<Choice, PlanError> {
    if problem.numerics().is_batch_invariant() {
        return invariant::choose(problem, device);
    }
    let search = Search::run(problem, device)?;

    // 6. The fastest plan is taken.
    let ranking = search.ranking(device);
    let mut ranked = ranking.iter().copied();
    let Some(Candidate { plan, estimate: best }) = ranked.next() else {
        return Err(search.no_schedule(device));
    };
    let mut refused = search.refused;

    // 7. All other schedules are refused because they are slower, even with their fastest plan.
    for kind in ScheduleKind::ALL.into_iter().filter(|&kind| kind != plan.schedule.kind()) {
        let has_kind = |other: &Candidate| other.plan.schedule.kind() == kind;
        if let Some(other) = ranked.clone().find(has_kind) {
            let (best_microseconds, best_limit) = (best.microseconds(), best.limit());
            let estimate = other.estimate;
            let reason = Reason::Slower { estimate, best_microseconds, best_limit };
            refused.push(Refusal::new(kind, reason));
        }
    }
    refused.sort_by_key(|refusal| refusal.kind);
    let runners_up = ranked.take(Choice::MOST_RUNNERS_UP).collect();
    Ok(Choice { plan, estimate: best, refused, runners_up })
}

/// All plans that the search for a problem compares, from the fastest to the slowest as estimated.
/// Of batch-invariant plans, there is only the one that is taken.
///
/// # Errors
///
/// Those of [`choose`].
pub fn candidates(problem: &Problem, device: &Device) -> Result<Vec<Candidate>, PlanError> {
    if problem.numerics().is_batch_invariant() {
        let Choice { plan, estimate, .. } = invariant::choose(problem, device)?;
        return Ok(vec![Candidate { plan, estimate }]);
    }
    let search = Search::run(problem, device)?;
    if search.found.is_empty() {
        return Err(search.no_schedule(device));
    }
    let mut candidates: Vec<Candidate> = search.found.iter().map(|found| found.candidate).collect();
    candidates.sort_by(|a, b| a.estimate.alone_ns().total_cmp(&b.estimate.alone_ns()));
    Ok(candidates)
}

/// A plan that the search found.
#[derive(Clone, Copy)]
struct Found {
    candidate: Candidate,
    /// Whether the rules of its schedule give its numbers.
    ruled: bool,
}

/// The plans of all schedules that apply, and the reasons against those that do not.
struct Search {
    found: Vec<Found>,
    refused: Vec<Refusal>,
}

impl Search {
    fn run(problem: &Problem, device: &Device) -> Result<Self, PlanError> {
        // 1. No plan can run a type that the device lacks, or indices that are too narrow.
        limits::check(problem, device)?;

        // 2. The input is read in the widest vectors that its layout allows, with as many loads in
        //    flight as the device wants. Across outputs, cubes may realign rows for wider ones.
        //    Along the reduction, single elements are compared where vectors leave edges.
        if problem.is_by_position() {
            return Ok(Self::by_position(problem, device));
        }
        let accesses = Accesses::of(problem, device);
        let mut search = Self::among(problem, device, accesses);
        // 5. Operators with two passes are also compared where units hold all elements.
        let costs = Costs::of(problem, device);
        for plan in passes::plans(accesses.widest, problem, device) {
            search.push(plan, true, &costs);
        }
        search.drop_refusals();
        for found in &mut search.found {
            found.candidate.plan.numerics = problem.numerics();
        }
        Ok(search)
    }

    /// The plans of a search whose bits follow from the positions of the elements.
    fn by_position(problem: &Problem, device: &Device) -> Self {
        let accesses = reproducible::accesses(problem, device);
        let Self { found, refused } = Self::among(problem, device, accesses);
        let found = found.iter().map(|found| found.candidate.plan);
        let plans = reproducible::plans(found, accesses.widest, problem, device);
        let costs = Costs::of(problem, device);
        let mut search = Self { found: Vec::with_capacity(plans.len()), refused };
        for plan in plans {
            search.push(plan, true, &costs);
        }
        search.drop_refusals();
        search
    }

    /// Drops the refusals of schedules that apply after all: with other numbers than the rules give.
    fn drop_refusals(&mut self) {
        let Self { found, refused } = self;
        let has = |kind| found.iter().any(|found| found.candidate.plan.schedule.kind() == kind);
        refused.retain(|refusal| !has(refusal.kind));
    }

    /// The plans of all schedules, which read the input in one of these ways.
    fn among(problem: &Problem, device: &Device, accesses: Accesses) -> Self {
        // 3. Each schedule either says why it does not apply, or is sized by its rules.
        let costs = Costs::of(problem, device);
        let mut search = Self { found: Vec::with_capacity(MOST_CANDIDATES), refused: Vec::new() };
        let mut sized: Vec<(Access, Candidate)> = Vec::with_capacity(2 * ScheduleKind::ALL.len());
        for kind in ScheduleKind::ALL {
            match ruled(kind, problem, device, accesses) {
                Ok((first, second)) => {
                    for (access, plan) in [Some(first), second].into_iter().flatten() {
                        sized.push((access, search.push(plan, true, &costs)));
                    }
                }
                Err(refusal) => search.refused.push(refusal),
            }
        }

        // 4. Around these sizes, each number is halved and doubled, and so are the loads in flight.
        //    A schedule that is hopeless is not worth the time.
        let times = sized.iter().map(|(_, sized)| sized.estimate.alone_ns());
        let hopeless = HOPELESS * times.fold(f64::INFINITY, f64::min);
        for (access, sized) in sized {
            if sized.estimate.alone_ns() <= hopeless {
                search.add_beside(sized.plan, access, &costs);
            }
        }
        search
    }

    /// The plans from the one that is taken on. The numbers that the rules give rest on
    /// measurements, so others must be expected to be faster by a margin. Of equals, the first is
    /// the one that was found first.
    fn ranking(&self, device: &Device) -> Vec<Candidate> {
        let margin = 1.0 + from_percent(device.tuning.search_margin_percent);
        let handicapped = self.found.iter().map(|found| match found.ruled {
            true => found.candidate.estimate.alone_ns(),
            false => found.candidate.estimate.alone_ns() * margin,
        });
        let mut ranking: Vec<(f64, usize)> = handicapped.zip(0..).collect();
        ranking.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        ranking.into_iter().map(|(_, nth)| self.found[nth].candidate).collect()
    }

    /// The error that no schedule applies.
    fn no_schedule(&self, device: &Device) -> PlanError {
        PlanError::NoSchedule { device: device.name.clone(), refusals: self.refused.clone() }
    }

    /// Adds the plans beside the one with the numbers of the rules.
    fn add_beside(&mut self, ruled: Plan, access: Access, costs: &Costs<'_>) {
        let Costs { problem, device, .. } = *costs;
        for schedule in candidates::sizes(ruled.schedule, problem, access) {
            let fitted = access.fitted(problem, device, schedule);
            let units = schedule.all_units_per_output().max(1);
            let per_unit = div_ceil(access.loads_per_output(problem), units);
            let loads = fitted.loads_in_flight;
            let more = per_unit > loads as u64 && !has_costly_blocks(problem, schedule.kind());
            let twice = if more { 2 * loads } else { 0 };
            // Fewer loads rarely win, except with the size of the rules, and with other numbers of
            // lanes, whose units may have one round that is not full or two of which one is.
            let fewer = schedule == ruled.schedule || schedule.kind() == ScheduleKind::Plane;
            let half = if fewer { loads / 2 } else { 0 };
            for loads in [loads, half, twice] {
                let plan = Plan::new(fitted.with_loads_in_flight(loads), schedule);
                if plan != ruled && check_beside(&plan, problem, device).is_ok() {
                    self.push(plan, false, costs);
                }
            }
        }
    }

    fn push(&mut self, plan: Plan, ruled: bool, costs: &Costs<'_>) -> Candidate {
        let candidate = Candidate { plan, estimate: costs.estimate(&plan) };
        self.found.push(Found { candidate, ruled });
        candidate
    }
}

/// How many times as long as the fastest size of the rules a schedule's own size may take before
/// the plans beside it are not looked at.
const HOPELESS: f64 = 1.5;

/// About as many plans as a search finds.
const MOST_CANDIDATES: usize = 64;

/// A plan with the schedule `kind`, whatever other schedules would take. It serves tests and
/// comparisons.
///
/// # Errors
///
/// The description of the device makes no sense, the device lacks what the problem needs, or the
/// schedule does not apply ([`PlanError::NoSchedule`] with its refusal).
pub fn force(kind: ScheduleKind, problem: &Problem, device: &Device) -> Result<Plan, PlanError> {
    if problem.numerics().is_batch_invariant() {
        return invariant::force(kind, problem, device);
    }
    if problem.is_by_position() {
        let search = Search::run(problem, device)?;
        let mut ranked = search.ranking(device).into_iter().map(|candidate| candidate.plan);
        let of_kind = ranked.find(|plan| plan.schedule.kind() == kind);
        return of_kind.ok_or_else(|| search.no_schedule(device));
    }
    limits::check(problem, device)?;
    let accesses = Accesses::of(problem, device);
    let planned = ruled(kind, problem, device, accesses).map(|((_, first), second)| {
        let alone_ns = |plan: &Plan| plan.estimate(problem, device).alone_ns();
        let second = second.map(|(_, plan)| plan);
        second.filter(|second| alone_ns(second) < alone_ns(&first)).unwrap_or(first)
    });
    match planned {
        Ok(plan) => Ok(plan.with_numerics(problem.numerics())),
        Err(refusal) => {
            Err(PlanError::NoSchedule { device: device.name.clone(), refusals: vec![refusal] })
        }
    }
}

/// The ways to read the input: in the widest vectors, and in another way that may pay.
#[derive(Clone, Copy)]
struct Accesses {
    widest: Access,
    /// Across outputs, with rows realigned, where that gives wider vectors, or in wider vectors than
    /// accumulators of many fields leave registers for. Along the reduction, in single elements,
    /// where vectors leave edges.
    other: Option<Access>,
}

impl Accesses {
    /// Accumulators of several fields have realigned rows only where elements are narrow. Moving
    /// them to their outputs takes what wide vectors save otherwise.
    fn of(problem: &Problem, device: &Device) -> Self {
        let narrow = problem.input().bytes() <= device.tuning.realigned_narrow_bytes;
        let pays = problem.operator().fields == 1 || narrow;
        let widest = Access::widest(problem, device);
        let other = match problem.direction() {
            Direction::Across if pays => widest.widened(problem, device),
            Direction::Across => widest.doubled(problem, device),
            Direction::Along => widest.without_edges(problem),
        };
        Self { widest, other }
    }
}

/// A way to read the input, and a plan that does.
type Ruled = (Access, Plan);

/// The plans with the numbers that the rules of one schedule give, or the reason against it. There
/// are two if rows can be read in another way.
fn ruled(
    kind: ScheduleKind,
    problem: &Problem,
    device: &Device,
    accesses: Accesses,
) -> Result<(Ruled, Option<Ruled>), Refusal> {
    let planned = |access| legal(kind, problem, device, access).map(|plan| (access, plan));
    let applies = match kind {
        ScheduleKind::Unit => false,
        ScheduleKind::Plane => problem.direction() == Direction::Along,
        ScheduleKind::Cube => {
            accesses.other.is_none_or(|access| !access.is_doubled(problem, device))
        }
        ScheduleKind::Split => true,
    };
    let other = accesses.other.filter(|_| applies);
    let other = other.and_then(|access| planned(access).ok());
    match (planned(accesses.widest), other) {
        (Ok(widest), other) => Ok((widest, other)),
        (Err(_), Some(other)) => Ok((other, None)),
        (Err(refusal), None) => Err(refusal),
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
