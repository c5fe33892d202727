//! Variance, standard deviation, and mean with variance.
//!
//! The accumulator is Welford's ("Note on a method for calculating corrected sums of squares and
//! products", 1962), merged as Chan, Golub and LeVeque do ("Updating formulae and a pairwise algorithm
//! for computing sample variances", 1979), with two precautions:
//!
//! - Means are held as a distance from the first element: near 1e8, an f32 is off by 4, its distance
//!   from a neighbour is not.
//! - Deviations are scaled by a power of two before they are squared, so that those of 1e20 do not
//!   overflow and those of 1e-30 do not vanish. The scale follows the largest deviation so far.

use core::ops::Not;

use cubecl::prelude::*;

use super::{
    FieldsOf, Five, InvalidParameter, One, Operator, Pair, ParameterRule, Parameters, Position,
    Quint, Two, TypeRule, Types, Value,
    element_wise::{constant, is_finite, is_nan, nan_or_lowest},
    rules,
};

/// The variance: the mean of squared deviations from the mean, times
/// `count / (count - correction)`. NaN of no elements, and where an element is infinite or NaN; where
/// `correction` leaves nothing to divide by, a division by 0 as in IEEE 754.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Var {
    /// What is subtracted from the number of elements: 0 for the variance of a population, 1 for
    /// Bessel's correction (NumPy's `ddof`).
    pub correction: f64,
}

/// The standard deviation: the square root of [`Var`], representable even where that is not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Std {
    /// As [`Var::correction`].
    pub correction: f64,
}

/// The mean and the variance, in this order, in one read. Both are NaN where [`Var`] is for an
/// element's sake: also the mean of infinities, which [`Mean`](super::Mean) keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanVar {
    /// As [`Var::correction`].
    pub correction: f64,
}

/// [`Var`] of the elements that are not NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NanVar {
    /// As [`Var::correction`].
    pub correction: f64,
}

/// [`Std`] of the elements that are not NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NanStd {
    /// As [`Var::correction`].
    pub correction: f64,
}

/// Count, first element, mean less first element, scaled variance, scale. Counts in floating point are
/// exact up to 2^24 in f32, and round beyond without wrapping.
type Moments<E, N> = Quint<E, E, E, E, E, N>;

/// Neighbouring scales differ by this factor, whose square is no underflow.
#[cube]
fn step<E: Float>() -> E {
    constant::<E>(2f32.powi(60), 2f64.powi(400))
}

/// The greatest scaled deviation that is squared: 2^32 such squares have a finite sum.
#[cube]
fn limit<E: Float>() -> E {
    constant::<E>(2f32.powi(40), 2f64.powi(300))
}

/// The scale for a deviation: a power of [`step`] that keeps it below [`limit`].
#[cube]
fn scale_of<E: Float, N: Size>(deviation: Vector<E, N>) -> Vector<E, N> {
    let size = deviation.abs();
    let step = Vector::new(step::<E>());
    let limit = Vector::new(limit::<E>());
    let one = Vector::<E, N>::from_int(1);
    let scale = select_many((size * step).less_equal(limit), step, one);
    let large = size.greater_than(limit);
    let huge = (size / step).greater_than(limit);
    let scale = select_many(large, one / step, scale);
    select_many(huge, one / step / step, scale)
}

/// No elements.
#[cube]
fn empty<E: Float, N: Size>() -> Moments<E, N> {
    let zero = Vector::from_int(0);
    Quint::new(zero, zero, zero, zero, Vector::new(step::<E>()))
}

/// Welford's step. All lanes have seen equally many elements, so one division serves all.
#[cube]
fn take<E: Float, N: Size>(accumulator: Moments<E, N>, value: Vector<E, N>) -> Moments<E, N> {
    let mut origin = accumulator.second;
    let mut spread = accumulator.fourth;
    let mut scale = accumulator.fifth;
    if accumulator.first[0] == E::from_int(0) {
        origin = value;
        scale = scale_of::<E, N>(value);
    }
    let count = accumulator.first + Vector::from_int(1);
    let share = E::from_int(1) / count[0];
    let deviation = value - origin - accumulator.third;
    let mean = accumulator.third + deviation * Vector::new(share);
    let mut scaled = deviation * scale;
    let mut excess = false;
    #[unroll]
    for lane in 0..N::value().comptime() {
        excess = excess || scaled[lane].abs() > limit::<E>();
    }
    if excess {
        let wider = min(scale, scale_of::<E, N>(deviation));
        let ratio = wider / scale;
        spread = spread * ratio * ratio;
        scale = wider;
        scaled = deviation * scale;
    }
    let grown = spread + scaled * scaled * Vector::new(share);
    let spread = grown * Vector::new(E::from_int(1) - share);
    Quint::new(count, origin, mean, spread, scale)
}

