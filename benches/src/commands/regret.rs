//! Times the plans that a search compares, and tells how far the choice is from the fastest.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use reduce_benches::{
    Case, CaseError,
    regret::{Line, Measured, Tried, problem, random_cases},
    run, sweep,
    turns::{LockError, Turns},
};
use reduce_kernels::{
    Device, ReduceError,
    cubecl::prelude::*,
    device_of,
    planner::{Candidate, Plan, candidates, choose},
};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, FileError, MeasureError, OnDevice, median, on_device,
    random_inputs, read, sample_of_calls, wait,
};

use super::ended;

/// Times each of many plans for each case, over rotating buffers (cold cache), in turns.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Cases such as `sum f32 [8192, 8192] axis 1`.
    cases: Vec<String>,
    /// A file with one case a line; `#` starts a comment. May be repeated.
    #[arg(long)]
    file: Vec<PathBuf>,
    /// Add the sweeps over neighbouring shapes of 256 MiB.
    #[arg(long)]
    sweep: bool,
    /// Add so many random cases of all operators, from 1 MiB to 1 GiB.
    #[arg(long, default_value_t = 0)]
    random: usize,
    /// What the random cases are made from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Divide the elements of all cases by about this number, for devices without a GPU.
    #[arg(long, default_value_t = 1)]
    divide: usize,
    #[command(flatten)]
    turns: Turns,
    /// Most plans of a case.
    #[arg(long, default_value_t = 16, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    most: usize,
    /// Milliseconds of each sample.
    #[arg(long, default_value_t = 2.0)]
    sample_ms: f64,
    /// Bytes of inputs that calls take in turn.
    #[arg(long, default_value_t = 512 << 20)]
    rotated: usize,
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
    /// Append what was measured to this file: one line of JSON for the device and for each case.
    #[arg(long)]
    json: PathBuf,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error("there is no case: give some, or --file, --sweep or --random")]
    NoCase,
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("{}: {source}", path.display())]
    Path { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("{what}: {source}")]
    Measure { what: String, source: MeasureError },
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("regret", regret(arguments))
}

fn stated_cases(arguments: &Arguments) -> Result<Vec<Case>, Stop> {
    let mut lines = arguments.cases.clone();
    for path in &arguments.file {
        lines.extend(read(path)?.lines().map(str::to_owned));
    }
    let stated = lines.iter().map(|line| line.split('#').next().unwrap_or("").trim());
    let mut cases =
        stated.filter(|line| !line.is_empty()).map(str::parse).collect::<Result<Vec<Case>, _>>()?;
    if arguments.sweep {
        let points = sweep::aspects(sweep::USUAL_LOG2).into_iter().chain(sweep::inner_dimensions());
        cases.extend(points.map(|point| point.case));
    }
    cases.extend(random_cases(arguments.random, arguments.seed));
    for case in &mut cases {
        let mut left = arguments.divide;
        while left > 1 {
            let Some(longest) = case.stored.iter_mut().max() else { break };
            *longest = (*longest / 2).max(1);
            left /= 2;
        }
    }
    if cases.is_empty() { Err(Stop::NoCase) } else { Ok(cases) }
}

fn regret(arguments: &Arguments) -> Result<(), Stop> {
    let cases = arguments.turns.part_of(stated_cases(arguments)?);
    on_device(arguments.backend, Times { cases, arguments })?
}

struct Times<'a> {
    cases: Vec<Case>,
    arguments: &'a Arguments,
}

impl OnDevice for Times<'_> {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, _: Backend, _: &str) -> Self::Output {
        let arguments = self.arguments;
        let path = &arguments.json;
        let stop = |source| Stop::Path { path: path.clone(), source };
        let mut file = OpenOptions::new().append(true).create(true).open(path).map_err(stop)?;
        let mut write = |line: &Line| {
            let mut text = serde_json::to_string(line).expect("a line is JSON");
            text.push('\n');
            file.write_all(text.as_bytes()).map_err(stop)
        };
        let runtime = client.name().to_owned();
        let device = device_of(client);
        write(&Line::Device { runtime, device: Box::new(device.clone()) })?;
        let most_bytes = client.properties().memory.max_page_size;
        let lock = arguments.turns.lock()?;

        let compiled = lock.beside_others(|| {
            let mut compiled = Vec::new();
            for case in self.cases.iter().filter(|case| case.input_bytes() <= most_bytes) {
                match compile(client, &device, case, arguments) {
                    Ok(plans) => compiled.push((case, plans)),
                    Err(MeasureError::Refused(refused)) => eprintln!("SKIPPED {case}: {refused}"),
                    Err(source) => return Err(Stop::Measure { what: case.to_string(), source }),
                }
                client.memory_cleanup().expect("no program records a graph");
            }
            Ok(compiled)
        })?;
        for (case, plans) in compiled {
            let measured = lock.alone(|| {
                let failed = |source| Stop::Measure { what: case.to_string(), source };
                let measured = time(client, case, &plans, arguments).map_err(failed)?;
                client.memory_cleanup().expect("no program records a graph");
                // The memory is given back when the device's thread comes to it.
                wait(client).map_err(failed)?;
                Ok::<_, Stop>(measured)
            })?;
            write(&Line::Case(measured))?;
        }
        Ok(())
    }
}

