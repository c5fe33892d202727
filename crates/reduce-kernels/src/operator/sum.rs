//! Sums: of the elements, of their magnitudes, of their squares.

use cubecl::prelude::*;

use super::{
    One, Operator, Parameters, Position, TypeRule, Types, Value, element_wise::magnitude, rules,
};

/// The sum; 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum;

/// The sum of magnitudes; 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct SumAbs;

/// The sum of squares; 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct SumSquares;

#[cube]
impl Operator for Sum {
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "sum";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::accumulate;
    const PAIRWISE: bool = true;

    fn identity<T: Types, N: Size>() -> Value<T::A, N> {
        Value::new(Vector::from_int(0))
    }

    fn push<T: Types, N: Size>(
        accumulator: Value<T::A, N>,
        value: Vector<T::In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<T::A, N> {
        Value::new(accumulator.value + Vector::cast_from(value))
    }

    fn merge<T: Types, N: Size>(
        left: Value<T::A, N>,
        right: Value<T::A, N>,
        _parameters: &Parameters,
    ) -> Value<T::A, N> {
        Value::new(left.value + right.value)
    }

    fn finish<T: Types, N: Size>(
        accumulator: Value<T::A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<T::Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

/// Operators that differ from [`Sum`] in what they add for an element.
macro_rules! sum_of {
    ($operator:ident, $name:literal, $types:path: $value:ident => $addend:expr) => {
        #[cube]
        impl Operator for $operator {
            type Fields = One;
            type Results = One;

            const NAME: &'static str = $name;
            const DEFINED_ON_EMPTY: bool = true;
            const TYPES: TypeRule = $types;
            const PAIRWISE: bool = true;

            fn identity<T: Types, N: Size>() -> Value<T::A, N> {
                Sum::identity::<T, N>()
            }

            fn push<T: Types, N: Size>(
                accumulator: Value<T::A, N>,
                $value: Vector<T::In, N>,
                position: Position,
                parameters: &Parameters,
            ) -> Value<T::A, N> {
                Sum::push::<T, N>(accumulator, $addend, position, parameters)
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
                parameters: &Parameters,
            ) -> Value<T::Out, N> {
                Sum::finish::<T, N>(accumulator, count, parameters)
            }
        }
    };
}

sum_of!(SumAbs, "sum_abs", rules::accumulate: value => magnitude::<T::In, N>(value));
sum_of!(SumSquares, "sum_squares", rules::accumulate: value => value * value);

pub(super) use sum_of;
