//! One unit per output.

use reduce_kernels::cubecl::{self, prelude::*};

/// Each unit adds up one row or one column: elements `step` apart, from `distance` times the unit's
/// index on. If `distance` is 1, neighbouring units read neighbouring elements. If `step` is 1,
/// each unit reads a line of its own.
#[cube(launch_unchecked)]
pub(super) fn unit_per_output<E: Numeric>(
    input: &[E],
    totals: &mut [E],
    length: usize,
    distance: usize,
    step: usize,
) {
    if ABSOLUTE_POS < totals.len() {
        let mut total = E::from_int(0);
        for turn in 0..length {
            total += input[ABSOLUTE_POS * distance + turn * step];
        }
        totals[ABSOLUTE_POS] = total;
    }
}

/// Each unit adds up one row, in vectors. This is the row kernel of the CubeCL book's chapter on
/// vectorisation, whose `Line` is called `Vector` since CubeCL 0.10. The book does not add up the
/// components; this kernel does, at the end.
#[cube(launch_unchecked)]
pub(super) fn vectorised_rows<E: Numeric, N: Size>(
    input: &[Vector<E, N>],
    totals: &mut [E],
    vectors: usize,
) {
    if ABSOLUTE_POS < totals.len() {
        let mut sums = Vector::<E, N>::new(E::from_int(0));
        for turn in 0..vectors {
            sums += input[ABSOLUTE_POS * vectors + turn];
        }
        let mut total = E::from_int(0);
        #[unroll]
        for lane in 0..N::value() {
            total += sums.extract(lane);
        }
        totals[ABSOLUTE_POS] = total;
    }
}
