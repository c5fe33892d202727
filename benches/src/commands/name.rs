//! Operators, and functions of a reduction's elements, by the names that programs take.

use std::{fmt, str::FromStr};

use reduce_benches::{Case, run};
use reduce_kernels::{
    ReduceError,
    by_name::{AppliedName, AppliedOptions, OperatorName, UnknownOperator, with_applied},
    cubecl::{prelude::*, std::tensor::TensorHandle},
};

/// What is computed.
#[derive(Clone, Copy)]
pub(super) enum Name {
    Operator(OperatorName),
    Applied(AppliedName),
}

impl Name {
    /// Every operator and every function without operands.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let operators = OperatorName::ALL.iter().copied().map(Name::Operator);
        operators.chain(AppliedName::ALL.iter().copied().map(Name::Applied))
    }

    /// Launches it on `input`, which lies as a case says, whatever the operator of the case.
    pub(super) fn run(
        self,
        client: &Client,
        place: &Case,
        input: &TensorHandle,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        match self {
            Name::Operator(operator) => {
                let case = Case { operator, ..place.clone() };
                run(client, &case, input, None)
            }
            Name::Applied(name) => {
                with_applied!(name, AppliedOptions::default(), input, place.axes(), applied => {
                    applied.run(client).map(|output| vec![output])
                })
            }
        }
    }
}

impl FromStr for Name {
    type Err = UnknownOperator;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        name.parse()
            .map_or_else(|_| name.parse().map(Name::Operator), |name| Ok(Name::Applied(name)))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Operator(name) => name.fmt(f),
            Name::Applied(name) => name.fmt(f),
        }
    }
}
