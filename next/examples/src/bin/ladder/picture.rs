//! The ladders as a bar chart.

use plotters::{prelude::*, style::text_anchor::HPos};
use reduce_programs::canvas::{
    BLUE, FAINT_INK, GRID, GROUND, INK, PictureError, VERMILION, bold, failed, style, write,
};

use crate::report::{Ladder, Outcome, Report, percent, rate};

const WIDTH: i32 = 980;
const LEFT: i32 = 300;
const RIGHT: i32 = 170;
const TOP: i32 = 96;
const BOTTOM: i32 = 24;
const ROW: i32 = 20;
const HEAD: i32 = 40;

/// Right ends of the figures beside a bar.
const FIGURES: [i32; 2] = [WIDTH - 96, WIDTH - 20];

/// Rates from one to another, a power of ten per step.
struct Axis {
    lowest: f64,
    highest: f64,
}

impl Axis {
    fn of(report: &Report) -> Self {
        let measured = report.ladders.iter().flat_map(Ladder::measured);
        let rates = measured.map(|(_, measured)| measured.gigabytes_per_second);
        let read = report.read_gigabytes_per_second;
        let (least, most) =
            rates.fold((read, read), |(least, most), rate| (least.min(rate), most.max(rate)));
        let highest = most.log10();
        Self { lowest: least.log10().floor().min(highest - 1.0), highest }
    }

    fn x(&self, gigabytes_per_second: f64) -> i32 {
        let along = (gigabytes_per_second.log10() - self.lowest) / (self.highest - self.lowest);
        LEFT + (f64::from(WIDTH - LEFT - RIGHT) * along) as i32
    }
}

/// A panel for each ladder, a bar for each rung: its bandwidth, on a scale of powers of ten, with a
/// line at the read bandwidth.
///
/// # Errors
///
/// A report without a measured rung, and what the drawing library says.
pub(crate) fn picture(report: &Report) -> Result<String, PictureError> {
    if report.ladders.iter().all(|ladder| ladder.measured().next().is_none()) {
        return Err(PictureError::Empty("no rung was measured"));
    }
    let axis = Axis::of(report);
    let rows: usize = report.ladders.iter().map(|ladder| ladder.rungs.len()).sum();
    let height = TOP + BOTTOM + HEAD * report.ladders.len() as i32 + ROW * rows as i32;
    let mut text = String::new();
    {
        let size = (WIDTH as u32, height as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&GROUND).map_err(failed)?;
        let faint = style(12, &FAINT_INK, HPos::Left);
        let title = bold(style(18, &INK, HPos::Left));
        write(&area, "The ladder of reductions", (20, 26), &title)?;
        let subtitle = format!(
            "Bandwidth on {} through {}, on a scale of powers of ten. The line is where this device can be \
             read: {:.0} GB/s.",
            report.device, report.backend, report.read_gigabytes_per_second
        );
        write(&area, &subtitle, (20, 50), &faint)?;
        let bottom = height - BOTTOM;
        let mut power = axis.lowest;
        while power <= axis.highest {
            let x = axis.x(10f64.powf(power));
            area.draw(&PathElement::new(vec![(x, TOP - 8), (x, bottom)], GRID)).map_err(failed)?;
            let centred = style(12, &FAINT_INK, HPos::Center);
            write(&area, &format!("{}", 10f64.powf(power)), (x, TOP - 18), &centred)?;
            power += 1.0;
        }
        let x = axis.x(report.read_gigabytes_per_second);
        area.draw(&PathElement::new(vec![(x, TOP - 8), (x, bottom)], FAINT_INK)).map_err(failed)?;
        let right = style(12, &INK, HPos::Right);
        for (head, end) in ["GB/s", "of reading"].iter().zip(FIGURES) {
            write(&area, head, (end, TOP - 18), &style(12, &FAINT_INK, HPos::Right))?;
        }
        let mut y = TOP;
        for ladder in &report.ladders {
            write(&area, &ladder.title, (20, y + HEAD - 16), &bold(style(13, &INK, HPos::Left)))?;
            y += HEAD;
            for entry in &ladder.rungs {
                let middle = y + ROW / 2;
                write(&area, &entry.name, (LEFT - 10, middle), &right)?;
                match &entry.outcome {
                    Outcome::Measured(measured) => {
                        let end = axis.x(measured.gigabytes_per_second).max(LEFT + 1);
                        let bar = [(LEFT, middle - 6), (end, middle + 6)];
                        // The library's rungs stand out from the kernels that lead to them.
                        let color = if entry.library { VERMILION } else { BLUE };
                        area.draw(&Rectangle::new(bar, color.filled())).map_err(failed)?;
                        let figures =
                            [rate(measured.gigabytes_per_second), percent(measured.share)];
                        for (figure, end) in figures.iter().zip(FIGURES) {
                            write(&area, figure, (end, middle), &right)?;
                        }
                    }
                    Outcome::NotAvailable(_) => {
                        write(&area, "not available", (LEFT + 8, middle), &faint)?
                    }
                    Outcome::Failed(_) => write(&area, "failed", (LEFT + 8, middle), &faint)?,
                }
                y += ROW;
            }
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}
