//! What the program prints.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use reduce_burn_examples::{Reductions, time};
use serde::Serialize;

use crate::training::WARM_UP_STEPS;

/// A run of the program.
#[derive(Serialize)]
pub(crate) struct Report {
    pub device: String,
    pub backend: String,
    pub fused: bool,
    pub seed: u64,
    pub batch: usize,
    pub steps_per_epoch: usize,
    pub runs: Vec<Run>,
    /// Between both choices of reductions, if both ran.
    pub difference: Option<Difference>,
}

/// A network trained with one choice of reductions.
#[derive(Serialize)]
pub(crate) struct Run {
    pub reductions: Reductions,
    /// From the upload of the first batch until the device is done with the first step.
    pub first_step_seconds: f64,
    /// Median over the epochs of the time per step. None if all steps belong to the warm-up.
    pub step_seconds: Option<f64>,
    /// Of each step.
    pub losses: Vec<f32>,
    pub epochs: Vec<EpochReport>,
}

#[derive(Serialize)]
pub(crate) struct EpochReport {
    pub mean_loss: f64,
    /// From 0 to 1.
    pub test_accuracy: f64,
}

/// How far the losses of two runs are apart where they are farthest apart.
#[derive(Serialize)]
pub(crate) struct Difference {
    pub loss: f64,
    /// Counted from 1.
    pub step: usize,
    /// In the first step, before the weights differ.
    pub first_loss: f64,
}

impl Difference {
    /// None unless there are two runs.
    pub(crate) fn between(runs: &[Run]) -> Option<Self> {
        let [one, other] = runs else { return None };
        let pairs = one.losses.iter().zip(&other.losses);
        let differences: Vec<f64> =
            pairs.map(|(&a, &b)| (f64::from(a) - f64::from(b)).abs()).collect();
        let (nth, &loss) = differences.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
        Some(Self { loss, step: nth + 1, first_loss: differences[0] })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fused = if self.fused { "fused" } else { "not fused" };
        let Self { device, backend, batch, steps_per_epoch, seed, .. } = self;
        writeln!(
            f,
            "{device} through {backend}, {fused}; {steps_per_epoch} steps of {batch} images in an \
             epoch, seed {seed}\n"
        )?;
        writeln!(f, "{}\n", self.curve().trim_fmt())?;
        write!(f, "{}", self.summary().trim_fmt())?;
        if let [burn, _] = &self.runs[..] {
            let burn = burn.reductions;
            write!(
                f,
                "\n\nIn each epoch {burn} runs second: kernels that both use were compiled before \
                 its first step."
            )?;
        }
        if let Some(Difference { loss, step, first_loss }) = &self.difference {
            write!(
                f,
                "\nThe losses of a step differ by {loss:.1e} at most, in step {step}; those of \
                 step 1 by {first_loss:.1e}."
            )?;
        }
        Ok(())
    }
}

impl Report {
    /// Loss and accuracy of each epoch.
    fn curve(&self) -> Table {
        let mut head = vec!["epoch".into()];
        for run in &self.runs {
            head.extend([format!("loss, {}", run.reductions), "test accuracy".into()]);
        }
        let mut table = table(head);
        for epoch in 0..self.runs.first().map_or(0, |run| run.epochs.len()) {
            let mut row = vec![(epoch + 1).to_string()];
            for run in &self.runs {
                let EpochReport { mean_loss, test_accuracy } = &run.epochs[epoch];
                row.extend([format!("{mean_loss:.6}"), percent(*test_accuracy)]);
            }
            table.add_row(row);
        }
        table
    }

    /// The times and the end of each run.
    fn summary(&self) -> Table {
        let per_step = format!("per step after {WARM_UP_STEPS}");
        let head = ["reductions", "first step", &per_step, "last loss", "test accuracy"];
        let mut table = table(head.map(String::from).to_vec());
        for run in &self.runs {
            let last = run.losses.last().copied().unwrap_or(f32::NAN);
            let accuracy = run.epochs.last().map_or(f64::NAN, |epoch| epoch.test_accuracy);
            table.add_row([
                run.reductions.to_string(),
                time(run.first_step_seconds),
                run.step_seconds.map_or_else(|| "-".into(), time),
                format!("{last:.6}"),
                percent(accuracy),
            ]);
        }
        table
    }
}

fn table(head: Vec<String>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(head);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
