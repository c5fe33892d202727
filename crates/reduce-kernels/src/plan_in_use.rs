//! The plan that a call runs.

use reduce_planner::Plan;

/// The plan that a call runs, and where it comes from. [`Reduction::plan`] gives it, and so do the
/// other kinds of calls, each with the plans of its kind.
///
/// [`Reduction::plan`]: crate::Reduction::plan
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct PlanInUse<P = Plan> {
    /// The plan.
    pub plan: P,
    /// Where it comes from.
    pub source: PlanSource,
}

impl<P> PlanInUse<P> {
    pub(crate) fn new(plan: P, source: PlanSource) -> Self {
        Self { plan, source }
    }
}

/// Where the plan of a reduction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PlanSource {
    /// The caller gave it, with [`with_plan`](crate::Reduction::with_plan).
    Given,
    /// A store of measured plans has it.
    Stored,
    /// The planner chose it without measuring.
    Chosen,
}
