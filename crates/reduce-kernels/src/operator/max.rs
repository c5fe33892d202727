//! Maximum.

use cubecl::prelude::*;

use super::{One, Operator, Position, TypeRule, Types, Value, rules};
use crate::limits;

/// The maximum; NaN if any element is. Undefined on no elements.
pub struct Max;

#[cube]
impl Operator for Max {
    type Fields = One;

    const NAME: &'static str = "max";
    const POSITIONAL: bool = false;
    const DEFINED_ON_EMPTY: bool = false;
    const TYPES: TypeRule = rules::select;

    fn identity<T: Types, N: Size>() -> Value<T::A, N> {
        Value::new(Vector::new(limits::lowest::<T::A>()))
    }

    fn push<T: Types, N: Size>(
        accumulator: Value<T::A, N>,
        value: Vector<T::In, N>,
        _position: Position,
    ) -> Value<T::A, N> {
        Self::merge::<T, N>(accumulator, Value::new(Vector::cast_from(value)))
    }

    fn merge<T: Types, N: Size>(left: Value<T::A, N>, right: Value<T::A, N>) -> Value<T::A, N> {
        let greater = right.value.greater_than(left.value);
        let taken = limits::or_nan::<T::A, N>(greater, right.value);
        Value::new(select_many(taken, right.value, left.value))
    }

    fn finish<T: Types, N: Size>(accumulator: Value<T::A, N>, _count: usize) -> Vector<T::Out, N> {
        Vector::cast_from(accumulator.value)
    }
}
