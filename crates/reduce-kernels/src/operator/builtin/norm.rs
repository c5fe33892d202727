//! Vector norms.

use cubecl::prelude::*;

use super::{Sum, SumSquares, extrema::greater, of_passes::LargestMagnitude};
use crate::operator::{
    A, AccumulatorOf, B, Block, Blocks, Blockwise, C, Definition, In, InPasses, InvalidParameter,
    One, Operator, Out, Pair, ParameterRule, Parameters, Passes, Position, Reproducible, ResultsOf,
    Three, Triple, Two, TypeRule, Value,
    block::{Add, Most, all, fold, spread},
    derived::{block_of_pushes, derived},
    element_wise::{constant, is_nan, magnitude},
    math::{pow, pow_of_share, root},
    not_negative, rules,
    same_bits::{converted, has_same_bits, product, square_root, sum},
};

/// The L1 norm: the sum of magnitudes, in floating point; 0 of no elements.
#[derive(Clone, Copy, Debug, Default)]
pub struct NormL1;

/// The L2 norm: the square root of the sum of squares; 0 of no elements.
///
/// Squares may overflow or vanish although the norm is representable. Elements of large and of
/// small magnitude are therefore scaled, and their squares added apart (Blue, "A portable Fortran
/// program to find the Euclidean norm of a vector", 1978).
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

derived!(NormL1: One -> One = Sum, "norm_l1", rules::floating, before element);

#[cube]
impl NormL1 {
    /// What it pushes for an element.
    fn element<N: Size>(value: Vector<In, N>) -> Vector<In, N> {
        magnitude::<In, N>(value)
    }
}

/// Elements of larger magnitude are scaled down: 2^47, or 2^480 in f64. The sum of 2^32 squares of
/// this is finite.
#[cube]
fn largest_plain<E: Float>() -> E {
    constant::<E>(2f32.powi(47), 2f64.powi(480))
}

/// Elements of smaller magnitude are scaled up: 2^-63, or 2^-511 in f64. The square of this is a
/// normal number.
#[cube]
fn smallest_plain<E: Float>() -> E {
    constant::<E>(2f32.powi(-63), 2f64.powi(-511))
}

/// The factor that scales down: 2^-76, or 2^-538 in f64. The sum of the scaled squares is finite
/// unless the norm itself is infinite.
#[cube]
fn scale_down<E: Float>() -> E {
    constant::<E>(2f32.powi(-76), 2f64.powi(-538))
}

/// The factor that scales up: 2^75, or 2^537 in f64. The scaled square of a normal number is a
/// normal number.
#[cube]
fn scale_up<E: Float>() -> E {
    constant::<E>(2f32.powi(75), 2f64.powi(537))
}

/// A block whose sum of squares is smaller than this may hold elements that are to be scaled up:
/// 2^-96, or 2^-960 in f64. In other blocks, squares that vanish are below the last digit of the
/// sum.
#[cube]
fn least_plain_sum<E: Float>() -> E {
    constant::<E>(2f32.powi(-96), 2f64.powi(-960))
}

/// The sums of the squares of the elements: of those that are added as they are, of those that are
/// scaled down, and of those that are scaled up.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Squares<N: Size> {
    plain: Vector<A, N>,
    scaled_down: Vector<A, N>,
    scaled_up: Vector<A, N>,
}

#[cube]
fn squares<N: Size>(fields: Triple<A, B, C, N>) -> Squares<N> {
    Squares::<N> {
        plain: fields.first,
        scaled_down: Vector::cast_from(fields.second),
        scaled_up: Vector::cast_from(fields.third),
    }
}

#[cube]
fn fields<N: Size>(squares: Squares<N>) -> Triple<A, B, C, N> {
    Triple::new(
        squares.plain,
        Vector::cast_from(squares.scaled_down),
        Vector::cast_from(squares.scaled_up),
    )
}

/// The square root of the sum of squares of two numbers that are not negative, without overflow on
/// the way. NaN if `left` is NaN.
#[cube]
pub(super) fn hypotenuse<N: Size>(left: Vector<A, N>, right: Vector<A, N>) -> Vector<A, N> {
    let one = Vector::from_int(1);
    let grows = right.greater_than(&left);
    let most = select_many(grows, right, left);
    let least = select_many(grows, left, right);
    // This is also what is right if both are 0 or the larger one is infinite.
    let ratio = least / most;
    let sum = most * (one + ratio * ratio).sqrt();
    let alone =
        least.equal(&Vector::from_int(0)).or(most.greater_than(&Vector::new(A::max_value())));
    select_many(alone, most, sum)
}

