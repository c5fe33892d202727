//! What a transformer reduces in a forward pass, at the sizes of a layer of Llama 3 8B, in Burn:
//! with Burn's own reductions and modules, and with those of reduce-burn.
//!
//! The steps are the RMS normalisation of hidden states, the same of their sum with what a block
//! has given, the softmax of attention scores with a causal mask, the cross-entropy of logits and
//! the hits among their maxima, and the global norm of a gradient. Both choices compute each step
//! from the same random numbers; the program says how long a call takes and how far the results are
//! apart.

use std::{error::Error, fmt, process::ExitCode};

use burn_backend::ExecutionError;
use burn_core::module::{Module, Param, ParamId};
use burn_tensor::{Bool, Device, Distribution, Int, Tensor, TensorData};
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::ProgressBar;
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn_examples::{
    BurnDevice, Choice, IS_FUSED, Reductions, burn_device, seconds_per_call, time,
};
use reduce_programs::{
    BACKEND_HELP, Backend,
    command_line::{self, fail, say},
    largest_buffer, progress,
};
use serde::Serialize;

/// What is added to a mean of squares before its root divides.
const EPSILON: f64 = 1e-5;

/// Runs what a transformer reduces in a forward pass, with the reductions of Burn and with those of
/// reduce-burn, on random f32.
///
/// A time is that of a call in a stream of calls; the device is waited for before and after the
/// stream. All calls of a step read the same input, which a large cache may hold. The difference is
/// that of two elements over the larger magnitude, where it is largest.
///
/// Status: 0 if all steps ran, 2 if there is no device or an argument is wrong.
#[derive(Parser)]
#[command(version, verbatim_doc_comment)]
struct Arguments {
    /// Whose reductions run.
    #[arg(long, value_enum, default_value = "both")]
    reductions: Choice,
    /// Take sizes for a software adapter where none is given.
    #[arg(long)]
    small: bool,
    /// Tokens: rows of hidden states and of logits, queries and keys of attention [default: 2048,
    /// small 64].
    #[arg(long, value_parser = size)]
    tokens: Option<usize>,
    /// Heads of attention [default: 32, small 4].
    #[arg(long, value_parser = size)]
    heads: Option<usize>,
    /// Length of a hidden state [default: 4096, small 256].
    #[arg(long, value_parser = size)]
    hidden: Option<usize>,
    /// Logits of a token [default: 128256, small 4096].
    #[arg(long, value_parser = size)]
    vocab: Option<usize>,
    /// Elements of the gradient [default: 218103808, the matrices of a layer; small 262144].
    #[arg(long, value_parser = size)]
    parameters: Option<usize>,
    /// The seed of the random numbers.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[arg(long, help = BACKEND_HELP)]
    backend: Option<Backend>,
}

fn size(text: &str) -> Result<usize, SizeError> {
    match text.parse() {
        Ok(size) if size > 0 => Ok(size),
        _ => Err(SizeError::NoSize(text.into())),
    }
}

/// A size that cannot be had.
#[derive(Debug, thiserror::Error)]
enum SizeError {
    #[error("`{0}` is no size: expected a whole number above 0")]
    NoSize(String),
    #[error("{tensor} of shape {shape:?} take more than the largest buffer here, {largest} bytes")]
    TooLarge { tensor: &'static str, shape: Vec<usize>, largest: u64 },
}

/// The sizes of all tensors.
struct Sizes {
    hidden_states: [usize; 2],
    scores: [usize; 3],
    logits: [usize; 2],
    gradient: [usize; 1],
}

impl Sizes {
    fn of(arguments: &Arguments) -> Self {
        let or = |given: Option<usize>, usual, small| {
            given.unwrap_or(if arguments.small { small } else { usual })
        };
        let tokens = or(arguments.tokens, 2048, 64);
        Self {
            hidden_states: [tokens, or(arguments.hidden, 4096, 256)],
            scores: [or(arguments.heads, 32, 4), tokens, tokens],
            logits: [tokens, or(arguments.vocab, 128_256, 4096)],
            gradient: [or(arguments.parameters, 218_103_808, 1 << 18)],
        }
    }

