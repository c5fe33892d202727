//! Variance, standard deviation, and mean with variance.
//!
//! # Method
//!
//! The accumulator holds a count, an origin, the sum of the elements' distances from the origin,
//! the sum of the squares of these distances, and a scale.
//!
//! Every origin gives the same variance, except for rounding: the sum of squares exceeds that of
//! distances from the mean by `n * (mean - origin)^2`. The origin therefore has to stay near the
//! mean:
//!
//! - It starts at the first element. In blocks, it moves to the mean as soon as the sum of squares
//!   is more than twice that of distances from the mean. Where elements are pushed one by one, it
//!   moves after 8 elements and after 64. The more elements are measured from an origin, the less
//!   one far element has moved it.
//! - When two accumulators merge, the new origin lies halfway between their origins. If one of them
//!   has more than twice the elements of the other, its origin is kept. If one of `k` equal shares
//!   has an origin that is far off, the merged origin is off by `1 / k` of that distance.
//! - A move of the origin loses nothing to its rounding, because the sum of distances is adjusted
//!   to the rounded origin. Near 1e8 an f32 is rounded by up to 4, but the distance between two
//!   such numbers is exact.
//!
//! In a block, each element costs a distance, a sum, and a product with another sum. The questions,
//! for the range and for a far origin, are asked once per block. A merge costs about 20 operations.
//! Neither divides.
//!
//! Elements are multiplied by a power of two, the scale. Squares of 1e20 then do not overflow and
//! those of 1e-30 do not vanish in f32. There are only five scales, so two accumulators almost
//! always have the same one. The rare cases stand behind one branch: a first element, a change of
//! scale, a move of the origin.
//!
//! Units that hold their elements take them in [two passes](InPasses) with two fields each, which
//! asks nothing.

use cubecl::prelude::*;

use super::{
    Sum, SumSquares,
    norm::hypotenuse,
    of_passes::{TotalAndMagnitude, TotalAndSquares},
};
use crate::operator::{
    A, AccumulatorOf, B, Block, Blocks, Blockwise, Five, In, InPasses, InvalidParameter, One,
    Operator, Out, Out2, Pair, Parameters, Position, Quint, ResultsOf, Running, Single, Two,
    TypeRule, Value,
    block::{Add, Most, all, any, fold, leading, spread},
    derived::derived,
    element_wise::{constant, is_finite, is_nan, nan_or_lowest},
    math::{has_nan_bits, reciprocal},
    not_negative, rules,
};

/// The variance: the sum of squared deviations from the mean, divided by `count - correction`.
///
/// It is NaN of no elements, and if an element is infinite or NaN. If `correction` is the count or
/// more, it is a division by 0 as in IEEE 754: NaN if all elements are equal, otherwise infinity.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Var {
    /// The number that is subtracted from the count: 0 for the variance of a population, 1 for
    /// Bessel's correction (NumPy's `ddof`). It must be finite and 0 or more.
    pub correction: f64,
}

/// The standard deviation: the square root of [`Var`]. It is correct even where the variance is not
/// representable.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Std {
    /// The number that is subtracted from the count; see [`Var::correction`].
    pub correction: f64,
}

/// The mean and the variance, in this order, with one read of the input.
///
/// Both are NaN of no elements, and if an element is infinite or NaN. [`Mean`](super::Mean)
/// differs: the mean of elements of which some are `inf` is `inf` there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanVar {
    /// The number that is subtracted from the count; see [`Var::correction`].
    pub correction: f64,
}

/// [`Var`] of the elements that are not NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NanVar {
    /// The number that is subtracted from the count; see [`Var::correction`].
    pub correction: f64,
}

/// [`Std`] of the elements that are not NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NanStd {
    /// The number that is subtracted from the count; see [`Var::correction`].
    pub correction: f64,
}

/// The accumulator by name. The count is a float: in f32 it is exact up to 2^24, and larger counts
/// are rounded but do not wrap.
#[derive(CubeType, CubeTypeMut, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Moments<E: Float, N: Size> {
    count: Vector<E, N>,
    /// The origin, scaled.
    origin: Vector<E, N>,
    /// The sum of the scaled distances from the origin.
    sum: Vector<E, N>,
    /// The sum of the squares of the scaled distances.
    squares: Vector<E, N>,
    /// The scale, or 0 before the first element.
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

/// A power of 2^30, or of 2^200 in f64. The five scales have the exponents -4, -2, 0, 2 and 4. The
/// square of the ratio of neighbouring scales does not underflow.
#[cube]
fn power<E: Float>(#[comptime] exponent: i32) -> E {
    constant::<E>(2f32.powi(30 * exponent), 2f64.powi(200 * exponent))
}

