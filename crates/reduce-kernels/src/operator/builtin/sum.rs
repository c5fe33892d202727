//! Sums of the elements, of their magnitudes, and of their squares.

use cubecl::prelude::*;

use crate::operator::{
    A, Blocks, Definition, In, One, Operator, Out, Parameters, Position, Reproducible, TypeRule,
    Value,
    derived::{block_of_pushes, derived},
    element_wise::magnitude,
    rules,
    same_bits::{converted, product, sum},
};

/// The sum; 0 of no elements. Sums of integers wrap.
///
/// Floating point elements are added in chains that merge pairwise (Higham, "The accuracy of
/// floating point summation", 1993).
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum;

/// The sum of magnitudes; 0 of no elements. Sums of integers wrap, and so does the magnitude of the
/// minimum of a signed type.
#[derive(Clone, Copy, Debug, Default)]
pub struct SumAbs;

/// The sum of squares; 0 of no elements. Squares are not scaled, so they may overflow;
/// [`NormL2`](super::NormL2) avoids that.
#[derive(Clone, Copy, Debug, Default)]
pub struct SumSquares;

#[cube]
impl Operator for Sum {
    type Inputs = One;
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "sum";
    const DEFINED_ON_EMPTY: bool = true;
    const REPRODUCIBLE: Reproducible = Reproducible::ByPosition;
    const TYPES: TypeRule = rules::accumulate;
    const PAIRWISE: bool = true;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(Sum);

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(sum::<A, N>(accumulator.value, Vector::cast_from(value)))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(sum::<A, N>(left.value, right.value))
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(converted::<A, Out, N>(accumulator.value))
    }
}

block_of_pushes!(Sum: One);

derived!(SumAbs: One -> One = Sum, "sum_abs", rules::accumulate, before element);

#[cube]
impl SumAbs {
    /// What it pushes for an element.
    fn element<N: Size>(value: Vector<In, N>) -> Vector<In, N> {
        magnitude::<In, N>(value)
    }
}
derived!(SumSquares: One -> One = Sum, "sum_squares", rules::accumulate, before element);

#[cube]
impl SumSquares {
    /// What it pushes for an element.
    fn element<N: Size>(value: Vector<In, N>) -> Vector<In, N> {
        product::<In, N>(value, value)
    }
}
