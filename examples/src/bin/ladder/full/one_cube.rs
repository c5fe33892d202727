//! Rungs on which one cube is at work, and the rest of the device is not.

use reduce_kernels::cubecl::{self, prelude::*};

use super::steps::{share, store, total_of_halves};

/// One unit walks the whole array.
#[cube(launch_unchecked)]
#[allow(clippy::needless_range_loop, reason = "kernels index slices")]
pub(super) fn one_unit<E: Numeric>(input: &[E], output: &mut [E]) {
    let mut total = E::from_int(0);
    for index in 0..input.len() {
        total += input[index];
    }
    output[0] = total;
}

/// Adds up pairs of neighbours, then pairs of pairs, each in the place of its left half. The units
/// whose place is no multiple of the stride idle, next to some that work.
#[cube(launch_unchecked)]
#[allow(clippy::manual_is_multiple_of, reason = "the remainder is what this rung is about")]
pub(super) fn pairwise_divergent<E: Numeric>(data: &mut [E], output: &mut [E]) {
    let mut stride = 1usize;
    while stride < data.len() {
        let mut left = 2 * UNIT_POS as usize;
        while left + stride < data.len() {
            if left % (2 * stride) == 0 {
                data[left] += data[left + stride];
            }
            left += 2 * CUBE_DIM as usize;
        }
        sync_storage();
        stride *= 2;
    }
    if UNIT_POS == 0 {
        output[0] = data[0];
    }
}

/// Adds the right half to the left one until one element is left. The units at work are neighbours,
/// and so are the elements that they touch.
#[cube(launch_unchecked)]
pub(super) fn pairwise_halving<E: Numeric>(data: &mut [E], output: &mut [E]) {
    let mut length = data.len();
    while length > 1 {
        let half = length.div_ceil(2);
        let mut left = UNIT_POS as usize;
        while left + half < length {
            data[left] += data[left + half];
            left += CUBE_DIM as usize;
        }
        sync_storage();
        length = half;
    }
    if UNIT_POS == 0 {
        output[0] = data[0];
    }
}

/// Each unit adds up its share in a register, and the units' sums meet in shared memory. One cube
/// of it is a rung; as many cubes as run side by side are another.
#[cube(launch_unchecked)]
pub(super) fn shared_memory<E: Numeric>(input: &[E], totals: &mut [E]) {
    let total = total_of_halves::<E>(share::<E>(input));
    store::<E>(totals, total);
}
