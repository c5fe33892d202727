//! Positions of extrema, alone and together with the values.

use core::marker::PhantomData;

use cubecl::prelude::*;

use crate::operator::{
    A, B, In, One, Operator, Out, Pair, Parameters, Position, Two, TypeRule, Value,
    derived::derived,
    element_wise::{and_not_nan, highest, lowest, or_nan},
    rules,
};

/// The position of the maximum. It is that of the first NaN if there is one, otherwise the first of
/// equal elements. It is undefined of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArgMax;

/// The position of the minimum. It is that of the first NaN if there is one, otherwise the first of
/// equal elements. It is undefined of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct ArgMin;

/// The maximum and its position, in this order, with one read of the input. They are those of
/// [`Max`](super::Max) and [`ArgMax`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxWithIndex;

/// The minimum and its position, in this order, with one read of the input. They are those of
/// [`Min`](super::Min) and [`ArgMin`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MinWithIndex;

/// Elements with their positions, one of each per component.
#[derive(CubeType, CubeTypeMut, Clone, Copy)]
pub(super) struct Candidate<N: Size> {
    pub(super) value: Vector<A, N>,
    pub(super) position: Vector<B, N>,
}

#[cube]
fn candidate<N: Size>(fields: Pair<A, B, N>) -> Candidate<N> {
    Candidate::<N> { value: fields.first, position: fields.second }
}

#[cube]
fn fields<N: Size>(candidate: Candidate<N>) -> Pair<A, B, N> {
    Pair::new(candidate.value, candidate.position)
}

/// An order of values. The first value in that order is the result.
#[cube]
pub(super) trait Order: Copy + Send + Sync + 'static {
    /// The value of no elements, which is ahead of no other.
    fn last<E: Float>() -> E;

    /// Whether the right value is ahead of the left one.
    fn is_ahead<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N>;

    /// Whether neither value is ahead of the other. The result counts only where
    /// [`is_ahead`](Self::is_ahead) is false.
    fn is_alike<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N>;
}

/// Orders from the greatest value down, with NaN ahead of all numbers.
#[derive(Clone, Copy)]
struct Downwards;

#[cube]
impl Order for Downwards {
    fn last<E: Float>() -> E {
        lowest::<E>()
    }

    fn is_ahead<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
        nan_is_ahead::<E, N>(left, right, right.greater_than(left))
    }

    fn is_alike<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
        nan_is_alike::<E, N>(left, right)
    }
}

/// Orders from the smallest value up, with NaN ahead of all numbers.
#[derive(Clone, Copy)]
struct Upwards;

#[cube]
impl Order for Upwards {
    fn last<E: Float>() -> E {
        highest::<E>()
    }

    fn is_ahead<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
        nan_is_ahead::<E, N>(left, right, right.less_than(left))
    }

    fn is_alike<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
        nan_is_alike::<E, N>(left, right)
    }
}

/// Whether the right value is ahead, from `ahead`, the comparison of numbers: also if it is NaN and
/// the left one is not, and never if the left one is NaN. Each type costs as few operations as
/// possible. There is no branch, because later loads would wait for it.
#[cube]
fn nan_is_ahead<E: Float, N: Size>(
    left: Vector<E, N>,
    right: Vector<E, N>,
    ahead: Vector<bool, N>,
) -> Vector<bool, N> {
    and_not_nan::<E, N>(or_nan::<E, N>(ahead, right), left)
}

/// Whether the values are equal or the right one is NaN. If the left value is no NaN,
/// [`nan_is_ahead`] holds for such a NaN.
#[cube]
fn nan_is_alike<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
    or_nan::<E, N>(right.equal(left), right)
}

/// Keeps the value that is ahead and its position. Of values that are alike, it keeps the first
/// position.
#[derive(Clone, Copy)]
pub(super) struct First<O>(PhantomData<O>);

#[cube]
fn first<O: Order, N: Size>(left: Candidate<N>, right: Candidate<N>) -> Candidate<N> {
    let alike = O::is_alike::<A, N>(left.value, right.value);
    let ahead = O::is_ahead::<A, N>(left.value, right.value);
    let taken = ahead.or(alike.and(right.position.less_than(left.position)));
    Candidate::<N> {
        value: select_many(taken, right.value, left.value),
        position: select_many(taken, right.position, left.position),
    }
}

#[cube]
impl<O: Order> Operator for First<O> {
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "first";
    const DEFINED_ON_EMPTY: bool = false;
    const TYPES: TypeRule = rules::index;
    const POSITIONAL: bool = true;

    fn identity<N: Size>() -> Pair<A, B, N> {
        // This is behind every element: positions are less than the largest value of their type.
        Pair::new(Vector::new(O::last::<A>()), Vector::new(highest::<B>()))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        position: Position,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let element =
            Candidate::<N> { value: Vector::cast_from(value), position: position.lanes::<B, N>() };
        fields::<N>(first::<O, N>(candidate::<N>(accumulator), element))
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        fields::<N>(first::<O, N>(candidate::<N>(left), candidate::<N>(right)))
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(candidate::<N>(accumulator).position))
    }
}

type FirstGreatest = First<Downwards>;
type FirstLeast = First<Upwards>;

derived!(ArgMax: Two -> One = FirstGreatest, "argmax", rules::index);
derived!(ArgMin: Two -> One = FirstLeast, "argmin", rules::index);
derived!(MaxWithIndex: Two -> Two = FirstGreatest, "max_with_index", rules::value_and_index, finish accumulator, _count, _parameters =>
        Pair::new(Vector::cast_from(accumulator.first), Vector::cast_from(accumulator.second)));
derived!(MinWithIndex: Two -> Two = FirstLeast, "min_with_index", rules::value_and_index, finish accumulator, _count, _parameters =>
        Pair::new(Vector::cast_from(accumulator.first), Vector::cast_from(accumulator.second)));
