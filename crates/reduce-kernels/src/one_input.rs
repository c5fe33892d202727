//! The list of this crate's operators. Macros make their names, their functions and the way from a
//! name to an operator from it. A new operator needs one line here, besides its implementation in
//! `operator/builtin/`. Tests then ask for its reference in `tests/suite/operators.rs` and for its
//! row in docs/SEMANTICS.md.

use core::{fmt, str::FromStr};

use cubecl::{prelude::*, std::tensor::TensorHandle};

use crate::{
    axes::Axes,
    error::ReduceError,
    operator::builtin::*,
    reduction::{Outputs, reduce},
};

/// The parameters of operators that are chosen by name, for programs that take both from their
/// user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperatorOptions {
    /// The correction of variances and standard deviations; 0 by default.
    pub correction: f64,
    /// The exponent of `norm_p`; 2 by default.
    pub p: f64,
}

impl Default for OperatorOptions {
    fn default() -> Self {
        Self { correction: 0.0, p: 2.0 }
    }
}

macro_rules! operators {
    ($dollar:tt $($(#[$doc:meta])* $function:ident: $operator:ident { $($field:ident)? };)*) => {
        $(
            $(#[$doc])*
            ///
            /// Reduced axes stay with size 1; [`reduce`] offers more. Does not wait for the result.
            ///
            /// ```no_run
            /// # use reduce_kernels::{
            /// #     ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle},
            /// # };
            #[doc = concat!("use reduce_kernels::functions::", stringify!($function), ";")]
            ///
            /// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
            $(#[doc = concat!("let ", stringify!($field), " = 1.0;")])?
            #[doc = concat!(
                "let of_rows = ", stringify!($function),
                "(client, x, 1", $(", ", stringify!($field),)?
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
                input: &TensorHandle,
                axes: impl Into<Axes>,
                $($field: f64,)?
            ) -> Result<Outputs<$operator, TensorHandle>, ReduceError> {
                reduce($operator { $($field)? }, input).over(axes).run(client)
            }
        )*

        /// The names of this crate's operators, for programs that take one from their user.
        /// [`with_operator!`](crate::by_name::with_operator) goes from a name to the operator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum OperatorName {
            $(
                #[doc = concat!("[`", stringify!($operator), "`](crate::operators::", stringify!($operator), ")")]
                $operator,
            )*
        }

        impl OperatorName {
            /// Every operator.
            pub const ALL: &'static [OperatorName] = &[$(OperatorName::$operator),*];

            /// The name, such as `sum`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(OperatorName::$operator => <$operator as crate::Operator>::NAME,)*
                }
            }
        }

        /// Evaluates an expression with the operator that an
        /// [`OperatorName`](crate::by_name::OperatorName) and
        /// [`OperatorOptions`](crate::by_name::OperatorOptions) stand for.
        ///
        /// ```
        /// use reduce_kernels::{Operator, by_name::{OperatorName, OperatorOptions, with_operator}};
        ///
        /// fn name_of<O: Operator>(_: O) -> &'static str { O::NAME }
        ///
        /// let name: OperatorName = "var".parse()?;
        /// let options = OperatorOptions { correction: 1.0, ..Default::default() };
        /// assert_eq!(with_operator!(name, options, operator => name_of(operator)), "var");
        /// # Ok::<(), reduce_kernels::by_name::UnknownOperator>(())
        /// ```
        #[doc(hidden)]
        #[macro_export]
        macro_rules! with_operator {
            ($dollar name:expr, $dollar options:expr, $dollar operator:ident => $dollar body:expr) => {{
                #[allow(unused, reason = "most operators have no options")]
                let options: $crate::by_name::OperatorOptions = $dollar options;
                #[allow(unreachable_patterns, reason = "inside this crate all names are known")]
                match $dollar name {
                    $(
                        $crate::by_name::OperatorName::$operator => {
                            let $dollar operator =
                                $crate::operators::$operator { $($field: options.$field)? };
                            $dollar body
                        }
                    )*
                    _ => unreachable!("the macro has the names of its own crate"),
                }
            }};
        }
    };
}

