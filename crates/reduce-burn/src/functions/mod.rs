//! The functions that users call.

pub(crate) mod application;
pub(crate) mod clip;
pub(crate) mod cross_entropy;
#[cfg(feature = "optim")]
pub(crate) mod module;
pub(crate) mod pair;
pub(crate) mod quantization;
pub(crate) mod scan;
pub(crate) mod segments;
pub(crate) mod selection;

use burn_dispatch::Dispatch;
use burn_tensor::{
    Bool, Float, Int, Tensor,
    kind::{Basic, Kind, Numeric},
};
use reduce_kernels::by_name::{OperatorName, OperatorOptions};

use crate::{
    axes::Axes,
    backend::{Operation, ReduceBackend},
    error::ReduceBurnError,
    reduction::Reduction,
    tensor::{AnyTensor, from_any, into_any},
};

/// The results of an operator. The caller knows how many there are, and of which kinds.
#[track_caller]
fn results<const D: usize, const R: usize, K: Basic, A: Axes<D, R>>(
    operator: OperatorName,
    options: OperatorOptions,
    tensor: Tensor<D, K>,
    axes: A,
) -> impl Iterator<Item = AnyTensor<Dispatch>> + use<D, R, K, A> {
    let tensor = into_any(tensor);
    let shape = tensor.shape().to_vec();
    let run = || {
        let keep_dims = A::KEEPS_DIMS;
        let reduction = Reduction::new(operator, options, &tensor, &axes.into_list(), keep_dims)?;
        let found = reduction.output_shape();
        if found.num_dims() != R {
            return Err(ReduceBurnError::Rank { asked: R, shape: found.to_vec() });
        }
        Dispatch::run(vec![tensor], Operation::Reduction(reduction))
    };
    match run() {
        Ok(results) => results.into_iter(),
        Err(error) => panic!("`{operator}` of a tensor of shape {shape:?}: {error}"),
    }
}

/// The next result.
pub(crate) fn next<const R: usize, K: Basic>(
    results: &mut impl Iterator<Item = AnyTensor<Dispatch>>,
) -> Tensor<R, K> {
    from_any(results.next().expect("the operator has this many results"))
}

/// A function for each operator, and one for segments of an axis. One result is a tensor, two are a
/// tuple.
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $function:ident($($option:ident)?): $operator:ident,
            [$($kind:tt)*] $input:ident -> $($result:ident),+;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// ```
            /// # use burn_tensor::{Device, Tensor};
            #[doc = concat!("use reduce_burn::", stringify!($function), ";")]
            ///
            /// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
            $(#[doc = concat!("let ", stringify!($option), " = 1.0;")])?
            #[doc = concat!(
                "let of_rows = ", stringify!($function),
                "(x, 1", $(", ", stringify!($option),)?
                ");",
            )]
            /// ```
            ///
            /// # Panics
            ///
            /// As [all functions](crate#errors).
            #[track_caller]
            #[allow(unused_parens, reason = "parentheses make a tuple of two results")]
            pub fn $function<const D: usize, const R: usize, $($kind)*>(
                tensor: Tensor<D, $input>,
                axes: impl Axes<D, R>,
                $($option: f64,)?
            ) -> ($(Tensor<R, $result>),+) {
                #[allow(unused_mut, reason = "most operators have no parameter")]
                let mut options = OperatorOptions::default();
                $(options.$option = $option;)?
                let mut results = results(OperatorName::$operator, options, tensor, axes);
                ($(next::<R, $result>(&mut results)),+)
            }
        )*

        /// The functions of segments that reduce.
        pub(crate) mod of_segments {
            use super::{
                Basic, Bool, Float, Int, Numeric, OperatorName, OperatorOptions, Tensor, next,
                segments::{SegmentTensors, results},
            };
            use crate::axes::AxisList;

            $(
                #[doc = concat!(
                    "[`", stringify!($function), "`](fn@crate::", stringify!($function),
                    ") of each segment of `axis`, as [all functions](crate::segments) of segments.",
                )]
                ///
                /// ```
                /// # use burn_tensor::{Device, Int, Tensor};
                /// use reduce_burn::segments;
                ///
                /// let device = Device::flex();
                /// let x = Tensor::<2>::from_data([[1.0, 5.0], [4.0, 2.0], [3.0, 6.0]], &device);
                /// let offsets = Tensor::<1, Int>::from_data([0, 2, 3], &device);
                $(#[doc = concat!("let ", stringify!($option), " = 1.0;")])?
                #[doc = concat!(
                    "let of_segments = segments::", stringify!($function),
                    "(x, 0, offsets", $(", ", stringify!($option),)?
                    ");",
                )]
                /// ```
                ///
                /// # Panics
                ///
                /// As [all functions](crate#errors), for several axes, and for offsets without
                /// elements.
                #[track_caller]
                #[allow(unused_parens, reason = "parentheses make a tuple of two results")]
                pub fn $function<const D: usize, $($kind)*>(
                    tensor: Tensor<D, $input>,
                    axis: impl Into<AxisList>,
                    segments: impl Into<SegmentTensors>,
                    $($option: f64,)?
                ) -> ($(Tensor<D, $result>),+) {
                    #[allow(unused_mut, reason = "most operators have no parameter")]
                    let mut options = OperatorOptions::default();
                    $(options.$option = $option;)?
                    let operator = OperatorName::$operator;
                    let segments = segments.into();
                    let mut results = results(operator, options, tensor, axis.into(), segments);
                    ($(next::<D, $result>(&mut results)),+)
                }
            )*
        }
    };
}

