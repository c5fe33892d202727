//! Reductions of segments: shares of equal length, their parts of segments that go on elsewhere,
//! and the merge of what lies in several tiles.
//!
//! *Regions* are the segments and what lies before the first and behind the last: region number `r`
//! ends at offset number `r`, so segment number `s` is region `s + 1`. A unit has a *share* of the
//! axis at a time. The shares of a *crew*, units that meet after each, are a *step*. A crew takes the
//! steps of a *strip* one after the other, and the strips of a cube's crews are a *tile*.

mod carry;
mod crew;
mod fetch;
mod grouping;
mod inside;
mod keys;
mod lengths;
mod merge;
mod regions;
mod step;

use cubecl::prelude::*;
use reduce_planner::{Access, Direction, SegmentsPlan};

use self::{
    carry::{Carry, Tail},
    crew::{meet, unit_of_crew},
    fetch::Fetched,
    inside::Inside,
    regions::{Bounds, Offsets, Places},
    step::{Board, TOGETHER},
};
use super::{
    accumulate::is_large,
    args::{Input, InputArrays, KernelTypes, PartialArrays, TargetArrays, input_of, partials_of},
    geometry::{Geometry, Tile, locate},
    reducer::Reducer,
    share::Share,
    target::{Target, target_of},
    team::{Team, UnitPlace, place},
};
use crate::operator::{
    Accumulator, AccumulatorTypes, Columns, Offset, OperatorRef, Parameters, Single, Wide, Width,
};

pub(crate) use self::{
    crew::Crew,
    grouping::{DigitSpec, KeyNumbersLaunch, count_digits, move_keys},
    keys::{numbers_of_elements, offsets_of_keys},
    lengths::{LENGTHS_PER_UNIT, offsets_of_lengths, sum_lengths},
    merge::merge_segments,
    regions::{Least, Regions},
};

/// The numbers of a reduction of segments.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct SegmentNumbers {
    /// Number of segments.
    pub(crate) segments: usize,
    /// Elements of the axis.
    pub(crate) len: usize,
    /// The stride from one offset to the next.
    pub(crate) offset_stride: usize,
    /// The stride from the result of one segment to that of the next.
    pub(crate) result_stride: usize,
    /// Steps of a tile.
    pub(crate) steps: usize,
    /// Tiles of the axis, at least one.
    pub(crate) tiles: usize,
    /// Blocks of outputs that cubes have side by side.
    pub(crate) blocks: usize,
    /// 0, the number of elements of a segment without any, which compilers do not know.
    pub(crate) zero: usize,
}

/// Cubes reduce tiles in turn. They write the results of segments that end in the tile in which they
/// begin, and leave the parts of others.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_segments(
    _types: &KernelTypes,
    input: &InputArrays,
    offsets: &[Offset],
    target: &mut TargetArrays,
    partials: &mut PartialArrays,
    geometry: &Geometry,
    numbers: &SegmentNumbers,
    parameters: &Parameters,
    cubes: usize,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let input = input_of(input);
    let mut target = target_of(target);
    let mut partials = partials_of(partials);
    let regions = Regions::new(offsets, numbers);
    let reducer = Reducer::new(parameters, team, operator);
    let reading = Reading::new(&input, geometry, &regions, &reducer, access);
    match comptime![access.direction] {
        Direction::Along => reduce_tiles::<Single>(&mut target, &mut partials, &reading, cubes),
        Direction::Across => reduce_tiles::<Wide>(&mut target, &mut partials, &reading, cubes),
    }
}

/// What cubes read, and how.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Reading<'a> {
    input: &'a Input,
    geometry: &'a Geometry,
    regions: &'a Regions,
    reducer: &'a Reducer<'a>,
    #[cube(comptime)]
    access: Access,
}

