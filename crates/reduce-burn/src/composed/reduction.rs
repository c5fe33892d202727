//! Reductions made of Burn's own operations, for backends without kernels of reduce-kernels.
//!
//! The tensor becomes a matrix with a row for each result. Whatever a backend's own extrema do with
//! NaN and ties, the results here are those of docs/SEMANTICS.md.

use burn_backend::{
    Backend, DType, TensorData, TensorMetadata, get_device_settings,
    tensor::{BoolTensor, Device, IntTensor},
};
use burn_tensor::{IntDType, Shape, kind::Kind};
use reduce_kernels::by_name::OperatorName;

use crate::{
    operand::Operand,
    reduction::{Reduction, value_of_nothing},
    tensor::AnyTensor,
};

/// Runs a reduction.
pub(crate) fn reduce<B: Backend>(tensor: AnyTensor<B>, reduction: &Reduction) -> Vec<AnyTensor<B>> {
    if reduction.input_shape().num_elements() == 0 {
        let value = value_of_nothing(reduction.operator()).unwrap_or(0.0);
        return of_nothing(value, &reduction.output_shape(), reduction.outputs(), &tensor.device());
    }
    let columns = match in_rows(tensor, reduction) {
        AnyTensor::Float(x) => of_floats(Operand::<B>(x).wide(), reduction),
        AnyTensor::Int(x) => of_ints::<B>(x, reduction),
        AnyTensor::Bool(x) => vec![of_truths(x, reduction.operator())],
    };
    let shape = reduction.output_shape();
    let typed = columns.into_iter().zip(reduction.outputs());
    typed.map(|(column, (_, dtype))| column.reshape(shape.clone()).cast(dtype)).collect()
}

/// The tensor as a matrix with a row for each result.
pub(super) fn in_rows<B: Backend>(tensor: AnyTensor<B>, reduction: &Reduction) -> AnyTensor<B> {
    let rows = Shape::from([reduction.outputs_len(), reduction.len()]);
    tensor.permute(&reduction.kept_first()).reshape(rows)
}

/// The results of a tensor without elements, which all are `value`.
pub(crate) fn of_nothing<B: Backend>(
    value: f64,
    shape: &Shape,
    outputs: Vec<(Kind, DType)>,
    device: &Device<B>,
) -> Vec<AnyTensor<B>> {
    let results = outputs.into_iter().map(|(kind, dtype)| match kind {
        Kind::Float => {
            AnyTensor::Float(B::float_full(shape.clone(), value.into(), device, dtype.into()))
        }
        // burn-flex does not fill with a number that no i64 holds.
        Kind::Int if dtype == DType::U64 && value > i64::MAX as f64 => {
            let data = vec![value as u64; shape.num_elements()];
            AnyTensor::Int(B::int_from_data(TensorData::new(data, shape.clone()), device))
        }
        Kind::Int => {
            AnyTensor::Int(B::int_full(shape.clone(), (value as i64).into(), device, dtype.into()))
        }
        Kind::Bool if value != 0.0 => {
            AnyTensor::Bool(B::bool_ones(shape.clone(), device, dtype.into()))
        }
        Kind::Bool => AnyTensor::Bool(B::bool_zeros(shape.clone(), device, dtype.into())),
    });
    results.collect()
}

