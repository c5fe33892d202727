//! Times reductions of lists of tensors.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use reduce_benches::listing::{ListWork, Listing, ListingError};
use reduce_kernels::{
    ReduceError,
    by_name::{OperatorOptions, with_operator},
    cubecl::{prelude::*, std::tensor::TensorHandle},
    device_of,
    list::{clip_by_global_norm_in_place, reduce_list, scan_list},
    planner::{ListTuning, choose_list, row_major_strides},
};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, FileError, MeasureError, OnDevice, gigabytes_per_second,
    microseconds_per_call, on_device, random_inputs, read,
};

use super::ended;

/// Times operators over lists of tensors, their scans, and clipping: `clip` where all tensors are
/// scaled, `unclipped` where none is. The rate of clipping is that of two reads and one write, and
/// all others are those of one read. The tensors are the same in each call, as gradients are: a
/// list that fits the cache is read from it.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Cases such as `norm_l2 f32 27 of 1x[64, 64, 3, 3] 2x[64]`: 27 times one tensor of the first
    /// shape and two of the second. `scan of ` before it asks for running results along first axes.
    cases: Vec<String>,
    /// A file with one case a line; `#` starts a comment.
    #[arg(long)]
    file: Option<PathBuf>,
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
    /// Time the plan of this tuning of lists too, given as JSON; may be repeated.
    #[arg(long = "tuning")]
    tunings: Vec<String>,
    /// Milliseconds of each of the nine samples of a case.
    #[arg(long, default_value_t = 12.0)]
    sample_ms: f64,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Listing(#[from] ListingError),
    #[error("{json}: {source}")]
    Tuning { json: String, source: serde_json::Error },
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("{what}: {source}")]
    Measure { what: String, source: MeasureError },
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("lists", run(arguments))
}

fn run(arguments: &Arguments) -> Result<(), Stop> {
    let mut lines = arguments.cases.clone();
    if let Some(path) = &arguments.file {
        lines.extend(read(path)?.lines().map(str::to_owned));
    }
    let stated = lines.iter().map(|line| line.split('#').next().unwrap_or("").trim());
    let stated = stated.filter(|line| !line.is_empty());
    let cases = stated.map(Listing::parse).collect::<Result<_, _>>()?;
    let tuning = |json: &String| {
        serde_json::from_str(json).map_err(|source| Stop::Tuning { json: json.clone(), source })
    };
    let tunings = arguments.tunings.iter().map(tuning).collect::<Result<_, _>>()?;
    let sample_seconds = arguments.sample_ms / 1e3;
    on_device(arguments.backend, Times { cases, tunings, sample_seconds })?
}

struct Times {
    cases: Vec<Listing>,
    tunings: Vec<ListTuning>,
    sample_seconds: f64,
}

impl OnDevice for Times {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, _: Backend, _: &str) -> Self::Output {
        for case in &self.cases {
            time(client, case, &self.tunings, self.sample_seconds)
                .map_err(|source| Stop::Measure { what: case.words.clone(), source })?;
            client.memory_cleanup().expect("no program records a graph");
        }
        Ok(())
    }
}

fn time(
    client: &Client,
    case: &Listing,
    tunings: &[ListTuning],
    sample_seconds: f64,
) -> Result<(), MeasureError> {
    let tensor = |shape: &Vec<usize>| -> TensorHandle {
        let strides = row_major_strides(shape);
        let inputs = random_inputs(client, case.element, shape, &strides, Some(1));
        inputs.into_iter().next().expect("there is at least one input")
    };
    let tensors: Vec<TensorHandle> = case.shapes.iter().map(tensor).collect();
    let bytes: usize =
        case.shapes.iter().map(|shape| shape.iter().product::<usize>()).sum::<usize>()
            * case.element.bytes();
    let bytes = bytes as u64;
    let words = &case.words;
    let operator = match case.work {
        ListWork::Reduce(operator) => operator,
        ListWork::Scan(operator) => {
            return with_operator!(operator, OperatorOptions::default(), operator => {
                let list = || scan_list(operator, &tensors).over(0);
                let plan = list().choose(client)?.plan;
                let us = microseconds_per_call(client, sample_seconds, || {
                    list().run(client)?;
                    Ok(())
                })?;
                let rate = gigabytes_per_second(bytes, us);
                drop(writeln!(io::stdout(), "OURS {words}: {us:.2} us {rate:.1} GB/s  # {plan}"));
                Ok(())
            });
        }
        ListWork::Clip { factor } => {
            let mut max_norm = if factor < 1.0 { 1.0 } else { 1e30 };
            let us = microseconds_per_call(client, sample_seconds, || {
                max_norm *= factor;
                clip_by_global_norm_in_place(client, &tensors, max_norm)?;
                Ok(())
            })?;
            let rate = gigabytes_per_second(3 * bytes, us);
            drop(writeln!(io::stdout(), "OURS {words}: {us:.2} us {rate:.1} GB/s"));
            return Ok(());
        }
    };
    with_operator!(operator, OperatorOptions::default(), operator => {
        let list = || reduce_list(operator, &tensors);
        let chosen = list().choose(client)?.plan;
        let problem = list().problem()?;
        let planned = |&tuning: &ListTuning| {
            let mut device = device_of(client);
            device.tuning.list = tuning;
            choose_list(&problem, &device).map(|choice| choice.plan)
        };
        let others = tunings.iter().map(planned).collect::<Result<Vec<_>, _>>();
        let others = others.map_err(ReduceError::from)?;
        for (nth, plan) in std::iter::once(None).chain(others.into_iter().map(Some)).enumerate() {
            let us = microseconds_per_call(client, sample_seconds, || {
                match &plan {
                    None => list().run(client)?,
                    Some(plan) => list().with_plan(plan.clone()).run(client)?,
                };
                Ok(())
            })?;
            let tried = if nth > 0 { "  tried " } else { "" };
            let plan = plan.as_ref().unwrap_or(&chosen);
            let rate = gigabytes_per_second(bytes, us);
            // A reader that has gone does not wait for the times to come.
            drop(writeln!(
                io::stdout(),
                "OURS {words}: {us:.2} us {rate:.1} GB/s  # {tried}{plan}"
            ));
        }
        Ok(())
    })
}
