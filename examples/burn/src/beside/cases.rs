//! The reductions to time: each as Burn's users write it, and with reduce-burn.

use std::fmt;

use burn_linalg::{Norm, vector_norm};
use burn_tensor::{
    Bool, DType, Device, Distribution, Int, Tensor, TensorData, activation::relu, kind::Basic,
};
use reduce_burn::squeeze;

/// The inputs of one rotation hold at least this many bytes together, several times the size of
/// the largest L2 cache, so that each call reads from memory.
const ROTATED_BYTES: u64 = 320 << 20;

/// Most inputs of one call, which small ones need.
const MOST_INPUTS: u64 = 32;

/// What a batch normalisation adds to the variance.
const EPSILON: f64 = 1e-5;

/// `--small` divides the number of elements by 2 to this power.
const SMALL_LOG2: u32 = 6;

/// What a case reduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// f32, rank 1.
    Flat,
    /// f32, rank 2.
    Matrix,
    /// f32, a transposed view of a matrix.
    Transposed,
    /// f16, rank 2.
    Half,
    /// f32, rank 4: `[batch, channels, height, width]`.
    Images,
    /// Images with a weight and a bias of each channel, `[1, channels, 1, 1]`.
    Weighted,
    /// i32, rank 2.
    Ints,
    /// Truth values, rank 1.
    FlatBools,
    /// Truth values, rank 2.
    Bools,
}

impl Form {
    fn element(self) -> &'static str {
        match self {
            Form::Flat | Form::Matrix | Form::Transposed | Form::Images | Form::Weighted => "f32",
            Form::Half => "f16",
            Form::Ints => "i32",
            Form::FlatBools | Form::Bools => "bool",
        }
    }

    fn bytes_per_element(self) -> u64 {
        match self.element() {
            "f16" => 2,
            "bool" => 1,
            _ => 4,
        }
    }
}

/// How far a result may be from the result that it is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tolerance {
    /// This share of the largest value of the result.
    Relative(f64),
    /// Values are equal except for this share of them: positions differ where values tie.
    Ties(f64),
}

/// Results in f32 that add many elements.
const F32: Tolerance = Tolerance::Relative(1e-4);
/// Results that are rounded to f16.
const F16: Tolerance = Tolerance::Relative(2e-3);
/// Results that no rounding changes.
const EXACT: Tolerance = Tolerance::Relative(0.0);
const POSITIONS: Tolerance = Tolerance::Ties(0.002);

impl Tolerance {
    /// Whether `found` agrees with `expected`.
    pub(crate) fn holds(self, found: &[f64], expected: &[f64]) -> bool {
        if found.len() != expected.len() {
            return false;
        }
        let pairs = || found.iter().zip(expected);
        match self {
            Tolerance::Relative(share) => {
                let largest = expected.iter().fold(0.0f64, |most, value| most.max(value.abs()));
                // NaN is close to nothing.
                pairs().all(|(a, b)| (a - b).abs() <= share * largest)
            }
            Tolerance::Ties(share) => {
                let differ = pairs().filter(|(a, b)| a != b).count();
                differ as f64 <= share * found.len() as f64
            }
        }
    }
}

/// A reduction to time.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// What is computed.
    operation: &'static str,
    /// The form of the input.
    form: Form,
    /// Its shape. That of a transposed view is the shape in memory.
    shape: Vec<usize>,
    /// The axes in words.
    axes: &'static str,
    /// The range of random values.
    range: (f64, f64),
    /// How engines may differ.
    pub(crate) tolerance: Tolerance,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = if self.form == Form::Transposed { " transposed" } else { "" };
        let (operation, element) = (self.operation, self.form.element());
        write!(f, "{operation} {element} {:?}{view} axis {}", self.shape, self.axes)
    }
}

impl Case {
    /// The bytes of one input.
    pub(crate) fn bytes(&self) -> u64 {
        self.shape.iter().map(|&n| n as u64).product::<u64>() * self.form.bytes_per_element()
    }

    /// The case with 1/64 of the elements, unless it is small already.
    pub(crate) fn reduced(mut self) -> Self {
        if self.bytes() < 1 << 20 {
            return self;
        }
        for _ in 0..SMALL_LOG2 {
            let even = self.shape.iter_mut().filter(|size| **size % 2 == 0);
            if let Some(largest) = even.max_by_key(|size| **size) {
                *largest /= 2;
            }
        }
        self
    }

    /// Random inputs, the same ones in every process. The device may still be making
    /// them.
    pub(crate) fn inputs(&self, device: &Device) -> Vec<Input> {
        device.seed(1);
        let count = ROTATED_BYTES.div_ceil(self.bytes()).clamp(2, MOST_INPUTS);
        (0..count).map(|_| self.input(device)).collect()
    }

