//! Whether any or all elements are nonzero, and how many.

use cubecl::prelude::*;

use super::{
    One, Operator, Parameters, Position, Sum, TypeRule, Types, Value, element_wise::is_nonzero,
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

            fn identity<T: Types, N: Size>() -> Value<T::A, N> {
                Value::new(Vector::from_int($identity))
            }

            fn push<T: Types, N: Size>(
                accumulator: Value<T::A, N>,
                value: Vector<T::In, N>,
                _position: Position,
                parameters: &Parameters,
            ) -> Value<T::A, N> {
                let element = Value::new(is_nonzero::<T::In, T::A, N>(value));
                $operator::merge::<T, N>(accumulator, element, parameters)
            }

            fn merge<T: Types, N: Size>(
                $left: Value<T::A, N>,
                $right: Value<T::A, N>,
                _parameters: &Parameters,
            ) -> Value<T::A, N> {
                Value::new($both)
            }

            fn finish<T: Types, N: Size>(
                accumulator: Value<T::A, N>,
                count: usize,
                parameters: &Parameters,
            ) -> Value<T::Out, N> {
                Sum::finish::<T, N>(accumulator, count, parameters)
            }
        }
    };
}

logic!(Any, "any", rules::truth, from 0, left and right: max(left.value, right.value));
logic!(All, "all", rules::truth, from 1, left and right: min(left.value, right.value));
logic!(CountNonzero, "count_nonzero", rules::count, from 0, left and right: left.value + right.value);
