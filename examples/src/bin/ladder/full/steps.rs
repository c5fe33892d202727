//! What the kernels of several rungs do.

use reduce_kernels::cubecl::{self, prelude::*};

use super::UNITS;

/// The element at an index, or 0 past the end.
#[cube]
pub(super) fn element<E: Numeric>(input: &[E], index: usize) -> E {
    let mut value = E::from_int(0);
    if index < input.len() {
        value = input[index];
    }
    value
}

/// A unit's share of the array: as many elements as there are units apart, so that neighbouring
/// units read neighbouring elements.
#[cube]
pub(super) fn share<E: Numeric>(input: &[E]) -> E {
    let mut total = E::from_int(0);
    let mut index = ABSOLUTE_POS;
    while index < input.len() {
        total += input[index];
        index += CUBE_COUNT * CUBE_DIM as usize;
    }
    total
}

/// The sum of the values of a cube's units, in shared memory: the upper half is added to the lower
/// one until one value is left. Neighbouring units touch neighbouring words, and whole planes
/// retire.
#[cube]
pub(super) fn total_of_halves<E: Numeric>(value: E) -> E {
    let unit = UNIT_POS as usize;
    let mut shared = Shared::<[E]>::new_slice(comptime![UNITS as usize]);
    shared[unit] = value;
    sync_cube();
    let mut half = CUBE_DIM / 2;
    while half > 0 {
        if UNIT_POS < half {
            shared[unit] = shared[unit] + shared[unit + half as usize];
        }
        sync_cube();
        half /= 2;
    }
    shared[0]
}

/// The sum of the values of a cube's units. It works as [`total_of_halves()`] until the values of
/// one plane are left. The units of a plane add these up without shared memory and barriers. All
/// planes do so, which keeps control flow uniform.
#[cube]
pub(super) fn total_of_last_plane<E: Numeric>(value: E) -> E {
    let unit = UNIT_POS as usize;
    let mut shared = Shared::<[E]>::new_slice(comptime![UNITS as usize]);
    shared[unit] = value;
    sync_cube();
    let mut half = CUBE_DIM / 2;
    while half >= PLANE_DIM {
        if UNIT_POS < half {
            shared[unit] = shared[unit] + shared[unit + half as usize];
        }
        sync_cube();
        half /= 2;
    }
    plane_sum(shared[UNIT_POS_PLANE as usize])
}

/// Stores a cube's total in its place. A grid may have more cubes than there are places.
#[cube]
pub(super) fn store<E: Numeric>(totals: &mut [E], total: E) {
    if UNIT_POS == 0 && CUBE_POS < totals.len() {
        totals[CUBE_POS] = total;
    }
}

/// The sum of the components of a vector that lie before `length`, where the first component lies
/// at `first`.
#[cube]
pub(super) fn lanes_before<E: Numeric, N: Size>(
    vector: Vector<E, N>,
    first: usize,
    length: usize,
) -> E {
    let mut total = E::from_int(0);
    #[unroll]
    for lane in 0..N::value() {
        if first + lane < length {
            total += vector.extract(lane);
        }
    }
    total
}
