//! The plans for a selection that are compared by measuring.

use super::{
    choose::{every_method, held_by},
    plan::{TopKMethod, TopKPlan},
};
use crate::{choose::Candidate, device::Device, error::PlanError, limits, problem::TopKProblem};

/// The plan of each method that applies, and those that differ from one in a number, from the fastest
/// to the slowest as estimated.
///
/// # Errors
///
/// Those of [`choose_top_k`](super::choose_top_k), except that there may be no plan at all.
pub fn candidates_top_k(
    problem: &TopKProblem,
    device: &Device,
) -> Result<Vec<Candidate<TopKPlan>>, PlanError> {
    limits::check_limits(problem.slices(), device, problem.output_span() as u64)?;
    let mut plans: Vec<TopKPlan> = every_method(problem, device).filter_map(Result::ok).collect();
    for chosen in plans.clone() {
        for plan in chosen.variations(problem) {
            let is_new = !plans.contains(&plan);
            if is_new && plan.obeys_rules(problem, device).is_ok() {
                plans.push(plan);
            }
        }
    }
    let candidate = |plan: TopKPlan| {
        let estimate = plan.whole_estimate(problem, device)?;
        Ok(Candidate { plan, estimate })
    };
    let mut candidates = plans.into_iter().map(candidate).collect::<Result<Vec<_>, PlanError>>()?;
    candidates.sort_by(|a, b| a.estimate.alone_ns().total_cmp(&b.estimate.alone_ns()));
    Ok(candidates)
}

impl TopKPlan {
    /// Plans with twice or half of a number, some of which break rules.
    fn variations(self, problem: &TopKProblem) -> Vec<Self> {
        let near = |number: u32| [number.saturating_mul(2), number / 2];
        let loads = [self.access.loads_in_flight * 2, self.access.loads_in_flight / 2];
        let units = near(self.units_per_slice);
        let together =
            near(self.slices_per_cube).map(|slices_per_cube| Self { slices_per_cube, ..self });
        let buffers = near(self.buffer).map(|buffer| Self { buffer, ..self });
        match self.method {
            TopKMethod::Registers => {
                let teams = units.into_iter().filter(|&units| units > 0);
                let teams = teams.map(|units| held_by(units, self, problem));
                teams.chain(together).collect()
            }
            TopKMethod::Buffer | TopKMethod::Window => {
                let teams = units.map(|units_per_slice| {
                    let buffer = self.buffer.max(units_per_slice);
                    Self { units_per_slice, buffer, ..self }
                });
                let reads = loads
                    .map(|loads| Self { access: self.access.with_loads_in_flight(loads), ..self });
                let cubes = near(self.cubes_per_slice)
                    .map(|cubes_per_slice| Self { cubes_per_slice, ..self });
                let digits = [4, 8].map(|digit_bits| Self { digit_bits, ..self });
                [teams, reads, buffers, together, cubes, digits].concat()
            }
            TopKMethod::Runs => Vec::new(),
        }
    }
}
