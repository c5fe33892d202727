//! What all kinds of problems have in common: plans are chosen, checked and kept for them.

use core::fmt;

use crate::{
    applied::{self, AppliedPlan, candidates_applied, choose_applied},
    choose,
    choose::{Candidate, Choice, Explained},
    device::Device,
    error::PlanError,
    estimate::Estimate,
    list::{
        AppliedListPlan, AppliedListProblem, ListPlan, candidates_applied_list, candidates_list,
        choose_applied_list, choose_list,
    },
    plan::Plan,
    problem::{
        AppliedProblem, ListProblem, ListScanProblem, Problem, ScanProblem, SegmentsProblem,
        TopKProblem,
    },
    scan::{ListScanPlan, ScanPlan, choose_list_scan, choose_scan},
    segments::{SegmentsPlan, choose_segments},
    top_k::{TopKPlan, candidates_top_k, choose_top_k},
};

/// A canonical problem of some kind. Code that launches, stores or estimates plans needs no more
/// than this of a kind.
pub trait Planned {
    /// The plans of this kind of problem.
    type Plan: Explained
        + Clone
        + PartialEq
        + fmt::Debug
        + fmt::Display
        + Into<AnyPlan>
        + TryFrom<AnyPlan, Error = AnyPlan>;

    /// The problem as one line of text. Two problems of one kind are equal if and only if their
    /// lines are, and no line is that of a problem of another kind.
    fn line(&self) -> String;

    /// One line about all launches of a plan: what the plan says of itself, and what it does not
    /// know about without the problem.
    ///
    /// # Errors
    ///
    /// The device cannot run the problem.
    fn sentence(&self, plan: &Self::Plan, _device: &Device) -> Result<String, PlanError> {
        Ok(plan.to_string())
    }

    /// Chooses a plan.
    ///
    /// # Errors
    ///
    /// The description of the device makes no sense, or the device cannot run the problem.
    fn choose(&self, device: &Device) -> Result<Choice<Self::Plan>, PlanError>;

    /// The plans that [`tune`](crate::tune) measures, from the fastest to the slowest as estimated:
    /// the choice and its runners-up, or more of them.
    ///
    /// # Errors
    ///
    /// Those of [`choose`](Self::choose).
    fn candidates(&self, device: &Device) -> Result<Vec<Candidate<Self::Plan>>, PlanError> {
        let Choice { plan, estimate, runners_up, .. } = self.choose(device)?;
        let chosen = Candidate { plan, estimate };
        Ok(core::iter::once(chosen).chain(runners_up).collect())
    }

    /// The problem that stands for all with the same slices, where plans follow from slices alone
    /// ([`Numerics::BatchInvariant`](crate::Numerics::BatchInvariant)): the plan of each is that of
    /// this one, [fitted](Self::fitted). A caller that keeps the plan need not search again for
    /// another number of outputs.
    fn representative(&self, _device: &Device) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// The plan that [`choose`](Self::choose) would give, from that of the
    /// [representative](Self::representative).
    ///
    /// # Errors
    ///
    /// Those of `choose`.
    fn fitted(&self, plan: &Self::Plan, device: &Device) -> Result<Self::Plan, PlanError> {
        self.check(plan, device)?;
        Ok(plan.clone())
    }

    /// Checks that a plan computes the problem correctly on a device.
    ///
    /// # Errors
    ///
    /// The plan is of another version, or breaks a rule.
    fn check(&self, plan: &Self::Plan, device: &Device) -> Result<(), PlanError>;

    /// What a plan should take on a device.
    ///
    /// # Errors
    ///
    /// The plan may not run.
    fn estimate(&self, plan: &Self::Plan, device: &Device) -> Result<Estimate, PlanError>;
}

/// A plan of any kind.
// A file does not name the kind: the first variant whose fields fit is read. A new variant needs
// fields that no other variant has, and `deny_unknown_fields` on its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(untagged))]
#[non_exhaustive]
pub enum AnyPlan {
    /// The plan of a reduction.
    Reduction(Plan),
    /// The plan of a reduction whose results are applied to its elements.
    Applied(AppliedPlan),
    /// The plan of a list of tensors.
    List(ListPlan),
    /// The plan of a list whose results are applied to its elements.
    AppliedList(AppliedListPlan),
    /// The plan of a selection.
    TopK(TopKPlan),
    /// The plan of a reduction of segments.
    Segments(SegmentsPlan),
    /// The plan of a scan.
    Scan(ScanPlan),
    /// The plan of a list of tensors that are scanned.
    ListScan(ListScanPlan),
}

