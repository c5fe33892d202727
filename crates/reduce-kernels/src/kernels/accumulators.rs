//! Several accumulators of one unit for a tile, one for each of the neighbouring loads that a
//! reproducible plan gives it.

use cubecl::prelude::*;

use super::{
    accumulate::{load_inside, push_loaded},
    load::{AtEnd, Loaded, load},
    reducer::Reducer,
    share::Share,
    total::fold_vectors,
};
use crate::operator::{Accumulator, AccumulatorTypes, Columns, Wide, Width};

/// The accumulator of a share of a tile, whose loads go to the unit's accumulators in turn. These
/// merge as the other lanes of the tile do: components first, then neighbours.
///
/// One accumulator would take neighbouring elements one after the other, which belong to different
/// lanes. Giving each lane a unit instead costs short columns more than it gives: of 128 elements
/// in 16 lanes, a unit had 8 loads for a merge in four steps through shared memory.
#[cube]
pub(super) fn accumulate_in_turn<N: Width>(
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let access = comptime![share.access];
    let count = comptime![access.accumulators];
    let in_flight = comptime![access.loads_in_flight];
    let fields = comptime![reducer.operator.0.fields];
    let mut totals = Columns::<AccumulatorTypes, Wide>::local(count, fields);
    #[unroll]
    for nth in 0..count {
        totals.put(nth, reducer.identity::<Wide>());
    }
    let block = share.block_stride();
    let whole_blocks = share.geometry.loads_per_tile / block;
    for turn in 0..whole_blocks {
        let first = share.first + turn * block;
        let mut loads = Sequence::<Loaded>::new();
        #[unroll]
        for k in 0..in_flight {
            loads.push(load(share, share.load_after(first, k), AtEnd::Never));
        }
        #[unroll]
        for k in 0..in_flight {
            let own = comptime![k % count];
            let loaded = *loads.index(k);
            let pushed = push_loaded::<Wide>(totals.at(own), loaded, reducer);
            totals.put(own, pushed);
        }
    }
    // The rest is at most a block.
    let first = share.first + whole_blocks * block;
    if first < share.geometry.loads_per_tile {
        let mut loads = Sequence::<Loaded>::new();
        #[unroll]
        for k in 0..in_flight {
            loads.push(load_inside(share, share.load_after(first, k), first, AtEnd::Never));
        }
        #[unroll]
        for k in 0..in_flight {
            let own = comptime![k % count];
            let loaded = *loads.index(k);
            if loaded.valid {
                let pushed = push_loaded::<Wide>(totals.at(own), loaded, reducer);
                totals.put(own, pushed);
            }
        }
    }
    let mut parts = Sequence::<Accumulator<N>>::new();
    #[unroll]
    for nth in 0..count {
        parts.push(fold_vectors::<N>(totals.at(nth), share, reducer));
    }
    #[unroll]
    for pair in 0..count - 1 {
        let left = *parts.index(comptime![2 * pair]);
        let right = *parts.index(comptime![2 * pair + 1]);
        parts.push(reducer.merge::<N>(left, right));
    }
    *parts.index(comptime![2 * count - 2])
}
