//! The functions that users call.

use burn_backend::TensorMetadata;
use burn_dispatch::Dispatch;
use burn_tensor::{Int, IntDType, Tensor};

use crate::quantization::{NAME, Quantization};
use crate::{
    axes::AxisList,
    backend::{Operation, ReduceBackend, these},
    tensor::{AnyTensor, from_any, into_any},
};

/// The integers that are nearest to the elements over the scale of their slice, in the type
/// `integers`, and the scales. A scale is the largest magnitude of a slice over `most`: 127 for all
/// of i8, 7 for integers of 4 bits. Where there are kernels, one launch gives both.
///
/// The integers have the shape of the tensor. The scales keep the axes with size 1 and are of f32,
/// or of f64 if the tensor is. Of two integers that are as near, the even one is taken. In an
/// unsigned type, elements below 0 become 0.
///
/// A slice of zeros has the scale 0. A slice with NaN has the scale NaN, and one with an infinity
/// an infinite one. The integers of all of these are 0, and so are those of a scale below the least
/// normal number of its type.
///
/// Integers have no gradient, and no gradient flows through the scales: they are constants, also if
/// the tensor is tracked.
///
/// Kernels in WGSL have no integers of 8 and 16 bits: take [`IntDType::I32`] there, with the same
/// `most`.
///
/// ```
/// use burn_tensor::{Int, IntDType, Tensor};
/// use reduce_burn::quantize::quantize;
///
/// /// The weights of `[outputs, inputs]`, with a scale for each 32 inputs.
/// fn in_blocks(weights: Tensor<2>) -> (Tensor<2, Int>, Tensor<2>) {
///     let [outputs, inputs] = weights.dims();
///     let blocks = weights.reshape([outputs, inputs / 32, 32]);
///     let (integers, scales) = quantize(blocks, -1, 127.0, IntDType::I8);
///     (integers.reshape([outputs, inputs]), scales.reshape([outputs, inputs / 32]))
/// }
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for a `most` that is not above 0 or that the type does not
/// hold.
#[track_caller]
pub fn quantize<const D: usize>(
    tensor: Tensor<D>,
    axes: impl Into<AxisList>,
    most: f64,
    integers: IntDType,
) -> (Tensor<D, Int>, Tensor<D>) {
    let tensor = into_any(tensor).into_inner();
    let shape = tensor.shape().to_vec();
    let run = || {
        let quantization = Quantization::new::<Dispatch>(&tensor, &axes.into(), most, integers)?;
        Dispatch::run(vec![AnyTensor::Float(tensor)], Operation::Quantization(quantization))
    };
    match run() {
        Ok(results) => {
            let [integers, scales] = these(results);
            (from_any(integers), from_any(scales))
        }
        Err(error) => panic!("`{NAME}` of a tensor of shape {shape:?}: {error}"),
    }
}
