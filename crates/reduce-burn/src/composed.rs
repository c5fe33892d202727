//! Reductions made of Burn's own operations, for backends without kernels of reduce-kernels.
//!
//! The tensor becomes a matrix with a row for each result. Whatever a backend's own extrema do with
//! NaN and ties, the results here are those of docs/SEMANTICS.md.

use burn_backend::{
    Backend, DType, TensorMetadata,
    tensor::{Device, FloatTensor},
};
use burn_tensor::{Bool, FloatDType, Int, IntDType, Shape, Tensor, TensorPrimitive};
use reduce_kernels::OperatorName;

use crate::{AnyTensor, Kind, Reduction, reduction::value_of_nothing};

/// Runs a reduction.
pub(crate) fn reduce<B: Backend>(tensor: AnyTensor<B>, reduction: &Reduction) -> Vec<AnyTensor<B>> {
    if reduction.input_shape().num_elements() == 0 {
        let value = value_of_nothing(reduction.operator()).unwrap_or(0.0);
        return of_nothing(value, &reduction.output_shape(), reduction.outputs(), &tensor.device());
    }
    let order = [reduction.kept_axes(), reduction.axes().to_vec()].concat();
    let rows = Shape::from([reduction.outputs_len(), reduction.len()]);
    let columns = match tensor {
        AnyTensor::Float(x) => {
            of_floats::<B>(rows_of(B::float_permute(x, &order), rows), reduction)
        }
        AnyTensor::Int(x) => {
            let x = B::int_reshape(B::int_permute(x, &order), rows);
            of_ints(Tensor::from_primitive(x), reduction)
        }
        AnyTensor::Bool(x) => {
            let x = B::bool_reshape(B::bool_permute(x, &order), rows);
            vec![of_truths(Tensor::from_primitive(x), reduction.operator())]
        }
    };
    let shape = reduction.output_shape();
    let typed =
        columns.into_iter().zip(reduction.outputs()).map(|(column, (_, dtype))| match column {
            Column::Float(x) => {
                let x = B::float_reshape(x.into_primitive().tensor(), shape.clone());
                AnyTensor::Float(B::float_cast(x, dtype.into()))
            }
            Column::Int(x) => {
                let x = B::int_reshape(x.into_primitive(), shape.clone());
                AnyTensor::Int(B::int_cast(x, dtype.into()))
            }
            Column::Bool(x) => AnyTensor::Bool(B::bool_reshape(x.into_primitive(), shape.clone())),
        });
    typed.collect()
}

