//! The losses as a picture.

use plotters::{prelude::*, style::text_anchor::HPos};
use reduce_burn_examples::Reductions;
use reduce_programs::canvas::{
    FAINT_INK, GRID, GROUND, INK, PictureError, SKY, VERMILION, bold, failed, style, write,
};

use crate::report::{Report, Run};

const WIDTH: i32 = 860;
const HEIGHT: i32 = 460;
const LEFT: i32 = 70;
const RIGHT: i32 = 30;
const TOP: i32 = 110;
const BOTTOM: i32 = 50;

/// Lines across the picture, without that at 0.
const LINES: i32 = 4;

/// A line per run: the loss of each step. Burn's line is wide and pale, so that both are seen where
/// one covers the other.
///
/// # Errors
///
/// A report without losses, and what the drawing library says.
pub(crate) fn picture(report: &Report) -> Result<String, PictureError> {
    let losses = report.runs.iter().flat_map(|run| &run.losses);
    let largest = f64::from(losses.copied().fold(0.0, f32::max));
    let steps = report.runs.iter().map(|run| run.losses.len()).max().unwrap_or(0);
    if steps == 0 || !(largest > 0.0 && largest.is_finite()) {
        return Err(PictureError::Empty("there are no losses"));
    }
    let x = |step: usize| {
        let along = step as f64 / (steps - 1).max(1) as f64;
        LEFT + (f64::from(WIDTH - LEFT - RIGHT) * along) as i32
    };
    let y = |loss: f64| {
        let up = loss / largest;
        HEIGHT - BOTTOM - (f64::from(HEIGHT - TOP - BOTTOM) * up) as i32
    };
    let mut text = String::new();
    {
        let size = (WIDTH as u32, HEIGHT as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&GROUND).map_err(failed)?;
        let title = bold(style(18, &INK, HPos::Left));
        write(&area, "Loss of each training step", (20, 26), &title)?;
        let fused = if report.fused { "fused" } else { "not fused" };
        let subtitle = format!(
            "A convolutional network on 8 × 8 digits, batches of {}, on {} through {}, {fused}.",
            report.batch, report.device, report.backend
        );
        write(&area, &subtitle, (20, 50), &style(12, &FAINT_INK, HPos::Left))?;
        for line in 0..=LINES {
            let loss = largest * f64::from(line) / f64::from(LINES);
            let height = y(loss);
            let across = vec![(LEFT, height), (WIDTH - RIGHT, height)];
            area.draw(&PathElement::new(across, GRID)).map_err(failed)?;
            let right = style(12, &FAINT_INK, HPos::Right);
            write(&area, &format!("{loss:.2}"), (LEFT - 8, height), &right)?;
        }
        let centred = style(12, &FAINT_INK, HPos::Center);
        for epoch in 0..steps.div_ceil(report.steps_per_epoch) {
            let at = x(epoch * report.steps_per_epoch);
            let mark = vec![(at, HEIGHT - BOTTOM), (at, HEIGHT - BOTTOM + 5)];
            area.draw(&PathElement::new(mark, FAINT_INK)).map_err(failed)?;
            let epoch = format!("epoch {}", epoch + 1);
            write(&area, &epoch, (at, HEIGHT - BOTTOM + 18), &centred)?;
        }
        let mut legend = LEFT;
        for run in &report.runs {
            let line = look(run);
            let points = run.losses.iter().enumerate();
            let points = points.map(|(step, &loss)| (x(step), y(f64::from(loss)))).collect();
            area.draw(&PathElement::new::<Vec<_>, _>(points, line)).map_err(failed)?;
            let sample = vec![(legend, TOP - 28), (legend + 30, TOP - 28)];
            area.draw(&PathElement::new(sample, line)).map_err(failed)?;
            let name = format!("reductions of {}", run.reductions);
            write(&area, &name, (legend + 38, TOP - 28), &style(12, &INK, HPos::Left))?;
            legend += 220;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

/// How the line of a run looks.
fn look(run: &Run) -> ShapeStyle {
    match run.reductions {
        Reductions::Burn => SKY.stroke_width(6),
        Reductions::Ours => VERMILION.stroke_width(2),
    }
}