#[cube]
impl<'a> Reading<'a> {
    fn new(
        input: &'a Input,
        geometry: &'a Geometry,
        regions: &'a Regions,
        reducer: &'a Reducer<'a>,
        #[comptime] access: Access,
    ) -> Reading<'a> {
        Reading::<'a> { input, geometry, regions, reducer, access }
    }

    /// The outputs with number `nth`, of a cube that has so many side by side, for the unit at this
    /// place.
    fn outputs(&self, nth: usize, place: UnitPlace, #[comptime] side_by_side: usize) -> Share<'a> {
        let access = comptime![self.access];
        let tile = locate(self.geometry, nth, access, side_by_side);
        Share::new(self.input, self.geometry, tile, place, 0usize, 1usize, access)
    }
}

/// Reduces the tiles of a cube.
#[cube]
fn reduce_tiles<N: Width>(
    target: &mut Target,
    partials: &mut Columns<AccumulatorTypes, Single>,
    reading: &Reading<'_>,
    cubes: usize,
) {
    let team = comptime![reading.reducer.team];
    let place = place(team);
    let crew = comptime![Crew::of(team)];
    let side_by_side = comptime![crew.side_by_side(team)];
    let numbers = reading.regions.numbers;
    let tiles = numbers.tiles * numbers.blocks;
    let board = Board::<N>::new(reading);
    let carry = Carry::<N>::new(reading.reducer);
    // The grid may hold a few cubes past the last, which have no tiles.
    let mut number = select(CUBE_POS < cubes, CUBE_POS, tiles);
    while number < tiles {
        let beside = if comptime![crew.in_plane] { 0u32.runtime() } else { place.tile };
        let output = number / numbers.tiles * side_by_side + beside as usize;
        let share = reading.outputs(output, place, side_by_side);
        let nth = number % numbers.tiles;
        reduce_tile::<N>(target, partials, &board, &carry, nth, &share, reading);
        number += cubes;
    }
}

