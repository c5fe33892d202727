//! Logarithm of the sum of exponentials.

use cubecl::prelude::*;

use super::{
    One, Operator, Pair, Parameters, Position, Two, TypeRule, Types, Value,
    element_wise::lowest,
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
    fn identity<T: Types, N: Size>() -> Pair<T::A, T::B, N> {
        Pair::new(Vector::new(T::A::min_value()), Vector::from_int(0))
    }

    fn push<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        value: Vector<T::In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Pair<T::A, T::B, N> {
        let value = Vector::<T::A, N>::cast_from(value);
        let one = Vector::<T::A, N>::from_int(1);
        let sum = Vector::<T::A, N>::cast_from(accumulator.second);
        let rise = value - accumulator.first;
        // The lesser one's exponential, the greater one's being 1. There is no difference from NaN, nor
        // between infinities: NaN goes into the sum and stays there, and so does an infinity.
        let zero = Vector::from_int(0);
        let share =
            select_many(has_nan_bits::<T::A, N>(rise), value, exp::<T::A, N>(zero - rise.abs()));
        let grows = rise.greater_than(zero);
        let sum = select_many(grows, sum * share + one, sum + share);
        Pair::new(max(accumulator.first, value), Vector::cast_from(sum))
    }

    fn merge<T: Types, N: Size>(
        left: Pair<T::A, T::B, N>,
        right: Pair<T::A, T::B, N>,
        _parameters: &Parameters,
    ) -> Pair<T::A, T::B, N> {
        let of_left = Vector::<T::A, N>::cast_from(left.second);
        let of_right = Vector::<T::A, N>::cast_from(right.second);
        let rise = right.first - left.first;
        // Both are infinite, or a sum is NaN.
        let zero = Vector::from_int(0);
        let share =
            select_many(has_nan_bits::<T::A, N>(rise), of_right, exp::<T::A, N>(zero - rise.abs()));
        let grows = rise.greater_than(zero);
        let sum = select_many(grows, of_left * share + of_right, of_right * share + of_left);
        Pair::new(max(left.first, right.first), Vector::cast_from(sum))
    }

    fn finish<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<T::Out, N> {
        let sum = Vector::<T::A, N>::cast_from(accumulator.second);
        let most = accumulator.first;
        // The greatest element adds 1: less is the sum of nothing, or of what vanishes beside the least
        // finite value.
        let half = Vector::new(T::A::new(0.5));
        let none = Vector::new(lowest::<T::A>());
        let result = select_many(sum.less_than(half), none, most + ln::<T::A, N>(sum));
        // Logarithms of infinities need not be infinite.
        let infinite = most.greater_than(Vector::new(T::A::max_value()));
        let result = select_many(infinite, most, result);
        // Logarithms of NaN are not the same everywhere.
        Value::new(Vector::cast_from(select_many(has_nan_bits::<T::A, N>(sum), sum, result)))
    }
}
