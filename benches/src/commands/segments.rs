//! Times reductions of segments, in the words of the peers' programs.

use std::{num::ParseIntError, process::ExitCode};

use clap::{Args, ValueEnum};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_benches::{Case, CaseError, PlanTextError, Stated, StatedCase, inputs};
use reduce_kernels::{
    ElementType,
    by_name::{AppliedName, AppliedOptions, OperatorOptions, with_applied, with_operator},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    planner::{AppliedPlan, SegmentsPlan},
    reduce, storage_type,
};
use reduce_programs::{Backend, BackendError, FileError, MeasureError, OnDevice, on_device};

use super::{ended, timed_plans::TimedCase};

/// Times cases such as `sum f32 [67108864] in 1000 pareto` over rotating buffers (cold cache) and
/// prints them with their times, in the format of the peers' programs. A function such as `softmax` is
/// applied to its segments. Segments lie along axis 0; their lengths are `equal` or `pareto`, of the
/// exponent 1.2 as the peers' are. The bytes are those of the input, and of the output of a function.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    stated: Stated,
    /// The type of the offsets.
    #[arg(long, value_enum, default_value_t)]
    offsets: OffsetType,
}

/// Types of offsets.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum OffsetType {
    #[default]
    I32,
    I64,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("`{0}` is no case: expected `sum f32 [67108864] in 1000 pareto`, or `equal`")]
    Words(String),
    #[error("`{0}`: {1}")]
    Number(String, ParseIntError),
    #[error(transparent)]
    Case(#[from] CaseError),
    #[error(transparent)]
    Plan(#[from] PlanTextError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("{what}: {source}")]
    Measure { what: String, source: MeasureError },
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("segments", run(arguments))
}

/// A reduction or a function, and where its segments end.
struct Segmented {
    words: String,
    function: Option<AppliedName>,
    place: Case,
    offsets: Vec<usize>,
}

fn parse(stated: &StatedCase) -> Result<Segmented, Stop> {
    let no_case = || Stop::Words(stated.words());
    let (place, segments) = stated.place.split_once(" in ").ok_or_else(no_case)?;
    let function: Option<AppliedName> = stated.name.parse().ok();
    let operator = if function.is_some() { "sum" } else { &stated.name };
    let place: Case = format!("{operator} {place} axis 0").parse()?;
    let words: Vec<&str> = segments.split_whitespace().collect();
    let [count, lengths] = words[..] else { return Err(no_case()) };
    let count = count.parse().map_err(|error| Stop::Number(count.into(), error))?;
    let len = place.stored[0];
    let offsets = match lengths {
        "equal" => (0..=count).map(|nth| nth * len / count.max(1)).collect(),
        "pareto" => pareto(count, len),
        _ => return Err(no_case()),
    };
    Ok(Segmented { words: stated.words(), function, place, offsets })
}

/// Offsets of segments whose lengths follow a power law. The last one has what is left.
fn pareto(count: usize, len: usize) -> Vec<usize> {
    let mut random = StdRng::seed_from_u64(0);
    let weights = (0..count).map(|_| {
        let uniform: f64 = random.random();
        (1.0 - uniform).powf(-1.0 / 1.2).min(1e6)
    });
    let weights: Vec<f64> = weights.collect();
    let all: f64 = weights.iter().sum();
    let mut end = 0;
    let mut offsets = vec![0];
    for weight in weights {
        end += (weight / all * len as f64) as usize;
        offsets.push(end.min(len));
    }
    offsets[count] = len;
    offsets
}

fn run(Arguments { stated, offsets }: &Arguments) -> Result<(), Stop> {
    let cases = stated.cases()?.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    // Plans are those of the first case's kind.
    let (plans, applied_plans) = match cases.first() {
        Some(Segmented { function: Some(_), .. }) => (Vec::new(), stated.plans()?),
        _ => (stated.plans()?, Vec::new()),
    };
    let (sample_seconds, offsets) = (stated.sample_seconds(), *offsets);
    on_device(stated.backend, Times { cases, plans, applied_plans, sample_seconds, offsets })?
}

struct Times {
    cases: Vec<Segmented>,
    plans: Vec<SegmentsPlan>,
    applied_plans: Vec<AppliedPlan>,
    sample_seconds: f64,
    offsets: OffsetType,
}

impl OnDevice for Times {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, _: Backend, _: &str) -> Self::Output {
        for case in &self.cases {
            self.time(client, case)
                .map_err(|source| Stop::Measure { what: case.words.clone(), source })?;
            client.memory_cleanup().expect("no program records a graph");
        }
        Ok(())
    }
}

impl Times {
    fn time(&self, client: &Client, case: &Segmented) -> Result<(), MeasureError> {
        let inputs = inputs(client, &case.place, None);
        let offsets = self.offsets.tensor(client, &case.offsets);
        let written = u64::from(case.function.is_some());
        let (words, bytes) = (&case.words[..], (1 + written) * case.place.input_bytes());
        let timed = TimedCase { client, words, bytes, sample_seconds: self.sample_seconds };
        let input = |call: usize| &inputs[call % inputs.len()];
        if let Some(function) = case.function {
            let options = AppliedOptions::default();
            let chosen = with_applied!(function, options, &inputs[0], 0, applied => {
                applied.segments(&offsets).choose(client)?
            });
            return timed.print(&chosen.plan, &self.applied_plans, |&plan, call| {
                with_applied!(function, options, input(call), 0, applied => {
                    applied.segments(&offsets).with_plan(plan).run(client).map(drop)
                })
            });
        }
        with_operator!(case.place.operator, OperatorOptions::default(), operator => {
            let chosen = reduce(operator, &inputs[0]).over(0).segments(&offsets).choose(client)?;
            timed.print(&chosen.plan, &self.plans, |&plan, call| {
                let segments = reduce(operator, input(call)).over(0).segments(&offsets);
                segments.with_plan(plan).run(client).map(drop)
            })
        })
    }
}

impl OffsetType {
    fn tensor(self, client: &Client, offsets: &[usize]) -> TensorHandle {
        let (element, handle) = match self {
            OffsetType::I32 => {
                let offsets: Vec<i32> = offsets.iter().map(|&offset| offset as i32).collect();
                (ElementType::I32, client.create_from_slice(i32::as_bytes(&offsets)))
            }
            OffsetType::I64 => {
                let offsets: Vec<i64> = offsets.iter().map(|&offset| offset as i64).collect();
                (ElementType::I64, client.create_from_slice(i64::as_bytes(&offsets)))
            }
        };
        TensorHandle::new_contiguous(vec![offsets.len()], handle, storage_type(element))
    }
}
