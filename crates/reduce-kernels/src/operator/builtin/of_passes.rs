//! Operators of one of two passes. Those of a first pass ask nothing about NaN: a NaN shows in the
//! second pass.

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

/// The sum of the elements, and the largest magnitude among those that are numbers.
#[derive(Clone, Copy, Debug)]
pub struct TotalAndMagnitude;

/// The sum of the elements, and that of their squares.
#[derive(Clone, Copy, Debug)]
pub struct TotalAndSquares;

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

/// An operator of two fields: the sum of the elements, and what `$take` makes of the second field
/// and an element. `$join` merges second fields.
macro_rules! total_and {
    ($operator:ident, $name:literal, $take:expr, $join:expr) => {
        #[cube]
        impl Operator for $operator {
            type Inputs = One;
            type Fields = Two;
            type Results = Two;

            const NAME: &'static str = $name;
            const DEFINED_ON_EMPTY: bool = true;
            const TYPES: TypeRule = rules::floating;
            const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
            const DEFINITION: &'static Definition<Self> = crate::defined!($operator);

            fn identity<N: Size>() -> Pair<A, B, N> {
                Pair::new(Vector::from_int(0), Vector::from_int(0))
            }

            fn push<N: Size>(
                accumulator: Pair<A, B, N>,
                value: Vector<In, N>,
                _position: Position,
                _parameters: &Parameters,
            ) -> Pair<A, B, N> {
                let second = Vector::<B, N>::cast_from(value);
                Pair::new(
                    accumulator.first + Vector::cast_from(value),
                    $take(accumulator.second, second),
                )
            }

            fn merge<N: Size>(
                left: Pair<A, B, N>,
                right: Pair<A, B, N>,
                _parameters: &Parameters,
            ) -> Pair<A, B, N> {
                Pair::new(left.first + right.first, $join(left.second, right.second))
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

        block_of_pushes!($operator: Two);
    };
}

total_and!(TotalAndMagnitude, "total_and_magnitude", larger_magnitude::<N>, larger::<N>);
total_and!(TotalAndSquares, "total_and_squares", with_square::<N>, both::<N>);

#[cube]
fn larger_magnitude<N: Size>(most: Vector<B, N>, value: Vector<B, N>) -> Vector<B, N> {
    max(most, value.abs())
}

#[cube]
fn larger<N: Size>(left: Vector<B, N>, right: Vector<B, N>) -> Vector<B, N> {
    max(left, right)
}

#[cube]
fn with_square<N: Size>(squares: Vector<B, N>, value: Vector<B, N>) -> Vector<B, N> {
    squares + value * value
}

#[cube]
fn both<N: Size>(left: Vector<B, N>, right: Vector<B, N>) -> Vector<B, N> {
    left + right
}

derived!(LargestMagnitude: One -> One = Largest, "largest_magnitude", rules::floating,
    before element);

#[cube]
impl LargestMagnitude {
    /// What it pushes for an element.
    fn element<N: Size>(value: Vector<In, N>) -> Vector<In, N> {
        value.abs()
    }
}
