//! The gradients of scans: what the forward pass saves, and the formulas of the backward pass.
//!
//! An element is in the results from its position on, so most formulas are scans from the other end
//! ([`Scan::turned`]), exclusive where the scan is. They compute in f32 at least, and round to the
//! type of the input last.

use core::ops::Range;

use burn_backend::{
    Backend, TensorMetadata, get_device_settings,
    tensor::{BoolTensor, FloatTensor, IntTensor},
};
use burn_std::Slice;
use burn_tensor::{IntDType, Shape};
use reduce_kernels::by_name::{OperatorName, OperatorOptions};

use super::{float, float_and_int, scattered};
use crate::{
    axes::{inverse, reverse},
    backend::{self, ReduceBackend, reduced},
    error::ReduceBurnError,
    operand::{Operand, wide},
    reduction::Reduction,
    scanned::Scan,
    segmented::Members,
    tensor::{AnyTensor, floats},
};

/// A result, and how its gradient reaches the input; positions and truth values have none.
pub(crate) type Differentiable<B> = (AnyTensor<B>, Option<ScanGradient<B>>);

/// How the gradient of one result reaches the input.
#[derive(Clone, Debug)]
pub(crate) struct ScanGradient<B: Backend> {
    scan: Scan,
    formula: Formula<B>,
}

/// The formula of a gradient, with what it needs from the forward pass. `x` is the input; a saved
/// input is a second handle to its memory, not a copy. A saved result is of f32 at least.
#[derive(Clone, Debug)]
enum Formula<B: Backend> {
    Sum,
    Mean,
    /// One element is each result: extrema.
    Selected {
        index: IntTensor<B>,
    },
    Product {
        x: FloatTensor<B>,
    },
    LogSumExp {
        x: FloatTensor<B>,
        result: FloatTensor<B>,
    },
    Variance {
        x: FloatTensor<B>,
        mean: FloatTensor<B>,
    },
}

/// The results of a scan whose input is tracked, with their gradients.
pub(crate) fn forward<B: ReduceBackend>(
    x: FloatTensor<B>,
    scan: &Scan,
) -> Result<Vec<Differentiable<B>>, ReduceBurnError> {
    use OperatorName::*;

    let (dtype, operator) = (x.dtype(), scan.operator());
    let run = |scan: Scan| backend::scan::<B>(AnyTensor::Float(x.clone()), scan);
    // The float results in the type in which they are saved.
    let run_wide = |operator| run(scan.with(operator, dtype).with_value_type(wide(dtype)));
    let rounded = |saved: &FloatTensor<B>| Operand::<B>(saved.clone()).cast(dtype).0;
    let with = |result: FloatTensor<B>, formula: Formula<B>| {
        (AnyTensor::Float(result), Some(ScanGradient { scan: scan.clone(), formula }))
    };
    Ok(match operator {
        Sum => vec![with(float(run(scan.clone())?), Formula::Sum)],
        Mean => vec![with(float(run(scan.clone())?), Formula::Mean)],
        Prod => vec![with(float(run(scan.clone())?), Formula::Product { x: x.clone() })],
        Min | Max | MinWithIndex | MaxWithIndex => {
            let with_index = match operator {
                Min | MinWithIndex => MinWithIndex,
                _ => MaxWithIndex,
            };
            let (value, index) = float_and_int(run(scan.with(with_index, dtype))?);
            let value = with(value, Formula::Selected { index: index.clone() });
            match operator {
                Min | Max => vec![value],
                _ => vec![value, (AnyTensor::Int(index), None)],
            }
        }
        LogSumExp => {
            let result = float(run_wide(LogSumExp)?);
            vec![with(rounded(&result), Formula::LogSumExp { x: x.clone(), result })]
        }
        Var | MeanVar => {
            let [mean, var] = floats(run_wide(MeanVar)?);
            let rounded_mean = rounded(&mean);
            let var = with(rounded(&var), Formula::Variance { x: x.clone(), mean });
            match operator {
                Var => vec![var],
                _ => vec![with(rounded_mean, Formula::Mean), var],
            }
        }
        _ => run(scan.clone())?.into_iter().map(|result| (result, None)).collect(),
    })
}

impl<B: ReduceBackend> ScanGradient<B> {
    /// The gradient of the input, from the gradient of the result.
    pub(crate) fn of(self, result: FloatTensor<B>) -> FloatTensor<B> {
        let Self { scan, formula } = self;
        let (_, dtype) = scan.input();
        if scan.shape().num_elements() == 0 {
            return Operand::<B>::zeros(scan.shape().clone(), dtype, &result.device()).0;
        }
        let gradient = of_formula(&scan, formula, Operand::<B>(result).wide());
        gradient
            .unwrap_or_else(|error| panic!("gradient of `{}`: {error}", scan.name()))
            .cast(dtype)
            .0
    }
}

