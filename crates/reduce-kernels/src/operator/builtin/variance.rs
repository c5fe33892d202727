//! Variance, standard deviation, and mean with variance.
//!
//! The accumulator holds an origin, and the sums of the elements' distances from it and of the squares of
//! these. Any origin gives the same variance, but for rounding: the squares exceed those of distances from
//! the mean by `n * (mean - origin)^2`. So the origin stays near the mean, at little cost:
//!
//! - It is the first element, then the mean of the first 8, and at last of the first 64: one far element has
//!   less part in it as more elements are measured from it.
//! - Where accumulators merge, it lies halfway between their origins, or is that of the one with twice the
//!   elements: one far origin among `k` equal shares is `1 / k` of the shift off. What the origin rounds off
//!   stays in the sum of distances: near 1e8, an f32 is off by 4, its distance from a neighbour is not.
//!
//! An element costs a distance, two sums and a comparison, a merge about 20 operations, neither a division.
//!
//! Elements are scaled by a power of two, so that squares of 1e20 do not overflow and those of 1e-30 do not
//! vanish. There are few scales, so that those of two accumulators are almost always equal. Whatever is
//! rare waits behind one branch: a first element, a change of scale, a change of origin.

use cubecl::prelude::*;

use crate::operator::{
    A, AccumulatorOf, Five, In, InvalidParameter, One, Operator, Out, Pair, Parameters, Position,
    Quint, TypeRule, Value,
    derived::derived,
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

/// What the elements so far tell. Counts in floating point are exact up to 2^24 in f32, and round
/// beyond without wrapping.
#[derive(CubeType, CubeTypeMut, Clone, Copy)]
struct Moments<E: Float, N: Size> {
    count: Vector<E, N>,
    /// The scaled origin.
    origin: Vector<E, N>,
    /// The sum of scaled distances from the origin.
    sum: Vector<E, N>,
    /// The sum of their squares.
    squares: Vector<E, N>,
    /// The scale; 0 before the first element.
    scale: Vector<E, N>,
}

#[cube]
impl<E: Float, N: Size> Moments<E, N> {
    fn new(
        count: Vector<E, N>,
        origin: Vector<E, N>,
        sum: Vector<E, N>,
        squares: Vector<E, N>,
        scale: Vector<E, N>,
    ) -> Self {
        Moments::<E, N> { count, origin, sum, squares, scale }
    }
}

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

/// Which scaled distances ask for another scale: those beyond all that a fit scale leaves between an
/// element and an origin.
#[cube]
fn is_far<E: Float, N: Size>(distance: Vector<E, N>) -> Vector<bool, N> {
    distance.abs().greater_than(Vector::new(E::from_int(4) * power::<E>(1)))
}

/// Whether that is so in any lane.
#[cube]
fn any_far<E: Float, N: Size>(distance: Vector<E, N>) -> bool {
    let is_far = is_far::<E, N>(distance);
    let mut far = false;
    #[unroll]
    for lane in 0..N::value().comptime() {
        far = far || is_far[lane];
    }
    far
}

/// No elements: no scale either, and an origin that is far from whatever comes.
#[cube]
fn empty<E: Float, N: Size>() -> Moments<E, N> {
    let zero = Vector::from_int(0);
    Moments::<E, N>::new(zero, Vector::new(power::<E>(3)), zero, zero, zero)
}

/// The same elements at another scale. What has no scale keeps its sums: 0, or NaN.
#[cube]
fn rescaled<E: Float, N: Size>(total: Moments<E, N>, scale: Vector<E, N>) -> Moments<E, N> {
    let none = total.scale.equal(Vector::from_int(0));
    let ratio = select_many(none, Vector::from_int(1), scale / total.scale);
    let squares = total.squares * ratio * ratio;
    Moments::<E, N>::new(total.count, total.origin * ratio, total.sum * ratio, squares, scale)
}

/// The same elements, seen from another origin.
#[cube]
fn recentered<E: Float, N: Size>(total: Moments<E, N>, origin: Vector<E, N>) -> Moments<E, N> {
    let shift = origin - total.origin;
    let sum = total.sum - total.count * shift;
    let squares = total.squares - shift * (total.sum + sum);
    Moments::<E, N>::new(total.count, origin, sum, squares, total.scale)
}

/// Whether all lanes are such that no scale is needed: far from where squares overflow or vanish.
#[cube]
fn all_moderate<E: Float, N: Size>(value: Vector<E, N>) -> bool {
    let size = value.abs();
    let mut moderate = true;
    #[unroll]
    for lane in 0..N::value().comptime() {
        moderate = moderate && size[lane] > power::<E>(-1) && size[lane] < power::<E>(1);
    }
    moderate
}

/// Fit for `value`, in the lanes where that is `far`: at a coarser scale, or with the first element as
/// origin.
#[cube]
fn fitted<E: Float, N: Size>(
    total: Moments<E, N>,
    value: Vector<E, N>,
    far: Vector<bool, N>,
) -> Moments<E, N> {
    let zero = Vector::from_int(0);
    let first = far.and(total.scale.equal(zero));
    let fit = scale_of::<E, N>(value);
    let coarser = select_many(first, fit, min(total.scale, fit));
    let scale = select_many(far, coarser, total.scale);
    let total = rescaled::<E, N>(total, scale);
    // An infinity has no distance from itself, but from 0.
    let start = select_many(is_finite::<E, N>(value), value * scale, zero);
    let origin = select_many(first, start, total.origin);
    Moments::<E, N>::new(total.count, origin, total.sum, total.squares, scale)
}

/// After how many elements the origin moves to their mean, and after how many again. Chains end at 512: of
/// one far element, at `D` from the others, `n` elements measured from `D / k` off add up `n / k^2` of its
/// own square: 8 before the first turn, less than 1 after each.
const RECENTER_COUNTS: [i64; 2] = [8, 64];

/// Where the origin moves after so many elements, one over their number, else 0.
#[cube]
fn share_of<E: Float, N: Size>(count: Vector<E, N>) -> Vector<E, N> {
    let early = E::from_int(comptime![RECENTER_COUNTS[0]]);
    let late = E::from_int(comptime![RECENTER_COUNTS[1]]);
    let one = E::from_int(1);
    let share =
        select_many(count.equal(Vector::new(late)), Vector::new(one / late), Vector::from_int(0));
    select_many(count.equal(Vector::new(early)), Vector::new(one / early), share)
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
    let lanes = N::value().comptime();
    let mut total = accumulator;
    let mut distance = distance_of::<E, N>(total, value, skips);
    let mut recenters = false;
    #[unroll]
    for lane in 0..comptime![if skips { lanes } else { 1 }] {
        let count = accumulator.count[lane];
        recenters = recenters
            || count == E::from_int(comptime![RECENTER_COUNTS[0]])
            || count == E::from_int(comptime![RECENTER_COUNTS[1]]);
    }
    if recenters || any_far::<E, N>(distance) {
        let starts = comptime![!skips] && accumulator.count[0] == E::from_int(0);
        if starts && all_moderate::<E, N>(value) {
            total = Moments::<E, N>::new(zero, value, zero, zero, one);
            distance = zero;
        } else {
            if recenters {
                // Compilers take `(origin + shift) - origin` for `shift`, also where the addition rounds; they
                // do not look through a choice that they cannot foresee.
                let share = share_of::<E, N>(total.count);
                let mean = total.origin + total.sum * share;
                let moves = share.greater_than(zero);
                total = recentered::<E, N>(total, select_many(moves, mean, total.origin));
                distance = distance_of::<E, N>(total, value, skips);
            }
            if any_far::<E, N>(distance) {
                total = fitted::<E, N>(total, value, is_far::<E, N>(distance));
                distance = distance_of::<E, N>(total, value, skips);
            }
        }
    }
    let count = if comptime![skips] {
        total.count + select_many(nan, zero, one)
    } else {
        Vector::new(accumulator.count[0] + E::from_int(1))
    };
    Moments::<E, N>::new(
        count,
        total.origin,
        total.sum + distance,
        total.squares + distance * distance,
        total.scale,
    )
}

/// The scaled distance from the origin; 0 of what is skipped.
#[cube]
fn distance_of<E: Float, N: Size>(
    total: Moments<E, N>,
    value: Vector<E, N>,
    #[comptime] skips: bool,
) -> Vector<E, N> {
    let distance = value * total.scale - total.origin;
    if comptime![skips] {
        select_many(is_nan::<E, N>(value), Vector::from_int(0), distance)
    } else {
        distance
    }
}

/// The same elements; where there are none, at the other's origin and scale.
#[cube]
fn beside<E: Float, N: Size>(total: Moments<E, N>, other: Moments<E, N>) -> Moments<E, N> {
    let none = total.scale.equal(Vector::from_int(0));
    Moments::<E, N>::new(
        total.count,
        select_many(none, other.origin, total.origin),
        total.sum,
        total.squares,
        select_many(none, other.scale, total.scale),
    )
}

/// Both sides' elements, seen from between their origins.
#[cube]
fn join<E: Float, N: Size>(left: Moments<E, N>, right: Moments<E, N>) -> Moments<E, N> {
    let mut left = left;
    let mut right = right;
    let mut unlike = any_far::<E, N>(right.origin - left.origin);
    #[unroll]
    for lane in 0..N::value().comptime() {
        unlike = unlike || left.scale[lane] != right.scale[lane];
    }
    if unlike {
        left = beside::<E, N>(left, right);
        right = beside::<E, N>(right, left);
        let size = max((left.origin / left.scale).abs(), (right.origin / right.scale).abs());
        let scale = min(min(left.scale, right.scale), scale_of::<E, N>(size));
        left = rescaled::<E, N>(left, scale);
        right = rescaled::<E, N>(right, scale);
    }
    let half = Vector::new(E::new(0.5));
    let origin = (left.origin + right.origin) * half;
    let origin =
        select_many(left.count.greater_than(right.count + right.count), left.origin, origin);
    let origin =
        select_many(right.count.greater_than(left.count + left.count), right.origin, origin);
    let count = left.count + right.count;
    let left = recentered::<E, N>(left, origin);
    let right = recentered::<E, N>(right, origin);
    Moments::<E, N>::new(
        count,
        origin,
        left.sum + right.sum,
        left.squares + right.squares,
        left.scale,
    )
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
    let excess = accumulator.sum * (accumulator.sum / count);
    let squares = max(accumulator.squares - excess, zero);
    let nan = Vector::new(nan_or_lowest::<E>());
    let defined = is_finite::<E, N>(accumulator.squares)
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
    let variance = scaled / accumulator.scale / accumulator.scale;
    select_many(scaled.equal(Vector::from_int(0)), scaled, variance)
}

#[cube]
fn deviation<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    count: Vector<E, N>,
    parameters: &Parameters,
) -> Vector<E, N> {
    corrected::<E, N>(accumulator, count, parameters).sqrt() / accumulator.scale
}