/// The largest scale that brings an element down to at most [`power`] 1, which is also at least
/// [`power`] -1 unless the element is too small for all scales.
///
/// The sum of 2^32 squares of such elements is finite. The squares of their distances do not
/// vanish: neighbouring numbers differ by 2^-24 of their magnitude, or 2^-53 in f64.
#[cube]
fn scale_of<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let size = value.abs();
    let scale = Vector::new(power::<E>(-4));
    let scale = finer::<E, N>(scale, size, 3, -2);
    let scale = finer::<E, N>(scale, size, 1, 0);
    let scale = finer::<E, N>(scale, size, -1, 2);
    finer::<E, N>(scale, size, -3, 4)
}

/// Replaces the scale where an element's `size` is at most [`power`] `most`: by [`power`] `other`.
#[cube]
fn finer<E: Float, N: Size>(
    scale: Vector<E, N>,
    size: Vector<E, N>,
    #[comptime] most: i32,
    #[comptime] other: i32,
) -> Vector<E, N> {
    let small = size.less_equal(&Vector::new(power::<E>(most)));
    select_many(small, Vector::new(power::<E>(other)), scale)
}

/// The components whose scaled distance calls for another scale: it is larger than the distance
/// between an element and an origin can be at the right scale.
#[cube]
fn is_far<E: Float, N: Size>(distance: Vector<E, N>) -> Vector<bool, N> {
    distance.abs().greater_than(&Vector::new(E::from_int(4) * power::<E>(1)))
}

/// Whether [`is_far`] holds in any component.
#[cube]
fn any_far<E: Float, N: Size>(distance: Vector<E, N>) -> bool {
    let is_far = is_far::<E, N>(distance);
    let mut far = false;
    #[unroll]
    for lane in 0..N::value().comptime() {
        let here = is_far.extract(lane);
        far = far || here;
    }
    far
}

/// The accumulator of no elements. It has no scale, and its origin is far from every element.
#[cube]
fn empty<E: Float, N: Size>() -> Moments<E, N> {
    let zero = Vector::from_int(0);
    Moments::<E, N>::new(zero, Vector::new(power::<E>(3)), zero, zero, zero)
}

/// The accumulator at another scale. An accumulator without a scale keeps its sums, which are 0 or
/// NaN.
#[cube]
fn rescaled<E: Float, N: Size>(total: Moments<E, N>, scale: Vector<E, N>) -> Moments<E, N> {
    let none = total.scale.equal(&Vector::from_int(0));
    let ratio = select_many(none, Vector::from_int(1), scale / total.scale);
    let squares = total.squares * ratio * ratio;
    Moments::<E, N>::new(total.count, total.origin * ratio, total.sum * ratio, squares, scale)
}

/// The accumulator with another origin.
#[cube]
fn recentered<E: Float, N: Size>(total: Moments<E, N>, origin: Vector<E, N>) -> Moments<E, N> {
    let shift = origin - total.origin;
    let sum = total.sum - total.count * shift;
    let squares = total.squares - shift * (total.sum + sum);
    Moments::<E, N>::new(total.count, origin, sum, squares, total.scale)
}

/// Whether the elements in all components can do with a scale of 1: their squares neither overflow
/// nor vanish.
#[cube]
fn all_moderate<E: Float, N: Size>(value: Vector<E, N>) -> bool {
    let size = value.abs();
    let mut moderate = true;
    #[unroll]
    for lane in 0..N::value().comptime() {
        let size = size.extract(lane);
        let least = power::<E>(-1);
        let most = power::<E>(1);
        moderate = moderate && size > least && size < most;
    }
    moderate
}

/// Adapts the accumulator to `value`, in the components where that is `far`: it gets a coarser
/// scale or, for a first element, that element as its origin.
#[cube]
fn fitted<E: Float, N: Size>(
    total: Moments<E, N>,
    value: Vector<E, N>,
    far: Vector<bool, N>,
) -> Moments<E, N> {
    let zero = Vector::from_int(0);
    let first = far.vec_and(total.scale.equal(&zero));
    let fit = scale_of::<E, N>(value);
    let coarser = select_many(first, fit, min(total.scale, fit));
    let scale = select_many(far, coarser, total.scale);
    let total = rescaled::<E, N>(total, scale);
    // The distance of an infinity from itself is NaN, so the origin starts at 0 instead.
    let start = select_many(is_finite::<E, N>(value), value * scale, zero);
    let origin = select_many(first, start, total.origin);
    Moments::<E, N>::new(total.count, origin, total.sum, total.squares, scale)
}

