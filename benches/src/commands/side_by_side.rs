//! Times cases given in the words of the peers' programs, one a line.

use std::{
    fmt,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use reduce_benches::{
    CallCost, CallingThread, Case, CaseError, Delay, Record, RecordError, Timing, Tried, inputs,
    run, sweep,
};
use reduce_kernels::{
    by_name::{OperatorOptions, with_operator},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    planner::{Access, Choice, Device, Plan, Problem, Schedule, ScheduleKind},
    plans::{PlanStore, StoreError, use_plans},
    reduce,
};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, FileError, Floor, MeasureError, OnDevice,
    gigabytes_per_second, microseconds_per_call, on_device, read,
};

use super::ended;

/// Times reductions over rotating buffers (cold cache) and prints
/// `OURS op dtype [shape] axis A: T us B GB/s`, the format of the peers' programs.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Cases such as `sum f32 [8192, 8192] axis 1`, or `axis (0, 2, 3)`, `axis all`, `axis T`; or
    /// result lines of a peer's program.
    cases: Vec<String>,
    /// A file with one case a line; `#` starts a comment.
    #[arg(long)]
    file: Option<PathBuf>,
    /// Add the sweeps over neighbouring shapes of 256 MiB.
    #[arg(long)]
    sweep: bool,
    /// Add the sweep over matrices of 1 GiB.
    #[arg(long)]
    large_sweep: bool,
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
    /// Write what was measured to this file, as JSON, after every case.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Time every schedule that applies, not only the chosen one.
    #[arg(long)]
    every_schedule: bool,
    /// Time this plan too, given as JSON; may be repeated. Cases that it does not fit are left out.
    #[arg(long = "plan")]
    plans: Vec<String>,
    /// Take the plans of this store, where it has one for a case.
    #[arg(long)]
    store: Option<PathBuf>,
    /// Time cubek-reduce too, with the fastest of its routines for each case.
    #[cfg(feature = "cubek")]
    #[arg(long)]
    cubek: bool,
    /// Milliseconds of each of the nine samples of a case.
    #[arg(long, default_value_t = 15.0)]
    sample_ms: f64,
    /// Leave out the device time of the kernels alone.
    #[arg(long)]
    stream_only: bool,
    /// Bytes of the largest sum that measures the read bandwidth.
    #[arg(long, default_value_t = 4 << 30)]
    reference_bytes: u64,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{json}: {source}")]
    Plan { json: String, source: serde_json::Error },
    #[error("there is no case: give some, or --file, --sweep or --large-sweep")]
    NoCase,
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    #[error("{what}: {source}")]
    Measure { what: String, source: MeasureError },
}

/// A schedule expected to take this many times the chosen one's time is not worth timing.
const HOPELESS: f64 = 30.0;

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("side_by_side", side_by_side(arguments))
}

fn stated_cases(arguments: &Arguments) -> Result<Vec<Case>, Stop> {
    let mut lines = arguments.cases.clone();
    if let Some(path) = &arguments.file {
        lines.extend(read(path)?.lines().map(str::to_owned));
    }
    let stated = lines.iter().map(|line| line.split('#').next().unwrap_or("").trim());
    let mut cases =
        stated.filter(|line| !line.is_empty()).map(str::parse).collect::<Result<Vec<Case>, _>>()?;
    if arguments.sweep {
        let points = sweep::aspects(sweep::USUAL_LOG2).into_iter().chain(sweep::inner_dimensions());
        cases.extend(points.map(|point| point.case));
    }
    if arguments.large_sweep {
        cases.extend(sweep::aspects(sweep::LARGE_LOG2).into_iter().map(|point| point.case));
    }
    if cases.is_empty() { Err(Stop::NoCase) } else { Ok(cases) }
}

fn side_by_side(arguments: &Arguments) -> Result<(), Stop> {
    let cases = stated_cases(arguments)?;
    let plans: Vec<Plan> = arguments
        .plans
        .iter()
        .map(|json| {
            serde_json::from_str(json).map_err(|source| Stop::Plan { json: json.clone(), source })
        })
        .collect::<Result<_, _>>()?;
    on_device(arguments.backend, Times { cases, arguments, plans })?
}

