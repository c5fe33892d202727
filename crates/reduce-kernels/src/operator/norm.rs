//! Vector norms.

use cubecl::prelude::*;

use super::{
    InvalidParameter, One, Operator, Pair, ParameterRule, Parameters, Position, Sum, Three, Triple,
    Two, TypeRule, Types, Value,
    element_wise::{constant, is_nan, magnitude},
    extrema::greater,
    rules,
    sum::sum_of,
};

/// The L1 norm: the sum of magnitudes, in floating point; 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormL1;

/// The L2 norm: the square root of the sum of squares; 0 of no elements. Squares neither overflow nor
/// vanish on the way: magnitudes fall into three ranges, each with a scale and a sum of its own (Blue,
/// "A portable Fortran program to find the Euclidean norm of a vector", 1978).
#[derive(Clone, Copy, Debug, Default)]
pub struct NormL2;

/// The L-infinity norm: the greatest magnitude, in floating point; 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormInf;

/// The Lp norm: the p-th root of the sum of magnitudes to the p-th power; 0 of no elements.
/// Magnitudes are divided by the greatest so far, so that powers do not overflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormP {
    /// The exponent: finite and above 0.
    pub p: f64,
}

sum_of!(NormL1, "norm_l1", rules::floating: value => magnitude::<T::In, N>(value));

/// From here on magnitudes count as large: 2^32 squares of lesser ones stay finite.
#[cube]
fn large<E: Float>() -> E {
    constant::<E>(2f32.powi(40), 2f64.powi(400))
}

/// Up to here magnitudes count as small: squares of greater ones keep all their digits.
#[cube]
fn small<E: Float>() -> E {
    constant::<E>(2f32.powi(-50), 2f64.powi(-400))
}

/// What large magnitudes are scaled by.
#[cube]
fn down<E: Float>() -> E {
    constant::<E>(2f32.powi(-80), 2f64.powi(-600))
}

/// What small magnitudes are scaled by.
#[cube]
fn up<E: Float>() -> E {
    constant::<E>(2f32.powi(90), 2f64.powi(600))
}

#[cube]
impl Operator for NormL2 {
    type Fields = Three;
    type Results = One;

    const NAME: &'static str = "norm_l2";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;

    /// The sums of large, medium and small squares.
    fn identity<T: Types, N: Size>() -> Triple<T::A, T::B, T::C, N> {
        Triple::new(Vector::from_int(0), Vector::from_int(0), Vector::from_int(0))
    }