/// A result of each row, from rows of f32 at least.
fn of_floats<B: Backend>(x: Operand<B>, reduction: &Reduction) -> Vec<AnyTensor<B>> {
    use OperatorName::*;

    let len = reduction.len() as f64;
    let divisor = reduction.divisor();
    let correction = reduction.options().correction;
    let result = match reduction.operator() {
        Sum => x.sum(1),
        Prod => x.product(1),
        Mean => x.sum(1) / len,
        Min => extremum(x, false).0,
        Max => extremum(x, true).0,
        MinMax => return floats([extremum(x.clone(), false).0, extremum(x, true).0]),
        ArgMin => return vec![AnyTensor::Int(extremum(x, false).1)],
        ArgMax => return vec![AnyTensor::Int(extremum(x, true).1)],
        MinWithIndex => return with_index(extremum(x, false)),
        MaxWithIndex => return with_index(extremum(x, true)),
        operator @ (Any | All | CountNonzero) => {
            return vec![of_truths(x.differs_from(0.0), operator)];
        }
        AnyNonFinite => {
            let is_wrong = B::bool_or(x.is_nan(), x.is_infinite());
            return vec![of_truths(is_wrong, Any)];
        }
        SumAbs | NormL1 => x.abs().sum(1),
        SumSquares => squares(x),
        NormL2 => norm(x, 2.0),
        NormInf => extremum(x.abs(), true).0,
        NormP => norm(x, reduction.options().p),
        Var => squares(deviations(x, len)) / divisor,
        Std => norm(deviations(x, len), 2.0) / divisor.sqrt(),
        MeanVar => {
            let squares = squares(deviations(x.clone(), len));
            // As the kernels compute it: an infinite element has no distance from a mean.
            let mean = (x.sum(1) / len).fill(squares.is_nan(), f64::NAN);
            return floats([mean, squares / divisor]);
        }
        LogSumExp => {
            let largest = extremum(x.clone(), true).0;
            let is_infinite = largest.is_infinite();
            let shift = largest.fill(is_infinite, 0.0);
            (x - shift.clone()).exp().sum(1).log() + shift
        }
        NanSum => without_nan(x, 0.0).sum(1),
        NanProd => without_nan(x, 1.0).product(1),
        NanMean => without_nan(x.clone(), 0.0).sum(1) / numbers(&x),
        NanMin => extremum_without_nan(x, false).0,
        NanMax => extremum_without_nan(x, true).0,
        NanArgMin => return vec![AnyTensor::Int(extremum_without_nan(x, false).1)],
        NanArgMax => return vec![AnyTensor::Int(extremum_without_nan(x, true).1)],
        NanVar => squares(deviations_without_nan(x.clone())) / divisors(&x, correction),
        NanStd => norm(deviations_without_nan(x.clone()), 2.0) / divisors(&x, correction).sqrt(),
        other => panic!("this reduce-burn is older than the operator `{other}` of reduce-kernels"),
    };
    floats([result])
}

fn floats<B: Backend, const N: usize>(results: [Operand<B>; N]) -> Vec<AnyTensor<B>> {
    results.map(|result| AnyTensor::Float(result.0)).into()
}

fn of_ints<B: Backend>(x: IntTensor<B>, reduction: &Reduction) -> Vec<AnyTensor<B>> {
    use OperatorName::*;

    let is_signed = reduction.input().1.is_int();
    let bool_dtype = get_device_settings::<B>(&x.device()).bool_dtype;
    let result = match reduction.operator() {
        Sum => B::int_sum_dim(at_least_32_bits::<B>(x), 1),
        Prod => B::int_prod_dim(at_least_32_bits::<B>(x), 1),
        SumAbs if is_signed => B::int_sum_dim(B::int_abs(at_least_32_bits::<B>(x)), 1),
        SumAbs => B::int_sum_dim(at_least_32_bits::<B>(x), 1),
        SumSquares => {
            let x = at_least_32_bits::<B>(x);
            B::int_sum_dim(B::int_mul(x.clone(), x), 1)
        }
        Min => B::int_min_dim(x, 1),
        Max => B::int_max_dim(x, 1),
        MinMax => {
            let results = [B::int_min_dim(x.clone(), 1), B::int_max_dim(x, 1)];
            return results.map(AnyTensor::Int).into();
        }
        operator @ (ArgMin | ArgMax | MinWithIndex | MaxWithIndex) => {
            let value = match operator {
                ArgMin | MinWithIndex => B::int_min_dim(x.clone(), 1),
                _ => B::int_max_dim(x.clone(), 1),
            };
            let repeated = B::int_expand(value.clone(), x.shape());
            let position = AnyTensor::Int(first::<B>(B::int_equal(x, repeated, bool_dtype)));
            return match operator {
                ArgMin | ArgMax => vec![position],
                _ => vec![AnyTensor::Int(value), position],
            };
        }
        operator => {
            let is_zero = B::int_equal_elem(x, 0.into(), bool_dtype);
            return vec![of_truths(B::bool_not(is_zero), operator)];
        }
    };
    vec![AnyTensor::Int(result)]
}

fn of_truths<B: Backend>(x: BoolTensor<B>, operator: OperatorName) -> AnyTensor<B> {
    match operator {
        OperatorName::Any => AnyTensor::Bool(B::bool_any_dim(x, 1)),
        OperatorName::All => AnyTensor::Bool(B::bool_all_dim(x, 1)),
        OperatorName::CountNonzero => {
            let dtype = get_device_settings::<B>(&x.device()).int_dtype;
            AnyTensor::Int(B::int_sum_dim(B::bool_into_int(x, dtype), 1))
        }
        other => unreachable!("`Reduction::new` refuses `{other}` of truth values"),
    }
}

/// Burn adds up integers in their own type.
pub(super) fn at_least_32_bits<B: Backend>(x: IntTensor<B>) -> IntTensor<B> {
    match x.dtype() {
        DType::I8 | DType::I16 => B::int_cast(x, IntDType::I32),
        DType::U8 | DType::U16 => B::int_cast(x, IntDType::U32),
        _ => x,
    }
}

