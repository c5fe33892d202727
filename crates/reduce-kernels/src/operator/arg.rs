//! Positions of extrema, alone and with the values.

use core::ops::Not;

use cubecl::prelude::*;

use super::{
    One, Operator, Pair, Parameters, Position, Two, TypeRule, Types, Value,
    element_wise::{highest, is_nan, lowest},
    rules,
};

/// The position of the maximum: the first NaN if there is one, the lowest position on ties.
/// Undefined on no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArgMax;

/// The position of the minimum: the first NaN if there is one, the lowest position on ties.
/// Undefined on no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArgMin;

/// The maximum and its position: those of [`Max`](super::Max) and [`ArgMax`], in one read.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxWithIndex;

/// The minimum and its position: those of [`Min`](super::Min) and [`ArgMin`], in one read.
#[derive(Clone, Copy, Debug, Default)]
pub struct MinWithIndex;

/// The left or the right value with its position: the one that stands `ahead`, the first position
/// where the values are alike. What is alike must not be ahead.
#[cube]
pub(super) fn first_of<A: Float, B: Float, N: Size>(
    left: Pair<A, B, N>,
    right: Pair<A, B, N>,
    ahead: Vector<bool, N>,
    alike: Vector<bool, N>,
) -> Pair<A, B, N> {
    let taken = ahead.or(alike.and(right.second.less_than(left.second)));
    Pair::new(
        select_many(taken, right.first, left.first),
        select_many(taken, right.second, left.second),
    )
}

/// Whether both lanes are equal or NaN.
#[cube]
pub(super) fn are_alike<E: Float, N: Size>(
    left: Vector<E, N>,
    right: Vector<E, N>,
) -> Vector<bool, N> {
    left.equal(right).or(is_nan::<E, N>(left).and(is_nan::<E, N>(right)))
}

/// An element with its position.
#[cube]
pub(super) fn at<In: Float, A: Float, B: Float, N: Size>(
    value: Vector<In, N>,
    position: Position,
) -> Pair<A, B, N> {
    Pair::new(Vector::cast_from(value), position.lanes::<B, N>())
}

/// Whether any lane is NaN.
#[cube]
fn any_nan<E: Float, N: Size>(value: Vector<E, N>) -> bool {
    let element = storage_type_of::<E>();
    let mut any = false;
    if comptime![element.is_float()] {
        let nan = is_nan::<E, N>(value);
        #[unroll]
        for lane in 0..N::value().comptime() {
            any = any || nan[lane];
        }
    }
    any
}

/// The greater value, NaN above all, the first on ties.
#[cube]
fn first_greatest<A: Float, B: Float, N: Size>(
    left: Pair<A, B, N>,
    right: Pair<A, B, N>,
) -> Pair<A, B, N> {
    let ahead = right.first.greater_than(left.first);
    let alike = right.first.equal(left.first);
    let mut first = first_of::<A, B, N>(left, right, ahead, alike);
    // NaN on the left stays: nothing compares with it.
    if any_nan::<A, N>(right.first) {
        let settled = is_nan::<A, N>(left.first);
        let ahead = ahead.or(is_nan::<A, N>(right.first)).and(settled.not());
        let alike = are_alike::<A, N>(left.first, right.first);
        first = first_of::<A, B, N>(left, right, ahead, alike);
    }
    first
}

/// The lesser value, NaN below all, the first on ties.
#[cube]
fn first_least<A: Float, B: Float, N: Size>(
    left: Pair<A, B, N>,
    right: Pair<A, B, N>,
) -> Pair<A, B, N> {
    let ahead = right.first.less_than(left.first);
    let alike = right.first.equal(left.first);
    let mut first = first_of::<A, B, N>(left, right, ahead, alike);
    // NaN on the left stays: nothing compares with it.
    if any_nan::<A, N>(right.first) {
        let settled = is_nan::<A, N>(left.first);
        let ahead = ahead.or(is_nan::<A, N>(right.first)).and(settled.not());
        let alike = are_alike::<A, N>(left.first, right.first);
        first = first_of::<A, B, N>(left, right, ahead, alike);
    }
    first
}

/// An operator that keeps the position of the better of two values.
macro_rules! arg_extremum {
    ($index:ident, $index_name:literal, from $identity:ident by $better:ident) => {
        #[cube]
        impl Operator for $index {
            type Fields = Two;
            type Results = One;

            const NAME: &'static str = $index_name;
            const DEFINED_ON_EMPTY: bool = false;
            const TYPES: TypeRule = rules::index;
            const POSITIONAL: bool = true;

            fn identity<T: Types, N: Size>() -> Pair<T::A, T::B, N> {
                // Behind every element: positions stay below the type's greatest value.
                Pair::new(Vector::new($identity::<T::A>()), Vector::new(highest::<T::B>()))
            }

            fn push<T: Types, N: Size>(
                accumulator: Pair<T::A, T::B, N>,
                value: Vector<T::In, N>,
                position: Position,
                _parameters: &Parameters,
            ) -> Pair<T::A, T::B, N> {
                let element = at::<T::In, T::A, T::B, N>(value, position);
                $better::<T::A, T::B, N>(accumulator, element)
            }

            fn merge<T: Types, N: Size>(
                left: Pair<T::A, T::B, N>,
                right: Pair<T::A, T::B, N>,
                _parameters: &Parameters,
            ) -> Pair<T::A, T::B, N> {
                $better::<T::A, T::B, N>(left, right)
            }

            fn finish<T: Types, N: Size>(
                accumulator: Pair<T::A, T::B, N>,
                _count: usize,
                _parameters: &Parameters,
            ) -> Value<T::Out, N> {
                Value::new(Vector::cast_from(accumulator.second))
            }
        }
    };
}
pub(super) use arg_extremum;

/// An operator that does what `$index` does, and returns the value too.
macro_rules! with_value {
    ($with_value:ident, $with_value_name:literal, of $index:ident) => {
        #[cube]
        impl Operator for $with_value {
            type Fields = Two;
            type Results = Two;

            const NAME: &'static str = $with_value_name;
            const DEFINED_ON_EMPTY: bool = false;
            const TYPES: TypeRule = rules::value_and_index;
            const POSITIONAL: bool = true;

            fn identity<T: Types, N: Size>() -> Pair<T::A, T::B, N> {
                $index::identity::<T, N>()
            }

            fn push<T: Types, N: Size>(
                accumulator: Pair<T::A, T::B, N>,
                value: Vector<T::In, N>,
                position: Position,
                parameters: &Parameters,
            ) -> Pair<T::A, T::B, N> {
                $index::push::<T, N>(accumulator, value, position, parameters)
            }

            fn merge<T: Types, N: Size>(
                left: Pair<T::A, T::B, N>,
                right: Pair<T::A, T::B, N>,
                parameters: &Parameters,
            ) -> Pair<T::A, T::B, N> {
                $index::merge::<T, N>(left, right, parameters)
            }

            fn finish<T: Types, N: Size>(
                accumulator: Pair<T::A, T::B, N>,
                _count: usize,
                _parameters: &Parameters,
            ) -> Pair<T::Out, T::Out2, N> {
                Pair::new(
                    Vector::cast_from(accumulator.first),
                    Vector::cast_from(accumulator.second),
                )
            }
        }
    };
}

arg_extremum!(ArgMax, "argmax", from lowest by first_greatest);
arg_extremum!(ArgMin, "argmin", from highest by first_least);
with_value!(MaxWithIndex, "max_with_index", of ArgMax);
with_value!(MinWithIndex, "min_with_index", of ArgMin);