/// The cases to time.
struct Times<'a> {
    cases: Vec<Case>,
    arguments: &'a Arguments,
    plans: Vec<Plan>,
}

impl OnDevice for Times<'_> {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, _: Backend, _: &str) -> Self::Output {
        time(client, &self.cases, self.arguments, &self.plans)
    }
}

/// Prints a line. Where its reader has gone this is an error: nobody waits for the times to come.
fn print(line: fmt::Arguments<'_>) -> io::Result<()> {
    writeln!(io::stdout(), "{line}")
}

/// Why `what` has no time.
fn stopped(what: impl fmt::Display) -> impl FnOnce(MeasureError) -> Stop {
    move |source| Stop::Measure { what: what.to_string(), source }
}

fn time(
    client: &Client,
    cases: &[Case],
    arguments: &Arguments,
    plans: &[Plan],
) -> Result<(), Stop> {
    let device = device_of(client);
    print(format_args!("{} {device:?}", client.name()))?;
    if let Some(path) = &arguments.store {
        use_plans(client, PlanStore::read(path, &device)?)?;
    }
    let sample_seconds = arguments.sample_ms / 1e3;
    let floor = Floor::measure(client, arguments.reference_bytes, sample_seconds)
        .map_err(stopped("the read bandwidth"))?;
    print(format_args!(
        "FLOOR {:.1} GB/s read, {:.2} us a launch",
        floor.read_gigabytes_per_second, floor.launch_microseconds
    ))?;
    let call = CallCost::measure(client, sample_seconds).map_err(stopped("the cost of a call"))?;
    print(format_args!(
        "CALL {:.2} us for an empty kernel, {:.2} us for a sum of a shape seen before, {:.2} us of a \
         new shape",
        call.bare_launch, call.seen_shape, call.new_shape
    ))?;
    let alone = [("an empty kernel", call.bare_calls), ("a seen shape", call.seen_calls)];
    for (what, thread) in alone.into_iter().chain([("a new shape", call.new_calls)]) {
        let CallingThread { median, percentile_99, slowest } = thread;
        print(format_args!(
            "CALL of {what} keeps its thread {median:.2} us (median), {percentile_99:.2} us (99 %), \
             {slowest:.2} us (slowest)"
        ))?;
    }
    let delay = Delay::calibrate(client).map_err(stopped("the delay"))?;
    let engine = Engine {
        client,
        device: &device,
        floor,
        delay: (!arguments.stream_only).then_some(delay),
        sample_seconds,
        every_schedule: arguments.every_schedule,
        plans,
    };
    let runtime = client.name().to_owned();
    let mut record = Record { runtime, device: device.clone(), floor, cases: Vec::new() };
    let save = |record: &Record| -> Result<(), Stop> {
        Ok(arguments.json.as_deref().map_or(Ok(()), |path| record.write(path))?)
    };
    for case in cases {
        let bytes = case.input_bytes();
        if bytes > client.properties().memory.max_page_size {
            print(format_args!("SKIPPED {case}: {bytes} bytes are more than one buffer holds"))?;
            continue;
        }
        // Found here because filling the input would fail first.
        if !device.has(case.element) {
            print(format_args!("SKIPPED {case}: {} has no {}", device.name, case.element))?;
            continue;
        }
        match engine.time(case) {
            Ok(timing) => record.cases.push(timing),
            Err(Stop::Measure { source: source @ MeasureError::Refused(_), .. }) => {
                print(format_args!("SKIPPED {case}: {source}"))?;
            }
            Err(stop) => return Err(stop),
        }
        client.memory_cleanup().expect("no program records a graph");
        save(&record)?;
    }
    // After ours, all of them: a routine of another library may take the device down.
    #[cfg(feature = "cubek")]
    if arguments.cubek {
        for nth in 0..record.cases.len() {
            let Timing { case, bytes, .. } = &record.cases[nth];
            let inputs = inputs(client, case, None);
            let best = reduce_benches::fastest_routine(client, case, &inputs, sample_seconds);
            if let Some(best) = &best {
                let (us, routine) = (best.microseconds, &best.routine);
                let rate = gigabytes_per_second(*bytes, us);
                print(format_args!("CUBEK {case}: {us:.2} us {rate:.1} GB/s  # {routine}"))?;
            }
            record.cases[nth].cubek = best;
            drop(inputs);
            client.memory_cleanup().expect("no program records a graph");
            save(&record)?;
        }
    }
    Ok(())
}