/// The gradient of the input from that of the result, in f32 at least.
fn of_formula<B: ReduceBackend>(
    scan: &Scan,
    formula: Formula<B>,
    gradient: Operand<B>,
) -> Result<Operand<B>, ReduceBurnError> {
    let turned = scan.turned();
    // The sums over the results that each element is in.
    let sums = |x: Operand<B>| scanned(&turned, OperatorName::Sum, x);
    match formula {
        Formula::Sum => sums(gradient),
        Formula::Mean => {
            let counts = counts(scan, &gradient);
            sums(gradient / counts)
        }
        Formula::Selected { index } => {
            // Where there are no elements, there is no position.
            let nowhere = counts(scan, &gradient).equals(0.0);
            let nowhere = B::bool_expand(nowhere, scan.shape().clone());
            let index = B::int_mask_fill(index, nowhere.clone(), 0.into());
            let gradient = gradient.fill(nowhere, 0.0);
            let gradient = match B::planner_device(&gradient.0.device()) {
                Some(_) => sums_of_runs(scan, &index, gradient)?,
                None => gradient,
            };
            Ok(scattered(scan.reduction(), index, gradient))
        }
        Formula::Product { x } => product(scan, Operand::<B>(x).wide(), gradient),
        Formula::LogSumExp { x, result } => {
            // The exponentials of x less those of results are at most 1, as an element of a sum is.
            let (x, result) = (Operand::<B>(x).wide(), Operand::<B>(result));
            let nothing = result.equals(f64::NEG_INFINITY);
            let share = |part: Operand<B>| {
                let logarithms =
                    (part.log() - result.clone()).fill(nothing.clone(), f64::NEG_INFINITY);
                let total = scanned(&turned, OperatorName::LogSumExp, logarithms)?;
                Ok::<_, ReduceBurnError>((x.clone() + total).exp())
            };
            let (is_below, is_above) = (gradient.is_below(0.0), gradient.is_above(0.0));
            let positive = share(gradient.clone().fill(is_below, 0.0))?;
            let negative = share((gradient * -1.0).fill(is_above, 0.0))?;
            Ok(positive - negative)
        }
        Formula::Variance { x, mean } => {
            let x = Operand::<B>(x).wide();
            // A point near the elements, so that what is subtracted below is small.
            let [origin] = reduced(OperatorName::Mean, &x, scan.axes())?;
            let is_wrong = B::bool_or(origin.is_nan(), origin.is_infinite());
            let origin = origin.fill(is_wrong, 0.0);
            // Variances of too few elements are divided by 0. They do not count without a gradient.
            let unused = gradient.equals(0.0);
            let divisors = counts(scan, &gradient) - scan.options().correction;
            let weight = (gradient * 2.0) / divisors.at_least(0.0);
            let offset = weight.clone() * (Operand(mean) - origin.clone());
            let weights = sums(weight.fill(unused.clone(), 0.0))?;
            // What is not finite and in no result has no gradient.
            let unused_element = weights.equals(0.0);
            let products = ((x - origin) * weights).fill(unused_element, 0.0);
            Ok(products - sums(offset.fill(unused, 0.0))?)
        }
    }
}

