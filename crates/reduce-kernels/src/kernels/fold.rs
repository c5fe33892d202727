//! What one unit does with its share of a group: several loads in flight, then their elements into
//! one accumulator per lane.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    cascade::{CHAIN, Cascade, is_pairwise},
    geometry::{Geometry, Group},
    read::{Input, Loaded, edge_slots, load, load_edge},
};
use crate::operator::{FieldsOf, Operator, Parameters, Types};

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
    parameters: &Parameters,
    group: Group,
    share: Share,
    #[comptime] access: Access,
) -> FieldsOf<O::Fields, T, N> {
    let in_flight = comptime![access.in_flight];
    let pairwise = is_pairwise::<O, T>();
    let block = share.stride * in_flight;
    let blocks = geometry.steps / block;
    let mut accumulator = O::identity::<T, N>();
    if comptime![pairwise] {
        // A run-time value, as every cube has one unit along z: compilers would unroll the loop over a
        // constant number of blocks, and take ten times as long.
        let links = comptime![CHAIN.div_ceil(in_flight)] + UNIT_POS_Z as usize;
        let mut cascade = Cascade::<O, T, N>::new();
        let chains = blocks / links;
        for chain in 0..chains {
            let mut total = O::identity::<T, N>();
            let first = share.first + chain * links * block;
            for link in 0..links {
                let step = first + link * block;
                total = push_block::<O, T, N>(
                    total, input, geometry, parameters, group, share, step, access,
                );
            }
            cascade.take(total, parameters);
        }
        for link in chains * links..blocks {
            let step = share.first + link * block;
            accumulator = push_block::<O, T, N>(
                accumulator,
                input,
                geometry,
                parameters,
                group,
                share,
                step,
                access,
            );
        }
        accumulator = cascade.total(accumulator, parameters);
    } else {
        for link in 0..blocks {
            let step = share.first + link * block;
            accumulator = push_block::<O, T, N>(
                accumulator,
                input,
                geometry,
                parameters,
                group,
                share,
                step,
                access,
            );
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
                accumulator = push_loaded::<O, T, N>(accumulator, loaded, parameters);
            }
        }
    }
    accumulator
}

/// Pushes a whole block: one load after the other, then one push after the other.
#[cube]
#[allow(clippy::too_many_arguments, reason = "what a unit's work consists of")]
fn push_block<O: Operator, T: Types, N: Size>(
    accumulator: FieldsOf<O::Fields, T, N>,
    input: &Input<T, N>,
    geometry: &Geometry,
    parameters: &Parameters,
    group: Group,
    share: Share,
    step: usize,
    #[comptime] access: Access,
) -> FieldsOf<O::Fields, T, N> {
    let in_flight = comptime![access.in_flight];
    let mut total = accumulator;
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
                total = push_loaded::<O, T, N>(total, loaded, parameters);
            }
        } else {
            total = push_loaded::<O, T, N>(total, loaded, parameters);
        }
    }
    total
}

/// Pushes what a step loaded, in the type that the operator takes.
#[cube]
pub(crate) fn push_loaded<O: Operator, T: Types, N: Size>(
    accumulator: FieldsOf<O::Fields, T, N>,
    loaded: Loaded<T, N>,
    parameters: &Parameters,
) -> FieldsOf<O::Fields, T, N> {
    let value = Vector::<T::In, N>::cast_from(loaded.value);
    O::push::<T, N>(accumulator, value, loaded.position, parameters)
}

/// The accumulator of a share of the elements at the edges of ragged runs.
#[cube]
pub(crate) fn fold_edges<O: Operator, T: Types, N: Size>(
    input: &Input<T, N>,
    geometry: &Geometry,
    parameters: &Parameters,
    group: Group,
    share: Share,
    #[comptime] access: Access,
) -> FieldsOf<O::Fields, T, Const<1>> {
    let slots = geometry.runs * comptime![edge_slots(access.vector)];
    let pairwise = is_pairwise::<O, T>();
    let mut accumulator = O::identity::<T, Const<1>>();
    let mut cascade = Cascade::<O, T, Const<1>>::new();
    let mut link = 0usize;
    let mut slot = share.first;
    while slot < slots {
        let edge = load_edge::<T, N>(input, geometry, group, slot, access);
        if edge.valid {
            let value = Vector::<T::In, Const<1>>::cast_from(edge.value);
            accumulator = O::push::<T, Const<1>>(accumulator, value, edge.position, parameters);
        }
        if comptime![pairwise] {
            link += 1;
            if link == CHAIN {
                cascade.take(accumulator, parameters);
                accumulator = O::identity::<T, Const<1>>();
                link = 0;
            }
        }
        slot += share.stride;
    }
    if comptime![pairwise] { cascade.total(accumulator, parameters) } else { accumulator }
}
