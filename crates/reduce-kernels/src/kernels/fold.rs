//! What one unit does with its share of a group: several loads in flight, then their elements into
//! one accumulator per lane.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    geometry::{Geometry, Group},
    read::{Input, Loaded, edge_slots, load, load_edge},
};
use crate::operator::{FieldsOf, Operator, Types};

/// The steps `first`, `first + stride`, ... of a group: those of one of `stride` workers.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Share {
    pub(crate) first: usize,
    pub(crate) stride: usize,
}

/// The accumulator of a share, ragged edges aside.
#[cube]
pub(crate) fn fold<O: Operator, T: Types, N: Size>(
    input: &Input<T, N>,
    geometry: &Geometry,
    group: Group,
    share: Share,
    #[comptime] access: Access,
) -> FieldsOf<O::Fields, T, N> {
    let in_flight = comptime![access.in_flight];
    let mut accumulator = O::identity::<T, N>();
    let block = share.stride * in_flight;
    let blocks = geometry.steps / block;
    for i in 0..blocks {
        let step = share.first + i * block;
        let mut batch = Sequence::<Loaded<T, N>>::new();
        #[unroll]
        for k in 0..in_flight {
            batch.push(load::<T, N>(input, geometry, group, step + k * share.stride, access));
        }
        #[unroll]
        for k in 0..in_flight {
            let loaded = *batch.index(k);
            if comptime![access.ragged] {
                if loaded.valid {
                    accumulator = O::push::<T, N>(accumulator, loaded.value, loaded.position);
                }
            } else {
                accumulator = O::push::<T, N>(accumulator, loaded.value, loaded.position);
            }
        }
    }
    // What is left is less than a block: loads stay batched, those past the end repeat the last.
    let step = share.first + blocks * block;
    if step < geometry.steps {
        let last = geometry.steps - 1;
        let mut batch = Sequence::<Loaded<T, N>>::new();
        #[unroll]
        for k in 0..in_flight {
            let inside = clamp_max(step + k * share.stride, last);
            batch.push(load::<T, N>(input, geometry, group, inside, access));
        }
        #[unroll]
        for k in 0..in_flight {
            let loaded = *batch.index(k);
            if loaded.valid && step + k * share.stride < geometry.steps {
                accumulator = O::push::<T, N>(accumulator, loaded.value, loaded.position);
            }
        }
    }
    accumulator
}

/// The accumulator of a share of the elements at the edges of ragged runs.
#[cube]
pub(crate) fn fold_edges<O: Operator, T: Types, N: Size>(
    input: &Input<T, N>,
    geometry: &Geometry,
    group: Group,
    share: Share,
    #[comptime] access: Access,
) -> FieldsOf<O::Fields, T, Const<1>> {
    let slots = geometry.runs * comptime![edge_slots(access.vector)];
    let mut accumulator = O::identity::<T, Const<1>>();
    let mut slot = share.first;
    while slot < slots {
        let edge = load_edge::<T, N>(input, geometry, group, slot, access);
        if edge.valid {
            accumulator = O::push::<T, Const<1>>(accumulator, edge.value, edge.position);
        }
        slot += share.stride;
    }
    accumulator
}