    fn input(&self, device: &Device) -> Input {
        let (low, high) = self.range;
        let values = Distribution::Uniform(low, high);
        fn shaped<const D: usize>(shape: &[usize]) -> [usize; D] {
            shape.try_into().expect("the rank is the form's")
        }
        let flat = || Tensor::<1>::random(shaped::<1>(&self.shape), values, device);
        let matrix = || Tensor::<2>::random(shaped::<2>(&self.shape), values, device);
        let images = || Tensor::<4>::random(shaped::<4>(&self.shape), values, device);
        match self.form {
            Form::Flat => Input::Flat(flat()),
            Form::Matrix => Input::Matrix(matrix()),
            Form::Transposed => Input::Transposed(matrix().transpose()),
            Form::Half => Input::Half(matrix().cast(DType::F16)),
            Form::Images => Input::Images(images()),
            Form::Weighted => {
                let channels = [1, self.shape[1], 1, 1];
                let weight = Tensor::random(channels, Distribution::Uniform(0.5, 1.5), device);
                let bias = Tensor::random(channels, Distribution::Uniform(-0.5, 0.5), device);
                Input::Weighted((images(), weight, bias))
            }
            Form::Ints => Input::Ints(Tensor::random(shaped::<2>(&self.shape), values, device)),
            Form::FlatBools => Input::FlatBools(flat().greater_elem(0.0)),
            Form::Bools => Input::Bools(matrix().greater_elem(0.0)),
        }
    }
}

/// An input.
#[allow(clippy::large_enum_variant, reason = "a case has 32 of them at most")]
pub(crate) enum Input {
    Flat(Tensor<1>),
    Matrix(Tensor<2>),
    Transposed(Tensor<2>),
    Half(Tensor<2>),
    Images(Tensor<4>),
    Weighted(Weighted),
    Ints(Tensor<2, Int>),
    FlatBools(Tensor<1, Bool>),
    Bools(Tensor<2, Bool>),
}

/// Images, and a weight and a bias of each channel.
type Weighted = (Tensor<4>, Tensor<4>, Tensor<4>);

/// The results of a call, which may still be in the making.
pub(crate) trait Outputs {
    /// Waits for the results and reads them.
    fn read(self: Box<Self>) -> Vec<TensorData>;
}

impl<const D: usize, K: Basic> Outputs for Tensor<D, K> {
    fn read(self: Box<Self>) -> Vec<TensorData> {
        vec![self.into_data()]
    }
}

impl<S: Outputs, T: Outputs> Outputs for (S, T) {
    fn read(self: Box<Self>) -> Vec<TensorData> {
        let (first, second) = *self;
        let mut results = Box::new(first).read();
        results.extend(Box::new(second).read());
        results
    }
}

/// A call of one engine.
pub(crate) type Call = fn(&Input) -> Box<dyn Outputs>;

/// The two ways to compute a case.
pub(crate) struct Calls {
    /// With Burn's own methods.
    pub(crate) burn: Call,
    /// With reduce-burn.
    pub(crate) ours: Call,
}

/// The mean and the variance of each channel as `BatchNorm::forward_train` of burn-nn 0.22 computes
/// them.
fn batch_statistics(x: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
    let [batch, channels, height, width] = x.dims();
    let rows = [channels, batch * height * width];
    let per_channel = [1, channels, 1, 1];
    let mean = x.clone().swap_dims(0, 1).reshape(rows).mean_dim(1).reshape(per_channel);
    let squares = x.sub(mean.clone()).square();
    let var = squares.swap_dims(0, 1).reshape(rows).mean_dim(1).reshape(per_channel);
    (mean, var)
}

/// What `BatchNorm::forward_train` of burn-nn 0.22 computes, without the running statistics.
fn batch_norm((x, weight, bias): Weighted) -> Tensor<4> {
    let (mean, var) = batch_statistics(x.clone());
    let normalised = x.sub(mean).div(var.add_scalar(EPSILON).sqrt());
    normalised.mul(weight).add(bias)
}

/// The gradients that a layer of images, a batch normalisation and a rectifier, gives for its
/// input, its weight and its bias. Without the rectifier, every gradient of the result would be 1,
/// and that of the input 0.
fn layer_gradients(
    inputs: Weighted,
    normalise: impl FnOnce(Weighted) -> Tensor<4>,
) -> (Tensor<4>, (Tensor<4>, Tensor<4>)) {
    let tracked = |x: Tensor<4>| x.autodiff().require_grad();
    let (x, weight, bias) = (tracked(inputs.0), tracked(inputs.1), tracked(inputs.2));
    let result = relu(normalise((x.clone(), weight.clone(), bias.clone())));
    let gradients = result.backward();
    let of = |x: Tensor<4>| x.grad(&gradients).expect("a tracked tensor has a gradient");
    (of(x), (of(weight), of(bias)))
}

