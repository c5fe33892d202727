//! Arithmetic mean.

use cubecl::prelude::*;

use super::Sum;
use crate::operator::{
    A, AccumulatorOf, One, Out, Parameters, ResultsOf, Value,
    derived::derived,
    rules,
    same_bits::{converted, of_count, quotient},
};

/// The arithmetic mean; NaN of no elements. Means of integers are floating point.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean;

derived!(Mean: One -> One = Sum, "mean", rules::floating,
finish results);

#[cube]
impl Mean {
    fn results<N: Size>(
        accumulator: AccumulatorOf<One, N>,
        count: usize,
        _parameters: &Parameters,
    ) -> ResultsOf<One, N> {
        let mean = quotient::<A, N>(accumulator.value, of_count::<A, N>(count));
        Value::new(converted::<A, Out, N>(mean))
    }
}
