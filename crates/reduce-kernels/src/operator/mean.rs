//! Arithmetic mean.

use cubecl::prelude::*;

use super::{One, Operator, Position, Sum, TypeRule, Types, Value, rules};

/// The arithmetic mean; NaN of no elements. Integers give floating point.
pub struct Mean;

#[cube]
impl Operator for Mean {
    type Fields = One;

    const NAME: &'static str = "mean";
    const POSITIONAL: bool = false;
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;

    fn identity<T: Types, N: Size>() -> Value<T::A, N> {
        Sum::identity::<T, N>()
    }

    fn push<T: Types, N: Size>(
        accumulator: Value<T::A, N>,
        value: Vector<T::In, N>,
        position: Position,
    ) -> Value<T::A, N> {
        Sum::push::<T, N>(accumulator, value, position)
    }

    fn merge<T: Types, N: Size>(left: Value<T::A, N>, right: Value<T::A, N>) -> Value<T::A, N> {
        Sum::merge::<T, N>(left, right)
    }

    fn finish<T: Types, N: Size>(accumulator: Value<T::A, N>, count: usize) -> Vector<T::Out, N> {
        Vector::cast_from(accumulator.value / Vector::cast_from(count))
    }
}
