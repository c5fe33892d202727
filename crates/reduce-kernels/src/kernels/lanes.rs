//! Several lanes of a reproducible reduction in one unit: an accumulator for each of the
//! neighbouring loads that it takes together.

use cubecl::prelude::*;

use super::{
    accumulate::{load_inside, push_loaded, push_rest},
    combine::{combine_neighbours, combine_vectors},
    load::{AtEnd, Loaded, load, loads_with_rests},
    reducer::Reducer,
    share::Share,
};
use crate::operator::{Accumulator, AccumulatorTypes, Columns, Wide, Width};

/// The accumulator of a share of a tile, whose loads go to the unit's accumulators in turn. These
/// merge as the other lanes of the tile do: components first, then neighbours.
///
/// One accumulator would take neighbouring elements one after the other, which belong to different
/// lanes. A unit for each lane would have few loads of a short column for a merge through shared
/// memory: of 128 elements in 16 lanes, 8 for four steps.
#[cube]
pub(super) fn accumulate_lanes<N: Width>(
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
        push_in_turn(&mut totals, &loads, reducer, count, true);
    }
    // The rest is at most a block.
    let first = share.first + whole_blocks * block;
    if first < share.geometry.loads_per_tile {
        let mut loads = Sequence::<Loaded>::new();
        #[unroll]
        for k in 0..in_flight {
            loads.push(load_inside(share, share.load_after(first, k), first, AtEnd::Never));
        }
        push_in_turn(&mut totals, &loads, reducer, count, false);
    }
    if comptime![access.realigns_along()] {
        push_rests(&mut totals, share, reducer, count);
    }
    let mut parts = Sequence::<Accumulator<N>>::new();
    #[unroll]
    for nth in 0..count {
        parts.push(combine_vectors::<N>(totals.at(nth), access.direction, reducer));
    }
    combine_neighbours::<N>(&mut parts, reducer)
}

/// Pushes the rests of a realigned row that belong to one of `count` accumulators.
#[cube]
fn push_rests(
    totals: &mut Columns<AccumulatorTypes, Wide>,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
    #[comptime] count: usize,
) {
    let width = Wide::value().comptime();
    let mut nth = share.geometry.loads_per_tile;
    let end = loads_with_rests(share);
    while nth < end {
        // Numbers of accumulators that are known only when the kernel runs would keep all of them in
        // local memory. So each rest is pushed to a copy of the one that it belongs to.
        let own = nth % share.stride;
        let mut total = totals.at(0usize);
        #[unroll]
        for other in 1..count {
            let all = select(own == share.first + other, comptime![width as u32].runtime(), 0u32);
            total = total.with_first(all, totals.at(other));
        }
        let pushed = push_rest::<Wide>(total, share, nth, reducer);
        #[unroll]
        for other in 0..count {
            let all = select(own == share.first + other, comptime![width as u32].runtime(), 0u32);
            totals.put(other, totals.at(other).with_first(all, pushed));
        }
        nth += 1;
    }
}

/// Pushes each load to the next of `count` accumulators. If the block is not `whole`, some loads
/// may not be valid.
#[allow(
    clippy::if_same_then_else,
    reason = "one condition is known when the kernel is generated, the other when it runs"
)]
#[cube]
fn push_in_turn(
    totals: &mut Columns<AccumulatorTypes, Wide>,
    loads: &Sequence<Loaded>,
    reducer: &Reducer<'_>,
    #[comptime] count: usize,
    #[comptime] whole: bool,
) {
    #[unroll]
    for k in 0..loads.len().comptime() {
        let own = comptime![k % count];
        let loaded = *loads.index(k);
        if comptime![whole] {
            totals.put(own, push_loaded::<Wide>(totals.at(own), loaded, reducer));
        } else if loaded.valid {
            totals.put(own, push_loaded::<Wide>(totals.at(own), loaded, reducer));
        }
    }
}
