//! The list of this crate's reductions of two inputs. Macros make their names, their functions and
//! the way from a name to an operator from it.

use core::{fmt, str::FromStr};

use cubecl::{prelude::*, std::tensor::TensorHandle};

use crate::{
    axes::Axes,
    error::ReduceError,
    operator::{Mapped, builtin::*},
    reduction::{Outputs, reduce_pair},
};

/// The parameters of reductions of two inputs that are chosen by name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairOptions {
    /// Where the square of [`huber`](fn@huber) ends; 1 by default.
    pub delta: f64,
    /// Least length of a vector in [`cosine_similarity`](fn@cosine_similarity); 1e-8 by default.
    pub eps: f64,
    /// The correction of [`covariance`](fn@covariance); 0 by default.
    pub correction: f64,
    /// The absolute tolerance of [`all_close`](fn@all_close); 1e-8 by default.
    pub absolute: f64,
    /// The relative tolerance of [`all_close`](fn@all_close); 1e-5 by default.
    pub relative: f64,
}

impl Default for PairOptions {
    fn default() -> Self {
        Self { delta: 1.0, eps: 1e-8, correction: 0.0, absolute: 1e-8, relative: 1e-5 }
    }
}

macro_rules! pairs {
    ($dollar:tt $(
        $(#[$doc:meta])*
        $function:ident, $variant:ident: $type:ty = $operator:expr, ($($parameter:ident),*);
    )*) => {
        $(
            $(#[$doc])*
            ///
            /// Both are read once. The axes are those of `first`; [`reduce_pair`] tells how
            /// `second` may broadcast, and offers more. Reduced axes stay with size 1. Does not
            /// wait for the result.
            ///
            /// ```no_run
            /// # use reduce_kernels::{
            /// #     ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle},
            /// # };
            #[doc = concat!("use reduce_kernels::pairs::", stringify!($function), ";")]
            ///
            /// # fn example(
            /// #     client: &Client,
            /// #     x: &TensorHandle,
            /// #     y: &TensorHandle,
            /// # ) -> Result<(), ReduceError> {
            $(#[doc = concat!("let ", stringify!($parameter), " = 1e-5;")])*
            #[doc = concat!(
                "let of_rows = ", stringify!($function),
                "(client, x, y, 1", $(", ", stringify!($parameter),)*
                ")?;",
            )]
            /// # Ok(()) }
            /// ```
            ///
            /// # Errors
            ///
            /// A [`ReduceError`] before anything is launched.
            pub fn $function(
                client: &Client,
                first: &TensorHandle,
                second: &TensorHandle,
                axes: impl Into<Axes>,
                $($parameter: f64,)*
            ) -> Result<Outputs<$type, TensorHandle>, ReduceError> {
                reduce_pair($operator, first, second).over(axes).run(client)
            }
        )*

        /// The names of this crate's reductions of two inputs, for programs that take one from
        /// their user. [`with_pair!`](crate::by_name::with_pair) goes from a name to the operator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum PairName {
            $(
                #[doc = concat!("[`", stringify!($function), "`](fn@", stringify!($function), ")")]
                $variant,
            )*
        }

        impl PairName {
            /// Every reduction of two inputs.
            pub const ALL: &'static [PairName] = &[$(PairName::$variant),*];

            /// The name, such as `dot`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(PairName::$variant => stringify!($function),)*
                }
            }
        }

        /// Evaluates an expression with the operator that a [`PairName`](crate::by_name::PairName)
        /// and [`PairOptions`](crate::by_name::PairOptions) stand for.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! with_pair {
            ($dollar name:expr, $dollar options:expr, $dollar operator:ident => $dollar body:expr) => {{
                #[allow(unused, reason = "most operators have no options")]
                let options: $crate::by_name::PairOptions = $dollar options;
                #[allow(unreachable_patterns, reason = "inside this crate all names are known")]
                match $dollar name {
                    $(
                        $crate::by_name::PairName::$variant => {
                            let $dollar operator =
                                $crate::by_name::pair_operators::$function($(options.$parameter),*);
                            $dollar body
                        }
                    )*
                    _ => unreachable!("the macro has the names of its own crate"),
                }
            }};
        }

        /// The operators behind the names, for [`with_pair!`](crate::by_name::with_pair).
        #[doc(hidden)]
        pub mod pair_operators {
            use super::*;

            $(
                pub fn $function($($parameter: f64),*) -> $type {
                    $operator
                }
            )*
        }
    };
}