/// The numbers of elements after which the origin moves to their mean.
///
/// Suppose one element lies at a distance `D` from the others, and `n` elements are measured from
/// an origin that is off by `D / k`. They add `n / k^2` of that element's square to the sum of
/// squares. That is 8 times the square before the first move, and less than the square after each
/// move: `k` is 8 for up to 64 elements, then 64 for up to 512, where chains end.
const RECENTER_COUNTS: [i64; 2] = [8, 64];

/// 1 divided by the number of elements in the components where the origin moves now, otherwise 0.
#[cube]
fn share_of<E: Float, N: Size>(count: Vector<E, N>) -> Vector<E, N> {
    let early = E::from_int(comptime![RECENTER_COUNTS[0]]);
    let late = E::from_int(comptime![RECENTER_COUNTS[1]]);
    let one = E::from_int(1);
    let share =
        select_many(count.equal(&Vector::new(late)), Vector::new(one / late), Vector::from_int(0));
    select_many(count.equal(&Vector::new(early)), Vector::new(one / early), share)
}

/// Adds one element per component. With `skips`, elements that are NaN are left out. Without it,
/// all components have seen the same number of elements.
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
        let count = accumulator.count.extract(lane);
        let early = E::from_int(comptime![RECENTER_COUNTS[0]]);
        let late = E::from_int(comptime![RECENTER_COUNTS[1]]);
        recenters = recenters || count == early || count == late;
    }
    if recenters || any_far::<E, N>(distance) {
        let starts = comptime![!skips] && accumulator.count.extract(0usize) == E::from_int(0);
        if starts && all_moderate::<E, N>(value) {
            total = Moments::<E, N>::new(zero, value, zero, zero, one);
            distance = zero;
        } else {
            if recenters {
                // Compilers simplify `(origin + shift) - origin` to `shift`, even if the addition
                // rounds. They do not simplify it across a select whose condition they cannot
                // predict.
                let share = share_of::<E, N>(total.count);
                let mean = total.origin + total.sum * share;
                let moves = share.greater_than(&zero);
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
        Vector::new(accumulator.count.extract(0usize) + E::from_int(1))
    };
    Moments::<E, N>::new(
        count,
        total.origin,
        total.sum + distance,
        total.squares + distance * distance,
        total.scale,
    )
}

/// The scaled distance from the origin; 0 for an element that is skipped.
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

/// The smallest sum of squared distances in which the squares that vanish do not matter: 2^-64, or
/// 2^-900 in f64. With 2^32 elements, it lacks at most 2^-94, or 2^-990.
#[cube]
fn least_squares<E: Float>() -> E {
    constant::<E>(2f32.powi(-64), 2f64.powi(-900))
}

/// The largest sum of squared distances that blocks may reach: 2^90, or 2^900 in f64. Its product
/// with 2^32 elements is finite.
#[cube]
fn most_squares<E: Float>() -> E {
    constant::<E>(2f32.powi(90), 2f64.powi(900))
}

/// Adds the distances of a block from the accumulator's origin. Returns also the sum of squares
/// that was added.
#[cube]
fn measured<E: Float, N: Size, W: Size>(
    total: Moments<E, N>,
    block: &Block<W>,
    #[comptime] skips: bool,
) -> (Moments<E, N>, Vector<E, N>) {
    let origin = spread::<E, N, W>(total.origin);
    let scale = spread::<E, N, W>(total.scale);
    let nothing = Vector::<E, W>::from_int(0);
    let mut sum = nothing;
    let mut squares = nothing;
    let mut skipped = nothing;
    #[unroll]
    for nth in 0..block.load_count() {
        let value = Vector::<E, W>::cast_from(block.value(nth));
        let mut distance = block.inside_or::<E>(nth, value * scale - origin, nothing);
        if comptime![skips] {
            let nan = is_nan::<E, W>(value);
            distance = select_many(nan, nothing, distance);
            let one = select_many(nan, Vector::from_int(1), nothing);
            skipped += block.inside_or::<E>(nth, one, nothing);
        }
        sum += distance;
        squares += distance * distance;
    }
    let added = fold::<Add, E, N, W>(squares);
    let seen = E::cast_from(block.count::<N>());
    let count = if comptime![skips] {
        total.count + (Vector::new(seen) - fold::<Add, E, N, W>(skipped))
    } else {
        // All components have seen the same number of elements.
        Vector::new(total.count.extract(0usize) + seen)
    };
    let sum = total.sum + fold::<Add, E, N, W>(sum);
    let moments =
        Moments::<E, N>::new(count, total.origin, sum, total.squares + added, total.scale);
    (moments, added)
}

/// Whether no distance of a block from the accumulator's origin is too large, and the sum of
/// squares is so large that those which vanish do not matter.
#[cube]
fn in_range<E: Float, N: Size>(total: Moments<E, N>) -> Vector<bool, N> {
    let most = Vector::new(most_squares::<E>());
    let least = Vector::new(least_squares::<E>());
    total.squares.less_than(&most).vec_and(total.squares.greater_than(&least))
}

/// Adds a block: a distance, a sum and a square per element. Returns the components that were
/// taken. The others have no meaning in the accumulator that is returned.
///
/// The first element of the first block is the origin, at a scale of 1, or at that of
/// [`scale_of()`] if all elements of the block are equal. The origin moves to the mean as soon as
/// the sum of squared distances from it is more than twice that from the mean. A block is refused
/// if it takes the sum of squares out of [`in_range()`], unless all of its elements equal the
/// origin.
#[cube]
fn take_block<E: Float, N: Size, W: Size>(
    accumulator: Moments<E, N>,
    block: &Block<W>,
    #[comptime] skips: bool,
) -> (Moments<E, N>, Vector<bool, N>) {
    let starts = block.starts();
    let mut total = accumulator;
    let mut taken = Vector::<bool, N>::new(false);
    if comptime![!starts] {
        // The distances from the origin of an empty accumulator are out of range, so that a first
        // block is one of the rare cases.
        let (measured, _) = measured::<E, N, W>(accumulator, block, skips);
        total = measured;
        taken = in_range::<E, N>(total);
    }
    if !all::<N>(taken) {
        let (rare, fits) = take_rare_block::<E, N, W>(accumulator, block, skips);
        total = rare;
        taken = fits;
    }
    let half = total.count * Vector::new(E::new(0.5));
    let moves = (total.sum * total.sum).greater_than(&(half * total.squares));
    if any::<N>(moves) {
        total = moved::<E, N>(total, moves, skips);
    }
    (total, taken)
}

/// The accumulator with its origin at about the mean, in the components that move.
#[cube]
fn moved<E: Float, N: Size>(
    total: Moments<E, N>,
    moves: Vector<bool, N>,
    #[comptime] skips: bool,
) -> Moments<E, N> {
    let one = E::from_int(1);
    let share = if comptime![skips] {
        Vector::new(one) / total.count
    } else {
        // All components have seen the same number of elements.
        Vector::new(one / total.count.extract(0usize))
    };
    // Compilers simplify `(origin + shift) - origin` to `shift`, even if the addition rounds. They
    // do not simplify it across a select whose condition they cannot predict: that one element of
    // an output moves the origin, or that there are elements.
    let mean = total.origin + total.sum * share;
    let moves = moves.vec_and(total.count.greater_than(&Vector::from_int(0)));
    recentered::<E, N>(total, select_many(moves, mean, total.origin))
}

/// [`take_block()`] for a first block, and for blocks in which all elements equal the origin.
#[cube]
fn take_rare_block<E: Float, N: Size, W: Size>(
    accumulator: Moments<E, N>,
    block: &Block<W>,
    #[comptime] skips: bool,
) -> (Moments<E, N>, Vector<bool, N>) {
    let zero = Vector::<E, N>::from_int(0);
    let starts = accumulator.scale.equal(&zero);
    let start = leading::<E, N, W>(Vector::cast_from(block.value(0usize)));
    let begun = Moments::<E, N>::new(
        accumulator.count,
        select_many(starts, start, accumulator.origin),
        accumulator.sum,
        accumulator.squares,
        select_many(starts, Vector::from_int(1), accumulator.scale),
    );
    let (total, added) = measured::<E, N, W>(begun, block, skips);
    let fits = in_range::<E, N>(total);
    let mut result = total;
    let mut taken = fits;
    if !all::<N>(fits) {
        // Elements that all equal the origin leave nothing to vanish.
        let origin = spread::<E, N, W>(begun.origin);
        let scale = spread::<E, N, W>(begun.scale);
        let nothing = Vector::<E, W>::from_int(0);
        let mut size = nothing;
        #[unroll]
        for nth in 0..block.load_count() {
            let value = Vector::<E, W>::cast_from(block.value(nth));
            let mut distance = (value * scale - origin).abs();
            if comptime![skips] {
                distance = select_many(is_nan::<E, W>(value), nothing, distance);
            }
            size = max(size, distance);
        }
        let equal = fold::<Most, E, N, W>(size).equal(&zero).vec_and(added.equal(&zero));
        let most = Vector::new(most_squares::<E>());
        taken = fits.or(equal.vec_and(total.squares.less_than(&most)));
        // The scale of elements that are all equal so far is that of the origin. Their sums are 0
        // at every scale. They are not multiplied by the ratio of scales, whose square may be
        // infinite: compilers for SPIR-V may square it first.
        let moves = starts.vec_and(total.squares.equal(&zero));
        let fit = scale_of::<E, N>(start);
        result = Moments::<E, N>::new(
            total.count,
            select_many(moves, start * fit, total.origin),
            total.sum,
            total.squares,
            select_many(moves, fit, total.scale),
        );
        if comptime![skips] {
            // Where all elements are NaN, the accumulator has no origin yet.
            let none = empty::<E, N>();
            let unused = result.count.equal(&zero);
            let origin = select_many(unused, none.origin, result.origin);
            let scale = select_many(unused, none.scale, result.scale);
            result = Moments::<E, N>::new(result.count, origin, result.sum, result.squares, scale);
        }
    }
    (result, taken)
}

/// The accumulator itself. Components without elements get the origin and the scale of `other`.
#[cube]
fn beside<E: Float, N: Size>(total: Moments<E, N>, other: Moments<E, N>) -> Moments<E, N> {
    let none = total.scale.equal(&Vector::from_int(0));
    Moments::<E, N>::new(
        total.count,
        select_many(none, other.origin, total.origin),
        total.sum,
        total.squares,
        select_many(none, other.scale, total.scale),
    )
}

/// The accumulator of the elements of both sides. Its origin lies between theirs.
#[cube]
fn join<E: Float, N: Size>(left: Moments<E, N>, right: Moments<E, N>) -> Moments<E, N> {
    let mut left = left;
    let mut right = right;
    let mut unlike = any_far::<E, N>(right.origin - left.origin);
    #[unroll]
    for lane in 0..N::value().comptime() {
        let left = left.scale.extract(lane);
        let right = right.scale.extract(lane);
        unlike = unlike || left != right;
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
        select_many(left.count.greater_than(&(right.count + right.count)), left.origin, origin);
    let origin =
        select_many(right.count.greater_than(&(left.count + left.count)), right.origin, origin);
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

/// The distance of the mean from the origin. A division, and not a product with a reciprocal, gives
/// that of equal elements exactly, so that their variance is 0.
#[cube]
fn mean_distance<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    count: Vector<E, N>,
) -> Vector<E, N> {
    accumulator.sum / count
}

/// The scaled variance: the sum of squared distances from the mean over `count - correction`. It is
/// infinite or NaN if nothing is left to divide by, and NaN if an element was not finite. The mean
/// lies at this `distance` from the origin. `is_defined` says that all elements are finite, and more
/// than the correction.
#[cube]
fn corrected<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    count: Vector<E, N>,
    distance: Vector<E, N>,
    parameters: &Parameters,
    #[comptime] is_defined: bool,
) -> Vector<E, N> {
    let zero = Vector::from_int(0);
    let correction = Vector::new(parameters.get::<E>(0usize));
    let squares = max(accumulator.squares - accumulator.sum * distance, zero);
    if is_defined {
        squares * reciprocal::<E, N>(count - correction)
    } else {
        let nan = Vector::new(nan_or_lowest::<E>());
        let defined = is_finite::<E, N>(accumulator.squares)
            .vec_and(count.not_equal(&zero))
            // On some backends 0 / 0 is not NaN.
            .vec_and(squares.not_equal(&zero).or(count.greater_than(&correction)));
        select_many(defined, squares * reciprocal::<E, N>(max(count - correction, zero)), nan)
    }
}

#[cube]
fn variance<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    count: Vector<E, N>,
    distance: Vector<E, N>,
    parameters: &Parameters,
    #[comptime] is_defined: bool,
) -> Vector<E, N> {
    let scaled = corrected::<E, N>(accumulator, count, distance, parameters, is_defined);
    // A compiler may combine the products into one with the square of the scale's reciprocal. That
    // of the coarsest scale overflows, and its product with 0 would be NaN, so the select keeps a
    // variance of 0.
    let back = Vector::from_int(1) / accumulator.scale;
    let variance = scaled * back * back;
    select_many(scaled.equal(&Vector::from_int(0)), scaled, variance)
}

