//! The choice of a plan for an applied reduction whose bits do not depend on the number of outputs.
//!
//! The kind of the plan, and how a slice is divided, are those of the plan for a reference problem:
//! the same slices, and as many as fill the device. Across outputs, vectors are those that the
//! problem's own layout allows.

use super::{
    AppliedKind, AppliedPlan,
    candidates::{AppliedReason, Search, by_position, no_plan, widest},
};
use crate::{
    choose as choose_reduction,
    choose::{
        Choice,
        invariant::{
            fit as fit_reduction, least_behind, reference_outputs, representative_outputs,
        },
    },
    device::Device,
    error::PlanError,
    illegal::Illegal,
    limits,
    numerics::Numerics,
    plan::{Access, Plan, Tree},
    problem::{AppliedProblem, Direction, Problem},
    refusal::Refusal,
    segments::SegmentsPlan,
};

/// Chooses the plan for an applied reduction whose bits must not depend on the number of outputs.
pub(super) fn choose(
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<Choice<AppliedPlan>, PlanError> {
    limits::check_applied(applied, device)?;
    let reduction = &reduction.clone().with_numerics(Numerics::BatchInvariant);
    let plan = fit(&model(applied, reduction, device)?, applied, reduction, device)?;
    let others = AppliedKind::ALL.into_iter().filter(|&kind| kind != plan.kind());
    let refused = others.map(|kind| Refusal::new(kind, OTHER_BITS)).collect();
    let search = Search::with_access(applied, reduction, device, own_access(applied, device));
    Ok(Choice { plan, estimate: search.estimate(&plan), refused, runners_up: Vec::new() })
}

/// The problems that stand for all with the same slices: their plans are those of these problems,
/// fitted.
pub(crate) fn representative(
    (applied, reduction): &(AppliedProblem, Problem),
    device: &Device,
) -> (AppliedProblem, Problem) {
    let own = own_access(applied, device);
    let aligned = own.rows_aligned_to();
    let of = |outputs: usize| applied.reference(outputs, aligned, device.max_vector);
    let outputs = representative_outputs(device, |outputs| of(outputs).index_span());
    let numerics = Numerics::BatchInvariant;
    let applied = of(outputs);
    let reduction = reduction.reference(outputs, aligned, device.max_vector);
    (applied.with_numerics(numerics), reduction.with_numerics(numerics))
}

/// The plan of an applied reduction, from that of its [`representative`].
pub(crate) fn fit(
    plan: &AppliedPlan,
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<AppliedPlan, PlanError> {
    limits::check_applied(applied, device)?;
    let own = own_access(applied, device);
    let plan = match *plan {
        AppliedPlan::Held { plan, in_shared, cubes_per_output } => {
            AppliedPlan::Held { plan: fitted(plan, own), in_shared, cubes_per_output }
        }
        AppliedPlan::ReadAgain(plan) => AppliedPlan::ReadAgain(fitted(plan, own)),
        AppliedPlan::Separately { reduce, .. } => {
            let reduce = fit_reduction(&reduce, reduction, device)?;
            let search = Search::with_access(applied, reduction, device, own);
            AppliedPlan::Separately { reduce, apply: search.apply() }
        }
        plan @ AppliedPlan::Segments { .. } => plan,
    };
    let plan = plan.with_numerics(Numerics::BatchInvariant);
    plan.check_rules(applied, reduction, device)?;
    Ok(plan)
}

const OTHER_BITS: AppliedReason = AppliedReason::OtherBits { numerics: Numerics::BatchInvariant };

/// The chosen plan, if it is of this kind.
pub(super) fn force(
    kind: AppliedKind,
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<AppliedPlan, PlanError> {
    let plan = choose(applied, reduction, device)?.plan;
    match plan.kind() == kind {
        true => Ok(plan),
        false => Err(no_plan(device, &[Refusal::new(kind, OTHER_BITS)])),
    }
}

/// How the elements of the problem itself are read. Peeled heads and tails along the reduction have
/// another length in each row. Across outputs, they are those of a row of outputs.
fn own_access(applied: &AppliedProblem, device: &Device) -> Access {
    by_position(applied, device)
}

/// The plan of the model, with the vectors that the problem's own layout allows across outputs.
fn fitted(plan: Plan, own: Access) -> Plan {
    match plan.access.direction {
        Direction::Along => plan,
        Direction::Across => {
            let vector = own.vector.min(plan.access.vector);
            let access = plan.access.with_vector(vector);
            Plan { access: access.with_peeled(own.peeled && vector == own.vector), ..plan }
        }
    }
}

/// The plan whose kind and whose division of a slice all problems with the same slices have.
fn model(
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<AppliedPlan, PlanError> {
    let own = own_access(applied, device);
    let longest = device.max_vector;
    let references: Vec<(AppliedProblem, Problem, f64)> =
        reference_outputs(applied.problem(), device)
            .into_iter()
            .map(|(outputs, loss)| {
                let aligned = own.rows_aligned_to();
                let reduction = reduction.reference(outputs, aligned, longest);
                (applied.reference(outputs, aligned, longest), reduction, loss)
            })
            .collect();
    // Searches read the problems in the same way: their rows are equally aligned.
    let access = match applied.problem().direction() {
        Direction::Along => own,
        Direction::Across => {
            references.first().map_or(own, |(reference, ..)| widest(reference, device))
        }
    };
    let searches: Vec<Search<'_>> = references
        .iter()
        .map(|(applied, reduction, _)| Search::with_access(applied, reduction, device, access))
        .collect();
    let bytes =
        (applied.problem().reduction_len() as u64).saturating_mul(applied.pair_bytes() as u64);
    let most_cubes = (bytes / device.tuning.invariant.held_part_bytes.max(1)).max(2);
    let mut plans: Vec<AppliedPlan> = Vec::new();
    let mut refused = Vec::new();
    let reduce = choose_reduction(reduction, device)?.plan;
    for search in &searches {
        refused.clear();
        for kind in AppliedKind::ALL {
            match search.candidate(kind)? {
                Ok(AppliedPlan::Separately { apply, .. }) => {
                    plans.push(AppliedPlan::Separately { reduce, apply });
                }
                Ok(AppliedPlan::Held { cubes_per_output, .. })
                    if u64::from(cubes_per_output) > most_cubes => {}
                Ok(plan) => plans.push(plan),
                Err(reason) => refused.push(Refusal::new(kind, reason)),
            }
        }
    }
    let losses: Vec<f64> = references.iter().map(|&(.., loss)| loss).collect();
    let time = |plan: &AppliedPlan, nth: usize| searches[nth].estimate(plan).total_ns();
    let best = least_behind(&plans, &losses, time);
    best.copied().ok_or_else(|| no_plan(device, &refused))
}

/// Everything of an applied plan that the bits of an output depend on.
#[derive(PartialEq)]
enum AppliedTree {
    Segments(SegmentsPlan),
    Held { tree: Tree, in_flight: usize, in_shared: usize, cubes: u32 },
    ReadAgain(Tree),
    Separately(Tree),
}

impl AppliedTree {
    fn of(plan: &AppliedPlan, applied: &AppliedProblem, reduction: &Problem) -> Self {
        match *plan {
            AppliedPlan::Held { plan, in_shared, cubes_per_output: cubes } => {
                let in_flight = plan.access.loads_in_flight;
                let tree = Tree::of(&plan, applied.problem());
                AppliedTree::Held { tree, in_flight, in_shared, cubes }
            }
            AppliedPlan::ReadAgain(plan) => {
                AppliedTree::ReadAgain(Tree::of(&plan, applied.problem()))
            }
            AppliedPlan::Separately { reduce, .. } => {
                AppliedTree::Separately(Tree::of(&reduce, reduction))
            }
            AppliedPlan::Segments { reduce, .. } => AppliedTree::Segments(reduce),
        }
    }
}

impl AppliedPlan {
    /// Checks that the plan computes `applied` correctly on `device`. `reduction` is the reduction
    /// alone, with its results as outputs.
    ///
    /// # Errors
    ///
    /// Those of [`Plan::check`], and plans that hold less than a tile.
    pub fn check(
        &self,
        applied: &AppliedProblem,
        reduction: &Problem,
        device: &Device,
    ) -> Result<(), PlanError> {
        self.check_rules(applied, reduction, device)?;
        let numerics = self.numerics();
        if !numerics.is_batch_invariant() {
            return Ok(());
        }
        let chosen = choose(applied, reduction, device)?.plan;
        let tree = |plan| AppliedTree::of(plan, applied, reduction);
        match tree(self) == tree(&chosen) {
            true => Ok(()),
            false => Err(device.unfit(self, Illegal::OtherBits { numerics })),
        }
    }
}