/// The sum of the gradients of each run of results with equal positions, at the first of them; 0 at
/// the others.
///
/// A GPU would add those of a run to one element at once, in any order. Positions never fall along a
/// row, so a run is a segment, whose sum has the same bits in every call.
fn sums_of_runs<B: ReduceBackend>(
    scan: &Scan,
    index: &IntTensor<B>,
    gradient: Operand<B>,
) -> Result<Operand<B>, ReduceBurnError> {
    let reduction = scan.reduction();
    let (rows, len, kept_first) =
        (reduction.outputs_len(), reduction.len(), reduction.kept_first());
    let count = rows * len;
    // Places that a 32-bit integer does not hold, and a gradient without others.
    if count < 2 || i32::try_from(count).is_err() {
        return Ok(gradient);
    }
    let (device, dtype) = (gradient.0.device(), IntDType::from(index.dtype()));
    let numbers =
        |range: Range<usize>| B::int_arange(range.start as i64..range.end as i64, &device, dtype);
    // Positions in all rows, so that no run goes on in the next row.
    let positions = B::int_permute(index.clone(), &kept_first);
    let positions = B::int_reshape(positions, Shape::from([rows, len]));
    let of_rows = B::int_mul_scalar(numbers(0..rows), (len as i64).into());
    let of_rows = B::int_reshape(of_rows, Shape::from([rows, 1]));
    let positions = B::int_add(positions, B::int_expand(of_rows, Shape::from([rows, len])));
    let positions = B::int_reshape(positions, Shape::from([count]));
    let part = |range: Range<usize>| B::int_slice(positions.clone(), &[Slice::from(range)]);
    let before_first = B::int_sub_scalar(part(0..1), 1.into());
    let before = B::int_cat(vec![before_first, part(0..count - 1)], 0);
    let goes_on = B::int_equal(positions.clone(), before, gradient.bool_dtype());
    // The segment of a place begins where the next run does, from there on. So it has a run if one
    // begins there, and nothing otherwise.
    let begins =
        AnyTensor::Int(B::int_mask_fill(numbers(0..count), goes_on, (count as i64).into()));
    let options = OperatorOptions::default();
    let next = Scan::new::<B>(OperatorName::Min, options, &begins, &reverse(0))?;
    let mut next = backend::scan::<B>(begins, next)?;
    let Some(AnyTensor::Int(next)) = next.pop() else { unreachable!("places are integers") };
    let members = Members::neighbours(B::int_cat(vec![next, numbers(count..count + 1)], 0));
    let flat = B::float_reshape(B::float_permute(gradient.0, &kept_first), Shape::from([count]));
    let flat = AnyTensor::Float(flat);
    let sums = Reduction::new(OperatorName::Sum, options, &flat, &0.into(), true)?;
    let sums = sums.of_segments(&members)?;
    let sums = float(backend::reduce_segments::<B>(flat, members, &sums)?);
    let extents: Vec<usize> = kept_first.iter().map(|&axis| scan.shape()[axis]).collect();
    let unordered = B::float_reshape(sums, Shape::from(extents));
    Ok(Operand(B::float_permute(unordered, &inverse(&kept_first))))
}

/// The gradient of a scan of products, which is never divided by 0. An element before the first zero
/// of its row has the sum of results times their gradients, over the element. The first zero has the
/// sum of gradients times products in which it is 1. Elements behind it are multiplied by 0 in every
/// result, so they have 0.
fn product<B: ReduceBackend>(
    scan: &Scan,
    x: Operand<B>,
    gradient: Operand<B>,
) -> Result<Operand<B>, ReduceBurnError> {
    let is_zero = x.equals(0.0);
    let none_before = none_before(scan, &x)?;
    let is_first = B::bool_and(is_zero.clone(), none_before.clone());
    let some_so_far = B::bool_or(is_zero.clone(), B::bool_not(none_before.clone()));
    let without_first = x.clone().fill(is_first.clone(), 1.0);
    let products = scanned(scan, OperatorName::Prod, without_first)?;
    let weighted = products * gradient;
    let is_nothing = match scan.is_exclusive() {
        true => B::bool_not(none_before),
        false => some_so_far.clone(),
    };
    let sums = |x| scanned(&scan.turned(), OperatorName::Sum, x);
    let before_first = sums(weighted.clone().fill(is_nothing, 0.0))? / x.fill(is_zero, 1.0);
    let of_first = sums(weighted)?.fill(B::bool_not(is_first), 0.0);
    Ok(before_first.fill(some_so_far, 0.0) + of_first)
}

/// Whether no element before each one is 0.
fn none_before<B: ReduceBackend>(
    scan: &Scan,
    x: &Operand<B>,
) -> Result<BoolTensor<B>, ReduceBurnError> {
    let all = scan.with(OperatorName::All, x.0.dtype()).excluding();
    let mut results = backend::scan::<B>(AnyTensor::Float(x.0.clone()), all)?;
    let Some(AnyTensor::Bool(none)) = results.pop() else { unreachable!("`All` is a truth value") };
    Ok(none)
}

/// The result of an operator in the way of a scan.
fn scanned<B: ReduceBackend>(
    scan: &Scan,
    operator: OperatorName,
    x: Operand<B>,
) -> Result<Operand<B>, ReduceBurnError> {
    let scan = scan.with(operator, x.0.dtype());
    Ok(Operand(float(backend::scan::<B>(AnyTensor::Float(x.0), scan)?)))
}

/// The number of elements of which each result is, along the scanned axes and in the type of
/// `like`.
fn counts<B: Backend>(scan: &Scan, like: &Operand<B>) -> Operand<B> {
    let reduction = scan.reduction();
    let (len, device) = (reduction.len(), like.0.device());
    let dtype = get_device_settings::<B>(&device).int_dtype;
    let first = if scan.is_exclusive() { 0 } else { 1 };
    let counts = B::int_arange(first..len as i64 + first, &device, dtype);
    let counts = if scan.is_reverse() { B::int_flip(counts, &[0]) } else { counts };
    let mut shape = vec![1; scan.shape().num_dims()];
    scan.axes().iter().for_each(|&axis| shape[axis] = scan.shape()[axis]);
    Operand::<B>(B::int_into_float(counts, like.0.dtype().into())).reshape(Shape::from(shape))
}
