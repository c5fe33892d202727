//! The plans for a list that are compared by measuring.

use super::{
    application::{AppliedListPlan, AppliedListProblem, choose_applied_list},
    choose::{Waves, choose_list, choose_list_in},
    plan::ListPlan,
};
use crate::{
    choose::{Candidate, Choice, Explained},
    device::Device,
    error::PlanError,
    numbers::ListTuning,
    problem::ListProblem,
};

/// The plan that is chosen for a list, those that rules with twice or half of a number give, and
/// the one whose cubes are as many in any number of waves.
///
/// # Errors
///
/// Those of [`choose_list`].
pub(crate) fn candidates_list(
    list: &ListProblem,
    device: &Device,
) -> Result<Vec<Candidate<ListPlan>>, PlanError> {
    let may_run = |plan: &ListPlan| plan.check(list, device).is_ok();
    let mut found = by_rules(device, |device| choose_list(list, device), may_run)?;
    let Choice { plan, estimate, .. } = choose_list_in(Waves::Any, list, device)?;
    if found.iter().all(|known| known.plan != plan) && may_run(&plan) {
        found.push(Candidate { plan, estimate });
        found.sort_by(|a, b| a.estimate.total_ns().total_cmp(&b.estimate.total_ns()));
    }
    Ok(found)
}

/// [`candidates_list`] for a list whose results are applied.
///
/// # Errors
///
/// Those of [`choose_applied_list`].
pub(crate) fn candidates_applied_list(
    list: &AppliedListProblem,
    device: &Device,
) -> Result<Vec<Candidate<AppliedListPlan>>, PlanError> {
    by_rules(
        device,
        |device| choose_applied_list(list, device),
        |plan| plan.check(list, device).is_ok(),
    )
}

/// The plan that is chosen on a device, and the others that are chosen with other rules and may run
/// on it, from the fastest to the slowest as estimated. Of equals, the choice is the first.
fn by_rules<P: Explained + PartialEq>(
    device: &Device,
    choose: impl Fn(&Device) -> Result<Choice<P>, PlanError>,
    may_run: impl Fn(&P) -> bool,
) -> Result<Vec<Candidate<P>>, PlanError> {
    let Choice { plan, estimate, .. } = choose(device)?;
    let mut found = vec![Candidate { plan, estimate }];
    for list in variations(device.tuning.list) {
        let mut other = device.clone();
        other.tuning.list = list;
        // A rule may ask for more than the device has.
        let Ok(Choice { plan, estimate, .. }) = choose(&other) else { continue };
        if found.iter().all(|known| known.plan != plan) && may_run(&plan) {
            found.push(Candidate { plan, estimate });
        }
    }
    found.sort_by(|a, b| a.estimate.total_ns().total_cmp(&b.estimate.total_ns()));
    Ok(found)
}

/// Rules with twice and half of a number.
fn variations(rules: ListTuning) -> [ListTuning; 8] {
    let ListTuning {
        units_per_cube: units,
        narrow_units_per_cube: narrow,
        most_loads_per_unit: loads,
        cubes_per_multiprocessor: cubes,
        tensors_per_launch: tensors,
        ..
    } = rules;
    let of_units = |units_per_cube, narrow_units_per_cube| ListTuning {
        units_per_cube,
        narrow_units_per_cube,
        ..rules
    };
    let of_loads = |most_loads_per_unit| ListTuning { most_loads_per_unit, ..rules };
    let of_cubes = |cubes_per_multiprocessor| ListTuning { cubes_per_multiprocessor, ..rules };
    let of_tensors = |tensors_per_launch| ListTuning { tensors_per_launch, ..rules };
    [
        of_units(units.saturating_mul(2), narrow.saturating_mul(2)),
        of_units(units.div_ceil(2), narrow.div_ceil(2)),
        of_loads(loads.saturating_mul(2)),
        of_loads(loads.div_ceil(2)),
        of_cubes(cubes.saturating_mul(2)),
        of_cubes(cubes.div_ceil(2)),
        of_tensors(tensors.saturating_mul(2)),
        of_tensors(tensors.div_ceil(2)),
    ]
}
