//! The gradients of applications: what the forward pass saves, and the formulas of the backward
//! pass.
//!
//! The gradient of the input is an application of the same backend, and where there are kernels one
//! launch. Those of operands are made of Burn's operations and of reductions, in f32 at least. The
//! statistics of a normalisation are saved, and its input before weight and bias is computed again.

use burn_backend::{Backend, TensorMetadata, tensor::FloatTensor};
use reduce_kernels::by_name::{OperatorName, PairName};

use crate::application::{Application, AppliedFunction};
use crate::{
    backend::{self, ReduceBackend, reduced, reduced_pair},
    error::ReduceBurnError,
    geometry::repeated_axes,
    operand::{Operand, wide},
    segmented::Members,
};

/// How the gradient of an application's result reaches its input and its operands.
#[derive(Clone, Debug)]
pub(crate) struct ApplicationGradient<B: Backend> {
    application: Application,
    /// What segments have, if there are segments.
    members: Option<Members<B>>,
    formula: Formula<B>,
}

/// The formula of a gradient, with what it needs from the forward pass. A saved tensor is a second
/// handle to its memory, not a copy.
#[derive(Clone, Debug)]
enum Formula<B: Backend> {
    Softmax {
        result: FloatTensor<B>,
    },
    LogSoftmax {
        saved: LogShares<B>,
    },
    /// A normalisation, whose statistics are those of [`Application::statistics`].
    Normalization {
        x: FloatTensor<B>,
        weight: Option<FloatTensor<B>>,
        statistics: Vec<FloatTensor<B>>,
    },
    /// The sum of the input and of a residual, the first operand.
    Sum,
}

/// What a log-softmax saves. Its gradient takes exponentials, beside which a logarithm in f16 or
/// bf16 is rounded too much.
#[derive(Clone, Debug)]
enum LogShares<B: Backend> {
    /// The result, of f32 or f64.
    Result(FloatTensor<B>),
    /// The input of a narrower type, and the mask if there is one. The backward pass computes the
    /// result again, in f32.
    Input(FloatTensor<B>, Vec<FloatTensor<B>>),
}

/// The result of an application of tracked tensors, and its gradient.
pub(crate) fn forward<B: ReduceBackend>(
    x: FloatTensor<B>,
    operands: Vec<FloatTensor<B>>,
    members: Option<Members<B>>,
    application: &Application,
) -> Result<(FloatTensor<B>, ApplicationGradient<B>), ReduceBurnError> {
    let weight = operands.first().cloned();
    let (result, formula) = match application.function() {
        AppliedFunction::Softmax | AppliedFunction::MaskedSoftmax { .. } => {
            let result = backend::apply::<B>(x, operands, members.clone(), application)?;
            (result.clone(), Formula::Softmax { result })
        }
        AppliedFunction::LogSoftmax | AppliedFunction::MaskedLogSoftmax { .. } => {
            let (own, mask) = (x.clone(), operands.clone());
            let result = backend::apply::<B>(x, operands, members.clone(), application)?;
            let saved = match wide(application.dtype()) == application.dtype() {
                true => LogShares::Result(result.clone()),
                false => LogShares::Input(own, mask),
            };
            (result, Formula::LogSoftmax { saved })
        }
        AppliedFunction::LayerNorm { .. } | AppliedFunction::RmsNorm { .. } => {
            let ([result], statistics) =
                backend::apply_with_statistics::<B, 1>(x.clone(), operands, application)?;
            (result, Formula::Normalization { x, weight, statistics })
        }
        _ => unreachable!("sums have two results, and backward passes are made of operations"),
    };
    Ok((result, ApplicationGradient { application: application.clone(), members, formula }))
}

/// A result, and how its gradient reaches what it is made of.
pub(crate) type Differentiable<B> = (FloatTensor<B>, ApplicationGradient<B>);