    /// # Errors
    ///
    /// The first tensor that is too large for a buffer.
    fn check(&self, largest: u64) -> Result<(), SizeError> {
        let tensors = [
            ("hidden states", &self.hidden_states[..]),
            ("scores", &self.scores),
            ("logits", &self.logits),
            ("gradients", &self.gradient),
        ];
        for (tensor, shape) in tensors {
            let bytes = shape.iter().try_fold(size_of::<f32>() as u64, |bytes, &extent| {
                bytes.checked_mul(extent as u64)
            });
            if bytes.is_none_or(|bytes| bytes > largest) {
                return Err(SizeError::TooLarge { tensor, shape: shape.into(), largest });
            }
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    let done = command_line::arguments()
        .map_err(Into::into)
        .and_then(|arguments: Arguments| run(&arguments));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("forward", error),
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let report = report(arguments, &burn_device(arguments.backend)?)?;
    if arguments.json {
        say(serde_json::to_string(&report)?)?;
    } else {
        say(&report)?;
    }
    Ok(())
}

fn report(arguments: &Arguments, device: &BurnDevice) -> Result<Report, Box<dyn Error>> {
    let sizes = Sizes::of(arguments);
    sizes.check(largest_buffer(device.of_cubecl.client()))?;
    Ok(Report {
        device: device.name(),
        backend: device.backend().to_string(),
        fused: IS_FUSED,
        seed: arguments.seed,
        reductions: arguments.reductions.reductions(),
        steps: steps(arguments, &sizes, &device.device)?,
    })
}

/// All steps of the pass. Each creates its input and frees it.
fn steps(
    arguments: &Arguments,
    sizes: &Sizes,
    device: &Device,
) -> Result<Vec<Step>, ExecutionError> {
    device.seed(arguments.seed);
    let bench = Bench {
        reductions: arguments.reductions.reductions(),
        progress: progress(6, "{bar:30} {pos} of {len} {wide_msg}", arguments.json),
        device: device.clone(),
    };

    let x = bench.random(sizes.hidden_states);
    let residual = bench.random(sizes.hidden_states);
    let [tokens, hidden] = sizes.hidden_states;
    let norms = Norms::new(bench.random([hidden]));
    let normalisation = bench
        .step("RMS normalisation", x.clone(), |reductions, x| norms.normalized(reductions, x))?;
    let connection = bench.step("residual and normalisation", x, |reductions, x| {
        norms.connected(reductions, x, residual.clone())
    })?;
    drop(residual);

    let x = bench.random(sizes.scores);
    let [heads, ..] = sizes.scores;
    // The root of a head's features.
    let scale = (hidden as f64 / heads as f64).sqrt().recip();
    let later = Tensor::<2, Bool>::tril_mask([tokens, tokens], 0, device);
    let mask = Tensor::zeros([tokens, tokens], device).mask_fill(later, f32::NEG_INFINITY);
    let mask: Tensor<3> = mask.unsqueeze();
    let softmax = bench.step("softmax of masked scores", x, |reductions, x| {
        reductions.attention(x, scale, mask.clone())
    })?;
    drop(mask);

    let x = bench.random(sizes.logits);
    let [_, vocab] = sizes.logits;
    let mut random = StdRng::seed_from_u64(arguments.seed);
    let classes: Vec<i32> = (0..tokens).map(|_| random.random_range(0..vocab) as i32).collect();
    let classes = Tensor::<1, Int>::from_data(TensorData::new(classes, [tokens]), device);
    let cross_entropy = bench.step("cross-entropy", x.clone(), |reductions, x| {
        reductions.cross_entropy(x, classes.clone())
    })?;

    // Half of the classes are the maxima.
    let maxima = Reductions::Burn.argmax(x.clone()).reshape([tokens]);
    let rows = Tensor::arange(0..tokens as i64, device);
    let classes = maxima.mask_where(rows.lower_elem((tokens / 2) as i64), classes);
    let hits = |reductions: Reductions, x| reductions.hits(x, classes.clone());
    let hits = bench.step("hits of the maxima", x, hits)?;

    let x = bench.random(sizes.gradient);
    let norm = bench.step("norm of a gradient", x, |reductions, x| reductions.norm(x))?;

    bench.progress.finish_and_clear();
    Ok(vec![normalisation, connection, softmax, cross_entropy, hits, norm])
}

/// A normalisation of hidden states as a module of Burn, and as ours with the same weight.
struct Norms {
    burn: burn_nn::RmsNorm,
    ours: reduce_burn::nn::RmsNorm,
}

impl Norms {
    fn new(weight: Tensor<1>) -> Self {
        let ([hidden], device) = (weight.dims(), weight.device());
        let config = burn_nn::RmsNormConfig::new(hidden).with_epsilon(EPSILON);
        let mut burn = config.init(&device);
        burn.gamma = Param::initialized(ParamId::new(), weight);
        let config = reduce_burn::nn::RmsNormConfig::new(hidden).with_epsilon(EPSILON);
        let ours = config.init(&device).load_record(burn.clone().into_record());
        Self { burn, ours }
    }

    fn normalized(&self, reductions: Reductions, x: Tensor<2>) -> Tensor<2> {
        match reductions {
            Reductions::Burn => self.burn.forward(x),
            Reductions::Ours => self.ours.forward(x),
        }
    }

    /// The sum of what a block gives and of the hidden states before it, and the sum normalised.
    fn connected(
        &self,
        reductions: Reductions,
        block: Tensor<2>,
        hidden: Tensor<2>,
    ) -> (Tensor<2>, Tensor<2>) {
        match reductions {
            Reductions::Burn => {
                let sum = hidden + block;
                (sum.clone(), self.burn.forward(sum))
            }
            Reductions::Ours => self.ours.forward_add(block, hidden),
        }
    }
}

/// What all steps have in common.
struct Bench {
    reductions: &'static [Reductions],
    progress: ProgressBar,
    device: Device,
}

impl Bench {
    /// Normally distributed numbers.
    fn random<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), &self.device)
    }

