//! A choice: the plan that was taken, what it should take, and why the others were not.

use core::fmt;

use crate::{estimate::Estimate, plan::Plan, refusal::Refusal};

/// Plans of one kind, which a [`Choice`] explains.
pub trait Explained {
    /// What a choice says of something else that could have been taken, such as a [`Refusal`].
    ///
    /// [`Refusal`]: crate::Refusal
    type Refusal: Clone + PartialEq + fmt::Debug + fmt::Display;

    /// Whether another plan has the same schedule, or whatever the choice is first of.
    /// Plans without kinds are all of one.
    fn is_of_kind(&self, _other: &Self) -> bool {
        true
    }
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

impl<P, K, R> Choice<P>
where
    P: Explained<Refusal = Refusal<K, R>>,
    K: Copy + Ord,
{
    /// The first by `time` of plans of different kinds, or what was refused if there are none. The
    /// others are refused for the reason that `slower` gives, which gets their time and the best one
    /// in microseconds.
    pub(crate) fn fastest(
        mut found: Vec<Candidate<P>>,
        mut refused: Vec<Refusal<K, R>>,
        time: impl Fn(&Estimate) -> f64,
        kind: impl Fn(&P) -> K,
        slower: impl Fn(f64, f64) -> R,
    ) -> Result<Self, Vec<Refusal<K, R>>> {
        found.sort_by(|a, b| time(&a.estimate).total_cmp(&time(&b.estimate)));
        let mut ranked = found.into_iter();
        let Some(Candidate { plan, estimate }) = ranked.next() else { return Err(refused) };
        let runners_up: Vec<Candidate<P>> = ranked.collect();
        refused.extend(runners_up.iter().map(|other| {
            let reason = slower(other.estimate.microseconds(), estimate.microseconds());
            Refusal::new(kind(&other.plan), reason)
        }));
        refused.sort_by_key(|refusal| refusal.kind);
        Ok(Self { plan, estimate, refused, runners_up })
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
