//! The logarithm of the sum of exponentials.

use core::ops::Not;

use cubecl::prelude::*;

use super::{
    Sum,
    applied::exponential,
    of_passes::{Largest, LargestAndTotal},
};
use crate::operator::{
    A, AccumulatorOf, B, Block, Blocks, Blockwise, C, Definition, In, InPasses, One, Operator, Out,
    Out2, Out3, Pair, Parameters, Passes, Position, ResultsOf, Running, Runs, Single, Three,
    Triple, Two, TypeRule, Value,
    block::{Add, Most, fold, spread},
    derived::derived,
    element_wise::{constant, is_finite, lowest, nan_or_lowest},
    math::{exp, exp_of_differences_for, exp_of_negative, has_nan_bits, ln, ln_of_moderate_for},
    parameters::none,
    rules,
};

/// The logarithm of the sum of the elements' exponentials, with one read of the input; `-inf` of no
/// elements.
///
/// Exponentials are taken of differences from the largest element so far, so they never overflow
/// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSumExp;

/// The largest element so far, and the sum of the exponentials of differences from it.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
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
    type Inputs = One;
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "logsumexp";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const TRANSCENDENTAL: bool = true;
    const NATIVE_MATH: bool = false;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const PASSES: Option<Passes<Self>> = Some(Passes::of());
    const RUNS: Option<Runs<Self>> = Some(Runs::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(LogSumExp);

    /// The maximum starts at the smallest finite value. Its difference from an element of `-inf` is
    /// infinite, and the exponential of that is 0.
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
        // The share of the smaller of the two; the larger one has a share of 1. The difference is
        // NaN if an element is NaN or if both are infinities of one sign. The element itself then
        // goes into the sum, which stays NaN or infinite.
        let zero = Vector::from_int(0);
        let share =
            select_many(has_nan_bits::<A, N>(delta), value, exp::<A, N>(zero - delta.abs()));
        let grows = delta.greater_than(&zero);
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
        // The difference is NaN if both maxima are infinities of one sign, or one is NaN.
        let zero = Vector::from_int(0);
        let share =
            select_many(has_nan_bits::<A, N>(delta), right.sum, exp::<A, N>(zero - delta.abs()));
        let grows = delta.greater_than(&zero);
        let sum = select_many(grows, left.sum * share + right.sum, right.sum * share + left.sum);
        fields::<N>(ScaledSum::<N> { max: max(left.max, right.max), sum })
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        let total = scaled_sum::<N>(accumulator);
        // The largest element adds 1. The sum is smaller only if there are no elements, or if all
        // of them vanish beside the smallest finite value.
        let half = Vector::new(constant::<A>(0.5, 0.5));
        let none = Vector::new(lowest::<A>());
        let result =
            select_many(total.sum.less_than(&half), none, total.max + ln::<A, N>(total.sum));
        // On some backends the logarithm of an infinity is not infinite.
        let infinite = total.max.greater_than(&Vector::new(A::max_value()));
        let result = select_many(infinite, total.max, result);
        // Backends differ in the logarithms of NaN.
        let is_nan = has_nan_bits::<A, N>(total.sum);
        Value::new(Vector::cast_from(select_many(is_nan, total.sum, result)))
    }
}

/// Each block costs one exponential for the sum so far, and each element one more.
#[cube]
impl Blockwise for LogSumExp {
    const MAY_REFUSE: bool = true;

