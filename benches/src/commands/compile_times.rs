//! Times how long kernels take to compile, per operator, and prints a table in Markdown.

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use comfy_table::{Table, presets};
use reduce_benches::{Case, inputs};
use reduce_kernels::{ReduceError, by_name::OperatorName, cubecl::prelude::*};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, MeasureError, OnDevice, command_line::say, on_device, wait,
};

use super::{ended, name::Name};

/// Times the first call of each operator and of each function of a reduction's elements, in three
/// shapes of f32, and prints how much longer it takes than the second, in milliseconds: what
/// generating and compiling the kernels takes.
#[derive(Args)]
pub(crate) struct Arguments {
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
    /// Only these, such as `sum` or `softmax`; may be repeated. All if not given.
    #[arg(long = "op")]
    reductions: Vec<Name>,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// The columns of the table: a title, and a shape with its axes. Each has a plan of its own kind.
const SHAPES: [(&str, &str); 3] = [
    ("rows", "f32 [4096, 1024] axis 1"),
    ("columns", "f32 [4096, 1024] axis 0"),
    ("whole", "f32 [4194304] axis all"),
];

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("compile_times", compile_times(arguments))
}

fn compile_times(arguments: &Arguments) -> Result<(), Stop> {
    let reductions = match arguments.reductions.as_slice() {
        [] => Name::all().collect(),
        some => some.to_vec(),
    };
    on_device(arguments.backend, Compiles { reductions })?
}

/// What to time.
struct Compiles {
    reductions: Vec<Name>,
}

impl OnDevice for Compiles {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, backend: Backend, device: &str) -> Self::Output {
        let case = |operator: OperatorName, shape: &str| -> Case {
            format!("{operator} {shape}").parse().expect("a case")
        };
        let places = SHAPES.map(|(_, shape)| case(OperatorName::Sum, shape));
        let inputs = places.each_ref().map(|place| inputs(client, place, Some(0)).remove(0));
        wait(client)?;
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        let titles = SHAPES.map(|(title, _)| title.to_owned());
        table.set_header(["reduction".to_owned()].into_iter().chain(titles));
        for &name in &self.reductions {
            let mut cells = vec![format!("`{name}`")];
            for (place, input) in places.iter().zip(&inputs) {
                let call = || name.run(client, place, input).map(drop);
                let (first, second) = (timed(client, call)?, timed(client, call)?);
                cells.push(format!("{:.0}", first.saturating_sub(second).as_secs_f64() * 1e3));
            }
            table.add_row(cells);
        }
        say(format!("{device} through {backend}, milliseconds:\n\n{table}"))?;
        Ok(())
    }
}

/// The time of one call, until its result is there.
fn timed(
    client: &Client,
    call: impl FnOnce() -> Result<(), ReduceError>,
) -> Result<Duration, MeasureError> {
    let start = Instant::now();
    call()?;
    wait(client)?;
    Ok(start.elapsed())
}
