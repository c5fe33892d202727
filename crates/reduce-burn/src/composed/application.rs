//! Applications made of Burn's own operations and of reductions, for backends without kernels of
//! reduce-kernels.

use burn_backend::{TensorMetadata, tensor::FloatTensor};
use burn_tensor::Shape;
use reduce_kernels::by_name::OperatorName;

use crate::{
    application::{Application, AppliedFunction},
    axes::inverse,
    backend::{ReduceBackend, reduced},
    error::ReduceBurnError,
    operand::Operand,
};

/// Runs an application.
pub(crate) fn apply<B: ReduceBackend>(
    tensor: FloatTensor<B>,
    operands: Vec<FloatTensor<B>>,
    application: &Application,
) -> Result<Vec<FloatTensor<B>>, ReduceBurnError> {
    if application.shape().num_elements() == 0 {
        return Ok(vec![tensor; application.outputs().len()]);
    }
    let rounded = |result: Operand<B>| result.cast(application.dtype()).0;
    let mut operands = operands.into_iter();
    let x = reduced_elements::<B>(tensor, &mut operands, application);
    if application.function().is_backward() {
        return Ok(vec![rounded(backward(x, operands, application)?)]);
    }
    let sum = application.function().of_sum().map(|_| rounded(x.clone()));
    let applied = match application.function() {
        AppliedFunction::Softmax | AppliedFunction::MaskedSoftmax { .. } => {
            of_slices(x, application, B::softmax)
        }
        AppliedFunction::LogSoftmax | AppliedFunction::MaskedLogSoftmax { .. } => {
            of_slices(x, application, B::log_softmax)
        }
        AppliedFunction::LayerNorm { eps } | AppliedFunction::AddLayerNorm { eps } => {
            let [mean] = reduced(OperatorName::Mean, &x, application.axes())?;
            let [std] = reduced(OperatorName::Std, &x, application.axes())?;
            (x - mean) / hypotenuse(std, eps.sqrt())
        }
        AppliedFunction::RmsNorm { eps } | AppliedFunction::AddRmsNorm { eps } => {
            let [norm] = reduced(OperatorName::NormL2, &x, application.axes())?;
            x / hypotenuse(norm / (application.len() as f64).sqrt(), eps.sqrt())
        }
        _ => unreachable!("backward passes have been taken"),
    };
    let mut operands = operands.map(|operand| Operand::<B>(operand).cast(application.wide()));
    let scaled = match operands.next() {
        Some(weight) => applied * weight,
        None => applied,
    };
    let shifted = match operands.next() {
        Some(bias) => scaled + bias,
        None => scaled,
    };
    Ok(sum.into_iter().chain([rounded(shifted)]).collect())
}

/// What an application reduces: the tensor, its sum with a residual, or its product with a factor
/// plus a mask. Residual and mask are the first operand.
fn reduced_elements<B: ReduceBackend>(
    tensor: FloatTensor<B>,
    operands: &mut impl Iterator<Item = FloatTensor<B>>,
    application: &Application,
) -> Operand<B> {
    let wide = |tensor| Operand::<B>(tensor).cast(application.wide());
    let x = wide(tensor);
    let function = application.function();
    if !function.reduces_two() {
        return x;
    }
    let second = operands.next().map(wide).expect("an application has the operands it needs");
    match function.scale() {
        Some(scale) => x * scale + second,
        None => x + second,
    }
}

/// The statistics that [`Application::statistics`] describes.
pub(crate) fn statistics<B: ReduceBackend>(
    tensor: FloatTensor<B>,
    operands: Vec<FloatTensor<B>>,
    application: &Application,
) -> Result<Vec<FloatTensor<B>>, ReduceBurnError> {
    let (count, dtype, shape) = application.statistics();
    if application.shape().num_elements() == 0 {
        let device = tensor.device();
        return Ok((0..count)
            .map(|_| Operand::<B>::zeros(shape.clone(), dtype, &device).0)
            .collect());
    }
    let axes = application.axes();
    let x = reduced_elements::<B>(tensor, &mut operands.into_iter(), application);
    let statistics = match application.function() {
        AppliedFunction::LayerNorm { eps } | AppliedFunction::AddLayerNorm { eps } => {
            let [mean, var] = reduced(OperatorName::MeanVar, &x, axes)?;
            vec![mean, (var + eps).sqrt().reciprocal()]
        }
        AppliedFunction::RmsNorm { eps } | AppliedFunction::AddRmsNorm { eps } => {
            let [squares] = reduced(OperatorName::SumSquares, &x, axes)?;
            vec![(squares / application.len() as f64 + eps).sqrt().reciprocal()]
        }
        _ => Vec::new(),
    };
    Ok(statistics.into_iter().map(|statistic| statistic.0).collect())
}

/// The backward pass of an application, of the gradient of its output.
fn backward<B: ReduceBackend>(
    gradient: Operand<B>,
    operands: impl Iterator<Item = FloatTensor<B>>,
    application: &Application,
) -> Result<Operand<B>, ReduceBurnError> {
    let axes = application.axes();
    let mut operands = operands.map(|operand| Operand::<B>(operand).wide());
    let mut next = || operands.next().expect("an application has all operands of a backward pass");
    let x = next();
    Ok(match application.function() {
        AppliedFunction::SoftmaxGradient => {
            let [sum] = reduced(OperatorName::Sum, &(gradient.clone() * x.clone()), axes)?;
            x * (gradient - sum)
        }
        AppliedFunction::LogSoftmaxGradient => {
            let [sum] = reduced(OperatorName::Sum, &gradient, axes)?;
            gradient - x.exp() * sum
        }
        AppliedFunction::LayerNormGradient => {
            let (mean, rstd) = (next(), next());
            let normalized = (x - mean) * rstd.clone();
            let products = gradient.clone() * normalized.clone();
            let [along] = reduced(OperatorName::Mean, &products, axes)?;
            let [mean] = reduced(OperatorName::Mean, &gradient, axes)?;
            (gradient - mean - normalized * along) * rstd
        }
        _ => {
            let rstd = next();
            let normalized = x * rstd.clone();
            let products = gradient.clone() * normalized.clone();
            let [along] = reduced(OperatorName::Mean, &products, axes)?;
            (gradient - normalized * along) * rstd
        }
    })
}

/// A function along one axis, of slices over any axes.
fn of_slices<B: ReduceBackend>(
    x: Operand<B>,
    application: &Application,
    along: fn(FloatTensor<B>, usize) -> FloatTensor<B>,
) -> Operand<B> {
    if let [axis] = *application.axes() {
        return Operand(along(x.0, axis));
    }
    let order = [application.kept_axes(), application.axes().to_vec()].concat();
    let permuted = B::float_permute(x.0, &order);
    let shape = permuted.shape();
    let len = application.len();
    let rows = B::float_reshape(permuted, Shape::from([shape.num_elements() / len, len]));
    let applied = B::float_reshape(along(rows, 1), shape);
    Operand(B::float_permute(applied, &inverse(&order)))
}

/// The root of `x² + least²`, neither of which is negative, without overflow on the way. NaN if `x`
/// is NaN.
fn hypotenuse<B: ReduceBackend>(x: Operand<B>, least: f64) -> Operand<B> {
    let is_below = x.is_below(least);
    let larger = x.clone().fill(is_below.clone(), least);
    let smaller = x.fill(B::bool_not(is_below), least);
    let ratio = smaller / larger.clone();
    larger * (ratio.clone() * ratio + 1.0).sqrt()
}