functions! {
    /// The sum over `axes`. Integers wrap in their own type.
    sum(): Sum, [K: Numeric] K -> K;
    /// The product over `axes`. Integers wrap in their own type.
    prod(): Prod, [K: Numeric] K -> K;
    /// The minimum over `axes`. It is NaN if any element is NaN.
    min(): Min, [K: Numeric] K -> K;
    /// The maximum over `axes`. It is NaN if any element is NaN.
    max(): Max, [K: Numeric] K -> K;
    /// The minimum and the maximum over `axes`, in one read.
    min_max(): MinMax, [K: Numeric] K -> K, K;
    /// The position of the minimum over `axes`, in row-major order over them: that of the first NaN
    /// if there is one, otherwise that of the first minimum.
    argmin(): ArgMin, [K: Numeric] K -> Int;
    /// The position of the maximum over `axes`, in row-major order over them: that of the first NaN
    /// if there is one, otherwise that of the first maximum.
    argmax(): ArgMax, [K: Numeric] K -> Int;
    /// The minimum over `axes` and its position, in one read: [`min`] and [`argmin`].
    min_with_index(): MinWithIndex, [K: Numeric] K -> K, Int;
    /// The maximum over `axes` and its position, in one read: [`max`] and [`argmax`].
    max_with_index(): MaxWithIndex, [K: Numeric] K -> K, Int;
    /// Whether any element over `axes` is true, or not 0.
    any(): Any, [K: Basic] K -> Bool;
    /// Whether all elements over `axes` are true, or not 0.
    all(): All, [K: Basic] K -> Bool;
    /// The number of elements over `axes` that are true, or not 0.
    count_nonzero(): CountNonzero, [K: Basic] K -> Int;
    /// Whether any element over `axes` is infinite or NaN.
    any_non_finite(): AnyNonFinite, [] Float -> Bool;
    /// The sum of magnitudes over `axes`.
    sum_abs(): SumAbs, [K: Numeric] K -> K;
    /// The sum of squares over `axes`.
    sum_squares(): SumSquares, [K: Numeric] K -> K;
    /// The L1 norm over `axes`: the sum of magnitudes.
    norm_l1(): NormL1, [] Float -> Float;
    /// The L2 norm over `axes`: the root of the sum of squares. It does not overflow on the way.
    norm_l2(): NormL2, [] Float -> Float;
    /// The L-infinity norm over `axes`: the largest magnitude.
    norm_inf(): NormInf, [] Float -> Float;
    /// The Lp norm over `axes`: the `p`-th root of the sum of magnitudes to the `p`-th power. `p`
    /// is finite and above 0.
    norm_p(p): NormP, [] Float -> Float;
    /// The variance over `axes`. `correction` is subtracted from the count: 1 as Burn's `var`, 0 as
    /// its `var_bias`.
    var(correction): Var, [] Float -> Float;
    /// The standard deviation over `axes`: the root of [`var`].
    std(correction): Std, [] Float -> Float;
    /// The mean and the variance over `axes`, in one read, with the correction of [`var`].
    mean_var(correction): MeanVar, [] Float -> Float, Float;
    /// The logarithm of the sum of exponentials over `axes`.
    logsumexp(): LogSumExp, [] Float -> Float;
    /// [`sum`] of the elements that are not NaN.
    nansum(): NanSum, [] Float -> Float;
    /// [`prod`] of the elements that are not NaN.
    nanprod(): NanProd, [] Float -> Float;
    /// [`mean`] of the elements that are not NaN; NaN if all are.
    nanmean(): NanMean, [] Float -> Float;
    /// [`min`] of the elements that are not NaN; NaN if all are.
    nanmin(): NanMin, [] Float -> Float;
    /// [`max`] of the elements that are not NaN; NaN if all are.
    nanmax(): NanMax, [] Float -> Float;
    /// [`argmin`] of the elements that are not NaN; 0 if all are.
    nanargmin(): NanArgMin, [] Float -> Int;
    /// [`argmax`] of the elements that are not NaN; 0 if all are.
    nanargmax(): NanArgMax, [] Float -> Int;
    /// [`var`] of the elements that are not NaN.
    nanvar(correction): NanVar, [] Float -> Float;
    /// [`std`](fn@std) of the elements that are not NaN.
    nanstd(correction): NanStd, [] Float -> Float;
}

/// The arithmetic mean over `axes`. Integers give the sum, which wraps in their type, divided by
/// the count and rounded towards 0, as Burn's own mean does; convert them with `float()` for more.
///
/// ```
/// # use burn_tensor::{Device, Tensor};
/// use reduce_burn::mean;
///
/// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
/// let means = mean(x, 1);
/// assert_eq!(means.into_data().to_vec::<f32>().unwrap(), [3.0, 4.0]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for integers if there are no elements.
#[track_caller]
pub fn mean<const D: usize, const R: usize, K: Numeric>(
    tensor: Tensor<D, K>,
    axes: impl Axes<D, R>,
) -> Tensor<R, K> {
    let options = OperatorOptions::default();
    if K::KIND == Kind::Float {
        return next(&mut results(OperatorName::Mean, options, tensor, axes));
    }
    let elements = tensor.shape().num_elements();
    let sum: Tensor<R, K> = next(&mut results(OperatorName::Sum, options, tensor, axes));
    match sum.shape().num_elements() {
        0 => sum,
        _ if elements == 0 => panic!("`mean` of integers: there are no elements to reduce"),
        outputs => sum.div_scalar((elements / outputs) as i64),
    }
}
