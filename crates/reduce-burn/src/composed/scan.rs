//! Scans made of Burn's own operations, for backends without kernels of reduce-kernels.
//!
//! The tensor becomes a matrix whose rows are scanned from left to right. Running sums, products
//! and extrema are Burn's. Those of logarithms and variances merge the results of twice as many
//! elements in each step, so a row of n elements takes log2(n) steps.

use core::iter::successors;

use burn_backend::{
    Backend, DType, TensorMetadata, get_device_settings,
    tensor::{BoolTensor, Device, IntTensor},
};
use burn_tensor::{Shape, kind::Kind};
use reduce_kernels::by_name::OperatorName;

use super::{
    reduction::{at_least_32_bits, in_rows, of_nothing, without_nan},
    segments::{is_position, joined, slice, start_of},
};
use crate::{
    axes::inverse, operand::Operand, quantization::limits, scanned::Scan, tensor::AnyTensor,
};

/// Runs a scan.
pub(crate) fn scan<B: Backend>(tensor: AnyTensor<B>, scan: &Scan) -> Vec<AnyTensor<B>> {
    let (shape, outputs, reduction) = (scan.shape(), scan.outputs(), scan.reduction());
    if shape.num_elements() == 0 {
        return of_nothing(0.0, shape, outputs, &tensor.device());
    }
    let turned = |rows: AnyTensor<B>| if scan.is_reverse() { rows.flip(1) } else { rows };
    let results = match turned(in_rows(tensor, reduction)) {
        AnyTensor::Float(x) => of_floats(Operand::<B>(x).wide(), scan),
        AnyTensor::Int(x) => of_ints::<B>(x, scan),
        AnyTensor::Bool(x) => vec![of_truths(x, scan.operator())],
    };
    let order = reduction.kept_first();
    let extents: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
    let typed = results.into_iter().zip(outputs).enumerate();
    let placed = typed.map(|(nth, (result, (kind, dtype)))| {
        let result = result.cast(dtype);
        let result = match scan.is_exclusive() {
            true => before(result, start(scan.operator(), nth, (kind, dtype))),
            false => result,
        };
        turned(result).reshape(Shape::from(extents.clone())).permute(&inverse(&order))
    });
    placed.collect()
}

/// The first result of an exclusive scan.
fn start(operator: OperatorName, nth: usize, (kind, dtype): (Kind, DType)) -> f64 {
    match is_position(operator, nth) {
        true => limits(dtype.into()).1,
        false => start_of(operator, nth, (kind, dtype)),
    }
}

/// Each result at the place behind its own, and `start` at the first place of each row.
fn before<B: Backend>(results: AnyTensor<B>, start: f64) -> AnyTensor<B> {
    let (shape, output) = (results.shape(), (results.kind(), results.dtype()));
    let column = Shape::from([shape[0], 1]);
    let first = of_nothing(start, &column, vec![output], &results.device()).remove(0);
    match shape[1] {
        1 => first,
        len => joined(vec![first, slice(results, 1, 0, len - 1)], 1),
    }
}

/// The results at each place of rows of f32 at least.
fn of_floats<B: Backend>(x: Operand<B>, scan: &Scan) -> Vec<AnyTensor<B>> {
    use OperatorName::*;

    let result = match scan.operator() {
        Sum => x.running_sum(1),
        Prod => x.running_product(1),
        Mean => {
            let counts = counts(&x, x.0.shape()[1]);
            x.running_sum(1) / counts
        }
        operator @ (Min | Max | MinWithIndex | MaxWithIndex) => {
            let largest = matches!(operator, Max | MaxWithIndex);
            let values = extrema(x.clone(), largest);
            if matches!(operator, Min | Max) {
                values
            } else {
                let positions = positions_of_floats(x, values.clone(), largest, scan.is_reverse());
                return vec![AnyTensor::Float(values.0), AnyTensor::Int(positions)];
            }
        }
        LogSumExp => logarithms(x),
        Var => variances(x, scan.options().correction).1,
        MeanVar => {
            let (means, variances) = variances(x, scan.options().correction);
            return vec![AnyTensor::Float(means.0), AnyTensor::Float(variances.0)];
        }
        operator => return vec![of_truths(x.differs_from(0.0), operator)],
    };
    vec![AnyTensor::Float(result.0)]
}

