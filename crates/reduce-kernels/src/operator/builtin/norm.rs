//! Vector norms.

use cubecl::prelude::*;

use super::{Sum, extrema::greater};
use crate::operator::{
    A, B, C, Definition, In, InvalidParameter, One, Operator, Out, Pair, ParameterRule, Parameters,
    Position, Three, Triple, Two, TypeRule, Value,
    derived::derived,
    element_wise::{constant, is_nan, magnitude},
    math::{pow, root},
    rules,
};

/// The L1 norm: the sum of magnitudes, in floating point; 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormL1;

/// The L2 norm: the square root of the sum of squares; 0 of no elements.
///
/// Squares may overflow or vanish although the norm is representable. The operator therefore adds
/// the squares of the elements as they are, scaled down, and scaled up, and takes the sum that is
/// in range.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormL2;

/// The L-infinity norm: the largest magnitude, in floating point; 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormInf;

/// The Lp norm: the p-th root of the sum of magnitudes to the p-th power; 0 of no elements.
///
/// Magnitudes are divided by the largest so far, so that powers do not overflow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormP {
    /// The exponent: finite and above 0.
    pub p: f64,
}

derived!(NormL1: One -> One = Sum, "norm_l1", rules::floating, before value => magnitude::<In, N>(value));

/// The factor that scales down: 2^-64, or 2^-512 in f64. The sum of the scaled squares is finite
/// unless the norm itself is infinite.
#[cube]
fn scale_down<E: Float>() -> E {
    constant::<E>(2f32.powi(-64), 2f64.powi(-512))
}

/// The factor that scales up: 2^63, or 2^511 in f64. The scaled square of a normal number is a
/// normal number.
#[cube]
fn scale_up<E: Float>() -> E {
    constant::<E>(2f32.powi(63), 2f64.powi(511))
}

/// The smallest sum of unscaled squares that is accurate: 2^-64, or 2^-912 in f64.
///
/// Squares below 2^-126, or 2^-1022, lose digits or vanish. With 2^32 elements, the sum lacks at
/// most 2^-94, or 2^-990, which is below its last digit. If the sum is smaller than the bound,
/// every element is smaller than the root of the bound, and the sum of the scaled-up squares is
/// finite.
#[cube]
fn least_plain_sum<E: Float>() -> E {
    constant::<E>(2f32.powi(-64), 2f64.powi(-912))
}

/// The sums of the squares of the elements: as they are, scaled down, and scaled up.
#[derive(CubeType, Clone, Copy)]
struct Squares<N: Size> {
    plain: Vector<A, N>,
    scaled_down: Vector<B, N>,
    scaled_up: Vector<C, N>,
}

#[cube]
fn squares<N: Size>(fields: Triple<A, B, C, N>) -> Squares<N> {
    Squares::<N> { plain: fields.first, scaled_down: fields.second, scaled_up: fields.third }
}

#[cube]
impl Operator for NormL2 {
    type Fields = Three;
    type Results = One;

