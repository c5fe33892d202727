//! Reduces or scans an array from a file on a GPU.

mod apply;
mod select;

use std::{
    collections::BTreeMap, error::Error, io, path::PathBuf, process::ExitCode, str::FromStr,
    time::Instant,
};

use clap::Parser;
use reduce_examples::{
    AppliedFunction, Array, ArrayError, AxesArgument, Function, Number, Operation, OperationError,
    Parameters, ResultError, ScanArguments, Scanned, SecondInput, download, refuse,
};
use reduce_kernels::{
    Axes, ElementType, Operator, ReduceError, Reduction,
    by_name::{
        AppliedName, AppliedOptions, AppliedPairName, OperatorName, PairName, with_operator,
        with_pair,
    },
    cubecl::{future, prelude::*, std::tensor::TensorHandle},
    operator::{Arity, One},
    pairs::reduce_pair,
    planner::{
        AnyPlan, Choice, Estimate, Explained, Refusal, ScheduleKind, UnknownElementType,
        reduced_axes,
    },
    plans::{Numerics, use_numerics},
    reduce,
    scan::{Scan, scan},
    segments::{SegmentedReduction, group_by_keys},
    storage_type,
};
use reduce_programs::{
    BACKEND_HELP, Backend, OnDevice, Staged,
    command_line::{self, fail, say},
    gigabytes_per_second, median, on_device,
};
use serde::Serialize;

/// Results of at most so many elements are shown.
const MOST_SHOWN: usize = 64;

/// Runs, of which the median's time counts; one more before them compiles the kernels.
const RUNS: usize = 5;

/// Reduces or scans an array in NumPy's .npy format on a GPU and says how.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The array: bool, f16, f32, f64, or integers of 8 to 64 bits; of either byte order, in C or
    /// Fortran order.
    input: PathBuf,
    #[arg(
        long,
        required_unless_present_any = ["apply", "scan"],
        help = format!(
            "The operator: one of {}; for two inputs, one of {}; for selections, one of {}",
            OperatorName::names(),
            PairName::names(),
            select::NAMES
        )
    )]
    op: Option<String>,
    /// A second array, for an operator of two inputs. Its axes are the last ones of the first
    /// array's; where it has an extent of 1, or fewer axes, its elements are repeated. For a
    /// function of two inputs, the residual or the mask.
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    #[arg(
        long,
        conflicts_with = "op",
        value_name = "FUNCTION",
        help = format!(
            "Instead of an operator, a function that applies the results of reductions to each \
             element: one of {}; with --with, one of {}",
            AppliedName::names(),
            AppliedPairName::names()
        )
    )]
    apply: Option<String>,
    /// Apply the results of each block of so many neighbours along the one axis, which must be a
    /// whole number of blocks.
    #[arg(long, value_name = "ELEMENTS", requires = "apply")]
    block: Option<usize>,
    #[command(flatten)]
    scans: ScanArguments,
    /// The axes to reduce or to scan, such as 0,2; negative ones count from the end.
    #[arg(long, visible_alias = "axis", default_value = "all", allow_hyphen_values = true)]
    axes: AxesArgument,
    /// Keep the reduced axes with size 1.
    #[arg(long)]
    keepdims: bool,
    /// Offsets of segments of the axis, each of which is reduced to a result of its own: segment
    /// number `s` has the elements from offset number `s` up to the next, without the last. An
    /// array of one dimension, of integers of 32 or 64 bits.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["apply", "keepdims"])]
    segments: Option<PathBuf>,
    /// Keys of the elements of the axis, in any order: element number `i` belongs to the group that
    /// key number `i` names, and each group is reduced to a result of its own. An array of one
    /// dimension, of integers of 32 or 64 bits. Keys that are no number below --groups name none.
    #[arg(
        long,
        value_name = "FILE",
        requires = "groups",
        conflicts_with_all = ["apply", "keepdims", "segments"]
    )]
    keys: Option<PathBuf>,
    /// The number of groups that keys name.
    #[arg(long, value_name = "COUNT", requires = "keys")]
    groups: Option<usize>,
    #[command(flatten)]
    parameters: Parameters,
    #[command(flatten)]
    selections: select::Options,
    #[arg(
        long = "type",
        value_name = "TYPE",
        help = format!(
            "The type of the result, or of the first of several, or of the last output of a \
             function that is applied: one of {}. If not given, the operator's own for the \
             input's. Of functions that quantise also {INT4}: integers of 4 bits, two in a byte of \
             u8 along the last axis, the first in the low bits",
            ElementType::names()
        )
    )]
    result_type: Option<ResultType>,
    /// The type to accumulate in, such as f64 for f32, or i64 for i32. If not given, the operator's
    /// own for the input's type and the result's.
    #[arg(long, visible_alias = "accumulate-in", value_name = "TYPE")]
    accumulate: Option<ElementType>,
    /// What the bits of the result may depend on: `deterministic`, on the plan; `batch-invariant`,
    /// on each slice alone; `reproducible`, on its values alone, and not on the device.
    #[arg(long, default_value_t)]
    numerics: Numerics,
    /// Write the result to this .npy file; for an operator with several results, a file for each:
    /// LOW.npy,HIGH.npy. Of a function that is applied, files beyond those of its outputs take the
    /// results that are applied, such as the scales of quantize.
    #[arg(long, value_delimiter = ',')]
    output: Vec<PathBuf>,
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
    /// Say why each other schedule was refused.
    #[arg(long)]
    explain: bool,
    /// Print everything as one JSON object.
    #[arg(long)]
    json: bool,
}

