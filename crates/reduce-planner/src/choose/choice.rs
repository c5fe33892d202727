//! A choice: the plan that was taken, what it should take, and why the others were not.

use core::fmt;

use crate::{estimate::Estimate, plan::Plan};

/// Plans of one kind, which a [`Choice`] explains.
pub trait Explained {
    /// What a choice says of something else that could have been taken, such as a [`Refusal`].
    ///
    /// [`Refusal`]: crate::Refusal
    type Refusal: Clone + PartialEq + fmt::Debug + fmt::Display;
}

/// A plan with its estimate, and the reasons against all others.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(
    feature = "serde",
    serde(bound(
        serialize = "P: serde::Serialize, P::Refusal: serde::Serialize",
        deserialize = "P: serde::Deserialize<'de>, P::Refusal: serde::Deserialize<'de>"
    ))
)]
#[non_exhaustive]
pub struct Choice<P: Explained = Plan> {
    /// The plan that was taken.
    pub plan: P,
    /// What the plan should take, launches included.
    pub estimate: Estimate,
    /// What was not taken: the other schedules in the order of
    /// [`ScheduleKind::ALL`](crate::ScheduleKind::ALL), or the other kinds of applied plans in the
    /// order of [`AppliedKind::ALL`](crate::AppliedKind::ALL). Lists have no others.
    pub refused: Vec<P::Refusal>,
    /// The next plans in the order of the search, at most [`Choice::MOST_RUNNERS_UP`]. They may
    /// have the same schedule as the plan that was taken. Plans of reductions other than those that
    /// the rules give need to be faster by a margin (`Tuning::search_margin_percent`), so one of
    /// them may have a somewhat lower estimate than the plan that was taken. Lists have none.
    pub runners_up: Vec<Candidate<P>>,
}

impl Choice {
    /// Most runners-up that a choice keeps.
    pub const MOST_RUNNERS_UP: usize = 7;
}

impl<P: Explained> Choice<P> {
    /// What the plan should take, launches included, in microseconds.
    #[must_use]
    pub fn expected_microseconds(&self) -> f64 {
        self.estimate.microseconds()
    }

    /// A plan that has no alternatives.
    pub(crate) const fn only(plan: P, estimate: Estimate) -> Self {
        Self { plan, estimate, refused: Vec::new(), runners_up: Vec::new() }
    }
}

/// A plan that could run, and what it should take.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Candidate<P = Plan> {
    /// The plan.
    pub plan: P,
    /// What it should take, launches included.
    pub estimate: Estimate,
}
