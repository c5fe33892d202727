//! Shows how a reduction, the application of one, or a scan would run on a device that need not be
//! present.

mod described;
mod report;

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Parser;
use reduce_examples::{
    AppliedFunction, AxesArgument, AxisError, Operation, OperationError, OverArgument, Parameters,
    ScanArguments, SecondInput, refuse,
};
use reduce_kernels::{
    Device, ElementType, ReduceError,
    by_name::{AppliedName, AppliedPairName, OperatorName, PairName},
    planner::{
        Explained, PlanError, Planned, Problem, ScheduleKind, TopKPlan, TopKProblem, force,
        force_scan,
    },
    plans::{Numerics, use_numerics},
};
use reduce_programs::{
    FileError,
    command_line::{self, fail, say},
    read,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    described::{Described, TOP_K, TOP_K_MASK, Tensor, Work},
    report::{Canonical, Estimated, Given, Report},
};

/// Prints the plan of a reduction and the reasons for it, or that of a function such as softmax
/// that applies the results of a reduction to its elements, or that of a scan, which has the
/// results at each position. It needs no GPU and no data.
///
/// It says which plan the library would run, what that should take and why, how far that is from
/// the floor (one launch and every byte once), why each other schedule was refused, and which plans
/// come next.
///
/// Status: 0; 1 if a plan of --plan may not run; 2 if an argument is wrong or no plan can run.
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    /// The extent of each axis, such as 8192,8192.
    #[arg(
        long,
        required_unless_present = "print_device",
        value_delimiter = ',',
        value_name = "EXTENTS"
    )]
    shape: Vec<usize>,
    /// The stride of each axis in elements, 0 to repeat elements. Row-major if not given.
    #[arg(long, value_delimiter = ',')]
    strides: Option<Vec<usize>>,
    /// The axes to reduce or to scan, such as 0,2; negative ones count from the end.
    #[arg(long, visible_alias = "axis", default_value = "all", allow_hyphen_values = true)]
    axes: AxesArgument,
    #[arg(
        long = "type",
        value_name = "TYPE",
        default_value = "f32",
        help = format!("The type of the elements: one of {}", ElementType::names())
    )]
    element: ElementType,
    #[arg(
        long,
        required_unless_present_any = ["apply", "scan", "print_device"],
        help = format!(
            "The operator: one of {}; with --second, one of {}; for selections, {TOP_K} and \
             {TOP_K_MASK}",
            OperatorName::names(),
            PairName::names()
        )
    )]
    op: Option<String>,
    #[arg(
        long,
        value_name = "FUNCTION",
        conflicts_with_all = ["op", "every_schedule", "accumulate_in"],
        help = format!(
            "A function of each slice in place of --op: one of {}; with --second, one of {}",
            AppliedName::names(),
            AppliedPairName::names()
        )
    )]
    apply: Option<String>,
    #[command(flatten)]
    scans: ScanArguments,
    /// The type of a second input, for an operator or a function of two.
    #[arg(long, value_name = "TYPE")]
    second: Option<ElementType>,
    /// The extents of the second input. Its axes are the last ones of the first; where it has an
    /// extent of 1, or fewer axes, its elements are repeated. Those of the first if not given.
    #[arg(long, value_delimiter = ',', value_name = "EXTENTS", requires = "second")]
    second_shape: Option<Vec<usize>>,
    /// The strides of the second input. Row-major if not given.
    #[arg(long, value_delimiter = ',', value_name = "STRIDES", requires = "second")]
    second_strides: Option<Vec<usize>>,
    #[command(flatten)]
    parameters: Parameters,
    /// How many elements top_k selects of each slice, and how many top_k_mask keeps.
    #[arg(long)]
    k: Option<usize>,
    /// Probabilities in place of the values of top_k, which add up to 1 over these elements.
    /// --output-type is their type.
    #[arg(long)]
    probabilities: Option<OverArgument>,
    /// What top_k_mask writes in place of all other elements. [default: -inf]
    #[arg(long, allow_negative_numbers = true)]
    fill: Option<f32>,
    /// The type of the result, or of the first of several, or of the last output of a function. The
    /// operator's own if not given.
    #[arg(long, value_name = "TYPE")]
    output_type: Option<ElementType>,
    /// The type to accumulate in. The operator's own if not given.
    #[arg(long, value_name = "TYPE")]
    accumulate_in: Option<ElementType>,
    #[arg(
        long,
        value_name = "NAME|FILE",
        required_unless_present = "print_device",
        help = format!("The device: {}, or a file of one as JSON", device_names())
    )]
    device: Option<String>,
    /// Print a device as JSON instead: a file with it can be changed and given to --device.
    #[arg(long, value_name = "NAME|FILE", exclusive = true)]
    print_device: Option<String>,
    /// What the bits of the result may depend on: `deterministic`, on the plan; `batch-invariant`,
    /// on each slice alone; `reproducible`, on its values alone, and not on the device.
    #[arg(long, default_value_t)]
    numerics: Numerics,
    /// Check and estimate this plan too, given as JSON; may be repeated.
    #[arg(long = "plan", value_name = "JSON")]
    plans: Vec<String>,
    /// Estimate the plan of every schedule that applies.
    #[arg(long)]
    every_schedule: bool,
    /// Print everything as one JSON object.
    #[arg(long)]
    json: bool,
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error("{0}")]
    Arguments(String),
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error("`{name}` needs --{option}")]
    Needs { name: &'static str, option: &'static str },
    #[error(transparent)]
    Axis(#[from] AxisError),
    #[error(
        "unknown device `{0}`: expected {names} or a file of one as JSON",
        names = device_names()
    )]
    UnknownDevice(String),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{} is no device: {source}", path.display())]
    DeviceFile { path: PathBuf, source: serde_json::Error },
    #[error("`{text}` is no plan: {source}")]
    NoPlan { text: String, source: serde_json::Error },
    #[error(transparent)]
    Problem(#[from] ReduceError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("the report cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the report cannot be printed: {0}")]
    Print(#[from] io::Error),
}

fn main() -> ExitCode {
    let done =
        command_line::arguments().map_err(Stop::Arguments).and_then(|arguments: Arguments| {
            use_numerics(arguments.numerics);
            run(&arguments)
        });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(stop) => fail("plan", stop),
    }
}