/// The type of integers of 4 bits, two in a byte.
const INT4: &str = "i4";

/// The functions whose last output may have that type.
const QUANTIZING: [&str; 3] = ["quantize", "rms_norm_quantize", "add_rms_norm_quantize"];

/// The type of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ResultType {
    Element(ElementType),
    /// Integers of 4 bits, two in a byte.
    Int4,
}

impl FromStr for ResultType {
    type Err = UnknownElementType;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            INT4 => Ok(ResultType::Int4),
            _ => name.parse().map(ResultType::Element),
        }
    }
}

fn main() -> ExitCode {
    let done = command_line::arguments().map_err(Into::into).and_then(|arguments: Arguments| {
        use_numerics(arguments.numerics);
        run(&arguments)
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("reduce", error),
    }
}

/// Arguments that do not go together.
#[derive(Debug, thiserror::Error)]
enum ArgumentError {
    #[error(transparent)]
    Operation(#[from] OperationError),
    #[error(transparent)]
    Array(#[from] ArrayError),
    #[error(
        "`{name}` gives {} per reduction, but --output names {}",
        counted(*results, "result"),
        counted(*files, "file")
    )]
    Outputs { name: &'static str, results: usize, files: usize },
    #[error("--block takes one axis, and {axes} were given")]
    BlockAxes { axes: usize },
    #[error("`{name}` gives no integers of 4 bits, as {} do", QUANTIZING.join(", "))]
    Int4 { name: &'static str },
    #[error("--most is {most}, and integers of 4 bits go to 7")]
    Int4Most { most: f64 },
    #[error("`{name}` needs --{option}")]
    Needs { name: &'static str, option: &'static str },
    #[error("--output names {} more than once", .0.display())]
    SameOutput(PathBuf),
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

impl Arguments {
    /// The scan, or else the reduction that `--op` names. Options that it does not have are a
    /// mistake.
    fn task(&self) -> Result<Task, ArgumentError> {
        if let Some(scanned) = self.scans.scanned(&self.parameters)? {
            let name = scanned.name.name();
            self.check_no_selection(name)?;
            let others = [
                ("with", self.with.is_some()),
                ("block", self.block.is_some()),
                ("keepdims", self.keepdims),
                ("segments", self.segments.is_some()),
                ("keys", self.keys.is_some()),
            ];
            refuse(name, others)?;
            self.check_files(name, scanned.results())?;
            return Ok(Task::Scan(scanned));
        }
        let op = self.op.as_ref().expect("there is an operator, a function or a scan");
        let with = SecondInput { option: "with", given: self.with.is_some() };
        let operation = Operation::new(op, &self.parameters, with)?;
        let name = operation.name();
        self.check_no_selection(name)?;
        refuse(name, [("block", self.block.is_some())])?;
        refuse(name, self.scans.given())?;
        self.check_files(name, operation.results())?;
        Ok(Task::Reduction(operation))
    }

    /// The type of the result, where it is that of elements.
    fn element(&self) -> Option<ElementType> {
        match self.result_type? {
            ResultType::Element(element) => Some(element),
            ResultType::Int4 => None,
        }
    }

    /// A file for each of so many results, or none at all, of a type that the function has.
    fn check_files(&self, name: &'static str, results: usize) -> Result<(), ArgumentError> {
        if self.result_type == Some(ResultType::Int4) && !QUANTIZING.contains(&name) {
            return Err(ArgumentError::Int4 { name });
        }
        let files = self.output.len();
        if files != 0 && files != results {
            return Err(ArgumentError::Outputs { name, results, files });
        }
        if let (Some(element), Some(path)) = (self.element(), self.output.last()) {
            Array::check_written(element, path)?;
        }
        let again = |nth: usize| self.output[..nth].contains(&self.output[nth]);
        match (0..files).find(|&nth| again(nth)) {
            Some(nth) => Err(ArgumentError::SameOutput(self.output[nth].clone())),
            None => Ok(()),
        }
    }
}

/// What the program tells about a reduction.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    function: Function,
    /// The parameters on the command line, each by the name of its option.
    #[serde(flatten)]
    parameters: BTreeMap<&'static str, f64>,
    dtype: ElementType,
    shape: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    with: Option<Second>,
    axes: Vec<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<usize>,
    output_shape: Vec<usize>,
    device: String,
    backend: String,
    compiler: &'static str,
    plan: Option<AnyPlan>,
    plan_in_words: String,
    expected_microseconds: f64,
    /// The terms of the expected time.
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Estimate>,
    refused: Vec<Refused>,
    microseconds: f64,
    gigabytes_per_second: f64,
    #[serde(flatten)]
    results: Results,
}

/// The second input.
#[derive(Serialize)]
struct Second {
    dtype: ElementType,
    shape: Vec<usize>,
}

/// The results in JSON: that of an operator with one has no list around it.
#[derive(Serialize)]
#[serde(untagged)]
enum Results {
    One {
        output_dtype: ElementType,
        #[serde(skip_serializing_if = "Option::is_none")]
        values: Option<Vec<Number>>,
    },
    Several {
        results: Vec<Shown>,
    },
}

/// One of several results.
#[derive(Serialize)]
struct Shown {
    dtype: ElementType,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Number>>,
}

impl Results {
    fn new(arrays: &[Array]) -> Self {
        let shown = |array: &Array| {
            let count: usize = array.shape.iter().product();
            let values = (count <= MOST_SHOWN).then(|| array.values());
            Shown { dtype: array.element, values }
        };
        match arrays {
            [array] => {
                let Shown { dtype, values } = shown(array);
                Results::One { output_dtype: dtype, values }
            }
            several => Results::Several { results: several.iter().map(shown).collect() },
        }
    }

    /// The type of each result, and its values if they are shown.
    fn list(&self) -> Vec<(ElementType, Option<&[Number]>)> {
        match self {
            Results::One { output_dtype, values } => vec![(*output_dtype, values.as_deref())],
            Results::Several { results } => {
                results.iter().map(|shown| (shown.dtype, shown.values.as_deref())).collect()
            }
        }
    }
}

/// A schedule that was not taken.
#[derive(Serialize)]
struct Refused {
    schedule: ScheduleKind,
    reason: String,
}

/// What was chosen, and why.
struct Chosen {
    plan: AnyPlan,
    words: String,
    expected_microseconds: f64,
    estimate: Estimate,
    refused: Vec<Refused>,
}

impl Chosen {
    /// A plan that has no alternatives.
    fn only<P: Explained + Clone + ToString + Into<AnyPlan>>(choice: &Choice<P>) -> Self {
        Self {
            plan: choice.plan.clone().into(),
            words: choice.plan.to_string(),
            expected_microseconds: choice.expected_microseconds(),
            estimate: choice.estimate,
            refused: Vec::new(),
        }
    }

    /// The plan of one schedule among others.
    fn among<P, R: ToString>(choice: &Choice<P>) -> Self
    where
        P: Explained<Refusal = Refusal<ScheduleKind, R>> + Clone + ToString + Into<AnyPlan>,
    {
        let refused = choice
            .refused
            .iter()
            .map(|refusal| Refused { schedule: refusal.kind, reason: refusal.reason.to_string() });
        Self { refused: refused.collect(), ..Self::only(choice) }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    // What can be wrong without a device is told before one is looked for.
    if let Some((function, options)) = arguments.applied()? {
        return run_applied(arguments, function, options);
    }
    if let Some(selection) = arguments.selection()? {
        return run_selection(arguments, &selection);
    }
    let task = arguments.task()?;
    let (input, axes) = arguments.read()?;
    let read = |path: &Option<PathBuf>| path.as_deref().map(Array::read).transpose();
    let (second, offsets) = (read(&arguments.with)?, read(&arguments.segments)?);
    let (keys, second) = (read(&arguments.keys)?, second.as_ref());
    let segments = match (&offsets, &keys, arguments.groups) {
        (Some(offsets), ..) => Some(Segments::Neighbours(offsets)),
        (_, Some(keys), Some(groups)) => Some(Segments::Keyed(keys, groups)),
        _ => None,
    };
    let work = Work { arguments, task, input: &input, second, segments, axes: &axes };
    let (report, results) = on_device(arguments.backend, work)??;
    arguments.write(&results)?;
    if arguments.json {
        say(serde_json::to_string(&report)?)?;
    } else {
        print(&report, arguments.explain)?;
    }
    Ok(())
}

fn run_applied(
    arguments: &Arguments,
    function: AppliedFunction,
    options: AppliedOptions,
) -> Result<(), Box<dyn Error>> {
    let (input, axes) = arguments.read()?;
    let output = arguments.result_type;
    let (outputs, _) = apply::counts_of(function, options);
    let with_results = arguments.output.len() > outputs;
    let second = arguments.with.as_deref().map(Array::read).transpose()?;
    let block = match (arguments.block, &axes[..]) {
        (Some(block), &[axis]) => Some((axis, block)),
        (Some(_), axes) => return Err(ArgumentError::BlockAxes { axes: axes.len() }.into()),
        (None, _) => None,
    };
    let input = &input;
    let (axes, second) = (&axes[..], second.as_ref());
    let work = apply::Work { function, options, output, with_results, block, input, second, axes };
    let (report, arrays) = on_device(arguments.backend, work)??;
    arguments.write(&arrays)?;
    if arguments.json {
        say(serde_json::to_string(&report)?)?;
    } else {
        apply::print(&report, arguments.explain)?;
    }
    Ok(())
}

fn run_selection(
    arguments: &Arguments,
    selection: &select::Selection,
) -> Result<(), Box<dyn Error>> {
    let (input, axes) = arguments.read()?;
    let work = select::Work { arguments, selection, input: &input, axes: &axes };
    let (report, results) = on_device(arguments.backend, work)??;
    arguments.write(&results)?;
    if arguments.json {
        say(serde_json::to_string(&report)?)?;
    } else {
        select::print(&report)?;
    }
    Ok(())
}

impl Arguments {
    /// The array, and the axes counted from the front.
    fn read(&self) -> Result<(Array, Vec<usize>), Box<dyn Error>> {
        let input = Array::read(&self.input)?;
        let axes = self.axes.from_the_front(input.shape.len())?;
        reduced_axes(input.shape.len(), Some(&axes))?;
        Ok((input, axes))
    }

    /// Writes the files that were asked for, all of them or none.
    fn write(&self, results: &[Array]) -> Result<(), Box<dyn Error>> {
        let results = results.iter().zip(&self.output);
        let staged: Result<Vec<Staged>, _> =
            results.map(|(result, path)| result.stage(path)).collect();
        staged?.into_iter().try_for_each(Staged::put)?;
        Ok(())
    }
}

/// What runs.
#[derive(Clone, Copy)]
enum Task {
    Reduction(Operation),
    Scan(Scanned),
}

impl Task {
    fn function(self) -> Function {
        match self {
            Task::Reduction(operation) => Function::Op { op: operation.name() },
            Task::Scan(scanned) => scanned.function(),
        }
    }
}

#[derive(Clone, Copy)]
struct Work<'a> {
    arguments: &'a Arguments,
    task: Task,
    input: &'a Array,
    second: Option<&'a Array>,
    segments: Option<Segments<'a>>,
    axes: &'a [usize],
}

/// What says which elements of the axis each result is of.
#[derive(Clone, Copy)]
enum Segments<'a> {
    /// Offsets of neighbouring elements.
    Neighbours(&'a Array),
    /// Keys in any order, of so many groups.
    Keyed(&'a Array, usize),
}

impl OnDevice for Work<'_> {
    type Output = Result<(Report, Vec<Array>), ResultError>;

    fn on(self, client: &Client, backend: Backend, name: &str) -> Self::Output {
        let tensor = upload(client, self.input);
        let place = Place { device: name.into(), backend, compiler: client.name() };
        match self.task {
            Task::Scan(scanned) => {
                with_operator!(scanned.name.operator(), scanned.options, operator => {
                    self.scan(client, scanned, scan(operator, &tensor), place)
                })
            }
            Task::Reduction(Operation::OfOne(operator, options)) => {
                with_operator!(operator, options, operator => {
                    self.reduce(client, reduce(operator, &tensor), place)
                })
            }
            Task::Reduction(Operation::OfTwo(pair, options)) => {
                let second = self.second.expect("an operation of two inputs comes from --with");
                let second = upload(client, second);
                with_pair!(pair, options, operator => {
                    self.reduce(client, reduce_pair(operator, &tensor, &second), place)
                })
            }
        }
    }
}

impl Work<'_> {
    fn reduce<O: Operator>(
        self,
        client: &Client,
        mut reduction: Reduction<'_, O, TensorHandle>,
        place: Place,
    ) -> Result<(Report, Vec<Array>), ResultError> {
        let arguments = self.arguments;
        reduction = reduction.over(Axes::List(self.axes.to_vec()));
        if !arguments.keepdims {
            reduction = reduction.keep_dims(false);
        }
        if let Some(element) = arguments.element() {
            reduction = reduction.output_type(element);
        }
        if let Some(element) = arguments.accumulate {
            reduction = reduction.accumulate_in(element);
        }
        match self.segments {
            Some(Segments::Neighbours(offsets)) => {
                let offsets = upload(client, offsets);
                let segments = || reduction.clone().segments(&offsets);
                segments().check_offsets(client)?;
                return self.reduce_segments(client, segments, place);
            }
            Some(Segments::Keyed(keys, groups)) => {
                let groups = group_by_keys(client, &upload(client, keys), groups)?;
                let segments = || reduction.clone().grouped(&groups);
                return self.reduce_segments(client, segments, place);
            }
            None => {}
        }
        let problem = reduction.problem()?;
        let chosen = match problem.outputs() {
            0 => None,
            _ => Some(Chosen::among(&reduction.choose(client)?)),
        };
        self.run(client, place, chosen, problem.bytes(), || {
            Ok(O::Results::into_list(reduction.clone().run(client)?))
        })
    }

    fn scan<O: Operator<Inputs = One>>(
        self,
        client: &Client,
        scanned: Scanned,
        scan: Scan<'_, O, TensorHandle>,
        place: Place,
    ) -> Result<(Report, Vec<Array>), ResultError> {
        let (output, accumulator) = (self.arguments.element(), self.arguments.accumulate);
        let scan = scanned.described(scan, self.axes, output, accumulator);
        let problem = scan.problem()?;
        let chosen = match problem.is_empty() {
            true => None,
            false => Some(Chosen::among(&scan.choose(client)?)),
        };
        self.run(client, place, chosen, problem.bytes(), || {
            Ok(O::Results::into_list(scan.clone().run(client)?))
        })
    }

    fn reduce_segments<'a, O: Operator>(
        self,
        client: &Client,
        segments: impl Fn() -> SegmentedReduction<'a, O, TensorHandle>,
        place: Place,
    ) -> Result<(Report, Vec<Array>), ResultError> {
        let problem = segments().problem()?;
        let chosen = match problem.segments() * problem.axis().outputs() {
            0 => None,
            _ => Some(Chosen::only(&segments().choose(client)?)),
        };
        self.run(client, place, chosen, problem.bytes(), || {
            Ok(O::Results::into_list(segments().run(client)?))
        })
    }

    /// Times what was chosen, and reads and reports the results.
    fn run(
        self,
        client: &Client,
        place: Place,
        chosen: Option<Chosen>,
        bytes: u64,
        run: impl Fn() -> Result<Vec<TensorHandle>, ReduceError>,
    ) -> Result<(Report, Vec<Array>), ResultError> {
        let (outputs, microseconds) = time(client, || Ok(run()?))?;
        let results = download(client, &outputs)?;
        Ok((self.report(place, chosen, bytes, &results, microseconds), results))
    }

    fn report(
        self,
        place: Place,
        chosen: Option<Chosen>,
        bytes: u64,
        results: &[Array],
        microseconds: f64,
    ) -> Report {
        let Work { arguments, task, input, second, segments, axes } = self;
        let (plan, plan_in_words, expected_microseconds, estimate, refused) = match chosen {
            Some(Chosen { plan, words, expected_microseconds, estimate, refused }) => {
                (Some(plan), words, expected_microseconds, Some(estimate), refused)
            }
            None => {
                let words = "nothing to launch: the result has no elements".into();
                (None, words, 0.0, None, Vec::new())
            }
        };
        Report {
            function: task.function(),
            parameters: arguments.parameters.given().collect(),
            dtype: input.element,
            shape: input.shape.clone(),
            with: second
                .map(|second| Second { dtype: second.element, shape: second.shape.clone() }),
            axes: axes.to_vec(),
            segments: match segments {
                Some(Segments::Neighbours(offsets)) => Some(offsets.shape[0] - 1),
                _ => None,
            },
            groups: arguments.groups,
            output_shape: results[0].shape.clone(),
            device: place.device,
            backend: place.backend.to_string(),
            compiler: place.compiler,
            plan,
            plan_in_words,
            expected_microseconds,
            estimate,
            refused,
            microseconds,
            gigabytes_per_second: gigabytes_per_second(bytes, microseconds),
            results: Results::new(results),
        }
    }
}

/// Runs until the kernels are compiled, then for the median time in microseconds.
fn time<T>(
    client: &Client,
    run: impl Fn() -> Result<T, ResultError>,
) -> Result<(T, f64), ResultError> {
    let waited = || {
        let outputs = run()?;
        future::block_on(client.sync()).map_err(ResultError::device)?;
        Ok::<_, ResultError>(outputs)
    };
    let mut outputs = waited()?;
    let mut microseconds = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        outputs = waited()?;
        microseconds.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok((outputs, median(microseconds)))
}

/// The array on the device.
fn upload(client: &Client, input: &Array) -> TensorHandle {
    let data: &[u8] = if input.bytes.is_empty() { &[0; 8] } else { &input.bytes };
    TensorHandle::new(
        client.create_from_slice(data),
        input.shape.clone(),
        input.strides.clone(),
        storage_type(input.element),
    )
}

/// Where it ran.
struct Place {
    device: String,
    backend: Backend,
    compiler: &'static str,
}

fn print(report: &Report, explain: bool) -> io::Result<()> {
    let Report { function, dtype, shape, axes, output_shape, .. } = report;
    let results = report.results.list();
    let types: Vec<&str> = results.iter().map(|(element, _)| element.name()).collect();
    let types = types.join(" and ");
    let second = match &report.with {
        Some(Second { dtype, shape }) => format!(" and {dtype} {shape:?}"),
        None => String::new(),
    };
    let segments = match (report.segments, report.groups) {
        (Some(segments), _) => format!(" in {}", counted(segments, "segment")),
        (None, Some(groups)) => format!(" in {}", counted(groups, "group")),
        (None, None) => String::new(),
    };
    say(format_args!(
        "{function} of {dtype} {shape:?}{second} over axes {axes:?}{segments} gives {types} \
         {output_shape:?}"
    ))?;
    say(format_args!("plan: {}", report.plan_in_words))?;
    if explain {
        if let Some(estimate) = &report.estimate {
            say(format_args!("expected: {estimate}"))?;
        }
        for Refused { schedule, reason } in &report.refused {
            say(format_args!("not {schedule}: {reason}"))?;
        }
    }
    say(format_args!("device: {} through {}", report.device, report.compiler))?;
    say(format_args!(
        "time: {:.1} us, {:.2} GB/s",
        report.microseconds, report.gigabytes_per_second
    ))?;
    for values in results.iter().filter_map(|(_, values)| *values) {
        let text: Vec<String> = values.iter().map(Number::to_string).collect();
        say(format_args!("values: {}", text.join(" ")))?;
    }
    Ok(())
}
