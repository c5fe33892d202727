//! Maps of two elements, and operators of two inputs.

use cubecl::prelude::*;
use reduce_planner::ElementType;

use crate::operator::{
    A, AccumulatorOf, B, C, D, Definition, Four, In, InvalidParameter, Map, One, Operator, Out,
    Out2, Pair, ParameterRule, Parameters, Position, Quad, Reproducible, ResultsOf, Signature,
    Three, Triple, Two, TypeRequest, TypeRule, Value,
    derived::derived,
    element_wise::{constant, is_finite, is_nan, nan_or_lowest},
    finite,
    math::ln_of_quotient,
    not_negative, rules,
    same_bits::{product, sum},
};

/// The type of maps that compute in floating point.
fn real(common: ElementType) -> Option<ElementType> {
    Some(if common == ElementType::F64 { ElementType::F64 } else { ElementType::F32 })
}

/// The type of maps that compute in the type of sums.
fn summed(common: ElementType) -> Option<ElementType> {
    Some(rules::held(common))
}

/// The product. Products of integers wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ElementwiseProduct;

#[cube]
impl Map for ElementwiseProduct {
    type Inputs = Two;

    const NAME: &'static str = "product";
    const REPRODUCIBLE: bool = true;
    const TYPES: fn(ElementType) -> Option<ElementType> = summed;

    fn map<E: Float, N: Size>(pair: Pair<E, E, N>, _parameters: &Parameters) -> Vector<E, N> {
        product::<E, N>(pair.first, pair.second)
    }
}

/// The sum, in floating point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ElementwiseSum;

#[cube]
impl Map for ElementwiseSum {
    type Inputs = Two;

    const NAME: &'static str = "sum_of_pairs";
    const REPRODUCIBLE: bool = true;
    const TYPES: fn(ElementType) -> Option<ElementType> = real;

    fn map<E: Float, N: Size>(pair: Pair<E, E, N>, _parameters: &Parameters) -> Vector<E, N> {
        sum::<E, N>(pair.first, pair.second)
    }
}

/// The first element times a factor, plus the second, in floating point: scores and an additive
/// mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScaledSum {
    /// The factor, a finite number.
    pub scale: f64,
}

#[cube]
impl Map for ScaledSum {
    type Inputs = Two;

    const NAME: &'static str = "scaled_sum_of_pairs";
    const TYPES: fn(ElementType) -> Option<ElementType> = real;
    const PARAMETERS: ParameterRule<Self> = |map| Ok(vec![finite("scale", map.scale)?]);
    const PARAMETER_COUNT: usize = 1;

    fn map<E: Float, N: Size>(pair: Pair<E, E, N>, parameters: &Parameters) -> Vector<E, N> {
        pair.first * Vector::new(parameters.get::<E>(0usize)) + pair.second
    }
}

/// The square of the difference, in floating point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SquaredDifference;

#[cube]
impl Map for SquaredDifference {
    type Inputs = Two;

    const NAME: &'static str = "squared_difference";
    const REPRODUCIBLE: bool = true;
    const TYPES: fn(ElementType) -> Option<ElementType> = real;

    fn map<E: Float, N: Size>(pair: Pair<E, E, N>, _parameters: &Parameters) -> Vector<E, N> {
        let difference = sum::<E, N>(pair.first, -pair.second);
        product::<E, N>(difference, difference)
    }
}

/// The magnitude of the difference, in floating point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AbsoluteDifference;

#[cube]
impl Map for AbsoluteDifference {
    type Inputs = Two;

    const NAME: &'static str = "absolute_difference";
    const REPRODUCIBLE: bool = true;
    const TYPES: fn(ElementType) -> Option<ElementType> = real;

    fn map<E: Float, N: Size>(pair: Pair<E, E, N>, _parameters: &Parameters) -> Vector<E, N> {
        sum::<E, N>(pair.first, -pair.second).abs()
    }
}

/// Huber's loss of a difference: half its square up to `delta`, and from there on a line with the
/// slope `delta`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Huber {
    /// Where the square ends, above 0.
    pub delta: f64,
}

#[cube]
impl Map for Huber {
    type Inputs = Two;

    const NAME: &'static str = "huber";
    const TYPES: fn(ElementType) -> Option<ElementType> = real;
    const PARAMETERS: ParameterRule<Self> = |huber| {
        let (name, value) = ("delta", huber.delta);
        match value.is_finite() && value > 0.0 {
            true => Ok(vec![value]),
            false => Err(InvalidParameter { name, value, expected: "a finite number above 0" }),
        }
    };
    const PARAMETER_COUNT: usize = 1;

