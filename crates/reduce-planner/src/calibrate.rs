//! The profile of a device, fitted to measured times.
//!
//! [`probes`] lists plans in which each number of a [`Profile`] counts for much somewhere, and
//! [`fit`] finds the numbers for which [`Plan::estimate`] comes closest to the times. It changes
//! one number at a time, which needs no derivatives and is as good here as any method: a fit takes
//! some tenths of a second, and the measurements a minute. The program `calibrate` does both.

use crate::{device::Device, plan::Plan, problem::Problem, profile::Profile};

/// The time of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// The problem.
    pub problem: Problem,
    /// The plan, which [`Plan::check`] accepts for the device.
    pub plan: Plan,
    /// Microseconds per call in a stream of calls.
    pub microseconds: f64,
}

/// A fitted profile, and how far the estimates are from the times that it was fitted to.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fit {
    /// The profile.
    pub profile: Profile,
    /// The median of the ratio of an estimate and its time, or of its inverse, less 1.
    pub median_error: f64,
}

/// Fits a profile to observations on a device, from the device's own profile on. Numbers that the
/// observations tell little about stay near what they are. The caller sets the profile's origin.
///
/// Observations of one problem should follow each other: a fit also ranks the plans of a problem.
/// Those whose time is not a finite number above 0 are left out.
#[must_use]
pub fn fit(device: &Device, observations: &[Observation]) -> Fit {
    let timed = |one: &&Observation| one.microseconds.is_finite() && one.microseconds > 0.0;
    let observations: &[Observation] =
        &observations.iter().filter(timed).cloned().collect::<Vec<_>>();
    let start = device.profile.clone();
    let mut device = device.clone();
    let mut least = loss(&device, &start, observations);
    let mut steps = [1.6f64; PARAMETERS.len()];
    for _ in 0..MOST_PASSES {
        let before = least;
        for (parameter, step) in PARAMETERS.iter().zip(&mut steps) {
            let now = *(parameter.at)(&mut device.profile);
            let mut improved = false;
            for factor in [*step, step.recip()] {
                let (low, high) = parameter.range;
                // Small whole numbers change by 1 at least.
                let next = (now as f64 * factor).round();
                let next = if factor > 1.0 { next.max(now as f64 + 1.0) } else { next };
                *(parameter.at)(&mut device.profile) = next.clamp(low, high) as u64;
                let loss = loss(&device, &start, observations);
                if loss < least {
                    least = loss;
                    improved = true;
                    break;
                }
                *(parameter.at)(&mut device.profile) = now;
            }
            *step = if improved { (*step * 1.1).min(2.0) } else { 1.0 + (*step - 1.0) * 0.6 };
        }
        let settled = steps.iter().all(|step| *step < 1.01);
        if settled || before - least < 1e-7 && steps.iter().all(|step| *step < 1.05) {
            break;
        }
    }
    let mut errors: Vec<f64> =
        observations.iter().map(|one| error(&device, one).abs().exp() - 1.0).collect();
    errors.sort_by(f64::total_cmp);
    let median_error = errors.get(errors.len() / 2).copied().unwrap_or(0.0);
    Fit { profile: device.profile, median_error }
}

/// Most passes over all numbers.
const MOST_PASSES: usize = 60;

/// A number of a profile, and what it may be.
struct Parameter {
    at: fn(&mut Profile) -> &mut u64,
    range: (f64, f64),
}

const fn parameter(at: fn(&mut Profile) -> &mut u64, low: f64, high: f64) -> Parameter {
    Parameter { at, range: (low, high) }
}

