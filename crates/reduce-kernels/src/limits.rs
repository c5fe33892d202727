//! The ends of an element type's range, and NaN, for types known only when a kernel is built.

use cubecl::prelude::*;

/// Bits of the binary32 `+inf`.
const INFINITY_BITS: u32 = 0x7f80_0000;
/// Bits of the binary32 `-inf`.
const NEGATIVE_INFINITY_BITS: u32 = 0xff80_0000;

/// A value that no other is below: `-inf`, or an integer type's minimum.
#[cube]
pub(crate) fn lowest<E: Float>() -> E {
    let element = storage_type_of::<E>();
    if comptime![element.is_float()] {
        infinity::<E>(NEGATIVE_INFINITY_BITS)
    } else {
        E::min_value()
    }
}

/// A value that no other is above: `+inf`, or an integer type's maximum.
#[cube]
pub(crate) fn highest<E: Float>() -> E {
    let element = storage_type_of::<E>();
    if comptime![element.is_float()] { infinity::<E>(INFINITY_BITS) } else { E::max_value() }
}

/// WGSL rejects constant expressions that are infinite, so the bits pass through a run-time value:
/// every cube of this crate has one unit along z.
#[cube]
fn infinity<E: Float>(#[comptime] bits: u32) -> E {
    E::cast_from(f32::reinterpret(UNIT_POS_Z + bits))
}

/// `condition`, or true in the lanes where `value` is NaN. Integers have none.
#[cube]
pub(crate) fn or_nan<E: Float, N: Size>(
    condition: Vector<bool, N>,
    value: Vector<E, N>,
) -> Vector<bool, N> {
    let element = storage_type_of::<E>();
    if comptime![element.is_float()] { condition.or(value.is_nan()) } else { condition }
}