/// Reduces tile number `nth` of the outputs of a share. Every unit of the cube must get here.
#[cube]
fn reduce_tile<N: Width>(
    target: &mut Target,
    partials: &mut Columns<AccumulatorTypes, Single>,
    board: &Board<N>,
    carry: &Carry<N>,
    nth: usize,
    share: &Share<'_>,
    reading: &Reading<'_>,
) {
    let access = comptime![share.access];
    let (regions, reducer) = (reading.regions, reading.reducer);
    let crew = comptime![Crew::of(reducer.team)];
    let members = comptime![reducer.team.units_per_tile as usize];
    let len_of_step = comptime![members * SegmentsPlan::share(access)];
    let places = Places::of(share.tile.input, regions.numbers.len, access);
    let len_of_strip = regions.numbers.steps * len_of_step;
    let begin_of_tile = nth * comptime![crew.crews as usize] * len_of_strip;
    let begin = begin_of_tile + (UNIT_POS / crew.units) as usize * len_of_strip;
    let end = clamp_max(begin + len_of_strip, places.end);
    let found = regions.at(places.position(begin), &board.least);
    // Regions that end before the first element have none.
    let first_region = select(begin == 0, 0usize, found);
    let unit = unit_of_crew(crew) as usize;
    let mut region = first_region;
    let mut own = regions.offsets(region + unit);
    let mut region_offset = regions.offset(region);
    let mut of_strip = reducer.identity::<N>();
    let mut has_ends = false.runtime();
    let mut inside = Inside::<N>::nothing(reducer);
    let mut is_inside = false.runtime();
    // Along the reduction, the loads of the next step are issued before those of a step are used.
    // Across outputs, units have more registers in flight, and more cubes do better.
    let ahead = comptime![access.direction == Direction::Along];
    let fetched = Fetched::new(share);
    if ahead {
        fetched.issue(share, &places, begin, members);
    }
    let mut start = begin;
    let mut goes_on = true.runtime();
    while goes_on {
        let stop = clamp_max(start + len_of_step, end);
        let next_start = start + len_of_step;
        goes_on = next_start < end;
        if comptime![!ahead] {
            fetched.issue(share, &places, start, members);
        }
        let now = fetched.copied();
        let whole = start >= places.before && next_start <= end;
        let region_end = places.place(regions.end_at(region_offset, region));
        let goes_through = whole && region_end > stop;
        if goes_through {
            if ahead && goes_on {
                fetched.issue(share, &places, next_start, members);
            }
            let with = inside.with(&now, start, &places, share, reducer, members);
            inside.of_blocks = with.of_blocks;
            inside.of_loads = with.of_loads;
            is_inside = true;
        }
        if is_inside && (!goes_through || !goes_on) {
            let total = reducer.merge::<N>(of_strip, inside.total(share, reducer));
            of_strip = board.for_all(total, share);
            let nothing = Inside::<N>::nothing(reducer);
            inside.of_blocks = nothing.of_blocks;
            inside.of_loads = nothing.of_loads;
            is_inside = false;
        }
        if !goes_through {
            board.show(&now, share.place.member, members);
            let next = board.mark_ends(reading, &places, region, &own, start, stop);
            if ahead && goes_on {
                fetched.issue(share, &places, next_start, members);
            }
            let following = regions.offsets(next + unit);
            let following_offset = regions.offset(next);

            // What the unit has of the region that began before its share waits for the others.
            let word = board.ends_of(share.place.member);
            let rest = board.take_share(&now, word, start, &places, share, reducer);
            let tail = Tail::new(rest, u32::cast_from(word != 0));
            let (before, behind) = carry.through(&tail, of_strip, share, reducer);
            if comptime![!crew.in_plane] {
                board.tell(behind, false.runtime(), share);
            }
            if word != 0 {
                board.put_before(before, word, share, reducer);
            }
            // Units of outputs side by side have the same ends.
            let beside = if comptime![crew.in_plane] { 0u32.runtime() } else { share.place.tile };
            if beside == 0 {
                board.clear(share.place.member);
            }
            meet(crew);
            of_strip = behind;
            if comptime![!crew.in_plane] {
                of_strip = board.told(share.place.tile).rest;
            }

            let step = Step { strip: begin, start, stop, next };
            finish_regions::<N>(target, board, region, &own, &step, share, reading);
            has_ends = has_ends || next != region;
            region = next;
            region_offset = following_offset;
            own.before = following.before;
            own.own = following.own;
        }
        start = next_start;
    }
    // What strips have of regions that go on in others of the tile, in the order of the strips.
    board.tell(of_strip, has_ends, share);
    sync_cube();
    if share.place.member == 0 {
        let Bounds { begin: from, end: until } = regions.bounds(&places, first_region);
        let (segment, exists) = regions.segment(first_region);
        let began_before = from < begin && begin < until;
        if exists && has_ends && began_before {
            let whole =
                with_strips_before::<N>(board.head(share), share.place.tile, board, reducer);
            if from < begin_of_tile {
                leave::<N>(partials, whole, nth, share);
            } else {
                put::<N>(target, whole, segment, until - from, share, regions, reducer);
            }
        }
        if comptime![crew.in_plane] {
            if share.place.tile == 0 {
                let nothing = reducer.identity::<N>();
                let strips = comptime![crew.crews].runtime();
                let behind = with_strips_before::<N>(nothing, strips, board, reducer);
                leave::<N>(partials, behind, regions.numbers.tiles + nth, share);
            }
        } else {
            leave::<N>(partials, of_strip, regions.numbers.tiles + nth, share);
        }
    }
    // The next tile is told in the same places.
    sync_cube();
}

/// What the strips before strip number `strip` have of a region that goes on in it, before what it
/// has from there on. A cube whose units are one crew has one strip.
#[cube]
fn with_strips_before<N: Width>(
    accumulator: Accumulator<N>,
    strip: u32,
    board: &Board<N>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let mut total = accumulator;
    if comptime![board.crew.in_plane] {
        let mut other = strip;
        let mut ends = 0u32.runtime();
        while other > 0 && ends == 0 {
            other -= 1;
            let of_other = board.told(other);
            total = reducer.merge::<N>(of_other.rest, total);
            ends = of_other.ends;
        }
    }
    total
}

