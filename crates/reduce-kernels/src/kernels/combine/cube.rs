//! The units of a cube, through shared memory.

use cubecl::prelude::*;

use crate::{
    kernels::reducer::Reducer,
    operator::{Accumulator, AccumulatorTypes, Columns, Single, Width},
};

/// Merges the accumulators of every `lanes`-th member of a team, in a tree through shared memory,
/// neighbours first. It contains barriers, so every unit of the cube must call it.
///
/// Components, the lanes of a plane and the cubes of a split also merge neighbours first. So the
/// tree over all of them is the same however a plan divides them, which reproducible plans rely on.
#[cube]
pub(super) fn combine_cube<N: Width>(
    accumulator: Accumulator<N>,
    zero: u32,
    reducer: &Reducer<'_>,
    #[comptime] lanes: u32,
) -> Accumulator<N> {
    let team = comptime![reducer.team];
    let member = UNIT_POS / comptime![team.unit_stride] % comptime![team.units_per_tile];
    // The first of every `lanes` lanes holds the accumulator of all of them.
    let leader = member / lanes;
    let leads = member == leader * lanes;
    if comptime![reducer.operator.0.merges_in_loops()] {
        merge_components::<N>(accumulator, leader, leads, zero, reducer, lanes)
    } else {
        merge_vectors::<N>(accumulator, leader, leads, reducer, lanes)
    }
}

/// Each leader with an even number merges its accumulator with that of the next, then every fourth
/// leader with that of the second next, and so on.
#[cube]
fn merge_vectors<N: Width>(
    accumulator: Accumulator<N>,
    leader: u32,
    leads: bool,
    reducer: &Reducer<'_>,
    #[comptime] lanes: u32,
) -> Accumulator<N> {
    let team = comptime![reducer.team];
    let fields = comptime![reducer.operator.0.fields];
    let slots = comptime![(team.units_per_cube / lanes) as usize];
    let slot = (UNIT_POS / lanes) as usize;
    let mut shared = Columns::<AccumulatorTypes, N>::shared(slots, fields);
    let mut total = accumulator;
    if leads {
        shared.put(slot, total);
    }
    sync_cube();
    // A unit that no longer merges still reaches the barriers, which WGSL demands of all units.
    #[unroll]
    for level in 0..comptime![(team.units_per_tile / lanes).ilog2()] {
        let distance = comptime![1u32 << level];
        if leads && leader & comptime![2 * distance - 1] == 0 {
            let other = shared.at(slot + comptime![(distance * team.unit_stride) as usize]);
            total = reducer.merge::<N>(total, other);
            shared.put(slot, total);
        }
        sync_cube();
    }
    total
}

/// The same merges, in a loop and for one component at a time. It takes less code and fewer
/// registers, and the components of an accumulator are merged by different units.
#[cube]
fn merge_components<N: Width>(
    accumulator: Accumulator<N>,
    leader: u32,
    leads: bool,
    zero: u32,
    reducer: &Reducer<'_>,
    #[comptime] lanes: u32,
) -> Accumulator<N> {
    let team = comptime![reducer.team];
    let fields = comptime![reducer.operator.0.fields];
    let components = N::value().comptime();
    let places = comptime![(team.units_per_cube / lanes) as usize * components];
    let leaders = comptime![team.units_per_tile / lanes];
    // Distance between the same components of neighbouring leaders.
    let stride = comptime![team.unit_stride * components as u32];
    let own = UNIT_POS / lanes * comptime![components as u32];
    // Components lie apart, so any unit can merge any of them. The tree is a loop: each level is a
    // copy of the merge otherwise.
    let mut shared = Columns::<AccumulatorTypes, Single>::shared(places, fields);
    if leads {
        #[unroll]
        for nth in 0..components {
            shared.put(own as usize + nth, accumulator.component(nth));
        }
    }
    sync_cube();
    let first = own - leader * stride;
    let mut distance = 1u32 + zero;
    while distance < leaders {
        let merges = leaders / (2 * distance) * comptime![components as u32];
        let mut nth = leader;
        while leads && nth < merges {
            let pair = nth / comptime![components as u32];
            let at = first + 2 * distance * pair * stride + nth % comptime![components as u32];
            let left = shared.at(at as usize);
            let right = shared.at((at + distance * stride) as usize);
            shared.put(at as usize, reducer.merge::<Single>(left, right));
            nth += leaders;
        }
        sync_cube();
        distance *= 2;
    }
    let mut total = accumulator;
    #[unroll]
    for nth in 0..components {
        let component = comptime![nth as u32].runtime();
        total = total.with_component(component, shared.at(own as usize + nth));
    }
    total
}
