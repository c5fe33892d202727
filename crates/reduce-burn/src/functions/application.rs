//! The functions that users call.

use burn_backend::{TensorMetadata, ops::FloatTensorOps, tensor::FloatTensor};
use burn_dispatch::Dispatch;
use burn_tensor::{Shape, Tensor};

use crate::application::{Application, AppliedFunction};
use crate::{
    axes::AxisList,
    backend::{Operation, ReduceBackend},
    tensor::{AnyTensor, from_any, into_any},
};

#[track_caller]
fn apply<const D: usize>(
    function: AppliedFunction,
    tensor: Tensor<D>,
    axes: AxisList,
    operands: Vec<FloatTensor<Dispatch>>,
) -> Tensor<D> {
    let tensor = into_any(tensor).into_inner();
    let shape = tensor.shape().to_vec();
    let run = || {
        let application = Application::new::<Dispatch>(function, &tensor, &axes, &operands)?;
        let tensors = [tensor].into_iter().chain(operands).map(AnyTensor::Float).collect();
        Dispatch::run(tensors, Operation::Application(application))
    };
    match run() {
        Ok(mut results) => from_any(results.remove(0)),
        Err(error) => panic!("`{function}` of a tensor of shape {shape:?}: {error}"),
    }
}

/// The softmax over `axes`: exponentials over their sum. The result has the shape of the tensor.
///
/// A slice with NaN or `inf` is NaN, and so is a slice of `-inf` alone.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::softmax;
///
/// let x = Tensor::<2>::from_data([[0.0, 0.0, 0.0, 0.0]], &Device::flex());
/// let shares = softmax(x, 1);
/// assert_eq!(shares.into_data().to_vec::<f32>().unwrap(), [0.25; 4]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors).
#[track_caller]
pub fn softmax<const D: usize>(tensor: Tensor<D>, axes: impl Into<AxisList>) -> Tensor<D> {
    apply(AppliedFunction::Softmax, tensor, axes.into(), Vec::new())
}

/// The logarithm of [`softmax`], without the loss of taking one after the other.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::log_softmax;
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
/// let logarithms = log_softmax(x, -1); // shape [2, 3]
/// # assert_eq!(logarithms.dims(), [2, 3]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors).
#[track_caller]
pub fn log_softmax<const D: usize>(tensor: Tensor<D>, axes: impl Into<AxisList>) -> Tensor<D> {
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
/// # use reduce_burn::layer_norm;
/// fn normalize(
///     x: Tensor<3>,      // [batch, tokens, features]
///     weight: Tensor<1>, // [features]
///     bias: Tensor<1>,
/// ) -> Tensor<3> {
///     layer_norm(x, -1, Some(weight.unsqueeze()), Some(bias.unsqueeze()), 1e-5)
/// }
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for an `eps` that is negative or not finite.
#[track_caller]
pub fn layer_norm<const D: usize>(
    tensor: Tensor<D>,
    axes: impl Into<AxisList>,
    weight: Option<Tensor<D>>,
    bias: Option<Tensor<D>>,
    eps: f64,
) -> Tensor<D> {
    let weight = weight.map(|weight| into_any(weight).into_inner());
    let bias = bias.map(|bias| into_any(bias).into_inner());
    // A bias is the second operand: without a weight, the first is a 1.
    let weight = weight.or_else(|| {
        let bias = bias.as_ref()?;
        let (device, dtype) = (bias.device().inner(), bias.dtype().into());
        Some(Dispatch::float_ones(Shape::from([1; D]), &device, dtype))
    });
    let operands = weight.into_iter().chain(bias).collect();
    apply(AppliedFunction::LayerNorm { eps }, tensor, axes.into(), operands)
}

/// The elements divided by the root of their mean square over `axes` plus `eps`, times `weight`,
/// which is a tensor as for [`layer_norm`].
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::rms_norm;
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
/// let weight = Tensor::<2>::from_data([[1.0, 1.0, 2.0]], &Device::flex());
/// let normalized = rms_norm(x, 1, Some(weight), 1e-5); // shape [2, 3]
/// # assert_eq!(normalized.dims(), [2, 3]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for an `eps` that is negative or not finite.
#[track_caller]
pub fn rms_norm<const D: usize>(
    tensor: Tensor<D>,
    axes: impl Into<AxisList>,
    weight: Option<Tensor<D>>,
    eps: f64,
) -> Tensor<D> {
    let operands = weight.into_iter().map(|weight| into_any(weight).into_inner()).collect();
    apply(AppliedFunction::RmsNorm { eps }, tensor, axes.into(), operands)
}
