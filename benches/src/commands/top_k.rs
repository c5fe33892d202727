//! Times selections, in the words of the peers' programs.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use reduce_benches::{
    Case, PlanTextError, Stated, inputs,
    selecting::{Selecting, SelectingError, Selection},
};
use reduce_kernels::{
    ElementType, ReduceError,
    cubecl::{prelude::*, std::tensor::TensorHandle},
    planner::TopKPlan,
};
use reduce_programs::{Backend, BackendError, FileError, MeasureError, OnDevice, on_device};

use super::{ended, timed_plans::TimedCase};

/// Times cases over rotating buffers (cold cache) and prints `OURS topk64 dtype [shape] axis A: T
/// us B GB/s`, the format of the peers' programs. Besides `topk64` there are `bottomk64`,
/// `kthvalue100`, `median` and `nanmedian`; `router8`, which gives the softmax of the selected
/// elements, `probabilities8`, which gives their shares in that of the slice, and `mask8`, which
/// replaces all other elements. Without an axis, slices lie along the last one. The bytes are those
/// of the input.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    stated: Stated,
    /// The elements of each slice.
    #[arg(long, value_enum, default_value_t)]
    data: Data,
}

/// Elements whose order decides how often a buffer is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
enum Data {
    /// Random ones.
    #[default]
    Random,
    /// Each greater than the one before, of f32.
    Ascending,
    /// Each less than the one before, of f32.
    Descending,
    /// The same number everywhere, of f32.
    Equal,
    /// Two numbers in turn at random, of f32.
    Two,
    /// NaN everywhere, of f32.
    Nan,
    /// 64 numbers at random, of f32.
    Ties,
    /// Random numbers below the least normal one, of f32.
    Denormal,
}

impl Data {
    fn suits(self, place: &Case) -> bool {
        let last = place.stored.len() - 1;
        self == Data::Random || place.axes() == last.into() && place.element == ElementType::F32
    }
}

/// What stops the program.
#[derive(Debug, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Case(#[from] SelectingError),
    #[error("{words}: `--data` other than random is of f32 along the last axis")]
    Data { words: String },
    #[error(transparent)]
    Plan(#[from] PlanTextError),
    #[error(transparent)]
    Backend(#[from] BackendError),
    #[error("{what}: {source}")]
    Measure { what: String, source: MeasureError },
}

/// Runs the command.
pub(crate) fn command(arguments: &Arguments) -> ExitCode {
    ended("top_k", run(arguments))
}

fn run(Arguments { stated, data }: &Arguments) -> Result<(), Stop> {
    let cases = stated.cases()?;
    let cases = cases.iter().map(Selecting::parse).collect::<Result<Vec<_>, _>>()?;
    if let Some(Selecting { words, .. }) = cases.iter().find(|case| !data.suits(&case.place)) {
        return Err(Stop::Data { words: words.clone() });
    }
    let (plans, sample_seconds) = (stated.plans()?, stated.sample_seconds());
    on_device(stated.backend, Times { cases, plans, sample_seconds, data: *data })?
}

struct Times {
    cases: Vec<Selecting>,
    plans: Vec<TopKPlan>,
    sample_seconds: f64,
    data: Data,
}

impl OnDevice for Times {
    type Output = Result<(), Stop>;

    fn on(self, client: &Client, _: Backend, _: &str) -> Self::Output {
        for case in &self.cases {
            self.time(client, case)
                .map_err(|source| Stop::Measure { what: case.words.clone(), source })?;
            client.memory_cleanup().expect("no program records a graph");
        }
        Ok(())
    }
}

impl Times {
    fn time(&self, client: &Client, case: &Selecting) -> Result<(), MeasureError> {
        let mut inputs = inputs(client, &case.place, None);
        if self.data != Data::Random {
            let elements = elements(self.data, &case.place);
            for input in &mut inputs {
                input.handle = client.create_from_slice(f32::as_bytes(&elements));
            }
        }
        let input = |call: usize| &inputs[call % inputs.len()];
        let Self { plans, sample_seconds, .. } = self;
        let (words, bytes) = (&case.words[..], case.place.input_bytes());
        let timed = TimedCase { client, words, bytes, sample_seconds: *sample_seconds };
        timed.print(&chosen(client, case, &inputs[0])?, plans, |&plan, call| {
            run_once(client, case, input(call), plan)
        })
    }
}

/// The elements of all slices.
fn elements(data: Data, place: &Case) -> Vec<f32> {
    let len = place.stored.last().copied().unwrap_or(1);
    // Knuth's multiplicative generator of MMIX.
    let mut state = 1u64;
    let mut random = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as u32
    };
    let element = |nth: usize| match data {
        Data::Random => random() as f32,
        Data::Ascending => (nth % len) as f32,
        Data::Descending => -((nth % len) as f32),
        Data::Equal => 1.0,
        Data::Two => (random() & 1) as f32,
        Data::Nan => f32::NAN,
        Data::Ties => (random() & 63) as f32,
        Data::Denormal => f32::from_bits(random() & 0x7f_ffff),
    };
    (0..place.elements()).map(element).collect()
}

fn chosen(
    client: &Client,
    case: &Selecting,
    input: &TensorHandle,
) -> Result<TopKPlan, ReduceError> {
    match case.selection {
        Selection::Median { ignores_nan } => case.median(input, ignores_nan).plan(client),
        Selection::Mask(k) => Ok(case.of(k, input).only_last().choose(client)?.plan),
        Selection::Largest(k)
        | Selection::Smallest(k)
        | Selection::Kth(k)
        | Selection::Probabilities(_, k) => Ok(case.of(k, input).choose(client)?.plan),
    }
}

fn run_once(
    client: &Client,
    case: &Selecting,
    input: &TensorHandle,
    plan: TopKPlan,
) -> Result<(), ReduceError> {
    match case.selection {
        Selection::Median { ignores_nan } => {
            case.median(input, ignores_nan).with_plan(plan).run(client).map(drop)
        }
        Selection::Mask(k) => {
            let selection = case.of(k, input).with_plan(plan);
            selection.keep_only(client, f32::NEG_INFINITY).map(drop)
        }
        Selection::Largest(k)
        | Selection::Smallest(k)
        | Selection::Kth(k)
        | Selection::Probabilities(_, k) => case.of(k, input).with_plan(plan).run(client).map(drop),
    }
}