/// The L2 norm of the elements.
#[cube]
fn norm<N: Size>(total: Squares<N>) -> Vector<A, N> {
    let same = has_same_bits();
    if comptime![same] { root_of_squares::<N>(total) } else { rooted_squares::<N>(total) }
}

/// A sum of plain squares from which on those that are scaled up are below its last digit: 2^-40,
/// or 2^-900 in f64.
#[cube]
fn least_sum_alone<E: Float>() -> E {
    constant::<E>(2f32.powi(-40), 2f64.powi(-900))
}

/// The L2 norm as one root of one sum, whose terms have one scale. Everything but the root is exact
/// or a sum, so all devices agree.
#[cube]
fn root_of_squares<N: Size>(total: Squares<N>) -> Vector<A, N> {
    let one = Vector::<A, N>::from_int(1);
    let zero = Vector::<A, N>::from_int(0);
    let down = Vector::new(scale_down::<A>());
    let up = Vector::new(scale_up::<A>());
    // The reciprocals of the scales, which are powers of two.
    let from_down = Vector::new(constant::<A>(2f32.powi(76), 2f64.powi(538)));
    let from_up = Vector::new(constant::<A>(2f32.powi(-75), 2f64.powi(-537)));
    let large = total.scaled_down.greater_than(&zero);
    let small = total.plain.less_than(&Vector::new(least_sum_alone::<A>()));
    let scale = select_many(large, down, select_many(small, up, one));
    let beside = select_many(large, total.scaled_down, select_many(small, total.scaled_up, zero));
    let back = select_many(large, from_down, select_many(small, from_up, one));
    let plain = product::<A, N>(product::<A, N>(total.plain, scale), scale);
    let norm = square_root::<A, N>(sum::<A, N>(plain, beside));
    product::<A, N>(norm, back)
}

/// The L2 norm, made of the root of each sum.
#[cube]
fn rooted_squares<N: Size>(total: Squares<N>) -> Vector<A, N> {
    // Each root is divided by its scale: the sum divided by the square of the scale may not be
    // representable.
    let small = total.scaled_up.sqrt() / Vector::new(scale_up::<A>());
    let large = total.scaled_down.sqrt() / Vector::new(scale_down::<A>());
    let norm = hypotenuse::<N>(hypotenuse::<N>(total.plain.sqrt(), small), large);
    // NaN is neither large nor small.
    let is_nan = is_nan::<A, N>(total.plain);
    select_many(is_nan, total.plain, norm)
}

#[cube]
impl Operator for NormL2 {
    type Inputs = One;
    type Fields = Three;
    type Results = One;

    const NAME: &'static str = "norm_l2";
    const DEFINED_ON_EMPTY: bool = true;
    const REPRODUCIBLE: Reproducible = Reproducible::ByPosition;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const PASSES: Option<Passes<Self>> = Some(Passes::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(NormL2);

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
        let zero = Vector::<A, N>::from_int(0);
        let one = Vector::<A, N>::from_int(1);
        let large = value.abs().greater_than(&Vector::new(largest_plain::<A>()));
        let small = value.abs().less_than(&Vector::new(smallest_plain::<A>()));
        let down = Vector::new(scale_down::<A>());
        let up = Vector::new(scale_up::<A>());
        let scaled = value * select_many(large, down, select_many(small, up, one));
        // Squares and their sums are normal numbers, and the selections keep compilers from fused
        // multiplications and additions. So all devices agree on the sums.
        let square = scaled * scaled;
        let total = squares::<N>(accumulator);
        fields::<N>(Squares::<N> {
            plain: total.plain + select_many(large.or(small), zero, square),
            scaled_down: total.scaled_down + select_many(large, square, zero),
            scaled_up: total.scaled_up + select_many(small, square, zero),
        })
    }

    fn merge<N: Size>(
        left: Triple<A, B, C, N>,
        right: Triple<A, B, C, N>,
        _parameters: &Parameters,
    ) -> Triple<A, B, C, N> {
        let left = squares::<N>(left);
        let right = squares::<N>(right);
        fields::<N>(Squares::<N> {
            plain: left.plain + right.plain,
            scaled_down: left.scaled_down + right.scaled_down,
            scaled_up: left.scaled_up + right.scaled_up,
        })
    }

    fn finish<N: Size>(
        accumulator: Triple<A, B, C, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(converted::<A, Out, N>(norm::<N>(squares::<N>(accumulator))))
    }
}