/// The results of a function that adds a residual: the sum, which is made of the input and of the
/// residual, and the sum normalised, which is made of the sum and of the other operands.
///
/// Statistics are those of the sum before it is rounded. The gradient of the normalisation reads
/// the sum as it was rounded.
pub(crate) fn forward_of_sum<B: ReduceBackend>(
    x: FloatTensor<B>,
    operands: Vec<FloatTensor<B>>,
    function: AppliedFunction,
    application: &Application,
) -> Result<[Differentiable<B>; 2], ReduceBurnError> {
    let others = operands[1..].to_vec();
    // The sum has the shape and the type of the input.
    let of_sum = Application::new::<B>(function, &x, &application.axes().into(), &others)?;
    let ([sum, normalized], statistics) =
        backend::apply_with_statistics::<B, 2>(x, operands, application)?;
    // Those of a residual of f64 are of f64, whatever the sum has.
    let statistics = statistics.into_iter().map(|x| Operand::<B>(x).cast(of_sum.wide()).0);
    let statistics = statistics.collect();
    let weight = others.into_iter().next();
    let formula = Formula::Normalization { x: sum.clone(), weight, statistics };
    let normalization = ApplicationGradient { application: of_sum, members: None, formula };
    let application = application.clone();
    let addition = ApplicationGradient { application, members: None, formula: Formula::Sum };
    Ok([(sum, addition), (normalized, normalization)])
}

impl<B: ReduceBackend> ApplicationGradient<B> {
    /// The gradients of the input and then of the operands, from the gradient of the result. Those
    /// that are not `wanted` are `None`, and operands that the result is not made of are left out.
    pub(crate) fn of(self, result: FloatTensor<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let Self { application, members, formula } = self;
        let input = (application.dtype(), application.shape().clone());
        let targets = [&[input], application.operands()].concat();
        if application.shape().num_elements() == 0 {
            let device = result.device();
            let zeros = |(dtype, shape)| Operand::<B>::zeros(shape, dtype, &device).0;
            return targets.into_iter().map(|target| Some(zeros(target))).collect();
        }
        let over = Over { application: &application, members, wanted };
        let gradients = over
            .gradients(formula, Operand::<B>(result))
            .unwrap_or_else(|error| panic!("gradient of `{}`: {error}", application.function()));
        let typed = gradients.into_iter().zip(targets);
        typed.map(|(gradient, (dtype, _))| gradient.map(|found| found.cast(dtype).0)).collect()
    }
}

/// The gradients of the input and then of the operands. `None` are those that are not wanted.
type Gradients<B> = Vec<Option<Operand<B>>>;

/// What a backward pass is about.
struct Over<'a, B: Backend> {
    application: &'a Application,
    members: Option<Members<B>>,
    /// Whether the input and each operand are tracked. At least one is.
    wanted: &'a [bool],
}