/// The mean; NaN of nothing, and where an element was not finite.
#[cube]
fn mean<E: Float, N: Size>(accumulator: Moments<E, N>) -> Vector<E, N> {
    let defined = is_finite::<E, N>(accumulator.squares)
        .and(accumulator.count.not_equal(Vector::from_int(0)));
    let mean = (accumulator.origin + accumulator.sum / accumulator.count) / accumulator.scale;
    select_many(defined, mean, Vector::new(nan_or_lowest::<E>()))
}

/// The accumulator's fields by name. All are of type [`A`].
#[cube]
fn moments<N: Size>(accumulator: AccumulatorOf<Five, N>) -> Moments<A, N> {
    Moments::<A, N>::new(
        accumulator.first,
        Vector::cast_from(accumulator.second),
        Vector::cast_from(accumulator.third),
        Vector::cast_from(accumulator.fourth),
        Vector::cast_from(accumulator.fifth),
    )
}

/// The reverse of [`moments`].
#[cube]
fn fields<N: Size>(moments: Moments<A, N>) -> AccumulatorOf<Five, N> {
    Quint::new(
        moments.count,
        Vector::cast_from(moments.origin),
        Vector::cast_from(moments.sum),
        Vector::cast_from(moments.squares),
        Vector::cast_from(moments.scale),
    )
}

