//! Times scans, in the words of the peers' programs.

use std::process::ExitCode;

use clap::Args;
use reduce_benches::{CaseError, PlanTextError, Stated, inputs, scanning::Scanning};
use reduce_kernels::{
    by_name::{OperatorOptions, with_operator},
    cubecl::prelude::*,
    device_of,
    planner::{ScanPlan, ScheduleKind, force_scan},
};
use reduce_programs::{Backend, BackendError, FileError, MeasureError, OnDevice, on_device};

use super::{ended, timed_plans::TimedCase};

/// Times running results of cases such as `sum f32 [65536, 1024] axis 1` over rotating buffers
/// (cold cache) and prints them with their times, in the format of the peers' programs. Words such
/// as `exclusive` or `reverse` may follow the axis. The bytes are those of the input and of the
/// results.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    stated: Stated,
    /// Time each other schedule that applies, too.
    #[arg(long)]
    every_schedule: bool,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
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
    ended("scans", run(arguments))
}

fn run(Arguments { stated, every_schedule }: &Arguments) -> Result<(), Stop> {
    let cases = stated.cases()?.iter().map(Scanning::parse).collect::<Result<Vec<_>, _>>()?;
    let (plans, sample_seconds) = (stated.plans()?, stated.sample_seconds());
    let every_schedule = *every_schedule;
    on_device(stated.backend, Times { cases, plans, sample_seconds, every_schedule })?
}

struct Times {
    cases: Vec<Scanning>,
    /// Plans to time beside the chosen ones.
    plans: Vec<ScanPlan>,
    sample_seconds: f64,
    every_schedule: bool,
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
    fn time(&self, client: &Client, case: &Scanning) -> Result<(), MeasureError> {
        let inputs = inputs(client, &case.place, None);
        let input = |call: usize| &inputs[call % inputs.len()];
        with_operator!(case.place.operator, OperatorOptions::default(), operator => {
            let first = case.of(operator, &inputs[0]);
            let (problem, chosen) = (first.problem()?, first.choose(client)?.plan);
            let mut others = self.plans.clone();
            if self.every_schedule {
                let device = device_of(client);
                let forced = ScheduleKind::ALL.into_iter();
                let forced = forced.filter_map(|kind| force_scan(kind, &problem, &device).ok());
                others.extend(forced.filter(|plan| *plan != chosen));
            }
            let (words, bytes) = (&case.words[..], problem.bytes());
            let timed = TimedCase { client, words, bytes, sample_seconds: self.sample_seconds };
            timed.print(&chosen, &others, |&plan, call| {
                case.of(operator, input(call)).with_plan(plan).run(client).map(drop)
            })
        })
    }
}
