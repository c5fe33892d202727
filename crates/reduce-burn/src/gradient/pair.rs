//! The gradients of reductions of two inputs: the formulas of the backward pass.
//!
//! The forward pass saves both inputs, which are second handles to their memory, not copies.
//! Formulas are made of Burn's operations and of reductions of the same backend, in f32 at least.
//! Where the second input is repeated, its gradient is the sum over the repeated axes.

use burn_backend::{Backend, DType, TensorMetadata, tensor::FloatTensor};
use burn_tensor::Shape;
use reduce_kernels::by_name::{OperatorName, OperatorOptions, PairName, PairOptions};

use super::Gradient;
use crate::pair::PairReduction;
use crate::{
    backend::{self, ReduceBackend, reduced, reduced_pair},
    error::ReduceBurnError,
    operand::Operand,
    reduction::Reduction,
    tensor::{AnyTensor, floats},
};

/// How the gradient of a result reaches the inputs.
#[derive(Clone, Debug)]
pub(crate) enum ResultGradient<B: Backend> {
    /// The result depends on the first input alone.
    OfFirst(Gradient<B>),
    /// The result depends on both.
    OfBoth(PairGradient<B>),
}

/// How the gradient of one result reaches both inputs.
#[derive(Clone, Debug)]
pub(crate) struct PairGradient<B: Backend> {
    pair: PairReduction,
    inputs: [FloatTensor<B>; 2],
    formula: Formula<B>,
}

/// The formula of a gradient, with what it needs from the forward pass besides the inputs. A saved
/// result is of the type that gradients are computed in.
#[derive(Clone, Debug)]
enum Formula<B: Backend> {
    Dot,
    MeanSquaredError,
    MeanAbsoluteError,
    Huber,
    KlDivergence,
    CosineSimilarity { result: FloatTensor<B> },
    WeightedMean { mean: FloatTensor<B> },
    WeightedVariance { mean: FloatTensor<B>, variance: FloatTensor<B> },
    Covariance,
}

/// A result, and how its gradient reaches the inputs.
pub(crate) type Differentiable<B> = (FloatTensor<B>, ResultGradient<B>);

/// Whether a gradient flows through the results of a function.
pub(crate) fn has_gradient(function: PairName) -> bool {
    !matches!(function, PairName::AllClose | PairName::CountEqual | PairName::Accuracy)
}

/// Whether the gradient of a function is computed from its results.
fn saves_results(function: PairName) -> bool {
    use PairName::{CosineSimilarity, WeightedMean, WeightedMeanVar};

    matches!(function, CosineSimilarity | WeightedMean | WeightedMeanVar)
}

/// The results for inputs of which one is tracked, with their gradients.
pub(crate) fn forward<B: ReduceBackend>(
    x: FloatTensor<B>,
    y: FloatTensor<B>,
    pair: &PairReduction,
) -> Result<Vec<Differentiable<B>>, ReduceBurnError> {
    let inputs = [x.clone(), y.clone()];
    let [x, y] = [x, y].map(AnyTensor::Float);
    let wide = saves_results(pair.function()).then(|| pair.with_wide_values());
    let results = backend::reduce_pair::<B>(x.clone(), y, wide.as_ref().unwrap_or(pair))?;
    let (_, value) = pair.outputs()[0];
    let with = |result: FloatTensor<B>, formula| {
        let gradient = PairGradient { pair: pair.clone(), inputs: inputs.clone(), formula };
        (Operand::<B>(result).cast(value).0, ResultGradient::OfBoth(gradient))
    };
    if pair.function() == PairName::SumAndDot {
        let [sum, dot] = floats(results);
        let axes = pair.axes().into();
        let options = OperatorOptions::default();
        let reduction = Reduction::new(OperatorName::Sum, options, &x, &axes, pair.keep_dims())?;
        let of_sum = ResultGradient::OfFirst(Gradient::of_sum(reduction));
        return Ok(vec![(sum, of_sum), with(dot, Formula::Dot)]);
    }
    if pair.function() == PairName::WeightedMeanVar {
        let [mean, variance] = floats(results);
        let of_mean = Formula::WeightedMean { mean: mean.clone() };
        let of_variance =
            Formula::WeightedVariance { mean: mean.clone(), variance: variance.clone() };
        return Ok(vec![with(mean, of_mean), with(variance, of_variance)]);
    }
    let [result] = floats(results);
    let formula = match pair.function() {
        PairName::Dot => Formula::Dot,
        PairName::MeanSquaredError => Formula::MeanSquaredError,
        PairName::MeanAbsoluteError => Formula::MeanAbsoluteError,
        PairName::Huber => Formula::Huber,
        PairName::KlDivergence => Formula::KlDivergence,
        PairName::CosineSimilarity => Formula::CosineSimilarity { result: result.clone() },
        PairName::WeightedMean => Formula::WeightedMean { mean: result.clone() },
        PairName::Covariance => Formula::Covariance,
        other => panic!("`{other}` has no gradient"),
    };
    Ok(vec![with(result, formula)])
}

