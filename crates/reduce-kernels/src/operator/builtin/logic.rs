//! Whether any or all elements are nonzero, and how many.

use cubecl::prelude::*;

use super::Sum;
use crate::operator::{
    A, In, One, Operator, Out, Parameters, Position, TypeRule, Value, element_wise::is_nonzero,
    rules,
};

/// Whether any element is nonzero (NaN is); false of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct Any;

/// Whether all elements are nonzero (NaN is); true of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct All;

/// How many elements are nonzero (NaN is); 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountNonzero;

macro_rules! logic {
    ($operator:ident, $name:literal, $types:path, from $identity:literal, $left:ident and $right:ident: $both:expr) => {
        #[cube]
        impl Operator for $operator {
            type Fields = One;
            type Results = One;

            const NAME: &'static str = $name;
            const DEFINED_ON_EMPTY: bool = true;
            const TYPES: TypeRule = $types;

            fn identity<N: Size>() -> Value<A, N> {
                Value::new(Vector::from_int($identity))
            }

            fn push<N: Size>(
                accumulator: Value<A, N>,
                value: Vector<In, N>,
                _position: Position,
                parameters: &Parameters,
            ) -> Value<A, N> {
                let element = Value::new(is_nonzero::<In, A, N>(value));
                $operator::merge::<N>(accumulator, element, parameters)
            }

            fn merge<N: Size>(
                $left: Value<A, N>,
                $right: Value<A, N>,
                _parameters: &Parameters,
            ) -> Value<A, N> {
                Value::new($both)
            }

            fn finish<N: Size>(
                accumulator: Value<A, N>,
                count: usize,
                parameters: &Parameters,
            ) -> Value<Out, N> {
                Sum::finish::<N>(accumulator, count, parameters)
            }
        }
    };
}

logic!(Any, "any", rules::truth, from 0, left and right: max(left.value, right.value));
logic!(All, "all", rules::truth, from 1, left and right: min(left.value, right.value));
logic!(CountNonzero, "count_nonzero", rules::count, from 0, left and right: left.value + right.value);
