//! Product.

use cubecl::prelude::*;

use super::{One, Operator, Parameters, Position, TypeRule, Types, Value, rules};

/// The product; 1 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prod;

#[cube]
impl Operator for Prod {
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "prod";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::accumulate;

    fn identity<T: Types, N: Size>() -> Value<T::A, N> {
        Value::new(Vector::from_int(1))
    }

    fn push<T: Types, N: Size>(
        accumulator: Value<T::A, N>,
        value: Vector<T::In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<T::A, N> {
        Value::new(accumulator.value * Vector::cast_from(value))
    }

    fn merge<T: Types, N: Size>(
        left: Value<T::A, N>,
        right: Value<T::A, N>,
        _parameters: &Parameters,
    ) -> Value<T::A, N> {
        Value::new(left.value * right.value)
    }

    fn finish<T: Types, N: Size>(
        accumulator: Value<T::A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<T::Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}
