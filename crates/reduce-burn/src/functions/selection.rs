//! The functions that users call.

use burn_dispatch::Dispatch;
use burn_tensor::{
    Float, Int, Tensor, TensorData,
    kind::{Basic, Numeric},
};
use reduce_kernels::{
    quantiles::{Between, Interpolation, NearerEnd},
    top_k::Over,
};

use crate::{
    axes::AxisList,
    backend::{Operation, ReduceBackend},
    error::ReduceBurnError,
    functions::next,
    selection::Selection,
    tensor::{AnyTensor, into_any},
};

/// The results of a selection that `giving` makes of one that gives elements.
#[track_caller]
fn run<const D: usize, K: Basic>(
    function: &str,
    tensor: Tensor<D, K>,
    axis: i64,
    k: usize,
    largest: bool,
    giving: impl FnOnce(Selection) -> Result<Selection, ReduceBurnError>,
) -> impl Iterator<Item = AnyTensor<Dispatch>> {
    let tensor = into_any(tensor);
    let shape = tensor.shape().to_vec();
    let run = || {
        let selection = giving(Selection::new(&tensor, axis, k, largest)?)?;
        Dispatch::run(vec![tensor], Operation::Selection(selection))
    };
    match run() {
        Ok(results) => results.into_iter(),
        Err(error) => panic!("`{function}` of a tensor of shape {shape:?}: {error}"),
    }
}

/// The values and the positions of a selection.
#[track_caller]
fn select<const D: usize, K: Basic>(
    function: &str,
    tensor: Tensor<D, K>,
    axis: i64,
    k: usize,
    largest: bool,
) -> (Tensor<D, K>, Tensor<D, Int>) {
    let mut results = run(function, tensor, axis, k, largest, Ok);
    (next(&mut results), next(&mut results))
}

/// The `k` largest elements along `axis`, from the largest down, and their positions. NaN comes
/// before all numbers. Of equal elements, the one with the lower position comes first. A negative
/// axis counts from the end.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::top_k;
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
/// let (values, positions) = top_k(x, 1, 2); // shape [2, 2] each
/// assert_eq!(values.into_data().try_to_vec::<f32>().unwrap(), [5.0, 3.0, 6.0, 4.0]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for an axis of fewer than `k` elements.
#[track_caller]
pub fn top_k<const D: usize, K: Numeric>(
    tensor: Tensor<D, K>,
    axis: impl Into<i64>,
    k: usize,
) -> (Tensor<D, K>, Tensor<D, Int>) {
    select("top_k", tensor, axis.into(), k, true)
}

/// The `k` smallest elements along `axis`, from the smallest up, and their positions; see
/// [`top_k`].
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::bottom_k;
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
/// let (values, positions) = bottom_k(x, 1, 1); // shape [2, 1] each
/// assert_eq!(values.into_data().try_to_vec::<f32>().unwrap(), [1.0, 2.0]);
/// ```
///
/// # Panics
///
/// As [`top_k`].
#[track_caller]
pub fn bottom_k<const D: usize, K: Numeric>(
    tensor: Tensor<D, K>,
    axis: impl Into<i64>,
    k: usize,
) -> (Tensor<D, K>, Tensor<D, Int>) {
    select("bottom_k", tensor, axis.into(), k, false)
}

/// The probabilities of the `k` largest elements along `axis`, from the largest down, and the
/// positions of these elements, which are those of [`top_k`]. A probability is the exponential of
/// an element over the sum of the exponentials of the elements that `over` names.
///
/// [`Over::Selected`] is the softmax of the selected elements alone, such as the weights that a
/// router of experts gives them. [`Over::Slice`] is what these elements have of the [`softmax`] of
/// all elements along `axis`. NaN or `inf` among the elements that `over` names makes all
/// probabilities of their slice NaN, and so do elements that are all `-inf`.
///
/// The gradient reaches the selected elements, and with [`Over::Slice`] all others too.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::{Over, top_k_probabilities};
///
/// let logits = Tensor::<2>::from_data([[0.0, 2.0, 1.0, 2.0]], &Device::flex());
/// let (weights, experts) = top_k_probabilities(logits, 1, 2, Over::Selected); // shape [1, 2] each
/// assert_eq!(weights.into_data().try_to_vec::<f32>().unwrap(), [0.5, 0.5]);
/// assert_eq!(experts.into_data().iter::<i64>().collect::<Vec<_>>(), [1, 3]);
/// ```
///
/// [`softmax`]: crate::softmax
///
/// # Panics
///
/// As [`top_k`].
#[track_caller]
pub fn top_k_probabilities<const D: usize>(
    tensor: Tensor<D>,
    axis: impl Into<i64>,
    k: usize,
    over: Over,
) -> (Tensor<D>, Tensor<D, Int>) {
    let giving = |selection: Selection| selection.probabilities(over);
    let mut results = run("top_k_probabilities", tensor, axis.into(), k, true, giving);
    (next(&mut results), next(&mut results))
}