    /// Refuses blocks with NaN or `inf`, and those that follow one.
    fn push_block<N: Size, W: Size>(
        accumulator: Pair<A, B, N>,
        block: &Block<W>,
        _parameters: &Parameters,
    ) -> (Pair<A, B, N>, Vector<bool, N>) {
        let total = scaled_sum::<N>(accumulator);
        let mut most = Vector::<A, W>::cast_from(block.value(0usize));
        #[unroll]
        for nth in 1..block.load_count() {
            most = max(most, Vector::cast_from(block.value(nth)));
        }
        let most = max(total.max, fold::<Most, A, N, W>(most));
        let from = spread::<A, N, W>(most);
        let zero = Vector::<A, W>::from_int(0);
        let first = exp_of_negative::<A, W>(Vector::cast_from(block.value(0usize)) - from);
        let mut sum = block.inside_or::<A>(0usize, first, zero);
        #[unroll]
        for nth in 1..block.load_count() {
            let value = Vector::<A, W>::cast_from(block.value(nth));
            sum += block.inside_or::<A>(nth, exp_of_negative::<A, W>(value - from), zero);
        }
        let sum = fold::<Add, A, N, W>(sum);
        let share = exp_of_negative::<A, N>(total.max - most);
        let is_nan = has_nan_bits::<A, N>(sum + share);
        let added = ScaledSum::<N> { max: most, sum: total.sum * share + sum };
        (fields::<N>(added), is_nan.not())
    }
}

/// All exponentials are taken of differences from the largest element of all, so each element costs
/// one, and a logarithm.
#[cube]
impl Running for LogSumExp {
    /// Refuses vectors with NaN or `inf`, those that follow one, and those whose first sum is small
    /// beside the exponential of a later element: its difference from that element is rounded to as
    /// many digits less as it is larger.
    fn run<W: Size>(
        before: Pair<A, B, Single>,
        values: Vector<In, W>,
        _count: usize,
        _parameters: &Parameters,
    ) -> (Value<Out, W>, Pair<A, B, Single>, bool) {
        let total = scaled_sum::<Single>(before);
        let values = Vector::<A, W>::cast_from(values);
        let most = max(total.max, fold::<Most, A, Single, W>(values));
        let from = spread::<A, Single, W>(most);
        let shares = exp_of_differences_for::<A, Out, W>(values, from);
        let mut sum = (total.sum * exp_of_negative::<A, Single>(total.max - most)).extract(0usize);
        let mut sums = Vector::<A, W>::empty();
        #[unroll]
        for nth in 0..W::value() {
            sum += shares.extract(nth);
            sums.insert(nth, sum);
        }
        let least = constant::<A>(2f32.powi(-12), 2f64.powi(-12));
        let most_finite = A::max_value();
        let fits = sums.extract(0usize) > least && sum < most_finite;
        let results = Vector::<Out, W>::cast_from(from + ln_of_moderate_for::<A, Out, W>(sums));
        let after = ScaledSum::<Single> { max: most, sum: Vector::new(sum) };
        (Value::new(results), fields::<Single>(after), fits)
    }
}

/// What softmax applies to elements: the largest element, and the reciprocal of the sum of the
/// exponentials of differences from it. The reciprocal is NaN if an element is NaN or `inf`; it is
/// infinite if all elements are `-inf` or there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftmaxSums;

/// What log-softmax applies to elements: the largest element, and the logarithm of the sum of the
/// exponentials of differences from it. The logarithm is NaN if an element is NaN or `inf`; it is
/// `-inf` if all elements are `-inf` or there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogSoftmaxSums;

/// The sum of exponentials; NaN if an element was NaN or `inf`.
#[cube]
fn defined_sum<N: Size>(total: ScaledSum<N>) -> Vector<A, N> {
    let infinite = total.max.greater_than(&Vector::new(A::max_value()));
    select_many(infinite, Vector::new(nan_or_lowest::<A>()), total.sum)
}

derived!(SoftmaxSums: Two -> Two = LogSumExp, "softmax_sums", rules::floating,
with none, in passes,
finish results);

#[cube]
impl SoftmaxSums {
    // The exponentials that `ExponentialShare` takes, which compilers keep where they can.
    fn exponential<N: Size>(difference: Vector<In, N>) -> Vector<In, N> {
        exponential::<In, N>(difference)
    }

    fn of_sum<N: Size>(sum: Vector<A, N>) -> Vector<A, N> {
        Vector::<A, N>::from_int(1) / sum
    }

