//! Chunks larger than what the registers of units hold.
//!
//! A cube that waits for what lies before its chunk loads nothing: the memory is busy with what other
//! cubes of the multiprocessor load. So the more of their elements these cubes hold together, the
//! better. Units take the loads of a large chunk in *turns*. The last turn stays in registers, and
//! those before it go to shared memory.
//!
//! Before a cube waits, its units only add up what they have, because others wait for its total.
//! The loads of each turn are scanned afterwards.
//!
//! A running sum of 2²⁸ f32 takes 551 us on one H200 with two turns in shared memory, and 595 in
//! registers alone. Columns take as long either way: how their segments lie in memory bounds them.

use cubecl::prelude::*;

use super::{
    Chunk, Part, ScanSpec,
    exchange::{Exchange, in_plane},
    results::store_results,
    totals,
    transpose::Transposition,
};
use crate::{
    kernels::{
        args::Output, geometry::Companion, load::Loaded, reducer::Reducer, team::unit_in_plane,
    },
    operator::{Accumulator, Slice, Stored, Wide, Width, shared},
};

/// A chunk that is loaded and added up. Each unit has places of its own in shared memory, so no
/// barrier is needed.
#[derive(CubeType)]
pub(super) struct Turns<N: Width> {
    number: usize,
    kept: ComptimeOption<Slice<Vector<Stored, Wide>>>,
    last: Sequence<Loaded>,
    /// What the chunk has before the loads of this unit's plane.
    before: Accumulator<N>,
    /// The total of the chunk.
    pub(super) total: Accumulator<N>,
    transposition: Transposition,
}

#[cube]
impl<N: Width> Turns<N> {
    /// Loads a chunk, and adds it up. Every unit of the cube must get here.
    pub(super) fn of_chunk(
        number: usize,
        part: &Part<'_>,
        exchange: &Exchange<N>,
        transposition: Transposition,
        reducer: &Reducer<'_>,
    ) -> Turns<N> {
        let spec = comptime![part.spec];
        let places = comptime![spec.team.units_per_cube as usize * spec.in_shared];
        let memory = shared::<Stored, Wide>(places, comptime![places > 0]);
        let mut kept = memory.unwrap();
        let mut total = reducer.identity::<N>();
        for nth in 0..comptime![spec.turns() - 1] + part.share.unknown_zero() as usize {
            let turn = part.turn(number, nth);
            let loads = part.issue(turn);
            #[unroll]
            for k in 0..loads.len().comptime() {
                kept[place(nth, k, spec)] = loads.index(k).value;
            }
            total = with_turn::<N>(total, &loads, &transposition, turn, part, reducer);
        }
        let turn = part.turn(number, comptime![spec.turns() - 1].runtime());
        let last = part.issue(turn);
        total = with_turn::<N>(total, &last, &transposition, turn, part, reducer);
        let mut all = Sequence::<Accumulator<N>>::new();
        all.push(total);
        let learned = exchange.through(&all, 0u32.runtime(), part.share, reducer);
        let mut before = *learned.before.index(0usize);
        // The lanes of a plane take loads alternately, so all of them begin with what lies before the
        // first load of the plane.
        let lane = part.share.place.member % comptime![spec.team.neighbours()];
        before = before.shuffle_from(unit_in_plane() - lane);
        Turns::<N> { number, kept: memory, last, before, total: learned.total, transposition }
    }

    /// Stores the results of the chunk, before which lies `before`.
    pub(super) fn store_results(
        &self,
        results: &mut Output,
        output: &Companion,
        before: Accumulator<N>,
        part: &Part<'_>,
        reducer: &Reducer<'_>,
    ) {
        let spec = comptime![part.spec];
        let kept = self.kept.unwrap();
        let transposition = self.transposition;
        let mut before = reducer.merge::<N>(before, self.before);
        for nth in 0..comptime![spec.turns() - 1] + part.share.unknown_zero() as usize {
            let turn = part.turn(self.number, nth);
            let mut loads = Sequence::<Loaded>::new();
            #[unroll]
            for k in 0..comptime![spec.access.loads_in_flight] {
                loads.push(part.loaded(part.number(turn, k), kept[place(nth, k, spec)]));
            }
            let chunk = Chunk::<N> { number: turn, before, loads, transposition };
            before = store_turn::<N>(results, output, &chunk, part, reducer);
        }
        let number = part.turn(self.number, comptime![spec.turns() - 1].runtime());
        let loads = self.last.clone();
        let chunk = Chunk::<N> { number, before, loads, transposition };
        store_turn::<N>(results, output, &chunk, part, reducer);
    }
}

/// Stores the results of a turn, and returns what lies before the next one.
#[cube]
fn store_turn<N: Width>(
    results: &mut Output,
    output: &Companion,
    turn: &Chunk<N>,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let own = totals::<N>(&turn.loads, &turn.transposition, turn.number, part, reducer);
    let lanes = comptime![part.spec.team.neighbours()];
    let lane = part.share.place.member % lanes;
    let learned = in_plane::<N>(&own, lane, part.share, reducer, lanes);
    store_results::<N>(results, output, turn, &learned, part, reducer);
    reducer.merge::<N>(turn.before, learned.total)
}

/// `total` and the elements of a turn.
#[cube]
fn with_turn<N: Width>(
    total: Accumulator<N>,
    loads: &Sequence<Loaded>,
    transposition: &Transposition,
    turn: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let own = totals::<N>(loads, transposition, turn, part, reducer);
    let mut all = total;
    #[unroll]
    for k in 0..own.len().comptime() {
        all = reducer.merge::<N>(all, *own.index(k));
    }
    all
}

/// The place in shared memory of load `k` of this unit in a turn. The same load of neighbouring
/// units lies side by side.
#[cube]
fn place(turn: usize, #[comptime] k: usize, #[comptime] spec: ScanSpec) -> usize {
    let units = comptime![spec.team.units_per_cube as usize];
    (turn * comptime![spec.access.loads_in_flight] + k) * units + UNIT_POS as usize
}
