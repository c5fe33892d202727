//! The slope of a line through points.

// `#[cube]` expects `cubecl` by that name.
use cubecl::prelude::*;
use reduce_kernels::{
    cubecl,
    operator::{
        A, B, Definition, In, One, Operator, Out, Pair, Parameters, Position, Two, TypeRule, Value,
        defined, rules,
    },
};

/// The slope of the line through 0 that is closest to the points (x, y): the first input has the
/// x, the second the y. `reduce_pair(Slope, &x, &y).over(1)` gives the slope of each row.
///
/// An error of no points, and NaN where all x are 0. Squares are not scaled, so they may overflow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slope;

#[cube]
impl Operator for Slope {
    type Inputs = Two;
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "slope";
    const DEFINED_ON_EMPTY: bool = false;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const DEFINITION: &'static Definition<Self> = defined!(Slope);

    /// The sum of products and that of squares.
    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        point: Pair<In, In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let (x, y) = (point.first, point.second);
        Pair::new(
            accumulator.first + Vector::cast_from(x * y),
            accumulator.second + Vector::cast_from(x * x),
        )
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        Pair::new(left.first + right.first, left.second + right.second)
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        let squares = Vector::<A, N>::cast_from(accumulator.second);
        Value::new(Vector::cast_from(accumulator.first / squares))
    }
}
