//! Times reductions that are applied to their own elements, in the words of the peers' programs.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser;
use reduce_benches::{Case, CaseError, inputs};
use reduce_kernels::{
    AppliedName, AppliedOptions, ElementType, LayerNorm, ReduceError, RmsNorm, UnknownFunction,
    cross_entropy,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    planner::AppliedPlan,
    with_applied,
};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, FileError, MeasureError, OnDevice,
    command_line::{self, fail},
    gigabytes_per_second, microseconds_per_call, on_device, random_inputs, read,
};

/// Times cases over rotating buffers (cold cache) and prints
/// `OURS function dtype [shape] axis A: T us B GB/s`, the format of the peers' programs. The bytes
/// are those of the input, read once, and of the output, written once. The classes of a
/// cross-entropy are bytes.
#[derive(Parser)]
struct Arguments {
    /// Cases such as `softmax f32 [8192, 8192] axis 1`, or result lines of a peer's program.
    cases: Vec<String>,
    /// A file with one case a line; `#` starts a comment.
    #[arg(long)]
    file: Option<PathBuf>,
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
    /// Time this plan too, given as JSON; may be repeated. Cases that it does not fit are left out.
    #[arg(long = "plan")]
    plans: Vec<String>,
    /// Milliseconds of each of the nine samples of a case.
    #[arg(long, default_value_t = 12.0)]
    sample_ms: f64,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("{0}")]
    Arguments(String),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error(transparent)]
    Function(#[from] UnknownFunction),
    #[error("{json}: {source}")]
    Plan { json: String, source: serde_json::Error },
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
    #[error("{what}: {source}")]
    Measure { what: String, source: MeasureError },
}

fn main() -> ExitCode {
    let done = command_line::arguments()
        .map_err(Stop::Arguments)
        .and_then(|arguments: Arguments| run(&arguments));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => fail("applied", stop),
    }
}

/// A function and where it is applied.
struct Applied {
    words: String,
    function: Function,
    place: Case,
}

/// What is timed, with the operands that peers give it.
#[derive(Clone, Copy, PartialEq)]
enum Function {
    /// Without operands.
    Plain(AppliedName),
    /// With a weight and a bias.
    LayerNorm,
    /// With a weight.
    RmsNorm,
    /// With a class for each row.
    CrossEntropy,
}

impl Function {
    /// The function whose plan is chosen, if plans are.
    fn name(self) -> Option<AppliedName> {
        match self {
            Function::Plain(name) => Some(name),
            Function::LayerNorm => Some(AppliedName::LayerNorm),
            Function::RmsNorm => Some(AppliedName::RmsNorm),
            Function::CrossEntropy => None,
        }
    }
}

fn parse(line: &str) -> Result<Applied, Stop> {
    let stated = line.split(':').next().unwrap_or(line).trim();
    let words: Vec<&str> = stated.split_whitespace().collect();
    let is_engine = |word: &&str| word.chars().all(|letter| letter.is_ascii_uppercase());
    let first = usize::from(words.first().is_some_and(is_engine));
    let name = words.get(first).copied().unwrap_or("");
    let rest = words.get(first + 1..).unwrap_or(&[]).join(" ");
    let function = match name {
        // Batch normalisation in training is layer normalisation over other axes.
        "batch_norm" => Function::Plain(AppliedName::LayerNorm),
        "layer_norm" => Function::LayerNorm,
        "rms_norm" => Function::RmsNorm,
        "cross_entropy" => Function::CrossEntropy,
        name => Function::Plain(name.parse()?),
    };
    Ok(Applied { words: format!("{name} {rest}"), function, place: format!("sum {rest}").parse()? })
}

fn run(arguments: &Arguments) -> Result<(), Stop> {
    let mut lines = arguments.cases.clone();
    if let Some(path) = &arguments.file {
        lines.extend(read(path)?.lines().map(str::to_owned));
    }
    let stated = lines.iter().map(|line| line.split('#').next().unwrap_or("").trim());
    let cases = stated.filter(|line| !line.is_empty()).map(parse).collect::<Result<Vec<_>, _>>()?;
    let plans = arguments
        .plans
        .iter()
        .map(|json| {
            serde_json::from_str(json).map_err(|source| Stop::Plan { json: json.clone(), source })
        })
        .collect::<Result<Vec<AppliedPlan>, _>>()?;
    on_device(arguments.backend, Times { cases, plans, sample_seconds: arguments.sample_ms / 1e3 })?
}

