//! Arithmetic mean.

use cubecl::prelude::*;

use super::{One, Operator, Parameters, Position, Sum, TypeRule, Types, Value, rules};

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

    fn identity<T: Types, N: Size>() -> Value<T::A, N> {
        Sum::identity::<T, N>()
    }

    fn push<T: Types, N: Size>(
        accumulator: Value<T::A, N>,
        value: Vector<T::In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> Value<T::A, N> {
        Sum::push::<T, N>(accumulator, value, position, parameters)
    }

    fn merge<T: Types, N: Size>(
        left: Value<T::A, N>,
        right: Value<T::A, N>,
        parameters: &Parameters,
    ) -> Value<T::A, N> {
        Sum::merge::<T, N>(left, right, parameters)
    }

    fn finish<T: Types, N: Size>(
        accumulator: Value<T::A, N>,
        count: usize,
        _parameters: &Parameters,
    ) -> Value<T::Out, N> {
        Value::new(Vector::cast_from(accumulator.value / Vector::cast_from(count)))
    }
}
