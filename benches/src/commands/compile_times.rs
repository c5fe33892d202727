//! Times how long kernels take to compile, per operator, and prints a table in Markdown.

use std::{
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use comfy_table::{Table, presets};
use reduce_benches::{Case, inputs, run};
use reduce_kernels::{
    OperatorName,
    cubecl::{prelude::*, std::tensor::TensorHandle},
};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, MeasureError, OnDevice, command_line::say, on_device, wait,
};

use super::ended;

/// Times the first call of each operator in three shapes of f32 and prints how much longer it takes
/// than the second, in milliseconds: what generating and compiling the kernels takes.
#[derive(Args)]
pub(crate) struct Arguments {
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
    /// Only these operators; may be repeated. All if not given.
    #[arg(long = "op")]
    operators: Vec<OperatorName>,
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
    let operators = match arguments.operators.as_slice() {
        [] => OperatorName::ALL.to_vec(),
        some => some.to_vec(),
    };
    on_device(arguments.backend, Compiles { operators })?
}

/// The operators to time.
struct Compiles {
    operators: Vec<OperatorName>,
}

impl OnDevice for Compiles {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, backend: Backend, device: &str) -> Self::Output {
        let cases = |operator: OperatorName| {
            SHAPES.map(|(_, shape)| format!("{operator} {shape}").parse::<Case>().expect("a case"))
        };
        let inputs = cases(OperatorName::Sum).map(|case| inputs(client, &case, Some(0)).remove(0));
        wait(client)?;
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        let titles = SHAPES.map(|(title, _)| title.to_owned());
        table.set_header(["operator".to_owned()].into_iter().chain(titles));
        for &operator in &self.operators {
            let mut cells = vec![format!("`{operator}`")];
            for (case, input) in cases(operator).iter().zip(&inputs) {
                let first = timed(client, case, input)?;
                let second = timed(client, case, input)?;
                cells.push(format!("{:.0}", first.saturating_sub(second).as_secs_f64() * 1e3));
            }
            table.add_row(cells);
        }
        say(format!("{device} through {backend}, milliseconds:\n\n{table}"))?;
        Ok(())
    }
}

/// The time of one call, until its result is there.
fn timed(client: &Client, case: &Case, input: &TensorHandle) -> Result<Duration, MeasureError> {
    let start = Instant::now();
    run(client, case, input, None)?;
    wait(client)?;
    Ok(start.elapsed())
}
