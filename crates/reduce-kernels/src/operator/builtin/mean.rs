//! Arithmetic mean.

use cubecl::prelude::*;

use super::Sum;
use crate::operator::{A, In, One, Operator, Out, Parameters, Position, TypeRule, Value, rules};

/// The arithmetic mean; NaN of no elements. Integers give floating point.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mean;

#[cube]
impl Operator for Mean {
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "mean";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;

    fn identity<N: Size>() -> Value<A, N> {
        Sum::identity::<N>()
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        value: Vector<In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> Value<A, N> {
        Sum::push::<N>(accumulator, value, position, parameters)
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        parameters: &Parameters,
    ) -> Value<A, N> {
        Sum::merge::<N>(left, right, parameters)
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.value / Vector::cast_from(count)))
    }
}
