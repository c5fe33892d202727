//! Trains a small convolutional network on handwritten digits in Burn, with Burn's own reductions
//! and with those of reduce-burn.
//!
//! The network, its weights, the order of the images and the optimiser are the same for both
//! choices. Only three things differ: the mean and the variance of batch normalisation, the
//! log-sum-exp and the mean of the loss, and the position of the maximum that the test accuracy
//! counts. So the losses agree up to rounding, and the times tell what the reductions cost.

mod curve;
mod data;
mod network;
mod report;
mod training;

use std::{error::Error, path::PathBuf, process::ExitCode};

use clap::Parser;
use reduce_burn_examples::{BurnDevice, Choice, IS_FUSED, burn_device};
use reduce_programs::{
    BACKEND_HELP, Backend, Staged,
    command_line::{self, fail, say},
    progress,
};

use crate::{
    data::Digits,
    report::{Difference, Report},
    training::{Settings, Training},
};

/// Trains a small convolutional network with batch normalisation on 8 × 8 images of handwritten
/// digits, and prints the loss and the test accuracy of each epoch.
///
/// The first step is timed from the upload of its batch until the device is done: it compiles the
/// kernels. The time per step is that of an epoch's steps divided by their number, without the
/// first three of all; the device is waited for before and after them, not in between. It is the
/// median over the epochs.
///
/// Status: 0 if the network was trained, 2 if there is no device or an argument is wrong.
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    /// Whose reductions batch normalisation, the loss and the accuracy use. `both` trains two
    /// networks, in turn for an epoch each.
    #[arg(long, value_enum, default_value = "both")]
    reductions: Choice,
    /// The seed of the weights and of the order of images.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How often to take all images.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    epochs: u16,
    /// Images of a step.
    #[arg(long, default_value_t = 96, value_parser = clap::value_parser!(u16).range(1..))]
    batch: u16,
    /// Channels of the first convolution. The second has twice as many.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=512))]
    channels: u16,
    /// Draw the losses into this file.
    #[arg(long, value_name = "FILE.svg")]
    curve: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
}

/// An argument that does not suit the images.
#[derive(Debug, thiserror::Error)]
#[error("a batch of {batch} images: expected 1 to {images}, which there are to learn from")]
struct BatchTooLarge {
    batch: usize,
    images: usize,
}

fn main() -> ExitCode {
    let done = command_line::arguments()
        .map_err(Into::into)
        .and_then(|arguments: Arguments| run(&arguments));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("train", error),
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let (learnt, test) = Digits::split();
    let (batch, images) = (arguments.batch.into(), learnt.len());
    if batch > images {
        return Err(BatchTooLarge { batch, images }.into());
    }
    let file = arguments.curve.as_deref().map(Staged::beside).transpose()?;
    let report = train(arguments, &learnt, &test, &burn_device(arguments.backend)?)?;
    if arguments.json {
        say(serde_json::to_string(&report)?)?;
    } else {
        say(&report)?;
    }
    if let Some(mut file) = file {
        file.append(curve::picture(&report)?.as_bytes())?;
        file.put()?;
    }
    Ok(())
}

fn train(
    arguments: &Arguments,
    learnt: &Digits,
    test: &Digits,
    device: &BurnDevice,
) -> Result<Report, Box<dyn Error>> {
    let Arguments { reductions, seed, epochs, json, .. } = *arguments;
    let settings =
        Settings { seed, batch: arguments.batch.into(), channels: arguments.channels.into() };
    let digits = (learnt, test);
    let steps_per_epoch = learnt.len() / settings.batch;
    let reductions = reductions.reductions();
    let mut trainings: Vec<Training<'_>> = reductions
        .iter()
        .map(|&reductions| Training::new(reductions, settings, digits, device.device.clone()))
        .collect();
    let steps = steps_per_epoch * usize::from(epochs) * trainings.len();
    let progress = progress(steps as u64, "{bar:30} step {pos} of {len} {wide_msg}", json);
    for _ in 0..epochs {
        // reduce-burn goes first, so that it compiles the kernels that both use.
        for training in trainings.iter_mut().rev() {
            progress.set_message(format!("reductions of {}", training.reductions()));
            training.epoch(&progress)?;
        }
    }
    progress.finish_and_clear();
    let runs: Vec<_> = trainings.into_iter().map(Training::into_run).collect();
    Ok(Report {
        device: device.name(),
        backend: device.backend().to_string(),
        fused: IS_FUSED,
        seed,
        batch: settings.batch,
        steps_per_epoch,
        difference: Difference::between(&runs),
        runs,
    })
}