/// Chan's merging.
#[cube]
fn join<E: Float, N: Size>(left: Moments<E, N>, right: Moments<E, N>) -> Moments<E, N> {
    let count = left.first + right.first;
    let share = right.first / max(count, Vector::from_int(1));
    let rest = Vector::from_int(1) - share;
    // An empty side stands where the other does, so that it adds neither deviation nor NaN.
    let left_empty = left.first.equal(Vector::from_int(0));
    let right_empty = right.first.equal(Vector::from_int(0));
    let origin = select_many(left_empty, right.second, left.second);
    let mean = select_many(left_empty, right.third, left.third);
    let right_origin = select_many(right_empty, origin, right.second);
    let right_mean = select_many(right_empty, mean, right.third);
    let deviation = (right_origin - origin) + (right_mean - mean);
    let scale = min(min(left.fifth, right.fifth), scale_of::<E, N>(deviation));
    let left_ratio = scale / left.fifth;
    let right_ratio = scale / right.fifth;
    let left_spread = left.fourth * left_ratio * left_ratio;
    let right_spread = right.fourth * right_ratio * right_ratio;
    let scaled = deviation * scale;
    let between = scaled * scaled * share * rest;
    let spread = left_spread * rest + right_spread * share + between;
    Quint::new(count, origin, mean + deviation * share, spread, scale)
}

/// An element alone; nothing where it is NaN.
#[cube]
fn alone<E: Float, N: Size>(value: Vector<E, N>) -> Moments<E, N> {
    let nan = is_nan::<E, N>(value);
    let zero = Vector::from_int(0);
    let element = select_many(nan, zero, value);
    let count = select_many(nan, zero, Vector::from_int(1));
    // What is infinite deviates from any mean by infinity.
    let infinite = is_finite::<E, N>(element).not();
    let spread = select_many(infinite, element.abs(), zero);
    Quint::new(count, element, zero, spread, scale_of::<E, N>(element))
}

/// The scaled variance times `count / (count - correction)`: an infinity or NaN where nothing is left
/// to divide by, NaN where an element was not finite.
#[cube]
fn corrected<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    count: Vector<E, N>,
    parameters: &Parameters,
) -> Vector<E, N> {
    let correction = Vector::new(parameters.get::<E>(0usize));
    let spread = accumulator.fourth * (count / max(count - correction, Vector::from_int(0)));
    let nan = Vector::new(nan_or_lowest::<E>());
    let defined = is_finite::<E, N>(accumulator.fourth)
        .and(count.not_equal(Vector::from_int(0)))
        // 0 / 0, which is not NaN everywhere.
        .and(accumulator.fourth.not_equal(Vector::from_int(0)).or(count.greater_than(correction)));
    select_many(defined, spread, nan)
}

#[cube]
fn variance<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    count: Vector<E, N>,
    parameters: &Parameters,
) -> Vector<E, N> {
    let scaled = corrected::<E, N>(accumulator, count, parameters);
    // A compiler may square the scale first, and the squares of the coarsest vanish.
    let variance = scaled / accumulator.fifth / accumulator.fifth;
    select_many(scaled.equal(Vector::from_int(0)), scaled, variance)
}

#[cube]
fn deviation<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    count: Vector<E, N>,
    parameters: &Parameters,
) -> Vector<E, N> {
    corrected::<E, N>(accumulator, count, parameters).sqrt() / accumulator.fifth
}

/// The mean; NaN of nothing, and where an element was not finite.
#[cube]
fn mean<E: Float, N: Size>(accumulator: Moments<E, N>) -> Vector<E, N> {
    let defined =
        is_finite::<E, N>(accumulator.fourth).and(accumulator.first.not_equal(Vector::from_int(0)));
    let nan = Vector::new(nan_or_lowest::<E>());
    select_many(defined, accumulator.second + accumulator.third, nan)
}

