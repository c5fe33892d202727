//! Quantisation made of Burn's own operations and of a reduction, for backends without kernels of
//! reduce-kernels.

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_tensor::{DType, IntDType};
use reduce_kernels::by_name::OperatorName;

use crate::{
    backend::{ReduceBackend, reduced},
    error::ReduceBurnError,
    operand::Operand,
    quantization::Quantization,
};

/// The integers and the scales of a tensor.
pub(crate) fn quantize<B: ReduceBackend>(
    tensor: FloatTensor<B>,
    quantization: &Quantization,
) -> Result<(IntTensor<B>, FloatTensor<B>), ReduceBurnError> {
    let scale_dtype = quantization.scale_dtype();
    let x = Operand::<B>(tensor).cast(scale_dtype);
    let [largest] = reduced(OperatorName::NormInf, &x, quantization.axes())?;
    let scale = largest / quantization.most();
    // The reciprocal of a smaller one may be infinite.
    let least_normal = match scale_dtype {
        DType::F64 => f64::MIN_POSITIVE,
        _ => f32::MIN_POSITIVE.into(),
    };
    let is_small = scale.is_below(least_normal);
    let reciprocal = scale.clone().reciprocal().fill(is_small, 0.0);
    let quotient = x * reciprocal;
    // Of NaN, and of infinities: the reciprocal of their scale is 0.
    let is_nan = quotient.is_nan();
    let rounded = Operand::<B>(B::float_round(quotient.fill(is_nan, 0.0).0));
    let integers = match quantization.integers() {
        IntDType::U8 | IntDType::U16 | IntDType::U32 | IntDType::U64 => rounded.at_least(0.0),
        _ => rounded,
    };
    Ok((B::float_into_int(integers.0, quantization.integers()), scale.0))
}
