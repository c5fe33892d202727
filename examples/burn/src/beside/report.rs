//! What was measured, as lines of JSON and as a table.

use std::{fmt::Write, fs::OpenOptions, io::Write as _, path::Path};

use comfy_table::{Table, presets};
use reduce_programs::FileError;
use serde::{Deserialize, Serialize};

use crate::worker::Engine;

/// Cases of this many bytes and more count for the mean ratio.
const LARGE_BYTES: u64 = 64 << 20;
/// Ours is reported as slower beyond this ratio.
const SLOWER: f64 = 1.05;

/// What one engine did with one case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    pub(crate) backend: String,
    /// The device's name. Empty if the engine failed at its first call.
    pub(crate) device: String,
    /// Whether Burn was built with fusion.
    pub(crate) fused: bool,
    /// Whether Burn was built with autotuning.
    pub(crate) autotune: bool,
    pub(crate) case: String,
    /// Bytes of one input.
    pub(crate) bytes: u64,
    /// Bytes of one input at the case's full size.
    pub(crate) full_bytes: u64,
    pub(crate) engine: Engine,
    pub(crate) microseconds: Option<f64>,
    /// Kernels per call in a stream of calls, as they are timed.
    pub(crate) launches: Option<f64>,
    /// Kernels of a call that is waited for.
    pub(crate) launches_alone: Option<f64>,
    pub(crate) first_call_seconds: Option<f64>,
    /// Why something is missing.
    pub(crate) failed: Option<String>,
    /// How the results differ from those of reduce-burn.
    pub(crate) wrong: Option<String>,
}

impl Measured {
    /// Appends this to a file, as a line.
    pub(crate) fn append(&self, path: &Path) -> Result<(), FileError> {
        let line = serde_json::to_string(self).expect("a measurement is JSON");
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.and_then(|mut file| writeln!(file, "{line}"))
            .map_err(|source| FileError::new(path, source))
    }

    fn time(&self) -> String {
        match (self.microseconds, &self.wrong) {
            (None, _) => "failed".into(),
            (Some(us), None) => format!("{us:.1}"),
            (Some(us), Some(_)) => format!("WRONG {us:.1}"),
        }
    }

    /// Launches per call, and in parentheses those of a call that is waited for if it has others.
    fn launches(&self) -> Option<String> {
        let launches = self.launches?;
        Some(match self.launches_alone.filter(|alone| *alone != launches) {
            Some(alone) => format!("{} ({})", count(launches), count(alone)),
            None => count(launches),
        })
    }

    /// A sentence for progress.
    pub(crate) fn line(&self) -> String {
        let mut text = format!("{}, {}: {}", self.case, self.engine.name(), self.time());
        if self.microseconds.is_some() {
            text.push_str(" us");
        }
        if let Some(launches) = self.launches() {
            let _ = write!(text, ", {launches} launches");
        }
        if let Some(seconds) = self.first_call_seconds {
            let _ = write!(text, ", first call {seconds:.2} s");
        }
        for note in self.failed.iter().chain(&self.wrong) {
            let _ = write!(text, "  # {note}");
        }
        text
    }
}

/// A number of launches, which is whole unless calls differ.
fn count(launches: f64) -> String {
    if launches.fract() == 0.0 { format!("{launches}") } else { format!("{launches:.1}") }
}

/// What all engines did with one case.
pub(crate) type Row = Vec<Measured>;

fn of(row: &Row, engine: Engine) -> Option<&Measured> {
    row.iter().find(|measured| measured.engine == engine)
}

/// Burn's time over ours. An engine with a wrong result does not count.
fn lead(row: &Row) -> Option<f64> {
    let time = |engine| {
        let measured = of(row, engine).filter(|measured| measured.wrong.is_none());
        measured.and_then(|measured| measured.microseconds)
    };
    Some(time(Engine::Burn)? / time(Engine::Ours)?)
}

/// The report in Markdown.
pub(crate) fn markdown(rows: &[Row], engines: &[Engine]) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let mut header = vec!["case".to_owned()];
    header.extend(engines.iter().map(|engine| format!("{}, us", engine.name())));
    header.push("Burn / ours".into());
    header.extend(engines.iter().map(|engine| format!("{}, launches", engine.name())));
    header.extend(engines.iter().map(|engine| format!("{}, first call s", engine.name())));
    table.set_header(header);
    let dash = || "-".to_owned();
    for row in rows {
        let cell = |engine: Engine, show: fn(&Measured) -> Option<String>| {
            of(row, engine).and_then(show).unwrap_or_else(dash)
        };
        let mut cells = vec![row[0].case.clone()];
        cells.extend(engines.iter().map(|&engine| cell(engine, |m| Some(m.time()))));
        cells.push(lead(row).map_or_else(dash, |lead| format!("{lead:.2}")));
        cells.extend(engines.iter().map(|&engine| cell(engine, Measured::launches)));
        let first = |m: &Measured| m.first_call_seconds.map(|seconds| format!("{seconds:.2}"));
        cells.extend(engines.iter().map(|&engine| cell(engine, first)));
        table.add_row(cells);
    }
    let mut text = format!(
        "{table}\n\nLaunches are those per call in a stream of calls; in parentheses, those of a call \
         that is waited for.\n\n{}\n",
        mean_lead(rows)
    );
    let slower = rows.iter().filter_map(|row| {
        let lead = lead(row).filter(|lead| *lead < 1.0 / SLOWER)?;
        Some(format!("`{}`: {:.2} times Burn's time", row[0].case, 1.0 / lead))
    });
    listed(&mut text, "Cases where ours is slower by more than 5 %", slower.collect());
    let notes = rows.iter().flatten().filter_map(|measured| {
        let note = measured.failed.as_ref().or(measured.wrong.as_ref())?;
        Some(format!("`{}`, {}: {note}", measured.case, measured.engine.name()))
    });
    listed(&mut text, "Failed or wrong", notes.collect());
    text
}

fn mean_lead(rows: &[Row]) -> String {
    let large = rows.iter().filter(|row| row[0].full_bytes >= LARGE_BYTES);
    let leads: Vec<f64> = large.filter_map(lead).collect();
    if leads.is_empty() {
        return "No case of 64 MiB or more has times of Burn and of ours.".into();
    }
    let mean = (leads.iter().map(|lead| lead.ln()).sum::<f64>() / leads.len() as f64).exp();
    format!(
        "Geometric mean of Burn over ours, of {} cases of 64 MiB and more: {mean:.2}",
        leads.len()
    )
}

fn listed(text: &mut String, title: &str, lines: Vec<String>) {
    let total = if lines.is_empty() { "none".into() } else { lines.len().to_string() };
    let _ = writeln!(text, "\n{title}: {total}");
    for line in lines {
        let _ = writeln!(text, "- {line}");
    }
}