    fn results<N: Size>(
        accumulator: AccumulatorOf<Two, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> ResultsOf<Two, N> {
        let total = scaled_sum::<N>(accumulator);
        let reciprocal = Vector::<A, N>::from_int(1) / defined_sum::<N>(total);
        Pair::new(Vector::cast_from(total.max), Vector::cast_from(reciprocal))
    }
}
derived!(LogSoftmaxSums: Two -> Two = LogSumExp, "log_softmax_sums", rules::floating,
with none, in passes,
finish results);

#[cube]
impl LogSoftmaxSums {
    fn exponential<N: Size>(difference: Vector<In, N>) -> Vector<In, N> {
        exp_of_negative::<In, N>(difference)
    }

    /// Backends differ in the logarithm of NaN.
    fn of_sum<N: Size>(sum: Vector<A, N>) -> Vector<A, N> {
        select_many(has_nan_bits::<A, N>(sum), sum, ln::<A, N>(sum))
    }

    fn results<N: Size>(
        accumulator: AccumulatorOf<Two, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> ResultsOf<Two, N> {
        let total = scaled_sum::<N>(accumulator);
        let sum = defined_sum::<N>(total);
        // Backends differ in the logarithms of NaN and of 0.
        let logarithm = select_many(has_nan_bits::<A, N>(sum), sum, ln::<A, N>(sum));
        let empty = sum.equal(&Vector::from_int(0));
        let logarithm = select_many(empty, Vector::new(lowest::<A>()), logarithm);
        Pair::new(Vector::cast_from(total.max), Vector::cast_from(logarithm))
    }
}

/// The results of [`SoftmaxSums`], and the sum of the elements.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SoftmaxSumsAndTotal;

#[cube]
fn without_total<N: Size>(fields: Triple<A, B, C, N>) -> Pair<A, B, N> {
    Pair::new(fields.first, fields.second)
}

#[cube]
fn with_total<N: Size>(fields: Pair<A, B, N>, total: Vector<C, N>) -> Triple<A, B, C, N> {
    Triple::new(fields.first, fields.second, total)
}

#[cube]
impl Operator for SoftmaxSumsAndTotal {
    type Inputs = One;
    type Fields = Three;
    type Results = Three;

