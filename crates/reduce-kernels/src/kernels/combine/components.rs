//! The components of a vector, and other neighbours that one unit holds.

use cubecl::prelude::*;
use reduce_planner::Direction;

use crate::{
    kernels::reducer::Reducer,
    operator::{Accumulator, Single, Wide, Width},
};

/// The accumulator of a tile from that of a unit's vectors, whose components belong to one output
/// along, and to one each across.
#[cube]
pub(in crate::kernels) fn combine_vectors<N: Width>(
    vectors: Accumulator<Wide>,
    #[comptime] direction: Direction,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    match comptime![direction] {
        Direction::Along => {
            let mut parts = Sequence::<Accumulator<Single>>::new();
            #[unroll]
            for nth in 0..Wide::value().comptime() {
                parts.push(vectors.component(nth));
            }
            combine_neighbours::<Single>(&mut parts, reducer).resized::<N>()
        }
        Direction::Across => vectors.resized::<N>(),
    }
}

/// Merges the accumulators of a list: neighbours first, then neighbouring pairs, and so on. Their
/// number is a power of two.
#[cube]
pub(in crate::kernels) fn combine_neighbours<N: Width>(
    parts: &mut Sequence<Accumulator<N>>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    // The merged pairs are appended to the list. Its last entry is the total.
    let count = parts.len().comptime();
    #[unroll]
    for pair in 0..count - 1 {
        let left = *parts.index(comptime![2 * pair]);
        let right = *parts.index(comptime![2 * pair + 1]);
        parts.push(reducer.merge::<N>(left, right));
    }
    *parts.index(comptime![2 * count - 2])
}
