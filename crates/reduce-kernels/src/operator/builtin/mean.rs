//! Arithmetic mean.

use cubecl::prelude::*;

use super::Sum;
use crate::operator::{AccumulatorOf, One, Parameters, ResultsOf, Value, derived::derived, rules};

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
        Value::new(Vector::cast_from(accumulator.value / Vector::cast_from(count)))
    }
}
