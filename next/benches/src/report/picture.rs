//! Pictures as SVG. They have a light background of their own, so they are legible on dark pages
//! too.

use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use reduce_programs::canvas::{
    Area, BLUE, FAINT_INK, GREEN, GRID, GROUND, INK, PURPLE, PictureError, SKY, VERMILION, bold,
    failed, style, write,
};

use super::{
    BANDWIDTH_BYTES, Peer, Row, Summary,
    neighbours::{LEAST_SHARE, Measured, Neighbours},
};
use crate::{
    Case, Over, Record,
    sweep::{LARGE_LOG2, Series, USUAL_LOG2},
};

/// The engines whose marks a row has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Ours,
    Peer(Peer),
}

impl Engine {
    const ALL: [Engine; 5] = [
        Engine::Ours,
        Engine::Peer(Peer::Cub),
        Engine::Peer(Peer::PyTorch),
        Engine::Peer(Peer::Compiled),
        Engine::Peer(Peer::Cubek),
    ];

    fn label(self) -> &'static str {
        match self {
            Engine::Ours => "reduce-kernels",
            Engine::Peer(Peer::Cub) => "CUB",
            Engine::Peer(Peer::PyTorch) => "PyTorch",
            Engine::Peer(Peer::Compiled) => "torch.compile",
            Engine::Peer(Peer::Cubek) => "cubek-reduce",
        }
    }

    fn draw(self, area: &Area<'_>, at: (i32, i32)) -> Result<(), PictureError> {
        let (x, y) = at;
        match self {
            Engine::Ours => area.draw(&Circle::new(at, 6, VERMILION.filled())),
            Engine::Peer(Peer::Cub) => {
                let corners = vec![(x, y - 5), (x + 5, y + 4), (x - 5, y + 4)];
                area.draw(&Polygon::new(corners, GREEN.filled()))
            }
            Engine::Peer(Peer::PyTorch) => {
                area.draw(&Rectangle::new([(x - 4, y - 4), (x + 4, y + 4)], BLUE.filled()))
            }
            Engine::Peer(Peer::Compiled) => {
                let corners = vec![(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)];
                area.draw(&Polygon::new(corners, SKY.filled()))
            }
            Engine::Peer(Peer::Cubek) => area.draw(&Cross::new(at, 4, PURPLE.stroke_width(2))),
        }
        .map_err(failed)
    }
}

/// What the groups of rows have in common.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Everything,
    LastAxis,
    FirstAxis,
    Other,
}

impl Group {
    const ALL: [Group; 4] = [Group::Everything, Group::LastAxis, Group::FirstAxis, Group::Other];

    fn of(case: &Case) -> Self {
        match &case.over {
            Over::All => Group::Everything,
            Over::Axes(axes) if axes[..] == [case.stored.len() - 1] => Group::LastAxis,
            Over::Axes(axes) if axes[..] == [0] => Group::FirstAxis,
            _ => Group::Other,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Group::Everything => "everything to one value",
            Group::LastAxis => "rows: the last axis",
            Group::FirstAxis => "columns: the first axis",
            Group::Other => "middle axes, several axes, transposed views",
        }
    }
}

/// A number as a power of two where it is a large one: 2²⁰.
fn short(number: usize) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    if !number.is_power_of_two() || number < 1 << 17 {
        return number.to_string();
    }
    let exponent = number.ilog2().to_string();
    let raised = exponent.bytes().map(|digit| DIGITS[usize::from(digit - b'0')]);
    format!("2{}", raised.collect::<String>())
}

/// A case as the label of its row.
fn label(case: &Case) -> String {
    let shape: Vec<String> = case.stored.iter().copied().map(short).collect();
    let over = match &case.over {
        Over::All => String::new(),
        Over::Transposed => ", transposed".into(),
        Over::Axes(axes) if axes.len() == 1 => format!(", axis {}", axes[0]),
        Over::Axes(axes) => {
            let axes: Vec<String> = axes.iter().map(usize::to_string).collect();
            format!(", axes {}", axes.join(" "))
        }
    };
    format!("{} {}  {}{over}", case.operator, case.element, shape.join(" × "))
}

