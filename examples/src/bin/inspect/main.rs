//! Says what the tensors of a checkpoint are like.

mod batches;
mod checkpoint;
mod figures;
mod operators;
mod report;
mod widen;

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::Parser;
use indicatif::ProgressBar;
use reduce_kernels::{cubecl::prelude::*, device_of};
use reduce_programs::{
    BACKEND_HELP, Backend, OnDevice,
    command_line::{self, fail, say},
    on_device, progress,
};
use safetensors::tensor::TensorInfo;

use crate::{
    batches::{Described, FiguresError, inspect},
    checkpoint::{Checkpoint, element_of},
    figures::Figures,
    report::{Outcome, Report, Row},
};

/// Most bytes of a batch of several tensors on the device. The upload of so many bytes takes far
/// longer than the launches, so larger batches gain little. The progress bar moves batch by batch.
const BATCH_BYTES: u64 = 256 << 20;

/// Prints shape, type, mean, standard deviation (of a population), minimum, maximum, largest
/// magnitude, share of zeros, and counts of NaN and of infinities, for every tensor of a checkpoint
/// in the safetensors format.
///
/// The last row, `total`, has the same figures over the elements of all tensors that have figures,
/// and the number of these elements. Its extrema are floats if the tensors have several types. The
/// table has this row if at least two tensors have figures; in JSON it is the field `total`, which
/// also has the number of these tensors and, if it is the same for all, their type.
///
/// Figures are computed on a GPU, means and deviations in f64 where it has that type, else in f32.
/// A NaN makes mean, deviation and extrema NaN. f16, bf16 and integers of 8 and 16 bits are widened
/// for a device that lacks them; a tensor of another type that it lacks, or too large for it, says
/// so in place of its figures, and the others still come. Without elements there are no figures:
/// `-`, in JSON null.
///
/// Status: 0 if all tensors have their figures, 1 if some could not be inspected, 2 if the file
/// cannot be read or there is no device.
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    /// The checkpoint.
    input: PathBuf,
    /// Print one JSON object. Numbers that are not finite are the strings "NaN", "inf" and "-inf";
    /// a tensor that could not be inspected has `error` in place of figures.
    #[arg(long)]
    json: bool,
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
}

fn main() -> ExitCode {
    let done = command_line::arguments()
        .map_err(Into::into)
        .and_then(|arguments: Arguments| run(&arguments));
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => fail("inspect", error),
    }
}

/// Whether all tensors have their figures.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    let checkpoint = Checkpoint::open(&arguments.input)?;
    let bytes = checkpoint.tensors().iter().map(|(_, tensor)| byte_count(tensor)).sum();
    let layout = "{bar:30} {bytes} of {total_bytes} {wide_msg}";
    let progress = progress(bytes, layout, arguments.json);
    let work = Work { checkpoint: &checkpoint, progress: &progress };
    let report = on_device(arguments.backend, work)?;
    progress.finish_and_clear();
    if arguments.json {
        say(serde_json::to_string(&report)?)?;
    } else {
        say(&report)?;
    }
    Ok(report.tensors.iter().all(|row| matches!(row.outcome, Outcome::Figures(_))))
}

fn byte_count(tensor: &TensorInfo) -> u64 {
    let (start, end) = tensor.data_offsets;
    (end - start) as u64
}

struct Work<'a> {
    checkpoint: &'a Checkpoint,
    progress: &'a ProgressBar,
}

impl OnDevice for Work<'_> {
    type Output = Report;

    fn on(self, client: &Client, backend: Backend, name: &str) -> Self::Output {
        let Work { checkpoint, progress } = self;
        let device = device_of(client);
        let tensors = checkpoint.tensors();
        let described = tensors.iter().map(|(_, tensor)| {
            let elements = tensor.shape.iter().product();
            Described { dtype: tensor.dtype, elements }
        });
        let described: Vec<Described> = described.collect();
        let most_bytes = BATCH_BYTES.min(client.properties().memory.max_page_size);
        let read = |nth: usize| {
            let (name, tensor) = &tensors[nth];
            progress.set_message(name.clone());
            checkpoint.read(tensor)
        };
        let mut outcomes: Vec<Option<Outcome>> = tensors.iter().map(|_| None).collect();
        let decide = |nth: usize, outcome: Result<Figures, FiguresError>| {
            progress.inc(byte_count(&tensors[nth].1));
            let failed = |error: FiguresError| Outcome::Error(error.to_string());
            outcomes[nth] = Some(outcome.map_or_else(failed, Outcome::Figures));
        };
        let total = inspect(client, &device, most_bytes, &described, read, decide);
        let row = |((name, tensor), outcome): (&(String, TensorInfo), Option<Outcome>)| Row {
            name: name.clone(),
            shape: tensor.shape.clone(),
            dtype: match element_of(tensor.dtype) {
                Some(element) => element.to_string(),
                None => tensor.dtype.to_string(),
            },
            outcome: outcome.expect("each tensor is decided"),
        };
        Report {
            file: checkpoint.path().display().to_string(),
            device: name.into(),
            backend: backend.to_string(),
            tensors: tensors.iter().zip(outcomes).map(row).collect(),
            total,
        }
    }
}