#[cube]
fn deviation<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    count: Vector<E, N>,
    distance: Vector<E, N>,
    parameters: &Parameters,
    #[comptime] is_defined: bool,
) -> Vector<E, N> {
    corrected::<E, N>(accumulator, count, distance, parameters, is_defined).sqrt()
        / accumulator.scale
}

/// The mean, at this `distance` from the origin. It is NaN of no elements, and if an element was not
/// finite.
#[cube]
fn mean<E: Float, N: Size>(
    accumulator: Moments<E, N>,
    distance: Vector<E, N>,
    #[comptime] is_defined: bool,
) -> Vector<E, N> {
    let mean = (accumulator.origin + distance) / accumulator.scale;
    if is_defined {
        mean
    } else {
        let defined = is_finite::<E, N>(accumulator.squares)
            .vec_and(accumulator.count.not_equal(&Vector::from_int(0)));
        select_many(defined, mean, Vector::new(nan_or_lowest::<E>()))
    }
}

/// The accumulator with named fields, which are all of type [`A`].
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

/// The base of all operators in this file: it accumulates [`Moments`]. With `SKIPS`, it leaves out
/// elements that are NaN.
#[derive(Clone, Copy)]
struct Spread<const SKIPS: bool>;

#[cube]
impl<const SKIPS: bool> Operator for Spread<SKIPS> {
    type Inputs = One;
    type Fields = Five;
    type Results = One;

