//! Times reductions of two inputs, in the words of the peers' programs.

use std::process::ExitCode;

use clap::Args;
use reduce_benches::{
    PlanTextError, Stated, inputs,
    pairing::{Pairing, PairingError},
};
use reduce_kernels::{
    by_name::{PairOptions, with_pair},
    cubecl::prelude::*,
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
    Pairing(#[from] PairingError),
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

fn run(Arguments { stated }: &Arguments) -> Result<(), Stop> {
    let cases = stated.cases()?.iter().map(Pairing::parse).collect::<Result<Vec<_>, _>>()?;
    let (plans, sample_seconds) = (stated.plans()?, stated.sample_seconds());
    on_device(stated.backend, Times { cases, plans, sample_seconds })?
}

struct Times {
    cases: Vec<Pairing>,
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
    case: &Pairing,
    plans: &[Plan],
    sample_seconds: f64,
) -> Result<(), MeasureError> {
    let (firsts, seconds) = (inputs(client, &case.place, None), inputs(client, &case.place, None));
    with_pair!(case.name, PairOptions::default(), operator => {
        let of = |nth: usize| {
            case.of(operator, &firsts[nth % firsts.len()], &seconds[nth % seconds.len()])
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
