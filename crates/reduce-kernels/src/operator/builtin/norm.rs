//! Vector norms.

use cubecl::prelude::*;

use super::{Sum, extrema::greater, sum::sum_of};
use crate::operator::{
    A, B, C, In, InvalidParameter, One, Operator, Out, Pair, ParameterRule, Parameters, Position,
    Three, Triple, Two, TypeRule, Value,
    element_wise::{constant, is_nan, magnitude},
    math::{pow, root},
    rules,
};

/// The L1 norm: the sum of magnitudes, in floating point; 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormL1;

/// The L2 norm: the square root of the sum of squares; 0 of no elements. Squares that overflow or vanish on
/// the way do no harm: the same sum is taken of elements scaled down and scaled up, and the one that is in
/// range counts.
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

sum_of!(NormL1, "norm_l1", rules::floating: value => magnitude::<In, N>(value));

/// Scales down, by 2^-64 or 2^-512 in f64: squares have no infinite sum unless the norm is infinite.
#[cube]
fn down<E: Float>() -> E {
    constant::<E>(2f32.powi(-64), 2f64.powi(-512))
}

/// Scales up, by 2^63 or 2^511 in f64: squares of all that is not denormal are not denormal either.
#[cube]
fn up<E: Float>() -> E {
    constant::<E>(2f32.powi(63), 2f64.powi(511))
}

/// From here on the sum of unscaled squares has all its digits, 2^-64 or 2^-912: it lacks what squares up
/// to 2^-126 or 2^-1022 have lost, at most 2^-94 or 2^-990 if there are 2^32 of them. Elements below its
/// root, scaled up, have no infinite sum.
#[cube]
fn enough<E: Float>() -> E {
    constant::<E>(2f32.powi(-64), 2f64.powi(-912))
}

#[cube]
impl Operator for NormL2 {
    type Fields = Three;
    type Results = One;

    const NAME: &'static str = "norm_l2";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;

    /// The sums of squares: of elements as they are, scaled down, and scaled up.
    fn identity<N: Size>() -> Triple<A, B, C, N> {
        Triple::new(Vector::from_int(0), Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Triple<A, B, C, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        let value = Vector::<A, N>::cast_from(value);
        let less = Vector::<B, N>::cast_from(value * Vector::new(down::<A>()));
        let more = Vector::<C, N>::cast_from(value * Vector::new(up::<A>()));
        Triple::new(
            accumulator.first + value * value,
            accumulator.second + less * less,
            accumulator.third + more * more,
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
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        let one = Vector::<A, N>::from_int(1);
        let sum = accumulator.first;
        let is_large = sum.greater_than(Vector::new(A::max_value()));
        let is_small = sum.less_than(Vector::new(enough::<A>()));
        let scale = select_many(is_large, Vector::new(down::<A>()), one);
        let scale = select_many(is_small, Vector::new(up::<A>()), scale);
        let sum = select_many(is_large, Vector::cast_from(accumulator.second), sum);
        let sum = select_many(is_small, Vector::cast_from(accumulator.third), sum);
        // The root is scaled, not the sum: the squares of these scales are beyond the type.
        Value::new(Vector::cast_from(sum.sqrt() / scale))
    }
}

#[cube]
impl Operator for NormInf {
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "norm_inf";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;

    fn identity<N: Size>() -> Value<A, N> {
        Value::new(Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Value<A, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        let size = Vector::<A, N>::cast_from(value).abs();
        Value::new(greater::<A, N>(accumulator.value, size))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(greater::<A, N>(left.value, right.value))
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
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
    let power = pow::<E, N>(ratio, Vector::new(parameters.get::<E>(0usize)));
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
    const NATIVE_MATH: bool = false;
    const PARAMETERS: ParameterRule<Self> = |norm| exponent(norm.p);

    /// The greatest magnitude, and the sum of powers of magnitudes divided by it.
    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let size = Vector::<A, N>::cast_from(value).abs();
        // A NaN compares with nothing: it goes into the sum, and stays there.
        let is_nan = is_nan::<A, N>(size);
        let zero = Vector::<A, N>::from_int(0);
        let one = Vector::<A, N>::from_int(1);
        let own = select_many(size.equal(zero), zero, one);
        let element = Pair::new(
            select_many(is_nan, zero, size),
            Vector::cast_from(select_many(is_nan, size, own)),
        );
        NormP::merge::<N>(accumulator, element, parameters)
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let left = Pair::new(left.first, Vector::<A, N>::cast_from(left.second));
        let right = Pair::new(right.first, Vector::<A, N>::cast_from(right.second));
        let both = join::<A, N>(left, right, parameters);
        Pair::new(both.first, Vector::cast_from(both.second))
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        parameters: &Parameters,
    ) -> Value<Out, N> {
        let degree = Vector::new(parameters.get::<A>(0usize));
        let sum = Vector::<A, N>::cast_from(accumulator.second);
        let zero = Vector::<A, N>::from_int(0);
        let norm = accumulator.first * root::<A, N>(sum, degree);
        let norm = select_many(sum.equal(zero), zero, norm);
        // Powers of NaN are not the same everywhere.
        Value::new(Vector::cast_from(select_many(is_nan::<A, N>(sum), sum, norm)))
    }
}

fn exponent(p: f64) -> Result<Vec<f64>, InvalidParameter> {
    if p.is_finite() && p > 0.0 {
        Ok(vec![p])
    } else {
        Err(InvalidParameter { name: "p", value: p, expected: "a finite number above 0" })
    }
}
