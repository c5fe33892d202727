//! Chooses the plans of reductions by measuring, and keeps those that win in a store.

use std::{collections::HashSet, io, path::PathBuf, process::ExitCode};

use clap::Args;
use reduce_benches::tune::{Calls, LineError, SkipReason, Summary, calls, check, line};
use reduce_kernels::{
    cubecl::prelude::*,
    device_of,
    planner::{TuneOptions, tune},
    plans::{PlanStore, RecordedCall, StoreError, TunedPlan},
};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, FileError, MeasureError, OnDevice, command_line::say,
    on_device, progress, read, wait,
};

use super::ended;

/// Measures the most promising plans of each case over rotating buffers (cold cache), and puts each
/// plan that is clearly faster than the planner's choice into a store.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Cases such as `sum f32 [8192, 8192] axis 1`.
    cases: Vec<String>,
    /// A file with one case a line, in words or as the JSON of a recorded call; `#` starts a
    /// comment. May be repeated.
    #[arg(long)]
    file: Vec<PathBuf>,
    /// The store. Plans are added to those that the file has, after every case.
    #[arg(long, required_unless_present = "dry_run")]
    store: Option<PathBuf>,
    /// Measure, and write no store.
    #[arg(long)]
    dry_run: bool,
    /// Milliseconds of each sample. Give 100 through wgpu, where waiting takes some milliseconds.
    #[arg(long, default_value_t = 8.0)]
    sample_ms: f64,
    /// Most plans that are measured for a case, the planner's choice included.
    #[arg(long, default_value_t = TuneOptions::default().most_plans)]
    most_plans: usize,
    /// Most rounds, each with a sample of every plan that is left.
    #[arg(long, default_value_t = TuneOptions::default().most_rounds)]
    most_rounds: usize,
    /// Bytes of inputs that calls take in turn.
    #[arg(long, default_value_t = 512 << 20)]
    rotated: usize,
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Line(#[from] LineError),
    #[error("there is no case: give some, or --file")]
    NoCase,
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{case}: {source}")]
    Measure { case: String, source: MeasureError },
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("tune", run(arguments))
}

fn run(arguments: &Arguments) -> Result<(), Stop> {
    let mut cases = calls(&arguments.cases.join("\n"))?;
    for path in &arguments.file {
        cases.extend(calls(&read(path)?)?);
    }
    if cases.is_empty() {
        return Err(Stop::NoCase);
    }
    on_device(arguments.backend, Tune { cases, arguments })?
}

struct Tune<'a> {
    cases: Vec<RecordedCall>,
    arguments: &'a Arguments,
}

impl OnDevice for Tune<'_> {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, _: Backend, _: &str) -> Self::Output {
        let Self { cases, arguments } = self;
        let device = device_of(client);
        let mut store = PlanStore::new(&device);
        let path = arguments.store.as_ref().filter(|_| !arguments.dry_run);
        if let Some(path) = path {
            // A store of another device or version is refused before anything is measured.
            store.merge_into_file(path)?;
        }
        let mut options = TuneOptions::default();
        options.most_plans = arguments.most_plans;
        options.most_rounds = arguments.most_rounds;
        options.fewest_rounds = options.fewest_rounds.min(arguments.most_rounds);

        let mut summary = Summary::default();
        let mut seen = HashSet::new();
        let progress = progress(cases.len() as u64, "{bar:30} {pos}/{len} {eta} {msg}", false);
        for case in &cases {
            progress.set_message(case.to_string());
            let print = |line: String| progress.suspend(|| say(line));
            let skip = |reason: &dyn std::fmt::Display| print(format!("SKIPPED {case}: {reason}"));
            let reduction = match case {
                RecordedCall::Reduction(reduction) => Ok(reduction),
                _ => Err(SkipReason::Kind),
            };
            let checked =
                reduction.and_then(|reduction| Ok((reduction, check(client, reduction)?)));
            let (reduction, problem) = match checked {
                Ok(checked) => checked,
                Err(reason) => {
                    skip(&reason)?;
                    summary.skip();
                    progress.inc(1);
                    continue;
                }
            };
            if !seen.insert(problem.to_string()) {
                print(format!("SAME {case}: another case has the same problem"))?;
                progress.inc(1);
                continue;
            }
            let mut calls = Calls::new(client, reduction, arguments.rotated);
            let sample = |plan: &_| calls.sample(*plan, arguments.sample_ms / 1e3);
            let tuned = tune(&problem, &device, &options, sample);
            drop(calls);
            client.memory_cleanup().expect("no program records a graph");
            wait(client).map_err(|source| Stop::Measure { case: case.to_string(), source })?;
            match tuned {
                Err(reason) => {
                    skip(&reason)?;
                    summary.skip();
                }
                Ok(tuned) => {
                    print(line(reduction, &tuned))?;
                    let improved = tuned.plan != tuned.untuned;
                    let ratio = tuned.untuned_microseconds / tuned.microseconds;
                    summary.add(case, ratio, improved);
                    // A plan that won earlier may have lost now.
                    let known = store.get(&problem);
                    if improved || known.is_some_and(|known| known.plan != tuned.plan) {
                        let ns = |microseconds: f64| (microseconds * 1e3).round() as u64;
                        let (measured, untuned) =
                            (ns(tuned.microseconds), ns(tuned.untuned_microseconds));
                        let plan = TunedPlan::new(tuned.plan, measured, untuned);
                        store.insert(&problem, &device, plan)?;
                        if let Some(path) = path {
                            store.merge_into_file(path)?;
                        }
                    }
                }
            }
            progress.inc(1);
        }
        progress.finish_and_clear();
        say(summary)?;
        Ok(())
    }
}
