//! The choice of a plan for an applied reduction.

use super::{
    AppliedKind, AppliedPlan, AppliedReason,
    candidates::{Search, no_plan},
    invariant,
};
use crate::{
    choose::{Candidate, Choice, Explained},
    device::Device,
    error::PlanError,
    estimate::Estimate,
    illegal::Illegal,
    problem::{AppliedProblem, Problem},
    refusal::Refusal,
    segments::choose_segments,
};

impl Explained for AppliedPlan {
    type Refusal = Refusal<AppliedKind, AppliedReason>;

    fn is_of_kind(&self, other: &Self) -> bool {
        self.kind() == other.kind()
    }
}

/// Chooses a plan for an applied reduction on a device. `reduction` is the reduction alone, with
/// its results as outputs.
///
/// # Errors
///
/// Those of [`choose()`](crate::choose()) for the two problems.
pub fn choose_applied(
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<Choice<AppliedPlan>, PlanError> {
    if let Some(segments) = applied.segments() {
        let reduce = choose_segments(segments, device)?.plan;
        let search = Search::new(applied, reduction, device)?;
        let plan = search.of_segments(reduce)?;
        return Ok(Choice::only(plan, search.estimate(&plan)));
    }
    if applied.problem().numerics().is_batch_invariant() {
        return invariant::choose(applied, reduction, device);
    }
    let search = Search::new(applied, reduction, device)?;
    let mut found = Vec::with_capacity(AppliedKind::ALL.len());
    let mut refused = Vec::with_capacity(AppliedKind::ALL.len());
    for kind in AppliedKind::ALL {
        match search.candidate(kind)? {
            Ok(plan) => found.push(Candidate { plan, estimate: search.estimate(&plan) }),
            Err(reason) => refused.push(Refusal::new(kind, reason)),
        }
    }
    let slower =
        |microseconds, best_microseconds| AppliedReason::Slower { microseconds, best_microseconds };
    Choice::fastest(found, refused, Estimate::total_ns, AppliedPlan::kind, slower)
        .map_err(|refused| no_plan(device, &refused))
}

/// A plan of one kind, whatever others would take. It serves tests and comparisons.
///
/// # Errors
///
/// Those of [`choose_applied`], and a kind that does not apply.
pub fn force_applied(
    kind: AppliedKind,
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<AppliedPlan, PlanError> {
    if applied.segments().is_some() {
        let plan = choose_applied(applied, reduction, device)?.plan;
        let other = AppliedReason::PassesLimits { limit: Illegal::AppliedSegments };
        let refused = || no_plan(device, &[Refusal::new(kind, other)]);
        return (plan.kind() == kind).then_some(plan).ok_or_else(refused);
    }
    if applied.problem().numerics().is_batch_invariant() {
        return invariant::force(kind, applied, reduction, device);
    }
    Search::new(applied, reduction, device)?
        .candidate(kind)?
        .map_err(|reason| no_plan(device, &[Refusal::new(kind, reason)]))
}

impl AppliedPlan {
    /// What the plan should take for an applied reduction on a device. `reduction` is the reduction
    /// alone, with its results as outputs.
    ///
    /// # Errors
    ///
    /// Those of [`choose_applied`] for the two problems.
    pub fn estimate(
        &self,
        applied: &AppliedProblem,
        reduction: &Problem,
        device: &Device,
    ) -> Result<Estimate, PlanError> {
        Ok(Search::new(applied, reduction, device)?.estimate(self))
    }
}