    /// Compares the results of a call and times it.
    fn step<const D: usize, T: Results>(
        &self,
        name: &'static str,
        input: Tensor<D>,
        call: impl Fn(Reductions, Tensor<D>) -> T,
    ) -> Result<Step, ExecutionError> {
        self.progress.set_message(name);
        let mut results = self.reductions.iter().map(|&reductions| call(reductions, input.clone()));
        let one = results.next().expect("a choice has reductions");
        let bytes = one.bytes();
        let difference = results.next().map(|other| one.relative_difference(other));
        let seconds = self.reductions.iter().map(|&reductions| {
            seconds_per_call(&self.device, bytes, || call(reductions, input.clone()))
        });
        let step = Step {
            name,
            shape: input.dims().to_vec(),
            seconds: seconds.collect::<Result<_, _>>()?,
            largest_relative_difference: difference,
        };
        self.progress.inc(1);
        Ok(step)
    }
}

/// What a step computes.
trait Results {
    /// The size in memory.
    fn bytes(&self) -> usize;

    /// The largest difference between two elements, over the larger of their magnitudes.
    fn relative_difference(self, other: Self) -> f64;
}

impl<const D: usize> Results for Tensor<D> {
    fn bytes(&self) -> usize {
        self.shape().num_elements() * size_of::<f32>()
    }

    fn relative_difference(self, other: Self) -> f64 {
        let larger = self.clone().abs().max_pair(other.clone().abs());
        let shares = (self - other).abs() / larger.clamp_min(f32::MIN_POSITIVE);
        shares.max().into_scalar()
    }
}

impl Results for Tensor<1, Int> {
    fn bytes(&self) -> usize {
        self.shape().num_elements() * size_of::<i32>()
    }

    fn relative_difference(self, other: Self) -> f64 {
        self.float().relative_difference(other.float())
    }
}

impl<A: Results, B: Results> Results for (A, B) {
    fn bytes(&self) -> usize {
        self.0.bytes() + self.1.bytes()
    }

    fn relative_difference(self, other: Self) -> f64 {
        let first = self.0.relative_difference(other.0);
        first.max(self.1.relative_difference(other.1))
    }
}

/// All figures of a run.
#[derive(Serialize)]
struct Report {
    device: String,
    backend: String,
    fused: bool,
    seed: u64,
    reductions: &'static [Reductions],
    steps: Vec<Step>,
}

#[derive(Serialize)]
struct Step {
    name: &'static str,
    /// Of the tensor that is reduced.
    shape: Vec<usize>,
    /// Time of a call with each of [`Report::reductions`].
    seconds: Vec<f64>,
    /// Between both, if both ran.
    largest_relative_difference: Option<f64>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fused = if self.fused { "fused" } else { "not fused" };
        let Self { device, backend, seed, .. } = self;
        writeln!(f, "{device} through {backend}, {fused}, seed {seed}\n")?;
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        let mut head = vec!["step".into(), "shape".into()];
        head.extend(self.reductions.iter().map(Reductions::to_string));
        let both = self.reductions.len() == 2;
        if both {
            head.extend(["times as fast".into(), "largest relative difference".into()]);
        }
        table.set_header(head);
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for step in &self.steps {
            let extents: Vec<String> = step.shape.iter().map(usize::to_string).collect();
            let mut row = vec![step.name.to_owned(), extents.join(" × ")];
            row.extend(step.seconds.iter().map(|&seconds| time(seconds)));
            if let ([burn, ours], Some(difference)) =
                (&step.seconds[..], step.largest_relative_difference)
            {
                row.extend([format!("{:.2}", burn / ours), format!("{difference:.1e}")]);
            }
            table.add_row(row);
        }
        write!(f, "{}", table.trim_fmt())
    }
}
