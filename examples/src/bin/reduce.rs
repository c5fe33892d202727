//! Reduces an array from a file on a GPU.

use std::{error::Error, path::PathBuf, process::ExitCode, time::Instant};

use clap::{Parser, error::ErrorKind};
use reduce_examples::{Array, Backend, OnDevice, on_device};
use reduce_kernels::{
    Axes, Choice, ElementType, OperatorName, Plan, Problem, ReduceError, ScheduleKind,
    cubecl::{future, prelude::*, std::tensor::TensorHandle},
    planner::reduced_axes,
    reduce, storage_type, with_operator,
};
use serde::Serialize;

/// Outputs of at most so many elements are shown.
const MOST_SHOWN: usize = 64;

/// Runs, of which the median's time counts; one more before them compiles the kernels.
const RUNS: usize = 5;

/// Reduces an array in NumPy's .npy format on a GPU and says how.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The array: f16, f32, f64, i32 or u32, in C or Fortran order.
    input: PathBuf,
    /// The operator: sum, mean, prod, min or max.
    #[arg(long)]
    op: OperatorName,
    /// The axes to reduce, such as 0,2; negative ones count from the end. All if not given.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    axes: Option<Vec<isize>>,
    /// Keep the reduced axes with size 1.
    #[arg(long)]
    keepdims: bool,
    /// Write the result to this .npy file.
    #[arg(long)]
    output: Option<PathBuf>,
    /// The backend: cuda or wgpu. The first one compiled in if not given.
    #[arg(long)]
    backend: Option<Backend>,
    /// Say why each other schedule was refused.
    #[arg(long)]
    explain: bool,
    /// Print everything as one JSON object.
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error)
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            error.exit()
        }
        Err(error) => {
            // The first paragraph says what is wrong; usage follows it.
            let text = error.to_string();
            let wrong: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
            let wrong = wrong.join(" ");
            return fail(
                wrong
                    .trim_start_matches("error: ")
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" "),
            );
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error.to_string()),
    }
}

fn fail(message: String) -> ExitCode {
    eprintln!("reduce: {message}");
    ExitCode::from(2)
}

/// What the program tells about a reduction.
#[derive(Serialize)]
struct Report {
    op: &'static str,
    dtype: ElementType,
    shape: Vec<usize>,
    axes: Vec<usize>,
    output_shape: Vec<usize>,
    output_dtype: ElementType,
    device: String,
    backend: String,
    compiler: &'static str,
    plan: Option<Plan>,
    plan_in_words: String,
    expected_microseconds: f64,
    refused: Vec<Refused>,
    microseconds: f64,
    gigabytes_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<Number>>,
}

/// A schedule that was not taken.
#[derive(Serialize)]
struct Refused {
    schedule: ScheduleKind,
    reason: String,
}

/// A number as JSON can hold it: what is not finite becomes a string.
#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Finite(f64),
    Integer(i64),
    NotFinite(String),
}

impl Number {
    fn new(value: f64, element: ElementType) -> Self {
        match (element.is_float(), value.is_finite()) {
            (false, _) => Number::Integer(value as i64),
            (true, true) => Number::Finite(value),
            (true, false) => Number::NotFinite(value.to_string()),
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let input = Array::read(&arguments.input)?;
    let axes = from_the_front(arguments.axes.as_deref(), input.shape.len())?;
    // Before a device is looked for.
    reduced_axes(input.shape.len(), Some(&axes))?;
    let work = Work { arguments, input: &input, axes: &axes };
    let (report, result) = on_device(arguments.backend, work)??;
    if let Some(path) = &arguments.output {
        result.write(path)?;
    }
    if arguments.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        print(&report, arguments.explain);
    }
    Ok(())
}

/// Axes counted from the front; negative ones count from the end. Those out of range stay so, for
/// the library to name.
fn from_the_front(axes: Option<&[isize]>, rank: usize) -> Result<Vec<usize>, String> {
    let Some(axes) = axes else { return Ok((0..rank).collect()) };
    let front = |&axis: &isize| {
        let from_end = (rank as isize).saturating_add(axis);
        usize::try_from(axis)
            .or(usize::try_from(from_end))
            .map_err(|_| format!("axis {axis} is out of range for a tensor of rank {rank}"))
    };
    axes.iter().map(front).collect()
}

#[derive(Clone, Copy)]
struct Work<'a> {
    arguments: &'a Arguments,
    input: &'a Array,
    axes: &'a [usize],
}

