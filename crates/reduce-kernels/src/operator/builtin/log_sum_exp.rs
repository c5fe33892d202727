//! Logarithm of the sum of exponentials.

use cubecl::prelude::*;

use crate::operator::{
    A, B, Definition, In, One, Operator, Out, Pair, Parameters, Position, Two, TypeRule, Value,
    element_wise::{constant, lowest},
    math::{exp, has_nan_bits, ln},
    rules,
};

/// The logarithm of the sum of the elements' exponentials, in one read; `-inf` of no elements.
///
/// Exponentials are taken of differences from the greatest element so far, which never overflow
/// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSumExp;

/// The greatest element so far, and the sum of exponentials of differences from it.
#[derive(CubeType, Clone, Copy)]
struct ScaledSum<N: Size> {
    max: Vector<A, N>,
    sum: Vector<A, N>,
}

#[cube]
fn scaled_sum<N: Size>(fields: Pair<A, B, N>) -> ScaledSum<N> {
    ScaledSum::<N> { max: fields.first, sum: Vector::cast_from(fields.second) }
}

#[cube]
fn fields<N: Size>(total: ScaledSum<N>) -> Pair<A, B, N> {
    Pair::new(total.max, Vector::cast_from(total.sum))
}

#[cube]
impl Operator for LogSumExp {
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "logsumexp";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const TRANSCENDENTAL: bool = true;
    const NATIVE_MATH: bool = false;
    const DEFINITION: &'static Definition<Self> = crate::defined!(LogSumExp);

    /// The greatest element starts at the least finite value: `-inf` differs from that by an infinity,
    /// whose exponential is 0.
    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::new(A::min_value()), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let total = scaled_sum::<N>(accumulator);
        let value = Vector::<A, N>::cast_from(value);
        let one = Vector::<A, N>::from_int(1);
        let delta = value - total.max;
        // The exponential of the lesser one; that of the greater one is 1. There is no difference
        // from NaN, nor between infinities: NaN and infinities go into the sum and stay there.
        let zero = Vector::from_int(0);
        let share =
            select_many(has_nan_bits::<A, N>(delta), value, exp::<A, N>(zero - delta.abs()));
        let grows = delta.greater_than(zero);
        let sum = select_many(grows, total.sum * share + one, total.sum + share);
        fields::<N>(ScaledSum::<N> { max: max(total.max, value), sum })
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let left = scaled_sum::<N>(left);
        let right = scaled_sum::<N>(right);
        let delta = right.max - left.max;
        // NaN where both are infinite, or a sum is NaN.
        let zero = Vector::from_int(0);
        let share =
            select_many(has_nan_bits::<A, N>(delta), right.sum, exp::<A, N>(zero - delta.abs()));
        let grows = delta.greater_than(zero);
        let sum = select_many(grows, left.sum * share + right.sum, right.sum * share + left.sum);
        fields::<N>(ScaledSum::<N> { max: max(left.max, right.max), sum })
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        let total = scaled_sum::<N>(accumulator);
        // The greatest element adds 1. A smaller sum is that of nothing, or of what vanishes beside
        // the least finite value.
        let half = Vector::new(constant::<A>(0.5, 0.5));
        let none = Vector::new(lowest::<A>());
        let result =
            select_many(total.sum.less_than(half), none, total.max + ln::<A, N>(total.sum));
        // Logarithms of infinities need not be infinite.
        let infinite = total.max.greater_than(Vector::new(A::max_value()));
        let result = select_many(infinite, total.max, result);
        // Logarithms of NaN are not the same everywhere.
        let is_nan = has_nan_bits::<A, N>(total.sum);
        Value::new(Vector::cast_from(select_many(is_nan, total.sum, result)))
    }
}
