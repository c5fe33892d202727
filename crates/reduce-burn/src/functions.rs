//! The functions that users call.

use burn_backend::tensor::{Bool, Float, Int, Numeric};
use burn_tensor::Tensor;
use reduce_kernels::{OperatorName, OperatorOptions};

use crate::{AnyTensor, Axes, Kind, ReduceBackend, ReduceBurnError, Reducible, Reduction};

/// The results of an operator without parameters.
#[track_caller]
fn results<B: ReduceBackend, const D: usize, const R: usize, K: Reducible<B>>(
    operator: OperatorName,
    tensor: Tensor<B, D, K>,
    axes: impl Axes<D, R>,
) -> impl Iterator<Item = AnyTensor<B>> {
    results_with(operator, OperatorOptions::default(), tensor, axes)
}

/// The results of an operator. The caller knows how many there are, and of which kinds.
#[track_caller]
fn results_with<B, const D: usize, const R: usize, K, A>(
    operator: OperatorName,
    options: OperatorOptions,
    tensor: Tensor<B, D, K>,
    axes: A,
) -> impl Iterator<Item = AnyTensor<B>> + use<B, D, R, K, A>
where
    B: ReduceBackend,
    K: Reducible<B>,
    A: Axes<D, R>,
{
    let tensor = K::into_any(tensor.into_primitive());
    let shape = tensor.shape().to_vec();
    let run = || {
        let keep_dims = A::KEEPS_DIMS;
        let reduction = Reduction::new(operator, options, &tensor, &axes.into_list(), keep_dims)?;
        let found = reduction.output_shape();
        if found.num_dims() != R {
            return Err(ReduceBurnError::Rank { asked: R, shape: found.to_vec() });
        }
        B::reduce(tensor, &reduction)
    };
    match run() {
        Ok(results) => results.into_iter(),
        Err(error) => panic!("`{operator}` of a tensor of shape {shape:?}: {error}"),
    }
}

/// The next result.
fn next<B: ReduceBackend, const R: usize, K: Reducible<B>>(
    results: &mut impl Iterator<Item = AnyTensor<B>>,
) -> Tensor<B, R, K> {
    let result = results.next().expect("the operator has this many results");
    Tensor::from_primitive(K::from_any(result))
}