/// A result of each row.
enum Column<B: Backend> {
    Float(Tensor<B, 2>),
    Int(Tensor<B, 2, Int>),
    Bool(Tensor<B, 2, Bool>),
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

/// The rows of a float tensor, in f32 at least.
fn rows_of<B: Backend>(x: FloatTensor<B>, rows: Shape) -> Tensor<B, 2> {
    let x = B::float_reshape(x, rows);
    let x = match x.dtype() {
        DType::F32 | DType::F64 => x,
        _ => B::float_cast(x, FloatDType::F32),
    };
    Tensor::from_primitive(TensorPrimitive::Float(x))
}

fn of_floats<B: Backend>(x: Tensor<B, 2>, reduction: &Reduction) -> Vec<Column<B>> {
    use OperatorName::*;

    let len = reduction.len() as f64;
    let divisor = reduction.divisor();
    let correction = reduction.options().correction;
    let result = match reduction.operator() {
        Sum => x.sum_dim(1),
        Prod => x.prod_dim(1),
        Mean => x.sum_dim(1) / len,
        Min => extremum(x, false).0,
        Max => extremum(x, true).0,
        MinMax => {
            return vec![
                Column::Float(extremum(x.clone(), false).0),
                Column::Float(extremum(x, true).0),
            ];
        }
        ArgMin => return vec![Column::Int(extremum(x, false).1)],
        ArgMax => return vec![Column::Int(extremum(x, true).1)],
        MinWithIndex => return with_index(extremum(x, false)),
        MaxWithIndex => return with_index(extremum(x, true)),
        operator @ (Any | All | CountNonzero) => {
            return vec![of_truths(x.equal_elem(0.0).bool_not(), operator)];
        }
        AnyNonFinite => {
            let is_wrong = x.clone().is_nan().bool_or(x.is_inf());
            return vec![of_truths(is_wrong, Any)];
        }
        SumAbs | NormL1 => x.abs().sum_dim(1),
        SumSquares => (x.clone() * x).sum_dim(1),
        NormL2 => norm(x, 2.0),
        NormInf => extremum(x.abs(), true).0,
        NormP => norm(x, reduction.options().p),
        Var => squares(deviations(x, len)) / divisor,
        Std => norm(deviations(x, len), 2.0) / divisor.sqrt(),
        MeanVar => {
            let squares = squares(deviations(x.clone(), len));
            // As the kernels compute it: an infinite element has no distance from a mean.
            let mean = (x.sum_dim(1) / len).mask_fill(squares.clone().is_nan(), f64::NAN);
            return vec![Column::Float(mean), Column::Float(squares / divisor)];
        }
        LogSumExp => {
            let largest = extremum(x.clone(), true).0;
            let shift = largest.clone().mask_fill(largest.is_inf(), 0.0);
            (x - shift.clone()).exp().sum_dim(1).log() + shift
        }
        NanSum => without_nan(x, 0.0).sum_dim(1),
        NanProd => without_nan(x, 1.0).prod_dim(1),
        NanMean => without_nan(x.clone(), 0.0).sum_dim(1) / numbers(x),
        NanMin => extremum_without_nan(x, false).0,
        NanMax => extremum_without_nan(x, true).0,
        NanArgMin => return vec![Column::Int(extremum_without_nan(x, false).1)],
        NanArgMax => return vec![Column::Int(extremum_without_nan(x, true).1)],
        NanVar => squares(deviations_without_nan(x.clone())) / divisors(x, correction),
        NanStd => norm(deviations_without_nan(x.clone()), 2.0) / divisors(x, correction).sqrt(),
        other => panic!("this reduce-burn is older than the operator `{other}` of reduce-kernels"),
    };
    vec![Column::Float(result)]
}

fn of_ints<B: Backend>(x: Tensor<B, 2, Int>, reduction: &Reduction) -> Vec<Column<B>> {
    use OperatorName::*;

    let is_signed = reduction.input().1.is_int();
    let result = match reduction.operator() {
        Sum => at_least_32_bits(x).sum_dim(1),
        Prod => at_least_32_bits(x).prod_dim(1),
        SumAbs if is_signed => at_least_32_bits(x).abs().sum_dim(1),
        SumAbs => at_least_32_bits(x).sum_dim(1),
        SumSquares => {
            let x = at_least_32_bits(x);
            (x.clone() * x).sum_dim(1)
        }
        Min => x.min_dim(1),
        Max => x.max_dim(1),
        MinMax => return vec![Column::Int(x.clone().min_dim(1)), Column::Int(x.max_dim(1))],
        operator @ (ArgMin | ArgMax | MinWithIndex | MaxWithIndex) => {
            let value = match operator {
                ArgMin | MinWithIndex => x.clone().min_dim(1),
                _ => x.clone().max_dim(1),
            };
            let same = x.clone().equal(value.clone().expand(x.shape()));
            let position = Column::Int(first(same));
            return match operator {
                ArgMin | ArgMax => vec![position],
                _ => vec![Column::Int(value), position],
            };
        }
        operator => return vec![of_truths(x.equal_elem(0).bool_not(), operator)],
    };
    vec![Column::Int(result)]
}

fn of_truths<B: Backend>(x: Tensor<B, 2, Bool>, operator: OperatorName) -> Column<B> {
    match operator {
        OperatorName::Any => Column::Bool(x.any_dim(1)),
        OperatorName::All => Column::Bool(x.all_dim(1)),
        OperatorName::CountNonzero => Column::Int(x.int().sum_dim(1)),
        other => unreachable!("`Reduction::new` refuses `{other}` of truth values"),
    }
}

/// Burn adds up integers in their own type.
fn at_least_32_bits<B: Backend>(x: Tensor<B, 2, Int>) -> Tensor<B, 2, Int> {
    match x.dtype() {
        DType::I8 | DType::I16 => x.cast(IntDType::I32),
        DType::U8 | DType::U16 => x.cast(IntDType::U32),
        _ => x,
    }
}

fn with_index<B: Backend>((value, position): (Tensor<B, 2>, Tensor<B, 2, Int>)) -> Vec<Column<B>> {
    vec![Column::Float(value), Column::Int(position)]
}

/// The largest or the smallest element of each row, and its position: the first NaN, if there is
/// one.
fn extremum<B: Backend>(x: Tensor<B, 2>, largest: bool) -> (Tensor<B, 2>, Tensor<B, 2, Int>) {
    let is_nan = x.clone().is_nan();
    let has_nan = is_nan.clone().any_dim(1);
    let value = extremum_of_numbers(x.clone(), largest);
    let same = x.clone().equal(value.clone().expand(x.shape()));
    let candidates = same.bool_and(has_nan.clone().bool_not().expand(x.shape())).bool_or(is_nan);
    (value.mask_fill(has_nan, f64::NAN), first(candidates))
}

/// The largest or the smallest number of each row, and its position: NaN and 0 if there is none.
fn extremum_without_nan<B: Backend>(
    x: Tensor<B, 2>,
    largest: bool,
) -> (Tensor<B, 2>, Tensor<B, 2, Int>) {
    let [_, len] = x.dims();
    let all_nan = x.clone().is_nan().all_dim(1);
    let value = extremum_of_numbers(x.clone(), largest);
    // NaN is equal to nothing.
    let position = first(x.clone().equal(value.clone().expand(x.shape())));
    let nowhere = position.clone().equal_elem(len as i64);
    (value.mask_fill(all_nan, f64::NAN), position.mask_fill(nowhere, 0))
}

fn extremum_of_numbers<B: Backend>(x: Tensor<B, 2>, largest: bool) -> Tensor<B, 2> {
    if largest {
        without_nan(x, f64::NEG_INFINITY).max_dim(1)
    } else {
        without_nan(x, f64::INFINITY).min_dim(1)
    }
}

/// The position of the first `true` of each row; the length of the row if there is none.
fn first<B: Backend>(mask: Tensor<B, 2, Bool>) -> Tensor<B, 2, Int> {
    let [rows, len] = mask.dims();
    let positions = Tensor::<B, 1, Int>::arange(0..len as i64, &mask.device());
    let positions = positions.reshape([1, len]).expand([rows, len]);
    positions.mask_fill(mask.bool_not(), len as i64).min_dim(1)
}

fn without_nan<B: Backend>(x: Tensor<B, 2>, replacement: f64) -> Tensor<B, 2> {
    x.clone().mask_fill(x.is_nan(), replacement)
}

/// The number of elements of each row that are not NaN.
fn numbers<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let dtype = x.dtype();
    x.is_nan().bool_not().float().cast(FloatDType::from(dtype)).sum_dim(1)
}

