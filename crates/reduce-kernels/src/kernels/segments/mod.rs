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
mod marked;
mod merge;
mod parts;
mod regions;
mod step;

use cubecl::prelude::*;
use reduce_planner::{Access, Direction, SegmentsPlan};

use self::{
    crew::unit_of_crew,
    fetch::Fetched,
    inside::Inside,
    marked::mark_and_take,
    parts::{Parts, finish_tile},
    regions::{Bounds, Offsets, Places},
    step::Board,
};
use super::{
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
    parts::{PublishedArray, PublishedArrayLaunch},
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
/// begin, and leave the parts of others for a second launch, or look back at those of earlier tiles.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_segments(
    _types: &KernelTypes,
    input: &InputArrays,
    offsets: &[Offset],
    target: &mut TargetArrays,
    partials: &mut PartialArrays,
    published: &ComptimeOption<PublishedArray>,
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
    let left = partials_of(partials);
    let regions = Regions::new(offsets, numbers);
    let reducer = Reducer::new(parameters, team, operator);
    let reading = Reading::new(&input, geometry, &regions, &reducer, access);
    match comptime![access.direction] {
        Direction::Along => {
            reduce_tiles::<Single>(&mut target, left, published, &reading, cubes);
        }
        Direction::Across => {
            reduce_tiles::<Wide>(&mut target, left, published, &reading, cubes);
        }
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
    left: Columns<AccumulatorTypes, Single>,
    published: &ComptimeOption<PublishedArray>,
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
    let parts = Parts::<N>::new(left, published, reading, side_by_side);
    let mut number = parts.first_tile(cubes, tiles);
    while number < tiles {
        let beside = if comptime![crew.in_plane] { 0u32.runtime() } else { place.tile };
        let output = number / numbers.tiles * side_by_side + beside as usize;
        let share = reading.outputs(output, place, side_by_side);
        let nth = number % numbers.tiles;
        let taken = reduce_strip::<N>(target, &board, nth, &share, reading);
        finish_tile::<N>(target, &parts, &board, &taken, number, &share, reading);
        number = parts.tile_after(number, cubes);
    }
}

/// Reduces the crew's strip of tile number `nth` of the outputs of a share. Every unit of the cube must
/// get here.
#[cube]
fn reduce_strip<N: Width>(
    target: &mut Target,
    board: &Board<N>,
    nth: usize,
    share: &Share<'_>,
    reading: &Reading<'_>,
) -> Taken<N> {
    let access = comptime![share.access];
    let (regions, reducer) = (reading.regions, reading.reducer);
    let crew = comptime![Crew::of(reducer.team)];
    let members = comptime![reducer.team.units_per_tile as usize];
    let len_of_step = comptime![members * SegmentsPlan::share(access)];
    let places = Places::of(share.tile.input, regions.numbers.len, access);
    let len_of_strip = regions.numbers.steps * len_of_step;
    let len_of_tile = comptime![crew.crews as usize] * len_of_strip;
    let begin_of_tile = nth * len_of_tile;
    let begin = begin_of_tile + (UNIT_POS / crew.units) as usize * len_of_strip;
    let end = clamp_max(begin + len_of_strip, places.end);
    let found = regions.at(places.position(begin), &board.least);
    // Regions that end before the first element have none.
    let first_region = select(begin == 0, 0usize, found);
    let unit = unit_of_crew(crew) as usize;
    let mut running = Running::<N> {
        rest: reducer.identity::<N>(),
        region: first_region,
        offset: regions.offset(first_region),
        offsets: regions.offsets(first_region + unit),
    };
    let mut inside = Inside::<N>::nothing(reducer);
    let mut is_inside = false.runtime();
    // Along the reduction, the loads of the next step are issued before those of a step are used:
    // sums of 2^26 f32 in 100,000 segments took 83 us on one H200, and 115 where they were issued
    // behind the marks of a step's ends. Across outputs, units have more registers in flight, and more
    // cubes do better.
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
        let region_end = places.place(regions.end_at(running.offset, running.region));
        let goes_through = whole && region_end > stop;
        if !goes_through {
            board.show(&now, share.place.member, members);
        }
        if ahead && goes_on {
            fetched.issue(share, &places, next_start, members);
        }
        if goes_through {
            let with = inside.with(&now, start, &places, share, reducer, members);
            inside.of_blocks = with.of_blocks;
            inside.of_loads = with.of_loads;
            is_inside = true;
        }
        if is_inside && (!goes_through || !goes_on) {
            let total = reducer.merge::<N>(running.rest, inside.total(share, reducer));
            running.rest = board.for_all(total, share);
            let nothing = Inside::<N>::nothing(reducer);
            inside.of_blocks = nothing.of_blocks;
            inside.of_loads = nothing.of_loads;
            is_inside = false;
        }
        if !goes_through {
            let step = Step { strip: begin, start, stop };
            let behind = mark_and_take::<N>(target, board, &now, &running, &step, share, reading);
            running.rest = behind.rest;
            running.region = behind.region;
            running.offset = behind.offset;
            running.offsets.before = behind.offsets.before;
            running.offsets.own = behind.offsets.own;
        }
        start = next_start;
    }
    Taken::<N> {
        rest: running.rest,
        has_ends: running.region != first_region,
        first: first_region,
        strip: begin,
        tile: begin_of_tile,
        end: clamp_max(begin_of_tile + len_of_tile, places.end),
        len: len_of_tile,
    }
}

/// A strip that has been reduced.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Taken<N: Width> {
    /// What it has of the region that goes on behind it.
    rest: Accumulator<N>,
    /// Whether a region ends in it.
    has_ends: bool,
    /// The number of its first region.
    first: usize,
    /// The places where the strip begins, where its tile does, and where that ends.
    strip: usize,
    tile: usize,
    end: usize,
    /// The length of tiles.
    len: usize,
}

/// The places where a strip begins, where a step of it begins, and where that ends.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Step {
    strip: usize,
    start: usize,
    stop: usize,
}

/// What is known of a strip up to some place.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Running<N: Width> {
    /// What it has of the region that goes on.
    rest: Accumulator<N>,
    /// The number of that region, the offset with which it ends, and the offsets of the region that
    /// comes as many behind it as the unit behind the first one of its crew.
    region: usize,
    offset: Offset,
    offsets: Offsets,
}

/// Stores the result of a region that ends in a step, or keeps its part: `accumulator` is what it has
/// there, and that of no elements where the region [has none](has_elements).
#[cube]
fn finish_region<N: Width>(
    target: &mut Target,
    board: &Board<N>,
    region: usize,
    bounds: &Bounds,
    accumulator: Accumulator<N>,
    step: &Step,
    share: &Share<'_>,
    reading: &Reading<'_>,
) {
    let (regions, reducer) = (reading.regions, reading.reducer);
    let Bounds { begin, end } = *bounds;
    let (segment, exists) = regions.segment(region);
    let has_elements = has_elements(bounds, step);
    let len = select(has_elements, end - begin, regions.numbers.zero);
    let began_before = has_elements && begin < step.strip;
    if exists && began_before {
        board.keep_head(accumulator, share);
    } else if exists {
        put::<N>(target, accumulator, segment, len, share, regions, reducer);
    }
}

/// Whether a region has elements and ends in a step.
#[cube]
fn has_elements(bounds: &Bounds, step: &Step) -> bool {
    bounds.begin < bounds.end && bounds.end > step.start && bounds.end <= step.stop
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