    fn map<E: Float, N: Size>(pair: Pair<E, E, N>, parameters: &Parameters) -> Vector<E, N> {
        let delta = Vector::new(parameters.get::<E>(0usize));
        let half = Vector::new(constant::<E>(0.5, 0.5));
        let magnitude = (pair.first - pair.second).abs();
        let line = delta * (magnitude - half * delta);
        // A comparison with NaN fails, and the line keeps the NaN.
        select_many(magnitude.less_equal(&delta), half * magnitude * magnitude, line)
    }
}

/// The term of a Kullback-Leibler divergence of the first distribution from the second:
/// `p * (ln p - ln q)`, and 0 where `p` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Divergence;

#[cube]
impl Map for Divergence {
    type Inputs = Two;

    const NAME: &'static str = "divergence";
    const TYPES: fn(ElementType) -> Option<ElementType> = real;
    const TRANSCENDENTAL: bool = true;
    const NATIVE_MATH: bool = false;

    fn map<E: Float, N: Size>(pair: Pair<E, E, N>, _parameters: &Parameters) -> Vector<E, N> {
        let zero = Vector::from_int(0);
        let term = pair.first * ln_of_quotient::<E, N>(pair.first, pair.second);
        select_many(pair.first.equal(&zero), zero, term)
    }
}

/// The number of pairs of equal elements, which are compared in their common type. NaN equals
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CountEqual;

/// The share of pairs of equal elements, as f32 unless asked otherwise; NaN of no elements. Of
/// predicted and true classes, it is the accuracy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Accuracy;

#[cube]
impl Operator for CountEqual {
    type Inputs = Two;
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "count_equal";
    const DEFINED_ON_EMPTY: bool = true;
    const REPRODUCIBLE: Reproducible = Reproducible::Exact;
    const TYPES: TypeRule = rules::count;
    const DEFINITION: &'static Definition<Self> = crate::defined!(CountEqual);

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        pair: Pair<In, In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        let one = Vector::<A, N>::from_int(1);
        let equal = select_many(pair.first.equal(&pair.second), one, Vector::from_int(0));
        Value::new(accumulator.value + equal)
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(left.value + right.value)
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

/// The rule of [`Accuracy`]: counts that end as floating point.
fn shared(request: &TypeRequest) -> Option<Signature> {
    let output = request.outputs[0].unwrap_or(ElementType::F32);
    let signature = rules::count(&TypeRequest { outputs: [Some(output); 3], ..*request })?;
    output.is_float().then_some(signature)
}

derived!(Accuracy of pairs: One -> One = CountEqual, "accuracy", shared, finish share);

#[cube]
impl Accuracy {
    fn share<N: Size>(
        accumulator: AccumulatorOf<One, N>,
        count: usize,
        _parameters: &Parameters,
    ) -> ResultsOf<One, N> {
        let equal = Vector::<f32, N>::cast_from(accumulator.value);
        let all = Vector::<f32, N>::new(f32::cast_from(count));
        Value::new(Vector::cast_from(equal / all))
    }
}

/// Whether all pairs are close: equal, or their difference at most
/// `absolute + relative * |second|`. True of no elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AllClose {
    /// Tolerance for the difference, 0 or more.
    pub absolute: f64,
    /// Tolerance for the share of the second element, 0 or more.
    pub relative: f64,
    /// Whether two NaN are close.
    pub equal_nan: bool,
}

/// The rule of [`AllClose`]: elements are compared in floating point.
fn close(request: &TypeRequest) -> Option<Signature> {
    let truth = rules::truth(&TypeRequest { accumulator: None, ..*request })?;
    let value = real(request.accumulator.unwrap_or(request.input))?;
    Some(Signature { value, ..truth })
}