/// The factor of RMS normalisation: the reciprocal of the root of the mean square plus `eps`.
#[derive(Clone, Copy, Debug)]
pub struct RmsReciprocal {
    /// Added to the mean square, 0 or more.
    pub eps: f64,
}

/// The factor of L2 normalisation: the reciprocal of the norm, or of `eps` if that is larger.
#[derive(Clone, Copy, Debug)]
pub struct NormL2Reciprocal {
    /// The smallest norm, 0 or more.
    pub eps: f64,
}

derived!(RmsReciprocal: Three -> One = NormL2, "rms_reciprocal", rules::floating,
with |operator| Ok(vec![not_negative("eps", operator.eps)?.sqrt()]), in passes,
finish results);

#[cube]
impl RmsReciprocal {
    /// The reciprocal of the root of the mean square plus the square of `least`, for this norm.
    fn of_norm<N: Size>(norm: Vector<A, N>, count: usize, parameters: &Parameters) -> Vector<A, N> {
        let mean = norm / Vector::<A, N>::cast_from(count).sqrt();
        let least = Vector::new(parameters.get::<A>(0usize));
        let reciprocal = Vector::<A, N>::from_int(1) / hypotenuse::<N>(mean, least);
        // Drivers of Vulkan may make a maximum of a comparison and a selection, which prefers
        // numbers.
        select_many(is_nan::<A, N>(norm), norm, reciprocal)
    }

    fn results<N: Size>(
        accumulator: AccumulatorOf<Three, N>,
        count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<One, N> {
        let norm = norm::<N>(squares::<N>(accumulator));
        Value::new(Vector::cast_from(RmsReciprocal::of_norm::<N>(norm, count, parameters)))
    }
}
derived!(NormL2Reciprocal: Three -> One = NormL2, "norm_l2_reciprocal", rules::floating,
with |operator| Ok(vec![not_negative("eps", operator.eps)?]), in passes,
finish results);

#[cube]
impl NormL2Reciprocal {
    /// The reciprocal of this norm, or of `least` if that is larger.
    fn of_norm<N: Size>(
        norm: Vector<A, N>,
        _count: usize,
        parameters: &Parameters,
    ) -> Vector<A, N> {
        let least = Vector::new(parameters.get::<A>(0usize));
        let divisor = select_many(norm.less_than(&least), least, norm);
        let reciprocal = Vector::<A, N>::from_int(1) / divisor;
        // As above.
        select_many(is_nan::<A, N>(norm), norm, reciprocal)
    }

    fn results<N: Size>(
        accumulator: AccumulatorOf<Three, N>,
        count: usize,
        parameters: &Parameters,
    ) -> ResultsOf<One, N> {
        let norm = norm::<N>(squares::<N>(accumulator));
        Value::new(Vector::cast_from(NormL2Reciprocal::of_norm::<N>(norm, count, parameters)))
    }
}

/// A power of two near the reciprocal of the largest magnitude.
#[cube]
fn factor_of<N: Size>(most: Vector<A, N>) -> Vector<A, N> {
    let one = Vector::from_int(1);
    let down = Vector::new(scale_down::<A>());
    let up = Vector::new(scale_up::<A>());
    let large = most.greater_than(&Vector::new(largest_plain::<A>()));
    let small = most.less_than(&Vector::new(smallest_plain::<A>()));
    select_many(large, down, select_many(small, up, one))
}

/// Two passes for an operator made from the L2 norm: the largest magnitude, then the sum of squares
/// of shares of it, which neither overflow nor vanish. `$operator::of_norm` makes the result.
macro_rules! norm_in_passes {
    ($operator:ident) => {
        #[cube]
        impl InPasses for $operator {
            type First = LargestMagnitude;
            type Second = SumSquares;
            type Between = One;

            fn after_first<N: Size>(
                first: Value<A, N>,
                _count: usize,
                _parameters: &Parameters,
            ) -> Value<A, N> {
                Value::new(factor_of::<N>(first.value))
            }

            fn between<N: Size>(
                value: Vector<In, N>,
                after: Value<A, N>,
                _parameters: &Parameters,
            ) -> Vector<In, N> {
                value * Vector::cast_from(after.value)
            }

            fn finish_passes<N: Size>(
                first: Value<A, N>,
                second: Value<A, N>,
                count: usize,
                parameters: &Parameters,
            ) -> Value<Out, N> {
                let norm = second.value.sqrt() / factor_of::<N>(first.value);
                let norm = select_many(is_nan::<A, N>(second.value), second.value, norm);
                let result = $operator::of_norm::<N>(norm, count, parameters);
                Value::new(Vector::cast_from(result))
            }
        }
    };
}

#[cube]
impl NormL2 {
    /// The norm is the result.
    fn of_norm<N: Size>(
        norm: Vector<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Vector<A, N> {
        norm
    }
}

norm_in_passes!(NormL2);
norm_in_passes!(RmsReciprocal);
norm_in_passes!(NormL2Reciprocal);

/// A block costs one multiplication and addition per element.
#[cube]
impl Blockwise for NormL2 {
    const MAY_REFUSE: bool = true;

