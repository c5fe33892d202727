//! Minimum, maximum, and both in one read.

use cubecl::prelude::*;

use super::{
    One, Operator, Pair, Parameters, Position, Two, TypeRule, Types, Value,
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

            fn identity<T: Types, N: Size>() -> Value<T::A, N> {
                Value::new(Vector::new($identity::<T::A>()))
            }

            fn push<T: Types, N: Size>(
                accumulator: Value<T::A, N>,
                value: Vector<T::In, N>,
                _position: Position,
                _parameters: &Parameters,
            ) -> Value<T::A, N> {
                Value::new($better::<T::A, N>(accumulator.value, Vector::cast_from(value)))
            }

            fn merge<T: Types, N: Size>(
                left: Value<T::A, N>,
                right: Value<T::A, N>,
                _parameters: &Parameters,
            ) -> Value<T::A, N> {
                Value::new($better::<T::A, N>(left.value, right.value))
            }

            fn finish<T: Types, N: Size>(
                accumulator: Value<T::A, N>,
                _count: usize,
                _parameters: &Parameters,
            ) -> Value<T::Out, N> {
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

    fn identity<T: Types, N: Size>() -> Pair<T::A, T::B, N> {
        Pair::new(Vector::new(highest::<T::A>()), Vector::new(lowest::<T::B>()))
    }

    fn push<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        value: Vector<T::In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Pair<T::A, T::B, N> {
        let element = Pair::new(Vector::cast_from(value), Vector::cast_from(value));
        MinMax::merge::<T, N>(accumulator, element, parameters)
    }

    fn merge<T: Types, N: Size>(
        left: Pair<T::A, T::B, N>,
        right: Pair<T::A, T::B, N>,
        _parameters: &Parameters,
    ) -> Pair<T::A, T::B, N> {
        Pair::new(
            lesser::<T::A, N>(left.first, right.first),
            greater::<T::B, N>(left.second, right.second),
        )
    }

    fn finish<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Pair<T::Out, T::Out2, N> {
        Pair::new(Vector::cast_from(accumulator.first), Vector::cast_from(accumulator.second))
    }
}
