//! Logarithm of the sum of exponentials.

use cubecl::prelude::*;

use crate::operator::{
    A, B, In, One, Operator, Out, Pair, Parameters, Position, Two, TypeRule, Value,
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

    /// The greatest element, and the sum of exponentials of differences from it. The greatest starts at
    /// the least finite value: `-inf` differs from that by an infinity, whose exponential is 0.
    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::new(A::min_value()), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let value = Vector::<A, N>::cast_from(value);
        let one = Vector::<A, N>::from_int(1);
        let sum = Vector::<A, N>::cast_from(accumulator.second);
        let rise = value - accumulator.first;
        // The lesser one's exponential, the greater one's being 1. There is no difference from NaN, nor
        // between infinities: NaN goes into the sum and stays there, and so does an infinity.
        let zero = Vector::from_int(0);
        let share = select_many(has_nan_bits::<A, N>(rise), value, exp::<A, N>(zero - rise.abs()));
        let grows = rise.greater_than(zero);
        let sum = select_many(grows, sum * share + one, sum + share);
        Pair::new(max(accumulator.first, value), Vector::cast_from(sum))
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let of_left = Vector::<A, N>::cast_from(left.second);
        let of_right = Vector::<A, N>::cast_from(right.second);
        let rise = right.first - left.first;
        // Both are infinite, or a sum is NaN.
        let zero = Vector::from_int(0);
        let share =
            select_many(has_nan_bits::<A, N>(rise), of_right, exp::<A, N>(zero - rise.abs()));
        let grows = rise.greater_than(zero);
        let sum = select_many(grows, of_left * share + of_right, of_right * share + of_left);
        Pair::new(max(left.first, right.first), Vector::cast_from(sum))
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        let sum = Vector::<A, N>::cast_from(accumulator.second);
        let most = accumulator.first;
        // The greatest element adds 1: less is the sum of nothing, or of what vanishes beside the least
        // finite value.
        let half = Vector::new(constant::<A>(0.5, 0.5));
        let none = Vector::new(lowest::<A>());
        let result = select_many(sum.less_than(half), none, most + ln::<A, N>(sum));
        // Logarithms of infinities need not be infinite.
        let infinite = most.greater_than(Vector::new(A::max_value()));
        let result = select_many(infinite, most, result);
        // Logarithms of NaN are not the same everywhere.
        Value::new(Vector::cast_from(select_many(has_nan_bits::<A, N>(sum), sum, result)))
    }
}
