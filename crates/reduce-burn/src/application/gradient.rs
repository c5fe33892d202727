//! The gradients of applications: what the forward pass saves, and the formulas of the backward
//! pass.
//!
//! Formulas are made of Burn's operations and of reductions of the same backend, and are computed
//! in f32 at least. The statistics of a normalisation are computed again from its input.

use burn_backend::{Backend, DType, tensor::FloatTensor};
use burn_tensor::Shape;
use reduce_kernels::OperatorName;

use super::{Application, AppliedFunction, reduced};
use crate::{ReduceBackend, ReduceBurnError, operand::Operand};

/// How the gradient of an application's result reaches its input and its operands.
#[derive(Clone, Debug)]
pub(crate) struct ApplicationGradient<B: Backend> {
    application: Application,
    formula: Formula<B>,
}

/// The formula of a gradient, with what it needs from the forward pass. A saved tensor is a second
/// handle to its memory, not a copy.
#[derive(Clone, Debug)]
enum Formula<B: Backend> {
    Softmax { result: FloatTensor<B> },
    LogSoftmax { result: FloatTensor<B> },
    LayerNorm { x: FloatTensor<B>, weight: Option<FloatTensor<B>>, eps: f64 },
    RmsNorm { x: FloatTensor<B>, weight: Option<FloatTensor<B>>, eps: f64 },
}

/// The result of an application of tracked tensors, and its gradient.
pub(crate) fn forward<B: ReduceBackend>(
    x: FloatTensor<B>,
    operands: Vec<FloatTensor<B>>,
    application: &Application,
) -> Result<(FloatTensor<B>, ApplicationGradient<B>), ReduceBurnError> {
    let weight = operands.first().cloned();
    let (result, formula) = match application.function() {
        AppliedFunction::Softmax => {
            let result = B::apply(x, operands, application)?;
            (result.clone(), Formula::Softmax { result })
        }
        AppliedFunction::LogSoftmax => {
            let result = B::apply(x, operands, application)?;
            (result.clone(), Formula::LogSoftmax { result })
        }
        AppliedFunction::LayerNorm { eps } => {
            let result = B::apply(x.clone(), operands, application)?;
            (result, Formula::LayerNorm { x, weight, eps })
        }
        AppliedFunction::RmsNorm { eps } => {
            let result = B::apply(x.clone(), operands, application)?;
            (result, Formula::RmsNorm { x, weight, eps })
        }
    };
    Ok((result, ApplicationGradient { application: application.clone(), formula }))
}

impl<B: ReduceBackend> ApplicationGradient<B> {
    /// The gradients of the input and then of the operands, from the gradient of the result. Those
    /// that are not `wanted` are `None`.
    pub(crate) fn of(self, result: FloatTensor<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let Self { application, formula } = self;
        let input = (application.dtype(), application.shape().clone());
        let targets = [&[input], application.operands()].concat();
        if application.shape().num_elements() == 0 {
            let device = B::float_device(&result);
            let zeros = |(dtype, shape): (DType, Shape)| match shape.num_elements() {
                // On CUDA, Burn cannot fill a tensor without elements.
                0 => B::float_empty(shape, &device, dtype.into()),
                _ => B::float_zeros(shape, &device, dtype.into()),
            };
            return targets.into_iter().map(|target| Some(zeros(target))).collect();
        }
        let over = Over { application: &application, wanted };
        let gradients = over
            .gradients(formula, Operand::<B>(result).wide())
            .unwrap_or_else(|error| panic!("gradient of `{}`: {error}", application.function()));
        let typed = gradients.into_iter().zip(targets);
        typed.map(|(gradient, (dtype, _))| gradient.map(|found| found.cast(dtype).0)).collect()
    }
}

/// The gradients of the input and then of the operands. `None` are those that are not wanted.
type Gradients<B> = Vec<Option<Operand<B>>>;