fn of_ints<B: Backend>(x: IntTensor<B>, scan: &Scan) -> Vec<AnyTensor<B>> {
    use OperatorName::*;

    let bool_dtype = get_device_settings::<B>(&x.device()).bool_dtype;
    let result = match scan.operator() {
        Sum => B::int_cumsum(at_least_32_bits::<B>(x), 1),
        Prod => B::int_cumprod(at_least_32_bits::<B>(x), 1),
        Min => B::int_cummin(x, 1),
        Max => B::int_cummax(x, 1),
        operator @ (MinWithIndex | MaxWithIndex) => {
            let largest = operator == MaxWithIndex;
            let values = if largest { B::int_cummax } else { B::int_cummin }(x.clone(), 1);
            let start = start_of(operator, 0, scan.input());
            let AnyTensor::Int(before) = before::<B>(AnyTensor::Int(values.clone()), start) else {
                unreachable!("results of integers are integers")
            };
            let is_new = match (largest, scan.is_reverse()) {
                (true, false) => B::int_greater(x, before, bool_dtype),
                (true, true) => B::int_greater_equal(x, before, bool_dtype),
                (false, false) => B::int_lower(x, before, bool_dtype),
                (false, true) => B::int_lower_equal(x, before, bool_dtype),
            };
            let positions = last::<B>(is_new, scan.is_reverse());
            return vec![AnyTensor::Int(values), AnyTensor::Int(positions)];
        }
        operator => {
            let is_zero = B::int_equal_elem(x, 0.into(), bool_dtype);
            return vec![of_truths(B::bool_not(is_zero), operator)];
        }
    };
    vec![AnyTensor::Int(result)]
}

fn of_truths<B: Backend>(x: BoolTensor<B>, operator: OperatorName) -> AnyTensor<B> {
    AnyTensor::Bool(match operator {
        OperatorName::Any => any::<B>(x),
        OperatorName::All => B::bool_not(any::<B>(B::bool_not(x))),
        other => unreachable!("`Scan::new` refuses `{other}`"),
    })
}

/// Whether any element so far is true.
fn any<B: Backend>(x: BoolTensor<B>) -> BoolTensor<B> {
    let settings = get_device_settings::<B>(&x.device());
    let running = B::int_cummax(B::bool_into_int(x, settings.int_dtype), 1);
    B::int_equal_elem(running, 1.into(), settings.bool_dtype)
}

/// The largest or the smallest elements so far: NaN from the first NaN on, whatever a backend's own
/// extrema do with NaN.
fn extrema<B: Backend>(x: Operand<B>, largest: bool) -> Operand<B> {
    let seen_nan = any::<B>(x.is_nan());
    let values = match largest {
        true => B::float_cummax(without_nan(x, f64::NEG_INFINITY).0, 1),
        false => B::float_cummin(without_nan(x, f64::INFINITY).0, 1),
    };
    Operand::<B>(values).fill(seen_nan, f64::NAN)
}

/// The positions of extrema, of which `values` are the values: those of the first NaN if there is
/// one, otherwise the first of equal elements.
fn positions_of_floats<B: Backend>(
    x: Operand<B>,
    values: Operand<B>,
    largest: bool,
    reverse: bool,
) -> IntTensor<B> {
    let (is_nan, bool_dtype) = (x.is_nan(), x.bool_dtype());
    let start = if largest { f64::NEG_INFINITY } else { f64::INFINITY };
    let AnyTensor::Float(before) = before::<B>(AnyTensor::Float(values.0), start) else {
        unreachable!("results of floats are floats")
    };
    let seen_nan = Operand::<B>(before.clone()).is_nan();
    // NaN is neither above nor below, so no element behind a NaN is new.
    let is_new = match (largest, reverse) {
        (true, false) => B::float_greater(x.0, before, bool_dtype),
        (true, true) => B::float_greater_equal(x.0, before, bool_dtype),
        (false, false) => B::float_lower(x.0, before, bool_dtype),
        (false, true) => B::float_lower_equal(x.0, before, bool_dtype),
    };
    let is_first_nan = match reverse {
        true => is_nan,
        false => B::bool_and(is_nan, B::bool_not(seen_nan)),
    };
    last::<B>(B::bool_or(is_new, is_first_nan), reverse)
}