/// A step whose regions are finished.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Step {
    /// The places where its strip begins, where the step begins, and where it ends.
    strip: usize,
    start: usize,
    stop: usize,
    /// The first region that ends behind it.
    next: usize,
}

/// Stores the results of the regions from `first` on that end in a step, and keeps the part of the
/// one that began in an earlier strip. `own` are the offsets of the region that comes as many behind the
/// first as the unit behind the first one.
#[cube]
fn finish_regions<N: Width>(
    target: &mut Target,
    board: &Board<N>,
    first: usize,
    own: &Offsets,
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
        if region < step.next {
            let bounds = reading.regions.bounds_at(own, region, &places);
            finish_region::<N>(target, board, region, &bounds, step, share, reading);
        }
        region += members;
    }
    let together = comptime![if is_large(reducer.operator) { 1 } else { TOGETHER }];
    while region < step.next {
        let mut several = Sequence::<Offsets>::new();
        #[unroll]
        for k in 0..together {
            several.push(reading.regions.offsets(region + k * members));
        }
        #[unroll]
        for k in 0..together {
            let nth = region + k * members;
            if nth < step.next {
                let bounds = reading.regions.bounds_at(several.index(k), nth, &places);
                finish_region::<N>(target, board, nth, &bounds, step, share, reading);
            }
        }
        region += comptime![together * members];
    }
}

/// Stores the result of a region that ends in a step, or keeps its part.
#[cube]
fn finish_region<N: Width>(
    target: &mut Target,
    board: &Board<N>,
    region: usize,
    bounds: &Bounds,
    step: &Step,
    share: &Share<'_>,
    reading: &Reading<'_>,
) {
    let (regions, reducer) = (reading.regions, reading.reducer);
    let Bounds { begin, end } = *bounds;
    let (segment, exists) = regions.segment(region);
    let has_elements = begin < end && end > step.start && end <= step.stop;
    let mut accumulator = board.nothing();
    let mut len = regions.numbers.zero;
    if has_elements {
        accumulator = board.ended_with(end - 1 - step.start, share.place.tile);
        len = end - begin;
    }
    let began_before = has_elements && begin < step.strip;
    if exists && began_before {
        board.keep_head(accumulator, share);
    } else if exists {
        put::<N>(target, accumulator, segment, len, share, regions, reducer);
    }
}

/// Writes what becomes of the accumulator of a segment of `len` elements, for the outputs of a share.
#[cube]
fn put<N: Width>(
    target: &mut Target,
    accumulator: Accumulator<N>,
    segment: usize,
    len: usize,
    share: &Share<'_>,
    regions: &Regions,
    reducer: &Reducer<'_>,
) {
    let tile = share.tile;
    let tile = Tile {
        input: tile.input,
        output: tile.output + segment * regions.numbers.result_stride,
        index: tile.index,
        results: tile.results,
        block: tile.block,
        second: tile.second,
    };
    let place = UnitPlace { tile: share.place.tile, member: 0u32.runtime() };
    let access = comptime![share.access];
    let share = Share::new(share.input, share.geometry, tile, place, 0usize, 1usize, access);
    target.put_counted::<N>(accumulator, &share, len, reducer);
}

/// Leaves the parts of a region, one for each output of the share, in slot `slot`.
#[cube]
fn leave<N: Width>(
    partials: &mut Columns<AccumulatorTypes, Single>,
    part: Accumulator<N>,
    slot: usize,
    share: &Share<'_>,
) {
    #[unroll]
    for nth in 0..N::value().comptime() {
        let exists = comptime![nth as u32] < share.tile.results;
        if exists {
            partials
                .put(slot * share.geometry.outputs + share.tile.index + nth, part.component(nth));
        }
    }
}
