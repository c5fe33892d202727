//! How plans compete: rounds in a changing order, losers dropped, and a winner that must be clear.

use super::{Failure, Outcome, Tried, TuneError, TuneOptions, Tuned};
use crate::choose::Candidate;

/// The place of the untuned choice among the plans.
const UNTUNED: usize = 0;

/// Plans that are measured in rounds. The untuned choice is the first of them.
pub(super) struct Race<'a, P, E> {
    plans: Vec<Tried<E, P>>,
    options: &'a TuneOptions,
    /// Rounds so far.
    rounds: usize,
}

impl<'a, P: Clone, E> Race<'a, P, E> {
    pub(super) fn new(plans: Vec<Candidate<P>>, options: &'a TuneOptions) -> Self {
        let plans = plans.into_iter().map(|Candidate { plan, estimate }| Tried {
            plan,
            estimate,
            samples: Vec::new(),
            microseconds: None,
            outcome: Outcome::Stayed,
        });
        Self { plans: plans.collect(), options, rounds: 0 }
    }

    /// Measures every plan once. The times do not count.
    pub(super) fn warm_up(
        &mut self,
        measure: &mut impl FnMut(&P) -> Result<f64, E>,
    ) -> Result<(), TuneError<E, P>> {
        for nth in 0..self.plans.len() {
            self.sample(nth, measure)?;
        }
        Ok(())
    }

    /// Measures every plan of the race once.
    pub(super) fn run_round(
        &mut self,
        measure: &mut impl FnMut(&P) -> Result<f64, E>,
    ) -> Result<(), TuneError<E, P>> {
        let order = order(self.running().collect(), self.rounds);
        self.rounds += 1;
        for nth in order {
            if let Some(microseconds) = self.sample(nth, measure)? {
                self.plans[nth].samples.push(microseconds);
            }
        }
        Ok(())
    }

    /// Measures a plan, and drops it if that fails.
    fn sample(
        &mut self,
        nth: usize,
        measure: &mut impl FnMut(&P) -> Result<f64, E>,
    ) -> Result<Option<f64>, TuneError<E, P>> {
        let (plan, round) = (self.plans[nth].plan.clone(), self.rounds);
        let failure = match measure(&plan) {
            Ok(time) if !time.is_finite() => Failure::NotFinite,
            Ok(time) if time <= 0.0 => Failure::NotPositive(time),
            Ok(time) => return Ok(Some(time)),
            Err(error) => Failure::Measure(error),
        };
        if nth == UNTUNED {
            return Err(TuneError::Untuned { plan, round, failure });
        }
        self.plans[nth].outcome = Outcome::Failed { round, failure };
        Ok(None)
    }

    /// Drops the plans that the leader clearly beats. The untuned choice stays.
    pub(super) fn drop_losers(&mut self) {
        if self.rounds < self.options.fewest_rounds {
            return;
        }
        let leader = self.fastest(self.running());
        let beaten = self.running().filter(|&nth| nth != UNTUNED && self.loses(nth, leader));
        for nth in beaten.collect::<Vec<_>>() {
            self.plans[nth].outcome = Outcome::Lost { round: self.rounds };
        }
    }

    /// Whether all rounds are used up, or the leader has clearly beaten every other plan.
    pub(super) fn is_over(&self) -> bool {
        if self.rounds < self.options.fewest_rounds {
            return false;
        }
        let leader = self.fastest(self.running());
        let mut rivals = self.running().filter(|&nth| nth != leader);
        self.rounds == self.options.most_rounds || rivals.all(|nth| self.loses(nth, leader))
    }

    /// The winner, with what was measured.
    pub(super) fn result(mut self) -> Tuned<E, P> {
        let wins = |&nth: &usize| self.is_clearly_faster(nth, UNTUNED, self.options.win_margin);
        let winners: Vec<usize> = self.running().filter(wins).collect();
        let winner = match winners.is_empty() {
            true => UNTUNED,
            false => self.fastest(winners.into_iter()),
        };
        let fastest = self.fastest(self.running());
        let time = |nth: usize| median(self.plans[nth].samples.clone());
        let (microseconds, untuned_microseconds) = (time(winner), time(UNTUNED));
        let untuned_ratio = untuned_microseconds / time(fastest);
        for tried in self.plans.iter_mut().filter(|tried| !tried.samples.is_empty()) {
            tried.microseconds = Some(median(tried.samples.clone()));
        }
        Tuned {
            plan: self.plans[winner].plan.clone(),
            microseconds,
            untuned: self.plans[UNTUNED].plan.clone(),
            untuned_microseconds,
            untuned_ratio,
            rounds: self.rounds,
            tried: self.plans,
        }
    }

    /// The plans that are still in the race.
    fn running(&self) -> impl Iterator<Item = usize> + use<'_, 'a, P, E> {
        let stayed = |nth: &usize| matches!(self.plans[*nth].outcome, Outcome::Stayed);
        (0..self.plans.len()).filter(stayed)
    }

    /// The plan with the lowest median; of equals, the first.
    fn fastest(&self, of: impl Iterator<Item = usize>) -> usize {
        let medians = of.map(|nth| (nth, median(self.plans[nth].samples.clone())));
        medians.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(UNTUNED, |(nth, _)| nth)
    }

    fn loses(&self, nth: usize, leader: usize) -> bool {
        self.is_clearly_faster(leader, nth, self.options.drop_margin)
    }

    /// Whether plan `a` was faster than plan `b` in most of the rounds that both have, and by more
    /// than the margin in the median of these rounds. Each round is a comparison of its own,
    /// because the two times of one round were measured shortly after each other.
    fn is_clearly_faster(&self, a: usize, b: usize, margin: f64) -> bool {
        let (a, b) = (&self.plans[a].samples, &self.plans[b].samples);
        let ratios: Vec<f64> = a.iter().zip(b).map(|(a, b)| b / a).collect();
        let faster = ratios.iter().filter(|&&ratio| ratio > 1.0).count();
        faster as f64 >= self.options.consistent_share * ratios.len() as f64
            && median(ratios) > 1.0 + margin
    }
}

/// The order of a round. Two rounds that follow each other have opposite orders, so a steady drift
/// adds as much to one plan as to another. Every second round begins with another plan, so no plan
/// always follows the same one.
fn order(mut plans: Vec<usize>, round: usize) -> Vec<usize> {
    let turns = (round / 2) % plans.len();
    plans.rotate_left(turns);
    if round % 2 == 1 {
        plans.reverse();
    }
    plans
}

/// The median of at least one number; the mean of two in the middle.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() % 2 {
        0 => (numbers[middle - 1] + numbers[middle]) / 2.0,
        _ => numbers[middle],
    }
}
