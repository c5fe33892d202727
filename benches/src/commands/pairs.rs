//! Times reductions of two inputs, in the words of the peers' programs.

use std::process::ExitCode;

use clap::Args;
use reduce_benches::{Case, CaseError, PlanTextError, Stated, StatedCase, inputs};
use reduce_kernels::{
    by_name::{PairName, PairOptions, UnknownPair, with_pair},
    cubecl::prelude::*,
    pairs::reduce_pair,
    planner::Plan,
};
use reduce_programs::{Backend, BackendError, FileError, MeasureError, OnDevice, on_device};

use super::{ended, timed_plans::TimedCase};

/// Times cases over rotating buffers (cold cache) and prints
/// `OURS reduction dtype [shape] axis A: T us B GB/s`, the format of the peers' programs. Both
/// inputs have the same shape and type. The bytes are those of both, read once.
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
    Name(#[from] UnknownPair),
    #[error(transparent)]
    Plan(#[from] PlanTextError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("{what}: {source}")]
    Measure { what: String, source: MeasureError },
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("pairs", run(arguments))
}

/// A reduction of two inputs and their layout.
struct Paired {
    words: String,
    name: PairName,
    place: Case,
}

fn parse(stated: &StatedCase) -> Result<Paired, Stop> {
    let name = match &stated.name[..] {
        "mse" => "mean_squared_error",
        "cosine" => "cosine_similarity",
        name => name,
    };
    let place = format!("sum {}", stated.place).parse()?;
    Ok(Paired { words: stated.words(), name: name.parse()?, place })
}

fn run(Arguments { stated }: &Arguments) -> Result<(), Stop> {
    let cases = stated.cases()?.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
    let (plans, sample_seconds) = (stated.plans()?, stated.sample_seconds());
    on_device(stated.backend, Times { cases, plans, sample_seconds })?
}

struct Times {
    cases: Vec<Paired>,
    plans: Vec<Plan>,
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
    case: &Paired,
    plans: &[Plan],
    sample_seconds: f64,
) -> Result<(), MeasureError> {
    let (firsts, seconds) = (inputs(client, &case.place, None), inputs(client, &case.place, None));
    with_pair!(case.name, PairOptions::default(), operator => {
        let of = |nth: usize| {
            let (first, second) = (&firsts[nth % firsts.len()], &seconds[nth % seconds.len()]);
            reduce_pair(operator, first, second).over(case.place.axes())
        };
        let chosen = of(0).choose(client)?.plan;
        let bytes = 2 * case.place.input_bytes();
        TimedCase { client, words: &case.words, bytes, sample_seconds }.print(
            &chosen,
            plans,
            |&plan, call| of(call).with_plan(plan).run(client).map(drop),
        )
    })
}