/// The plans to time for a case, whose kernels have run once.
fn compile(
    client: &Client,
    device: &Device,
    case: &Case,
    arguments: &Arguments,
) -> Result<Vec<Plan>, MeasureError> {
    let problem = problem(case)?;
    let chosen = choose(&problem, device).map_err(ReduceError::from)?.plan;
    let all = candidates(&problem, device).map_err(ReduceError::from)?;
    let plans = selected(chosen, &all, arguments.most);
    // One input.
    let inputs = random_inputs(client, case.element, &case.shape(), &case.strides(), Some(0));
    for &plan in &plans {
        run(client, case, &inputs[0], Some(plan))?;
        wait(client)?;
    }
    Ok(plans)
}

/// Samples of each plan in turns, and again of the fastest ones.
const ROUNDS: usize = 5;

/// Plans whose times are taken again.
const FASTEST: usize = 4;

fn time(
    client: &Client,
    case: &Case,
    plans: &[Plan],
    arguments: &Arguments,
) -> Result<Measured, MeasureError> {
    let (shape, strides) = (case.shape(), case.strides());
    let inputs = random_inputs(client, case.element, &shape, &strides, Some(arguments.rotated));
    wait(client)?;
    let mut samples = vec![Vec::new(); plans.len()];
    let mut calls = vec![None; plans.len()];
    let mut turn = 0;
    let mut sample = |nth: usize, seconds: f64| {
        sample_of_calls(client, seconds, &mut calls[nth], || {
            turn += 1;
            run(client, case, &inputs[turn % inputs.len()], Some(plans[nth]))?;
            Ok(())
        })
    };
    let seconds = arguments.sample_ms / 1e3;
    let all: Vec<usize> = (0..plans.len()).collect();
    for round in 0..ROUNDS {
        // Drift of the device hits all alike.
        for &turn in &all {
            let nth = if round % 2 == 0 { turn } else { plans.len() - 1 - turn };
            samples[nth].push(sample(nth, seconds)?);
        }
    }
    // The fastest ones again, with the chosen one, so that the best is not only lucky.
    let mut again = all;
    again.sort_by(|&a, &b| median(samples[a].clone()).total_cmp(&median(samples[b].clone())));
    again.truncate(FASTEST);
    if !again.contains(&0) {
        again.push(0);
    }
    for _ in 0..ROUNDS {
        for &nth in &again {
            samples[nth].push(sample(nth, seconds)?);
        }
    }
    let tried = plans.iter().zip(samples).map(|(&plan, samples)| Tried {
        plan,
        plan_text: plan.to_string(),
        microseconds: median(samples),
    });
    let bytes = problem(case)?.bytes();
    Ok(Measured { case: case.clone(), bytes, tried: tried.collect() })
}

/// Plans that are taken from all others, however slow they are expected to be.
const FROM_ALL: usize = 6;

/// The chosen plan, and those that are expected to be the fastest, of every schedule some.
fn selected(chosen: Plan, all: &[Candidate], most: usize) -> Vec<Plan> {
    let mut plans = vec![chosen];
    let best = all[0].estimate.total_ns();
    let hopeful = all.iter().filter(|candidate| candidate.estimate.total_ns() < 3.0 * best);
    let mut hopeful: Vec<&Candidate> = hopeful.filter(|one| one.plan != chosen).collect();
    // Neighbours of the chosen plan, and others, by turns.
    let kind = chosen.schedule.kind();
    let (mut near, mut far): (Vec<&Candidate>, Vec<&Candidate>) =
        hopeful.drain(..).partition(|one| one.plan.schedule.kind() == kind);
    near.reverse();
    far.reverse();
    while plans.len() + FROM_ALL < most && !(near.is_empty() && far.is_empty()) {
        for _ in 0..2 {
            plans.extend(near.pop().map(|one| one.plan));
        }
        plans.extend(far.pop().map(|one| one.plan));
    }
    let rest: Vec<Plan> = near.iter().chain(&far).map(|one| one.plan).collect();
    plans.extend(rest.iter().step_by(rest.len().div_ceil(FROM_ALL).max(1)));
    plans.truncate(most);
    plans
}
