//! Reductions of the elements that are not NaN. [`NanVar`](super::NanVar) and
//! [`NanStd`](super::NanStd) stand beside their kin.

use cubecl::prelude::*;

use super::{
    Prod, Sum,
    arg::{arg_extremum, at, first_of},
    extrema::extremum,
};
use crate::operator::{
    A, B, In, One, Operator, Out, Pair, Parameters, Position, Two, TypeRule, Value,
    element_wise::{
        and_not_nan, highest, is_nan, nan_or_highest, nan_or_lowest, or_nan, unless_nan,
    },
    rules,
};

/// The sum of the elements that are not NaN; 0 if there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanSum;

/// The product of the elements that are not NaN; 1 if there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanProd;

/// The mean of the elements that are not NaN; NaN if there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanMean;

/// The maximum of the elements that are not NaN; NaN if all are. Undefined on no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanMax;

/// The minimum of the elements that are not NaN; NaN if all are. Undefined on no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanMin;

/// The position of [`NanMax`], the lowest on ties; 0 if all elements are NaN. Undefined on no
/// elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanArgMax;

/// The position of [`NanMin`], the lowest on ties; 0 if all elements are NaN. Undefined on no
/// elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanArgMin;

/// Operators that take another's neutral element for NaN.
macro_rules! without_nan {
    ($operator:ident, $name:literal, $of:ident, $neutral:literal, $pairwise:literal) => {
        #[cube]
        impl Operator for $operator {
            type Fields = One;
            type Results = One;

            const NAME: &'static str = $name;
            const DEFINED_ON_EMPTY: bool = true;
            const TYPES: TypeRule = rules::accumulate;
            const PAIRWISE: bool = $pairwise;

            fn identity<N: Size>() -> Value<A, N> {
                $of::identity::<N>()
            }

            fn push<N: Size>(
                accumulator: Value<A, N>,
                value: Vector<In, N>,
                position: Position,
                parameters: &Parameters,
            ) -> Value<A, N> {
                let value = unless_nan::<In, N>(value, Vector::from_int($neutral));
                $of::push::<N>(accumulator, value, position, parameters)
            }

            fn merge<N: Size>(
                left: Value<A, N>,
                right: Value<A, N>,
                parameters: &Parameters,
            ) -> Value<A, N> {
                $of::merge::<N>(left, right, parameters)
            }

            fn finish<N: Size>(
                accumulator: Value<A, N>,
                count: usize,
                parameters: &Parameters,
            ) -> Value<Out, N> {
                $of::finish::<N>(accumulator, count, parameters)
            }
        }
    };
}

without_nan!(NanSum, "nansum", Sum, 0, true);
without_nan!(NanProd, "nanprod", Prod, 1, false);

#[cube]
impl Operator for NanMean {
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "nanmean";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = |request| {
        let counts = rules::counting(request.reduction_len);
        rules::floating(request).map(|signature| signature.second(counts))
    };
    const PAIRWISE: bool = true;

    /// The sum, and how many elements went into it.
    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let counted =
            select_many(is_nan::<In, N>(value), Vector::<B, N>::from_int(0), Vector::from_int(1));
        let value = unless_nan::<In, N>(value, Vector::from_int(0));
        Pair::new(accumulator.first + Vector::cast_from(value), accumulator.second + counted)
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
        let mean = accumulator.first / Vector::cast_from(accumulator.second);
        Value::new(Vector::cast_from(mean))
    }
}

/// The greater value that is not NaN.
#[cube]
fn greater<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
    select_many(ahead_above::<E, N>(left, right), right, left)
}

/// The lesser value that is not NaN.
#[cube]
fn lesser<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
    select_many(ahead_below::<E, N>(left, right), right, left)
}

/// Whether `right` is greater, or alone not NaN.
#[cube]
fn ahead_above<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
    and_not_nan::<E, N>(or_nan::<E, N>(right.greater_than(left), left), right)
}

/// Whether `right` is less, or alone not NaN.
#[cube]
fn ahead_below<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
    and_not_nan::<E, N>(or_nan::<E, N>(right.less_than(left), left), right)
}

/// Whether `right` is as good as `left`, or ahead: all but NaN is ahead of NaN.
#[cube]
fn as_good<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
    or_nan::<E, N>(right.equal(left), left)
}

/// The greater value that is not NaN, the first on ties.
#[cube]
fn first_greatest<A: Float, B: Float, N: Size>(
    left: Pair<A, B, N>,
    right: Pair<A, B, N>,
) -> Pair<A, B, N> {
    let ahead = ahead_above::<A, N>(left.first, right.first);
    let alike = as_good::<A, N>(left.first, right.first);
    first_of::<A, B, N>(left, right, ahead, alike)
}

/// The lesser value that is not NaN, the first on ties.
#[cube]
fn first_least<A: Float, B: Float, N: Size>(
    left: Pair<A, B, N>,
    right: Pair<A, B, N>,
) -> Pair<A, B, N> {
    let ahead = ahead_below::<A, N>(left.first, right.first);
    let alike = as_good::<A, N>(left.first, right.first);
    first_of::<A, B, N>(left, right, ahead, alike)
}

extremum!(NanMax, "nanmax", from nan_or_lowest by greater);
extremum!(NanMin, "nanmin", from nan_or_highest by lesser);
arg_extremum!(NanArgMax, "nanargmax", from nan_or_lowest by first_greatest);
arg_extremum!(NanArgMin, "nanargmin", from nan_or_highest by first_least);
