//! The functions that users call.

use burn_backend::{TensorMetadata, ops::FloatTensorOps, tensor::FloatTensor};
use burn_dispatch::Dispatch;
use burn_tensor::{Shape, Tensor};

use crate::application::{Application, AppliedFunction};
use crate::{
    axes::AxisList,
    backend::{Operation, ReduceBackend},
    tensor::{AnyTensor, floats, from_any, into_any},
};

/// The `N` results of a function.
#[track_caller]
fn apply<const D: usize, const N: usize>(
    function: AppliedFunction,
    tensor: Tensor<D>,
    axes: AxisList,
    operands: Vec<FloatTensor<Dispatch>>,
) -> [Tensor<D>; N] {
    let tensor = into_any(tensor).into_inner();
    let shape = tensor.shape().to_vec();
    let run = || {
        let application = Application::new::<Dispatch>(function, &tensor, &axes, &operands)?;
        let tensors = [tensor].into_iter().chain(operands).map(AnyTensor::Float).collect();
        Dispatch::run(tensors, Operation::Application(application))
    };
    match run() {
        Ok(results) => floats(results).map(|result| from_any(AnyTensor::Float(result))),
        Err(error) => panic!("`{function}` of a tensor of shape {shape:?}: {error}"),
    }
}

/// A weight and a bias, of those that are given.
fn weight_and_bias<const D: usize>(
    weight: Option<Tensor<D>>,
    bias: Option<Tensor<D>>,
) -> Vec<FloatTensor<Dispatch>> {
    let weight = weight.map(|weight| into_any(weight).into_inner());
    let bias = bias.map(|bias| into_any(bias).into_inner());
    // A bias is an operand behind the weight: without a weight, that is a 1.
    let weight = weight.or_else(|| {
        let bias = bias.as_ref()?;
        let (device, dtype) = (bias.device().inner(), bias.dtype().into());
        Some(Dispatch::float_ones(Shape::from([1; D]), &device, dtype))
    });
    weight.into_iter().chain(bias).collect()
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
    let [shares] = apply(AppliedFunction::Softmax, tensor, axes.into(), Vec::new());
    shares
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
    let [logarithms] = apply(AppliedFunction::LogSoftmax, tensor, axes.into(), Vec::new());
    logarithms
}

/// [`softmax`] over `axes` of the elements times `scale`, plus `mask`: the weights of attention
/// from its scores. Where there are kernels, nothing but the result is stored.
///
/// `mask` broadcasts to the tensor: along each axis it has the extent of the tensor, or 1. It may
/// have another float type. Where it is `-inf`, the result is 0; a slice that is masked everywhere
/// is NaN. A mask that is tracked gets a gradient too, such as a bias of relative positions.
///
/// ```
/// use burn_tensor::Tensor;
/// use reduce_burn::pairs::masked_softmax;
///
/// /// The weights of attention, for queries and keys of `[batch, heads, tokens, features]`.
/// fn attention(
///     queries: Tensor<4>,
///     keys: Tensor<4>,
///     mask: Tensor<4>, // 0 or -inf: [1, 1, tokens, tokens]
/// ) -> Tensor<4> {
///     let [_, _, _, features] = queries.dims();
///     let scores = queries.matmul(keys.swap_dims(2, 3));
///     masked_softmax(scores, -1, (features as f64).sqrt().recip(), mask)
/// }
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for a `scale` that is not finite.
#[track_caller]
pub fn masked_softmax<const D: usize>(
    tensor: Tensor<D>,
    axes: impl Into<AxisList>,
    scale: f64,
    mask: Tensor<D>,
) -> Tensor<D> {
    let operands = vec![into_any(mask).into_inner()];
    let function = AppliedFunction::MaskedSoftmax { scale };
    let [shares] = apply(function, tensor, axes.into(), operands);
    shares
}