const WIDTH: i32 = 980;
const LEFT: i32 = 330;
const RIGHT: i32 = 30;
const TOP: i32 = 118;
const BOTTOM: i32 = 50;
const ROW: i32 = 21;
const GROUP_HEAD: i32 = 34;

/// Right end of the axis, as a share of the read bandwidth.
const LARGEST_SHARE: f64 = 1.05;

fn across(share: f64) -> i32 {
    LEFT + (f64::from(WIDTH - LEFT - RIGHT) * share.min(LARGEST_SHARE) / LARGEST_SHARE) as i32
}

/// A row for each case of 16 MiB and more: the rates that everyone reached, as shares of the read
/// bandwidth measured in the run.
///
/// # Errors
///
/// A record without such cases.
pub fn side_by_side_picture(record: &Record, rows: &[Row<'_>]) -> Result<String, PictureError> {
    let best_read = Summary::of(rows, &record.floor).floor.read_gigabytes_per_second;
    let is_large = |row: &&Row<'_>| row.timing.case.input_bytes() >= BANDWIDTH_BYTES;
    let grouped: Vec<(Group, Vec<&Row<'_>>)> = Group::ALL
        .into_iter()
        .map(|group| {
            let of_group = |row: &&Row<'_>| Group::of(&row.timing.case) == group;
            (group, rows.iter().filter(is_large).filter(of_group).collect::<Vec<_>>())
        })
        .filter(|(_, rows)| !rows.is_empty())
        .collect();
    if grouped.is_empty() {
        return Err(PictureError::Empty("no case of 16 MiB and more in the record"));
    }
    let heads = grouped.len() as i32 * GROUP_HEAD;
    let lines = grouped.iter().map(|(_, rows)| rows.len() as i32).sum::<i32>() * ROW;
    let height = TOP + heads + lines + BOTTOM;

    let mut text = String::new();
    {
        let size = (WIDTH as u32, height as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&GROUND).map_err(failed)?;
        let plain = style(13, &INK, HPos::Left);
        let faint = style(12, &FAINT_INK, HPos::Left);
        let title = bold(style(18, &INK, HPos::Left));
        write(&area, "How close to the memory's speed each reduction runs", (20, 26), &title)?;
        let subtitle = format!(
            "Bytes per second in back-to-back calls, as a share of the {:.2} TB/s at which this device can \
             be read. Bars run from the fastest other library to this one.",
            best_read / 1e3
        );
        write(&area, &subtitle, (20, 50), &faint)?;
        let mut x = 26;
        for engine in Engine::ALL {
            let shown = match engine {
                Engine::Ours => true,
                Engine::Peer(peer) => rows.iter().any(|row| row.peer(peer).is_some()),
            };
            if shown {
                engine.draw(&area, (x, 76))?;
                write(&area, engine.label(), (x + 12, 76), &plain)?;
                x += 140;
            }
        }
        let bottom = height - BOTTOM + 8;
        for percent in (0..=100).step_by(20) {
            let x = across(f64::from(percent) / 100.0);
            let line = vec![(x, TOP - 8), (x, bottom)];
            area.draw(&PathElement::new(line, GRID)).map_err(failed)?;
            let centred = style(12, &FAINT_INK, HPos::Center);
            for y in [TOP - 18, bottom + 14] {
                write(&area, &format!("{percent} %"), (x, y), &centred)?;
            }
        }
        let mut y = TOP;
        for (group, rows) in grouped {
            write(&area, group.title(), (20, y + GROUP_HEAD - 16), &bold(plain.clone()))?;
            y += GROUP_HEAD;
            for row in rows {
                draw_row(&area, row, y + ROW / 2, best_read)?;
                y += ROW;
            }
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

fn draw_row(area: &Area<'_>, row: &Row<'_>, y: i32, best_read: f64) -> Result<(), PictureError> {
    let timing = row.timing;
    let at = |us: f64| across(timing.bytes as f64 / us / 1e3 / best_read);
    let label_style = style(12, &INK, HPos::Right);
    write(area, &label(&timing.case), (LEFT - 12, y), &label_style)?;
    let line = vec![(across(0.0), y), (across(LARGEST_SHARE), y)];
    area.draw(&PathElement::new(line, GRID)).map_err(failed)?;
    // Ours last, on top of the others; the bar between shows who leads and by how much.
    let ours = at(timing.microseconds);
    if let Some((_, best)) = row.best_peer() {
        let color = if ours >= at(best) { VERMILION } else { FAINT_INK };
        let bar = vec![(at(best), y), (ours, y)];
        area.draw(&PathElement::new(bar, color.mix(0.45).stroke_width(5))).map_err(failed)?;
    }
    for peer in Peer::ALL {
        if let Some(us) = row.peer(peer) {
            Engine::Peer(peer).draw(area, (at(us), y))?;
        }
    }
    Engine::Ours.draw(area, (ours, y))
}

/// The rates of the sweeps: over the aspect of a matrix (for each size that the record holds), and
/// over the extent of an inner kept dimension.
///
/// # Errors
///
/// A record without points of a sweep.
pub fn sweep_picture(record: &Record) -> Result<String, PictureError> {
    let neighbours = Neighbours::of(record);
    let mut panels: Vec<Panel> = [USUAL_LOG2, LARGE_LOG2].into_iter().map(Panel::aspects).collect();
    panels.push(Panel::inner());
    panels.retain(|panel| panel.lines.iter().any(|line| !line.points(&neighbours).is_empty()));
    if panels.is_empty() {
        return Err(PictureError::Empty("no point of a sweep in the record"));
    }
    let mut text = String::new();
    {
        let size = (WIDTH as u32, 380 * panels.len() as u32);
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&GROUND).map_err(failed)?;
        let parts = area.split_evenly((panels.len(), 1));
        for (panel, part) in panels.iter().zip(&parts) {
            panel.draw(part, &neighbours)?;
        }
        area.present().map_err(failed)?;
    }
    Ok(text)
}

/// One line of a panel.
struct Line {
    series: Series,
    name: &'static str,
    color: RGBColor,
    filled: bool,
}

impl Line {
    /// The points of this line, from left to right: where, and TB/s.
    fn points(&self, neighbours: &Neighbours<'_>) -> Vec<(f64, f64)> {
        let of_line = |measured: &&Measured<'_>| measured.point.series == self.series;
        neighbours
            .points
            .iter()
            .filter(of_line)
            .map(|measured| (measured.point.x as f64, measured.timing.gigabytes_per_second / 1e3))
            .collect()
    }
}

/// One picture of a sweep.
struct Panel {
    log2: u32,
    title: String,
    x_title: String,
    x_range: std::ops::Range<f64>,
    lines: Vec<Line>,
}

impl Panel {
    fn aspects(log2: u32) -> Self {
        let line = |axis, odd, name, color| Line {
            series: Series::Aspect { log2, axis, odd },
            name,
            color,
            filled: !odd,
        };
        Self {
            log2,
            title: format!("f32 sums of matrices of {} MiB", (4u64 << log2) / super::MIB),
            x_title: format!("i of the shape (2^i, 2^({log2}-i))"),
            x_range: -0.5..f64::from(log2) + 0.5,
            lines: vec![
                line(1, false, "along axis 1", VERMILION),
                line(1, true, "along axis 1, rows one shorter", PURPLE),
                line(0, false, "along axis 0", BLUE),
                line(0, true, "along axis 0, rows one shorter", SKY),
            ],
        }
    }

    fn inner() -> Self {
        let line =
            |axis, name, color| Line { series: Series::Inner { axis }, name, color, filled: true };
        Self {
            log2: USUAL_LOG2,
            title: "f32 sums of 256 MiB that keep a narrow inner dimension".into(),
            x_title: "k, the extent of the inner dimension".into(),
            x_range: 0.5..64.5,
            lines: vec![
                line(0, "(2^26 / k, k) along axis 0", BLUE),
                line(1, "(2^20 / k, 64, k) along axis 1", VERMILION),
            ],
        }
    }

    fn draw(&self, area: &Area<'_>, neighbours: &Neighbours<'_>) -> Result<(), PictureError> {
        let best = neighbours.best(self.log2) / 1e3;
        let caption = bold(style(16, &INK, HPos::Center));
        let small = style(12, &INK, HPos::Center);
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .caption(&self.title, caption)
            .x_label_area_size(46)
            .y_label_area_size(60)
            .build_cartesian_2d(self.x_range.clone(), 0.0..best * 1.1)
            .map_err(failed)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_title)
            .y_desc("TB/s")
            .x_labels(14)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.1}"))
            .label_style(small.clone())
            .axis_desc_style(small.clone())
            .light_line_style(GROUND)
            .bold_line_style(GRID)
            .axis_style(FAINT_INK)
            .draw()
            .map_err(failed)?;
        let mark =
            vec![(self.x_range.start, best * LEAST_SHARE), (self.x_range.end, best * LEAST_SHARE)];
        chart
            .draw_series([PathElement::new(mark, FAINT_INK.stroke_width(1))])
            .map_err(failed)?
            .label("80 % of the best point")
            .legend(|(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], FAINT_INK));
        for line in &self.lines {
            let points = line.points(neighbours);
            let (color, filled) = (line.color, line.filled);
            let dot = if filled { color.filled() } else { color.stroke_width(1) };
            chart
                .draw_series([PathElement::new(points.clone(), color.stroke_width(2))])
                .map_err(failed)?
                .label(line.name)
                .legend(move |(x, y)| {
                    PathElement::new(vec![(x, y), (x + 18, y)], color.stroke_width(2))
                });
            let dots = points.into_iter().map(|point| Circle::new(point, 3, dot));
            chart.draw_series(dots).map_err(failed)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerMiddle)
            .background_style(GROUND.mix(0.9))
            .border_style(GRID)
            .label_font(style(12, &INK, HPos::Left).pos(Pos::new(HPos::Left, VPos::Top)))
            .draw()
            .map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        join,
        tests::{printed, record},
    };

    /// Row for row, the picture shows what the table does: large cases only, engines that ran only.
    #[test]
    fn a_picture_names_its_rows_and_engines() {
        let ours = record(&[
            ("sum f32 [268435456] axis all", 241.0),
            ("sum f32 [65536, 1024] axis 1", 60.0),
            ("sum f32 [1024] axis all", 9.0),
        ]);
        let rows = join(&ours, None, &printed());
        let picture = side_by_side_picture(&ours, &rows).unwrap();
        for text in ["sum f32  2²⁸", "sum f32  65536 × 1024, axis 1", "CUB", "torch.compile"] {
            assert!(picture.contains(text), "{text}");
        }
        for text in ["sum f32  1024<", "cubek-reduce"] {
            assert!(!picture.contains(text), "{text}");
        }
    }

    /// Only what was measured is drawn.
    #[test]
    fn sweeps_without_points_are_refused() {
        let ours = record(&[("sum f32 [100] axis all", 9.0)]);
        assert_eq!(
            sweep_picture(&ours),
            Err(PictureError::Empty("no point of a sweep in the record"))
        );
        let ours = record(&[
            ("sum f32 [8192, 8192] axis 1", 62.0),
            ("sum f32 [16384, 4096] axis 1", 62.0),
        ]);
        let picture = sweep_picture(&ours).unwrap();
        assert!(picture.contains("matrices of 256 MiB") && !picture.contains("narrow inner"));
    }
}