#[cube]
impl Operator for AllClose {
    type Inputs = Two;
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "all_close";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = close;
    const PARAMETERS: ParameterRule<Self> = |close| {
        Ok(vec![
            not_negative("absolute", close.absolute)?,
            not_negative("relative", close.relative)?,
            f64::from(u8::from(close.equal_nan)),
        ])
    };
    const DEFINITION: &'static Definition<Self> = crate::defined!(AllClose);

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::from_int(1))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        pair: Pair<In, In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Value<A, N> {
        let absolute = Vector::new(parameters.get::<In>(0usize));
        let relative = Vector::new(parameters.get::<In>(1usize));
        let nan = parameters.get::<f32>(2usize) > 0.5f32;
        let tolerance = absolute + relative * pair.second.abs();
        let near = (pair.first - pair.second).abs().less_equal(&tolerance);
        // The tolerance of a finite pair may be infinite in its type. It then exceeds any
        // difference.
        let finite = is_finite::<In, N>(pair.first).vec_and(is_finite::<In, N>(pair.second));
        let equal = pair.first.equal(&pair.second);
        let close = equal.or(near.vec_and(finite));
        let both = is_nan::<In, N>(pair.first).vec_and(is_nan::<In, N>(pair.second));
        let close = select(nan, close.or(both), close);
        let one = Vector::<A, N>::from_int(1);
        let holds = select_many(close, one, Vector::from_int(0));
        Value::new(min(accumulator.value, holds))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(min(left.value, right.value))
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

/// The sum of the first input, and the sum of the products of both: of the gradient of a
/// normalisation and of its input, all that its backward pass reduces.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SumAndDot;

#[cube]
impl Operator for SumAndDot {
    type Inputs = Two;
    type Fields = Two;
    type Results = Two;

    const NAME: &'static str = "sum_and_dot";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const DEFINITION: &'static Definition<Self> = crate::defined!(SumAndDot);

    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        pair: Pair<In, In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        Pair::new(
            accumulator.first + Vector::cast_from(pair.first),
            accumulator.second + Vector::cast_from(pair.first * pair.second),
        )
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
    ) -> Pair<Out, Out2, N> {
        Pair::new(Vector::cast_from(accumulator.first), Vector::cast_from(accumulator.second))
    }
}

/// The mean of the first input with the second as weights: `sum(w * x) / sum(w)`. NaN if the
/// weights sum to 0 or there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightedMean;

// The weights are the first input of the sum and the dot product.
derived!(WeightedMean of pairs: Two -> One = SumAndDot, "weighted_mean", rules::floating,
    before swapped, finish mean);

#[cube]
impl WeightedMean {
    fn swapped<N: Size>(pair: Pair<In, In, N>) -> Pair<In, In, N> {
        Pair::new(pair.second, pair.first)
    }

    fn mean<N: Size>(
        accumulator: AccumulatorOf<Two, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> ResultsOf<One, N> {
        let weights = Vector::<B, N>::cast_from(accumulator.first);
        Value::new(Vector::cast_from(accumulator.second / weights))
    }
}

/// The sum of the first input over that of the second; NaN if both are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RatioOfSums;

#[cube]
impl Operator for RatioOfSums {
    type Inputs = Two;
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "ratio_of_sums";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const DEFINITION: &'static Definition<Self> = crate::defined!(RatioOfSums);

    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        pair: Pair<In, In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let first = accumulator.first + Vector::cast_from(pair.first);
        Pair::new(first, accumulator.second + Vector::cast_from(pair.second))
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
        let whole = Vector::<A, N>::cast_from(accumulator.second);
        Value::new(Vector::cast_from(accumulator.first / whole))
    }
}

/// The cosine of the angle between two vectors: their dot product over the product of their
/// lengths, each of which counts as `eps` at least. Squares are not scaled, so they may overflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CosineSimilarity {
    /// Least length that a vector counts with, 0 or more.
    pub eps: f64,
}

#[cube]
impl Operator for CosineSimilarity {
    type Inputs = Two;
    type Fields = Three;
    type Results = One;

    const NAME: &'static str = "cosine_similarity";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const PARAMETERS: ParameterRule<Self> = |operator| Ok(vec![not_negative("eps", operator.eps)?]);
    const DEFINITION: &'static Definition<Self> = crate::defined!(CosineSimilarity);