    const NAME: &'static str = "spread";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());

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

#[cube]
impl<const SKIPS: bool> Blockwise for Spread<SKIPS> {
    const MAY_REFUSE: bool = true;

    fn push_block<N: Size, W: Size>(
        accumulator: AccumulatorOf<Five, N>,
        block: &Block<W>,
        _parameters: &Parameters,
    ) -> (AccumulatorOf<Five, N>, Vector<bool, N>) {
        let total = moments::<N>(accumulator);
        let (total, taken) = take_block::<A, N, W>(total, block, SKIPS);
        (fields::<N>(total), taken)
    }
}

type SpreadOfAll = Spread<false>;
type SpreadOfNumbers = Spread<true>;

#[cube]
fn count_of<N: Size>(count: usize) -> Vector<A, N> {
    Vector::<A, N>::cast_from(count)
}

derived!(Var: Five -> One = SpreadOfAll, "var", rules::floating,
with |operator| correction(operator.correction), in passes, in runs,
finish results);

#[cube]
impl Var {
    fn of_moments<N: Size>(
        total: Moments<A, N>,
        count: Vector<A, N>,
        distance: Vector<A, N>,
        parameters: &Parameters,
        #[comptime] is_defined: bool,
    ) -> ResultsOf<One, N> {
        let variance = variance::<A, N>(total, count, distance, parameters, is_defined);
        Value::new(Vector::cast_from(variance))
    }
}
derived!(Std: Five -> One = SpreadOfAll, "std", rules::floating,
with |operator| correction(operator.correction), in passes, in runs,
finish results);

#[cube]
impl Std {
    fn of_moments<N: Size>(
        total: Moments<A, N>,
        count: Vector<A, N>,
        distance: Vector<A, N>,
        parameters: &Parameters,
        #[comptime] is_defined: bool,
    ) -> ResultsOf<One, N> {
        let deviation = deviation::<A, N>(total, count, distance, parameters, is_defined);
        Value::new(Vector::cast_from(deviation))
    }
}
derived!(MeanVar: Five -> Two = SpreadOfAll, "mean_var", rules::floating,
with |operator| correction(operator.correction), in passes, in runs,
finish results);

#[cube]
impl MeanVar {
    fn of_moments<N: Size>(
        total: Moments<A, N>,
        count: Vector<A, N>,
        distance: Vector<A, N>,
        parameters: &Parameters,
        #[comptime] is_defined: bool,
    ) -> ResultsOf<Two, N> {
        Pair::new(
            Vector::cast_from(mean::<A, N>(total, distance, is_defined)),
            Vector::cast_from(variance::<A, N>(total, count, distance, parameters, is_defined)),
        )
    }
}

/// The ways to the results of an operator of the moments of all elements: from an accumulator, from
/// two passes, and at each of neighbouring elements.
macro_rules! results_of_moments {
    ($operator:ident: $results:ident) => {
        #[cube]
        impl $operator {
            fn results<N: Size>(
                accumulator: AccumulatorOf<Five, N>,
                count: usize,
                parameters: &Parameters,
            ) -> ResultsOf<$results, N> {
                let (total, count) = (moments::<N>(accumulator), count_of::<N>(count));
                let distance = mean_distance::<A, N>(total, count);
                $operator::of_moments::<N>(total, count, distance, parameters, false)
            }
        }

        /// Two passes: the sum and the largest magnitude, then the scaled distances from the mean
        /// and their squares. The mean is rounded, so the sum of the distances is not quite 0, as
        /// from any origin.
        #[cube]
        impl InPasses for $operator {
            type First = TotalAndMagnitude;
            type Second = TotalAndSquares;
            type Between = Two;

            fn after_first<N: Size>(
                first: Pair<A, B, N>,
                count: usize,
                _parameters: &Parameters,
            ) -> Pair<A, B, N> {
                origin_and_scale::<N>(first, count)
            }

            fn between<N: Size>(
                value: Vector<In, N>,
                after: Pair<A, B, N>,
                _parameters: &Parameters,
            ) -> Vector<In, N> {
                let scaled = value * Vector::cast_from(after.second);
                scaled - Vector::cast_from(after.first)
            }

            fn finish_passes<N: Size>(
                first: Pair<A, B, N>,
                second: Pair<A, B, N>,
                count: usize,
                parameters: &Parameters,
            ) -> ResultsOf<$results, N> {
                let after = origin_and_scale::<N>(first, count);
                let total = Moments::<A, N>::new(
                    count_of::<N>(count),
                    after.first,
                    second.first,
                    Vector::cast_from(second.second),
                    Vector::cast_from(after.second),
                );
                let distance = mean_distance::<A, N>(total, total.count);
                $operator::of_moments::<N>(total, total.count, distance, parameters, false)
            }
        }

        /// The moments at each of neighbouring elements: sums of distances from an origin that they
        /// share, which moves to the mean before them if it is far from it.
        #[cube]
        impl Running for $operator {
            /// Refuses the first elements of all and those that are not more than the correction,
            /// scales other than 1, distances out of range, and elements among which an origin has
            /// become far from the mean. So all results are defined.
            fn run<W: Size>(
                before: AccumulatorOf<Five, Single>,
                values: Vector<In, W>,
                count: usize,
                parameters: &Parameters,
            ) -> (ResultsOf<$results, W>, AccumulatorOf<Five, Single>, bool) {
                let total = moments::<Single>(before);
                let (each, after, fits) =
                    moments_at_each::<A, W>(total, Vector::cast_from(values), count);
                // The count of the results is that of each component, which the moments hold.
                let count = each.count;
                let distance = each.sum * reciprocal::<A, W>(count);
                let results = $operator::of_moments::<W>(each, count, distance, parameters, true);
                let is_defined = count.extract(0usize) > parameters.get::<A>(0usize);
                (results, fields::<Single>(after), fits && is_defined)
            }
        }
    };
}

results_of_moments!(Var: One);
results_of_moments!(Std: One);
results_of_moments!(MeanVar: Two);

/// The moments of the elements up to each component, and of all of them, behind `count` elements
/// with these moments. Also whether they can do with the scale and the origin.
#[cube]
fn moments_at_each<E: Float, W: Size>(
    before: Moments<E, Single>,
    values: Vector<E, W>,
    count: usize,
) -> (Moments<E, W>, Moments<E, Single>, bool) {
    let one = E::from_int(1);
    let half = Vector::new(E::new(0.5));
    let mut total = before;
    let moves = (total.sum * total.sum).greater_than(&(half * total.count * total.squares));
    if any::<Single>(moves) {
        total = moved::<E, Single>(total, moves, false);
    }
    let first = E::cast_from(count);
    let origin = Vector::<E, W>::new(total.origin.extract(0usize));
    let distances = values - origin;
    let mut sum = total.sum.extract(0usize);
    let mut squares = total.squares.extract(0usize);
    let (mut counts, mut sums, mut all_squares) =
        (Vector::<E, W>::empty(), Vector::<E, W>::empty(), Vector::<E, W>::empty());
    #[unroll]
    for nth in 0..W::value() {
        let distance = distances.extract(nth);
        sum += distance;
        squares += distance * distance;
        counts.insert(nth, first + E::from_int(comptime![nth as i64 + 1]));
        sums.insert(nth, sum);
        all_squares.insert(nth, squares);
    }
    let width = W::value().comptime();
    let last = counts.extract(comptime![width - 1]);
    let near = sum * sum <= last * squares * E::new(NEAR);
    let fits = total.scale.extract(0usize) == one
        && squares < most_squares::<E>()
        && squares > least_squares::<E>();
    // The scale is 1 wherever the results have a meaning, and compilers leave it out.
    let each = Moments::<E, W>::new(counts, origin, sums, all_squares, Vector::from_int(1));
    let after = Moments::<E, Single>::new(
        Vector::new(last),
        total.origin,
        Vector::new(sum),
        Vector::new(squares),
        total.scale,
    );
    (each, after, fits && near)
}

/// The largest share of a sum of squared distances that is due to the origin, in a run.
const NEAR: f32 = 0.875;

/// The scaled mean and the scale, from the sum of the elements and the largest magnitude.
#[cube]
fn origin_and_scale<N: Size>(first: Pair<A, B, N>, count: usize) -> Pair<A, B, N> {
    let zero = Vector::<A, N>::from_int(0);
    let total = first.first;
    let most = Vector::<A, N>::cast_from(first.second);
    let scale = scale_of::<A, N>(most);
    // The sum of large elements may be infinite, and the largest of them is then the origin: the
    // sum of squares exceeds that of distances from the mean at most as many times as there are
    // elements. A sum that is NaN has large elements of both signs, which no origin is far from.
    let share = reciprocal::<A, N>(count_of::<N>(count));
    let mean = clamp(total * share, zero - most, most);
    let mean = select_many(has_nan_bits::<A, N>(total), zero, mean);
    Pair::new(mean * scale, Vector::cast_from(scale))
}

derived!(NanVar: Five -> One = SpreadOfNumbers, "nanvar", rules::floating,
with |operator| correction(operator.correction),
finish results);

#[cube]
impl NanVar {
    fn results<N: Size>(
        accumulator: AccumulatorOf<Five, N>,
        _count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<One, N> {
        let total = moments::<N>(accumulator);
        let distance = mean_distance::<A, N>(total, total.count);
        Value::new(Vector::cast_from(variance::<A, N>(
            total,
            total.count,
            distance,
            parameters,
            false,
        )))
    }
}
derived!(NanStd: Five -> One = SpreadOfNumbers, "nanstd", rules::floating,
with |operator| correction(operator.correction),
finish results);

#[cube]
impl NanStd {
    fn results<N: Size>(
        accumulator: AccumulatorOf<Five, N>,
        _count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<One, N> {
        let total = moments::<N>(accumulator);
        let distance = mean_distance::<A, N>(total, total.count);
        Value::new(Vector::cast_from(deviation::<A, N>(
            total,
            total.count,
            distance,
            parameters,
            false,
        )))
    }
}

/// What normalisations apply to elements: the mean, and the reciprocal of the root of the variance
/// plus `eps`.
#[derive(Clone, Copy, Debug)]
pub struct MeanRstd {
    /// Subtracted from the count: 0 for the variance of a population, 1 for that of a sample.
    pub correction: f64,
    /// Added to the variance, 0 or more.
    pub eps: f64,
}

derived!(MeanRstd: Five -> Two = SpreadOfAll, "mean_rstd", rules::floating,
with |operator| {
    let mut numbers = correction(operator.correction)?;
    numbers.push(not_negative("eps", operator.eps)?.sqrt());
    Ok(numbers)
}, in passes,
finish results);

#[cube]
impl MeanRstd {
    fn results<N: Size>(
        accumulator: AccumulatorOf<Five, N>,
        count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<Two, N> {
        let total = moments::<N>(accumulator);
        let count = count_of::<N>(count);
        let distance = mean_distance::<A, N>(total, count);
        let deviation = deviation::<A, N>(total, count, distance, parameters, false);
        let least = Vector::new(parameters.get::<A>(1usize));
        Pair::new(
            Vector::cast_from(mean::<A, N>(total, distance, false)),
            Vector::cast_from(Vector::<A, N>::from_int(1) / hypotenuse::<N>(deviation, least)),
        )
    }
}

/// The mean, then the sum of squared distances from it.
#[cube]
impl InPasses for MeanRstd {
    type First = Sum;
    type Second = SumSquares;
    type Between = One;

