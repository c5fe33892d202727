//! Clipping made of Burn's own operations and of reductions, for backends without kernels of
//! reduce-kernels.

use burn_backend::tensor::FloatTensor;
use burn_tensor::Shape;
use reduce_kernels::by_name::OperatorName;

use crate::{
    backend::{ReduceBackend, reduced},
    clip::{Clipped, Clipping},
    error::ReduceBurnError,
    operand::Operand,
};

/// What is added to a norm that is divided by, as reduce-kernels does it.
const EPS: f64 = 1e-6;

/// Clips tensors. Returns them and the norm that they had.
pub(crate) fn clip_by_global_norm<B: ReduceBackend>(
    tensors: Vec<FloatTensor<B>>,
    clipping: &Clipping,
) -> Result<Clipped<B>, ReduceBurnError> {
    let wide = clipping.norm_dtype();
    let norm_of = |x: &Operand<B>, shape: &Shape| -> Result<Operand<B>, ReduceBurnError> {
        let axes: Vec<usize> = (0..shape.num_dims()).collect();
        let [norm] = reduced(OperatorName::NormL2, x, &axes)?;
        Ok(norm.reshape(clipping.norm_shape()))
    };
    let tensors: Vec<_> = tensors.into_iter().map(Operand::<B>).collect();
    let norms = tensors
        .iter()
        .zip(clipping.tensors())
        .map(|(tensor, (_, shape))| Ok(norm_of(&tensor.clone().cast(wide), shape)?.0))
        .collect::<Result<Vec<_>, ReduceBurnError>>()?;
    let count = norms.len();
    let norm = norm_of(&Operand(B::float_cat(norms, 0)), &Shape::from([count]))?;
    // A backend's minimum may drop a NaN.
    let is_nan = norm.is_nan();
    let factor = (norm.clone() + EPS).reciprocal() * clipping.max_norm();
    let factor = factor.at_most(1.0).fill(is_nan, f64::NAN);
    let clipped = tensors.into_iter().zip(clipping.tensors()).map(|(tensor, (dtype, shape))| {
        if shape.num_elements() == 0 {
            return tensor.0;
        }
        let factor = factor.clone().reshape(Shape::from(vec![1; shape.num_dims()]));
        (tensor.cast(wide) * factor).cast(*dtype).0
    });
    Ok((clipped.collect(), norm.0))
}
