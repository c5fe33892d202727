//! Variance, standard deviation, and mean with variance.
//!
//! The accumulator holds an origin, and the sums of the elements' distances from it and of the squares of
//! these. Any origin gives the same variance, but for rounding: the squares exceed those of distances from
//! the mean by `n * (mean - origin)^2`. So the origin follows the mean:
//!
//! - It is the first element, and after 4, 16, 64, ... elements their mean. The squares are then at most
//!   four times those of distances from the mean: where `k` elements gave the origin and `m` others, up to
//!   `3 k`, lie `d` off, they are `m * d^2` and `k * m / (k + m) * d^2`.
//! - Where accumulators merge, it is the mean of both, as Chan, Golub and LeVeque merge ("Updating formulae
//!   and a pairwise algorithm for computing sample variances", 1979). What the origin rounds off stays in
//!   the sum of distances: near 1e8, an f32 is off by 4, its distance from a neighbour is not.
//!
//! An element costs a distance and two sums, and no division, as Welford's moving mean would.
//!
//! Elements are scaled by a power of two, so that squares of 1e20 do not overflow and those of 1e-30 do not
//! vanish. There are few scales, so that those of two accumulators are almost always equal.

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

/// Count, scaled origin, sum of scaled distances from it, sum of their squares, scale. Counts in floating
/// point are exact up to 2^24 in f32, and round beyond without wrapping.
type Moments<E, N> = Quint<E, E, E, E, E, N>;

/// Powers of 2^30, or of 2^200 in f64. Scales are the 4th, the 2nd, 1, and their inverses: the factor between
/// neighbours squared is no underflow.
#[cube]
fn power<E: Float>(#[comptime] exponent: i32) -> E {
    constant::<E>(2f32.powi(30 * exponent), 2f64.powi(200 * exponent))
}

/// The scale that brings an element down to the first [`power`], and not below the inverse of it if it can.
/// 2^32 squares then have a finite sum, and those of distances do not vanish: neighbouring numbers are
/// 2^-24 of their size apart, 2^-53 in f64.
#[cube]
fn scale_of<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let size = value.abs();
    let scale = Vector::new(power::<E>(-4));
    let scale = finer::<E, N>(scale, size, 3, -2);
    let scale = finer::<E, N>(scale, size, 1, 0);
    let scale = finer::<E, N>(scale, size, -1, 2);
    finer::<E, N>(scale, size, -3, 4)
}

/// Another scale for elements up to `most`.
#[cube]
fn finer<E: Float, N: Size>(
    scale: Vector<E, N>,
    size: Vector<E, N>,
    #[comptime] most: i32,
    #[comptime] other: i32,
) -> Vector<E, N> {
    let small = size.less_equal(Vector::new(power::<E>(most)));
    select_many(small, Vector::new(power::<E>(other)), scale)
}

/// Whether a scaled distance asks for a coarser scale.
#[cube]
fn any_far<E: Float, N: Size>(distance: Vector<E, N>) -> bool {
    let mut far = false;
    #[unroll]
    for lane in 0..N::value().comptime() {
        far = far || distance[lane].abs() > power::<E>(1);
    }
    far
}

/// No elements. The scale is the finest, so that the other side's counts where accumulators merge.
#[cube]
fn empty<E: Float, N: Size>() -> Moments<E, N> {
    let zero = Vector::from_int(0);
    Quint::new(zero, zero, zero, zero, Vector::new(power::<E>(4)))
}

/// The same elements at another scale.
#[cube]
fn rescaled<E: Float, N: Size>(total: Moments<E, N>, scale: Vector<E, N>) -> Moments<E, N> {
    let ratio = scale / total.fifth;
    let squares = total.fourth * ratio * ratio;
    Quint::new(total.first, total.second * ratio, total.third * ratio, squares, scale)
}

/// The same elements, seen from another origin.
#[cube]
fn moved<E: Float, N: Size>(total: Moments<E, N>, origin: Vector<E, N>) -> Moments<E, N> {
    let way = origin - total.second;
    let sum = total.third - total.first * way;
    let squares = total.fourth - way * (total.third + sum);
    Quint::new(total.first, origin, sum, squares, total.fifth)
}

/// Another origin where `count` is not 0. Compilers take `(origin + way) - origin` for `way`, also where the
/// addition rounds; they do not look through a choice that they cannot foresee.
#[cube]
fn further<E: Float, N: Size>(
    origin: Vector<E, N>,
    way: Vector<E, N>,
    count: Vector<E, N>,
) -> Vector<E, N> {
    select_many(count.greater_than(Vector::from_int(0)), origin + way, origin)
}

/// One element per lane, not counted yet, as the origin.
#[cube]
fn started<E: Float, N: Size>(value: Vector<E, N>) -> Moments<E, N> {
    let zero = Vector::from_int(0);
    let scale = scale_of::<E, N>(value);
    // An infinity has no distance from itself.
    let squares = select_many(is_finite::<E, N>(value), zero, value.abs());
    Quint::new(zero, value * scale, zero, squares, scale)
}

/// Each lane's `left` or `right`.
#[cube]
fn either<E: Float, N: Size>(
    is_left: Vector<bool, N>,
    left: Moments<E, N>,
    right: Moments<E, N>,
) -> Moments<E, N> {
    Quint::new(
        select_many(is_left, left.first, right.first),
        select_many(is_left, left.second, right.second),
        select_many(is_left, left.third, right.third),
        select_many(is_left, left.fourth, right.fourth),
        select_many(is_left, left.fifth, right.fifth),
    )
}

