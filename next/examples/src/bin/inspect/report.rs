//! What the program prints.

use std::fmt;

use comfy_table::{Cell, CellAlignment, Table, presets};
use reduce_examples::Number;
use serde::Serialize;

use crate::figures::{Figures, Total};

const COLUMNS: [&str; 11] =
    ["name", "shape", "type", "mean", "std", "min", "max", "max |x|", "zeros", "NaN", "inf"];

/// Columns that hold text.
const TEXTS: usize = 3;

/// Significant digits of floating point figures in the table.
const DIGITS: usize = 5;

/// All of a checkpoint.
#[derive(Serialize)]
pub(crate) struct Report {
    pub file: String,
    pub device: String,
    pub backend: String,
    pub tensors: Vec<Row>,
    pub total: Total,
}

/// A tensor of it.
#[derive(Serialize)]
pub(crate) struct Row {
    pub name: String,
    pub shape: Vec<usize>,
    pub dtype: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Figures, or why there are none.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Error(String),
    #[serde(untagged)]
    Figures(Figures),
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(COLUMNS);
        let mut refusals = Vec::new();
        for Row { name, shape, dtype, outcome } in &self.tensors {
            let mut row = vec![name.clone(), format!("{shape:?}"), dtype.clone()];
            match outcome {
                Outcome::Figures(figures) => row.extend(cells(figures)),
                Outcome::Error(reason) => {
                    row.extend(vec!["?".to_owned(); COLUMNS.len() - TEXTS]);
                    refusals.push(format!("{name}: {reason}"));
                }
            }
            table.add_row(row.iter().map(Cell::new));
        }
        let Report { file, device, backend, tensors, total } = self;
        if total.tensors > 1 {
            let elements = format!("{} elements", total.elements);
            let dtype = total.dtype.as_deref().unwrap_or("mixed").to_owned();
            let row = [vec!["total".to_owned(), elements, dtype], cells(&total.figures).to_vec()];
            table.add_row(row.concat().iter().map(Cell::new));
        }
        for (nth, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, 2));
            if nth >= TEXTS {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        writeln!(f, "{file}: {} tensors, on {device} through {backend}", tensors.len())?;
        write!(f, "{}", table.trim_fmt())?;
        refusals.iter().try_for_each(|refusal| write!(f, "\n{refusal}"))
    }
}

fn cells(figures: &Figures) -> [String; COLUMNS.len() - TEXTS] {
    let number = |number: Option<Number>| number.map_or_else(|| "-".into(), short);
    [
        number(figures.mean),
        number(figures.std),
        number(figures.min),
        number(figures.max),
        number(figures.max_magnitude),
        figures.zeros_share.map_or_else(|| "-".into(), percent),
        figures.nans.to_string(),
        figures.infinities.to_string(),
    ]
}

/// Integers and bools as they are, others to [`DIGITS`].
fn short(number: Number) -> String {
    let Number::Float(value) = number else { return number.to_string() };
    let exponent = value.abs().log10().floor();
    match () {
        () if value == 0.0 || !value.is_finite() => value.to_string(),
        () if (-4.0..DIGITS as f64).contains(&exponent) => {
            let decimals = DIGITS as i32 - 1 - exponent as i32;
            format!("{value:.*}", decimals.max(0) as usize)
        }
        () => format!("{value:.*e}", DIGITS - 1),
    }
}

/// A share that is 0 stands out from one that rounds to it.
fn percent(share: f64) -> String {
    if share == 0.0 { "0".into() } else { format!("{:.2}%", share * 100.0) }
}
