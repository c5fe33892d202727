//! The choice of a plan by measuring: [`tune`]. How plans compete is in `race.rs`.

mod race;

use crate::{
    choose::{Candidate, Choice, Explained},
    device::Device,
    error::PlanError,
    estimate::Estimate,
    plan::Plan,
    planned::Planned,
};
use race::Race;

/// How many plans [`tune`] measures, how often, and when it believes a difference.
///
/// Start from the default and change its fields.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct TuneOptions {
    /// Most plans that are measured, the untuned choice included. 12 by default.
    pub most_plans: usize,
    /// A plan is not measured if its estimate is more than this many times that of the untuned
    /// choice. 3 by default.
    pub hopeless_ratio: f64,
    /// Rounds in which all plans are measured before any is dropped. 3 by default.
    pub fewest_rounds: usize,
    /// Most rounds. Each measures every plan still in the race once. 9 by default.
    pub most_rounds: usize,
    /// Share of the rounds in which one plan must be faster than another to be clearly faster, from
    /// above 0 to 1. 0.8 by default: three of three rounds, and eight of nine.
    pub consistent_share: f64,
    /// A plan is dropped if the leader is clearly faster by this share. 0.05 by default.
    pub drop_margin: f64,
    /// A plan replaces the untuned choice if it is clearly faster by this share. 0.02 by default.
    pub win_margin: f64,
}

impl Default for TuneOptions {
    fn default() -> Self {
        Self {
            most_plans: 12,
            hopeless_ratio: 3.0,
            fewest_rounds: 3,
            most_rounds: 9,
            consistent_share: 0.8,
            drop_margin: 0.05,
            win_margin: 0.02,
        }
    }
}

/// What [`tune`] found. `E` is the error of the caller's measurements, `P` the kind of plans.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Tuned<E, P = Plan> {
    /// The plan to run: the fastest one that is clearly faster than the untuned choice, or else the
    /// untuned choice.
    pub plan: P,
    /// Median time of that plan, in microseconds.
    pub microseconds: f64,
    /// The plan that is chosen without measuring.
    pub untuned: P,
    /// Median time of the untuned choice, in microseconds.
    pub untuned_microseconds: f64,
    /// The untuned choice's median over the lowest median of the plans that were measured in all
    /// rounds. It is 1 if no plan has a lower one. It can be above 1 although the untuned choice
    /// stays, because a small or inconsistent difference does not replace it.
    pub untuned_ratio: f64,
    /// Rounds that were measured, without the warm-up.
    pub rounds: usize,
    /// Every plan that was measured: the untuned choice, then the others in the order in which they
    /// were taken up.
    pub tried: Vec<Tried<E, P>>,
}

/// A plan that [`tune`] measured.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Tried<E, P = Plan> {
    /// The plan.
    pub plan: P,
    /// What it should take, launches included.
    pub estimate: Estimate,
    /// Microseconds in each round, from the first round on. The warm-up is not among them.
    pub samples: Vec<f64>,
    /// Median of the samples, in microseconds. `None` if there are none.
    pub microseconds: Option<f64>,
    /// How the race ended for the plan.
    pub outcome: Outcome<E>,
}

/// How the race of [`tune`] ended for a plan. Rounds count from 1, and 0 is the warm-up.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Outcome<E> {
    /// The plan was measured in every round.
    Stayed,
    /// The plan was dropped after a round, because the leader was clearly faster.
    Lost {
        /// The last round in which the plan was measured.
        round: usize,
    },
    /// The plan was dropped because it could not be measured.
    Failed {
        /// The round in which the measurement failed.
        round: usize,
        /// Why it failed.
        failure: Failure<E>,
    },
}

/// Why a sample has no time.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Failure<E> {
    /// The caller's measurement returned this error.
    #[error("{0}")]
    Measure(E),
    /// The measurement returned infinity or NaN.
    #[error("the measured time is not a finite number")]
    NotFinite,
    /// The measurement returned a time that no call can take.
    #[error("the measured time is {0} us, and must be above 0")]
    NotPositive(f64),
}

/// Why [`tune`] has no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError<E, P = Plan> {
    /// No plan can run the problem on the device.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An option has a value that makes no sense.
    #[error("the tuning option {option} is {value}, and must be {expected}")]
    Option {
        /// The field of [`TuneOptions`].
        option: &'static str,
        /// Its value.
        value: f64,
        /// What the value must be.
        expected: &'static str,
    },
    /// The untuned choice could not be measured, so no plan can be compared with it.
    #[error("the untuned plan `{plan}` could not be measured in round {round}: {failure}")]
    Untuned {
        /// The plan.
        plan: P,
        /// The round in which the measurement failed. 0 is the warm-up.
        round: usize,
        /// Why it failed.
        failure: Failure<E>,
    },
}

