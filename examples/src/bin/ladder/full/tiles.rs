//! Rungs on which each cube reduces a tile of the array, and as many cubes run as there are tiles.

use reduce_kernels::cubecl::{self, prelude::*};

use super::{
    PER_UNIT, UNITS,
    steps::{element, lanes_before, store, total_of_halves, total_of_last_plane},
};

/// Adds pairs of neighbours, then pairs of pairs. A remainder, which is a slow operation, selects
/// the units that work. They are spread over all planes.
#[cube(launch_unchecked)]
#[allow(clippy::manual_is_multiple_of, reason = "the remainder is what this rung is about")]
pub(super) fn interleaved_modulo<E: Numeric>(input: &[E], totals: &mut [E]) {
    let unit = UNIT_POS as usize;
    let mut shared = Shared::<[E]>::new_slice(comptime![UNITS as usize]);
    shared[unit] = element::<E>(input, ABSOLUTE_POS);
    sync_cube();
    let mut stride = 1u32;
    while stride < CUBE_DIM {
        if UNIT_POS % (2 * stride) == 0 {
            shared[unit] = shared[unit] + shared[unit + stride as usize];
        }
        sync_cube();
        stride *= 2;
    }
    store::<E>(totals, shared[0]);
}

/// Adds the same pairs, but with the first units, which form whole planes. The words that a plane
/// accesses lie a power of two apart, so they fall in a few banks of shared memory.
#[cube(launch_unchecked)]
pub(super) fn interleaved_strided<E: Numeric>(input: &[E], totals: &mut [E]) {
    let mut shared = Shared::<[E]>::new_slice(comptime![UNITS as usize]);
    shared[UNIT_POS as usize] = element::<E>(input, ABSOLUTE_POS);
    sync_cube();
    let mut stride = 1u32;
    while stride < CUBE_DIM {
        let left = 2 * stride * UNIT_POS;
        if left < CUBE_DIM {
            let right = left + stride;
            shared[left as usize] = shared[left as usize] + shared[right as usize];
        }
        sync_cube();
        stride *= 2;
    }
    store::<E>(totals, shared[0]);
}

/// Adds the upper half to the lower half: whole planes work, on neighbouring words.
#[cube(launch_unchecked)]
pub(super) fn sequential<E: Numeric>(input: &[E], totals: &mut [E]) {
    let total = total_of_halves::<E>(element::<E>(input, ABSOLUTE_POS));
    store::<E>(totals, total);
}

/// The sum of the elements that a unit of [`first_combine()`] and [`segmented()`] loads. They lie
/// the width of a cube apart.
#[cube]
fn combined_on_load<E: Numeric>(input: &[E]) -> E {
    let first = CUBE_POS * comptime![UNITS as usize * PER_UNIT] + UNIT_POS as usize;
    let mut total = E::from_int(0);
    #[unroll]
    for turn in 0..PER_UNIT {
        total += element::<E>(input, first + turn * comptime![UNITS as usize]);
    }
    total
}

/// Each unit adds up several elements while it loads them, before the tree.
#[cube(launch_unchecked)]
pub(super) fn first_combine<E: Numeric>(input: &[E], totals: &mut [E]) {
    let total = total_of_halves::<E>(combined_on_load::<E>(input));
    store::<E>(totals, total);
}

/// Differs from [`first_combine()`] in that each cube adds its total to the one result.
#[cube(launch_unchecked)]
pub(super) fn segmented<E: Numeric>(input: &[E], result: &mut [Atomic<E>]) {
    let total = total_of_halves::<E>(combined_on_load::<E>(input));
    if UNIT_POS == 0 {
        result[0].fetch_add(total);
    }
}

/// Each unit loads several vectors, none of which waits for another.
#[cube(launch_unchecked)]
pub(super) fn vector_tile<E: Numeric, N: Size>(
    input: &[Vector<E, N>],
    length: usize,
    totals: &mut [E],
) {
    let first = CUBE_POS * comptime![UNITS as usize * PER_UNIT] + UNIT_POS as usize;
    let mut total = E::from_int(0);
    #[unroll]
    for turn in 0..PER_UNIT {
        let index = first + turn * comptime![UNITS as usize];
        if index < input.len() {
            total += lanes_before::<E, N>(input[index], index * N::value(), length);
        }
    }
    let total = total_of_last_plane::<E>(total);
    store::<E>(totals, total);
}
