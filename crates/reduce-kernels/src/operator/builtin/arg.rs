//! Positions of extrema, alone and with the values.

use cubecl::prelude::*;

use crate::operator::{
    A, B, In, One, Operator, Out, Out2, Pair, Parameters, Position, Two, TypeRule, Value,
    element_wise::{and_not_nan, highest, lowest, or_nan},
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
/// where the values are alike.
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

/// An element with its position.
#[cube]
pub(super) fn at<In: Float, A: Float, B: Float, N: Size>(
    value: Vector<In, N>,
    position: Position,
) -> Pair<A, B, N> {
    Pair::new(Vector::cast_from(value), position.lanes::<B, N>())
}

/// The one that stands ahead, NaN before all, the first on ties. There are as few operations as will do
/// for each type, and no branch, behind which loads would wait.
#[cube]
fn first_or_nan<A: Float, B: Float, N: Size>(
    left: Pair<A, B, N>,
    right: Pair<A, B, N>,
    ahead: Vector<bool, N>,
) -> Pair<A, B, N> {
    let ahead = or_nan::<A, N>(ahead, right.first);
    // NaN on the right is as good as equal: it is ahead of all but NaN.
    let alike = or_nan::<A, N>(right.first.equal(left.first), right.first);
    first_of::<A, B, N>(left, right, and_not_nan::<A, N>(ahead, left.first), alike)
}

/// The greater value, NaN above all, the first on ties.
#[cube]
fn first_greatest<A: Float, B: Float, N: Size>(
    left: Pair<A, B, N>,
    right: Pair<A, B, N>,
) -> Pair<A, B, N> {
    let ahead = right.first.greater_than(left.first);
    first_or_nan::<A, B, N>(left, right, ahead)
}

/// The lesser value, NaN below all, the first on ties.
#[cube]
fn first_least<A: Float, B: Float, N: Size>(
    left: Pair<A, B, N>,
    right: Pair<A, B, N>,
) -> Pair<A, B, N> {
    let ahead = right.first.less_than(left.first);
    first_or_nan::<A, B, N>(left, right, ahead)
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

            fn identity<N: Size>() -> Pair<A, B, N> {
                // Behind every element: positions stay below the type's greatest value.
                Pair::new(Vector::new($identity::<A>()), Vector::new(highest::<B>()))
            }

            fn push<N: Size>(
                accumulator: Pair<A, B, N>,
                value: Vector<In, N>,
                position: Position,
                _parameters: &Parameters,
            ) -> Pair<A, B, N> {
                let element = at::<In, A, B, N>(value, position);
                $better::<A, B, N>(accumulator, element)
            }

            fn merge<N: Size>(
                left: Pair<A, B, N>,
                right: Pair<A, B, N>,
                _parameters: &Parameters,
            ) -> Pair<A, B, N> {
                $better::<A, B, N>(left, right)
            }

            fn finish<N: Size>(
                accumulator: Pair<A, B, N>,
                _count: usize,
                _parameters: &Parameters,
            ) -> Value<Out, N> {
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

            fn identity<N: Size>() -> Pair<A, B, N> {
                $index::identity::<N>()
            }

            fn push<N: Size>(
                accumulator: Pair<A, B, N>,
                value: Vector<In, N>,
                position: Position,
                parameters: &Parameters,
            ) -> Pair<A, B, N> {
                $index::push::<N>(accumulator, value, position, parameters)
            }

            fn merge<N: Size>(
                left: Pair<A, B, N>,
                right: Pair<A, B, N>,
                parameters: &Parameters,
            ) -> Pair<A, B, N> {
                $index::merge::<N>(left, right, parameters)
            }

            fn finish<N: Size>(
                accumulator: Pair<A, B, N>,
                _count: usize,
                _parameters: &Parameters,
            ) -> Pair<Out, Out2, N> {
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
