//! Whether any or all elements are nonzero, how many are, and whether any is not finite.

use core::marker::PhantomData;

use cubecl::prelude::*;

use crate::operator::{
    A, Blocks, In, One, Operator, Out, Parameters, Position, Reproducible, TypeRule, Value,
    derived::{block_of_pushes, derived},
    element_wise::{is_finite, is_nan, is_nonzero},
    rules,
};

/// Whether any element is nonzero; false of no elements. NaN is nonzero.
#[derive(Clone, Copy, Debug, Default)]
pub struct Any;

/// Whether all elements are nonzero; true of no elements. NaN is nonzero.
#[derive(Clone, Copy, Debug, Default)]
pub struct All;

/// The number of nonzero elements; 0 of no elements. NaN is nonzero.
#[derive(Clone, Copy, Debug, Default)]
pub struct CountNonzero;

/// Whether any element is infinite or NaN; false of no elements. Integers and bools are finite.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyNonFinite;

/// The number of elements that are not NaN; 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountNumbers;

/// Combines two truth values, or counts of them, given as integers.
#[cube]
trait Connective: Copy + Send + Sync + 'static {
    /// The value of no elements.
    const NONE: i64;

    fn connect<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N>;
}

#[derive(Clone, Copy)]
struct Or;

#[cube]
impl Connective for Or {
    const NONE: i64 = 0;

    fn connect<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        max(left, right)
    }
}

#[derive(Clone, Copy)]
struct And;

#[cube]
impl Connective for And {
    const NONE: i64 = 1;

    fn connect<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        min(left, right)
    }
}

#[derive(Clone, Copy)]
struct Plus;

#[cube]
impl Connective for Plus {
    const NONE: i64 = 0;

    fn connect<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        left + right
    }
}

/// Combines whether elements are nonzero, as 0 and 1, with `C`.
#[derive(Clone, Copy)]
struct Connected<C>(PhantomData<C>);

#[cube]
impl<C: Connective> Operator for Connected<C> {
    type Inputs = One;
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "connected";
    const DEFINED_ON_EMPTY: bool = true;
    const REPRODUCIBLE: Reproducible = Reproducible::Exact;
    const TYPES: TypeRule = rules::truth;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::from_int(C::NONE))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        let truth = is_nonzero::<In, A, N>(value);
        Value::new(C::connect::<A, N>(accumulator.value, truth))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(C::connect::<A, N>(left.value, right.value))
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

block_of_pushes!(Connected<C>: One, C: Connective);

type AnyTrue = Connected<Or>;
type AllTrue = Connected<And>;
type Counted = Connected<Plus>;

derived!(Any: One -> One = AnyTrue, "any", rules::truth);
derived!(All: One -> One = AllTrue, "all", rules::truth);
derived!(CountNonzero: One -> One = Counted, "count_nonzero", rules::count);
derived!(AnyNonFinite: One -> One = AnyTrue, "any_non_finite", rules::truth,
    before element);

#[cube]
impl AnyNonFinite {
    /// What it pushes for an element.
    fn element<N: Size>(value: Vector<In, N>) -> Vector<In, N> {
        non_finite::<In, N>(value)
    }
}

derived!(CountNumbers: One -> One = Counted, "count_numbers", rules::count,
    before element);

#[cube]
impl CountNumbers {
    /// What it pushes for an element.
    fn element<N: Size>(value: Vector<In, N>) -> Vector<In, N> {
        select_many(is_nan::<In, N>(value), Vector::from_int(0), Vector::from_int(1))
    }
}

/// 1 in the components that are infinite or NaN, otherwise 0.
#[cube]
fn non_finite<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let zero = Vector::from_int(0);
    if comptime![element.is_float()] {
        select_many(is_finite::<E, N>(value), zero, Vector::from_int(1))
    } else {
        zero
    }
}