struct Times {
    cases: Vec<Applied>,
    plans: Vec<AppliedPlan>,
    sample_seconds: f64,
}

impl OnDevice for Times {
    type Output = Result<(), Stop>;

    fn on<R: Runtime>(self, client: &ComputeClient<R>, _: Backend, _: &str) -> Self::Output {
        for case in &self.cases {
            time(client, case, &self.plans, self.sample_seconds)
                .map_err(|source| Stop::Measure { what: case.words.clone(), source })?;
            client.memory_cleanup();
        }
        Ok(())
    }
}

fn time<R: Runtime>(
    client: &ComputeClient<R>,
    case: &Applied,
    plans: &[AppliedPlan],
    sample_seconds: f64,
) -> Result<(), MeasureError> {
    let inputs = inputs(client, &case.place, None);
    let last = case.place.stored.last().copied().unwrap_or(1);
    let rows = case.place.elements() / last;
    let (len, element) = match case.function {
        Function::CrossEntropy => (rows, ElementType::U8),
        _ => (last, case.place.element),
    };
    let operands = random_inputs(client, element, &[len], &[1], Some(0));
    let written = if case.function == Function::CrossEntropy { 0 } else { 1 };
    let bytes = (1 + written) * case.place.input_bytes();
    let chosen = choose(client, case, &inputs[0])?;
    let others = plans.iter().map(Some);
    for (nth, plan) in std::iter::once(chosen.as_ref()).chain(others).enumerate() {
        let mut rotation = inputs.iter().cycle();
        let timed = microseconds_per_call(client, sample_seconds, || {
            let input = rotation.next().expect("there is an input");
            launch(client, case, input, &operands[0], plan.copied())?;
            Ok(())
        });
        let us = match timed {
            Err(MeasureError::Refused(_)) if nth > 0 => continue,
            timed => timed?,
        };
        let tried = if nth > 0 { "  tried " } else { "" };
        let words = plan.map_or("two launches".into(), ToString::to_string);
        let rate = gigabytes_per_second(bytes, us);
        // A reader that has gone does not wait for the times to come.
        let case = &case.words;
        drop(writeln!(io::stdout(), "OURS {case}: {us:.2} us {rate:.1} GB/s  # {tried}{words}"));
    }
    Ok(())
}

/// The plan that is chosen; none for a cross-entropy, which is a reduction and a small launch.
fn choose<R: Runtime>(
    client: &ComputeClient<R>,
    case: &Applied,
    input: &TensorHandle<R>,
) -> Result<Option<AppliedPlan>, ReduceError> {
    let Some(name) = case.function.name() else { return Ok(None) };
    let options = AppliedOptions::default();
    with_applied!(name, options, input, case.place.axes(), applied => {
        Ok(Some(applied.choose(client)?.plan))
    })
}

fn launch<R: Runtime>(
    client: &ComputeClient<R>,
    case: &Applied,
    input: &TensorHandle<R>,
    operand: &TensorHandle<R>,
    plan: Option<AppliedPlan>,
) -> Result<TensorHandle<R>, ReduceError> {
    let axes = || case.place.axes();
    let last = case.place.stored.len() - 1;
    let AppliedOptions { eps, .. } = AppliedOptions::default();
    match (case.function, plan) {
        (Function::LayerNorm, Some(plan)) => {
            let norm = LayerNorm { eps }.of(input, axes()).with_plan(plan);
            norm.operand(operand, last).operand(operand, last).run(client)
        }
        (Function::RmsNorm, Some(plan)) => {
            let norm = RmsNorm { eps }.of(input, axes()).with_plan(plan);
            norm.operand(operand, last).run(client)
        }
        (Function::Plain(name), Some(plan)) => {
            with_applied!(name, AppliedOptions::default(), input, axes(), applied => {
                applied.with_plan(plan).run(client)
            })
        }
        _ => cross_entropy(client, input, operand, last),
    }
}
