//! Times reductions that are applied to their own elements, in the words of the peers' programs.

use std::process::ExitCode;

use clap::Args;
use reduce_benches::{Case, CaseError, PlanTextError, Stated, StatedCase, inputs};
use reduce_kernels::{
    ElementType, ReduceError,
    by_name::{AppliedName, AppliedOptions, UnknownFunction, with_applied},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    normalize::{
        AddLayerNorm, AddRmsNorm, CrossEntropy, LayerNorm, LossReduction, RmsNorm, SoftmaxGradient,
    },
    planner::AppliedPlan,
    quantize::{AddRmsNormQuantize, Quantize, RmsNormQuantize},
};
use reduce_programs::{
    Backend, BackendError, FileError, MeasureError, OnDevice, on_device, random_inputs,
};

use super::{ended, timed_plans::TimedCase};

/// Times cases over rotating buffers (cold cache) and prints
/// `OURS function dtype [shape] axis A: T us B GB/s`, the format of the peers' programs. The bytes
/// are those of the inputs, read once, and of the outputs, written once. The classes of a
/// cross-entropy are bytes.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    stated: Stated,
}

/// The smoothing of a cross-entropy with its gradient.
const SMOOTHING: f64 = 0.1;

/// The class that it ignores.
const IGNORED: i64 = 0;

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
#[derive(Clone, Copy)]
enum Function {
    /// Without operands.
    Plain(AppliedName),
    /// With a weight and a bias.
    LayerNorm,
    /// With a weight.
    RmsNorm,
    /// Of the sum with a residual, which is an output too, with a weight.
    AddRmsNorm,
    /// Of the sum with a residual, which is an output too, with a weight and a bias.
    AddLayerNorm,
    /// With a class for each row.
    CrossEntropy,
    /// The mean of it and its gradient, with smoothing and an ignored class.
    CrossEntropyWithGradient,
    /// To a type of a byte, with a scale for each row.
    Quantize(ElementType),
    /// To fp8 after a normalisation with a weight.
    RmsNormQuantize,
    /// To fp8 after the normalisation of the sum with a residual, which is an output too.
    AddRmsNormQuantize,
    /// The gradient of a softmax, from that of its output and the output.
    SoftmaxGradient,
}

impl Function {
    /// Bytes of the tensors of the input's shape that are read and written.
    fn bytes(self, place: &Case) -> u64 {
        let bytes = place.input_bytes();
        let quantized = place.elements() as u64;
        match self {
            Function::Plain(_)
            | Function::LayerNorm
            | Function::RmsNorm
            | Function::CrossEntropyWithGradient => 2 * bytes,
            Function::AddRmsNorm | Function::AddLayerNorm => 4 * bytes,
            Function::SoftmaxGradient => 3 * bytes,
            Function::CrossEntropy => bytes,
            Function::Quantize(_) | Function::RmsNormQuantize => bytes + quantized,
            Function::AddRmsNormQuantize => 3 * bytes + quantized,
        }
    }
}

/// Quantisation to fp8.
const TO_F8: Quantize = Quantize::to(ElementType::F8E4M3);

fn parse(stated: &StatedCase) -> Result<Applied, Stop> {
    let function = match &stated.name[..] {
        // Batch normalisation in training is layer normalisation over other axes.
        "batch_norm" => Function::Plain(AppliedName::LayerNorm),
        "layer_norm" => Function::LayerNorm,
        "rms_norm" => Function::RmsNorm,
        "add_rms_norm" => Function::AddRmsNorm,
        "add_layer_norm" => Function::AddLayerNorm,
        "quantize_fp8_rows" => Function::Quantize(ElementType::F8E4M3),
        "quantize_int8_rows" => Function::Quantize(ElementType::I8),
        "rms_norm_fp8_rows" => Function::RmsNormQuantize,
        "add_rms_norm_fp8_rows" => Function::AddRmsNormQuantize,
        "softmax_gradient" => Function::SoftmaxGradient,
        "cross_entropy" => Function::CrossEntropy,
        "cross_entropy_with_gradient" => Function::CrossEntropyWithGradient,
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
        Function::CrossEntropy | Function::CrossEntropyWithGradient => (rows, ElementType::U8),
        _ => (last, case.place.element),
    };
    let operand = &random_inputs(client, element, &[len], &[1], Some(0))[0];
    let bytes = case.function.bytes(&case.place);
    let timed = TimedCase { client, words: &case.words, bytes, sample_seconds };
    let read = |call: usize| Read {
        input: &inputs[call % inputs.len()],
        residual: &inputs[(call + 1) % inputs.len()],
        operand,
    };
    match choose(client, case, read(0))? {
        Some(chosen) => {
            timed.print(&chosen, plans, |&plan, call| launch(client, case, read(call), Some(plan)))
        }
        None => {
            timed.print(&"several launches", &[], |_, call| launch(client, case, read(call), None))
        }
    }
}

