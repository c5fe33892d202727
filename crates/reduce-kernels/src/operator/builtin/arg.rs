//! Positions of extrema, alone and with the values.

use core::marker::PhantomData;

use cubecl::prelude::*;

use crate::operator::{
    A, B, In, One, Operator, Out, Pair, Parameters, Position, Two, TypeRule, Value,
    derived::derived,
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

/// Elements, each with its position.
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

/// Which of two values is ahead.
#[cube]
pub(super) trait Order: Copy + Send + Sync + 'static {
    /// A value that is ahead of none.
    fn last<E: Float>() -> E;

    /// Where the right value is ahead of the left one.
    fn is_ahead<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N>;

    /// Where neither is ahead, provided that [`is_ahead`](Self::is_ahead) was asked too.
    fn is_alike<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N>;
}

/// The greater value is ahead, NaN is ahead of all.
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

/// The lesser value is ahead, NaN is ahead of all.
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

/// `ahead`, or where the right value alone is NaN. There are as few operations as will do for each
/// type, and no branch, behind which loads would wait.
#[cube]
fn nan_is_ahead<E: Float, N: Size>(
    left: Vector<E, N>,
    right: Vector<E, N>,
    ahead: Vector<bool, N>,
) -> Vector<bool, N> {
    and_not_nan::<E, N>(or_nan::<E, N>(ahead, right), left)
}

/// Where the values are equal, or the right one is NaN: it is ahead of all but NaN.
#[cube]
fn nan_is_alike<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
    or_nan::<E, N>(right.equal(left), right)
}

/// Keeps the value that is ahead with its position, the first position where values are alike.
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
        // Behind every element: positions stay below the type's greatest value.
        Pair::new(Vector::new(O::last::<A>()), Vector::new(highest::<B>()))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        position: Position,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let element = Candidate::<N> {
            value: Vector::cast_from(value),
            position: position.components::<B, N>(),
        };
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