impl<B: ReduceBackend> Over<'_, B> {
    fn gradients(
        &self,
        formula: Formula<B>,
        gradient: Operand<B>,
    ) -> Result<Gradients<B>, ReduceBurnError> {
        if !self.is_wanted(0) && !self.is_wanted(1) {
            // The bias alone needs no statistics.
            return Ok(vec![None, None, Some(self.of_operand(1, gradient.wide())?)]);
        }
        match formula {
            Formula::Softmax { result } => {
                self.of_scores(AppliedFunction::SoftmaxGradient, gradient, result)
            }
            Formula::LogSoftmax { saved } => {
                let result = match saved {
                    LogShares::Result(result) => result,
                    LogShares::Input(x, mask) => {
                        let x = Operand::<B>(x).wide();
                        self.applied(self.application.function(), x, mask)?.0
                    }
                };
                self.of_scores(AppliedFunction::LogSoftmaxGradient, gradient, result)
            }
            Formula::Normalization { x, weight, statistics } => {
                self.of_normalization(x, statistics, weight, gradient.wide())
            }
            Formula::Sum => {
                let of_residual = match self.is_wanted(1) {
                    true => Some(self.of_operand(0, gradient.clone().wide())?),
                    false => None,
                };
                Ok(vec![self.is_wanted(0).then_some(gradient), of_residual])
            }
        }
    }

    /// The gradients of the input of a softmax, and of the mask if there is one. `function` is the
    /// backward pass, which gives the gradient of what the exponentials are taken of.
    fn of_scores(
        &self,
        function: AppliedFunction,
        gradient: Operand<B>,
        result: FloatTensor<B>,
    ) -> Result<Gradients<B>, ReduceBurnError> {
        let Some(scale) = self.application.function().scale() else {
            return Ok(vec![Some(self.applied(function, gradient, vec![result])?)]);
        };
        // It is multiplied and summed before it is rounded.
        let scores = self.applied(function, gradient.wide(), vec![result])?;
        let of_mask = match self.is_wanted(1) {
            true => Some(self.of_operand(0, scores.clone())?),
            false => None,
        };
        Ok(vec![self.is_wanted(0).then(|| scores * scale), of_mask])
    }

    /// The gradients of a normalisation.
    fn of_normalization(
        &self,
        x: FloatTensor<B>,
        statistics: Vec<FloatTensor<B>>,
        weight: Option<FloatTensor<B>>,
        gradient: Operand<B>,
    ) -> Result<Gradients<B>, ReduceBurnError> {
        let normalized = || -> Result<Operand<B>, ReduceBurnError> {
            let wide = Operand::<B>(x.clone()).wide();
            if wide.0.dtype() == x.dtype() {
                return self.applied(self.application.function(), wide, Vec::new());
            }
            // The normalisation would round to the type of the input.
            let operands: Vec<_> = statistics.iter().cloned().map(Operand::<B>).collect();
            Ok(match operands.as_slice() {
                [mean, rstd] => (wide - mean.clone()) * rstd.clone(),
                [rstd] => wide * rstd.clone(),
                _ => unreachable!("a normalisation has one statistic or two"),
            })
        };
        let [of_weight, of_bias] = self.of_weight_and_bias(normalized, &gradient)?;
        if !self.is_wanted(0) {
            return Ok(vec![None, of_weight, of_bias]);
        }
        let weighted = match weight {
            Some(weight) => gradient * Operand::<B>(weight).wide(),
            None => gradient,
        };
        let function = match statistics.len() {
            2 => AppliedFunction::LayerNormGradient,
            _ => AppliedFunction::RmsNormGradient,
        };
        let operands = [vec![x.clone()], statistics.clone()].concat();
        let of_input = self.applied(function, weighted, operands)?;
        Ok(vec![Some(of_input), of_weight, of_bias])
    }

    /// The gradients of weight and bias, from the normalised elements before both. They are one
    /// reduction if both operands are repeated along the same axes.
    fn of_weight_and_bias(
        &self,
        normalized: impl FnOnce() -> Result<Operand<B>, ReduceBurnError>,
        gradient: &Operand<B>,
    ) -> Result<[Option<Operand<B>>; 2], ReduceBurnError> {
        let of_bias = || match self.is_wanted(2) {
            true => self.of_operand(1, gradient.clone()).map(Some),
            false => Ok(None),
        };
        if !self.is_wanted(1) {
            return Ok([None, of_bias()?]);
        }
        let repeats = self.repeated_axes(0);
        if repeats.is_empty() {
            return Ok([Some(gradient.clone() * normalized()?), of_bias()?]);
        }
        if self.is_wanted(2) && self.repeated_axes(1) == repeats {
            let (function, gradient) = (PairName::SumAndDot, gradient.clone());
            let [sum, dot] = reduced_pair(function, gradient, normalized()?, &repeats)?;
            return Ok([Some(dot), Some(sum)]);
        }
        let [dot] = reduced_pair(PairName::Dot, gradient.clone(), normalized()?, &repeats)?;
        Ok([Some(dot), of_bias()?])
    }

    /// The axes along which an operand is repeated.
    fn repeated_axes(&self, nth: usize) -> Vec<usize> {
        let (_, own) = &self.application.operands()[nth];
        repeated_axes(own, self.application.shape())
    }

    /// A backward pass over the same axes.
    fn applied(
        &self,
        function: AppliedFunction,
        gradient: Operand<B>,
        operands: Vec<FloatTensor<B>>,
    ) -> Result<Operand<B>, ReduceBurnError> {
        let (members, axes) = (self.members.clone(), self.application.axes());
        backend::applied(function, gradient, operands, members, axes)
    }

    fn is_wanted(&self, nth: usize) -> bool {
        self.wanted.get(nth).is_some_and(|&wanted| wanted)
    }

    /// The gradient of an operand, from that of the operand repeated to the shape of the input.
    fn of_operand(&self, nth: usize, repeated: Operand<B>) -> Result<Operand<B>, ReduceBurnError> {
        let repeats = self.repeated_axes(nth);
        if repeats.is_empty() {
            return Ok(repeated);
        }
        let [sum] = reduced(OperatorName::Sum, &repeated, &repeats)?;
        Ok(sum)
    }
}