impl AnyPlan {
    /// Version of the planner that made the plan.
    #[must_use]
    pub fn version(&self) -> u32 {
        match self {
            AnyPlan::Reduction(plan) => plan.version,
            AnyPlan::Applied(
                AppliedPlan::Held { plan, .. }
                | AppliedPlan::ReadAgain(plan)
                | AppliedPlan::Separately { reduce: plan, .. },
            ) => plan.version,
            AnyPlan::Applied(AppliedPlan::Segments { reduce, .. }) => reduce.version,
            AnyPlan::List(plan) => plan.version,
            AnyPlan::AppliedList(plan) => plan.reduce.version,
            AnyPlan::TopK(plan) => plan.version,
            AnyPlan::Segments(plan) => plan.version,
            AnyPlan::Scan(plan) => plan.version,
            AnyPlan::ListScan(plan) => plan.version,
        }
    }

    /// The version that this planner makes and runs for plans of this kind.
    #[must_use]
    pub fn expected_version(&self) -> u32 {
        match self {
            AnyPlan::Applied(AppliedPlan::Segments { .. }) | AnyPlan::Segments(_) => {
                SegmentsPlan::VERSION
            }
            AnyPlan::Reduction(_) | AnyPlan::Applied(_) => Plan::VERSION,
            AnyPlan::List(_) | AnyPlan::AppliedList(_) => ListPlan::VERSION,
            AnyPlan::TopK(_) => TopKPlan::VERSION,
            AnyPlan::Scan(_) => ScanPlan::VERSION,
            AnyPlan::ListScan(_) => ListScanPlan::VERSION,
        }
    }
}

impl fmt::Display for AnyPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyPlan::Reduction(plan) => plan.fmt(f),
            AnyPlan::Applied(plan) => plan.fmt(f),
            AnyPlan::List(plan) => plan.fmt(f),
            AnyPlan::AppliedList(plan) => plan.fmt(f),
            AnyPlan::TopK(plan) => plan.fmt(f),
            AnyPlan::Segments(plan) => plan.fmt(f),
            AnyPlan::Scan(plan) => plan.fmt(f),
            AnyPlan::ListScan(plan) => plan.fmt(f),
        }
    }
}

/// Implements the conversions between a plan and a plan of any kind.
macro_rules! kind {
    ($kind:ident, $plan:ty) => {
        impl From<$plan> for AnyPlan {
            fn from(plan: $plan) -> Self {
                AnyPlan::$kind(plan)
            }
        }

        impl TryFrom<AnyPlan> for $plan {
            type Error = AnyPlan;

            fn try_from(plan: AnyPlan) -> Result<Self, AnyPlan> {
                match plan {
                    AnyPlan::$kind(plan) => Ok(plan),
                    other => Err(other),
                }
            }
        }
    };
}

kind!(Reduction, Plan);
kind!(Applied, AppliedPlan);
kind!(List, ListPlan);
kind!(AppliedList, AppliedListPlan);
kind!(TopK, TopKPlan);
kind!(Segments, SegmentsPlan);
kind!(Scan, ScanPlan);
kind!(ListScan, ListScanPlan);

/// Implements [`Planned`] for a problem whose sentence is its line.
macro_rules! planned {
    ($problem:ty, $plan:ty, $choose:path, $estimate:path; $($rest:tt)*) => {
        impl Planned for $problem {
            type Plan = $plan;

            fn line(&self) -> String {
                self.to_string()
            }

            fn choose(&self, device: &Device) -> Result<Choice<$plan>, PlanError> {
                $choose(self, device)
            }

            fn check(&self, plan: &$plan, device: &Device) -> Result<(), PlanError> {
                plan.check(self, device)
            }

            fn estimate(&self, plan: &$plan, device: &Device) -> Result<Estimate, PlanError> {
                plan.check(self, device)?;
                Ok($estimate(plan, self, device))
            }

            $($rest)*
        }
    };
}

