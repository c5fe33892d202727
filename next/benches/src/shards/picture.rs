//! The rate of all devices together over their number, as SVG.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use reduce_programs::canvas::{
    Area, BLUE, FAINT_INK, GREEN, GRID, GROUND, INK, PURPLE, PictureError, SKY, VERMILION, bold,
    failed, style,
};

use super::{CutCase, ShardsRecord, ShardsTiming, Work};

const WIDTH: u32 = 980;
const PANEL_HEIGHT: u32 = 400;

fn color(work: Work) -> RGBColor {
    match work {
        Work::Sum => VERMILION,
        Work::Max => BLUE,
        Work::Argmax => SKY,
        Work::MeanVar => GREEN,
        Work::Logsumexp => PURPLE,
        Work::MeanAngle => INK,
    }
}

/// A panel for each tensor of the record, with a line for each operator.
///
/// # Errors
///
/// A record without times on several devices.
pub fn shards_picture(record: &ShardsRecord) -> Result<String, PictureError> {
    if record.timings.is_empty() {
        return Err(PictureError::Empty("no time of shards on several devices in the record"));
    }
    let mut cases: Vec<&CutCase> = Vec::new();
    for timing in &record.timings {
        if !cases.contains(&&timing.case) {
            cases.push(&timing.case);
        }
    }
    let mut text = String::new();
    {
        let size = (WIDTH, PANEL_HEIGHT * cases.len() as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&GROUND).map_err(failed)?;
        for (case, part) in cases.iter().zip(&area.split_evenly((cases.len(), 1))) {
            let of_case = |timing: &&ShardsTiming| timing.case == **case;
            draw_panel(part, case, &record.timings.iter().filter(of_case).collect::<Vec<_>>())?;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

fn draw_panel(
    area: &Area<'_>,
    case: &CutCase,
    timings: &[&ShardsTiming],
) -> Result<(), PictureError> {
    let rate = |timing: &&&ShardsTiming| timing.gigabytes_per_second / 1e3;
    let best = timings.iter().map(|timing| rate(&timing)).fold(0.0, f64::max);
    let most = timings.iter().map(|timing| timing.gpus).max().unwrap_or(1) as f64;
    let small = style(12, &INK, HPos::Center);
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption(format!("{case}, cut along the axis"), bold(style(16, &INK, HPos::Center)))
        .x_label_area_size(46)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..most + 0.5, 0.0..best * 1.15)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .x_desc("devices")
        .y_desc("TB/s of all devices together")
        .x_labels(most as usize + 2)
        .x_label_formatter(&|x| if x.fract() == 0.0 { format!("{x:.0}") } else { String::new() })
        .y_label_formatter(&|y| format!("{y:.1}"))
        .label_style(small.clone())
        .axis_desc_style(small)
        .light_line_style(GROUND)
        .bold_line_style(GRID)
        .axis_style(FAINT_INK)
        .draw()
        .map_err(failed)?;
    // Without an exchange, the fastest operator on one device would run along this line.
    let alone = timings.iter().filter(|timing| timing.gpus == 1);
    if let Some(alone) = alone.map(|timing| rate(&timing)).reduce(f64::max) {
        let end = most.min(best * 1.15 / alone);
        chart
            .draw_series([PathElement::new(
                vec![(0.0, 0.0), (end, end * alone)],
                FAINT_INK.stroke_width(1),
            )])
            .map_err(failed)?
            .label("as many single devices")
            .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], FAINT_INK));
    }
    for work in Work::ALL {
        let of_work = timings.iter().filter(|timing| timing.work == work);
        let points: Vec<(f64, f64)> =
            of_work.map(|timing| (timing.gpus as f64, rate(&timing))).collect();
        if points.is_empty() {
            continue;
        }
        let color = color(work);
        chart
            .draw_series([PathElement::new(points.clone(), color.stroke_width(2))])
            .map_err(failed)?
            .label(work.name())
            .legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2))
            });
        let dots = points.into_iter().map(|point| Circle::new(point, 3, color.filled()));
        chart.draw_series(dots).map_err(failed)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(GROUND.mix(0.9))
        .border_style(GRID)
        .label_font(style(12, &INK, HPos::Left).pos(Pos::new(HPos::Left, VPos::Top)))
        .draw()
        .map_err(failed)
}

#[cfg(test)]
mod tests {
    use reduce_kernels::planner::Device;

    use super::*;

    /// What was timed is drawn, and nothing else.
    #[test]
    fn a_picture_has_a_line_for_each_operator() {
        let case = CutCase { rows: 1 << 32, outputs: None };
        let timing = |work, gpus, us| {
            ShardsTiming::new(work, case.clone(), gpus, us, vec![us; gpus], Some(4600.0))
        };
        let mut record = ShardsRecord {
            runtime: "cuda".into(),
            device: Device::h200(),
            devices: 2,
            lack: None,
            timings: vec![timing(Work::Sum, 1, 3720.0), timing(Work::Sum, 2, 1900.0)],
            simulated: Vec::new(),
            skipped: Vec::new(),
        };
        let picture = shards_picture(&record).unwrap();
        for text in ["f32 [4294967296] axis 0, cut", "sum", "as many single devices"] {
            assert!(picture.contains(text), "{text}");
        }
        assert!(!picture.contains("argmax"));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<ShardsRecord>(&text).unwrap(), record);

        record.timings.clear();
        assert!(matches!(shards_picture(&record), Err(PictureError::Empty(_))));
    }
}