    /// Refuses blocks whose squares overflow or vanish, unless all elements are 0.
    fn push_block<N: Size, W: Size>(
        accumulator: Triple<A, B, C, N>,
        block: &Block<W>,
        _parameters: &Parameters,
    ) -> (Triple<A, B, C, N>, Vector<bool, N>) {
        let zero = Vector::<A, W>::from_int(0);
        let mut sum = zero;
        #[unroll]
        for nth in 0..block.load_count() {
            let value = Vector::<A, W>::cast_from(block.value(nth));
            let value = block.inside_or::<A>(nth, value, zero);
            sum += value * value;
        }
        let sum = fold::<Add, A, N, W>(sum);
        let most = Vector::new(largest_plain::<A>() * largest_plain::<A>());
        let fits =
            sum.less_than(&most).vec_and(sum.greater_than(&Vector::new(least_plain_sum::<A>())));
        let mut taken = fits;
        if !all::<N>(fits) {
            let mut size = Vector::<A, W>::cast_from(block.value(0usize)).abs();
            #[unroll]
            for nth in 1..block.load_count() {
                size = max(size, Vector::<A, W>::cast_from(block.value(nth)).abs());
            }
            let size = fold::<Most, A, N, W>(size);
            // NaN is not equal to 0, but it may be lost in a maximum. The sum is NaN then.
            let nothing = size.equal(&Vector::from_int(0)).vec_and(sum.equal(&Vector::from_int(0)));
            taken = nothing.or(fits);
        }
        let total = squares::<N>(accumulator);
        let added = Squares::<N> {
            plain: total.plain + sum,
            scaled_down: total.scaled_down,
            scaled_up: total.scaled_up,
        };
        (fields::<N>(added), taken)
    }
}

#[cube]
impl Operator for NormInf {
    type Inputs = One;
    type Fields = One;
    type Results = One;

    const NAME: &'static str = "norm_inf";
    const DEFINED_ON_EMPTY: bool = true;
    const REPRODUCIBLE: Reproducible = Reproducible::Exact;
    const TYPES: TypeRule = rules::floating;
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(NormInf);

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
        Value::new(larger_magnitude::<A, N>(accumulator.value, size))
    }

    fn merge<N: Size>(
        left: Value<A, N>,
        right: Value<A, N>,
        _parameters: &Parameters,
    ) -> Value<A, N> {
        Value::new(larger_magnitude::<A, N>(left.value, right.value))
    }

    fn finish<N: Size>(
        accumulator: Value<A, N>,
        _count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        Value::new(Vector::cast_from(accumulator.value))
    }
}

block_of_pushes!(NormInf: One);

/// The larger of two magnitudes of each component; NaN if either is NaN.
///
/// The bits of magnitudes are ordered as they are, and those of NaN come last: one maximum of
/// integers, where a maximum of floats that keeps NaN is made of five instructions.
#[cube]
pub(super) fn larger_magnitude<E: Float, N: Size>(
    left: Vector<E, N>,
    right: Vector<E, N>,
) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    if comptime![element.size() == 4] {
        let (left, right) =
            (Vector::<u32, N>::reinterpret(left), Vector::<u32, N>::reinterpret(right));
        Vector::reinterpret(max(left, right))
    } else {
        greater::<E, N>(left, right)
    }
}

/// The largest magnitude, and the sum of the powers of magnitudes divided by it.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
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
    let grows = right.max.greater_than(&left.max);
    let most = select_many(grows, right.max, left.max);
    let least = select_many(grows, left.max, right.max);
    // The ratio is between 0 and 1. It is 1 if both are equal, including two infinities and two
    // zeros.
    let ratio = select_many(least.equal(&most), one, least / most);
    let power = pow::<A, N>(ratio, Vector::new(parameters.get::<A>(0usize)));
    let power = select_many(least.equal(&zero), zero, power);
    let power = select_many(ratio.equal(&one), one, power);
    let of_most = select_many(grows, right.sum, left.sum);
    let of_least = select_many(grows, left.sum, right.sum);
    Pair::new(most, Vector::cast_from(of_most + of_least * power))
}