operators! { $
    /// The sum over `axes`. The result has the input's type, but 32 bits for narrower integers and
    /// bools.
    sum: Sum {};
    /// The product over `axes`. The result has the input's type, but 32 bits for narrower integers
    /// and bools.
    prod: Prod {};
    /// The arithmetic mean over `axes`. The result is f32 for integers and bools, otherwise of the
    /// input's type.
    mean: Mean {};
    /// The minimum over `axes`, in the input's type. It is NaN if any element is NaN, and an error
    /// if `axes` have no elements.
    min: Min {};
    /// The maximum over `axes`, in the input's type. It is NaN if any element is NaN, and an error
    /// if `axes` have no elements.
    max: Max {};
    /// The minimum and the maximum over `axes`: [`min`](fn@min) and [`max`](fn@max) in one read.
    min_max: MinMax {};
    /// The position of the minimum over `axes`, in row-major order over them. It is that of the
    /// first NaN if there is one, otherwise that of the first minimum. The result is u32, or u64 if
    /// u32 cannot count the elements.
    argmin: ArgMin {};
    /// The position of the maximum over `axes`, in row-major order over them. It is that of the
    /// first NaN if there is one, otherwise that of the first maximum. The result is u32, or u64 if
    /// u32 cannot count the elements.
    argmax: ArgMax {};
    /// The minimum over `axes` and its position: [`min`](fn@min) and [`argmin`](fn@argmin) in one
    /// read.
    min_with_index: MinWithIndex {};
    /// The maximum over `axes` and its position: [`max`](fn@max) and [`argmax`](fn@argmax) in one
    /// read.
    max_with_index: MaxWithIndex {};
    /// Whether any element over `axes` is nonzero, as bool.
    any: Any {};
    /// Whether all elements over `axes` are nonzero, as bool.
    all: All {};
    /// The number of nonzero elements over `axes`, as u32, or u64 if u32 cannot count them.
    count_nonzero: CountNonzero {};
    /// Whether any element over `axes` is infinite or NaN, as bool.
    any_non_finite: AnyNonFinite {};
    /// The sum of magnitudes over `axes`, in the type of [`sum`](fn@sum).
    sum_abs: SumAbs {};
    /// The sum of squares over `axes`, in the type of [`sum`](fn@sum).
    sum_squares: SumSquares {};
    /// The L1 norm over `axes`: the sum of magnitudes. The result is f32 for integers and bools,
    /// otherwise of the input's type.
    norm_l1: NormL1 {};
    /// The L2 norm over `axes`: the root of the sum of squares. The result is f32 for integers and
    /// bools, otherwise of the input's type.
    norm_l2: NormL2 {};
    /// The L-infinity norm over `axes`: the largest magnitude. The result is f32 for integers and
    /// bools, otherwise of the input's type.
    norm_inf: NormInf {};
    /// The Lp norm over `axes`: the `p`-th root of the sum of magnitudes to the `p`-th power. The
    /// result is f32 for integers and bools, otherwise of the input's type.
    norm_p: NormP { p };
    /// The variance over `axes`. `correction` is subtracted from the count: 0 for a population, 1
    /// for a sample. The result is f32 for integers and bools, otherwise of the input's type.
    var: Var { correction };
    /// The standard deviation over `axes`, with the correction and the type of [`var`](fn@var).
    std: Std { correction };
    /// The mean and the variance over `axes` in one read, with the correction and the type of
    /// [`var`](fn@var).
    mean_var: MeanVar { correction };
    /// The logarithm of the sum of exponentials over `axes`. The result is f32 for integers and
    /// bools, otherwise of the input's type.
    logsumexp: LogSumExp {};
    /// [`sum`](fn@sum) of the elements that are not NaN.
    nansum: NanSum {};
    /// [`prod`](fn@prod) of the elements that are not NaN.
    nanprod: NanProd {};
    /// [`mean`](fn@mean) of the elements that are not NaN.
    nanmean: NanMean {};
    /// [`min`](fn@min) of the elements that are not NaN; NaN if all are.
    nanmin: NanMin {};
    /// [`max`](fn@max) of the elements that are not NaN; NaN if all are.
    nanmax: NanMax {};
    /// [`argmin`](fn@argmin) of the elements that are not NaN; 0 if all are.
    nanargmin: NanArgMin {};
    /// [`argmax`](fn@argmax) of the elements that are not NaN; 0 if all are.
    nanargmax: NanArgMax {};
    /// [`var`](fn@var) of the elements that are not NaN.
    nanvar: NanVar { correction };
    /// [`std`](fn@std) of the elements that are not NaN.
    nanstd: NanStd { correction };
}

pub use with_operator;

impl OperatorName {
    /// The names of all operators, separated by commas.
    pub fn names() -> String {
        let names: Vec<&str> = OperatorName::ALL.iter().map(|operator| operator.name()).collect();
        names.join(", ")
    }
}

impl fmt::Display for OperatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no operator of this crate has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown operator `{0}`: expected one of {names}", names = OperatorName::names())]
pub struct UnknownOperator(String);

impl FromStr for OperatorName {
    type Err = UnknownOperator;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        OperatorName::ALL
            .iter()
            .copied()
            .find(|operator| operator.name() == name)
            .ok_or_else(|| UnknownOperator(name.to_owned()))
    }
}
