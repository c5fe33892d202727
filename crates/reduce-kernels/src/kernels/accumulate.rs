//! The work of one unit on its share of a tile: it issues several loads, then pushes their elements
//! into an accumulator with a component for each component of a load.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    args::Input,
    geometry::{Geometry, Tile},
    load::{Loaded, edge_slots, load, load_edge},
    pairwise::{CHAIN, Tree, is_pairwise},
};
use crate::operator::{Accumulator, In, OperatorRef, Parameters, Single, Wide, identity, push};

/// The share of one unit: the loads `first`, `first + stride`, ... of a tile that `stride` units
/// work on.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Share {
    pub(super) first: usize,
    pub(super) stride: usize,
}

/// The accumulator of a share, without peeled edges.
#[cube]
pub(super) fn accumulate(
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Wide> {
    let in_flight = comptime![access.loads_in_flight];
    let pairwise = is_pairwise(operator);
    let block = share.stride * in_flight;
    let blocks = geometry.loads_per_tile / block;
    let mut accumulator = identity::<Wide>(operator);
    if comptime![pairwise] {
        // `UNIT_POS_Z` is 0, because every cube has one unit along z. It makes the number of links
        // a run-time value. Compilers would unroll the loop over a constant number of blocks, and
        // take ten times as long.
        let links = comptime![CHAIN.div_ceil(in_flight)] + UNIT_POS_Z as usize;
        let mut tree = Tree::<Wide>::new(operator);
        let chains = blocks / links;
        for chain in 0..chains {
            let mut total = identity::<Wide>(operator);
            let first = share.first + chain * links * block;
            for link in 0..links {
                let nth = first + link * block;
                total = push_block(
                    total, input, geometry, parameters, tile, share, nth, access, operator,
                );
            }
            tree.take(total, parameters, operator);
        }
        for link in chains * links..blocks {
            let nth = share.first + link * block;
            accumulator = push_block(
                accumulator,
                input,
                geometry,
                parameters,
                tile,
                share,
                nth,
                access,
                operator,
            );
        }
        accumulator = tree.total(accumulator, parameters, operator);
    } else {
        for link in 0..blocks {
            let nth = share.first + link * block;
            accumulator = push_block(
                accumulator,
                input,
                geometry,
                parameters,
                tile,
                share,
                nth,
                access,
                operator,
            );
        }
    }
    // The rest is less than a block. Its loads are issued together; those past the end repeat the
    // last load.
    let first = share.first + blocks * block;
    if first < geometry.loads_per_tile {
        let last = geometry.loads_per_tile - 1;
        let mut loads = Sequence::<Loaded>::new();
        #[unroll]
        for k in 0..in_flight {
            let inside = clamp_max(first + k * share.stride, last);
            loads.push(load(input, geometry, tile, inside, access));
        }
        #[unroll]
        for k in 0..in_flight {
            let loaded = *loads.index(k);
            if loaded.valid && first + k * share.stride < geometry.loads_per_tile {
                accumulator = push_loaded(accumulator, loaded, parameters, operator);
            }
        }
    }
    accumulator
}

/// Pushes a whole block: first all of its loads are issued, then their elements are pushed.
#[cube]
fn push_block(
    accumulator: Accumulator<Wide>,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    first: usize,
    #[comptime] access: Access,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Wide> {
    let in_flight = comptime![access.loads_in_flight];
    let mut total = accumulator;
    let mut loads = Sequence::<Loaded>::new();
    #[unroll]
    for k in 0..in_flight {
        loads.push(load(input, geometry, tile, first + k * share.stride, access));
    }
    #[unroll]
    for k in 0..in_flight {
        let loaded = *loads.index(k);
        if comptime![access.peeled] {
            if loaded.valid {
                total = push_loaded(total, loaded, parameters, operator);
            }
        } else {
            total = push_loaded(total, loaded, parameters, operator);
        }
    }
    total
}

/// Converts a load to the type that the operator takes, and pushes it.
#[cube]
pub(super) fn push_loaded(
    accumulator: Accumulator<Wide>,
    loaded: Loaded,
    parameters: &Parameters,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Wide> {
    let value = Vector::<In, Wide>::cast_from(loaded.value);
    push::<Wide>(operator, accumulator, value, loaded.position, parameters)
}

/// The accumulator of a share of the elements at the edges of a peeled inner dimension.
#[cube]
pub(super) fn accumulate_edges(
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let slots = geometry.inner_count * comptime![edge_slots(access.vector)];
    let pairwise = is_pairwise(operator);
    let mut accumulator = identity::<Single>(operator);
    let mut tree = Tree::<Single>::new(operator);
    let mut link = 0usize;
    let mut slot = share.first;
    while slot < slots {
        let edge = load_edge(input, geometry, tile, slot, access);
        if edge.valid {
            let value = Vector::<In, Single>::cast_from(edge.value);
            accumulator = push::<Single>(operator, accumulator, value, edge.position, parameters);
        }
        if comptime![pairwise] {
            link += 1;
            if link == CHAIN {
                tree.take(accumulator, parameters, operator);
                accumulator = identity::<Single>(operator);
                link = 0;
            }
        }
        slot += share.stride;
    }
    if comptime![pairwise] { tree.total(accumulator, parameters, operator) } else { accumulator }
}