#[cube]
impl Operator for NormP {
    type Inputs = One;
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "norm_p";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const TRANSCENDENTAL: bool = true;
    const POWERS: bool = true;
    const NATIVE_MATH: bool = false;
    const PARAMETERS: ParameterRule<Self> = |norm| exponent(norm.p);
    const BLOCKS: Option<Blocks<Self>> = Some(Blocks::of());
    const DEFINITION: &'static Definition<Self> = crate::defined!(NormP);

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
        let own = select_many(size.equal(&zero), zero, one);
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
        let norm = select_many(total.sum.equal(&zero), zero, norm);
        // Backends differ in the powers of NaN.
        let is_nan = is_nan::<A, N>(total.sum);
        Value::new(Vector::cast_from(select_many(is_nan, total.sum, norm)))
    }
}

/// A block costs one power for the sum so far, and each element one more. A division is paid once
/// per block.
#[cube]
impl Blockwise for NormP {
    const MAY_REFUSE: bool = true;

    /// Refuses blocks with NaN or `inf`, those that follow one, and those whose largest magnitude
    /// has no normal reciprocal.
    fn push_block<N: Size, W: Size>(
        accumulator: Pair<A, B, N>,
        block: &Block<W>,
        parameters: &Parameters,
    ) -> (Pair<A, B, N>, Vector<bool, N>) {
        let total = scaled_powers::<N>(accumulator);
        let zero = Vector::<A, W>::from_int(0);
        let mut most = Vector::<A, W>::cast_from(block.value(0usize)).abs();
        #[unroll]
        for nth in 1..block.load_count() {
            most = max(most, Vector::<A, W>::cast_from(block.value(nth)).abs());
        }
        let most = max(total.max, fold::<Most, A, N, W>(most));
        let p = parameters.get::<A>(0usize);
        let wide_most = spread::<A, N, W>(most);
        let mut sum = zero;
        let mut ratios = zero;
        #[unroll]
        for nth in 0..block.load_count() {
            let size = Vector::<A, W>::cast_from(block.value(nth)).abs();
            let ratio = ratio::<W>(size, wide_most);
            let power = pow_of_share::<A, W>(ratio, Vector::new(p));
            let power = select_many(size.equal(&zero), zero, power);
            sum += block.inside_or::<A>(nth, power, zero);
            ratios += ratio;
        }
        let sum = fold::<Add, A, N, W>(sum);
        let none = Vector::from_int(0);
        let share = pow_of_share::<A, N>(ratio::<N>(total.max, most), Vector::new(p));
        let share = select_many(total.max.equal(&none), none, share);
        // Backends differ in the maxima and powers of NaN, but not in sums.
        let finite = Vector::new(A::max_value());
        let ratios = fold::<Add, A, N, W>(ratios) + ratio::<N>(total.max, most);
        let fits = ratios.less_equal(&finite).vec_and(total.sum.less_equal(&finite));
        // The reciprocal of a larger maximum is denormal, and some devices take it for 0.
        let taken = fits.vec_and(most.less_equal(&Vector::new(largest_divisor::<A>())));
        (Pair::new(most, Vector::cast_from(total.sum * share + sum)), taken)
    }
}

/// The largest number that others are divided by in a block: 2^126, whose reciprocal is the
/// smallest normal number, or any number in f64.
#[cube]
fn largest_divisor<E: Float>() -> E {
    constant::<E>(2f32.powi(126), f64::MAX)
}

/// `size / most`, or 0 if both are 0. In f32 it is a product with the reciprocal, which compilers
/// compute once per block. It is not finite if the reciprocal is not. Powers of f32 are less
/// accurate than that.
#[cube]
fn ratio<N: Size>(size: Vector<A, N>, most: Vector<A, N>) -> Vector<A, N> {
    let element = elem_type_of::<A>();
    let zero = Vector::from_int(0);
    let ratio = if comptime![element.size() == 8] {
        size / most
    } else {
        size * (Vector::from_int(1) / most)
    };
    select_many(most.equal(&zero), size, ratio)
}

fn exponent(p: f64) -> Result<Vec<f64>, InvalidParameter> {
    if p.is_finite() && p > 0.0 {
        Ok(vec![p])
    } else {
        Err(InvalidParameter { name: "p", value: p, expected: "a finite number above 0" })
    }
}