/// What a backward pass is about.
struct Over<'a> {
    application: &'a Application,
    /// Whether the input and each operand are tracked. At least one is.
    wanted: &'a [bool],
}

impl Over<'_> {
    fn gradients<B: ReduceBackend>(
        &self,
        formula: Formula<B>,
        gradient: Operand<B>,
    ) -> Result<Gradients<B>, ReduceBurnError> {
        use OperatorName::{MeanVar, Sum, SumSquares};

        if !self.is_wanted(0) && !self.is_wanted(1) {
            // The bias alone needs no statistics.
            return Ok(vec![None, None, Some(self.of_operand(1, gradient)?)]);
        }
        let axes = self.application.axes();
        match formula {
            Formula::Softmax { result } => {
                let result = Operand::<B>(result).wide();
                let [sum] = reduced(Sum, &(gradient.clone() * result.clone()), axes)?;
                Ok(vec![Some(result * (gradient - sum))])
            }
            Formula::LogSoftmax { result } => {
                let [sum] = reduced(Sum, &gradient, axes)?;
                Ok(vec![Some(gradient - Operand::<B>(result).wide().exp() * sum)])
            }
            Formula::LayerNorm { x, weight, eps } => {
                let x = Operand::<B>(x).wide();
                let [mean, var] = reduced(MeanVar, &x, axes)?;
                self.of_normalization(x - mean, (var + eps).sqrt(), weight, gradient, true)
            }
            Formula::RmsNorm { x, weight, eps } => {
                let x = Operand::<B>(x).wide();
                let [squares] = reduced(SumSquares, &x, axes)?;
                let divisor = (squares / self.application.len() as f64 + eps).sqrt();
                self.of_normalization(x, divisor, weight, gradient, false)
            }
        }
    }

    /// The gradients of a normalisation, which divides `x` by `divisor`. `is_centered` says whether
    /// the mean has been subtracted from `x`.
    fn of_normalization<B: ReduceBackend>(
        &self,
        x: Operand<B>,
        divisor: Operand<B>,
        weight: Option<FloatTensor<B>>,
        gradient: Operand<B>,
        is_centered: bool,
    ) -> Result<Gradients<B>, ReduceBurnError> {
        let axes = self.application.axes();
        let normalized = x / divisor.clone();
        let of_weight = match self.is_wanted(1) {
            true => Some(self.of_operand(0, gradient.clone() * normalized.clone())?),
            false => None,
        };
        let of_bias = match self.is_wanted(2) {
            true => Some(self.of_operand(1, gradient.clone())?),
            false => None,
        };
        if !self.is_wanted(0) {
            return Ok(vec![None, of_weight, of_bias]);
        }
        let weighted = match weight {
            Some(weight) => gradient * Operand::<B>(weight).wide(),
            None => gradient,
        };
        let [along] = reduced(OperatorName::Mean, &(weighted.clone() * normalized.clone()), axes)?;
        let mut of_input = weighted.clone() - normalized * along;
        if is_centered {
            let [mean] = reduced(OperatorName::Mean, &weighted, axes)?;
            of_input = of_input - mean;
        }
        Ok(vec![Some(of_input / divisor), of_weight, of_bias])
    }

    fn is_wanted(&self, nth: usize) -> bool {
        self.wanted.get(nth).is_some_and(|&wanted| wanted)
    }

    /// The gradient of an operand, from that of the operand repeated to the shape of the input.
    fn of_operand<B: ReduceBackend>(
        &self,
        nth: usize,
        repeated: Operand<B>,
    ) -> Result<Operand<B>, ReduceBurnError> {
        let (_, own) = &self.application.operands()[nth];
        let shape = self.application.shape();
        let repeats: Vec<usize> =
            (0..shape.num_dims()).filter(|&axis| own[axis] != shape[axis]).collect();
        if repeats.is_empty() {
            return Ok(repeated);
        }
        let [sum] = reduced(OperatorName::Sum, &repeated, &repeats)?;
        Ok(sum)
    }
}
