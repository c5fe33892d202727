//! Product.

use cubecl::prelude::*;

use crate::operator::{
    A, Blocks, Definition, In, One, Operator, Out, Parameters, Position, Reproducible, TypeRule,
    Value,
    derived::block_of_pushes,
    rules,
    same_bits::{converted, product},
};

/// The product; 1 of no elements. Products of integers wrap.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prod;

#[cube]
impl Operator for Prod {
    type Inputs = One;
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "prod";
    const DEFINED_ON_EMPTY: bool = true;
    const REPRODUCIBLE: Reproducible = Reproducible::ByPosition;
    const TYPES: TypeRule = rules::accumulate;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(Prod);

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::from_int(1))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(product::<A, N>(accumulator.value, Vector::cast_from(value)))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(product::<A, N>(left.value, right.value))
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(converted::<A, Out, N>(accumulator.value))
    }
}

block_of_pushes!(Prod: One);
