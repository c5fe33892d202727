//! The functions that users call.

use burn_backend::tensor::FloatTensor;
use burn_tensor::{Tensor, TensorPrimitive};

use super::{Clipped, Clipping, NAME};
use crate::ReduceBackend;

/// Clips tensors of any ranks.
#[track_caller]
pub(super) fn clip<B: ReduceBackend>(
    function: &str,
    tensors: Vec<FloatTensor<B>>,
    max_norm: f64,
) -> Clipped<B> {
    let count = tensors.len();
    let run = || {
        let clipping = Clipping::new::<B>(&tensors, max_norm)?;
        B::clip_by_global_norm(tensors, &clipping)
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
/// Tensors of several ranks can be clipped with [`ReduceBackend::clip_by_global_norm`], and the
/// gradients of a module with `clip_gradients` of the feature `optim`.
///
/// # Panics
///
/// As [all functions](crate#errors): for no tensors, tensors on several devices, and a `max_norm`
/// that is not finite and above 0.
#[track_caller]
pub fn clip_by_global_norm<B: ReduceBackend, const D: usize>(
    tensors: Vec<Tensor<B, D>>,
    max_norm: f64,
) -> (Vec<Tensor<B, D>>, Tensor<B, 1>) {
    let tensors = tensors.into_iter().map(|tensor| tensor.into_primitive().tensor()).collect();
    let (clipped, norm) = clip::<B>(NAME, tensors, max_norm);
    let clipped = clipped.into_iter().map(|x| Tensor::from_primitive(TensorPrimitive::Float(x)));
    (clipped.collect(), Tensor::from_primitive(TensorPrimitive::Float(norm)))
}
