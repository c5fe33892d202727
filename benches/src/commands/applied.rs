//! Times reductions that are applied to their own elements, in the words of the peers' programs.

use std::process::ExitCode;

use clap::Args;
use reduce_benches::{Case, CaseError, PlanTextError, Stated, StatedCase, inputs};
use reduce_kernels::{
    ElementType, ReduceError,
    by_name::{AppliedName, AppliedOptions, UnknownFunction, with_applied},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    normalize::{LayerNorm, RmsNorm, cross_entropy},
    planner::AppliedPlan,
};
use reduce_programs::{
    Backend, BackendError, FileError, MeasureError, OnDevice, on_device, random_inputs,
};

use super::{ended, timed_plans::TimedCase};

/// Times cases over rotating buffers (cold cache) and prints
/// `OURS function dtype [shape] axis A: T us B GB/s`, the format of the peers' programs. The bytes
/// are those of the input, read once, and of the output, written once. The classes of a
/// cross-entropy are bytes.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    stated: Stated,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error(transparent)]
    Function(#[from] UnknownFunction),
    #[error(transparent)]
    Plan(#[from] PlanTextError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("{what}: {source}")]
    Measure { what: String, source: MeasureError },
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("applied", run(arguments))
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

fn parse(stated: &StatedCase) -> Result<Applied, Stop> {
    let function = match &stated.name[..] {
        // Batch normalisation in training is layer normalisation over other axes.
        "batch_norm" => Function::Plain(AppliedName::LayerNorm),
        "layer_norm" => Function::LayerNorm,
        "rms_norm" => Function::RmsNorm,
        "cross_entropy" => Function::CrossEntropy,
        name => Function::Plain(name.parse()?),
    };
    let place = format!("sum {}", stated.place).parse()?;
    Ok(Applied { words: stated.words(), function, place })
}

fn run(Arguments { stated }: &Arguments) -> Result<(), Stop> {
    let cases = stated.cases()?.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let (plans, sample_seconds) = (stated.plans()?, stated.sample_seconds());
    on_device(stated.backend, Times { cases, plans, sample_seconds })?
}

struct Times {
    cases: Vec<Applied>,
    plans: Vec<AppliedPlan>,
    sample_seconds: f64,
}

impl OnDevice for Times {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, _: Backend, _: &str) -> Self::Output {
        for case in &self.cases {
            time(client, case, &self.plans, self.sample_seconds)
                .map_err(|source| Stop::Measure { what: case.words.clone(), source })?;
            client.memory_cleanup().expect("no program records a graph");
        }
        Ok(())
    }
}

fn time(
    client: &Client,
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
    let timed = TimedCase { client, words: &case.words, bytes, sample_seconds };
    let input = |call: usize| &inputs[call % inputs.len()];
    match choose(client, case, &inputs[0])? {
        Some(chosen) => timed.print(&chosen, plans, |&plan, call| {
            launch(client, case, input(call), &operands[0], Some(plan)).map(drop)
        }),
        None => timed.print(&"two launches", &[], |_, call| {
            launch(client, case, input(call), &operands[0], None).map(drop)
        }),
    }
}

/// The plan that is chosen; none for a cross-entropy, which is a reduction and a small launch.
fn choose(
    client: &Client,
    case: &Applied,
    input: &TensorHandle,
) -> Result<Option<AppliedPlan>, ReduceError> {
    let Some(name) = case.function.name() else { return Ok(None) };
    let options = AppliedOptions::default();
    with_applied!(name, options, input, case.place.axes(), applied => {
        Ok(Some(applied.choose(client)?.plan))
    })
}

fn launch(
    client: &Client,
    case: &Applied,
    input: &TensorHandle,
    operand: &TensorHandle,
    plan: Option<AppliedPlan>,
) -> Result<TensorHandle, ReduceError> {
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
