//! The functions that users call.

use burn_dispatch::Dispatch;
use burn_tensor::{
    Bool, Float, Int, Tensor,
    kind::{Basic, Numeric},
};
use reduce_kernels::by_name::{PairName, PairOptions};

use super::next;
use crate::pair::PairReduction;
use crate::{
    axes::Axes,
    backend::{Operation, ReduceBackend},
    error::ReduceBurnError,
    tensor::{AnyTensor, into_any},
};

/// The results of a function. The caller knows how many there are, and of which kinds.
#[track_caller]
fn results<const D: usize, const R: usize, K: Basic, A: Axes<D, R>>(
    function: PairName,
    options: PairOptions,
    first: Tensor<D, K>,
    second: Tensor<D, K>,
    axes: A,
) -> impl Iterator<Item = AnyTensor<Dispatch>> + use<D, R, K, A> {
    let [first, second] = [first, second].map(into_any);
    let shapes = [&first, &second].map(|tensor| tensor.shape().to_vec());
    let run = || {
        let (axes, keep_dims) = (axes.into_list(), A::KEEPS_DIMS);
        let reduction = PairReduction::new(function, options, &first, &second, &axes, keep_dims)?;
        let found = reduction.output_shape();
        if found.num_dims() != R {
            return Err(ReduceBurnError::Rank { asked: R, shape: found.to_vec() });
        }
        Dispatch::run(vec![first, second], Operation::Pair(reduction))
    };
    match run() {
        Ok(results) => results.into_iter(),
        Err(error) => {
            let [first, second] = shapes;
            panic!("`{function}` of tensors of shapes {first:?} and {second:?}: {error}")
        }
    }
}

/// A function for each [`PairName`]. One result is a tensor, two are a tuple.
macro_rules! functions {
    ($(
        $(#[$doc:meta])*
        $function:ident($($option:ident),*): $name:ident,
            [$($kind:tt)*] $input:ident -> $($result:ident),+;
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// `second` broadcasts: along each axis it has the extent of `first`, or 1.
            ///
            /// ```
            /// # use burn_tensor::{Device, Tensor};
            #[doc = concat!("use reduce_burn::pairs::", stringify!($function), ";")]
            ///
            /// let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
            /// let row = Tensor::<2>::from_data([[0.5, 2.0, 3.0]], &Device::flex());
            $(#[doc = concat!("let ", stringify!($option), " = 0.01;")])*
            #[doc = concat!(
                "let of_rows = ", stringify!($function),
                "(x, row, 1", $(", ", stringify!($option),)*
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
                first: Tensor<D, $input>,
                second: Tensor<D, $input>,
                axes: impl Axes<D, R>,
                $($option: f64,)*
            ) -> ($(Tensor<R, $result>),+) {
                #[allow(unused_mut, reason = "most functions have no parameter")]
                let mut options = PairOptions::default();
                $(options.$option = $option;)*
                let mut results = results(PairName::$name, options, first, second, axes);
                ($(next::<R, $result>(&mut results)),+)
            }
        )*
    };
}

functions! {
    /// The dot product over `axes`: the sum of products.
    dot(): Dot, [] Float -> Float;
    /// The mean of squared differences over `axes`.
    mean_squared_error(): MeanSquaredError, [] Float -> Float;
    /// The mean of absolute differences over `axes`.
    mean_absolute_error(): MeanAbsoluteError, [] Float -> Float;
    /// The mean of Huber's losses over `axes`: half the square of a difference up to `delta`, and
    /// from there on a line with the slope `delta`, which is above 0.
    huber(delta): Huber, [] Float -> Float;
    /// The Kullback-Leibler divergence over `axes` of the distribution `first` from `second`, both
    /// given as probabilities: the sum of `p * (ln p - ln q)`, and of 0 where `p` is 0.
    kl_divergence(): KlDivergence, [] Float -> Float;
    /// The cosine similarity over `axes`: the dot product over the product of the lengths, each of
    /// which counts as `eps` at least.
    cosine_similarity(eps): CosineSimilarity, [] Float -> Float;
    /// The largest absolute difference over `axes`. It is NaN if any difference is.
    max_difference(): MaxDifference, [] Float -> Float;
    /// The mean over `axes` with `second` as weights. It is NaN or infinite if the weights sum to
    /// 0.
    weighted_mean(): WeightedMean, [] Float -> Float;
    /// The mean and the variance over `axes` with `second` as weights, in one read. Weights are 0
    /// or more. The variance is the weighted mean of squared distances from the mean.
    weighted_mean_var(): WeightedMeanVar, [] Float -> Float, Float;
    /// The covariance over `axes`. `correction` is subtracted from the count: 0 for that of a
    /// population, 1 for that of a sample.
    covariance(correction): Covariance, [] Float -> Float;
    /// The sum of `first` over `axes`, and its [`dot`] product with `second`, in one read.
    sum_and_dot(): SumAndDot, [] Float -> Float, Float;
    /// Whether all differences over `axes` are at most `absolute + relative * |second|`. Equal
    /// infinities are close, and NaN is close to nothing.
    all_close(absolute, relative): AllClose, [] Float -> Bool;
    /// The number of equal elements over `axes`. NaN equals nothing.
    count_equal(): CountEqual, [K: Numeric] K -> Int;
    /// The share of equal elements over `axes`, in the device's float type. Of predicted and true
    /// classes, it is the accuracy.
    accuracy(): Accuracy, [K: Numeric] K -> Float;
}