/// The position of the last `true` so far, that of the first place if there is none. Those of
/// rows in reverse count from the other end.
fn last<B: Backend>(is_new: BoolTensor<B>, reverse: bool) -> IntTensor<B> {
    let (shape, device) = (is_new.shape(), is_new.device());
    let places = B::int_expand(places::<B>(shape[1], &device), shape.clone());
    let known = B::int_mask_fill(places, B::bool_not(is_new), 0.into());
    let positions = B::int_cummax(known, 1);
    match reverse {
        true => B::int_add_scalar(B::int_neg(positions), (shape[1] as i64 - 1).into()),
        false => positions,
    }
}

/// The numbers from 0 on, as a row.
fn places<B: Backend>(len: usize, device: &Device<B>) -> IntTensor<B> {
    let dtype = get_device_settings::<B>(device).int_dtype;
    let places = B::int_arange(0..len as i64, device, dtype);
    B::int_reshape(places, Shape::from([1, len]))
}

/// The numbers from 1 on, as a row in the type of `like`.
fn counts<B: Backend>(like: &Operand<B>, len: usize) -> Operand<B> {
    let places = places::<B>(len, &like.0.device());
    Operand::<B>(B::int_into_float(places, like.0.dtype().into())) + 1.0
}

/// The columns from number `from` on up to number `until`.
fn columns<B: Backend>(x: &Operand<B>, from: usize, until: usize) -> Operand<B> {
    match slice::<B>(AnyTensor::Float(x.0.clone()), 1, from, until) {
        AnyTensor::Float(part) => Operand(part),
        _ => unreachable!("a part of floats is of floats"),
    }
}

/// The values of all elements so far, from those of each element. `merge` merges the values of some
/// elements with those of up to `step` elements that follow them. `step` is its last argument.
fn in_steps<B: Backend, const N: usize>(
    elements: [Operand<B>; N],
    merge: impl Fn([Operand<B>; N], [Operand<B>; N], usize) -> [Operand<B>; N],
) -> [Operand<B>; N] {
    let len = elements[0].0.shape()[1];
    let steps = successors(Some(1), |step| Some(step * 2)).take_while(|&step| step < len);
    steps.fold(elements, |values, step| {
        let part = |from, until| values.each_ref().map(|own| columns(own, from, until));
        let merged = merge(part(0, len - step), part(step, len), step);
        let mut merged = merged.into_iter();
        part(0, step).map(|first| {
            let behind = merged.next().expect("there is a merged value for each");
            Operand(B::float_cat(vec![first.0, behind.0], 1))
        })
    })
}

/// The logarithms of the sums of exponentials so far.
fn logarithms<B: Backend>(x: Operand<B>) -> Operand<B> {
    let [logarithms] = in_steps([x], |[a], [b], _| {
        let is_above = a.is_above_each(b.clone());
        let larger = Operand::<B>(B::float_mask_where(b.0.clone(), is_above, a.0.clone()));
        // Of equal infinities, the difference is NaN.
        let is_equal = a.equals_each(b.clone());
        let distance = (a - b).abs().fill(is_equal, 0.0);
        [larger + (distance * -1.0).exp().log_of_one_more()]
    });
    logarithms
}

/// The means and the variances so far.
fn variances<B: Backend>(x: Operand<B>, correction: f64) -> (Operand<B>, Operand<B>) {
    let counts = counts(&x, x.0.shape()[1]);
    // As the kernels compute it: an infinite element has no distance from a mean.
    let squares = x.clone() - x.clone();
    let [means, squares] =
        in_steps([x, squares], |[mean, squares], [next_mean, next_squares], step| {
            let len = mean.0.shape()[1];
            let before = columns(&counts, 0, len).at_most(step as f64);
            let share = (before.clone() + step as f64).reciprocal() * step as f64;
            let distance = next_mean - mean.clone();
            let apart = distance.clone() * distance.clone() * (before * share.clone());
            [mean + distance * share, squares + next_squares + apart]
        });
    let divisors = (counts - correction).at_least(0.0);
    (means.fill(squares.is_nan(), f64::NAN), squares / divisors)
}