fn with_index<B: Backend>((value, position): (Operand<B>, IntTensor<B>)) -> Vec<AnyTensor<B>> {
    vec![AnyTensor::Float(value.0), AnyTensor::Int(position)]
}

/// The largest or the smallest element of each row, and its position: the first NaN, if there is
/// one.
fn extremum<B: Backend>(x: Operand<B>, largest: bool) -> (Operand<B>, IntTensor<B>) {
    let is_nan = x.is_nan();
    let has_nan = B::bool_any_dim(is_nan.clone(), 1);
    let value = extremum_of_numbers(x.clone(), largest);
    let shape = x.0.shape();
    let same = x.equals_each(value.clone().expand(shape.clone()));
    let no_nan = B::bool_expand(B::bool_not(has_nan.clone()), shape);
    let candidates = B::bool_or(B::bool_and(same, no_nan), is_nan);
    (value.fill(has_nan, f64::NAN), first::<B>(candidates))
}

/// The largest or the smallest number of each row, and its position: NaN and 0 if there is none.
fn extremum_without_nan<B: Backend>(x: Operand<B>, largest: bool) -> (Operand<B>, IntTensor<B>) {
    let shape = x.0.shape();
    let all_nan = B::bool_all_dim(x.is_nan(), 1);
    let value = extremum_of_numbers(x.clone(), largest);
    // NaN is equal to nothing.
    let position = first::<B>(x.equals_each(value.clone().expand(shape.clone())));
    let nowhere = B::int_equal_elem(position.clone(), (shape[1] as i64).into(), x.bool_dtype());
    (value.fill(all_nan, f64::NAN), B::int_mask_fill(position, nowhere, 0.into()))
}

fn extremum_of_numbers<B: Backend>(x: Operand<B>, largest: bool) -> Operand<B> {
    match largest {
        true => without_nan(x, f64::NEG_INFINITY).largest(1),
        false => without_nan(x, f64::INFINITY).least(1),
    }
}

/// The position of the first `true` of each row; the length of the row if there is none.
fn first<B: Backend>(mask: BoolTensor<B>) -> IntTensor<B> {
    let (shape, device) = (mask.shape(), mask.device());
    let len = shape[1] as i64;
    let dtype = get_device_settings::<B>(&device).int_dtype;
    let positions = B::int_arange(0..len, &device, dtype);
    let positions = B::int_reshape(positions, Shape::from([1, shape[1]]));
    let positions = B::int_expand(positions, shape);
    B::int_min_dim(B::int_mask_fill(positions, B::bool_not(mask), len.into()), 1)
}

pub(super) fn without_nan<B: Backend>(x: Operand<B>, replacement: f64) -> Operand<B> {
    let is_nan = x.is_nan();
    x.fill(is_nan, replacement)
}

/// The number of elements of each row that are not NaN.
fn numbers<B: Backend>(x: &Operand<B>) -> Operand<B> {
    let is_number = B::bool_not(x.is_nan());
    Operand::<B>(B::bool_into_float(is_number, x.0.dtype().into())).sum(1)
}

/// What the variance of the numbers of each row is divided by.
fn divisors<B: Backend>(x: &Operand<B>, correction: f64) -> Operand<B> {
    (numbers(x) - correction).at_least(0.0)
}

fn deviations<B: Backend>(x: Operand<B>, len: f64) -> Operand<B> {
    let mean = x.clone().sum(1) / len;
    x - mean
}

/// The deviation of each number from the mean of the numbers; 0 for NaN. If the numbers have no
/// mean, as where there are none, the deviations are NaN.
fn deviations_without_nan<B: Backend>(x: Operand<B>) -> Operand<B> {
    let mean = without_nan(x.clone(), 0.0).sum(1) / numbers(&x);
    let is_nan = x.is_nan();
    let no_mean = B::bool_expand(mean.is_nan(), x.0.shape());
    (x - mean).fill(is_nan, 0.0).fill(no_mean, f64::NAN)
}

fn squares<B: Backend>(x: Operand<B>) -> Operand<B> {
    (x.clone() * x).sum(1)
}

/// The Lp norm of each row. Magnitudes are divided by the largest, so no power overflows.
fn norm<B: Backend>(x: Operand<B>, p: f64) -> Operand<B> {
    let x = x.abs();
    let scale = extremum(x.clone(), true).0;
    let unusable = B::bool_or(scale.is_infinite(), scale.equals(0.0));
    let scale = scale.fill(unusable, 1.0);
    (x / scale.clone()).powf(p).sum(1).powf(1.0 / p) * scale
}
