//! Whole arrays as slices.

use cubecl::prelude::*;

/// All of an array. CubeCL 0.10 adds indices to the slice's offset in the offset's type, and the offset
/// of `to_slice` is a constant of 32 bits: with 64-bit addresses, it must be a run-time value (every cube
/// of this crate has one unit along z).
#[cube]
pub(super) fn whole<E: CubePrimitive>(array: &Array<E>) -> Slice<E> {
    let index = storage_type_of::<usize>();
    if comptime![index.size() == 4] {
        array.to_slice()
    } else {
        array.slice(usize::cast_from(UNIT_POS_Z), array.len())
    }
}

/// As [`whole`], to write to.
#[cube]
pub(super) fn whole_mut<E: CubePrimitive>(array: &mut Array<E>) -> SliceMut<E> {
    let index = storage_type_of::<usize>();
    if comptime![index.size() == 4] {
        array.to_slice_mut()
    } else {
        let length = array.len();
        array.slice_mut(usize::cast_from(UNIT_POS_Z), length)
    }
}