/// Functions with one result.
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $function:ident($($option:ident)?): $operator:ident, $kind:tt -> $result:tt;
    )*) => {
        $(functions! { @one [$(#[$doc])*] $function [$($option)?] $operator $kind $result })*
    };
    (@one $doc:tt $function:ident $option:tt $operator:ident numeric same) => {
        functions! { @write $doc $function $option $operator [K: Reducible<B> + Numeric<B>] K K }
    };
    (@one $doc:tt $function:ident $option:tt $operator:ident numeric int) => {
        functions! { @write $doc $function $option $operator [K: Reducible<B> + Numeric<B>] K Int }
    };
    (@one $doc:tt $function:ident $option:tt $operator:ident any int) => {
        functions! { @write $doc $function $option $operator [K: Reducible<B>] K Int }
    };
    (@one $doc:tt $function:ident $option:tt $operator:ident any bool) => {
        functions! { @write $doc $function $option $operator [K: Reducible<B>] K Bool }
    };
    (@one $doc:tt $function:ident $option:tt $operator:ident float float) => {
        functions! { @write $doc $function $option $operator [] Float Float }
    };
    (@one $doc:tt $function:ident $option:tt $operator:ident float int) => {
        functions! { @write $doc $function $option $operator [] Float Int }
    };
    (@write [$(#[$doc:meta])*] $function:ident [$($option:ident)?] $operator:ident
     [$($kind:tt)*] $input:tt $output:tt) => {
        $(#[$doc])*
        ///
        /// # Panics
        ///
        /// As [all functions](crate#errors).
        #[track_caller]
        pub fn $function<B: ReduceBackend, const D: usize, const R: usize, $($kind)*>(
            tensor: Tensor<B, D, $input>,
            axes: impl Axes<D, R>,
            $($option: f64,)?
        ) -> Tensor<B, R, $output> {
            #[allow(unused_mut, reason = "most operators have no parameter")]
            let mut options = OperatorOptions::default();
            $(options.$option = $option;)?
            next(&mut results_with(OperatorName::$operator, options, tensor, axes))
        }
    };
}

functions! {
    /// The sum over `axes`. Integers wrap in their own type.
    sum(): Sum, numeric -> same;
    /// The product over `axes`. Integers wrap in their own type.
    prod(): Prod, numeric -> same;
    /// The minimum over `axes`. It is NaN if any element is NaN.
    min(): Min, numeric -> same;
    /// The maximum over `axes`. It is NaN if any element is NaN.
    max(): Max, numeric -> same;
    /// The position of the minimum over `axes`, in row-major order over them: that of the first NaN
    /// if there is one, otherwise that of the first minimum.
    argmin(): ArgMin, numeric -> int;
    /// The position of the maximum over `axes`, in row-major order over them: that of the first NaN
    /// if there is one, otherwise that of the first maximum.
    argmax(): ArgMax, numeric -> int;
    /// Whether any element over `axes` is true, or not 0.
    any(): Any, any -> bool;
    /// Whether all elements over `axes` are true, or not 0.
    all(): All, any -> bool;
    /// The number of elements over `axes` that are true, or not 0.
    count_nonzero(): CountNonzero, any -> int;
    /// The sum of magnitudes over `axes`.
    sum_abs(): SumAbs, numeric -> same;
    /// The sum of squares over `axes`.
    sum_squares(): SumSquares, numeric -> same;
    /// The L1 norm over `axes`: the sum of magnitudes.
    norm_l1(): NormL1, float -> float;
    /// The L2 norm over `axes`: the root of the sum of squares. It does not overflow on the way.
    norm_l2(): NormL2, float -> float;
    /// The L-infinity norm over `axes`: the largest magnitude.
    norm_inf(): NormInf, float -> float;
    /// The Lp norm over `axes`: the `p`-th root of the sum of magnitudes to the `p`-th power. `p` is
    /// finite and above 0.
    norm_p(p): NormP, float -> float;
    /// The variance over `axes`. `correction` is subtracted from the count: 1 as Burn's `var`, 0 as
    /// its `var_bias`.
    var(correction): Var, float -> float;
    /// The standard deviation over `axes`: the root of [`var`].
    std(correction): Std, float -> float;
    /// The logarithm of the sum of exponentials over `axes`.
    logsumexp(): LogSumExp, float -> float;
    /// [`sum`] of the elements that are not NaN.
    nansum(): NanSum, float -> float;
    /// [`prod`] of the elements that are not NaN.
    nanprod(): NanProd, float -> float;
    /// [`mean`] of the elements that are not NaN; NaN if all are.
    nanmean(): NanMean, float -> float;
    /// [`min`] of the elements that are not NaN; NaN if all are.
    nanmin(): NanMin, float -> float;
    /// [`max`] of the elements that are not NaN; NaN if all are.
    nanmax(): NanMax, float -> float;
    /// [`argmin`] of the elements that are not NaN; 0 if all are.
    nanargmin(): NanArgMin, float -> int;
    /// [`argmax`] of the elements that are not NaN; 0 if all are.
    nanargmax(): NanArgMax, float -> int;
    /// [`var`] of the elements that are not NaN.
    nanvar(correction): NanVar, float -> float;
    /// [`std`](fn@std) of the elements that are not NaN.
    nanstd(correction): NanStd, float -> float;
}

/// The arithmetic mean over `axes`. Integers give the sum, which wraps in their type, divided by the
/// count and rounded towards 0, as Burn's own mean does; convert them with `float()` for more.
///
/// # Panics
///
/// As [all functions](crate#errors), and for integers if there are no elements.
#[track_caller]
pub fn mean<B: ReduceBackend, const D: usize, const R: usize, K: Reducible<B> + Numeric<B>>(
    tensor: Tensor<B, D, K>,
    axes: impl Axes<D, R>,
) -> Tensor<B, R, K> {
    if K::KIND == Kind::Float {
        return next(&mut results(OperatorName::Mean, tensor, axes));
    }
    let elements = tensor.shape().num_elements();
    let sum: Tensor<B, R, K> = next(&mut results(OperatorName::Sum, tensor, axes));
    match sum.shape().num_elements() {
        0 => sum,
        _ if elements == 0 => panic!("`mean` of integers: there are no elements to reduce"),
        outputs => sum.div_scalar((elements / outputs) as i64),
    }
}

/// The minimum and the maximum over `axes`, in one read.
///
/// # Panics
///
/// As [all functions](crate#errors).
#[track_caller]
pub fn min_max<B: ReduceBackend, const D: usize, const R: usize, K: Reducible<B> + Numeric<B>>(
    tensor: Tensor<B, D, K>,
    axes: impl Axes<D, R>,
) -> (Tensor<B, R, K>, Tensor<B, R, K>) {
    let mut results = results(OperatorName::MinMax, tensor, axes);
    (next(&mut results), next(&mut results))
}

/// The minimum over `axes` and its position, in one read: [`min`] and [`argmin`].
///
/// # Panics
///
/// As [all functions](crate#errors).
#[track_caller]
pub fn min_with_index<
    B: ReduceBackend,
    const D: usize,
    const R: usize,
    K: Reducible<B> + Numeric<B>,
>(
    tensor: Tensor<B, D, K>,
    axes: impl Axes<D, R>,
) -> (Tensor<B, R, K>, Tensor<B, R, Int>) {
    let mut results = results(OperatorName::MinWithIndex, tensor, axes);
    (next(&mut results), next(&mut results))
}

/// The maximum over `axes` and its position, in one read: [`max`] and [`argmax`].
///
/// # Panics
///
/// As [all functions](crate#errors).
#[track_caller]
pub fn max_with_index<
    B: ReduceBackend,
    const D: usize,
    const R: usize,
    K: Reducible<B> + Numeric<B>,
>(
    tensor: Tensor<B, D, K>,
    axes: impl Axes<D, R>,
) -> (Tensor<B, R, K>, Tensor<B, R, Int>) {
    let mut results = results(OperatorName::MaxWithIndex, tensor, axes);
    (next(&mut results), next(&mut results))
}

/// The mean and the variance over `axes`, in one read, with the correction of [`var`].
///
/// # Panics
///
/// As [all functions](crate#errors).
#[track_caller]
pub fn mean_var<B: ReduceBackend, const D: usize, const R: usize>(
    tensor: Tensor<B, D>,
    axes: impl Axes<D, R>,
    correction: f64,
) -> (Tensor<B, R>, Tensor<B, R>) {
    let options = OperatorOptions { correction, ..OperatorOptions::default() };
    let mut results = results_with(OperatorName::MeanVar, options, tensor, axes);
    (next(&mut results), next(&mut results))
}
