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

/// The total of this lane and of the `reach` lanes before it, of every `lanes` units that stand
/// `unit_stride` apart in their plane. `zero` is 0, the same in all units, and unknown to compilers.
/// Every lane of the plane must get here.
#[cube]
pub(in crate::kernels) fn scan_lanes<N: Width>(
    total: Accumulator<N>,
    reach: u32,
    zero: u32,
    reducer: &Reducer<'_>,
    #[comptime] lanes: u32,
    #[comptime] unit_stride: u32,
) -> Accumulator<N> {
    let mut scanned = total;
    if comptime![reducer.operator.0.merges_in_loops()] {
        // A copy of a long merge for each level takes compilers long; see `unknown_zero`.
        let mut distance = 1u32 + zero;
        while distance < lanes {
            scanned = with_lane_before::<N>(scanned, distance, reach, reducer, unit_stride);
            distance *= 2;
        }
    } else {
        #[unroll]
        for level in 0..comptime![lanes.ilog2()] {
            let distance = comptime![1u32 << level].runtime();
            scanned = with_lane_before::<N>(scanned, distance, reach, reducer, unit_stride);
        }
    }
    scanned
}

/// The total of a lane, with that of the lane `distance` before it if it is within `reach`.
#[cube]
fn with_lane_before<N: Width>(
    total: Accumulator<N>,
    distance: u32,
    reach: u32,
    reducer: &Reducer<'_>,
    #[comptime] unit_stride: u32,
) -> Accumulator<N> {
    let earlier = total.shuffle_up(distance * unit_stride);
    let mut both = total;
    if distance <= reach {
        both = reducer.merge::<N>(earlier, total);
    }
    both
}