    const NAME: &'static str = "norm_l2";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const DEFINITION: &'static Definition = crate::defined!(NormL2);

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
        let less = Vector::<B, N>::cast_from(value * Vector::new(scale_down::<A>()));
        let more = Vector::<C, N>::cast_from(value * Vector::new(scale_up::<A>()));
        let total = squares::<N>(accumulator);
        Triple::new(
            total.plain + value * value,
            total.scaled_down + less * less,
            total.scaled_up + more * more,
        )
    }

    fn merge<N: Size>(
        left: Triple<A, B, C, N>,
        right: Triple<A, B, C, N>,
        _parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        let left = squares::<N>(left);
        let right = squares::<N>(right);
        Triple::new(
            left.plain + right.plain,
            left.scaled_down + right.scaled_down,
            left.scaled_up + right.scaled_up,
        )
    }

    fn finish<N: Size>(
        accumulator: Triple<A, B, C, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        let one = Vector::<A, N>::from_int(1);
        let total = squares::<N>(accumulator);
        let sum = total.plain;
        let is_large = sum.greater_than(Vector::new(A::max_value()));
        let is_small = sum.less_than(Vector::new(least_plain_sum::<A>()));
        let scale = select_many(is_large, Vector::new(scale_down::<A>()), one);
        let scale = select_many(is_small, Vector::new(scale_up::<A>()), scale);
        let sum = select_many(is_large, Vector::cast_from(total.scaled_down), sum);
        let sum = select_many(is_small, Vector::cast_from(total.scaled_up), sum);
        // The root is divided by the scale, not the sum by its square, which is not representable.
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
    const DEFINITION: &'static Definition = crate::defined!(NormInf);

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

/// The largest magnitude, and the sum of the powers of magnitudes divided by it.
#[derive(CubeType, Clone, Copy)]
struct ScaledPowers<N: Size> {
    max: Vector<A, N>,
    sum: Vector<A, N>,
}

#[cube]
fn scaled_powers<N: Size>(fields: Pair<A, B, N>) -> ScaledPowers<N> {
    ScaledPowers::<N> { max: fields.first, sum: Vector::cast_from(fields.second) }
}

/// The accumulator of both sides: powers of magnitudes divided by the larger of the two maxima.
#[cube]
fn join<N: Size>(
    left: ScaledPowers<N>,
    right: ScaledPowers<N>,
    parameters: &Parameters,
) -> Pair<A, B, N> {
    let zero = Vector::from_int(0);
    let one = Vector::from_int(1);
    let grows = right.max.greater_than(left.max);
    let most = select_many(grows, right.max, left.max);
    let least = select_many(grows, left.max, right.max);
    // The ratio is between 0 and 1. It is 1 if both are equal, including two infinities and two
    // zeros.
    let ratio = select_many(least.equal(most), one, least / most);
    let power = pow::<A, N>(ratio, Vector::new(parameters.get::<A>(0usize)));
    let power = select_many(least.equal(zero), zero, power);
    let power = select_many(ratio.equal(one), one, power);
    let of_most = select_many(grows, right.sum, left.sum);
    let of_least = select_many(grows, left.sum, right.sum);
    Pair::new(most, Vector::cast_from(of_most + of_least * power))
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
    const DEFINITION: &'static Definition = crate::defined!(NormP);

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
        // Comparisons with NaN are false. A NaN therefore goes into the sum, which stays NaN.
        let is_nan = is_nan::<A, N>(size);
        let zero = Vector::<A, N>::from_int(0);
        let one = Vector::<A, N>::from_int(1);
        let own = select_many(size.equal(zero), zero, one);
        let element = ScaledPowers::<N> {
            max: select_many(is_nan, zero, size),
            sum: select_many(is_nan, size, own),
        };
        join::<N>(scaled_powers::<N>(accumulator), element, parameters)
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        parameters: &Parameters,
    ) -> Pair<A, B, N> {
        join::<N>(scaled_powers::<N>(left), scaled_powers::<N>(right), parameters)
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        _count: usize,
        parameters: &Parameters,
    ) -> Value<Out, N> {
        let total = scaled_powers::<N>(accumulator);
        let degree = Vector::new(parameters.get::<A>(0usize));
        let zero = Vector::<A, N>::from_int(0);
        let norm = total.max * root::<A, N>(total.sum, degree);
        let norm = select_many(total.sum.equal(zero), zero, norm);
        // Backends differ in the powers of NaN.
        let is_nan = is_nan::<A, N>(total.sum);
        Value::new(Vector::cast_from(select_many(is_nan, total.sum, norm)))
    }
}

fn exponent(p: f64) -> Result<Vec<f64>, InvalidParameter> {
    if p.is_finite() && p > 0.0 {
        Ok(vec![p])
    } else {
        Err(InvalidParameter { name: "p", value: p, expected: "a finite number above 0" })
    }
}
