//! Operators chosen at run time, by name.

use core::{fmt, str::FromStr};

/// What operators depend on beside their names, for programs that take it from their user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperatorOptions {
    /// The correction of variances and standard deviations; 0 unless set.
    pub correction: f64,
    /// The exponent of `norm_p`; 2 unless set.
    pub p: f64,
}

impl Default for OperatorOptions {
    fn default() -> Self {
        Self { correction: 0.0, p: 2.0 }
    }
}

/// The list of operators, as an enum of names and a macro from a name to the operator.
macro_rules! names {
    ($dollar:tt $($operator:ident { $($field:ident),* },)*) => {
        /// The names of this crate's operators, for programs that take one from their user.
        /// [`with_operator!`](crate::with_operator) goes from a name to the operator.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum OperatorName {
            $(
                #[doc = concat!("[`", stringify!($operator), "`](crate::", stringify!($operator), ")")]
                $operator,
            )*
        }

        impl OperatorName {
            /// Every operator.
            pub const ALL: &'static [OperatorName] = &[$(OperatorName::$operator),*];

            /// The name, such as `sum`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(OperatorName::$operator => <crate::$operator as crate::Operator>::NAME,)*
                }
            }
        }

        /// Evaluates an expression with the operator that an [`OperatorName`](crate::OperatorName)
        /// and [`OperatorOptions`](crate::OperatorOptions) stand for.
        ///
        /// ```
        /// use reduce_kernels::{Operator, OperatorName, OperatorOptions, with_operator};
        ///
        /// fn name_of<O: Operator>(_: O) -> &'static str { O::NAME }
        ///
        /// let name: OperatorName = "var".parse()?;
        /// let options = OperatorOptions { correction: 1.0, ..Default::default() };
        /// assert_eq!(with_operator!(name, options, operator => name_of(operator)), "var");
        /// # Ok::<(), reduce_kernels::operator::UnknownOperator>(())
        /// ```
        #[macro_export]
        macro_rules! with_operator {
            ($dollar name:expr, $dollar options:expr, $dollar operator:ident => $dollar body:expr) => {{
                #[allow(unused, reason = "most operators have no options")]
                let options: $crate::OperatorOptions = $dollar options;
                match $dollar name {
                    $(
                        $crate::OperatorName::$operator => {
                            let $dollar operator =
                                $crate::$operator { $($field: options.$field),* };
                            $dollar body
                        }
                    )*
                }
            }};
        }
    };
}

names!($
    Sum {},
    Prod {},
    Mean {},
    Min {},
    Max {},
    MinMax {},
    ArgMin {},
    ArgMax {},
    MinWithIndex {},
    MaxWithIndex {},
    Any {},
    All {},
    CountNonzero {},
    SumAbs {},
    SumSquares {},
    NormL1 {},
    NormL2 {},
    NormInf {},
    NormP { p },
    Var { correction },
    Std { correction },
    MeanVar { correction },
    LogSumExp {},
    NanSum {},
    NanProd {},
    NanMean {},
    NanMin {},
    NanMax {},
    NanArgMin {},
    NanArgMax {},
    NanVar { correction },
    NanStd { correction },
);

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

/// A name that no operator of this crate has.
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
