//! Sums: of the elements, of their magnitudes, of their squares.

use cubecl::prelude::*;

use crate::operator::{
    A, In, One, Operator, Out, Parameters, Position, TypeRule, Value, element_wise::magnitude,
    rules,
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

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(accumulator.value + Vector::cast_from(value))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(left.value + right.value)
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
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

            fn identity<N: Size>() -> Value<A, N> {
                Sum::identity::<N>()
            }

            fn push<N: Size>(
                accumulator: Value<A, N>,
                $value: Vector<In, N>,
                position: Position,
                parameters: &Parameters,
            ) -> Value<A, N> {
                Sum::push::<N>(accumulator, $addend, position, parameters)
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
                parameters: &Parameters,
            ) -> Value<Out, N> {
                Sum::finish::<N>(accumulator, count, parameters)
            }
        }
    };
}

sum_of!(SumAbs, "sum_abs", rules::accumulate: value => magnitude::<In, N>(value));
sum_of!(SumSquares, "sum_squares", rules::accumulate: value => value * value);

pub(super) use sum_of;
