//! Operators chosen at run time, by name.

use core::{fmt, str::FromStr};

/// The names of this crate's operators, for programs that take one from their user.
/// [`with_operator!`](crate::with_operator) goes from a name to the operator's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperatorName {
    /// [`Sum`](crate::Sum)
    Sum,
    /// [`Mean`](crate::Mean)
    Mean,
    /// [`Prod`](crate::Prod)
    Prod,
    /// [`Min`](crate::Min)
    Min,
    /// [`Max`](crate::Max)
    Max,
}

impl OperatorName {
    /// Every operator.
    pub const ALL: [OperatorName; 5] = [
        OperatorName::Sum,
        OperatorName::Mean,
        OperatorName::Prod,
        OperatorName::Min,
        OperatorName::Max,
    ];

    /// The name, such as `sum`.
    pub const fn name(self) -> &'static str {
        crate::with_operator!(self, O => <O as crate::Operator>::NAME)
    }
}

impl fmt::Display for OperatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no operator of this crate has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown operator `{0}`: expected one of {known}", known = OperatorName::ALL.map(OperatorName::name).join(", "))]
pub struct UnknownOperator(String);

impl FromStr for OperatorName {
    type Err = UnknownOperator;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        OperatorName::ALL
            .into_iter()
            .find(|operator| operator.name() == name)
            .ok_or_else(|| UnknownOperator(name.to_owned()))
    }
}

/// Evaluates an expression with the operator type that an [`OperatorName`](crate::OperatorName)
/// names.
///
/// ```
/// use reduce_kernels::{Operator, OperatorName, with_operator};
///
/// let name: OperatorName = "max".parse()?;
/// assert!(!with_operator!(name, O => O::DEFINED_ON_EMPTY));
/// # Ok::<(), reduce_kernels::operator::UnknownOperator>(())
/// ```
#[macro_export]
macro_rules! with_operator {
    ($name:expr, $operator:ident => $body:expr) => {
        $crate::with_operator!(@ $name, $operator, $body; Sum, Mean, Prod, Min, Max)
    };
    (@ $name:expr, $operator:ident, $body:expr; $($each:ident),*) => {
        match $name {
            $($crate::OperatorName::$each => {
                type $operator = $crate::$each;
                $body
            })*
        }
    };
}
