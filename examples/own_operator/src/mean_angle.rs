//! The mean of angles.

// `#[cube]` expects `cubecl` by that name.
use cubecl::prelude::*;
use reduce_kernels::{
    cubecl,
    operator::{
        A, B, Definition, In, One, Operator, Out, Pair, Parameters, Position, Two, TypeRule, Value,
        defined, rules,
    },
};

/// The mean direction of angles in radians: that of the sum of their unit vectors, from -π to π.
///
/// The arithmetic mean of 179° and -179° is 0°, the opposite of both; this is 180°.
///
/// NaN of no elements; where an element is NaN or infinite; and where the directions cancel out, as
/// those of 0 and π do, because the direction of what is left is rounding alone: where the mean
/// vector is shorter than 2⁻¹⁸.
///
/// Angles of any number of turns may be given: full turns are taken off first, which costs no more
/// than the last digit of the angle. Beyond that the result is as good as the device's sine, cosine
/// and arctangent.
#[derive(Clone, Copy, Debug, Default)]
pub struct MeanAngle;

/// Mean vectors up to this length have no direction: 2⁻¹⁸.
const FAINTEST: f32 = 1.0 / 262_144.0;

/// Bits that make a binary32 a NaN, whatever the others are.
const NAN_BITS: u32 = 0x7fc0_0000;

/// 2π in all the digits that `E` has.
#[cube]
fn full_turn<E: Float>() -> E {
    let element = elem_type_of::<E>();
    if comptime![element.size() == 8] {
        E::cast_from(core::f64::consts::TAU)
    } else {
        E::new(core::f32::consts::TAU)
    }
}

/// NaN. WGSL rejects constants that are not finite, so digits that a NaN is free to have come from
/// a number that is known at run time alone.
#[cube]
fn nan<E: Float>(count: usize) -> E {
    E::cast_from(f32::reinterpret(u32::cast_from(count) | NAN_BITS))
}

#[cube]
impl Operator for MeanAngle {
    type Inputs = One;
    type Fields = Two;
    type Results = One;

    const NAME: &'static str = "mean angle";
    const DEFINED_ON_EMPTY: bool = true;
    const TYPES: TypeRule = rules::floating;
    const PAIRWISE: bool = true;
    const TRANSCENDENTAL: bool = true;
    const DEFINITION: &'static Definition<Self> = defined!(MeanAngle);

    /// The sums of sines and of cosines.
    fn identity<N: Size>() -> Pair<A, B, N> {
        Pair::new(Vector::from_int(0), Vector::from_int(0))
    }

    fn push<N: Size>(
        accumulator: Pair<A, B, N>,
        value: Vector<In, N>,
        _position: Position,
        parameters: &Parameters,
    ) -> Pair<A, B, N> {
        let turn = Vector::<A, N>::new(full_turn::<A>());
        let angle = Vector::<A, N>::cast_from(value);
        // Vulkan and WGSL promise sines and cosines from -π to π alone.
        let angle = angle - (angle / turn).round() * turn;
        // What an infinity leaves is NaN, of which sines are not the same everywhere.
        let is_nan = angle.is_nan();
        let element = Pair::new(
            select_many(is_nan, angle, angle.sin()),
            Vector::cast_from(select_many(is_nan, angle, angle.cos())),
        );
        MeanAngle::merge::<N>(accumulator, element, parameters)
    }

    fn merge<N: Size>(
        left: Pair<A, B, N>,
        right: Pair<A, B, N>,
        _parameters: &Parameters,
    ) -> Pair<A, B, N> {
        Pair::new(left.first + right.first, left.second + right.second)
    }

    fn finish<N: Size>(
        accumulator: Pair<A, B, N>,
        count: usize,
        _parameters: &Parameters,
    ) -> Value<Out, N> {
        let sines = accumulator.first;
        let cosines = Vector::<A, N>::cast_from(accumulator.second);
        let faintest = A::cast_from(count) * A::cast_from(FAINTEST);
        // False for NaN, and for no elements.
        let has_direction = max(sines.abs(), cosines.abs()).greater_than(&Vector::new(faintest));
        let direction = sines.atan2(cosines);
        let none = Vector::new(nan::<A>(count));
        Value::new(Vector::cast_from(select_many(has_direction, direction, none)))
    }
}