fn composed_logsumexp(x: Tensor<2>) -> Tensor<2> {
    let largest = x.clone().max_dim(1);
    x.sub(largest.clone()).exp().sum_dim(1).log().add(largest)
}

/// The gradient that `forward` followed by `backward` gives for its input.
fn gradient(x: Tensor<2>, forward: impl FnOnce(Tensor<2>) -> Tensor<2>) -> Tensor<2> {
    let x = x.autodiff().require_grad();
    let gradients = forward(x.clone()).backward();
    x.grad(&gradients).expect("a tracked tensor has a gradient")
}

macro_rules! cases {
    ($(
        $operation:literal $form:ident $shape:tt axis $axes:literal, $range:expr, $tolerance:ident:
        |$x:ident| $burn:expr, $ours:expr;
    )*) => {
        /// The cases at their full size.
        pub(crate) fn cases() -> Vec<Case> {
            vec![$(Case {
                operation: $operation,
                form: Form::$form,
                shape: $shape.to_vec(),
                axes: $axes,
                range: $range,
                tolerance: $tolerance,
            }),*]
        }

        /// How to compute each of [`cases()`], in the same order.
        pub(crate) fn calls() -> Vec<Calls> {
            vec![$(Calls {
                burn: |input| {
                    let Input::$form($x) = input else { unreachable!("the form is the case's") };
                    let $x = $x.clone();
                    Box::new($burn)
                },
                ours: |input| {
                    let Input::$form($x) = input else { unreachable!("the form is the case's") };
                    let $x = $x.clone();
                    Box::new($ours)
                },
            }),*]
        }
    };
}

/// Sums of values of one sign have no cancellation, so a share of the result is a fair tolerance.
const POSITIVE: (f64, f64) = (0.0, 1.0);
const SIGNED: (f64, f64) = (-1.0, 1.0);
/// A product of a thousand of these neither overflows nor vanishes.
const NEAR_ONE: (f64, f64) = (0.95, 1.05);
const WHOLE: (f64, f64) = (-100.0, 100.0);
/// About half of the rows of 1024 are true throughout.
const NEARLY_ALL_TRUE: (f64, f64) = (-0.0007, 1.0);
/// About one in ten million is true: Burn cannot stop early, and neither can reduce-burn.
const NEARLY_ALL_FALSE: (f64, f64) = (-1.0, 1e-7);