/// What a call reads.
#[derive(Clone, Copy)]
struct Read<'a> {
    input: &'a TensorHandle,
    residual: &'a TensorHandle,
    operand: &'a TensorHandle,
}

/// Evaluates an expression with the application of a case.
macro_rules! with_case {
    ($case:expr, $read:expr, $applied:ident => $body:expr, $otherwise:expr) => {{
        let (case, Read { input, residual, operand }) = ($case, $read);
        let (axes, last) = (case.place.axes(), case.place.stored.len() - 1);
        let AppliedOptions { eps, .. } = AppliedOptions::default();
        match case.function {
            Function::Plain(name) => {
                with_applied!(name, AppliedOptions::default(), input, axes, $applied => $body)
            }
            Function::LayerNorm => {
                let norm = LayerNorm { eps }.of(input, axes);
                let $applied = norm.operand(operand, last).operand(operand, last);
                $body
            }
            Function::RmsNorm => {
                let $applied = RmsNorm { eps }.of(input, axes).operand(operand, last);
                $body
            }
            Function::AddRmsNorm => {
                let norm = AddRmsNorm { eps }.of(input, residual, axes);
                let $applied = norm.operand(operand, last);
                $body
            }
            Function::AddLayerNorm => {
                let norm = AddLayerNorm { eps }.of(input, residual, axes);
                let $applied = norm.operand(operand, last).operand(operand, last);
                $body
            }
            Function::Quantize(element) => {
                let $applied = Quantize::to(element).of(input, axes);
                $body
            }
            Function::RmsNormQuantize => {
                let norm = RmsNormQuantize { eps, quantize: TO_F8 };
                let $applied = norm.of_weighted(input, operand, axes);
                $body
            }
            Function::AddRmsNormQuantize => {
                let norm = AddRmsNormQuantize { eps, quantize: TO_F8 };
                let $applied = norm.of(input, residual, axes);
                $body
            }
            Function::SoftmaxGradient => {
                let $applied = SoftmaxGradient.of(input, residual, axes);
                $body
            }
            Function::CrossEntropy | Function::CrossEntropyWithGradient => $otherwise,
        }
    }};
}

/// The plan that is chosen; none for a cross-entropy, which is a reduction and small launches.
fn choose(
    client: &Client,
    case: &Applied,
    read: Read<'_>,
) -> Result<Option<AppliedPlan>, ReduceError> {
    with_case!(case, read, applied => Ok(Some(applied.choose(client)?.plan)), Ok(None))
}

fn launch(
    client: &Client,
    case: &Applied,
    read: Read<'_>,
    plan: Option<AppliedPlan>,
) -> Result<(), ReduceError> {
    with_case!(case, read, applied => {
        let applied = match plan {
            Some(plan) => applied.with_plan(plan),
            None => applied,
        };
        applied.run(client).map(drop)
    }, {
        let last = case.place.stored.len() - 1;
        let loss = CrossEntropy::of(read.input, read.operand, last);
        match case.function {
            Function::CrossEntropyWithGradient => {
                let loss = loss.smoothing(SMOOTHING).ignored(IGNORED);
                loss.reduced(LossReduction::Mean).run_with_gradient(client).map(drop)
            }
            _ => loss.run(client).map(drop),
        }
    })
}
