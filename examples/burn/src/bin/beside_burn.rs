//! Times Burn's reductions beside those of reduce-burn.
//!
//! Each case runs with each engine in a process of its own, which has empty caches at first and
//! whose failure stops nothing else.

#[path = "../beside/cases.rs"]
mod cases;
#[path = "../beside/children.rs"]
mod children;
#[path = "../beside/report.rs"]
mod report;
#[path = "../beside/worker.rs"]
mod worker;

use std::{
    env, io,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::{Parser, ValueEnum};
use reduce_burn_examples::{IS_FUSED, burn_device};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, FileError,
    command_line::{self, fail, say},
};
use tempfile::TempDir;

use cases::{Case, cases};
use children::Running;
use report::{Measured, Row, markdown};
use worker::{Engine, Message, Task, Worker};

/// Times reductions with Burn's own methods and with reduce-burn, and prints a table in Markdown:
/// the time per call over rotating inputs (cold cache), the kernels launched per call, and the time
/// of the first call in a new process. Burn fuses operations if this was built with the feature
/// `fusion`, as its users have it; a build without it tells how Burn does when it does not.
#[derive(Parser)]
struct Arguments {
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
    /// Run only the cases whose name contains this; may be repeated.
    #[arg(long)]
    cases: Vec<String>,
    /// The engines, separated by commas.
    #[arg(long, value_delimiter = ',', default_values = ["burn", "ours"])]
    engines: Vec<Engine>,
    /// Append what is measured to this file, one line of JSON for each case and engine.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Leave the time of the first call out of the table.
    #[arg(long)]
    no_first_call: bool,
    /// Do not count launches.
    #[arg(long)]
    no_launches: bool,
    /// Run this many first calls side by side, then as many counts of launches. Times per call are
    /// still taken one after the other, while no other process uses the device.
    #[arg(long, default_value_t = 1)]
    first_calls_at_once: usize,
    /// Divide the number of elements by 64, for devices without a GPU.
    #[arg(long)]
    small: bool,
    /// Milliseconds of each of the nine samples of a case; by default 20 with CUDA and 100 with
    /// wgpu, where each sample ends with a wait of milliseconds.
    #[arg(long)]
    sample_ms: Option<f64>,
    /// Keep the results of this many calls while further calls are enqueued. A result that nobody
    /// holds could be fused away.
    #[arg(long, default_value_t = 8)]
    keep: usize,
    /// Seconds to wait for each answer of a process before it is given up.
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// Print the names of the cases and stop.
    #[arg(long)]
    list: bool,
    /// Do one part of the work. The program starts itself with this.
    #[arg(long, hide = true, requires = "nth")]
    task: Option<Task>,
    /// The index of the part's case.
    #[arg(long, hide = true)]
    nth: Option<usize>,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("{0}")]
    Arguments(String),
    #[error("no case has a name that contains one of {0:?}: see --list")]
    NoCase(Vec<String>),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("a process could not be started: {0}")]
    Process(io::Error),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

fn main() -> ExitCode {
    let done = command_line::arguments().map_err(Stop::Arguments).and_then(
        |arguments: Arguments| match (arguments.task, arguments.nth) {
            (Some(task), Some(nth)) => work(&arguments, task, nth),
            _ => compare(&arguments),
        },
    );
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => fail("beside_burn", stop),
    }
}

fn sized(case: Case, is_small: bool) -> Case {
    if is_small { case.reduced() } else { case }
}

/// The work of a child process.
fn work(arguments: &Arguments, task: Task, nth: usize) -> Result<(), Stop> {
    let sample_ms = arguments.sample_ms.unwrap_or(match arguments.backend {
        Some(Backend::Cuda) | None => 20.0,
        Some(_) => 100.0,
    });
    let no_case = || Stop::Arguments(format!("there is no case {nth}"));
    let worker = Worker {
        task,
        engine: *arguments.engines.first().ok_or_else(|| Stop::Arguments("no engine".into()))?,
        nth,
        case: sized(cases().into_iter().nth(nth).ok_or_else(no_case)?, arguments.small),
        sample_seconds: sample_ms / 1e3,
        kept_results: arguments.keep,
        folder: env::current_dir().map_err(Stop::Process)?,
    };
    worker.configure();
    worker.work(&burn_device(arguments.backend)?);
    Ok(())
}

fn compare(arguments: &Arguments) -> Result<(), Stop> {
    let names = &arguments.cases;
    let mut chosen: Vec<(usize, Case)> = cases().into_iter().enumerate().collect();
    chosen.retain(|(_, case)| {
        let case = case.to_string();
        names.is_empty() || names.iter().any(|name| case.contains(name))
    });
    if chosen.is_empty() {
        return Err(Stop::NoCase(names.clone()));
    }
    if arguments.list {
        return Ok(chosen.iter().try_for_each(|(_, case)| say(case))?);
    }
    // This may start a runtime here; nothing is measured in this process.
    let backend = burn_device(arguments.backend)?.backend();
    let is_autotuned = cfg!(feature = "autotune");
    if !is_autotuned {
        say(
            "WARNING: built without the feature `autotune`, which Burn's users have: Burn's times are \
             not its best, and its first calls are shorter\n",
        )?;
    }
    let parts: Vec<Part<'_>> = chosen
        .iter()
        .flat_map(|(nth, case)| {
            arguments.engines.iter().map(|&engine| Part {
                arguments,
                backend,
                nth: *nth,
                full_bytes: case.bytes(),
                case: sized(case.clone(), arguments.small),
                engine,
            })
        })
        .collect();
    let mut rows: Vec<Row> = Vec::new();
    let mut found = Vec::new();
    for parts in parts.chunks(arguments.first_calls_at_once.max(1)) {
        found.extend(measure(parts).map_err(Stop::Process)?);
        while found.len() >= arguments.engines.len() {
            let row = found.drain(..arguments.engines.len()).collect();
            let row = compared(row, &chosen[rows.len()].1);
            for measured in &row {
                say(measured.line())?;
                if let Some(path) = &arguments.json {
                    measured.append(path)?;
                }
            }
            rows.push(row);
        }
    }
    let device = rows.iter().flatten().map(|measured| measured.device.as_str());
    let device = device.max_by_key(|name| name.len()).unwrap_or_default();
    let fused = if IS_FUSED { "fused" } else { "not fused" };
    say(format_args!("\n{device}, {backend}, Burn 0.22, {fused}\n"))?;
    Ok(say(markdown(&rows, &arguments.engines))?)
}

