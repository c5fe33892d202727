//! What operators do to single elements, for types known only when a kernel is built, in ways that
//! every backend's compiler leaves alone.
#![allow(missing_docs, reason = "#[cube] adds an undocumented twin of each function")]

use core::ops::Not;

use cubecl::prelude::*;

/// Bits of the binary32 `+inf`.
const INFINITY_BITS: u32 = 0x7f80_0000;
/// Bits of the binary32 `-inf`.
const NEGATIVE_INFINITY_BITS: u32 = 0xff80_0000;
/// Bits of a quiet binary32 NaN.
const NAN_BITS: u32 = 0x7fc0_0000;

/// A value that no other is below: `-inf`, or an integer type's minimum.
#[cube]
pub fn lowest<E: Float>() -> E {
    let element = storage_type_of::<E>();
    if comptime![element.is_float()] {
        from_bits::<E>(NEGATIVE_INFINITY_BITS)
    } else {
        E::min_value()
    }
}

/// A value that no other is above: `+inf`, or an integer type's maximum.
#[cube]
pub fn highest<E: Float>() -> E {
    let element = storage_type_of::<E>();
    if comptime![element.is_float()] { from_bits::<E>(INFINITY_BITS) } else { E::max_value() }
}

/// NaN; the lowest value of types that have none.
#[cube]
pub fn nan_or_lowest<E: Float>() -> E {
    let element = storage_type_of::<E>();
    if comptime![element.is_float()] { from_bits::<E>(NAN_BITS) } else { E::min_value() }
}

/// NaN; the highest value of types that have none.
#[cube]
pub fn nan_or_highest<E: Float>() -> E {
    let element = storage_type_of::<E>();
    if comptime![element.is_float()] { from_bits::<E>(NAN_BITS) } else { E::max_value() }
}

/// WGSL rejects constant expressions that are not finite, so the bits pass through a run-time value:
/// every cube of this crate has one unit along z.
#[cube]
fn from_bits<E: Float>(#[comptime] bits: u32) -> E {
    E::cast_from(f32::reinterpret(UNIT_POS_Z + bits))
}

/// Whether each lane is NaN. Integers never are.
#[cube]
pub fn is_nan<E: Float, N: Size>(value: Vector<E, N>) -> Vector<bool, N> {
    let element = storage_type_of::<E>();
    if comptime![element.is_float() && element.size() < 8] {
        value.is_nan()
    } else {
        // CubeCL 0.10 has the bits of f64 wrong in WGSL; compilers leave this comparison alone.
        value.equal(value).not()
    }
}

/// Whether each lane is neither infinite nor NaN.
#[cube]
pub fn is_finite<E: Float, N: Size>(value: Vector<E, N>) -> Vector<bool, N> {
    value.abs().less_equal(Vector::new(E::max_value()))
}

/// `condition`, or true in the lanes where `value` is NaN.
#[cube]
pub fn or_nan<E: Float, N: Size>(
    condition: Vector<bool, N>,
    value: Vector<E, N>,
) -> Vector<bool, N> {
    let element = storage_type_of::<E>();
    if comptime![element.is_float()] { condition.or(is_nan::<E, N>(value)) } else { condition }
}

/// `condition`, but false in the lanes where `value` is NaN.
#[cube]
pub fn and_not_nan<E: Float, N: Size>(
    condition: Vector<bool, N>,
    value: Vector<E, N>,
) -> Vector<bool, N> {
    let element = storage_type_of::<E>();
    if comptime![element.is_float()] {
        condition.and(is_nan::<E, N>(value).not())
    } else {
        condition
    }
}

/// Each lane, or `other` where it is NaN.
#[cube]
pub fn unless_nan<E: Float, N: Size>(value: Vector<E, N>, other: Vector<E, N>) -> Vector<E, N> {
    let element = storage_type_of::<E>();
    if comptime![element.is_float()] {
        select_many(is_nan::<E, N>(value), other, value)
    } else {
        value
    }
}

/// The magnitude of each lane. That of a signed type's minimum is its own bits.
#[cube]
pub fn magnitude<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = storage_type_of::<E>();
    if comptime![element.is_unsigned_int()] { value } else { value.abs() }
}

/// 1 in the lanes that are not zero, NaN among them, else 0.
#[cube]
pub fn is_nonzero<E: Float, U: Float, N: Size>(value: Vector<E, N>) -> Vector<U, N> {
    let nonzero = value.not_equal(Vector::from_int(0));
    select_many(or_nan::<E, N>(nonzero, value), Vector::from_int(1), Vector::from_int(0))
}

/// A constant of type `E`: `wide` for f64, whose range `narrow` would not use, else `narrow`.
#[cube]
pub fn constant<E: Float>(#[comptime] narrow: f32, #[comptime] wide: f64) -> E {
    let element = storage_type_of::<E>();
    if comptime![element.size() == 8] { E::cast_from(wide) } else { E::new(narrow) }
}