    const NAME: &'static str = "softmax_sums_and_total";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const TRANSCENDENTAL: bool = true;
    const NATIVE_MATH: bool = false;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const PASSES: Option<Passes<Self>> = Some(Passes::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(SoftmaxSumsAndTotal);

    fn identity<N: Size>() -> Triple<A, B, C, N> {
        with_total::<N>(LogSumExp::identity::<N>(), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Triple<A, B, C, N>,
        value: Vector<In, N>,
        position: Position,
        parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        let sums = without_total::<N>(accumulator);
        let sums = LogSumExp::push::<N>(sums, value, position, parameters);
        with_total::<N>(sums, accumulator.third + Vector::cast_from(value))
    }

    fn merge<N: Size>(
        left: Triple<A, B, C, N>,
        right: Triple<A, B, C, N>,
        parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        let total = left.third + right.third;
        let (left, right) = (without_total::<N>(left), without_total::<N>(right));
        with_total::<N>(LogSumExp::merge::<N>(left, right, parameters), total)
    }

    fn finish<N: Size>(
        accumulator: Triple<A, B, C, N>,
        count: usize,
        parameters: &Parameters,
    ) -> Triple<Out, Out2, Out3, N> {
        let sums = SoftmaxSums::results::<N>(without_total::<N>(accumulator), count, parameters);
        Triple::new(sums.first, sums.second, Vector::cast_from(accumulator.third))
    }
}

#[cube]
impl Blockwise for SoftmaxSumsAndTotal {
    const MAY_REFUSE: bool = true;

    fn push_block<N: Size, W: Size>(
        accumulator: Triple<A, B, C, N>,
        block: &Block<W>,
        parameters: &Parameters,
    ) -> (Triple<A, B, C, N>, Vector<bool, N>) {
        let sums = without_total::<N>(accumulator);
        let (sums, taken) = LogSumExp::push_block::<N, W>(sums, block, parameters);
        let zero = Vector::<C, W>::from_int(0);
        let mut total = block.inside_or::<C>(0usize, Vector::cast_from(block.value(0usize)), zero);
        #[unroll]
        for nth in 1..block.load_count() {
            total += block.inside_or::<C>(nth, Vector::cast_from(block.value(nth)), zero);
        }
        let total = accumulator.third + fold::<Add, C, N, W>(total);
        (with_total::<N>(sums, total), taken)
    }
}

/// The sum of exponentials of differences from the largest element; NaN if that is not finite. The
/// differences of infinities say so already, but drivers of Vulkan may assume that there are none.
#[cube]
fn or_nan_unless_finite<N: Size>(sum: Vector<A, N>, most: Vector<A, N>) -> Vector<A, N> {
    select_many(is_finite::<A, N>(most), sum, Vector::new(nan_or_lowest::<A>()))
}

/// Two passes: the maximum, then the sum of exponentials of differences from it.
/// `$operator::exponential` takes them, and `$operator::of_sum` makes the second result.
macro_rules! sums_in_passes {
    ($operator:ident) => {
        #[cube]
        impl InPasses for $operator {
            type First = Largest;
            type Second = Sum;
            type Between = One;

            fn after_first<N: Size>(
                first: Value<A, N>,
                _count: usize,
                _parameters: &Parameters,
            ) -> Value<A, N> {
                first
            }

            fn between<N: Size>(
                value: Vector<In, N>,
                after: Value<A, N>,
                _parameters: &Parameters,
            ) -> Vector<In, N> {
                $operator::exponential::<N>(value - Vector::cast_from(after.value))
            }

            fn finish_passes<N: Size>(
                first: Value<A, N>,
                second: Value<A, N>,
                _count: usize,
                _parameters: &Parameters,
            ) -> Pair<Out, Out2, N> {
                let (most, sum) = (first.value, second.value);
                let sum = $operator::of_sum::<N>(or_nan_unless_finite::<N>(sum, most));
                Pair::new(Vector::cast_from(most), Vector::cast_from(sum))
            }
        }
    };
}

/// The maximum, then the sum of exponentials of differences from it.
#[cube]
impl InPasses for LogSumExp {
    type First = Largest;
    type Second = Sum;
    type Between = One;

    /// Differences from a maximum that is infinite would be NaN. From the finite number beside it,
    /// they are infinite, and their exponentials are 0 or infinite.
    fn after_first<N: Size>(
        first: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        let least = Vector::new(A::min_value());
        Value::new(clamp(first.value, least, Vector::new(A::max_value())))
    }

    fn between<N: Size>(
        value: Vector<In, N>,
        after: Value<A, N>,
        _parameters: &Parameters,
    ) -> Vector<In, N> {
        exp_of_negative::<In, N>(value - Vector::cast_from(after.value))
    }

    fn finish_passes<N: Size>(
        first: Value<A, N>,
        second: Value<A, N>,
        count: usize,
        parameters: &Parameters,
    ) -> Value<Out, N> {
        let total = ScaledSum::<N> { max: first.value, sum: second.value };
        LogSumExp::finish::<N>(fields::<N>(total), count, parameters)
    }
}

sums_in_passes!(SoftmaxSums);
sums_in_passes!(LogSoftmaxSums);

/// The maximum and the sum of the elements, then the sum of exponentials.
#[cube]
impl InPasses for SoftmaxSumsAndTotal {
    type First = LargestAndTotal;
    type Second = Sum;
    type Between = One;

    fn after_first<N: Size>(
        first: Pair<A, B, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(first.first)
    }

    fn between<N: Size>(
        value: Vector<In, N>,
        after: Value<A, N>,
        parameters: &Parameters,
    ) -> Vector<In, N> {
        SoftmaxSums::between::<N>(value, after, parameters)
    }

    fn finish_passes<N: Size>(
        first: Pair<A, B, N>,
        second: Value<A, N>,
        count: usize,
        parameters: &Parameters,
    ) -> Triple<Out, Out2, Out3, N> {
        let most = Value::new(first.first);
        let sums = SoftmaxSums::finish_passes::<N>(most, second, count, parameters);
        Triple::new(sums.first, sums.second, Vector::cast_from(first.second))
    }
}