/// The count and the mean of elements, and what variances are made of. It takes no NaN if it `SKIPS`
/// them.
#[derive(Clone, Copy)]
struct Spread<const SKIPS: bool>;

#[cube]
impl<const SKIPS: bool> Operator for Spread<SKIPS> {
    type Fields = Five;
    type Results = One;

    const NAME: &'static str = "spread";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;

    fn identity<N: Size>() -> AccumulatorOf<Five, N> {
        fields::<N>(empty::<A, N>())
    }

    fn push<N: Size>(
        accumulator: AccumulatorOf<Five, N>,
        value: Vector<In, N>,
        _position: Position,
        _parameters: &Parameters,
    ) -> AccumulatorOf<Five, N> {
        let total = moments::<N>(accumulator);
        fields::<N>(take::<A, N>(total, Vector::cast_from(value), SKIPS))
    }

    fn merge<N: Size>(
        left: AccumulatorOf<Five, N>,
        right: AccumulatorOf<Five, N>,
        _parameters: &Parameters,
    ) -> AccumulatorOf<Five, N> {
        fields::<N>(join::<A, N>(moments::<N>(left), moments::<N>(right)))
    }

    fn finish<N: Size>(
        accumulator: AccumulatorOf<Five, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.first))
    }
}

type SpreadOfAll = Spread<false>;
type SpreadOfNumbers = Spread<true>;

