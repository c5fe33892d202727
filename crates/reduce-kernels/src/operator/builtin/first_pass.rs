//! Operators of the first of two passes. They ask nothing about NaN: a NaN shows in the second
//! pass.

use cubecl::prelude::*;

use crate::operator::{
    A, B, Blocks, Definition, In, One, Operator, Out, Out2, Pair, Parameters, Position, Two,
    TypeRule, Value,
    derived::{block_of_pushes, derived},
    element_wise::lowest,
    rules,
};

/// The largest number among the elements.
#[derive(Clone, Copy, Debug)]
pub struct Largest;

/// The largest number among the elements, and their sum.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LargestAndTotal;

/// The largest magnitude among the elements that are numbers.
#[derive(Clone, Copy, Debug)]
pub struct LargestMagnitude;

#[cube]
impl Operator for Largest {
    type Inputs = One;
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "largest";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(Largest);

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::new(lowest::<A>()))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(max(accumulator.value, Vector::cast_from(value)))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(max(left.value, right.value))
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

block_of_pushes!(Largest: One);

#[cube]
impl Operator for LargestAndTotal {
    type Inputs = One;
    type Fields = Two;
    type Results = Two;

    const NAME: &'static str = "largest_and_total";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(LargestAndTotal);

    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::new(lowest::<A>()), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let most = max(accumulator.first, Vector::cast_from(value));
        Pair::new(most, accumulator.second + Vector::cast_from(value))
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        Pair::new(max(left.first, right.first), left.second + right.second)
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Pair<Out, Out2, N> {
        Pair::new(Vector::cast_from(accumulator.first), Vector::cast_from(accumulator.second))
    }
}

block_of_pushes!(LargestAndTotal: Two);

derived!(LargestMagnitude: One -> One = Largest, "largest_magnitude", rules::floating,
    before element);

#[cube]
impl LargestMagnitude {
    /// What it pushes for an element.
    fn element<N: Size>(value: Vector<In, N>) -> Vector<In, N> {
        value.abs()
    }
}