/// The tensor with `fill` in place of all elements but the `k` largest along `axis`, such as logits
/// of which all but those are `-inf`. Exactly `k` elements of each slice stay, which are those of
/// [`top_k`]. The gradient reaches these.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::keep_top_k;
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
/// let kept = keep_top_k(x, 1, 2, 0.0); // shape [2, 3]
/// assert_eq!(kept.into_data().try_to_vec::<f32>().unwrap(), [0.0, 5.0, 3.0, 4.0, 0.0, 6.0]);
/// ```
///
/// # Panics
///
/// As [`top_k`], and for a `k` of 0.
#[track_caller]
pub fn keep_top_k<const D: usize>(
    tensor: Tensor<D>,
    axis: impl Into<i64>,
    k: usize,
    fill: f32,
) -> Tensor<D> {
    let giving = |selection: Selection| selection.keep_only(fill);
    next(&mut run("keep_top_k", tensor, axis.into(), k, true, giving))
}

/// The tensor with `fill` in place of all elements but the `k` smallest along `axis`; see
/// [`keep_top_k`].
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::keep_bottom_k;
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
/// let kept = keep_bottom_k(x, 1, 1, f32::INFINITY); // shape [2, 3]
/// let inf = f32::INFINITY;
/// assert_eq!(kept.into_data().try_to_vec::<f32>().unwrap(), [1.0, inf, inf, inf, 2.0, inf]);
/// ```
///
/// # Panics
///
/// As [`keep_top_k`].
#[track_caller]
pub fn keep_bottom_k<const D: usize>(
    tensor: Tensor<D>,
    axis: impl Into<i64>,
    k: usize,
    fill: f32,
) -> Tensor<D> {
    let giving = |selection: Selection| selection.keep_only(fill);
    next(&mut run("keep_bottom_k", tensor, axis.into(), k, false, giving))
}

/// The median along `axis`, which stays with size 1: the mean of the two middle elements if there
/// is an even number of them. Slices with NaN give NaN. Its gradient reaches those elements.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::median;
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
/// assert_eq!(median(x, 1).into_data().try_to_vec::<f32>().unwrap(), [3.0, 4.0]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for an axis without elements.
#[track_caller]
pub fn median<const D: usize>(tensor: Tensor<D>, axis: impl Into<i64>) -> Tensor<D> {
    interpolated("median", tensor, axis.into(), 0.5)
}

/// A quantile along `axis`, which stays with size 1, for a `q` from 0 to 1: linearly interpolated
/// between two elements. Slices with NaN give NaN. Its gradient reaches both elements.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::quantile;
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
/// assert_eq!(quantile(x, 1, 0.75).into_data().try_to_vec::<f32>().unwrap(), [4.0, 5.0]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), for an axis without elements, and for a `q` that is not from 0
/// to 1.
#[track_caller]
pub fn quantile<const D: usize>(tensor: Tensor<D>, axis: impl Into<i64>, q: f64) -> Tensor<D> {
    interpolated("quantile", tensor, axis.into(), q)
}

/// [`median`] of the elements that are not NaN. Slices without any give NaN. Its gradient reaches
/// the middle elements.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::nanmedian;
///
/// let rows = [[1.0, f32::NAN, 3.0], [4.0, 2.0, 6.0]];
/// let x = Tensor::<2>::from_data(rows, &Device::flex());
/// assert_eq!(nanmedian(x, 1).into_data().try_to_vec::<f32>().unwrap(), [2.0, 4.0]);
/// ```
///
/// # Panics
///
/// As [`median`].
#[track_caller]
pub fn nanmedian<const D: usize>(tensor: Tensor<D>, axis: impl Into<i64>) -> Tensor<D> {
    of_numbers("nanmedian", tensor, axis.into(), 0.5)
}

/// [`quantile`] of the elements that are not NaN. Slices without any give NaN. Its gradient reaches
/// both elements that it lies between.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::nanquantile;
///
/// let rows = [[1.0, f32::NAN, 3.0], [4.0, 2.0, 6.0]];
/// let x = Tensor::<2>::from_data(rows, &Device::flex());
/// assert_eq!(nanquantile(x, 1, 0.75).into_data().try_to_vec::<f32>().unwrap(), [2.5, 5.0]);
/// ```
///
/// # Panics
///
/// As [`quantile`].
#[track_caller]
pub fn nanquantile<const D: usize>(tensor: Tensor<D>, axis: impl Into<i64>, q: f64) -> Tensor<D> {
    of_numbers("nanquantile", tensor, axis.into(), q)
}

