//! The functions that users call.

use burn_backend::{TensorMetadata, tensor::FloatTensor};
use burn_tensor::{Shape, Tensor, TensorPrimitive};

use super::{Application, AppliedFunction};
use crate::{AxisList, ReduceBackend};

#[track_caller]
fn apply<B: ReduceBackend, const D: usize>(
    function: AppliedFunction,
    tensor: Tensor<B, D>,
    axes: AxisList,
    operands: Vec<FloatTensor<B>>,
) -> Tensor<B, D> {
    let tensor = tensor.into_primitive().tensor();
    let shape = tensor.shape().to_vec();
    let run = || {
        let application = Application::new::<B>(function, &tensor, &axes, &operands)?;
        B::apply(tensor, operands, &application)
    };
    match run() {
        Ok(result) => Tensor::from_primitive(TensorPrimitive::Float(result)),
        Err(error) => panic!("`{function}` of a tensor of shape {shape:?}: {error}"),
    }
}

/// The softmax over `axes`: exponentials over their sum. The result has the shape of the tensor.
///
/// A slice with NaN or `inf` is NaN, and so is a slice of `-inf` alone.
///
/// # Panics
///
/// As [all functions](crate#errors).
#[track_caller]
pub fn softmax<B: ReduceBackend, const D: usize>(
    tensor: Tensor<B, D>,
    axes: impl Into<AxisList>,
) -> Tensor<B, D> {
    apply(AppliedFunction::Softmax, tensor, axes.into(), Vec::new())
}

/// The logarithm of [`softmax`], without the loss of taking one after the other.
///
/// # Panics
///
/// As [all functions](crate#errors).
#[track_caller]
pub fn log_softmax<B: ReduceBackend, const D: usize>(
    tensor: Tensor<B, D>,
    axes: impl Into<AxisList>,
) -> Tensor<B, D> {
    apply(AppliedFunction::LogSoftmax, tensor, axes.into(), Vec::new())
}

/// The difference from the mean over `axes`, divided by the root of the variance plus `eps`, times
/// `weight`, plus `bias`. The variance divides by the count.
///
/// `weight` and `bias` broadcast: along each axis they have the extent of the tensor, or 1. Those
/// of a layer normalisation have size 1 along the axes that are not reduced. Those of a batch
/// normalisation in training, which reduces all axes but that of the channels, have size 1 along
/// the reduced axes. They may have another float type than the tensor.
///
/// ```
/// # use burn_tensor::Tensor;
/// # use reduce_burn::{ReduceBackend, layer_norm};
/// fn normalize<B: ReduceBackend>(
///     x: Tensor<B, 3>,      // [batch, tokens, features]
///     weight: Tensor<B, 1>, // [features]
///     bias: Tensor<B, 1>,
/// ) -> Tensor<B, 3> {
///     layer_norm(x, -1, Some(weight.unsqueeze()), Some(bias.unsqueeze()), 1e-5)
/// }
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for an `eps` that is negative or not finite.
#[track_caller]
pub fn layer_norm<B: ReduceBackend, const D: usize>(
    tensor: Tensor<B, D>,
    axes: impl Into<AxisList>,
    weight: Option<Tensor<B, D>>,
    bias: Option<Tensor<B, D>>,
    eps: f64,
) -> Tensor<B, D> {
    let weight = weight.map(|weight| weight.into_primitive().tensor());
    let bias = bias.map(|bias| bias.into_primitive().tensor());
    // A bias is the second operand: without a weight, the first is a 1.
    let weight = weight.or_else(|| {
        let bias = bias.as_ref()?;
        let (device, dtype) = (B::float_device(bias), bias.dtype().into());
        Some(B::float_ones(Shape::from([1; D]), &device, dtype))
    });
    let operands = weight.into_iter().chain(bias).collect();
    apply(AppliedFunction::LayerNorm { eps }, tensor, axes.into(), operands)
}

/// The elements divided by the root of their mean square over `axes` plus `eps`, times `weight`,
/// which is a tensor as for [`layer_norm`].
///
/// # Panics
///
/// As [all functions](crate#errors), and for an `eps` that is negative or not finite.
#[track_caller]
pub fn rms_norm<B: ReduceBackend, const D: usize>(
    tensor: Tensor<B, D>,
    axes: impl Into<AxisList>,
    weight: Option<Tensor<B, D>>,
    eps: f64,
) -> Tensor<B, D> {
    let operands = weight.into_iter().map(|weight| weight.into_primitive().tensor()).collect();
    apply(AppliedFunction::RmsNorm { eps }, tensor, axes.into(), operands)
}
