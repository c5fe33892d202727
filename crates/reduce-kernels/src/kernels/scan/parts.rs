//! Rows of several cubes: the accumulator of each part, and what lies before a part.

use cubecl::prelude::*;
use reduce_planner::ScanPlan;

use super::{
    Part, component_at_number,
    exchange::{Exchange, totals_per_unit},
    push_at,
};
use crate::{
    kernels::{
        accumulate::push_loaded,
        combine::combine_vectors,
        load::Loaded,
        pairwise::{Tree, is_pairwise},
        reducer::Reducer,
        total::combine_team,
    },
    operator::{Accumulator, AccumulatorTypes, Columns, Single, Wide, Width},
};

/// Stores the accumulator of a part. Every unit of the cube must get here.
#[cube]
pub(super) fn reduce_part<N: Width>(
    partials: &mut Columns<AccumulatorTypes, Single>,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) {
    let (share, operator) = (part.share, comptime![reducer.operator]);
    let zero = share.unknown_zero();
    let pairwise = is_pairwise(operator);
    let fields = comptime![if pairwise { operator.0.fields } else { 0 }];
    let tree = Tree::<Wide>::of_fields(fields, operator);
    let mut recent = reducer.identity::<Wide>();
    let (mut chunks, mut totals) = (0u32.runtime(), 0u32.runtime());
    // The components of a load have accumulators of their own, as in a reduction.
    for chunk in part.first..part.end {
        let loads = part.issue(chunk);
        #[unroll]
        for k in 0..loads.len().comptime() {
            let loaded = *loads.index(k);
            if loaded.valid {
                let number = part.number(chunk, k);
                recent = with_load(recent, &loaded, number, part, reducer);
            }
        }
        if comptime![pairwise] {
            chunks += 1;
            if chunks == comptime![ScanPlan::CHUNKS_PER_TOTAL] {
                tree.take(recent, totals, false, zero, reducer);
                recent = reducer.identity::<Wide>();
                totals += 1;
                chunks = 0u32;
            }
        }
    }
    if comptime![pairwise] {
        recent = tree.take(recent, totals, true, zero, reducer);
    }
    let of_unit = combine_vectors::<N>(recent, comptime![part.spec.access.direction], reducer);
    let total = combine_team::<N>(of_unit, zero, reducer);
    let first = part.cube * share.geometry.outputs + share.tile.index;
    #[unroll]
    for nth in 0..N::value().comptime() {
        // The comparison stands outside of `&&`: CubeCL 0.11 makes a branch of an operand that is a
        // call or a macro.
        let exists = comptime![nth as u32] < share.tile.results;
        if share.place.member == 0 && exists {
            partials.put(first + nth, total.component(nth));
        }
    }
}

/// The accumulators of a unit with the load that has this number.
#[cube]
fn with_load(
    accumulators: Accumulator<Wide>,
    loaded: &Loaded,
    number: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<Wide> {
    let mut pushed = accumulators;
    if comptime![part.spec.access.peeled] {
        if part.edges.is_whole(number, comptime![part.spec]) {
            pushed = push_loaded::<Wide>(accumulators, *loaded, reducer);
        } else {
            let own = part.edges.components(number, comptime![part.spec]);
            for nth in own.first..own.end {
                let component = component_at_number(nth, part);
                let one = pushed.component_at(component);
                let one = push_at::<Single>(one, loaded, nth, part, reducer);
                pushed = pushed.with_component(component, one);
            }
        }
    } else {
        pushed = push_loaded::<Wide>(accumulators, *loaded, reducer);
    }
    pushed
}

/// What lies before a part: the accumulators of the parts before it, each merged by some unit. A
/// launch of its own for this would take longer than all cubes take to read them. Every unit of the
/// cube must get here.
#[cube]
pub(super) fn before_part<N: Width>(
    partials: Columns<AccumulatorTypes, Single>,
    part: &Part<'_>,
    exchange: &Exchange<N>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    if comptime![part.spec.split] {
        let share = part.share;
        let units = comptime![reducer.team.units_per_tile as usize];
        let each = part.cube.div_ceil(units);
        let first = share.place.member as usize * each;
        let end = clamp_max(first + each, part.cube);
        let mut own = reducer.identity::<N>();
        for nth in first..end {
            let place = nth * share.geometry.outputs + share.tile.index;
            own = reducer.merge::<N>(own, partials.neighbours::<N>(place));
        }
        let mut totals = Sequence::<Accumulator<N>>::new();
        totals.push(own);
        #[unroll]
        for _ in 1..comptime![totals_per_unit(part.spec)] {
            totals.push(reducer.identity::<N>());
        }
        let learned = exchange.through(&totals, 0u32.runtime(), share, reducer);
        learned.total
    } else {
        reducer.identity::<N>()
    }
}