impl<B: ReduceBackend> PairGradient<B> {
    /// The gradients of both inputs, from the gradient of the result. Those that are not `wanted`
    /// are `None`.
    pub(crate) fn of(
        self,
        result: FloatTensor<B>,
        wanted: [bool; 2],
    ) -> [Option<FloatTensor<B>>; 2] {
        let Self { pair, inputs, formula } = self;
        let [shape, second_shape] = pair.input_shapes();
        let dtypes = inputs.each_ref().map(|input| input.dtype());
        if shape.num_elements() == 0 {
            let device = result.device();
            let targets = [(shape, dtypes[0]), (second_shape, dtypes[1])];
            return targets
                .map(|(shape, dtype)| Some(Operand::<B>::zeros(shape.clone(), dtype, &device).0));
        }
        let over = Over { pair: &pair, wanted };
        let [x, y] = inputs.map(|input| over.real(input));
        let gradient = over.kept(result);
        let [of_first, of_second] = over
            .gradients(formula, x, y, gradient)
            .unwrap_or_else(|error| panic!("gradient of `{}`: {error}", pair.function()));
        [
            of_first.map(|found| found.cast(dtypes[0]).0),
            of_second.map(|found| found.cast(dtypes[1]).0),
        ]
    }
}

/// The gradients of both inputs. `None` are those that are not wanted.
type Gradients<B> = [Option<Operand<B>>; 2];

/// What a backward pass is about.
struct Over<'a> {
    pair: &'a PairReduction,
    /// Whether each input is tracked. At least one is.
    wanted: [bool; 2],
}