cases! {
    "mean" Flat [1 << 26] axis "all", POSITIVE, F32:
        |x| x.mean(), reduce_burn::mean(x, squeeze::<1>(..));
    "sum" Flat [1 << 26] axis "all", POSITIVE, F32:
        |x| x.sum(), reduce_burn::sum(x, squeeze::<1>(..));
    "max" Flat [1 << 26] axis "all", SIGNED, EXACT:
        |x| x.max(), reduce_burn::max(x, squeeze::<1>(..));
    "sum" Flat [1 << 24] axis "all", POSITIVE, F32:
        |x| x.sum(), reduce_burn::sum(x, squeeze::<1>(..));
    "sum" Matrix [262_144, 256] axis "0", POSITIVE, F32:
        |x| x.sum_dim(0), reduce_burn::sum(x, 0);
    "sum" Matrix [65536, 1024] axis "1", POSITIVE, F32:
        |x| x.sum_dim(1), reduce_burn::sum(x, 1);
    "sum" Matrix [65536, 1024] axis "0", POSITIVE, F32:
        |x| x.sum_dim(0), reduce_burn::sum(x, 0);
    "sum" Matrix [16, 1 << 22] axis "1", POSITIVE, F32:
        |x| x.sum_dim(1), reduce_burn::sum(x, 1);
    "sum" Matrix [8192, 8192] axis "1", POSITIVE, F32:
        |x| x.sum_dim(1), reduce_burn::sum(x, 1);
    "sum" Transposed [8192, 8192] axis "1", POSITIVE, F32:
        |x| x.sum_dim(1), reduce_burn::sum(x, 1);
    "mean" Half [8192, 8192] axis "1", POSITIVE, F16:
        |x| x.mean_dim(1), reduce_burn::mean(x, 1);
    "max" Matrix [65536, 1024] axis "1", SIGNED, EXACT:
        |x| x.max_dim(1), reduce_burn::max(x, 1);
    "max" Matrix [262_144, 256] axis "0", SIGNED, EXACT:
        |x| x.max_dim(0), reduce_burn::max(x, 0);
    "min" Images [64, 256, 56, 56] axis "(0, 2, 3)", SIGNED, EXACT:
        |x| x.min_dims(&[0, 2, 3]), reduce_burn::min(x, [0, 2, 3]);
    "sum" Images [64, 256, 56, 56] axis "(0, 2, 3)", POSITIVE, F32:
        |x| x.sum_dims(&[0, 2, 3]), reduce_burn::sum(x, [0, 2, 3]);
    "mean" Images [64, 256, 56, 56] axis "(0, 2, 3)", POSITIVE, F32:
        |x| x.mean_dims(&[0, 2, 3]), reduce_burn::mean(x, [0, 2, 3]);
    "mean and var" Images [64, 256, 56, 56] axis "(0, 2, 3)", POSITIVE, F32:
        |x| batch_statistics(x), reduce_burn::mean_var(x, [0, 2, 3], 0.0);
    "var" Matrix [65536, 1024] axis "1", SIGNED, F32:
        |x| x.var(1), reduce_burn::var(x, 1, 1.0);
    "var" Matrix [65536, 1024] axis "0", SIGNED, F32:
        |x| x.var(0), reduce_burn::var(x, 0, 1.0);
    "argmax" Matrix [65536, 1024] axis "1", SIGNED, POSITIONS:
        |x| x.argmax(1), reduce_burn::argmax(x, 1);
    "argmax" Matrix [262_144, 256] axis "0", SIGNED, POSITIONS:
        |x| x.argmax(0), reduce_burn::argmax(x, 0);
    "logsumexp" Matrix [65536, 1024] axis "1", SIGNED, F32:
        |x| composed_logsumexp(x), reduce_burn::logsumexp(x, 1);
    "logsumexp" Matrix [4096, 50257] axis "1", SIGNED, F32:
        |x| composed_logsumexp(x), reduce_burn::logsumexp(x, 1);
    "any" FlatBools [1 << 26] axis "all", NEARLY_ALL_FALSE, EXACT:
        |x| x.any(), reduce_burn::any(x, squeeze::<1>(..));
    "all" Bools [65536, 1024] axis "1", NEARLY_ALL_TRUE, EXACT:
        |x| x.all_dim(1), reduce_burn::all(x, 1);
    "count of true" Bools [65536, 1024] axis "1", SIGNED, EXACT:
        |x| x.int().sum_dim(1), reduce_burn::count_nonzero(x, 1);
    "L2 norm" Matrix [65536, 1024] axis "1", SIGNED, F32:
        |x| vector_norm(x, Norm::L2, 1), reduce_burn::norm_l2(x, 1);
    "L1 norm" Flat [1 << 26] axis "all", SIGNED, F32:
        |x| vector_norm(x, Norm::L1, 0), reduce_burn::norm_l1(x, 0);
    "sum" Ints [65536, 1024] axis "1", WHOLE, EXACT:
        |x| x.sum_dim(1), reduce_burn::sum(x, 1);
    "prod" Matrix [65536, 1024] axis "1", NEAR_ONE, F32:
        |x| x.prod_dim(1), reduce_burn::prod(x, 1);
    "sum" Flat [1024] axis "all", POSITIVE, F32:
        |x| x.sum(), reduce_burn::sum(x, squeeze::<1>(..));
    "sum" Matrix [64, 1024] axis "1", POSITIVE, F32:
        |x| x.sum_dim(1), reduce_burn::sum(x, 1);
    "var forward and backward" Matrix [65536, 1024] axis "1", SIGNED, F32:
        |x| gradient(x, |x| x.var(1)), gradient(x, |x| reduce_burn::var(x, 1, 1.0));
    "max forward and backward" Matrix [65536, 1024] axis "1", SIGNED, EXACT:
        |x| gradient(x, |x| x.max_dim(1)), gradient(x, |x| reduce_burn::max(x, 1));
    "batch norm forward" Weighted [64, 256, 56, 56] axis "(0, 2, 3)", SIGNED, F32:
        |x| batch_norm(x),
        reduce_burn::layer_norm(x.0, [0, 2, 3], Some(x.1), Some(x.2), EPSILON);
    "batch norm and relu forward and backward" Weighted [64, 256, 56, 56] axis "(0, 2, 3)", SIGNED, F32:
        |x| layer_gradients(x, batch_norm),
        layer_gradients(x, |(x, weight, bias)| {
            reduce_burn::layer_norm(x, [0, 2, 3], Some(weight), Some(bias), EPSILON)
        });
}