/// Takes one element per lane, but none that is NaN if it `skips` them. If not, all lanes have seen equally
/// many elements.
#[cube]
fn take<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    value: Vector<E, N>,
    #[comptime] skips: bool,
) -> Moments<E, N> {
    let zero = Vector::<E, N>::from_int(0);
    let one = Vector::<E, N>::from_int(1);
    let nan = is_nan::<E, N>(value);
    let value = if comptime![skips] { select_many(nan, zero, value) } else { value };
    let lanes = N::value().comptime();
    let mut total = accumulator;
    let mut starts = false;
    let mut turns = false;
    #[unroll]
    for lane in 0..comptime![if skips { lanes } else { 1 }] {
        let count = u32::cast_from(accumulator.first[lane]);
        let none = count == 0;
        let is_power_of_four = count & ((count - 1) | 0xaaaa_aaabu32) == 0;
        starts = starts || none;
        turns = turns || (is_power_of_four && !none);
    }
    if starts {
        let start = started::<E, N>(value);
        if comptime![skips] {
            // A lane that has seen nothing but NaN starts from 0 as if it were empty.
            total = either::<E, N>(total.first.equal(zero), start, total);
        } else {
            total = start;
        }
    }
    if turns {
        let share = if comptime![skips] {
            one / max(total.first, one)
        } else {
            Vector::new(E::from_int(1) / total.first[0])
        };
        total =
            moved::<E, N>(total, further::<E, N>(total.second, total.third * share, total.first));
    }
    let mut distance = value * total.fifth - total.second;
    if any_far::<E, N>(distance) {
        total = rescaled::<E, N>(total, min(total.fifth, scale_of::<E, N>(value)));
        distance = value * total.fifth - total.second;
    }
    let distance = if comptime![skips] { select_many(nan, zero, distance) } else { distance };
    let counted = if comptime![skips] { select_many(nan, zero, one) } else { one };
    Quint::new(
        total.first + counted,
        total.second,
        total.third + distance,
        total.fourth + distance * distance,
        total.fifth,
    )
}

/// Both sides' elements, seen from their mean.
#[cube]
fn join<E: Float, N: Size>(left: Moments<E, N>, right: Moments<E, N>) -> Moments<E, N> {
    let mut left = left;
    let mut right = right;
    let mut unlike = any_far::<E, N>(right.second - left.second);
    #[unroll]
    for lane in 0..N::value().comptime() {
        unlike = unlike || left.fifth[lane] != right.fifth[lane];
    }
    if unlike {
        let size = max((left.second / left.fifth).abs(), (right.second / right.fifth).abs());
        let scale = min(min(left.fifth, right.fifth), scale_of::<E, N>(size));
        left = rescaled::<E, N>(left, scale);
        right = rescaled::<E, N>(right, scale);
    }
    // An empty side stands where the other does.
    let empty = left.first.equal(Vector::from_int(0));
    let origin = select_many(empty, right.second, left.second);
    let count = left.first + right.first;
    let distances = left.third + right.third + right.first * (right.second - origin);
    let way = distances / max(count, Vector::from_int(1));
    let origin = further::<E, N>(origin, way, right.first);
    let left = moved::<E, N>(left, origin);
    let right = moved::<E, N>(right, origin);
    Quint::new(count, origin, left.third + right.third, left.fourth + right.fourth, left.fifth)
}

/// The sum of squared distances from the mean, scaled, over `count - correction`: an infinity or NaN where
/// nothing is left to divide by, NaN where an element was not finite.
#[cube]
fn corrected<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    count: Vector<E, N>,
    parameters: &Parameters,
) -> Vector<E, N> {
    let zero = Vector::from_int(0);
    let correction = Vector::new(parameters.get::<E>(0usize));
    let excess = accumulator.third * (accumulator.third / count);
    let squares = max(accumulator.fourth - excess, zero);
    let nan = Vector::new(nan_or_lowest::<E>());
    let defined = is_finite::<E, N>(accumulator.fourth)
        .and(count.not_equal(zero))
        // 0 / 0, which is not NaN everywhere.
        .and(squares.not_equal(zero).or(count.greater_than(correction)));
    select_many(defined, squares / max(count - correction, zero), nan)
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
    let mean = (accumulator.second + accumulator.third / accumulator.first) / accumulator.fifth;
    select_many(defined, mean, Vector::new(nan_or_lowest::<E>()))
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
    push accumulator, value: take::<T::A, N>(accumulator, value, false),
    finish total, count, parameters:
        Value::new(Vector::cast_from(variance::<T::A, N>(total, count, parameters)))
);
spread!(
    Std, "std", One -> Value<T::Out, N>,
    push accumulator, value: take::<T::A, N>(accumulator, value, false),
    finish total, count, parameters:
        Value::new(Vector::cast_from(deviation::<T::A, N>(total, count, parameters)))
);
spread!(
    MeanVar, "mean_var", Two -> Pair<T::Out, T::Out2, N>,
    push accumulator, value: take::<T::A, N>(accumulator, value, false),
    finish total, count, parameters: Pair::new(
        Vector::cast_from(mean::<T::A, N>(total)),
        Vector::cast_from(variance::<T::A, N>(total, count, parameters))
    )
);
spread!(
    NanVar, "nanvar", One -> Value<T::Out, N>,
    push accumulator, value: take::<T::A, N>(accumulator, value, true),
    finish total, _count, parameters:
        Value::new(Vector::cast_from(variance::<T::A, N>(total, total.first, parameters)))
);
spread!(
    NanStd, "nanstd", One -> Value<T::Out, N>,
    push accumulator, value: take::<T::A, N>(accumulator, value, true),
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
