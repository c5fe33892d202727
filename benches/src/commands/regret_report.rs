//! Reports on what `regret` measured: how far the choice of a plan is from the best one, and how
//! far the estimates are from the times.

use std::{io, path::PathBuf, process::ExitCode};

use clap::Args;
use plotters::{prelude::*, style::text_anchor::HPos};
use reduce_benches::regret::{Line, Measured, problem};
use reduce_kernels::{
    Device, ReduceError,
    planner::{Plan, PlanError, Problem, choose},
};
use reduce_programs::{
    FileError,
    canvas::{BLUE, FAINT_INK, GROUND, INK, PictureError, VERMILION, bold, failed, style},
    command_line::say,
    read, write,
};

use super::ended;

/// Prints a table in Markdown: the choice when the plans were timed, and the choice of this version
/// of the planner, over the best of the timed plans; and the estimates over the times.
#[derive(Args)]
pub(crate) struct Arguments {
    /// What `regret` wrote. The lines of several processes may stand in one file.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Choose for this device, JSON of `calibrate`, instead of the device that a file names.
    #[arg(long)]
    device: Option<PathBuf>,
    /// Name so many of the cases whose choice is the farthest from the best.
    #[arg(long, default_value_t = 10)]
    worst: usize,
    /// Draw the expected times of the chosen plans against the measured ones.
    #[arg(long)]
    svg: Option<PathBuf>,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{}, line {number}: {source}", path.display())]
    Line { path: PathBuf, number: usize, source: serde_json::Error },
    #[error("{}: {source}", path.display())]
    Device { path: PathBuf, source: serde_json::Error },
    #[error("{case}: {source}")]
    Problem { case: String, source: Box<ReduceError> },
    #[error("{case}: {source}")]
    Plan { case: String, source: Box<PlanError> },
    #[error("there is no case in the files")]
    NoCase,
    #[error(transparent)]
    Picture(#[from] PictureError),
    #[error("standard output: {0}")]
    Output(#[from] io::Error),
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("regret_report", report(arguments))
}

/// A case with its problem, and the device to plan for.
struct Judged {
    measured: Measured,
    problem: Problem,
    device: Device,
    /// The plan that this version chooses.
    now: Plan,
}

impl Judged {
    fn microseconds(&self, plan: Plan) -> Option<f64> {
        let tried = self.measured.tried.iter().find(|tried| tried.plan == plan)?;
        Some(tried.microseconds)
    }

    fn best(&self) -> f64 {
        self.measured.tried.iter().map(|tried| tried.microseconds).fold(f64::INFINITY, f64::min)
    }

    fn expected(&self, plan: Plan) -> f64 {
        plan.estimate(&self.problem, &self.device).microseconds()
    }

    /// The time of the plan that this version chooses over the best, if it was timed.
    fn regret_now(&self) -> Option<f64> {
        self.microseconds(self.now).map(|time| time / self.best())
    }
}

fn judged(arguments: &Arguments) -> Result<Vec<Judged>, Stop> {
    let given: Option<Device> = match &arguments.device {
        None => None,
        Some(path) => Some(
            serde_json::from_str(&read(path)?)
                .map_err(|source| Stop::Device { path: path.clone(), source })?,
        ),
    };
    let mut found = Vec::new();
    for path in &arguments.files {
        let mut device = given.clone();
        for (nth, line) in read(path)?.lines().enumerate() {
            let line: Line = serde_json::from_str(line).map_err(|source| Stop::Line {
                path: path.clone(),
                number: nth + 1,
                source,
            })?;
            let measured = match line {
                Line::Device { device: named, .. } => {
                    device = Some(given.clone().unwrap_or(*named));
                    continue;
                }
                Line::Case(measured) if measured.tried.is_empty() => continue,
                Line::Case(measured) => measured,
            };
            let case = || measured.case.to_string();
            let problem = problem(&measured.case)
                .map_err(|source| Stop::Problem { case: case(), source: Box::new(source) })?;
            let device = device.clone().unwrap_or_else(Device::h200);
            let now = choose(&problem, &device)
                .map_err(|source| Stop::Plan { case: case(), source: Box::new(source) })?
                .plan;
            found.push(Judged { measured, problem, device, now });
        }
    }
    if found.is_empty() { Err(Stop::NoCase) } else { Ok(found) }
}

/// A number that this share of the numbers is below.
fn quantile(numbers: &[f64], share: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

fn row(name: &str, ratios: &[f64]) -> String {
    let percent = |share: f64| format!("{:.1} %", (quantile(ratios, share) - 1.0) * 100.0);
    format!(
        "| {name} | {} | {} | {} | {} | {} |",
        ratios.len(),
        percent(0.5),
        percent(0.9),
        percent(0.95),
        percent(1.0)
    )
}

fn report(arguments: &Arguments) -> Result<(), Stop> {
    let judged = judged(arguments)?;
    let over = |estimate: f64, time: f64| (estimate / time).max(time / estimate);
    let before: Vec<f64> =
        judged.iter().map(|case| case.measured.tried[0].microseconds / case.best()).collect();
    let now: Vec<f64> = judged.iter().filter_map(Judged::regret_now).collect();
    let of_all: Vec<f64> = judged
        .iter()
        .flat_map(|case| {
            let tried = case.measured.tried.iter();
            tried.map(|tried| over(case.expected(tried.plan), tried.microseconds))
        })
        .collect();
    let chosen: Vec<(f64, f64)> = judged
        .iter()
        .filter_map(|case| Some((case.microseconds(case.now)?, case.expected(case.now))))
        .collect();
    let of_chosen: Vec<f64> = chosen.iter().map(|&(time, expected)| over(expected, time)).collect();

    say("| | number | median | 90 % | 95 % | worst |\n| --- | --- | --- | --- | --- | --- |")?;
    say(row("chosen when the plans were timed, over the best", &before))?;
    if !now.is_empty() {
        say(row("chosen now, over the best", &now))?;
        say(row("estimate of the chosen plan, off by", &of_chosen))?;
    }
    say(row("estimates of all timed plans, off by", &of_all))?;
    let unknown = judged.len() - now.len();
    if unknown > 0 {
        say(format_args!("\nThe plan that is chosen now was not timed in {unknown} cases."))?;
    }

    let mut far: Vec<(f64, &Judged)> =
        judged.iter().filter_map(|case| Some((case.regret_now()?, case))).collect();
    far.sort_by(|a, b| b.0.total_cmp(&a.0));
    if arguments.worst > 0 && !far.is_empty() {
        say("\n| case | chosen, us | best, us | the best plan |\n| --- | --- | --- | --- |")?;
    }
    for (_, case) in far.into_iter().take(arguments.worst) {
        let Measured { case: name, tried, .. } = &case.measured;
        let best = case.best();
        let text = tried.iter().find(|tried| tried.microseconds == best);
        let text = text.map_or("", |tried| tried.plan_text.as_str());
        let time = case.microseconds(case.now).unwrap_or(f64::NAN);
        say(format_args!("| {name} | {time:.1} | {best:.1} | {text} |"))?;
    }
    if let Some(path) = &arguments.svg {
        write(path, &picture(&chosen)?)?;
    }
    Ok(())
}

/// Expected against measured times on logarithmic axes, with lines at 10 % off.
fn picture(times: &[(f64, f64)]) -> Result<String, PictureError> {
    let all = times.iter().flat_map(|&(time, expected)| [time, expected]);
    let (low, high) =
        all.fold((f64::INFINITY, 0.0f64), |(low, high), time| (low.min(time), high.max(time)));
    if times.is_empty() {
        return Err(PictureError::Empty("no chosen plan was timed"));
    }
    let range = || (low / 1.2..high * 1.2).log_scale();
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (640, 620)).into_drawing_area();
        area.fill(&GROUND).map_err(failed)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(16)
            .caption(
                "Expected against measured time of the chosen plan",
                bold(style(15, &INK, HPos::Left)),
            )
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(range(), range())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(GROUND)
            .x_desc("measured, microseconds per call")
            .y_desc("expected, microseconds per call")
            .label_style(style(12, &FAINT_INK, HPos::Center))
            .axis_desc_style(style(13, &INK, HPos::Center))
            .draw()
            .map_err(failed)?;
        for factor in [0.9, 1.0, 1.1] {
            let line = [low / 1.2, high * 1.2].map(|time| (time, time * factor));
            let width = if factor == 1.0 { 2 } else { 1 };
            let line = PathElement::new(line.to_vec(), BLUE.stroke_width(width));
            chart.draw_series([line]).map_err(failed)?;
        }
        let marks = times.iter().map(|&at| Circle::new(at, 2, VERMILION.filled()));
        chart.draw_series(marks).map_err(failed)?;
        area.present().map_err(failed)?;
    }
    Ok(svg)
}