pairs! { $
    /// The dot product over `axes`: the sum of products, in the type of [`sum`](fn@crate::sum).
    dot, Dot: Mapped<ElementwiseProduct, Sum> =
        Mapped { map: ElementwiseProduct, operator: Sum }, ();
    /// The mean of squared differences over `axes`.
    mean_squared_error, MeanSquaredError: Mapped<SquaredDifference, Mean> =
        Mapped { map: SquaredDifference, operator: Mean }, ();
    /// The mean of absolute differences over `axes`.
    mean_absolute_error, MeanAbsoluteError: Mapped<AbsoluteDifference, Mean> =
        Mapped { map: AbsoluteDifference, operator: Mean }, ();
    /// The mean of Huber's losses over `axes`: half the square of a difference up to `delta`, and
    /// from there on a line.
    huber, Huber: Mapped<Huber, Mean> =
        Mapped { map: Huber { delta }, operator: Mean }, (delta);
    /// The Kullback-Leibler divergence over `axes` of the distribution `first` from `second`, both
    /// given as probabilities.
    kl_divergence, KlDivergence: Mapped<Divergence, Sum> =
        Mapped { map: Divergence, operator: Sum }, ();
    /// The cosine similarity over `axes`. Lengths count as `eps` at least.
    cosine_similarity, CosineSimilarity: CosineSimilarity = CosineSimilarity { eps }, (eps);
    /// The share of equal elements over `axes`, as f32: of predicted and true classes, the
    /// accuracy.
    accuracy, Accuracy: Accuracy = Accuracy, ();
    /// The number of equal elements over `axes`.
    count_equal, CountEqual: CountEqual = CountEqual, ();
    /// The largest absolute difference over `axes`; NaN if any difference is.
    max_difference, MaxDifference: Mapped<AbsoluteDifference, Max> =
        Mapped { map: AbsoluteDifference, operator: Max }, ();
    /// Whether all differences over `axes` are at most `absolute + relative * |second|`, as bool.
    /// NaN is close to nothing; [`AllClose`] may let it be close to NaN.
    all_close, AllClose: AllClose =
        AllClose { absolute, relative, equal_nan: false }, (absolute, relative);
    /// The mean over `axes` with `second` as weights.
    weighted_mean, WeightedMean: WeightedMean = WeightedMean, ();
    /// The mean and the variance over `axes` with `second` as weights, in one read.
    weighted_mean_var, WeightedMeanVar: WeightedMeanVar = WeightedMeanVar, ();
    /// The covariance over `axes`. `correction` is subtracted from the count.
    covariance, Covariance: Covariance = Covariance { correction }, (correction);
    /// The sum of `first` over `axes` and its dot product with `second`, in one read.
    sum_and_dot, SumAndDot: SumAndDot = SumAndDot, ();
}

pub use with_pair;

impl PairName {
    /// The names of all reductions of two inputs, separated by commas.
    pub fn names() -> String {
        let names: Vec<&str> = PairName::ALL.iter().map(|pair| pair.name()).collect();
        names.join(", ")
    }
}

impl fmt::Display for PairName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no reduction of two inputs has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown reduction of two inputs `{0}`: expected one of {names}", names = PairName::names())]
pub struct UnknownPair(String);

impl FromStr for PairName {
    type Err = UnknownPair;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = PairName::ALL.iter().copied().find(|pair| pair.name() == name);
        found.ok_or_else(|| UnknownPair(name.to_owned()))
    }
}
