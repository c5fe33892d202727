//! Operators, and functions of a reduction's elements, by the names that programs take.

use std::{fmt, str::FromStr};

use reduce_benches::{Case, run};
use reduce_kernels::{
    ReduceError, TensorDescription,
    by_name::{
        AppliedName, AppliedOptions, OperatorName, OperatorOptions, UnknownOperator, with_applied,
        with_operator,
    },
    cubecl::{prelude::*, std::tensor::TensorHandle},
    reduce,
    warm_up::warm_up,
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

    /// Compiles the kernels that it takes for rows that lie so.
    pub(super) fn warm_up(
        self,
        client: &Client,
        rows: &TensorDescription,
    ) -> Result<(), ReduceError> {
        match self {
            Name::Operator(name) => with_operator!(name, OperatorOptions::default(), operator => {
                warm_up(client, &[&reduce(operator, rows).over(1)], |_| ())
            }),
            Name::Applied(name) => {
                with_applied!(name, AppliedOptions::default(), rows, 1, applied => {
                    warm_up(client, &[&applied], |_| ())
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