impl OnDevice for Work<'_> {
    type Output = Result<(Report, Array), Box<dyn Error>>;

    fn on<R: Runtime>(
        self,
        client: &ComputeClient<R>,
        backend: Backend,
        name: &str,
    ) -> Self::Output {
        let Work { arguments, input, axes } = self;
        let data: &[u8] = if input.bytes.is_empty() { &[0; 8] } else { &input.bytes };
        let tensor = TensorHandle::<R>::new(
            client.create_from_slice(data),
            input.shape.clone(),
            input.strides.clone(),
            storage_type(input.element),
        );
        with_operator!(arguments.op, O => {
            let reduction = reduce::<O, R>(&tensor).over(Axes::List(axes.to_vec()));
            let reduction = if arguments.keepdims { reduction } else { reduction.squeezed() };
            let problem = reduction.problem()?;
            let choice = match problem.outputs() {
                0 => None,
                _ => Some(reduction.plan(client)?),
            };
            let (output, seconds) = time(client, || reduction.clone().run(client))?;
            let result = download(client, &output, reduction.output_type()?)?;
            let place = Place { device: name.into(), backend, compiler: R::name(client) };
            Ok((report(self, place, choice, &problem, &result, seconds), result))
        })
    }
}

/// Runs until the kernels are compiled, then for the median time in seconds.
fn time<R: Runtime>(
    client: &ComputeClient<R>,
    run: impl Fn() -> Result<TensorHandle<R>, ReduceError>,
) -> Result<(TensorHandle<R>, f64), Box<dyn Error>> {
    let wait = || future::block_on(client.sync()).map_err(|error| format!("{error:?}"));
    let mut output = run()?;
    wait()?;
    let mut seconds = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        output = run()?;
        wait()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok((output, seconds[RUNS / 2]))
}

fn download<R: Runtime>(
    client: &ComputeClient<R>,
    output: &TensorHandle<R>,
    element: ElementType,
) -> Result<Array, Box<dyn Error>> {
    let shape = output.shape().to_vec();
    let len = shape.iter().product::<usize>() * element.bytes();
    let bytes = client.read_one(output.handle.clone()).map_err(|error| format!("{error:?}"))?;
    Ok(Array { element, shape, strides: output.strides().to_vec(), bytes: bytes[..len].to_vec() })
}

/// Where it ran.
struct Place {
    device: String,
    backend: Backend,
    compiler: &'static str,
}

fn report(
    work: Work<'_>,
    place: Place,
    choice: Option<Choice>,
    problem: &Problem,
    result: &Array,
    seconds: f64,
) -> Report {
    let Work { arguments, input, axes } = work;
    let values = result.values();
    let shown = values.len() <= MOST_SHOWN;
    Report {
        op: arguments.op.name(),
        dtype: input.element,
        shape: input.shape.clone(),
        axes: axes.to_vec(),
        output_shape: result.shape.clone(),
        output_dtype: result.element,
        device: place.device,
        backend: place.backend.to_string(),
        compiler: place.compiler,
        plan_in_words: match &choice {
            Some(choice) => choice.plan.to_string(),
            None => "nothing to launch: the result has no elements".into(),
        },
        plan: choice.as_ref().map(|choice| choice.plan),
        expected_microseconds: choice.as_ref().map_or(0.0, |choice| choice.expected_microseconds),
        refused: choice
            .iter()
            .flat_map(|choice| &choice.refused)
            .map(|refusal| Refused {
                schedule: refusal.schedule,
                reason: refusal.reason.to_string(),
            })
            .collect(),
        microseconds: seconds * 1e6,
        gigabytes_per_second: problem.bytes() as f64 / seconds * 1e-9,
        values: shown
            .then(|| values.into_iter().map(|value| Number::new(value, result.element)).collect()),
    }
}

fn print(report: &Report, explain: bool) {
    let Report { op, dtype, shape, axes, output_shape, output_dtype, .. } = report;
    println!("{op} of {dtype} {shape:?} over axes {axes:?} gives {output_dtype} {output_shape:?}");
    println!("plan: {}", report.plan_in_words);
    if explain {
        println!("expected: {:.1} us", report.expected_microseconds);
        for Refused { schedule, reason } in &report.refused {
            println!("not {schedule}: {reason}");
        }
    }
    println!("device: {} through {}", report.device, report.compiler);
    println!("time: {:.1} us, {:.2} GB/s", report.microseconds, report.gigabytes_per_second);
    if let Some(values) = &report.values {
        let text: Vec<String> = values
            .iter()
            .map(|value| match value {
                Number::Finite(value) => value.to_string(),
                Number::Integer(value) => value.to_string(),
                Number::NotFinite(text) => text.clone(),
            })
            .collect();
        println!("values: {}", text.join(" "));
    }
}