planned!(Problem, Plan, choose, Plan::estimate;
    fn candidates(&self, device: &Device) -> Result<Vec<Candidate<Plan>>, PlanError> {
        choose::candidates(self, device)
    }

    fn representative(&self, device: &Device) -> Option<Self> {
        let invariant = self.numerics().is_batch_invariant();
        invariant.then(|| choose::invariant::representative(self, device))
    }

    fn fitted(&self, plan: &Plan, device: &Device) -> Result<Plan, PlanError> {
        choose::invariant::fit(plan, self, device)
    }
);
planned!(ListProblem, ListPlan, choose_list, ListPlan::estimate;
    fn candidates(&self, device: &Device) -> Result<Vec<Candidate<ListPlan>>, PlanError> {
        candidates_list(self, device)
    }
);
planned!(ScanProblem, ScanPlan, choose_scan, ScanPlan::estimate;);
planned!(ListScanProblem, ListScanPlan, choose_list_scan, ListScanPlan::estimate;);
planned!(SegmentsProblem, SegmentsPlan, choose_segments, SegmentsPlan::estimate;);
planned!(AppliedListProblem, AppliedListPlan, choose_applied_list, AppliedListPlan::estimate;
    fn candidates(&self, device: &Device) -> Result<Vec<Candidate<AppliedListPlan>>, PlanError> {
        candidates_applied_list(self, device)
    }
);

/// The plan is that of the selection alone, as [`choose_top_k`] gives it. Estimates and sentences
/// are about all launches.
impl Planned for TopKProblem {
    type Plan = TopKPlan;

    fn line(&self) -> String {
        self.to_string()
    }

    fn sentence(&self, plan: &TopKPlan, device: &Device) -> Result<String, PlanError> {
        plan.whole_sentence(self, device)
    }

    fn choose(&self, device: &Device) -> Result<Choice<TopKPlan>, PlanError> {
        let choice = choose_top_k(self, device)?;
        let estimate = choice.plan.whole_estimate(self, device)?;
        Ok(Choice { estimate, ..choice })
    }

    fn candidates(&self, device: &Device) -> Result<Vec<Candidate<TopKPlan>>, PlanError> {
        candidates_top_k(self, device)
    }

    fn check(&self, plan: &TopKPlan, device: &Device) -> Result<(), PlanError> {
        plan.check(self, device)
    }

    fn estimate(&self, plan: &TopKPlan, device: &Device) -> Result<Estimate, PlanError> {
        plan.check(self, device)?;
        plan.whole_estimate(self, device)
    }
}

/// The problem of an application, and that of its reduction alone.
impl Planned for (AppliedProblem, Problem) {
    type Plan = AppliedPlan;

    fn line(&self) -> String {
        format!("{} | results {}", self.0, self.1)
    }

    fn choose(&self, device: &Device) -> Result<Choice<AppliedPlan>, PlanError> {
        choose_applied(&self.0, &self.1, device)
    }

    fn candidates(&self, device: &Device) -> Result<Vec<Candidate<AppliedPlan>>, PlanError> {
        candidates_applied(&self.0, &self.1, device)
    }

    fn representative(&self, device: &Device) -> Option<Self> {
        let numerics = self.0.problem().numerics();
        let invariant = numerics.is_batch_invariant() && self.0.segments().is_none();
        invariant.then(|| applied::invariant::representative(self, device))
    }

    fn fitted(&self, plan: &AppliedPlan, device: &Device) -> Result<AppliedPlan, PlanError> {
        applied::invariant::fit(plan, &self.0, &self.1, device)
    }

    fn check(&self, plan: &AppliedPlan, device: &Device) -> Result<(), PlanError> {
        plan.check(&self.0, &self.1, device)
    }

    fn estimate(&self, plan: &AppliedPlan, device: &Device) -> Result<Estimate, PlanError> {
        plan.check(&self.0, &self.1, device)?;
        plan.estimate(&self.0, &self.1, device)
    }
}
