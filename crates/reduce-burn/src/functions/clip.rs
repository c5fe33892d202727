//! The functions that users call.

use burn_backend::tensor::FloatTensor;
use burn_dispatch::Dispatch;
use burn_tensor::Tensor;

use crate::clip::{Clipped, Clipping, NAME};
use crate::{
    backend::clip_by_global_norm as clip_floats,
    tensor::{AnyTensor, from_any, into_any},
};

/// Clips tensors of any ranks.
#[track_caller]
pub(super) fn clip(
    function: &str,
    tensors: Vec<FloatTensor<Dispatch>>,
    max_norm: f64,
) -> Clipped<Dispatch> {
    let count = tensors.len();
    let run = || {
        let clipping = Clipping::new::<Dispatch>(&tensors, max_norm)?;
        clip_floats::<Dispatch>(tensors, clipping)
    };
    match run() {
        Ok(clipped) => clipped,
        Err(error) => panic!("`{function}` of {count} tensors: {error}"),
    }
}

/// Scales tensors down together where their global norm, the L2 norm of all their elements, is
/// above `max_norm`: each element is multiplied by `max_norm / (norm + 1e-6)`, but by 1 at most.
/// Returns the tensors and the norm that they had.
///
/// The norm is an f32, or an f64 if a tensor is. A norm of NaN makes all elements NaN. An infinite
/// one makes them 0, and NaN where they are infinite.
///
/// Tensors of several ranks can be clipped with [`Operation::Clipping`](crate::backend::Operation),
/// and the gradients of a module with `clip_gradients` of the feature `optim`.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::clip_by_global_norm;
///
/// let x = Tensor::<1>::from_data([3.0, 4.0], &Device::flex());
/// let (clipped, norm) = clip_by_global_norm(vec![x], 1.0);
/// assert_eq!(norm.into_scalar::<f32>(), 5.0);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors): for no tensors, tensors on several devices, and a `max_norm`
/// that is not finite and above 0.
#[track_caller]
pub fn clip_by_global_norm<const D: usize>(
    tensors: Vec<Tensor<D>>,
    max_norm: f64,
) -> (Vec<Tensor<D>>, Tensor<1>) {
    let tensors = tensors.into_iter().map(|tensor| into_any(tensor).into_inner()).collect();
    let (clipped, norm) = clip(NAME, tensors, max_norm);
    let clipped = clipped.into_iter().map(|tensor| from_any(AnyTensor::Float(tensor)));
    (clipped.collect(), from_any(AnyTensor::Float(norm)))
}