/// What timing a case needs beside the case.
struct Engine<'a> {
    client: &'a Client,
    device: &'a Device,
    floor: Floor,
    delay: Option<Delay<'a>>,
    sample_seconds: f64,
    every_schedule: bool,
    plans: &'a [Plan],
}

impl Engine<'_> {
    /// Times a case in the way that a user calls it, then the other plans that were asked for.
    fn time(&self, case: &Case) -> Result<Timing, Stop> {
        let inputs = inputs(self.client, case, None);
        let (used, choice, problem) =
            plans(self.client, case, &inputs[0]).map_err(stopped(case))?;
        let us = self.stream_microseconds(case, &inputs, None).map_err(stopped(case))?;
        let mut timing = Timing::new(case.clone(), problem.bytes(), used, us, &self.floor);
        if let Some(delay) = &self.delay {
            let enqueue = self.calls(case, &inputs, None);
            timing.kernel_microseconds =
                delay.kernel_microseconds(us, enqueue).map_err(stopped(case))?;
        }
        let kernel = timing.kernel_microseconds.map(|us| format!("{us:.2} us alone, "));
        print(format_args!(
            "OURS {case}: {us:.2} us {:.1} GB/s  # {}{:.0} % of the floor, {}",
            timing.gigabytes_per_second,
            kernel.unwrap_or_default(),
            timing.floor_share * 100.0,
            timing.plan_text
        ))?;
        for plan in self.other_plans(&choice, &problem) {
            let microseconds =
                self.stream_microseconds(case, &inputs, Some(plan)).map_err(stopped(case))?;
            let rate = gigabytes_per_second(problem.bytes(), microseconds);
            print(format_args!(
                "OURS {case}: {microseconds:.2} us {rate:.1} GB/s  #   tried {plan}"
            ))?;
            timing.tried.push(Tried { plan, plan_text: plan.to_string(), microseconds });
        }
        Ok(timing)
    }

    /// Enqueues one call over the next input each time.
    fn calls(
        &self,
        case: &Case,
        inputs: &[TensorHandle],
        plan: Option<Plan>,
    ) -> impl FnMut() -> Result<(), MeasureError> {
        let mut rotation = inputs.iter().cycle();
        move || {
            let input = rotation.next().expect("there is an input");
            run(self.client, case, input, plan)?;
            Ok(())
        }
    }

    fn stream_microseconds(
        &self,
        case: &Case,
        inputs: &[TensorHandle],
        plan: Option<Plan>,
    ) -> Result<f64, MeasureError> {
        let enqueue = self.calls(case, inputs, plan);
        microseconds_per_call(self.client, self.sample_seconds, enqueue)
    }

    /// The plans beside the chosen one that were asked for and that fit.
    fn other_plans(&self, choice: &Choice, problem: &Problem) -> Vec<Plan> {
        let access = Access::widest(problem, self.device);
        let sized = ScheduleKind::ALL.into_iter().filter(|_| self.every_schedule);
        let sized = sized.filter_map(|kind| {
            let schedule = Schedule::sized(kind, problem, self.device, access).ok()?;
            let plan = Plan::new(access, schedule);
            let expected = plan.estimate(problem, self.device).microseconds();
            (expected < HOPELESS * choice.expected_microseconds()).then_some(plan)
        });
        let plans = sized.chain(self.plans.iter().copied());
        plans.filter(|plan| plan.check(problem, self.device).is_ok()).collect()
    }
}

/// The plan that runs, the planner's choice, and the problem.
fn plans(
    client: &Client,
    case: &Case,
    input: &TensorHandle,
) -> Result<(Plan, Choice, Problem), MeasureError> {
    with_operator!(case.operator, OperatorOptions::default(), operator => {
        let reduction = reduce(operator, input).over(case.axes());
        Ok((reduction.plan(client)?.plan, reduction.choose(client)?, reduction.problem()?))
    })
}
