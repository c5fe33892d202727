//! What the program prints.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// All ladders of a run.
#[derive(Serialize)]
pub(crate) struct Report {
    pub device: String,
    pub backend: String,
    /// Best rate of a full f32 sum by the library, in 10⁹ bytes per second.
    pub read_gigabytes_per_second: f64,
    pub ladders: Vec<Ladder>,
}

/// The rungs of one problem.
#[derive(Serialize)]
pub(crate) struct Ladder {
    pub title: String,
    pub shape: Vec<usize>,
    pub dtype: String,
    pub rungs: Vec<Entry>,
}

/// One rung.
#[derive(Serialize)]
pub(crate) struct Entry {
    pub name: String,
    /// Whether the library plans and runs it.
    pub library: bool,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// How a rung went.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// It does not apply, or the device lacks what it needs.
    NotAvailable(String),
    /// It gave a wrong result, or none.
    Failed(String),
    #[serde(untagged)]
    Measured(Measured),
}

/// A rung whose results were right.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Measured {
    /// Elements that were read: fewer than the problem has on rungs that would take too long.
    pub elements: usize,
    /// Time of a call in a stream of calls.
    pub microseconds: f64,
    pub gigabytes_per_second: f64,
    /// Of the read bandwidth.
    pub share: f64,
    /// Bandwidth over that of the rung before. None on the lowest, and from one plan of the library
    /// to another.
    pub gain: Option<f64>,
}

impl Ladder {
    /// The figures of the rungs that have some.
    pub(crate) fn measured(&self) -> impl Iterator<Item = (&str, Measured)> {
        self.rungs.iter().filter_map(|entry| match entry.outcome {
            Outcome::Measured(measured) => Some((entry.name.as_str(), measured)),
            _ => None,
        })
    }
}

impl Report {
    /// Whether a rung failed.
    pub(crate) fn failed(&self) -> bool {
        let mut entries = self.ladders.iter().flat_map(|ladder| &ladder.rungs);
        entries.any(|entry| matches!(entry.outcome, Outcome::Failed(_)))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let read = self.read_gigabytes_per_second;
        write!(f, "{} through {}, read at {read:.1} GB/s", self.device, self.backend)?;
        self.ladders.iter().try_for_each(|ladder| write!(f, "\n\n{ladder}"))
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["rung", "elements", "time", "GB/s", "of the read bandwidth", "gain"]);
        let mut notes = Vec::new();
        for Entry { name, outcome, .. } in &self.rungs {
            match outcome {
                Outcome::Measured(measured) => table.add_row([
                    name.clone(),
                    short(measured.elements),
                    time(measured.microseconds),
                    rate(measured.gigabytes_per_second),
                    percent(measured.share),
                    measured.gain.map_or_else(String::new, gain),
                ]),
                Outcome::NotAvailable(reason) => {
                    notes.push(format!("{name}: not available, {reason}"));
                    table.add_row([name, "-", "-", "-", "-", ""])
                }
                Outcome::Failed(reason) => {
                    notes.push(format!("{name}: FAILED, {reason}"));
                    table.add_row([name, "?", "?", "?", "?", ""])
                }
            };
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        write!(f, "{}\n\n{}", self.title, table.trim_fmt())?;
        if !notes.is_empty() {
            writeln!(f)?;
        }
        notes.iter().try_for_each(|note| write!(f, "\n{note}"))
    }
}

/// A size as a power of two, where it is a large one: 2^30.
pub(crate) fn short(number: usize) -> String {
    if number.is_power_of_two() && number >= 1 << 16 {
        format!("2^{}", number.ilog2())
    } else {
        number.to_string()
    }
}

/// Microseconds in the unit that suits them.
pub(crate) fn time(microseconds: f64) -> String {
    match microseconds {
        us if us < 1e3 => format!("{us:.1} us"),
        us if us < 1e6 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// Three digits, or all before the point.
fn digits(number: f64) -> String {
    match number {
        small if small < 0.1 => format!("{small:.3}"),
        small if small < 10.0 => format!("{small:.2}"),
        middle if middle < 100.0 => format!("{middle:.1}"),
        large => format!("{large:.0}"),
    }
}

/// 10⁹ bytes per second.
pub(crate) fn rate(gigabytes_per_second: f64) -> String {
    digits(gigabytes_per_second)
}

fn gain(factor: f64) -> String {
    format!("× {}", digits(factor))
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", digits(share * 100.0))
}
