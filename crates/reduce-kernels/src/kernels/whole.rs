//! Whole arrays as slices, and what kernels bind as columns of them.

use cubecl::prelude::*;

use crate::operator::{Columns, VectorColumns};

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
fn whole_mut<E: CubePrimitive>(array: &mut Array<E>) -> SliceMut<E> {
    let index = storage_type_of::<usize>();
    if comptime![index.size() == 4] {
        array.to_slice_mut()
    } else {
        let length = array.len();
        array.slice_mut(usize::cast_from(UNIT_POS_Z), length)
    }
}

/// As [`whole_mut`], where there is an array.
#[cube]
fn whole_option<E: CubePrimitive>(
    array: &mut ComptimeOption<Array<E>>,
) -> ComptimeOption<SliceMut<E>> {
    #[comptime]
    match array {
        ComptimeOption::Some(array) => ComptimeOption::new_Some(whole_mut(array)),
        ComptimeOption::None => ComptimeOption::new_None(),
    }
}

/// The arrays of up to three results.
#[cube]
pub(super) fn results<X: Float, Y: Float, Z: Float>(
    x: &mut ComptimeOption<Array<X>>,
    y: &mut ComptimeOption<Array<Y>>,
    z: &mut ComptimeOption<Array<Z>>,
) -> Columns<(X, Y, Z, Z, Z)> {
    let z = whole_option(z);
    Columns::new(whole_option(x), whole_option(y), z, z, z)
}

/// The arrays of up to three results, as vectors.
#[cube]
pub(super) fn vector_results<X: Float, Y: Float, Z: Float, N: Size>(
    x: &mut ComptimeOption<Array<Vector<X, N>>>,
    y: &mut ComptimeOption<Array<Vector<Y, N>>>,
    z: &mut ComptimeOption<Array<Vector<Z, N>>>,
) -> VectorColumns<(X, Y, Z, Z, Z), N> {
    let z = whole_option(z);
    VectorColumns::new(whole_option(x), whole_option(y), z, z, z)
}

/// The arrays of up to five fields of partial results.
#[cube]
pub(super) fn partials<A: Float, B: Float, C: Float, D: Float, E: Float>(
    a: &mut ComptimeOption<Array<A>>,
    b: &mut ComptimeOption<Array<B>>,
    c: &mut ComptimeOption<Array<C>>,
    d: &mut ComptimeOption<Array<D>>,
    e: &mut ComptimeOption<Array<E>>,
) -> Columns<(A, B, C, D, E)> {
    Columns::new(
        whole_option(a),
        whole_option(b),
        whole_option(c),
        whole_option(d),
        whole_option(e),
    )
}