    fn identity<N: Size>() -> Triple<A, B, C, N> {
        Triple::new(Vector::from_int(0), Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Triple<A, B, C, N>,
        pair: Pair<In, In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        Triple::new(
            accumulator.first + Vector::cast_from(pair.first * pair.second),
            accumulator.second + Vector::cast_from(pair.first * pair.first),
            accumulator.third + Vector::cast_from(pair.second * pair.second),
        )
    }

    fn merge<N: Size>(
        left: Triple<A, B, C, N>,
        right: Triple<A, B, C, N>,
        _parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        Triple::new(left.first + right.first, left.second + right.second, left.third + right.third)
    }

    fn finish<N: Size>(
        accumulator: Triple<A, B, C, N>,
        _count: usize,
        parameters: &Parameters,
    ) -> Value<Out, N> {
        let eps = Vector::<A, N>::new(parameters.get::<A>(0usize));
        let first = Vector::<A, N>::cast_from(accumulator.second).sqrt();
        let second = Vector::<A, N>::cast_from(accumulator.third).sqrt();
        let first = select_many(first.less_than(&eps), eps, first);
        let second = select_many(second.less_than(&eps), eps, second);
        Value::new(Vector::cast_from(accumulator.first / first / second))
    }
}

/// The mean and the variance of the first input with the second as weights:
/// `sum(w * (x - mean)^2) / sum(w)`. Weights are 0 or more; both results are NaN if they sum to 0,
/// or to so little that the reciprocal of the sum is infinite (below 2.9e-39 in f32).
///
/// One read (West, "Updating mean and variance estimates: an improved method", 1979). The
/// accumulator holds the variance so far and not West's sum of squares, which overflows before the
/// variance does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WeightedMeanVar;

/// `part / whole`, but 0 if the whole is 0.
#[cube]
fn part_of<E: Float, N: Size>(part: Vector<E, N>, whole: Vector<E, N>) -> Vector<E, N> {
    let zero = Vector::from_int(0);
    select_many(whole.equal(&zero), zero, part / whole)
}

/// The mean of a part of so many elements, or of such weight, and of another one, which is the share
/// `share` of both together. Where the part is empty it is that of the other one: Vulkan's division
/// may be off by two units in the last place, also where it divides a number by itself. A part of no
/// weight may have seen an infinity: its mean is NaN then, and stays.
#[cube]
fn mean_of_both<E: Float, N: Size>(
    count: Vector<E, N>,
    mean: Vector<E, N>,
    other: Vector<E, N>,
    share: Vector<E, N>,
) -> Vector<E, N> {
    let zero = Vector::from_int(0);
    let both = mean + (other - mean) * share;
    let alone = select_many(mean.equal(&zero), other, both);
    select_many(count.equal(&zero), alone, both)
}

/// The covariance of a part and of another one that has no covariance of its own, such as one
/// element. `covariance` is that of the first part, which is the share `rest` of both together; the
/// second part is the share `share`. The distances are those between the means of the parts in each
/// input.
///
/// The share multiplies one distance before the other one does: the product of two distances may
/// overflow where its part in the covariance does not, above all where a part is empty. NVIDIA's
/// Vulkan driver multiplies in another order, but not across a selection.
#[cube]
fn grown<E: Float, N: Size>(
    covariance: Vector<E, N>,
    rest: Vector<E, N>,
    share: Vector<E, N>,
    distance_x: Vector<E, N>,
    distance_y: Vector<E, N>,
) -> Vector<E, N> {
    let shares = share * rest;
    let zero = Vector::from_int(0);
    let part = select_many(shares.equal(&zero), zero, distance_x * shares);
    covariance * rest + part * distance_y
}

#[cube]
impl Operator for WeightedMeanVar {
    type Inputs = Two;
    type Fields = Three;
    type Results = Two;

    const NAME: &'static str = "weighted_mean_var";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const DEFINITION: &'static Definition<Self> = crate::defined!(WeightedMeanVar);

    fn identity<N: Size>() -> Triple<A, B, C, N> {
        Triple::new(Vector::from_int(0), Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Triple<A, B, C, N>,
        pair: Pair<In, In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        let weight = Vector::<A, N>::cast_from(pair.second);
        let weights = accumulator.first + weight;
        // Not 1 less the share, which is 0 where the elements so far weigh little.
        let one = part_of::<A, N>(Vector::from_int(1), weights);
        let (rest, share) = (accumulator.first * one, weight * one);
        let mean = Vector::<A, N>::cast_from(accumulator.second);
        let distance = Vector::<A, N>::cast_from(pair.first) - mean;
        let variance = Vector::cast_from(accumulator.third);
        let variance = grown::<A, N>(variance, rest, share, distance, distance);
        Triple::new(
            weights,
            Vector::cast_from(mean + distance * share),
            Vector::cast_from(variance),
        )
    }

    fn merge<N: Size>(
        left: Triple<A, B, C, N>,
        right: Triple<A, B, C, N>,
        _parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        let weights = left.first + right.first;
        let rest = part_of::<A, N>(left.first, weights);
        let share = part_of::<A, N>(right.first, weights);
        let mean = Vector::<A, N>::cast_from(left.second);
        let other = Vector::<A, N>::cast_from(right.second);
        let distance = other - mean;
        let of_left = Vector::cast_from(left.third);
        let of_left = grown::<A, N>(of_left, rest, share, distance, distance);
        let of_right = Vector::<A, N>::cast_from(right.third) * share;
        Triple::new(
            weights,
            Vector::cast_from(mean_of_both::<A, N>(left.first, mean, other, share)),
            Vector::cast_from(of_left + of_right),
        )
    }

    fn finish<N: Size>(
        accumulator: Triple<A, B, C, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Pair<Out, Out2, N> {
        let nan = Vector::new(nan_or_lowest::<A>());
        let undefined = accumulator.first.equal(&Vector::from_int(0));
        let mean = select_many(undefined, nan, Vector::cast_from(accumulator.second));
        let variance = select_many(undefined, nan, Vector::cast_from(accumulator.third));
        Pair::new(Vector::cast_from(mean), Vector::cast_from(variance))
    }
}

/// The covariance: the sum of products of both inputs' distances from their means, divided by
/// `count - correction`. NaN of no elements.
///
/// One read, with the means so far (Welford, "Note on a method for calculating corrected sums of
/// squares and products", 1962). The accumulator holds the covariance so far and not Welford's sum
/// of products, which overflows before the covariance does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Covariance {
    /// Subtracted from the count: 0 for that of a population, 1 for that of a sample.
    pub correction: f64,
}

#[cube]
impl Operator for Covariance {
    type Inputs = Two;
    type Fields = Four;
    type Results = One;

