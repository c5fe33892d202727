//! A server's day: batches of many sizes, one after the other, in one process.

use std::{
    collections::BTreeSet,
    io,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use comfy_table::{Table, presets};
use reduce_benches::{Case, Over};
use reduce_kernels::{
    ElementType, TensorDescription,
    by_name::OperatorName,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    storage_type,
};
use reduce_programs::{
    BACKEND_HELP, Backend, BackendError, MeasureError, OnDevice, command_line::say, on_device,
    random_inputs, wait,
};

use super::{ended, name::Name};

/// Reduces rows of one width in batches of many sizes, as a server meets them, and prints for each
/// operator and width how often and how long a call paused for a kernel to compile, how many
/// different bits one row was given, and how long the calls of a seen shape take together.
#[derive(Args)]
pub(crate) struct Arguments {
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
    /// Operators and functions such as `sum` or `softmax`; may be repeated.
    #[arg(
        long = "op",
        default_values = ["sum", "mean", "argmax", "var", "logsumexp", "softmax", "rms_norm", "layer_norm"]
    )]
    reductions: Vec<Name>,
    /// Elements of a row; may be repeated.
    #[arg(long = "width", default_values_t = [4096, 5000, 32000])]
    widths: Vec<usize>,
    /// Type of the elements.
    #[arg(long = "type", default_value = "f32")]
    element: ElementType,
    /// Rows of the largest batch.
    #[arg(long, default_value_t = 4096)]
    most: usize,
    /// Number of batches, of sizes from 1 to the largest.
    #[arg(long, default_value_t = 44)]
    batches: usize,
    /// A call that takes so many milliseconds longer than the next one is a pause.
    #[arg(long, default_value_t = 5.0)]
    pause_ms: f64,
    /// Compile the kernels for one row and for the largest batch before the first batch.
    #[arg(long)]
    warm_up: bool,
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

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("serving", on_device(arguments.backend, Day { arguments }).map_err(Stop::from).flatten())
}

/// Rows at a time whose first is bound at an offset: backends bind buffers at multiples of 256
/// bytes.
const ALIGNED_ROWS: usize = 64;

/// Calls of a seen shape that are timed together.
const REPEATS: u32 = 20;

struct Day<'a> {
    arguments: &'a Arguments,
}

/// What the batches of one operator and width showed.
#[derive(Default)]
struct Seen {
    pauses: usize,
    slowest: Duration,
    paused: Duration,
    /// The bits of one row.
    bits: BTreeSet<Vec<u8>>,
    /// One call of a seen shape for each batch.
    calls: Duration,
}

impl OnDevice for Day<'_> {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, backend: Backend, device: &str) -> Self::Output {
        let Arguments { ref reductions, ref widths, element, most, .. } = *self.arguments;
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header([
            "reduction",
            "width",
            "pauses",
            "slowest, ms",
            "all, ms",
            "bits of a row",
            "a call of each batch, us",
        ]);
        for &width in widths {
            let shape = [most + ALIGNED_ROWS, width];
            let rows = random_inputs(client, element, &shape, &[width, 1], Some(0)).remove(0);
            for &name in reductions {
                let seen = self.day(client, name, &rows, width)?;
                let ms = |time: Duration| format!("{:.0}", time.as_secs_f64() * 1e3);
                table.add_row([
                    format!("`{name}`"),
                    width.to_string(),
                    seen.pauses.to_string(),
                    ms(seen.slowest),
                    ms(seen.paused),
                    seen.bits.len().to_string(),
                    format!("{:.0}", seen.calls.as_secs_f64() * 1e6),
                ]);
            }
        }
        say(format!(
            "{device} through {backend}, {element}, {} batches of 1 to {most} rows:\n\n{table}",
            self.sizes().len()
        ))?;
        Ok(())
    }
}

impl Day<'_> {
    /// Sizes of batches in an order that is neither rising nor falling.
    fn sizes(&self) -> Vec<usize> {
        let Arguments { most, batches, .. } = *self.arguments;
        let step = (most as f64).ln() / (batches.max(2) - 1) as f64;
        let size = |nth: usize| ((nth as f64 * step).exp().round() as usize).clamp(1, most);
        let mut sizes: Vec<usize> = (0..batches).map(size).collect();
        sizes.dedup();
        let (early, late): (Vec<_>, Vec<_>) =
            sizes.into_iter().enumerate().partition(|(nth, _)| nth % 2 == 0);
        early.into_iter().chain(late.into_iter().rev()).map(|(_, size)| size).collect()
    }

    /// Reduces batches of all sizes, which all hold one row, in different places.
    fn day(
        &self,
        client: &Client,
        name: Name,
        rows: &TensorHandle,
        width: usize,
    ) -> Result<Seen, MeasureError> {
        let Arguments { element, most, pause_ms, .. } = *self.arguments;
        let mut seen = Seen::default();
        if self.arguments.warm_up {
            let rows = |rows| TensorDescription::row_major(element, [rows, width]);
            name.warm_up(client, &rows(1)).map_err(MeasureError::from)?;
            name.warm_up(client, &rows(most)).map_err(MeasureError::from)?;
        }
        for (nth, batch) in self.sizes().into_iter().enumerate() {
            let start = if batch > ALIGNED_ROWS && nth % 2 == 1 { 0 } else { ALIGNED_ROWS };
            let offset = (start * width * element.bytes()) as u64;
            let case = Case {
                operator: OperatorName::Sum,
                element,
                stored: vec![batch, width],
                over: Over::Axes(vec![1]),
            };
            let handle = rows.handle.clone().offset_start(offset);
            let x = TensorHandle::new(handle, [batch, width], [width, 1], storage_type(element));
            debug_assert!(start + batch <= most + ALIGNED_ROWS);
            let timed = || -> Result<(Duration, Vec<TensorHandle>), MeasureError> {
                let begun = Instant::now();
                let outputs = name.run(client, &case, &x)?;
                wait(client)?;
                Ok((begun.elapsed(), outputs))
            };
            let (first, _) = timed()?;
            let (second, outputs) = timed()?;
            let pause = first.saturating_sub(second);
            if pause.as_secs_f64() * 1e3 > pause_ms {
                seen.pauses += 1;
                seen.paused += pause;
                seen.slowest = seen.slowest.max(pause);
            }
            seen.bits.insert(bits_of_row(client, &outputs, ALIGNED_ROWS - start, batch));
            let begun = Instant::now();
            for _ in 0..REPEATS {
                name.run(client, &case, &x)?;
            }
            wait(client)?;
            seen.calls += begun.elapsed() / REPEATS;
        }
        Ok(seen)
    }
}

/// The bytes of one row's results, or of the elements that they were applied to.
fn bits_of_row(client: &Client, outputs: &[TensorHandle], row: usize, rows: usize) -> Vec<u8> {
    let bytes = |output: &TensorHandle| {
        let all = output.shape().iter().product::<usize>() * output.dtype.size();
        let each = (all / rows) as u64;
        let before = row as u64 * each;
        let after = all as u64 - before - each;
        let handle = output.handle.clone().offset_start(before).offset_end(after);
        client.read_one(handle).expect("the device answers")[..each as usize].to_vec()
    };
    outputs.iter().flat_map(bytes).collect()
}
