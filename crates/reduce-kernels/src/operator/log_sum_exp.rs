//! Logarithm of the sum of exponentials.

use cubecl::prelude::*;

use super::{
    One, Operator, Pair, Parameters, Position, Two, TypeRule, Types, Value,
    element_wise::{is_nan, lowest},
    rules,
};

/// The logarithm of the sum of the elements' exponentials, in one read; `-inf` of no elements.
///
/// Exponentials are taken of differences from the greatest element so far, which never overflow
/// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSumExp;

/// Two sums of exponentials, each less a greatest element; NaN stays in the sum.
#[cube]
fn join<E: Float, N: Size>(left: Pair<E, E, N>, right: Pair<E, E, N>) -> Pair<E, E, N> {
    let grows = right.first.greater_than(left.first);
    let most = select_many(grows, right.first, left.first);
    let least = select_many(grows, left.first, right.first);
    let of_most = select_many(grows, right.second, left.second);
    let of_least = select_many(grows, left.second, right.second);
    // 1 where both are the same, and infinite perhaps: their difference would be NaN.
    let same = least.equal(most);
    let share = select_many(same, Vector::from_int(1), (least - most).exp());
    Pair::new(most, of_most + of_least * share)
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

    /// The greatest element, and the sum of exponentials of differences from it.
    fn identity<T: Types, N: Size>() -> Pair<T::A, T::B, N> {
        Pair::new(Vector::new(lowest::<T::A>()), Vector::from_int(0))
    }

    fn push<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        value: Vector<T::In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Pair<T::A, T::B, N> {
        let value = Vector::<T::A, N>::cast_from(value);
        // A NaN compares with nothing: it goes into the sum, and stays there.
        let is_nan = is_nan::<T::A, N>(value);
        let element = Pair::new(
            select_many(is_nan, accumulator.first, value),
            Vector::cast_from(select_many(is_nan, value, Vector::from_int(1))),
        );
        LogSumExp::merge::<T, N>(accumulator, element, parameters)
    }

    fn merge<T: Types, N: Size>(
        left: Pair<T::A, T::B, N>,
        right: Pair<T::A, T::B, N>,
        _parameters: &Parameters,
    ) -> Pair<T::A, T::B, N> {
        let left = Pair::new(left.first, Vector::<T::A, N>::cast_from(left.second));
        let right = Pair::new(right.first, Vector::<T::A, N>::cast_from(right.second));
        let both = join::<T::A, N>(left, right);
        Pair::new(both.first, Vector::cast_from(both.second))
    }

    fn finish<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<T::Out, N> {
        let sum = Vector::<T::A, N>::cast_from(accumulator.second);
        let most = accumulator.first;
        // The sum of nothing is 0, whose logarithm is not -inf everywhere.
        let empty = sum.equal(Vector::from_int(0));
        let result = select_many(empty, most, most + sum.ln());
        // Logarithms of NaN are not the same everywhere.
        Value::new(Vector::cast_from(select_many(is_nan::<T::A, N>(sum), sum, result)))
    }
}
