//! The plans for an applied reduction that are compared by measuring.

use super::{
    AppliedPlan, ApplyLaunch,
    candidates::{Search, schedule_of},
    choose_applied,
};
use crate::{
    choose,
    choose::{Candidate, Choice},
    device::Device,
    error::PlanError,
    plan::{Access, Plan},
    problem::{AppliedProblem, Problem},
};

/// Plans of the reduction alone that a plan of several launches is measured with, beside its own.
const MOST_REDUCTIONS: usize = 4;

/// The plan of each kind that applies, and those that differ from one by twice or half of a number,
/// from the fastest to the slowest as estimated. Of equals, the plan that was chosen of a kind
/// comes first.
///
/// # Errors
///
/// Those of [`choose_applied`].
pub(crate) fn candidates_applied(
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<Vec<Candidate<AppliedPlan>>, PlanError> {
    let Choice { plan, estimate, runners_up, .. } = choose_applied(applied, reduction, device)?;
    let mut found = vec![Candidate { plan, estimate }];
    found.extend(runners_up);
    let search = Search::new(applied, reduction, device)?;
    for chosen in found.clone() {
        for plan in variations(chosen.plan, applied, reduction, device)? {
            let is_new = found.iter().all(|known| known.plan != plan);
            if is_new && plan.check(applied, reduction, device).is_ok() {
                found.push(Candidate { plan, estimate: search.estimate(&plan) });
            }
        }
    }
    found.sort_by(|a, b| a.estimate.total_ns().total_cmp(&b.estimate.total_ns()));
    Ok(found)
}

/// Plans with twice or half of a number, some of which break rules.
fn variations(
    plan: AppliedPlan,
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<Vec<AppliedPlan>, PlanError> {
    Ok(match plan {
        AppliedPlan::Held { plan, in_shared, cubes_per_output } => {
            let loads = plan.access.loads_per_output(applied.problem());
            let held = |plan: Plan, cubes_per_output: u32| {
                held_by(plan, in_shared > 0, cubes_per_output, loads)
            };
            let teams = teams(plan, device).map(|team| held(team, cubes_per_output));
            let cubes = match cubes_per_output {
                1 => Vec::new(),
                _ => near(cubes_per_output).map(|cubes| held(plan, cubes)).to_vec(),
            };
            let in_flight = match in_shared {
                0 => Vec::new(),
                _ => loads_near(plan.access)
                    .map(|access| held(Plan { access, ..plan }, cubes_per_output))
                    .to_vec(),
            };
            teams.chain(cubes).chain(in_flight).collect()
        }
        AppliedPlan::ReadAgain(plan) => {
            let loads = loads_near(plan.access).map(|access| Plan { access, ..plan });
            teams(plan, device).chain(loads).map(AppliedPlan::ReadAgain).collect()
        }
        AppliedPlan::Separately { reduce, apply } => {
            let others = choose::candidates(reduction, device)?.into_iter();
            let others = others.filter(|other| other.plan != reduce).take(MOST_REDUCTIONS);
            let reductions =
                others.map(|other| AppliedPlan::Separately { reduce: other.plan, apply });
            let applications = launches_near(apply)
                .into_iter()
                .map(|apply| AppliedPlan::Separately { reduce, apply });
            reductions.chain(applications).collect()
        }
        AppliedPlan::Segments { reduce, apply } => launches_near(apply)
            .into_iter()
            .map(|apply| AppliedPlan::Segments { reduce, apply })
            .collect(),
    })
}

/// Twice a number, and half of it.
const fn near(number: u32) -> [u32; 2] {
    [number.saturating_mul(2), number / 2]
}

/// The same access with twice and half as many loads in flight.
fn loads_near(access: Access) -> [Access; 2] {
    let loads = access.loads_in_flight;
    [loads * 2, loads / 2].map(|loads| access.with_loads_in_flight(loads))
}

/// The same plan with twice and half as many units for each tile, and in cubes twice and half as
/// large.
fn teams(plan: Plan, device: &Device) -> impl Iterator<Item = Plan> {
    let (units, of_cube) = (plan.schedule.units_per_output(), plan.schedule.units_per_cube());
    let [more, fewer] = near(units);
    let [larger, smaller] = near(of_cube);
    let teams = [
        (more, of_cube.max(more)),
        (more, larger),
        (fewer, of_cube),
        (fewer, smaller),
        (units, larger),
        (units, smaller),
    ];
    let direction = plan.access.direction;
    teams.into_iter().filter(|&(units, of_cube)| units > 0 && units <= of_cube).map(
        move |(units, of_cube)| Plan {
            schedule: schedule_of(units, of_cube, direction, device),
            ..plan
        },
    )
}

/// The plan whose units hold a tile of so many loads: all of them in registers, or those that are
/// not in flight in shared memory.
fn held_by(plan: Plan, in_shared: bool, cubes_per_output: u32, loads: u64) -> AppliedPlan {
    let units = u64::from(plan.schedule.units_per_output()) * u64::from(cubes_per_output);
    let each = loads.div_ceil(units.max(1)).max(1) as usize;
    let in_flight = match in_shared {
        true => plan.access.loads_in_flight.clamp(1, each),
        false => each,
    };
    AppliedPlan::Held {
        plan: Plan { access: plan.access.with_loads_in_flight(in_flight), ..plan },
        in_shared: each.next_multiple_of(in_flight) - in_flight,
        cubes_per_output,
    }
}

/// The same launch with twice and half of a number.
fn launches_near(apply: ApplyLaunch) -> Vec<ApplyLaunch> {
    let loads = loads_near(apply.access).map(|access| ApplyLaunch { access, ..apply });
    let cubes = near(apply.cubes_per_output)
        .map(|cubes_per_output| ApplyLaunch { cubes_per_output, ..apply });
    let units = near(apply.units_per_output)
        .map(|units_per_output| ApplyLaunch { units_per_output, ..apply });
    let outputs = near(apply.outputs_per_cube)
        .map(|outputs_per_cube| ApplyLaunch { outputs_per_cube, ..apply });
    [loads, cubes, units, outputs].concat()
}