impl Over<'_> {
    fn gradients<B: ReduceBackend>(
        &self,
        formula: Formula<B>,
        x: Operand<B>,
        y: Operand<B>,
        gradient: Operand<B>,
    ) -> Result<Gradients<B>, ReduceBurnError> {
        use OperatorName::{Mean, NormL2, Sum};

        let PairOptions { delta, eps, .. } = self.pair.options();
        let of_mean = 1.0 / self.pair.len() as f64;
        match formula {
            Formula::Dot => self.of_slopes(|| y, || x.clone(), gradient),
            Formula::MeanSquaredError => self.of_difference(x - y, gradient * (2.0 * of_mean)),
            Formula::MeanAbsoluteError => self.of_difference((x - y).sign(), gradient * of_mean),
            Formula::Huber => {
                // Comparisons with NaN fail, so it stays.
                let slope = x - y;
                let (is_below, is_above) = (slope.is_below(-delta), slope.is_above(delta));
                let slope = slope.fill(is_below, -delta).fill(is_above, delta);
                self.of_difference(slope, gradient * of_mean)
            }
            Formula::KlDivergence => {
                let is_zero = x.equals(0.0);
                let of_first = || {
                    let slope = x.clone().log() - y.clone().log() + 1.0;
                    slope.fill(is_zero.clone(), 0.0)
                };
                let of_second = || (x.clone() / y.clone() * -1.0).fill(is_zero.clone(), 0.0);
                self.of_slopes(of_first, of_second, gradient)
            }
            Formula::CosineSimilarity { result } => {
                let repeated = y.clone().expand(self.shape());
                let [of_x] = reduced(NormL2, &x, self.pair.axes())?;
                let [of_y] = reduced(NormL2, &repeated, self.pair.axes())?;
                let lengths = [&of_x, &of_y].map(|length| length.clone().at_least(eps));
                let along = gradient.clone() * self.kept(result);
                let factor = gradient / lengths[0].clone() / lengths[1].clone();
                // A length that counts as `eps` does not change.
                let [of_x, of_y] =
                    [(of_x, &lengths[0]), (of_y, &lengths[1])].map(|(own, length)| {
                        let share = along.clone() / length.clone() / length.clone();
                        share.fill(own.is_below(eps), 0.0)
                    });
                let of_first = self.wanted[0].then(|| {
                    let of_first = y.clone() * factor.clone() - x.clone() * of_x;
                    self.to_first(of_first)
                });
                let of_second = match self.wanted[1] {
                    true => Some(self.to_second(x * factor - y * of_y)?),
                    false => None,
                };
                Ok([of_first, of_second])
            }
            Formula::WeightedMean { mean } => {
                let [weights] = reduced(Sum, &y.clone().expand(self.shape()), self.pair.axes())?;
                let distance = || x - self.kept(mean);
                self.of_slopes(|| y, distance, gradient / weights)
            }
            Formula::WeightedVariance { mean, variance } => {
                let [weights] = reduced(Sum, &y.clone().expand(self.shape()), self.pair.axes())?;
                let distance = x - self.kept(mean);
                let of_first = || y * (distance.clone() * 2.0);
                let of_second = || distance.clone() * distance.clone() - self.kept(variance);
                self.of_slopes(of_first, of_second, gradient / weights)
            }
            Formula::Covariance => {
                let repeated = y.clone().expand(self.shape());
                let [of_x] = reduced(Mean, &x, self.pair.axes())?;
                let [of_y] = reduced(Mean, &repeated, self.pair.axes())?;
                self.of_slopes(|| y - of_y, || x - of_x, gradient * (1.0 / self.pair.divisor()))
            }
        }
    }

    /// The gradients of a function of the difference of both inputs.
    fn of_difference<B: ReduceBackend>(
        &self,
        slope: Operand<B>,
        factor: Operand<B>,
    ) -> Result<Gradients<B>, ReduceBurnError> {
        self.of_slopes(|| slope.clone(), || slope.clone() * -1.0, factor)
    }

    /// The slopes of the result at each element times `factor`, which is one number for each
    /// result. That of the second input has the shape of the first.
    fn of_slopes<B: ReduceBackend>(
        &self,
        of_first: impl FnOnce() -> Operand<B>,
        of_second: impl FnOnce() -> Operand<B>,
        factor: Operand<B>,
    ) -> Result<Gradients<B>, ReduceBurnError> {
        let first = self.wanted[0].then(|| self.to_first(of_first() * factor.clone()));
        if !self.wanted[1] {
            return Ok([first, None]);
        }
        let repeats = self.pair.repeated_axes();
        let second = match repeats.as_slice() {
            [] => of_second() * factor,
            repeats => {
                let [sum] = reduced_pair(PairName::Dot, of_second(), factor, repeats)?;
                sum
            }
        };
        Ok([first, Some(second)])
    }

    /// The gradient of the first input. It may lack the repeats of the second one.
    fn to_first<B: ReduceBackend>(&self, gradient: Operand<B>) -> Operand<B> {
        if gradient.0.shape() == self.shape() { gradient } else { gradient.expand(self.shape()) }
    }

    /// The gradient of the second input, from one of the shape of the first.
    fn to_second<B: ReduceBackend>(
        &self,
        gradient: Operand<B>,
    ) -> Result<Operand<B>, ReduceBurnError> {
        let repeats = self.pair.repeated_axes();
        if repeats.is_empty() {
            return Ok(gradient);
        }
        let [sum] = reduced(OperatorName::Sum, &gradient, &repeats)?;
        Ok(sum)
    }

    /// A result with the reduced axes as axes of size 1.
    fn kept<B: Backend>(&self, result: FloatTensor<B>) -> Operand<B> {
        self.real(result).reshape(self.pair.kept_shape())
    }

    /// A tensor in the type in which gradients are computed.
    fn real<B: Backend>(&self, tensor: FloatTensor<B>) -> Operand<B> {
        let dtype: DType = self.pair.real();
        Operand::<B>(tensor).cast(dtype)
    }

    /// The shape of the first input.
    fn shape(&self) -> Shape {
        let [shape, _] = self.pair.input_shapes();
        shape.clone()
    }
}
