//! Steps in which regions end: their ends are marked, and units take their shares up to the marks.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    Reading, Running, Step,
    carry::Tail,
    crew::{meet, unit_of_crew},
    fetch::Fetched,
    finish_region, has_elements,
    regions::{Bounds, Offsets, Places},
    step::{Board, TOGETHER},
};
use crate::{
    kernels::{accumulate::is_large, share::Share, target::Target},
    operator::Width,
};

/// Stores the results of the regions that end in a step, whose loads all units have shown. Returns what
/// is known behind it.
#[cube]
pub(super) fn mark_and_take<N: Width>(
    target: &mut Target,
    board: &Board<N>,
    fetched: &Fetched,
    running: &Running<N>,
    step: &Step,
    share: &Share<'_>,
    reading: &Reading<'_>,
) -> Running<N> {
    let (regions, reducer) = (reading.regions, reading.reducer);
    let access = comptime![share.access];
    let places = Places::of(share.tile.input, regions.numbers.len, access);
    let (first, own) = (running.region, &running.offsets);
    let next = board.mark_ends(reading, &places, first, own, step.start, step.stop);
    let following = regions.offsets(next + unit_of_crew(comptime![board.crew]) as usize);
    let following_offset = regions.offset(next);

    // What the unit has of the region that began before its share waits for the others.
    let word = board.ends_of(share.place.member);
    let rest = board.take_share(fetched, word, step.start, &places, share, reducer);
    let tail = Tail::new(rest, u32::cast_from(word != 0));
    let (before, behind) = board.carry.through(&tail, running.rest, share, reducer);
    if comptime![!board.crew.in_plane] {
        board.tell(behind, false.runtime(), share);
    }
    if word != 0 {
        board.put_before(before, word, share, reducer);
    }
    // Units of outputs side by side have the same ends.
    let beside = if comptime![board.crew.in_plane] { 0u32.runtime() } else { share.place.tile };
    if beside == 0 {
        board.clear(share.place.member);
    }
    meet(comptime![board.crew]);
    let mut rest = behind;
    if comptime![!board.crew.in_plane] {
        rest = board.told(share.place.tile).rest;
    }
    finish_regions::<N>(target, board, first, own, next, step, share, reading);
    Running::<N> { rest, region: next, offset: following_offset, offsets: following }
}

/// Stores the results of the regions from `first` to `next` that end in a step, and keeps the part of the
/// one that began in an earlier strip. `own` are the offsets of the region that comes as many behind the
/// first as the unit behind the first one.
#[cube]
fn finish_regions<N: Width>(
    target: &mut Target,
    board: &Board<N>,
    first: usize,
    own: &Offsets,
    next: usize,
    step: &Step,
    share: &Share<'_>,
    reading: &Reading<'_>,
) {
    let reducer = reading.reducer;
    let members = comptime![reducer.team.units_per_tile as usize];
    let places = Places::of(share.tile.input, reading.regions.numbers.len, comptime![share.access]);
    // Members have a region each, so that results are stored side by side.
    let mut region = first + share.place.member as usize;
    if comptime![share.access.direction == Direction::Along] {
        if region < next {
            let bounds = reading.regions.bounds_at(own, region, &places);
            finish_marked::<N>(target, board, region, &bounds, step, share, reading);
        }
        region += members;
    }
    let together = comptime![if is_large(reducer.operator) { 1 } else { TOGETHER }];
    while region < next {
        let mut several = Sequence::<Offsets>::new();
        #[unroll]
        for k in 0..together {
            several.push(reading.regions.offsets(region + k * members));
        }
        #[unroll]
        for k in 0..together {
            let nth = region + k * members;
            if nth < next {
                let bounds = reading.regions.bounds_at(several.index(k), nth, &places);
                finish_marked::<N>(target, board, nth, &bounds, step, share, reading);
            }
        }
        region += comptime![together * members];
    }
}

/// [`finish_region`] with what its cell has.
#[cube]
fn finish_marked<N: Width>(
    target: &mut Target,
    board: &Board<N>,
    region: usize,
    bounds: &Bounds,
    step: &Step,
    share: &Share<'_>,
    reading: &Reading<'_>,
) {
    let mut accumulator = board.nothing();
    if has_elements(bounds, step) {
        accumulator = board.ended_with(bounds.end - 1 - step.start, share.place.tile);
    }
    finish_region::<N>(target, board, region, bounds, accumulator, step, share, reading);
}
