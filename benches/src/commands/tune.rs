//! Chooses plans by measuring, and keeps those that win in a store.

use std::{collections::HashSet, fmt, io, path::PathBuf, process::ExitCode};

use clap::Args;
use reduce_benches::{
    tune::{Calls, LineError, Measured, SkipReason, Summary, calls, line},
    turns::{LockError, Turns},
};
use reduce_kernels::{
    Device,
    cubecl::prelude::*,
    device_of,
    planner::{Planned, Tried, TuneOptions, tune},
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
    /// Cases such as `sum f32 [8192, 8192] axis 1`, `topk8 f32 [65536, 128] axis 1`,
    /// `dot f32 [8192, 8192] axis 1`, `softmax f32 [65536, 1024] axis 1`,
    /// `norm_l2 f32 27 of 1x[64, 64, 3, 3] 2x[64]` and `scan of sum f32 [65536, 1024] axis 1`.
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
    /// Print every plan that was measured, with its median time and its estimate.
    #[arg(long)]
    all: bool,
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
    #[command(flatten)]
    turns: Turns,
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
    #[error(transparent)]
    Lock(#[from] LockError),
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
    let cases = arguments.turns.part_of(cases);
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

        let mut tuning = Tuning {
            client,
            device: &device,
            store,
            path,
            options,
            arguments,
            summary: Summary::default(),
            seen: HashSet::new(),
        };
        let lock = arguments.turns.lock()?;
        if arguments.turns.are_taken() {
            lock.beside_others(|| cases.iter().try_for_each(|case| tuning.compile_call(case)))?;
        }
        let progress = progress(cases.len() as u64, "{bar:30} {pos}/{len} {eta} {msg}", false);
        for case in &cases {
            progress.set_message(case.to_string());
            let print = |line: String| progress.suspend(|| say(line));
            lock.alone(|| tuning.tune_call(case, print))?;
            progress.inc(1);
        }
        progress.finish_and_clear();
        say(tuning.summary)?;
        Ok(())
    }
}

/// What is tuned, and what was found so far.
struct Tuning<'a> {
    client: &'a Client,
    device: &'a Device,
    store: PlanStore,
    /// The file of the store, if it is kept.
    path: Option<&'a PathBuf>,
    options: TuneOptions,
    arguments: &'a Arguments,
    summary: Summary,
    seen: HashSet<String>,
}

impl Tuning<'_> {
    fn skip(
        &mut self,
        case: &impl fmt::Display,
        reason: &dyn fmt::Display,
        print: impl Fn(String) -> io::Result<()>,
    ) -> Result<(), Stop> {
        self.summary.skip();
        Ok(print(format!("SKIPPED {case}: {reason}"))?)
    }

    /// Compiles the kernels of a call's plans, if the device can run it.
    fn compile_call(&self, call: &RecordedCall) -> Result<(), Stop> {
        match call {
            RecordedCall::Reduction(reduction) => self.compile(reduction),
            RecordedCall::TopK(selection) => self.compile(selection),
            RecordedCall::Application(application) => self.compile(application),
            RecordedCall::List(list) => self.compile(list),
            RecordedCall::ListApplication(application) => self.compile(application),
            RecordedCall::Scan(scan) => self.compile(scan),
            _ => Ok(()),
        }
    }

    /// Runs each plan that [`Self::tune`] will measure, which compiles its kernels. A plan that
    /// fails here fails there again, and is reported then.
    fn compile<M: Measured>(&self, case: &M) -> Result<(), Stop> {
        let Self { client, device, .. } = *self;
        let Ok(problem) = case.check(client) else { return Ok(()) };
        let mut options = self.options;
        (options.fewest_rounds, options.most_rounds) = (1, 1);
        let mut calls = Calls::new(client, case, 0);
        let ran = |plan: &_| -> Result<f64, MeasureError> {
            calls.call(plan)?;
            wait(client)?;
            Ok(1.0)
        };
        drop(tune(&problem, device, &options, ran));
        drop(calls);
        self.give_back(case)
    }

    /// Gives the memory of a case back, when the device has finished.
    fn give_back(&self, case: &impl fmt::Display) -> Result<(), Stop> {
        self.client.memory_cleanup().expect("no program records a graph");
        wait(self.client).map_err(|source| Stop::Measure { case: case.to_string(), source })
    }

    /// Tunes a call of any kind.
    fn tune_call(
        &mut self,
        call: &RecordedCall,
        print: impl Fn(String) -> io::Result<()>,
    ) -> Result<(), Stop> {
        match call {
            RecordedCall::Reduction(reduction) => self.tune(reduction, print),
            RecordedCall::TopK(selection) => self.tune(selection, print),
            RecordedCall::Application(application) => self.tune(application, print),
            RecordedCall::List(list) => self.tune(list, print),
            RecordedCall::ListApplication(application) => self.tune(application, print),
            RecordedCall::Scan(scan) => self.tune(scan, print),
            RecordedCall::ListScan(_) => self.skip(call, &SkipReason::ListScan, print),
            RecordedCall::Segments(_) => self.skip(call, &SkipReason::Segments, print),
            other => self.skip(other, &SkipReason::Kind, print),
        }
    }

    /// Tunes one case.
    fn tune<M: Measured>(
        &mut self,
        case: &M,
        print: impl Fn(String) -> io::Result<()>,
    ) -> Result<(), Stop> {
        let Self { client, device, arguments, .. } = *self;
        let problem = match case.check(client) {
            Ok(problem) => problem,
            Err(reason) => return self.skip(case, &reason, print),
        };
        if !self.seen.insert(problem.line()) {
            return Ok(print(format!("SAME {case}: another case has the same problem"))?);
        }
        let mut calls = Calls::new(client, case, arguments.rotated);
        let sample = |plan: &_| calls.sample(plan, arguments.sample_ms / 1e3);
        let tuned = tune(&problem, device, &self.options, sample);
        drop(calls);
        self.give_back(case)?;
        let tuned = match tuned {
            Ok(tuned) => tuned,
            Err(reason) => return self.skip(case, &reason, print),
        };
        print(line(case, &tuned))?;
        let measured = tuned.tried.iter().filter(|_| arguments.all);
        for Tried { plan, estimate, microseconds, .. } in measured {
            let time = microseconds.map_or("failed".to_owned(), |time| format!("{time:.2} us"));
            print(format!("  {time}, {:.2} expected  # {plan}", estimate.microseconds()))?;
        }
        let improved = tuned.plan != tuned.untuned;
        let ratio = tuned.untuned_microseconds / tuned.microseconds;
        self.summary.add(case, ratio, improved);
        // A plan that won earlier may have lost now.
        let known = self.store.get(&problem);
        if improved || known.is_some_and(|known| known.plan != tuned.plan) {
            let ns = |microseconds: f64| (microseconds * 1e3).round() as u64;
            let (measured, untuned) = (ns(tuned.microseconds), ns(tuned.untuned_microseconds));
            self.store.insert(&problem, device, TunedPlan::new(tuned.plan, measured, untuned))?;
            if let Some(path) = self.path {
                self.store.merge_into_file(path)?;
            }
        }
        Ok(())
    }
}