/// Every number that a fit may change. The ranges keep a number that few observations depend on
/// from drifting where no device is.
const PARAMETERS: [Parameter; 42] = [
    parameter(|profile| &mut profile.bandwidth, 1e8, 1e14),
    parameter(|profile| &mut profile.launch_ns, 100.0, 1e7),
    parameter(|profile| &mut profile.gap_ns, 1.0, 1e7),
    parameter(|profile| &mut profile.latency_ns, 10.0, 1e5),
    parameter(|profile| &mut profile.cube_ns, 1.0, 1e6),
    parameter(|profile| &mut profile.dispatch_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.shared_step_ns, 1.0, 1e6),
    parameter(|profile| &mut profile.realign_ns, 1.0, 1e7),
    parameter(|profile| &mut profile.shift_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.publish_ns, 1.0, 1e7),
    parameter(|profile| &mut profile.merge_ns, 1.0, 1e6),
    parameter(|profile| &mut profile.arrive_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.sector_percent, 1.0, 100.0),
    parameter(|profile| &mut profile.first_round_percent, 1.0, 100.0),
    parameter(|profile| &mut profile.cache_percent, 100.0, 1000.0),
    parameter(|profile| &mut profile.multiprocessor_percent, 100.0, 1000.0),
    parameter(|profile| &mut profile.load_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.line_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.combine_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.light_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.medium_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.heavy_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.transcendental_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.power_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.position_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.convert_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.wide_ps, 1.0, 1e7),
    parameter(|profile| &mut profile.partial_percent, 1.0, 1000.0),
    parameter(|profile| &mut profile.serial_factor, 1.0, 1000.0),
    parameter(|profile| &mut profile.first_round_factor, 1.0, 5000.0),
    parameter(|profile| &mut profile.overlap_tenths, 12.0, 100.0),
    parameter(|profile| &mut profile.spill_percent, 1.0, 1000.0),
    parameter(|profile| &mut profile.lone_unit_percent, 20.0, 100.0),
    parameter(|profile| &mut profile.small_team_percent, 50.0, 100.0),
    parameter(|profile| &mut profile.segments[0].percent, 90.0, 100.0),
    parameter(|profile| &mut profile.segments[1].percent, 80.0, 100.0),
    parameter(|profile| &mut profile.segments[2].percent, 80.0, 100.0),
    parameter(|profile| &mut profile.segments[3].percent, 70.0, 100.0),
    parameter(|profile| &mut profile.segments[4].percent, 50.0, 100.0),
    parameter(|profile| &mut profile.segments[5].percent, 30.0, 100.0),
    parameter(|profile| &mut profile.segments[6].percent, 10.0, 100.0),
    parameter(|profile| &mut profile.segments[7].percent, 5.0, 100.0),
];

/// The logarithm of an estimate over its time.
fn error(device: &Device, one: &Observation) -> f64 {
    (one.plan.estimate(&one.problem, device).microseconds() / one.microseconds).ln()
}

/// How far a profile is from the times. An estimate that is off by the same share for all plans of
/// a problem is half as bad as one that ranks them wrongly, and plans that are far slower than the
/// fastest one count less.
fn loss(device: &Device, start: &Profile, observations: &[Observation]) -> f64 {
    let mut sum = 0.0;
    let mut first = 0;
    while first < observations.len() {
        let problem = &observations[first].problem;
        let same = observations[first..].iter().take_while(|one| one.problem == *problem).count();
        let plans = &observations[first..first + same];
        let fastest = plans.iter().min_by(|a, b| a.microseconds.total_cmp(&b.microseconds));
        let fastest = fastest.expect("there is the first one");
        let fastest_error = error(device, fastest);
        for one in plans {
            let error = error(device, one);
            let weight = (fastest.microseconds / one.microseconds).powf(1.5);
            sum += weight * (0.5 * bounded(error) + bounded(error - fastest_error));
        }
        first += same;
    }
    sum / observations.len().max(1) as f64 + STAYING * distance(&device.profile, start)
}

/// The size of an error, of which what exceeds a factor of e counts little: outliers do not decide,
/// and a profile of quite another device is still led to this one.
fn bounded(error: f64) -> f64 {
    let size = error.abs();
    size.min(1.0) + 0.1 * (size - 1.0).max(0.0)
}

/// How much a change of a number by a factor of e must improve the loss.
const STAYING: f64 = 0.003;

/// How far two profiles are from each other: the sum over all numbers of the logarithm of their
/// ratio.
fn distance(profile: &Profile, start: &Profile) -> f64 {
    let (mut profile, mut start) = (profile.clone(), start.clone());
    let of = |parameter: &Parameter| {
        let (now, then) = (*(parameter.at)(&mut profile), *(parameter.at)(&mut start));
        (now.max(1) as f64 / then.max(1) as f64).ln().abs()
    };
    PARAMETERS.iter().map(of).sum()
}
