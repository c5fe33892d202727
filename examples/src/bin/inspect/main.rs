//! Says what the tensors of a checkpoint are like.

mod checkpoint;
mod figures;
mod operators;
mod report;

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::Parser;
use indicatif::ProgressBar;
use reduce_kernels::{ElementType, cubecl::prelude::*, device_of};
use reduce_programs::{
    BACKEND_HELP, Backend, OnDevice,
    command_line::{self, fail, say},
    on_device, progress,
};
use safetensors::{Dtype, tensor::TensorInfo};

use crate::{
    checkpoint::Checkpoint,
    figures::Figures,
    report::{Outcome, Report, Row},
};

/// Prints shape, type, mean, standard deviation (of a population), minimum, maximum, largest
/// magnitude, share of zeros, and counts of NaN and of infinities, for every tensor of a checkpoint
/// in the safetensors format.
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

    fn on<R: Runtime>(
        self,
        client: &ComputeClient<R>,
        backend: Backend,
        name: &str,
    ) -> Self::Output {
        let Work { checkpoint, progress } = self;
        let device = device_of(client);
        let row = |(name, tensor): &(String, TensorInfo)| {
            progress.set_message(name.clone());
            let shape = tensor.shape.clone();
            let (dtype, outcome) = match element_of(tensor.dtype) {
                None => {
                    let reason = format!("tensors of {} cannot be reduced", tensor.dtype);
                    (tensor.dtype.to_string(), Outcome::Error(reason))
                }
                Some(element) => {
                    let read = || checkpoint.read(tensor);
                    let elements = shape.iter().product();
                    let figures = Figures::of(client, &device, element, elements, read);
                    let outcome = figures
                        .map_or_else(|error| Outcome::Error(error.to_string()), Outcome::Figures);
                    (element.to_string(), outcome)
                }
            };
            progress.inc(byte_count(tensor));
            Row { name: name.clone(), shape, dtype, outcome }
        };
        Report {
            file: checkpoint.path().display().to_string(),
            device: name.into(),
            backend: backend.to_string(),
            tensors: checkpoint.tensors().iter().map(row).collect(),
        }
    }
}

/// The library's name for a type of the format, if it reduces it.
fn element_of(dtype: Dtype) -> Option<ElementType> {
    match dtype {
        Dtype::F16 => Some(ElementType::F16),
        Dtype::BF16 => Some(ElementType::BF16),
        Dtype::F32 => Some(ElementType::F32),
        Dtype::F64 => Some(ElementType::F64),
        Dtype::I8 => Some(ElementType::I8),
        Dtype::I16 => Some(ElementType::I16),
        Dtype::I32 => Some(ElementType::I32),
        Dtype::I64 => Some(ElementType::I64),
        Dtype::U8 => Some(ElementType::U8),
        Dtype::U16 => Some(ElementType::U16),
        Dtype::U32 => Some(ElementType::U32),
        Dtype::U64 => Some(ElementType::U64),
        Dtype::BOOL => Some(ElementType::Bool),
        _ => None,
    }
}