/// The logarithm of [`masked_softmax`], without the loss of taking one after the other. Where the
/// mask is `-inf`, so is the result.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::pairs::masked_log_softmax;
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 4.0, 6.0]], &Device::flex());
/// // Without the last class.
/// let mask = Tensor::<2>::from_data([[0.0, 0.0, f32::NEG_INFINITY]], &Device::flex());
/// let logarithms = masked_log_softmax(x, 1, 0.5, mask); // shape [2, 3]
/// # let found = logarithms.into_data().to_vec::<f32>().unwrap();
/// # assert_eq!([found[2], found[5]], [f32::NEG_INFINITY; 2]);
/// # assert!((found[3] + 2f32.ln()).abs() < 1e-6);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for a `scale` that is not finite.
#[track_caller]
pub fn masked_log_softmax<const D: usize>(
    tensor: Tensor<D>,
    axes: impl Into<AxisList>,
    scale: f64,
    mask: Tensor<D>,
) -> Tensor<D> {
    let operands = vec![into_any(mask).into_inner()];
    let function = AppliedFunction::MaskedLogSoftmax { scale };
    let [logarithms] = apply(function, tensor, axes.into(), operands);
    logarithms
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
    let operands = weight_and_bias(weight, bias);
    let [normalized] = apply(AppliedFunction::LayerNorm { eps }, tensor, axes.into(), operands);
    normalized
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
    let operands = weight_and_bias(weight, None);
    let [normalized] = apply(AppliedFunction::RmsNorm { eps }, tensor, axes.into(), operands);
    normalized
}

/// The sum of a tensor and of a residual, and [`layer_norm`] of the sum over `axes`: the residual
/// connection of a layer and the normalisation that follows it. Both results have the shape and the
/// type of the tensor. Where there are kernels, one launch gives both.
///
/// `residual` broadcasts to the tensor, as `weight` and `bias` do, and may have another float type.
/// The sum is normalised before it is rounded to the type of the tensor.
///
/// ```
/// # use burn_tensor::Tensor;
/// # use reduce_burn::pairs::add_layer_norm;
/// /// The hidden states behind a block, and what the next block takes.
/// fn connect(
///     x: Tensor<3>, // what the block gives: [batch, tokens, features]
///     hidden: Tensor<3>,
///     weight: Tensor<1>, // [features]
///     bias: Tensor<1>,
/// ) -> (Tensor<3>, Tensor<3>) {
///     add_layer_norm(x, hidden, -1, Some(weight.unsqueeze()), Some(bias.unsqueeze()), 1e-5)
/// }
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for an `eps` that is negative or not finite.
#[track_caller]
pub fn add_layer_norm<const D: usize>(
    tensor: Tensor<D>,
    residual: Tensor<D>,
    axes: impl Into<AxisList>,
    weight: Option<Tensor<D>>,
    bias: Option<Tensor<D>>,
    eps: f64,
) -> (Tensor<D>, Tensor<D>) {
    let operands = [vec![into_any(residual).into_inner()], weight_and_bias(weight, bias)].concat();
    let function = AppliedFunction::AddLayerNorm { eps };
    let [sum, normalized] = apply(function, tensor, axes.into(), operands);
    (sum, normalized)
}

/// The sum of a tensor and of a residual, and [`rms_norm`] of the sum over `axes`, as
/// [`add_layer_norm`].
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::pairs::add_rms_norm;
///
/// let x = Tensor::<2>::from_data([[1.0, 3.0]], &Device::flex());
/// let hidden = Tensor::<2>::from_data([[2.0, 1.0]], &Device::flex());
/// let (sum, normalized) = add_rms_norm(x, hidden, 1, None, 0.0);
/// assert_eq!(sum.into_data().to_vec::<f32>().unwrap(), [3.0, 4.0]);
/// # assert!((normalized.sum().into_scalar::<f32>() - 7.0 / 12.5f32.sqrt()).abs() < 1e-6);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for an `eps` that is negative or not finite.
#[track_caller]
pub fn add_rms_norm<const D: usize>(
    tensor: Tensor<D>,
    residual: Tensor<D>,
    axes: impl Into<AxisList>,
    weight: Option<Tensor<D>>,
    eps: f64,
) -> (Tensor<D>, Tensor<D>) {
    let operands = [vec![into_any(residual).into_inner()], weight_and_bias(weight, None)].concat();
    let function = AppliedFunction::AddRmsNorm { eps };
    let [sum, normalized] = apply(function, tensor, axes.into(), operands);
    (sum, normalized)
}
