//! Minimum, maximum, and both with one read of the input.

use core::marker::PhantomData;

use cubecl::prelude::*;

use crate::operator::{
    A, B, Definition, In, One, Operator, Out, Out2, Pair, Parameters, Position, Two, TypeRule,
    Value,
    derived::derived,
    element_wise::{highest, lowest, or_nan},
    rules,
};

/// The maximum; NaN if any element is NaN. It is undefined of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Max;

/// The minimum; NaN if any element is NaN. It is undefined of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Min;

/// The minimum and the maximum, in this order, with one read of the input. They are those of
/// [`Min`] and [`Max`].
#[derive(Clone, Copy, Debug, Default)]
pub struct MinMax;

/// Chooses which of two values is kept.
#[cube]
pub(super) trait Preference: Copy + Send + Sync + 'static {
    /// The value of no elements: every other value is preferred to it, or equal.
    fn worst<E: Float>() -> E;

    /// The preferred value of each component.
    fn better<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N>;
}

/// Prefers the greater value. The result is NaN if either value is.
#[derive(Clone, Copy)]
pub(super) struct Greater;

#[cube]
impl Preference for Greater {
    fn worst<E: Float>() -> E {
        lowest::<E>()
    }

    fn better<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        greater::<E, N>(left, right)
    }
}

/// Prefers the smaller value. The result is NaN if either value is.
#[derive(Clone, Copy)]
pub(super) struct Lesser;

#[cube]
impl Preference for Lesser {
    fn worst<E: Float>() -> E {
        highest::<E>()
    }

    fn better<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        lesser::<E, N>(left, right)
    }
}

/// The greater value of each component; NaN if either is NaN.
#[cube]
pub(super) fn greater<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
    let taken = or_nan::<E, N>(right.greater_than(left), right);
    select_many(taken, right, left)
}

/// The smaller value of each component; NaN if either is NaN.
#[cube]
fn lesser<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
    let taken = or_nan::<E, N>(right.less_than(left), right);
    select_many(taken, right, left)
}

/// Keeps the preferred one of two values.
#[derive(Clone, Copy)]
pub(super) struct Extremum<P>(PhantomData<P>);

#[cube]
impl<P: Preference> Operator for Extremum<P> {
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "extremum";
    const DEFINED_ON_EMPTY: bool = false;
    const TYPES: TypeRule = rules::select;

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::new(P::worst::<A>()))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(P::better::<A, N>(accumulator.value, Vector::cast_from(value)))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(P::better::<A, N>(left.value, right.value))
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

type Greatest = Extremum<Greater>;
type Least = Extremum<Lesser>;

derived!(Max: One -> One = Greatest, "max", rules::select);
derived!(Min: One -> One = Least, "min", rules::select);

/// The smallest and the largest element. The two fields may have different types.
#[derive(CubeType, Clone, Copy)]
struct Range<N: Size> {
    min: Vector<A, N>,
    max: Vector<B, N>,
}

#[cube]
fn range<N: Size>(fields: Pair<A, B, N>) -> Range<N> {
    Range::<N> { min: fields.first, max: fields.second }
}

#[cube]
impl Operator for MinMax {
    type Fields = Two;
    type Results = Two;

    const NAME: &'static str = "min_max";
    const DEFINED_ON_EMPTY: bool = false;
    const TYPES: TypeRule = rules::select;
    const DEFINITION: &'static Definition = crate::defined!(MinMax);

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
        let left = range::<N>(left);
        let right = range::<N>(right);
        Pair::new(lesser::<A, N>(left.min, right.min), greater::<B, N>(left.max, right.max))
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Pair<Out, Out2, N> {
        let range = range::<N>(accumulator);
        Pair::new(Vector::cast_from(range.min), Vector::cast_from(range.max))
    }
}