    fn after_first<N: Size>(
        first: Value<A, N>,
        count: usize,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        // Divisions are off by some units on some backends, and equal elements have no distance
        // from their mean.
        let count = count_of::<N>(count);
        let mean = first.value / count;
        Value::new(mean + fma(Vector::from_int(0) - mean, count, first.value) / count)
    }

    fn between<N: Size>(
        value: Vector<In, N>,
        after: Value<A, N>,
        _parameters: &Parameters,
    ) -> Vector<In, N> {
        value - Vector::cast_from(after.value)
    }

    fn finish_passes<N: Size>(
        first: Value<A, N>,
        second: Value<A, N>,
        count: usize,
        parameters: &Parameters,
    ) -> Pair<Out, Out2, N> {
        let correction = Vector::new(parameters.get::<A>(0usize));
        let least = Vector::new(parameters.get::<A>(1usize));
        let divisor = max(count_of::<N>(count) - correction, Vector::from_int(0));
        let deviation = (second.value / divisor).sqrt();
        let reciprocal = Vector::<A, N>::from_int(1) / hypotenuse::<N>(deviation, least);
        // Distances from a mean that is not finite are NaN, but drivers of Vulkan may take the
        // hypotenuse of NaN and a number to be the number.
        let nan = Vector::new(nan_or_lowest::<A>());
        let mean = MeanRstd::after_first::<N>(first, count, parameters).value;
        let reciprocal = select_many(is_finite::<A, N>(mean), reciprocal, nan);
        Pair::new(Vector::cast_from(mean), Vector::cast_from(reciprocal))
    }
}

fn correction(correction: f64) -> Result<Vec<f64>, InvalidParameter> {
    if correction.is_finite() && correction >= 0.0 {
        Ok(vec![correction])
    } else {
        let expected = "a finite number, 0 or more";
        Err(InvalidParameter { name: "correction", value: correction, expected })
    }
}
