//! The ladder of reductions: every classic strategy as a kernel, from one unit alone to the
//! library.
//!
//! docs/LADDER.md tells what each rung does, what bounds it and what the next one does about that.

mod climb;
mod data;
mod full;
mod gpu;
mod matrix;
mod numerics;
mod picture;
mod rank5;
mod report;
mod sizes;
#[cfg(all(test, any(feature = "cuda", feature = "vulkan", feature = "wgpu")))]
mod tests;

use std::{error::Error, io, path::PathBuf, process::ExitCode};

use clap::Parser;
use reduce_kernels::cubecl::prelude::*;
use reduce_programs::{
    BACKEND_HELP, Backend, Floor, OnDevice, Staged,
    command_line::{self, fail, say},
    largest_buffer, on_device, progress,
};

use crate::{
    climb::Climber,
    gpu::Gpu,
    numerics::Numerics,
    report::Report,
    sizes::{Part, Shape, Sizes, Summed, Wishes},
};

/// What Mesa's software adapter is called.
const SOFTWARE_ADAPTER: &str = "llvmpipe";

/// Adds up numbers in every classic way, one kernel after the other, and says how fast each is.
///
/// Each rung of the ladder removes a bottleneck of the one before; docs/LADDER.md tells them. Every
/// rung's result is compared with the exact one before it is timed. Time is that of a call in a
/// stream of calls; the share is that of the bandwidth at which the library reads 1 to 4 GiB, or
/// the largest array of the run; the gain is in bandwidth over the rung before. A rung of the full
/// sum that would take longer than --seconds is given a part of the array, which the column
/// `elements` tells.
///
/// Sizes are numbers or powers of two (2^30). Defaults: 2^30 elements, or as many as fit one buffer
/// of the device; matrices of 2^26 elements; 2^22 of each on Mesa's software adapter.
///
/// Status: 0 if every rung that the device can run was right, 1 if one was not, 2 if there is no
/// device or an argument is wrong.
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    /// Types of the full reduction.
    #[arg(long, value_delimiter = ',', default_value = "i32,f32")]
    types: Vec<Summed>,
    /// Elements of the full reduction.
    #[arg(long, value_parser = sizes::number)]
    elements: Option<usize>,
    /// Matrices of f32 to add up along both axes, such as 256x2^18,2^18x256.
    #[arg(long, value_delimiter = ',', value_name = "ROWSxCOLUMNS")]
    matrices: Option<Vec<Shape<2>>>,
    /// Matrices of f32 to add up along their rows; those of the CubeCL book if not given.
    #[arg(long, value_delimiter = ',', value_name = "ROWSxCOLUMNS")]
    rows: Option<Vec<Shape<2>>>,
    /// A tensor of f32 of rank 5 to add up along several axes.
    #[arg(long, value_name = "AxBxCxDxE")]
    rank5: Option<Shape<5>>,
    /// Parts of the ladder, all if not given.
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Show what the order and the type of additions do to a sum, instead of timing.
    #[arg(long, conflicts_with_all = [
        "types", "elements", "matrices", "rows", "rank5", "only", "svg", "seconds", "sample_ms",
    ])]
    numerics: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    /// Draw a bar chart into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Longest time of a call of the full sum, in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = sizes::positive)]
    seconds: f64,
    /// Time of a sample, in milliseconds, of which the median counts.
    #[arg(long, default_value_t = 100.0, value_parser = sizes::positive)]
    sample_ms: f64,
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
        Err(error) => fail("ladder", error),
    }
}

/// Whether no rung failed.
fn run(arguments: &Arguments) -> Result<bool, Box<dyn Error>> {
    if arguments.numerics {
        let numerics = on_device(arguments.backend, Experiments)??;
        say_either(arguments.json, &numerics)?;
        return Ok(true);
    }
    let file = arguments.svg.as_deref().map(Staged::beside).transpose()?;
    let report = on_device(arguments.backend, Climb(arguments))??;
    say_either(arguments.json, &report)?;
    if let Some(mut file) = file {
        file.append(picture::picture(&report)?.as_bytes())?;
        file.put()?;
    }
    Ok(!report.failed())
}

/// Prints one JSON object, or words.
fn say_either(json: bool, report: &(impl serde::Serialize + std::fmt::Display)) -> io::Result<()> {
    if json { say(serde_json::to_string(report)?) } else { say(report) }
}

struct Experiments;

impl OnDevice for Experiments {
    type Output = Result<Numerics, Box<dyn Error>>;

    fn on(self, client: &Client, _: Backend, name: &str) -> Self::Output {
        Ok(Numerics {
            device: name.into(),
            backend: client.name().into(),
            experiments: numerics::experiments(&Gpu::new(client))?,
        })
    }
}

struct Climb<'a>(&'a Arguments);

impl OnDevice for Climb<'_> {
    type Output = Result<Report, Box<dyn Error>>;

    fn on(self, client: &Client, _: Backend, name: &str) -> Self::Output {
        let Climb(arguments) = self;
        let software = name.contains(SOFTWARE_ADAPTER);
        let gpu = Gpu::new(client);
        let wishes = Wishes {
            types: &arguments.types,
            elements: arguments.elements,
            matrices: arguments.matrices.as_deref(),
            rows: arguments.rows.as_deref(),
            rank5: arguments.rank5,
            only: &arguments.only,
        };
        let sizes = Sizes::new(&wishes, &gpu.device, largest_buffer(client), software)?;
        let layout = "{bar:30} {pos} of {len} {wide_msg}";
        let progress = progress(sizes.rungs() as u64, layout, arguments.json);
        progress.set_message("read bandwidth");
        let sample_seconds = arguments.sample_ms / 1e3;
        let floor = Floor::measure(client, sizes.most_bytes(), sample_seconds)?;
        let climber = Climber {
            gpu,
            software,
            read: floor.read_gigabytes_per_second,
            sample_seconds,
            longest_seconds: arguments.seconds,
            progress: &progress,
        };
        let ladders = sizes.climb(&climber);
        progress.finish_and_clear();
        Ok(Report {
            device: name.into(),
            backend: client.name().into(),
            read_gigabytes_per_second: floor.read_gigabytes_per_second,
            ladders,
        })
    }
}
