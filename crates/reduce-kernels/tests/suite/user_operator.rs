//! Operators written against the public API alone: accumulators of two and three fields, and one
//! that carries positions. Every schedule and layout must run them.

use rand::{Rng, rngs::StdRng};
use reduce_kernels::{
    ElementType, Max, Min, Operator,
    cubecl::{self, prelude::*},
    operator::{Pair, Position, Signature, Three, Triple, Two, TypeRule, Types, Value, rules},
    reduce,
};

use crate::{
    corpus::corpus,
    run::{Checked, check, client, device_with_planes, plans, tensor},
};

/// Largest less smallest element.
pub struct PeakToPeak;

#[cube]
impl Operator for PeakToPeak {
    type Fields = Two;

    const NAME: &'static str = "peak to peak";
    const POSITIONAL: bool = false;
    const DEFINED_ON_EMPTY: bool = false;
    const TYPES: TypeRule = rules::floating;

    fn identity<T: Types, N: Size>() -> Pair<T::A, T::B, N> {
        Pair::new(Max::identity::<T, N>().value, Vector::cast_from(Min::identity::<T, N>().value))
    }

    fn push<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        value: Vector<T::In, N>,
        _position: Position,
    ) -> Pair<T::A, T::B, N> {
        Self::merge::<T, N>(
            accumulator,
            Pair::new(Vector::cast_from(value), Vector::cast_from(value)),
        )
    }

    fn merge<T: Types, N: Size>(
        left: Pair<T::A, T::B, N>,
        right: Pair<T::A, T::B, N>,
    ) -> Pair<T::A, T::B, N> {
        let high = Max::merge::<T, N>(Value::new(left.first), Value::new(right.first));
        let less = right.second.less_than(left.second);
        Pair::new(high.value, select_many(less, right.second, left.second))
    }

    fn finish<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        _count: usize,
    ) -> Vector<T::Out, N> {
        Vector::cast_from(accumulator.first - Vector::cast_from(accumulator.second))
    }
}

impl Checked for PeakToPeak {
    fn naive(values: &[f64]) -> f64 {
        Max::naive(values) - Min::naive(values)
    }
}

/// Population variance from count, mean and sum of squared deviations, merged as Chan, Golub and
/// LeVeque do ("Updating formulae and a pairwise algorithm for computing sample variances", 1979).
pub struct Variance;

fn three_floats(input: ElementType, output: Option<ElementType>) -> Option<Signature> {
    let f32 = ElementType::F32;
    (input == f32 && output.unwrap_or(f32) == f32).then(|| Signature::three([f32; 3], f32))
}

#[cube]
impl Operator for Variance {
    type Fields = Three;

    const NAME: &'static str = "variance";
    const POSITIONAL: bool = false;
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = three_floats;

    fn identity<T: Types, N: Size>() -> Triple<T::A, T::B, T::C, N> {
        Triple::new(Vector::from_int(0), Vector::from_int(0), Vector::from_int(0))
    }

    fn push<T: Types, N: Size>(
        accumulator: Triple<T::A, T::B, T::C, N>,
        value: Vector<T::In, N>,
        _position: Position,
    ) -> Triple<T::A, T::B, T::C, N> {
        let element =
            Triple::new(Vector::from_int(1), Vector::cast_from(value), Vector::from_int(0));
        Self::merge::<T, N>(accumulator, element)
    }

    fn merge<T: Types, N: Size>(
        left: Triple<T::A, T::B, T::C, N>,
        right: Triple<T::A, T::B, T::C, N>,
    ) -> Triple<T::A, T::B, T::C, N> {
        let count = left.first + right.first;
        // 1 instead of 0: the weights of two empty accumulators are 0, whatever they are shares of.
        let nonzero = max(count, Vector::from_int(1));
        let weight = right.first / nonzero;
        let delta = right.second - left.second;
        let mean = left.second + delta * Vector::cast_from(weight);
        let spread = delta * delta * Vector::cast_from(left.first * weight);
        Triple::new(count, mean, left.third + right.third + Vector::cast_from(spread))
    }

