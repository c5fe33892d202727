//! The work of a team, from the first load to the tile's accumulator.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    accumulate::{accumulate, accumulate_edges},
    combine::{combine_units, combine_vectors},
    lanes::accumulate_lanes,
    realign::{combine_windows, window},
    reducer::Reducer,
    share::Share,
};
use crate::operator::{Accumulator, Wide, Width};

/// The accumulator of a tile, complete in member 0. `N` is [`Single`](crate::operator::Single)
/// along, for one output, and [`Wide`] across, for a vector of outputs.
#[cube]
pub(super) fn total<N: Width>(share: &Share<'_>, reducer: &Reducer<'_>) -> Accumulator<N> {
    total_with_edges::<N>(share, reducer, comptime![has_edges(share.access)])
}

/// [`total()`], where `edges` says whether the ends of inner dimensions are read element by
/// element.
#[cube]
pub(super) fn total_with_edges<N: Width>(
    share: &Share<'_>,
    reducer: &Reducer<'_>,
    #[comptime] edges: bool,
) -> Accumulator<N> {
    if comptime![share.access.realigns_across()] {
        let window = window(share);
        let share = share.with_tile(window.tile);
        let wide = accumulate::<Wide>(reducer.identity::<Wide>(), &share, reducer);
        let block = share.tile.block;
        combine_windows(wide, window.before, block, share.unknown_zero(), reducer).resized::<N>()
    } else {
        // Block functions give one accumulator for all components of a load: 5 registers for a
        // variance and not 40 with vectors of 8, and nothing merges components. Without them, a
        // unit has an accumulator for each component, which are merged once, at the end.
        let total = if comptime![reducer.operator.0.blocks.is_some()] {
            // Edges come first, so that the loop goes on with their accumulator and nothing merges
            // it.
            let first = if edges {
                accumulate_edges(share, reducer).resized::<N>()
            } else {
                reducer.identity::<N>()
            };
            accumulate::<N>(first, share, reducer)
        } else if comptime![share.access.accumulators > 1] {
            accumulate_lanes::<N>(share, reducer)
        } else {
            let wide = accumulate::<Wide>(reducer.identity::<Wide>(), share, reducer);
            let vectors = combine_vectors::<N>(wide, share.access.direction, reducer);
            // The rests of realigned rows have been taken with the loads.
            let apart = comptime![edges && !share.access.realigned];
            if apart { with_edges::<N>(vectors, share, reducer) } else { vectors }
        };
        combine_team::<N>(total, share.unknown_zero(), reducer)
    }
}

/// Whether elements at the edges of inner dimensions are read one by one.
pub(super) fn has_edges(access: Access) -> bool {
    (access.peeled || access.realigned) && access.direction == Direction::Along
}

/// Along, adds this unit's share of the elements at the edges of inner dimensions.
#[cube]
pub(super) fn with_edges<N: Width>(
    vectors: Accumulator<N>,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let edges = accumulate_edges(share, reducer).resized::<N>();
    reducer.merge::<N>(vectors, edges)
}

/// Combines what the members of a team accumulated, complete in member 0. `zero` is 0, the same in
/// all units, and unknown to compilers.
#[cube]
pub(super) fn combine_team<N: Width>(
    accumulator: Accumulator<N>,
    zero: u32,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    if comptime![reducer.team.units_per_tile > 1] {
        combine_units::<N>(accumulator, zero, reducer)
    } else {
        accumulator
    }
}