/// The quantile `q`. It is interpolated by Burn's operations, which have gradients of their own.
#[track_caller]
fn interpolated<const D: usize>(function: &str, tensor: Tensor<D>, axis: i64, q: f64) -> Tensor<D> {
    let along = checked_axis(function, &tensor, axis, q);
    let len = tensor.dims()[along];
    let Between { lower, upper, weight } = Interpolation::Linear.between(q, len);
    let end = NearerEnd::of(&[lower, upper], len);
    // An axis without elements has none to select, which `select` refuses.
    let k = end.k.max(1);
    let (values, _) = select::<D, Float>(function, tensor, axis, k, end.largest);
    let nth = |nth: usize| values.clone().narrow(along, nth, 1);
    let (first, lower, upper) = (nth(0), nth(end.rank(lower)), nth(end.rank(upper)));
    let between = match weight == 0.0 {
        true => lower,
        // Equal infinities have no difference.
        false => {
            let is_equal = lower.clone().equal(upper.clone());
            let mixed = lower.clone() * (1.0 - weight) + upper * weight;
            mixed.mask_where(is_equal, lower)
        }
    };
    // NaN comes first from either end.
    between.mask_where(first.clone().is_nan(), first)
}

/// The axis of a quantile, from 0.
#[track_caller]
fn checked_axis<const D: usize>(function: &str, tensor: &Tensor<D>, axis: i64, q: f64) -> usize {
    let resolved = match (0.0..=1.0).contains(&q) {
        true => AxisList::from([axis]).resolve(D).map(|axes| axes[0]),
        false => Err(ReduceBurnError::Quantile { q }),
    };
    let shape = tensor.dims();
    resolved.unwrap_or_else(|error| panic!("`{function}` of a tensor of shape {shape:?}: {error}"))
}

/// The quantile `q` of the numbers of each slice, which is interpolated by Burn's operations.
///
/// The ranks of its two elements and its weight follow from how many numbers a slice has, which
/// only the device knows. The host makes a table of them for each possible count, which costs as
/// many steps as a slice has elements, and the device looks up that of its count. Arithmetic of the
/// device would need products of more bits than the integers of all devices have.
#[track_caller]
fn of_numbers<const D: usize>(function: &str, tensor: Tensor<D>, axis: i64, q: f64) -> Tensor<D> {
    let along = checked_axis(function, &tensor, axis, q);
    let len = tensor.dims()[along];
    let (device, dtype) = (tensor.device(), tensor.dtype());
    let Between { lower, upper, .. } = Interpolation::Linear.between(q, len);
    let end = NearerEnd::of(&[lower, upper], len);
    // NaN comes after all numbers, as the infinity at the other end.
    let is_nan = tensor.clone().is_nan();
    let counts = is_nan.clone().bool_not().int().sum_dim(along);
    let other_end = if end.largest { f32::NEG_INFINITY } else { f32::INFINITY };
    let numbers = tensor.mask_fill(is_nan, other_end);
    // An axis without elements has none to select, which `select` refuses.
    let k = end.k.max(1);
    let (values, _) = select::<D, Float>(function, numbers, axis, k, end.largest);

    let places = (0..=len).map(|count| {
        let Between { lower, upper, weight } = Interpolation::Linear.between(q, count);
        let rank = |number| match end.largest {
            true => count.saturating_sub(1) - number,
            false => number,
        };
        ([rank(lower), rank(upper)].map(|rank| rank.min(k - 1) as i32), weight as f32)
    });
    let (ranks, weights): (Vec<[i32; 2]>, Vec<f32>) = places.unzip();
    let shape = counts.dims();
    let nth = counts.clone().reshape([shape.iter().product::<usize>()]);
    let element = |which: usize| {
        let ranks: Vec<i32> = ranks.iter().map(|ranks| ranks[which]).collect();
        let ranks = Tensor::<1, Int>::from_data(TensorData::from(&ranks[..]), &device);
        values.clone().gather(along, ranks.select(0, nth.clone()).reshape(shape))
    };
    let (lower, upper) = (element(0), element(1));
    let weights = Tensor::<1>::from_data(TensorData::from(&weights[..]), (&device, dtype));
    let weight = weights.select(0, nth.clone()).reshape(shape);
    // Equal infinities have no difference.
    let is_lower = lower.clone().equal(upper.clone()).bool_or(weight.clone().equal_elem(0.0));
    let mixed = lower.clone() * (-weight.clone() + 1.0) + upper * weight;
    let between = mixed.mask_where(is_lower, lower);
    between.mask_fill(counts.equal_elem(0), f32::NAN)
}