/// Whether all plans of the command line may run.
fn run(arguments: &Arguments) -> Result<bool, Stop> {
    if let Some(name) = &arguments.print_device {
        say(serde_json::to_string_pretty(&device(name)?)?)?;
        return Ok(true);
    }
    let described = arguments.described()?;
    let device = device(arguments.device.as_deref().unwrap_or_default())?;
    match described.work {
        Work::Reduction(operation) => {
            let problem = described.problem(operation)?;
            let shown = Shown {
                problem: &problem,
                results: problem.results(),
                bytes: problem.bytes(),
                launches: problem.outputs() > 0,
                output: None,
                every_schedule: arguments
                    .every_schedule
                    .then(|| every_schedule(&problem, &device, force)),
            };
            tell(arguments, &described, &device, &problem, shown)
        }
        Work::Scan(scanned) => {
            let problem = described.scan(scanned)?;
            let of_row = problem.problem();
            let shown = Shown {
                problem: of_row,
                results: of_row.results(),
                bytes: problem.bytes(),
                launches: !problem.is_empty(),
                output: Some(problem.output().reduced.clone()),
                every_schedule: arguments
                    .every_schedule
                    .then(|| every_schedule(&problem, &device, force_scan)),
            };
            tell(arguments, &described, &device, &problem, shown)
        }
        Work::Selection(k) => {
            let problem = described.selection(k)?;
            let shown = Shown::of_selection(&problem, problem.slices().results());
            tell(arguments, &described, &device, &problem, shown)
        }
        Work::Mask(k, fill) => {
            let (problem, results) = (described.mask(k, fill)?, [described.input.dtype]);
            let shown = Shown::of_selection(&problem, &results);
            tell(arguments, &described, &device, &problem, shown)
        }
        Work::Application(function, options) => {
            let problems = described.applied(function, options)?;
            let applied = &problems.0;
            let reduced = applied.problem().reduced();
            let shown = Shown {
                problem: applied.problem(),
                results: applied.problem().results(),
                bytes: applied.bytes(),
                launches: applied.elements() > 0,
                output: Some(reduced.iter().map(|dim| dim.position_stride).collect()),
                every_schedule: None,
            };
            tell(arguments, &described, &device, &problems, shown)
        }
    }
}

/// What is told about a problem of any kind.
struct Shown<'a, P> {
    /// The reduction in it.
    problem: &'a Problem,
    /// The types of its results.
    results: &'a [ElementType],
    /// Bytes that must move.
    bytes: u64,
    /// Whether there is something to launch.
    launches: bool,
    /// The strides of the reduced dimensions in the output, if it has them.
    output: Option<Vec<usize>>,
    every_schedule: Option<Vec<Estimated<P>>>,
}

impl<'a> Shown<'a, TopKPlan> {
    fn of_selection(problem: &'a TopKProblem, results: &'a [ElementType]) -> Self {
        Self {
            problem: problem.slices(),
            results,
            bytes: problem.bytes(),
            launches: problem.output_span() > 0,
            output: None,
            every_schedule: None,
        }
    }
}

/// Prints the report of a problem of any kind. Whether all plans of the command line may run.
fn tell<K>(
    arguments: &Arguments,
    described: &Described,
    device: &Device,
    planned: &K,
    shown: Shown<'_, K::Plan>,
) -> Result<bool, Stop>
where
    K: Planned,
    K::Plan: Serialize + DeserializeOwned,
    <K::Plan as Explained>::Refusal: Serialize,
{
    let Shown { problem, results, bytes, launches, output, every_schedule } = shown;
    let choice = match launches {
        true => {
            let choice = planned.choose(device)?;
            let sentence = planned.sentence(&choice.plan, device)?;
            Some((choice, sentence))
        }
        false => None,
    };
    let mut given = Vec::with_capacity(arguments.plans.len());
    for text in &arguments.plans {
        let plan = serde_json::from_str(text)
            .map_err(|source| Stop::NoPlan { text: text.clone(), source })?;
        given.push(Given::new(plan, planned, device));
    }
    let may_run = given.iter().all(Given::may_run);
    let every_schedule = every_schedule.filter(|_| launches);
    let canonical = Canonical::new(problem, results, bytes, output.as_deref());
    let report = Report::new(described, canonical, device, choice, every_schedule, given);
    match arguments.json {
        true => say(serde_json::to_string(&report)?)?,
        false => say(&report)?,
    }
    Ok(may_run)
}

