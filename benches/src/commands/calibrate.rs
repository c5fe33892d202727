//! Measures how fast a device is, and writes the device with its profile as JSON.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use clap::Args;
use reduce_benches::{Case, probes, regret::problem, run};
use reduce_kernels::{
    Device, ReduceError,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    planner::{Observation, Plan, Profile, candidates, fit},
};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, FileError, MeasureError, OnDevice, largest_buffer,
    on_device, progress, random_inputs, wait, write,
};

use super::ended;

/// Times plans in which each number of the cost model counts for much somewhere, and fits the
/// numbers to the times. Takes about a minute on a GPU.
#[derive(Args)]
pub(crate) struct Arguments {
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
    /// Write the device with its profile to this file, for `Device` and for `plan --device`.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Milliseconds of each of the five samples of a plan.
    #[arg(long, default_value_t = 5.0)]
    sample_ms: f64,
    /// Base-2 logarithm of the elements of the largest probe; by default as many as a call reads
    /// in about two milliseconds, at most 26.
    #[arg(long, value_parser = clap::value_parser!(u32).range(16..=30))]
    log2: Option<u32>,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    #[error("the device refused every probe, so there is nothing to fit")]
    NoTimes,
    #[error("{what}: {source}")]
    Measure { what: String, source: MeasureError },
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    let done = on_device(arguments.backend, Calibration(arguments)).map_err(Stop::from);
    ended("calibrate", done.flatten())
}

struct Calibration<'a>(&'a Arguments);

impl OnDevice for Calibration<'_> {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, _: Backend, name: &str) -> Self::Output {
        let arguments = self.0;
        let mut device = device_of(client);
        let sample_seconds = arguments.sample_ms / 1e3;
        let log2 = match arguments.log2 {
            Some(log2) => log2,
            None => fitting_log2(client, sample_seconds).map_err(stopped("the first sums"))?,
        };
        let cases: Vec<Case> = probes(log2)
            .into_iter()
            .filter(|case| device.has(case.element) && case.input_bytes() <= largest_buffer(client))
            .collect();
        let bar = progress(cases.len() as u64, "{wide_bar} {pos}/{len} {msg}", false);
        let mut observations = Vec::new();
        for case in &cases {
            bar.set_message(case.to_string());
            match observe(client, &device, case, sample_seconds) {
                Ok(observed) => observations.extend(observed),
                Err(MeasureError::Refused(refused)) => {
                    bar.suspend(|| eprintln!("SKIPPED {case}: {refused}"));
                }
                Err(source) => return Err(stopped(case)(source)),
            }
            client.memory_cleanup().expect("no program records a graph");
            bar.inc(1);
        }
        bar.finish_and_clear();
        if observations.is_empty() {
            return Err(Stop::NoTimes);
        }

        let before = fit_of(&device, &observations);
        let fitted = fit(&device, &observations);
        device.profile = fitted.profile;
        device.profile.origin =
            format!("measured on {name} through {} by calibrate", client.name());
        report(&device.profile, observations.len(), before, fitted.median_error)?;
        if let Some(path) = &arguments.json {
            let mut json = serde_json::to_string_pretty(&device).expect("a device is JSON");
            json.push('\n');
            write(path, &json)?;
        }
        Ok(())
    }
}

fn stopped(what: impl ToString) -> impl FnOnce(MeasureError) -> Stop {
    move |source| Stop::Measure { what: what.to_string(), source }
}

/// How far the estimates of a device are from observations: the median of the ratio, less 1.
fn fit_of(device: &Device, observations: &[Observation]) -> f64 {
    let mut errors: Vec<f64> = observations
        .iter()
        .map(|one| {
            let ratio = one.plan.estimate(&one.problem, device).microseconds() / one.microseconds;
            ratio.max(ratio.recip()) - 1.0
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied().unwrap_or(0.0)
}

fn report(profile: &Profile, plans: usize, before: f64, after: f64) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let json = serde_json::to_string_pretty(profile).expect("a profile is JSON");
    writeln!(out, "{json}")?;
    writeln!(
        out,
        "{plans} plans; the estimates are off by {:.1} % (median), and were by {:.1} % before",
        after * 100.0,
        before * 100.0
    )
}

/// Seconds that a sum of the largest probe should take at most.
const LONGEST_SUM: f64 = 2e-3;

/// The largest probe that the device sums in time.
fn fitting_log2(client: &Client, sample_seconds: f64) -> Result<u32, MeasureError> {
    let mut log2 = 16;
    while log2 < 26 {
        let case: Case = format!("sum f32 [{}] axis all", 1u64 << log2).parse().expect("a case");
        let inputs = random_inputs(client, case.element, &case.shape(), &case.strides(), Some(0));
        let seconds = seconds_per_call(client, &case, &inputs, None, sample_seconds)?;
        if 2.0 * seconds > LONGEST_SUM {
            break;
        }
        log2 += 1;
    }
    Ok(log2)
}

/// Plans of a probe that are timed.
const MOST_PLANS: usize = 7;

/// Times some plans of a probe, from the fastest as expected to one that takes a few times as long.
fn observe(
    client: &Client,
    device: &Device,
    case: &Case,
    sample_seconds: f64,
) -> Result<Vec<Observation>, MeasureError> {
    let problem = problem(case)?;
    let all = candidates(&problem, device).map_err(ReduceError::from)?;
    let fastest = all[0].estimate.total_ns();
    let hopeful = all.iter().take_while(|one| one.estimate.total_ns() < 6.0 * fastest).count();
    let step = hopeful.div_ceil(MOST_PLANS).max(1);
    let inputs = random_inputs(client, case.element, &case.shape(), &case.strides(), Some(ROTATED));
    let mut observed = Vec::new();
    for candidate in all[..hopeful].iter().step_by(step) {
        let plan = candidate.plan;
        let seconds = seconds_per_call(client, case, &inputs, Some(plan), sample_seconds)?;
        let problem = problem.clone();
        observed.push(Observation { problem, plan, microseconds: seconds * 1e6 });
    }
    Ok(observed)
}

/// Bytes of inputs that calls take in turn: several times as many as a cache holds.
const ROTATED: usize = 512 << 20;

/// Samples of a plan. The least counts: whatever disturbs a sample makes it longer.
const SAMPLES: usize = 5;

/// Most calls of a sample.
const MOST_CALLS: usize = 4096;

/// Seconds per call in a stream of calls.
fn seconds_per_call(
    client: &Client,
    case: &Case,
    inputs: &[TensorHandle],
    plan: Option<Plan>,
    sample_seconds: f64,
) -> Result<f64, MeasureError> {
    let mut rotation = inputs.iter().cycle();
    let mut sample = |calls: usize| -> Result<f64, MeasureError> {
        wait(client)?;
        let start = Instant::now();
        for _ in 0..calls {
            run(client, case, rotation.next().expect("there is an input"), plan)?;
        }
        wait(client)?;
        Ok(start.elapsed().as_secs_f64() / calls as f64)
    };
    // The first call compiles.
    sample(1)?;
    let mut calls = 1;
    loop {
        let wanted = (sample_seconds / sample(calls)?) as usize;
        if wanted <= 2 * calls || calls >= MOST_CALLS {
            calls = wanted.clamp(1, MOST_CALLS);
            break;
        }
        calls = (8 * calls).min(wanted).min(MOST_CALLS);
    }
    let mut least = f64::INFINITY;
    for _ in 0..SAMPLES {
        least = least.min(sample(calls)?);
    }
    Ok(least)
}
