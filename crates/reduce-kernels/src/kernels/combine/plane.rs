//! The units of a plane.

use cubecl::prelude::*;

use crate::{
    kernels::reducer::Reducer,
    operator::{Accumulator, Width},
};

/// Merges the accumulators of every `lanes` units that stand `unit_stride` apart in their plane, in
/// butterflies, neighbours first. The first of them ends up with the total.
///
/// Every unit of the plane must call it. The units of a cube must fill its planes in the order of
/// their positions. They do on every backend whose cubes are one-dimensional and hold whole planes.
#[cube]
pub(in crate::kernels) fn combine_plane<N: Width>(
    accumulator: Accumulator<N>,
    zero: u32,
    reducer: &Reducer<'_>,
    #[comptime] lanes: u32,
    #[comptime] unit_stride: u32,
) -> Accumulator<N> {
    // The butterfly gives the total to all lanes at no extra cost. CubeCL's own plane operations
    // (`plane_sum` and the like) know sums and extrema of numbers, not accumulators of several
    // fields.
    let mut total = accumulator;
    if comptime![reducer.operator.0.merges_in_loops()] {
        // A copy of a long merge for each level takes compilers long; see `unknown_zero`.
        let mut mask = unit_stride + zero;
        while mask < comptime![lanes * unit_stride] {
            let partner = total.shuffle_xor(mask);
            total = reducer.merge::<N>(total, partner);
            mask *= 2;
        }
    } else {
        #[unroll]
        for level in 0..comptime![lanes.ilog2()] {
            let mask = comptime![unit_stride << level];
            let partner = total.shuffle_xor(mask);
            total = reducer.merge::<N>(total, partner);
        }
    }
    total
}
