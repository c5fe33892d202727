//! Rungs on which as many cubes run as the device holds, and each unit reads its share of the
//! array.

use reduce_kernels::cubecl::{self, prelude::*};

use super::{
    PER_UNIT,
    steps::{element, lanes_before, share, store, total_of_last_plane},
};

/// Differs from [`shared_memory()`](crate::full::one_cube::shared_memory()) in that one plane adds
/// up the last values.
#[cube(launch_unchecked)]
pub(super) fn last_plane<E: Numeric>(input: &[E], totals: &mut [E]) {
    let total = total_of_last_plane::<E>(share::<E>(input));
    store::<E>(totals, total);
}

/// Differs from [`last_plane()`] in that each cube adds its total to the one result.
#[cube(launch_unchecked)]
pub(super) fn one_pass<E: Numeric>(input: &[E], result: &mut [Atomic<E>]) {
    let total = total_of_last_plane::<E>(share::<E>(input));
    if UNIT_POS == 0 {
        result[0].fetch_add(total);
    }
}

/// What the kernels with atomics need first.
#[cube(launch_unchecked)]
pub(super) fn clear<E: Numeric>(result: &mut [E]) {
    result[0] = E::from_int(0);
}

/// Each unit reads several neighbouring elements at a time, one by one.
#[cube(launch_unchecked)]
pub(super) fn batched<E: Numeric>(input: &[E], totals: &mut [E]) {
    let mut total = E::from_int(0);
    let mut first = ABSOLUTE_POS * PER_UNIT;
    while first < input.len() {
        #[unroll]
        for turn in 0..PER_UNIT {
            total += element::<E>(input, first + turn);
        }
        first += CUBE_COUNT * CUBE_DIM as usize * PER_UNIT;
    }
    let total = total_of_last_plane::<E>(total);
    store::<E>(totals, total);
}

/// Each unit reads several neighbouring elements at a time, in one load.
#[cube(launch_unchecked)]
pub(super) fn vectorised<E: Numeric, N: Size>(
    input: &[Vector<E, N>],
    length: usize,
    totals: &mut [E],
) {
    let whole = length / N::value();
    let mut sums = Vector::<E, N>::new(E::from_int(0));
    let mut index = ABSOLUTE_POS;
    while index < whole {
        sums += input[index];
        index += CUBE_COUNT * CUBE_DIM as usize;
    }
    let mut total = lanes_before::<E, N>(sums, 0, N::value());
    // The first unit reads the vector that extends past the end.
    if ABSOLUTE_POS == 0 && whole < input.len() {
        total += lanes_before::<E, N>(input[whole], whole * N::value(), length);
    }
    let total = total_of_last_plane::<E>(total);
    store::<E>(totals, total);
}