    fn push<T: Types, N: Size>(
        accumulator: Triple<T::A, T::B, T::C, N>,
        value: Vector<T::In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Triple<T::A, T::B, T::C, N> {
        let size = Vector::<T::A, N>::cast_from(value).abs();
        let is_large = size.greater_than(Vector::new(large::<T::A>()));
        let is_small = size.less_than(Vector::new(small::<T::A>()));
        let one = Vector::<T::A, N>::from_int(1);
        let zero = Vector::<T::A, N>::from_int(0);
        let scale = select_many(is_small, Vector::new(up::<T::A>()), one);
        let scale = select_many(is_large, Vector::new(down::<T::A>()), scale);
        let scaled = size * scale;
        let square = scaled * scaled;
        let medium = select_many(is_large.or(is_small), zero, square);
        Triple::new(
            accumulator.first + select_many(is_large, square, zero),
            accumulator.second + Vector::cast_from(medium),
            accumulator.third + Vector::cast_from(select_many(is_small, square, zero)),
        )
    }

    fn merge<T: Types, N: Size>(
        left: Triple<T::A, T::B, T::C, N>,
        right: Triple<T::A, T::B, T::C, N>,
        _parameters: &Parameters,
    ) -> Triple<T::A, T::B, T::C, N> {
        Triple::new(left.first + right.first, left.second + right.second, left.third + right.third)
    }

    fn finish<T: Types, N: Size>(
        accumulator: Triple<T::A, T::B, T::C, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<T::Out, N> {
        let zero = Vector::<T::A, N>::from_int(0);
        let down = Vector::new(down::<T::A>());
        let up = Vector::new(up::<T::A>());
        let medium = Vector::<T::A, N>::cast_from(accumulator.second);
        let small = Vector::<T::A, N>::cast_from(accumulator.third);
        // Roots are scaled, not squares: the squares of these scales are beyond f32, and a compiler may
        // multiply constants first.
        let medium_below = medium.sqrt() * down;
        let small_below = small.sqrt() / up;
        let of_large = (accumulator.first + medium_below * medium_below).sqrt() / down;
        let of_medium = (medium + small_below * small_below).sqrt();
        let of_small = small_below;
        let norm = select_many(medium.equal(zero), of_small, of_medium);
        let norm = select_many(accumulator.first.greater_than(zero), of_large, norm);
        Value::new(Vector::cast_from(norm))
    }
}

#[cube]
impl Operator for NormInf {
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "norm_inf";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;

    fn identity<T: Types, N: Size>() -> Value<T::A, N> {
        Value::new(Vector::from_int(0))
    }

    fn push<T: Types, N: Size>(
        accumulator: Value<T::A, N>,
        value: Vector<T::In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<T::A, N> {
        let size = Vector::<T::A, N>::cast_from(value).abs();
        Value::new(greater::<T::A, N>(accumulator.value, size))
    }

    fn merge<T: Types, N: Size>(
        left: Value<T::A, N>,
        right: Value<T::A, N>,
        _parameters: &Parameters,
    ) -> Value<T::A, N> {
        Value::new(greater::<T::A, N>(left.value, right.value))
    }

    fn finish<T: Types, N: Size>(
        accumulator: Value<T::A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<T::Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

/// Two sums of powers, each of magnitudes divided by a greatest one.
#[cube]
fn join<E: Float, N: Size>(
    left: Pair<E, E, N>,
    right: Pair<E, E, N>,
    parameters: &Parameters,
) -> Pair<E, E, N> {
    let zero = Vector::from_int(0);
    let one = Vector::from_int(1);
    let grows = right.first.greater_than(left.first);
    let most = select_many(grows, right.first, left.first);
    let least = select_many(grows, left.first, right.first);
    // Between 0 and 1; 1 where both are the same, infinite or 0.
    let ratio = select_many(least.equal(most), one, least / most);
    let power = ratio.powf(Vector::new(parameters.get::<E>(0usize)));
    let power = select_many(least.equal(zero), zero, power);
    let power = select_many(ratio.equal(one), one, power);
    let of_most = select_many(grows, right.second, left.second);
    let of_least = select_many(grows, left.second, right.second);
    Pair::new(most, of_most + of_least * power)
}

#[cube]
impl Operator for NormP {
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "norm_p";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const TRANSCENDENTAL: bool = true;
    const PARAMETERS: ParameterRule<Self> = |norm| exponent(norm.p);

    /// The greatest magnitude, and the sum of powers of magnitudes divided by it.
    fn identity<T: Types, N: Size>() -> Pair<T::A, T::B, N> {
        Pair::new(Vector::from_int(0), Vector::from_int(0))
    }

    fn push<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        value: Vector<T::In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Pair<T::A, T::B, N> {
        let size = Vector::<T::A, N>::cast_from(value).abs();
        // A NaN compares with nothing: it goes into the sum, and stays there.
        let is_nan = is_nan::<T::A, N>(size);
        let zero = Vector::<T::A, N>::from_int(0);
        let one = Vector::<T::A, N>::from_int(1);
        let own = select_many(size.equal(zero), zero, one);
        let element = Pair::new(
            select_many(is_nan, zero, size),
            Vector::cast_from(select_many(is_nan, size, own)),
        );
        NormP::merge::<T, N>(accumulator, element, parameters)
    }

    fn merge<T: Types, N: Size>(
        left: Pair<T::A, T::B, N>,
        right: Pair<T::A, T::B, N>,
        parameters: &Parameters,
    ) -> Pair<T::A, T::B, N> {
        let left = Pair::new(left.first, Vector::<T::A, N>::cast_from(left.second));
        let right = Pair::new(right.first, Vector::<T::A, N>::cast_from(right.second));
        let both = join::<T::A, N>(left, right, parameters);
        Pair::new(both.first, Vector::cast_from(both.second))
    }

    fn finish<T: Types, N: Size>(
        accumulator: Pair<T::A, T::B, N>,
        _count: usize,
        parameters: &Parameters,
    ) -> Value<T::Out, N> {
        let root = Vector::<T::A, N>::from_int(1) / Vector::new(parameters.get::<T::A>(0usize));
        let sum = Vector::<T::A, N>::cast_from(accumulator.second);
        let zero = Vector::<T::A, N>::from_int(0);
        let norm = accumulator.first * sum.powf(root);
        let norm = select_many(sum.equal(zero), zero, norm);
        // Powers of NaN are not the same everywhere.
        Value::new(Vector::cast_from(select_many(is_nan::<T::A, N>(sum), sum, norm)))
    }
}

fn exponent(p: f64) -> Result<Vec<f64>, InvalidParameter> {
    if p.is_finite() && p > 0.0 {
        Ok(vec![p])
    } else {
        Err(InvalidParameter { name: "p", value: p, expected: "a finite number above 0" })
    }
}
