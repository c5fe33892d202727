//! Reductions that ignore NaN. [`NanVar`](super::NanVar) and [`NanStd`](super::NanStd) are defined
//! beside [`Var`](super::Var).

use cubecl::prelude::*;

use super::{
    Prod, Sum,
    arg::{First, Order},
    extrema::{Extremum, Preference},
};
use crate::operator::{
    A, B, Blocks, Definition, In, One, Operator, Out, Pair, Parameters, Position, Reproducible,
    Two, TypeRule, Value,
    derived::{block_of_pushes, derived},
    element_wise::{
        and_not_nan, highest, is_nan, lowest, nan_or_highest, nan_or_lowest, or_nan, unless_nan,
    },
    rules,
    same_bits::{converted, of_counted, quotient, sum},
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

/// The maximum of the elements that are not NaN; NaN if all are NaN. It is undefined of no
/// elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanMax;

/// The minimum of the elements that are not NaN; NaN if all are NaN. It is undefined of no
/// elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanMin;

/// The position of [`NanMax`]. Of equal elements, it is the first position; if all elements are
/// NaN, it is 0. It is undefined of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanArgMax;

/// The position of [`NanMin`]. Of equal elements, it is the first position; if all elements are
/// NaN, it is 0. It is undefined of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NanArgMin;

derived!(NanSum: One -> One = Sum, "nansum", rules::accumulate,
    before element);

#[cube]
impl NanSum {
    /// What it pushes for an element.
    fn element<N: Size>(value: Vector<In, N>) -> Vector<In, N> {
        unless_nan::<In, N>(value, Vector::from_int(0))
    }
}
derived!(NanProd: One -> One = Prod, "nanprod", rules::accumulate,
    before element);

#[cube]
impl NanProd {
    /// What it pushes for an element.
    fn element<N: Size>(value: Vector<In, N>) -> Vector<In, N> {
        unless_nan::<In, N>(value, Vector::from_int(1))
    }
}

/// The sum and the number of the elements that are not NaN.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct CountedSum<N: Size> {
    sum: Vector<A, N>,
    count: Vector<B, N>,
}

#[cube]
fn counted_sum<N: Size>(fields: Pair<A, B, N>) -> CountedSum<N> {
    CountedSum::<N> { sum: fields.first, count: fields.second }
}

#[cube]
impl Operator for NanMean {
    type Inputs = One;
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "nanmean";
    const DEFINED_ON_EMPTY: bool = true;
    const REPRODUCIBLE: Reproducible = Reproducible::ByPosition;
    const TYPES: TypeRule = |request| {
        let counts = rules::counting(request.reduction_len);
        rules::floating(request).map(|signature| signature.second(counts))
    };
    const PAIRWISE: bool = true;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(NanMean);

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
        let total = counted_sum::<N>(accumulator);
        let sum = sum::<A, N>(total.sum, Vector::cast_from(value));
        Pair::new(sum, total.count + counted)
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let left = counted_sum::<N>(left);
        let right = counted_sum::<N>(right);
        Pair::new(sum::<A, N>(left.sum, right.sum), left.count + right.count)
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        let total = counted_sum::<N>(accumulator);
        let mean = quotient::<A, N>(total.sum, of_counted::<B, A, N>(total.count));
        Value::new(converted::<A, Out, N>(mean))
    }
}

block_of_pushes!(NanMean: Two);

/// Whether `right` is greater than `left`, or `left` is NaN and `right` is not.
#[cube]
fn is_above<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
    and_not_nan::<E, N>(or_nan::<E, N>(right.greater_than(&left), left), right)
}

/// Whether `right` is less than `left`, or `left` is NaN and `right` is not.
#[cube]
fn is_below<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
    and_not_nan::<E, N>(or_nan::<E, N>(right.less_than(&left), left), right)
}

/// Prefers the greater of two values, and any number to NaN.
#[derive(Clone, Copy)]
struct GreaterNumber;

#[cube]
impl Preference for GreaterNumber {
    const SKIPS_NAN: bool = true;

    fn worst_number<E: Float>() -> E {
        lowest::<E>()
    }

    fn better_number<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        max(left, right)
    }

    fn worst<E: Float>() -> E {
        nan_or_lowest::<E>()
    }

    fn better<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        select_many(is_above::<E, N>(left, right), right, left)
    }
}

/// Prefers the smaller of two values, and any number to NaN.
#[derive(Clone, Copy)]
struct LesserNumber;

#[cube]
impl Preference for LesserNumber {
    const SKIPS_NAN: bool = true;

    fn worst_number<E: Float>() -> E {
        highest::<E>()
    }

    fn better_number<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        min(left, right)
    }

    fn worst<E: Float>() -> E {
        nan_or_highest::<E>()
    }

    fn better<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
        select_many(is_below::<E, N>(left, right), right, left)
    }
}

#[cube]
impl Order for GreaterNumber {
    fn is_ahead<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
        is_above::<E, N>(left, right)
    }

    fn is_number_ahead<E: Float, N: Size>(
        left: Vector<E, N>,
        right: Vector<E, N>,
    ) -> Vector<bool, N> {
        right.greater_than(&left)
    }
}

#[cube]
impl Order for LesserNumber {
    fn is_ahead<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<bool, N> {
        is_below::<E, N>(left, right)
    }

    fn is_number_ahead<E: Float, N: Size>(
        left: Vector<E, N>,
        right: Vector<E, N>,
    ) -> Vector<bool, N> {
        right.less_than(&left)
    }
}

type GreatestNumber = Extremum<GreaterNumber>;
type LeastNumber = Extremum<LesserNumber>;
type FirstGreatestNumber = First<GreaterNumber>;
type FirstLeastNumber = First<LesserNumber>;

derived!(NanMax: One -> One = GreatestNumber, "nanmax", rules::select);
derived!(NanMin: One -> One = LeastNumber, "nanmin", rules::select);
derived!(NanArgMax: Two -> One = FirstGreatestNumber, "nanargmax", rules::index);
derived!(NanArgMin: Two -> One = FirstLeastNumber, "nanargmin", rules::index);