    const NAME: &'static str = "covariance";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const PARAMETERS: ParameterRule<Self> =
        |operator| Ok(vec![not_negative("correction", operator.correction)?]);
    const DEFINITION: &'static Definition<Self> = crate::defined!(Covariance);

    fn identity<N: Size>() -> Quad<A, B, C, D, N> {
        let zero = Vector::from_int(0);
        Quad::new(zero, Vector::from_int(0), Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Quad<A, B, C, D, N>,
        pair: Pair<In, In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Quad<A, B, C, D, N> {
        // All components have seen the same number of elements, so one division serves all of them.
        let count = accumulator.first.extract(0usize) + A::from_int(1);
        let one_part = A::from_int(1) / count;
        let share = Vector::new(one_part);
        let rest = Vector::new(accumulator.first.extract(0usize) * one_part);
        let mean_x = Vector::<A, N>::cast_from(accumulator.second);
        let mean_y = Vector::<A, N>::cast_from(accumulator.third);
        let distance_x = Vector::<A, N>::cast_from(pair.first) - mean_x;
        let distance_y = Vector::<A, N>::cast_from(pair.second) - mean_y;
        let covariance = Vector::cast_from(accumulator.fourth);
        let covariance = grown::<A, N>(covariance, rest, share, distance_x, distance_y);
        Quad::new(
            Vector::new(count),
            Vector::cast_from(mean_x + distance_x * share),
            Vector::cast_from(mean_y + distance_y * share),
            Vector::cast_from(covariance),
        )
    }

    fn merge<N: Size>(
        left: Quad<A, B, C, D, N>,
        right: Quad<A, B, C, D, N>,
        _parameters: &Parameters,
    ) -> Quad<A, B, C, D, N> {
        let count = left.first + right.first;
        let rest = part_of::<A, N>(left.first, count);
        let share = part_of::<A, N>(right.first, count);
        let mean_x = Vector::<A, N>::cast_from(left.second);
        let mean_y = Vector::<A, N>::cast_from(left.third);
        let other_x = Vector::<A, N>::cast_from(right.second);
        let other_y = Vector::<A, N>::cast_from(right.third);
        let (distance_x, distance_y) = (other_x - mean_x, other_y - mean_y);
        let of_left = Vector::cast_from(left.fourth);
        let of_left = grown::<A, N>(of_left, rest, share, distance_x, distance_y);
        let of_right = Vector::<A, N>::cast_from(right.fourth) * share;
        Quad::new(
            count,
            Vector::cast_from(mean_of_both::<A, N>(left.first, mean_x, other_x, share)),
            Vector::cast_from(mean_of_both::<A, N>(left.first, mean_y, other_y, share)),
            Vector::cast_from(of_left + of_right),
        )
    }

    fn finish<N: Size>(
        accumulator: Quad<A, B, C, D, N>,
        count: usize,
        parameters: &Parameters,
    ) -> Value<Out, N> {
        let count = A::cast_from(count);
        let divisor = max(count - parameters.get::<A>(0usize), A::from_int(0));
        let covariance = Vector::<A, N>::cast_from(accumulator.fourth);
        Value::new(Vector::cast_from(covariance * Vector::new(count / divisor)))
    }
}