    fn finish<T: Types, N: Size>(
        accumulator: Triple<T::A, T::B, T::C, N>,
        count: usize,
    ) -> Vector<T::Out, N> {
        Vector::cast_from(accumulator.third / Vector::cast_from(count))
    }
}

impl Checked for Variance {
    fn naive(values: &[f64]) -> f64 {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64
    }
    /// Four roundings a step: the weight, the square, its product with the weight, the addition.
    fn scale(values: &[f64]) -> f64 {
        4.0 * values.iter().map(|value| value * value).sum::<f64>() / values.len() as f64
    }
}

/// Position of the first maximum. The identity stands behind every element.
pub struct FirstMaximum;

fn value_and_index(input: ElementType, output: Option<ElementType>) -> Option<Signature> {
    let output = output.unwrap_or(ElementType::U32);
    let float = input == ElementType::F32 && output == ElementType::U32;
    float.then(|| Signature::two(input, ElementType::U32, output))
}

#[cube]
impl Operator for FirstMaximum {
    type Fields = Two;

    const NAME: &'static str = "first maximum";
    const POSITIONAL: bool = true;
    const DEFINED_ON_EMPTY: bool = false;
    const TYPES: TypeRule = value_and_index;

    fn identity<T: Types, N: Size>() -> Pair<T::A, T::B, N> {
        Pair::new(Max::identity::<T, N>().value, Vector::new(T::B::max_value()))
    }

    fn push<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        value: Vector<T::In, N>,
        position: Position,
    ) -> Pair<T::A, T::B, N> {
        let element = Pair::new(Vector::cast_from(value), position.lanes::<T::B, N>());
        Self::merge::<T, N>(accumulator, element)
    }

    fn merge<T: Types, N: Size>(
        left: Pair<T::A, T::B, N>,
        right: Pair<T::A, T::B, N>,
    ) -> Pair<T::A, T::B, N> {
        let greater = right.first.greater_than(left.first);
        let equal = right.first.equal(left.first);
        let taken = greater.or(equal.and(right.second.less_than(left.second)));
        Pair::new(
            select_many(taken, right.first, left.first),
            select_many(taken, right.second, left.second),
        )
    }

    fn finish<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        _count: usize,
    ) -> Vector<T::Out, N> {
        Vector::cast_from(accumulator.second)
    }
}

impl Checked for FirstMaximum {
    fn naive(values: &[f64]) -> f64 {
        let highest = Max::naive(values);
        values.iter().position(|&value| value == highest).unwrap() as f64
    }
    /// Few distinct values, so that ties are the rule.
    fn sample(rng: &mut StdRng, _: usize) -> f64 {
        f64::from(rng.random_range(-3i32..=3))
    }
    fn scale(_: &[f64]) -> f64 {
        0.0
    }
}

/// All three through every schedule on every layout of the corpus.
pub fn under_every_schedule<R: Runtime>() {
    let client = client::<R>();
    let device = device_with_planes(&client);
    let mut runs = 0;
    for case in corpus() {
        let data = vec![0f32; case.span()];
        let input = tensor(&client, &data, &case.shape, &case.strides);
        let axes = case.axes.as_slice();
        let spread = reduce::<PeakToPeak, R>(&input).over(axes).problem().unwrap();
        let first = reduce::<FirstMaximum, R>(&input).over(axes).problem().unwrap();
        for plan in plans(&spread, &device) {
            check::<R, PeakToPeak, f32, f32>(&client, &case, Some(plan), runs).unwrap();
            runs += 1;
        }
        let variance = reduce::<Variance, R>(&input).over(axes).problem().unwrap();
        for plan in plans(&variance, &device) {
            check::<R, Variance, f32, f32>(&client, &case, Some(plan), runs).unwrap();
            runs += 1;
        }
        for plan in plans(&first, &device) {
            check::<R, FirstMaximum, f32, u32>(&client, &case, Some(plan), runs).unwrap();
            runs += 1;
        }
    }
    println!("{}: {runs} runs", R::name(&client));
}