#[cube]
fn count_of<N: Size>(count: usize) -> Vector<A, N> {
    Vector::<A, N>::cast_from(count)
}

derived!(Var: Five -> One = SpreadOfAll, "var", rules::floating,
with |operator| correction(operator.correction),
    finish accumulator, count, parameters => {
    let total = moments::<N>(accumulator);
    let count = count_of::<N>(count);
    Value::new(Vector::cast_from(variance::<A, N>(total, count, parameters)))
});
derived!(Std: Five -> One = SpreadOfAll, "std", rules::floating,
with |operator| correction(operator.correction),
    finish accumulator, count, parameters => {
    let total = moments::<N>(accumulator);
    let count = count_of::<N>(count);
    Value::new(Vector::cast_from(deviation::<A, N>(total, count, parameters)))
});
derived!(MeanVar: Five -> Two = SpreadOfAll, "mean_var", rules::floating,
with |operator| correction(operator.correction),
    finish accumulator, count, parameters => {
    let total = moments::<N>(accumulator);
    let count = count_of::<N>(count);
    Pair::new(
        Vector::cast_from(mean::<A, N>(total)),
        Vector::cast_from(variance::<A, N>(total, count, parameters)),
    )
});
derived!(NanVar: Five -> One = SpreadOfNumbers, "nanvar", rules::floating,
with |operator| correction(operator.correction),
    finish accumulator, _count, parameters => {
    let total = moments::<N>(accumulator);
    Value::new(Vector::cast_from(variance::<A, N>(total, total.count, parameters)))
});
derived!(NanStd: Five -> One = SpreadOfNumbers, "nanstd", rules::floating,
with |operator| correction(operator.correction),
    finish accumulator, _count, parameters => {
    let total = moments::<N>(accumulator);
    Value::new(Vector::cast_from(deviation::<A, N>(total, total.count, parameters)))
});

fn correction(correction: f64) -> Result<Vec<f64>, InvalidParameter> {
    if correction.is_finite() && correction >= 0.0 {
        Ok(vec![correction])
    } else {
        let expected = "a finite number, 0 or more";
        Err(InvalidParameter { name: "correction", value: correction, expected })
    }
}