/// The accumulator of the types `T`, whose fields are all of type [`Types::A`].
#[cube]
fn uniform<T: Types, N: Size>(accumulator: FieldsOf<Five, T, N>) -> Moments<T::A, N> {
    Quint::new(
        accumulator.first,
        Vector::cast_from(accumulator.second),
        Vector::cast_from(accumulator.third),
        Vector::cast_from(accumulator.fourth),
        Vector::cast_from(accumulator.fifth),
    )
}

/// The reverse of [`uniform`].
#[cube]
fn typed<T: Types, N: Size>(accumulator: Moments<T::A, N>) -> FieldsOf<Five, T, N> {
    Quint::new(
        accumulator.first,
        Vector::cast_from(accumulator.second),
        Vector::cast_from(accumulator.third),
        Vector::cast_from(accumulator.fourth),
        Vector::cast_from(accumulator.fifth),
    )
}

macro_rules! spread {
    (
        $operator:ident, $name:literal, $results:ident -> $result:ty,
        push $accumulator:ident, $value:ident: $push:expr,
        finish $total:ident, $count:ident, $parameters:ident: $finish:expr
    ) => {
        #[cube]
        impl Operator for $operator {
            type Fields = Five;
            type Results = $results;

            const NAME: &'static str = $name;
            const DEFINED_ON_EMPTY: bool = true;
            const TYPES: TypeRule = rules::floating;
            const PAIRWISE: bool = true;
            const PARAMETERS: ParameterRule<Self> = |operator| correction(operator.correction);

            fn identity<T: Types, N: Size>() -> FieldsOf<Five, T, N> {
                typed::<T, N>(empty::<T::A, N>())
            }

            fn push<T: Types, N: Size>(
                accumulator: FieldsOf<Five, T, N>,
                value: Vector<T::In, N>,
                _position: Position,
                _parameters: &Parameters,
            ) -> FieldsOf<Five, T, N> {
                let $accumulator = uniform::<T, N>(accumulator);
                let $value = Vector::cast_from(value);
                typed::<T, N>($push)
            }

            fn merge<T: Types, N: Size>(
                left: FieldsOf<Five, T, N>,
                right: FieldsOf<Five, T, N>,
                _parameters: &Parameters,
            ) -> FieldsOf<Five, T, N> {
                let left = uniform::<T, N>(left);
                let right = uniform::<T, N>(right);
                typed::<T, N>(join::<T::A, N>(left, right))
            }

            fn finish<T: Types, N: Size>(
                accumulator: FieldsOf<Five, T, N>,
                count: usize,
                $parameters: &Parameters,
            ) -> $result {
                let $total = uniform::<T, N>(accumulator);
                let $count = Vector::<T::A, N>::cast_from(count);
                $finish
            }
        }
    };
}

spread!(
    Var, "var", One -> Value<T::Out, N>,
    push accumulator, value: take::<T::A, N>(accumulator, value),
    finish total, count, parameters:
        Value::new(Vector::cast_from(variance::<T::A, N>(total, count, parameters)))
);
spread!(
    Std, "std", One -> Value<T::Out, N>,
    push accumulator, value: take::<T::A, N>(accumulator, value),
    finish total, count, parameters:
        Value::new(Vector::cast_from(deviation::<T::A, N>(total, count, parameters)))
);
spread!(
    MeanVar, "mean_var", Two -> Pair<T::Out, T::Out2, N>,
    push accumulator, value: take::<T::A, N>(accumulator, value),
    finish total, count, parameters: Pair::new(
        Vector::cast_from(mean::<T::A, N>(total)),
        Vector::cast_from(variance::<T::A, N>(total, count, parameters))
    )
);
spread!(
    NanVar, "nanvar", One -> Value<T::Out, N>,
    push accumulator, value: join::<T::A, N>(accumulator, alone::<T::A, N>(value)),
    finish total, _count, parameters:
        Value::new(Vector::cast_from(variance::<T::A, N>(total, total.first, parameters)))
);
spread!(
    NanStd, "nanstd", One -> Value<T::Out, N>,
    push accumulator, value: join::<T::A, N>(accumulator, alone::<T::A, N>(value)),
    finish total, _count, parameters:
        Value::new(Vector::cast_from(deviation::<T::A, N>(total, total.first, parameters)))
);

fn correction(correction: f64) -> Result<Vec<f64>, InvalidParameter> {
    if correction.is_finite() && correction >= 0.0 {
        Ok(vec![correction])
    } else {
        let expected = "a finite number, 0 or more";
        Err(InvalidParameter { name: "correction", value: correction, expected })
    }
}