/// What the variance of the numbers of each row is divided by.
fn divisors<B: Backend>(x: Tensor<B, 2>, correction: f64) -> Tensor<B, 2> {
    (numbers(x) - correction).clamp_min(0.0)
}

fn deviations<B: Backend>(x: Tensor<B, 2>, len: f64) -> Tensor<B, 2> {
    let mean = x.clone().sum_dim(1) / len;
    x - mean
}

/// The deviation of each number from the mean of the numbers; 0 for NaN. If the numbers have no
/// mean, as where there are none, the deviations are NaN.
fn deviations_without_nan<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let mean = without_nan(x.clone(), 0.0).sum_dim(1) / numbers(x.clone());
    let is_nan = x.clone().is_nan();
    let no_mean = mean.clone().is_nan().expand(x.shape());
    (x - mean).mask_fill(is_nan, 0.0).mask_fill(no_mean, f64::NAN)
}

fn squares<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    (x.clone() * x).sum_dim(1)
}

/// The Lp norm of each row. Magnitudes are divided by the largest, so no power overflows.
fn norm<B: Backend>(x: Tensor<B, 2>, p: f64) -> Tensor<B, 2> {
    let x = x.abs();
    let scale = extremum(x.clone(), true).0;
    let unusable = scale.clone().is_inf().bool_or(scale.clone().equal_elem(0.0));
    let scale = scale.mask_fill(unusable, 1.0);
    (x / scale.clone()).powf_scalar(p).sum_dim(1).powf_scalar(1.0 / p) * scale
}
