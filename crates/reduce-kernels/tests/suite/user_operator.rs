//! Operators written against the public API alone: an accumulator of two fields, and one that
//! carries positions. Every schedule and layout must run them.

use rand::{Rng, rngs::StdRng};
use reduce_kernels::{
    ElementType, Max, Min, Operator,
    cubecl::{self, prelude::*},
    operator::{Pair, Position, Signature, Two, TypeRule, Types, Value, rules},
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

/// Both operators through every schedule on every layout of the corpus.
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
        for plan in plans(&first, &device) {
            check::<R, FirstMaximum, f32, u32>(&client, &case, Some(plan), runs).unwrap();
            runs += 1;
        }
    }
    println!("{}: {runs} runs", R::name(&client));
}
