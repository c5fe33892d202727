//! Times reductions that are applied to their own elements, in the words of the peers' programs.

use std::process::ExitCode;

use clap::Args;
use reduce_benches::{
    Case, CaseError, PlanTextError, Stated, StatedCase,
    applying::{Applying, ApplyingError, WithApplication},
    inputs,
};
use reduce_kernels::{
    ElementType, Operator, ReduceError,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    normalize::{AppliedReduction, CrossEntropy, LossReduction},
    operator::Apply,
    planner::AppliedPlan,
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
    Applying(#[from] ApplyingError),
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

/// What is timed.
enum Timed {
    Applying(Applying),
    /// A cross-entropy with a class for each row, or the mean of it and its gradient, with
    /// smoothing and an ignored class. It is a reduction and small launches.
    CrossEntropy {
        words: String,
        place: Case,
        with_gradient: bool,
    },
}

impl Timed {
    fn words(&self) -> &str {
        match self {
            Self::Applying(Applying { words, .. }) | Self::CrossEntropy { words, .. } => words,
        }
    }
}

fn parse(stated: &StatedCase) -> Result<Timed, Stop> {
    let with_gradient = match &stated.name[..] {
        "cross_entropy" => false,
        "cross_entropy_with_gradient" => true,
        _ => return Ok(Timed::Applying(Applying::parse(stated)?)),
    };
    let place = format!("sum {}", stated.place).parse()?;
    Ok(Timed::CrossEntropy { words: stated.words(), place, with_gradient })
}

fn run(Arguments { stated }: &Arguments) -> Result<(), Stop> {
    let cases = stated.cases()?.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let (plans, sample_seconds) = (stated.plans()?, stated.sample_seconds());
    on_device(stated.backend, Times { cases, plans, sample_seconds })?
}

struct Times {
    cases: Vec<Timed>,
    plans: Vec<AppliedPlan>,
    sample_seconds: f64,
}

impl OnDevice for Times {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, _: Backend, _: &str) -> Self::Output {
        for case in &self.cases {
            let timed = match case {
                Timed::Applying(applying) => self.time(client, applying),
                Timed::CrossEntropy { words, place, with_gradient } => {
                    self.time_loss(client, words, place, *with_gradient)
                }
            };
            let what = || case.words().to_owned();
            timed.map_err(|source| Stop::Measure { what: what(), source })?;
            client.memory_cleanup().expect("no program records a graph");
        }
        Ok(())
    }
}

impl Times {
    fn time(&self, client: &Client, case: &Applying) -> Result<(), MeasureError> {
        let inputs = inputs(client, &case.place, None);
        let weight = &random_inputs(client, case.place.element, &[case.last()], &[1], Some(0))[0];
        let bytes = case.function.bytes(&case.place);
        let Self { sample_seconds, .. } = *self;
        let timed = TimedCase { client, words: &case.words, bytes, sample_seconds };
        let input = |call: usize| &inputs[call % inputs.len()];
        let chosen = case.visit(input(0), input(1), weight, Choose(client))?;
        timed.print(&chosen, &self.plans, |&plan, call| {
            case.visit(input(call), input(call + 1), weight, Launch(client, plan))
        })
    }

    fn time_loss(
        &self,
        client: &Client,
        words: &str,
        place: &Case,
        with_gradient: bool,
    ) -> Result<(), MeasureError> {
        let inputs = inputs(client, place, None);
        let last = place.stored.len() - 1;
        let rows = place.elements() / place.stored[last];
        let classes = &random_inputs(client, ElementType::U8, &[rows], &[1], Some(0))[0];
        let bytes = place.input_bytes() * if with_gradient { 2 } else { 1 };
        let timed = TimedCase { client, words, bytes, sample_seconds: self.sample_seconds };
        timed.print(&"several launches", &[], |_, call| {
            let loss = CrossEntropy::of(&inputs[call % inputs.len()], classes, last);
            if with_gradient {
                let loss = loss.smoothing(SMOOTHING).ignored(IGNORED);
                loss.reduced(LossReduction::Mean).run_with_gradient(client).map(drop)
            } else {
                loss.run(client).map(drop)
            }
        })
    }
}

/// Chooses a plan.
struct Choose<'c>(&'c Client);

impl<'a> WithApplication<'a, TensorHandle> for Choose<'_> {
    type Output = Result<AppliedPlan, ReduceError>;

    fn with<O: Operator, F: Apply<Results = O::Results>>(
        self,
        applied: AppliedReduction<'a, O, F, TensorHandle>,
    ) -> Self::Output {
        Ok(applied.choose(self.0)?.plan)
    }
}

/// Launches with a plan.
struct Launch<'c>(&'c Client, AppliedPlan);

impl<'a> WithApplication<'a, TensorHandle> for Launch<'_> {
    type Output = Result<(), ReduceError>;

    fn with<O: Operator, F: Apply<Results = O::Results>>(
        self,
        applied: AppliedReduction<'a, O, F, TensorHandle>,
    ) -> Self::Output {
        let Self(client, plan) = self;
        applied.with_plan(plan).run(client).map(drop)
    }
}