/// One case with one engine.
struct Part<'a> {
    arguments: &'a Arguments,
    backend: Backend,
    nth: usize,
    case: Case,
    full_bytes: u64,
    engine: Engine,
}

impl Part<'_> {
    fn start(&self, task: Task, folder: &Path) -> io::Result<Running> {
        let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().expect("every value has a name").get_name().to_owned()
        };
        let mut words = vec![
            format!("--backend={}", self.backend),
            format!("--task={}", name(&|| task.to_possible_value())),
            format!("--engines={}", name(&|| self.engine.to_possible_value())),
            format!("--nth={}", self.nth),
            format!("--keep={}", self.arguments.keep),
        ];
        words.extend(self.arguments.small.then(|| "--small".into()));
        words.extend(self.arguments.sample_ms.map(|ms| format!("--sample-ms={ms}")));
        Running::start(words, folder, Duration::from_secs(self.arguments.patience))
    }

    fn nothing_yet(&self) -> Measured {
        Measured {
            backend: self.backend.to_string(),
            device: String::new(),
            fused: IS_FUSED,
            autotune: cfg!(feature = "autotune"),
            case: self.case.to_string(),
            bytes: self.case.bytes(),
            full_bytes: self.full_bytes,
            engine: self.engine,
            microseconds: None,
            launches: None,
            launches_alone: None,
            first_call_seconds: None,
            failed: None,
            wrong: None,
        }
    }
}

/// Measures the parts of a batch. First calls run side by side, and so do counts of launches; times
/// per call are taken one after the other in between.
fn measure(parts: &[Part<'_>]) -> io::Result<Vec<(Measured, Vec<f64>)>> {
    struct State {
        measured: Measured,
        values: Vec<f64>,
        folder: TempDir,
        running: Option<Running>,
    }
    let mut states = Vec::new();
    for part in parts {
        let folder = tempfile::tempdir()?;
        let running = Some(part.start(Task::Time, folder.path())?);
        states.push(State { measured: part.nothing_yet(), values: Vec::new(), folder, running });
    }
    for (state, part) in states.iter_mut().zip(parts) {
        match state.running.as_mut().expect("it was started").message() {
            Ok(Message::FirstCall { device, seconds }) => {
                state.measured.device = device;
                let is_wanted = !part.arguments.no_first_call;
                state.measured.first_call_seconds = is_wanted.then_some(seconds);
            }
            other => {
                state.measured.failed = Some(unexpected(other));
                state.running = None;
            }
        }
    }
    for state in &mut states {
        let Some(mut running) = state.running.take() else { continue };
        running.go_on();
        match running.message() {
            Ok(Message::Timed { microseconds, values }) => {
                state.measured.microseconds = Some(microseconds);
                state.values = values;
            }
            other => state.measured.failed = Some(unexpected(other)),
        }
    }
    // In the folders of the first calls, where Burn finds what it has measured.
    for (state, part) in states.iter_mut().zip(parts) {
        if !part.arguments.no_launches && state.measured.failed.is_none() {
            state.running = Some(part.start(Task::Launches, state.folder.path())?);
        }
    }
    for state in &mut states {
        let Some(mut running) = state.running.take() else { continue };
        match running.message() {
            Ok(Message::Launches { per_call, alone }) => {
                state.measured.launches = Some(per_call);
                state.measured.launches_alone = Some(alone);
            }
            other => state.measured.failed = Some(unexpected(other)),
        }
    }
    Ok(states.into_iter().map(|state| (state.measured, state.values)).collect())
}

fn unexpected(answer: Result<Message, String>) -> String {
    answer.map_or_else(|error| error, |message| format!("an unexpected {message:?}"))
}

/// The row of a case: the results of all engines for the same input are compared with those of
/// reduce-burn.
fn compared(row: Vec<(Measured, Vec<f64>)>, case: &Case) -> Row {
    let ours = row.iter().find(|(m, values)| m.engine == Engine::Ours && !values.is_empty());
    let expected = ours.map(|(_, values)| values.clone());
    let checked = row.into_iter().map(|(mut measured, values)| {
        let is_wrong = |expected: &&Vec<f64>| !case.tolerance.holds(&values, expected);
        if measured.microseconds.is_some()
            && let Some(expected) = expected.as_ref().filter(is_wrong)
        {
            let mut pairs = values.iter().zip(expected);
            measured.wrong = Some(match pairs.find(|(a, b)| a != b) {
                Some((a, b)) => format!("for example {a} where reduce-burn has {b}"),
                None => format!("{} values where there are {}", values.len(), expected.len()),
            });
        }
        measured
    });
    checked.collect()
}
