//! Minimum, maximum, and both in one read.

use cubecl::prelude::*;

use crate::operator::{
    A, B, In, One, Operator, Out, Out2, Pair, Parameters, Position, Two, TypeRule, Value,
    element_wise::{highest, lowest, or_nan},
    rules,
};

/// The maximum; NaN if any element is. Undefined on no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Max;

/// The minimum; NaN if any element is. Undefined on no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Min;

/// The minimum and the maximum, in this order; both NaN if any element is. Undefined on no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinMax;

/// Each lane's greater value, NaN if either is.
#[cube]
pub(super) fn greater<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
    let taken = or_nan::<E, N>(right.greater_than(left), right);
    select_many(taken, right, left)
}

/// Each lane's lesser value, NaN if either is.
#[cube]
pub(super) fn lesser<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
    let taken = or_nan::<E, N>(right.less_than(left), right);
    select_many(taken, right, left)
}

/// An operator that keeps the better of two values.
macro_rules! extremum {
    ($operator:ident, $name:literal, from $identity:ident by $better:ident) => {
        #[cube]
        impl Operator for $operator {
            type Fields = One;
            type Results = One;

            const NAME: &'static str = $name;
            const DEFINED_ON_EMPTY: bool = false;
            const TYPES: TypeRule = rules::select;

            fn identity<N: Size>() -> Value<A, N> {
                Value::new(Vector::new($identity::<A>()))
            }

            fn push<N: Size>(
                accumulator: Value<A, N>,
                value: Vector<In, N>,
                _position: Position,
                _parameters: &Parameters,
            ) -> Value<A, N> {
                Value::new($better::<A, N>(accumulator.value, Vector::cast_from(value)))
            }

            fn merge<N: Size>(
                left: Value<A, N>,
                right: Value<A, N>,
                _parameters: &Parameters,
            ) -> Value<A, N> {
                Value::new($better::<A, N>(left.value, right.value))
            }

            fn finish<N: Size>(
                accumulator: Value<A, N>,
                _count: usize,
                _parameters: &Parameters,
            ) -> Value<Out, N> {
                Value::new(Vector::cast_from(accumulator.value))
            }
        }
    };
}

pub(super) use extremum;

extremum!(Max, "max", from lowest by greater);
extremum!(Min, "min", from highest by lesser);

#[cube]
impl Operator for MinMax {
    type Fields = Two;
    type Results = Two;

    const NAME: &'static str = "min_max";
    const DEFINED_ON_EMPTY: bool = false;
    const TYPES: TypeRule = rules::select;

    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::new(highest::<A>()), Vector::new(lowest::<B>()))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let element = Pair::new(Vector::cast_from(value), Vector::cast_from(value));
        MinMax::merge::<N>(accumulator, element, parameters)
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        Pair::new(
            lesser::<A, N>(left.first, right.first),
            greater::<B, N>(left.second, right.second),
        )
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Pair<Out, Out2, N> {
        Pair::new(Vector::cast_from(accumulator.first), Vector::cast_from(accumulator.second))
    }
}
