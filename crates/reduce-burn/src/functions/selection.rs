//! The functions that users call.

use burn_dispatch::Dispatch;
use burn_tensor::{
    Float, Int, Tensor,
    kind::{Basic, Numeric},
};
use reduce_kernels::quantiles::{Between, Interpolation, NearerEnd};

use crate::{
    axes::AxisList,
    backend::{Operation, ReduceBackend},
    error::ReduceBurnError,
    functions::next,
    selection::Selection,
    tensor::into_any,
};

/// The values and the positions of a selection.
#[track_caller]
fn select<const D: usize, K: Basic>(
    function: &str,
    tensor: Tensor<D, K>,
    axis: i64,
    k: usize,
    largest: bool,
) -> (Tensor<D, K>, Tensor<D, Int>) {
    let tensor = into_any(tensor);
    let shape = tensor.shape().to_vec();
    let run = || {
        let selection = Selection::new(&tensor, axis, k, largest)?;
        Dispatch::run(vec![tensor], Operation::Selection(selection))
    };
    match run() {
        Ok(results) => {
            let mut results = results.into_iter();
            (next(&mut results), next(&mut results))
        }
        Err(error) => panic!("`{function}` of a tensor of shape {shape:?}: {error}"),
    }
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

/// The quantile `q`. It is interpolated by Burn's operations, which have gradients of their own.
#[track_caller]
fn interpolated<const D: usize>(function: &str, tensor: Tensor<D>, axis: i64, q: f64) -> Tensor<D> {
    let shape = tensor.dims();
    let refused = |error: ReduceBurnError| -> ! {
        panic!("`{function}` of a tensor of shape {shape:?}: {error}")
    };
    if !(0.0..=1.0).contains(&q) {
        refused(ReduceBurnError::Quantile { q });
    }
    let resolved = AxisList::from([axis]).resolve(D);
    let along = resolved.unwrap_or_else(|error| refused(error))[0];
    let len = shape[along];
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