/// The plan of every schedule that applies, each as `force` makes it.
fn every_schedule<K: Planned>(
    problem: &K,
    device: &Device,
    force: impl Fn(ScheduleKind, &K, &Device) -> Result<K::Plan, PlanError>,
) -> Vec<Estimated<K::Plan>> {
    let plans = ScheduleKind::ALL.into_iter().filter_map(|kind| {
        let plan = force(kind, problem, device).ok()?;
        let estimate = problem.estimate(&plan, device).ok()?;
        let sentence = plan.to_string();
        Some(Estimated::new(plan, sentence, estimate))
    });
    plans.collect()
}

impl Arguments {
    /// What `--op`, `--apply` or `--scan` names. Options that it does not have are a mistake.
    fn work(&self) -> Result<Work, Stop> {
        match self.op.as_deref() {
            Some(TOP_K) => return self.selection(TOP_K),
            Some(TOP_K_MASK) => return self.selection(TOP_K_MASK),
            _ => {}
        }
        let work = self.other_work()?;
        if !matches!(work, Work::Scan(_)) {
            refuse(work.name(), self.scans.given())?;
        }
        let given = [
            ("k", self.k.is_some()),
            ("probabilities", self.probabilities.is_some()),
            ("fill", self.fill.is_some()),
        ];
        refuse(work.name(), given)?;
        Ok(work)
    }

    /// A selection, or a mask of one.
    fn selection(&self, name: &'static str) -> Result<Work, Stop> {
        self.parameters.check(name, &[])?;
        let is_mask = name == TOP_K_MASK;
        let others = [
            ("second", self.second.is_some()),
            ("output-type", self.output_type.is_some() && self.probabilities.is_none()),
            ("accumulate-in", self.accumulate_in.is_some()),
            ("every-schedule", self.every_schedule),
            ("probabilities", self.probabilities.is_some() && is_mask),
            ("fill", self.fill.is_some() && !is_mask),
        ];
        refuse(name, others)?;
        refuse(name, self.scans.given())?;
        let k = self.k.ok_or(Stop::Needs { name, option: "k" })?;
        Ok(match is_mask {
            true => Work::Mask(k, self.fill.unwrap_or(f32::NEG_INFINITY)),
            false => Work::Selection(k),
        })
    }

    /// A scan, a reduction, or an application of one.
    fn other_work(&self) -> Result<Work, Stop> {
        if let Some(scanned) = self.scans.scanned(&self.parameters)? {
            refuse(scanned.name.name(), [("second", self.second.is_some())])?;
            return Ok(Work::Scan(scanned));
        }
        let second = SecondInput { option: "second", given: self.second.is_some() };
        if let Some(name) = &self.apply {
            let function = AppliedFunction::new(name, second)?;
            let options = self.parameters.applied(function, self.output_type)?;
            return Ok(Work::Application(function, options));
        }
        let op = self.op.as_deref().unwrap_or_default();
        Ok(Work::Reduction(Operation::new(op, &self.parameters, second)?))
    }

    /// The numbers on the command line, each by the name of its option.
    fn numbers(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let k = self.k.map(|k| ("k", k as f64));
        let fill = self.fill.map(|fill| ("fill", f64::from(fill)));
        self.parameters.given().chain(k).chain(fill)
    }

    fn described(&self) -> Result<Described, Stop> {
        let second = self.second.map(|element| {
            let shape = self.second_shape.as_ref().unwrap_or(&self.shape);
            Tensor::new(element, shape.clone(), self.second_strides.clone())
        });
        Ok(Described {
            work: self.work()?,
            parameters: self.numbers().collect(),
            probabilities: self.probabilities.map(Into::into),
            input: Tensor::new(self.element, self.shape.clone(), self.strides.clone()),
            second,
            axes: self.axes.from_the_front(self.shape.len())?,
            output_type: self.output_type,
            accumulate_in: self.accumulate_in,
        })
    }
}

fn device_names() -> String {
    Device::presets().collect::<Vec<_>>().join(", ")
}

/// The preset of this name, or else the device in this file.
fn device(name: &str) -> Result<Device, Stop> {
    if let Some(device) = Device::preset(name) {
        return Ok(device);
    }
    let path = Path::new(name);
    let text = match read(path) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => {
            return Err(Stop::UnknownDevice(name.to_owned()));
        }
        text => text?,
    };
    serde_json::from_str(&text).map_err(|source| Stop::DeviceFile { path: path.into(), source })
}