/// Chooses a plan by measuring the best candidates for a problem on a device.
///
/// `measure` times one sample of a plan: some back-to-back calls, of which it returns the
/// microseconds per call. It is called for one plan at a time. Nothing else in this function
/// depends on a clock or on chance, so the same measurements give the same result.
///
/// The plans are the choice of [`Planned::choose`], the best of every other schedule or method, and
/// then the best of the rest as estimated ([`Planned::candidates`]). Each is measured once to warm up, because its first call compiles. Then
/// come rounds. A round measures every plan still in the race once, in an order that changes from
/// round to round and is the reverse of the one before in every other round. A device that becomes
/// slower or faster over time therefore favours no plan.
///
/// One plan is *clearly faster* than another by a margin if two things hold over the rounds that
/// both were measured in. It was faster in most of them ([`TuneOptions::consistent_share`]), and
/// the median of the ratios of their times exceeds 1 by more than the margin. After
/// [`TuneOptions::fewest_rounds`], every plan that the leader clearly beats is dropped. The
/// untuned choice stays to the end as the one to compare with. The race ends early once the leader
/// has clearly beaten every other plan.
///
/// A plan whose measurement fails is dropped, and [`Tuned::tried`] says why.
///
/// ```
/// use reduce_planner::*;
///
/// # let sum = OperatorClass::new("sum", 4);
/// # let input = InputSpec {
/// #     element: ElementType::F32,
/// #     shape: &[8192, 8192],
/// #     strides: &[8192, 1],
/// #     alignment: 256,
/// # };
/// # let output = OutputSpec { elements: &[ElementType::F32], strides: None };
/// # let problem = Problem::new(sum, &input, Some(&[1]), &output)?;
/// # let device = Device::h200();
/// # fn time_calls(plan: &Plan) -> Result<f64, std::io::Error> {
/// #     Ok(if plan.schedule.kind() == ScheduleKind::Plane { 60.0 } else { 70.0 })
/// # }
/// let tuned = tune(&problem, &device, &TuneOptions::default(), |plan| time_calls(plan))?;
/// assert_eq!(tuned.plan.schedule.kind(), ScheduleKind::Plane);
/// println!("{}: {:.1} us", tuned.plan, tuned.microseconds);
/// println!("the untuned choice took {:.2} times as long", tuned.untuned_ratio);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// No plan can run the problem, an option makes no sense, or the untuned choice cannot be measured.
pub fn tune<T: Planned, E>(
    problem: &T,
    device: &Device,
    options: &TuneOptions,
    mut measure: impl FnMut(&T::Plan) -> Result<f64, E>,
) -> Result<Tuned<E, T::Plan>, TuneError<E, T::Plan>> {
    options.check()?;
    let choice = problem.choose(device)?;
    let plans = plans_to_try(choice, problem.candidates(device)?, options);
    let mut race = Race::new(plans, options);
    race.warm_up(&mut measure)?;
    while !race.is_over() {
        race.run_round(&mut measure)?;
        race.drop_losers();
    }
    Ok(race.result())
}

/// The untuned choice, the best candidate of every other kind, and the best of the rest.
fn plans_to_try<P: Explained + PartialEq>(
    choice: Choice<P>,
    candidates: Vec<Candidate<P>>,
    options: &TuneOptions,
) -> Vec<Candidate<P>> {
    let most_ns = options.hopeless_ratio * choice.estimate.total_ns();
    let mut plans = vec![Candidate { plan: choice.plan, estimate: choice.estimate }];
    let mut rest = Vec::new();
    for candidate in candidates {
        if candidate.plan == plans[0].plan || candidate.estimate.total_ns() > most_ns {
            continue;
        }
        let known = plans.iter().any(|tried| tried.plan.is_of_kind(&candidate.plan));
        if known { rest.push(candidate) } else { plans.push(candidate) }
    }
    plans.extend(rest);
    plans.truncate(options.most_plans);
    plans
}

impl TuneOptions {
    fn check<E, P>(&self) -> Result<(), TuneError<E, P>> {
        let share = self.consistent_share;
        let checks = [
            ("most_plans", self.most_plans as f64, self.most_plans >= 1, "at least 1"),
            ("hopeless_ratio", self.hopeless_ratio, self.hopeless_ratio >= 1.0, "at least 1"),
            ("fewest_rounds", self.fewest_rounds as f64, self.fewest_rounds >= 1, "at least 1"),
            (
                "most_rounds",
                self.most_rounds as f64,
                self.most_rounds >= self.fewest_rounds,
                "at least fewest_rounds",
            ),
            ("consistent_share", share, share > 0.0 && share <= 1.0, "above 0 and at most 1"),
            ("drop_margin", self.drop_margin, self.drop_margin >= 0.0, "at least 0"),
            ("win_margin", self.win_margin, self.win_margin >= 0.0, "at least 0"),
        ];
        match checks.into_iter().find(|&(_, _, right, _)| !right) {
            Some((option, value, _, expected)) => {
                Err(TuneError::Option { option, value, expected })
            }
            None => Ok(()),
        }
    }
}

impl<E, P> Tuned<E, P> {
    /// The same with other errors, such as their messages, which can be saved where an error
    /// cannot.
    #[must_use]
    pub fn map_errors<F>(self, mut map: impl FnMut(E) -> F) -> Tuned<F, P> {
        let tried = self.tried.into_iter().map(|tried| Tried {
            plan: tried.plan,
            estimate: tried.estimate,
            samples: tried.samples,
            microseconds: tried.microseconds,
            outcome: match tried.outcome {
                Outcome::Stayed => Outcome::Stayed,
                Outcome::Lost { round } => Outcome::Lost { round },
                Outcome::Failed { round, failure } => {
                    let failure = match failure {
                        Failure::Measure(error) => Failure::Measure(map(error)),
                        Failure::NotFinite => Failure::NotFinite,
                        Failure::NotPositive(time) => Failure::NotPositive(time),
                    };
                    Outcome::Failed { round, failure }
                }
            },
        });
        Tuned {
            plan: self.plan,
            microseconds: self.microseconds,
            untuned: self.untuned,
            untuned_microseconds: self.untuned_microseconds,
            untuned_ratio: self.untuned_ratio,
            rounds: self.rounds,
            tried: tried.collect(),
        }
    }
}
