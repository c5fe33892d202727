//! Rows of several cubes: the accumulator of each part, and what lies before a part.

use cubecl::prelude::*;
use reduce_planner::{Combine, Direction, ScanPlan};

use super::{
    Part,
    exchange::{Exchange, totals_per_unit},
    total_in_loop,
};
use crate::{
    kernels::{
        accumulate::push_loaded,
        combine::combine_vectors,
        pairwise::{Tree, is_pairwise},
        reducer::Reducer,
        team::Team,
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
    // The accumulators of all components have as many elements, so parts of loads go elsewhere.
    let mut of_edges = reducer.identity::<N>();
    let (mut chunks, mut totals) = (0u32.runtime(), 0u32.runtime());
    // The components of a load have accumulators of their own, as in a reduction.
    for chunk in part.first..part.end {
        let loads = part.issue(chunk);
        #[unroll]
        for k in 0..loads.len().comptime() {
            let loaded = *loads.index(k);
            if comptime![part.spec.access.peeled] {
                let number = part.number(chunk, k);
                let is_whole = part.edges.is_whole(number, comptime![part.spec]);
                let is_edge = !is_whole;
                if loaded.valid && is_whole {
                    recent = push_loaded::<Wide>(recent, loaded, reducer);
                }
                if loaded.valid && is_edge {
                    let of_edge = total_in_loop::<N>(&loaded, number, part, reducer);
                    of_edges = reducer.merge::<N>(of_edges, of_edge);
                }
            } else {
                if loaded.valid {
                    recent = push_loaded::<Wide>(recent, loaded, reducer);
                }
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
    let mut of_unit = combine_vectors::<N>(recent, comptime![part.spec.access.direction], reducer);
    if comptime![part.spec.access.peeled] {
        of_unit = reducer.merge::<N>(of_unit, of_edges);
    }
    // The lanes of an output across stand apart in their plane, and merge as a scan's only.
    let team = comptime![match part.spec.access.direction {
        Direction::Along => reducer.team,
        Direction::Across => Team { combine: Combine::Shared, ..reducer.team },
    }];
    let total = combine_team::<N>(of_unit, zero, &reducer.with_team(team));
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
