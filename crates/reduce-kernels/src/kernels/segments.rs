//! Reductions of segments: shares of equal length, their parts of segments that go on elsewhere,
//! and the merge of what lies in several tiles.
//!
//! *Regions* are the segments and what lies before the first and behind the last: region number `r`
//! ends at offset number `r`, so segment number `s` is region `s + 1`. A unit has a *share* of the
//! axis, and the shares of a cube are a *tile*.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction, SegmentsPlan};

use super::{
    accumulate::{push_edge, push_loaded},
    args::{Input, InputArrays, KernelTypes, PartialArrays, TargetArrays, input_of, partials_of},
    combine::combine_vectors,
    geometry::{Dim, Geometry, Tile, locate, offsets, unknown_zero},
    load::{AtEnd, Loaded, edge_at, load},
    reducer::Reducer,
    share::Share,
    target::{Target, target_of},
    team::{Team, UnitPlace, place},
    total::combine_team,
};
use crate::operator::{
    Accumulator, AccumulatorTypes, Columns, Operand, OperatorRef, Parameters, Single, Slice, Wide,
    Width,
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
    /// Tiles of the axis.
    pub(crate) tiles: usize,
    /// Blocks of outputs that cubes have side by side.
    pub(crate) blocks: usize,
    /// 0, the number of elements of a segment without any, which compilers do not know.
    pub(crate) zero: usize,
}

/// Where regions end. Offsets may be wrong: no answer lies outside of the axis, and every search
/// ends.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Regions {
    offsets: Slice<Operand>,
    numbers: SegmentNumbers,
}

#[cube]
impl Regions {
    fn new(offsets: &[Operand], numbers: &SegmentNumbers) -> Regions {
        let numbers = SegmentNumbers {
            segments: numbers.segments,
            len: numbers.len,
            offset_stride: numbers.offset_stride,
            result_stride: numbers.result_stride,
            tiles: numbers.tiles,
            blocks: numbers.blocks,
            zero: numbers.zero,
        };
        Regions { offsets: Slice::of(offsets), numbers }
    }

    /// Where a region ends. The last one ends with the axis.
    fn end(&self, region: usize) -> usize {
        let SegmentNumbers { segments, len, offset_stride, .. } = self.numbers;
        let inside = clamp_max(region, segments);
        let offset = self.offsets[inside * offset_stride];
        // A negative offset becomes a large one. Offsets that indices do not hold do not come back
        // from one.
        let end = usize::cast_from(offset);
        let is_inside = region <= segments && Operand::cast_from(end) == offset;
        select(is_inside, clamp_max(end, len), len)
    }

    /// Where a region begins.
    fn begin(&self, region: usize) -> usize {
        select(region == 0, 0usize, self.end(clamp_min(region, 1usize) - 1))
    }

    /// The first region from `from` on that ends behind a position: the one that has it.
    fn at(&self, position: usize, from: usize) -> usize {
        // Regions without elements may be many: the distance is doubled before it is bisected.
        let behind = self.numbers.segments + 1;
        let mut lower = from;
        let mut step = 1usize;
        while lower + step < behind && self.end(lower + step) <= position {
            lower += step;
            step *= 2;
        }
        let mut upper = clamp_max(lower + step, behind);
        if self.end(lower) > position {
            upper = lower;
        }
        while lower < upper {
            let middle = (lower + upper) / 2;
            if self.end(middle) > position {
                upper = middle;
            } else {
                lower = middle + 1;
            }
        }
        upper
    }

    /// The number of the segment that a region is, and whether it is one.
    fn segment(&self, region: usize) -> (usize, bool) {
        (clamp_min(region, 1usize) - 1, region > 0 && region <= self.numbers.segments)
    }
}

/// Shares that one unit merges.
fn group(units_per_tile: u32) -> u32 {
    units_per_tile.min(SegmentsPlan::MERGED_BY_A_UNIT)
}

/// Where share number `nth` of an output begins. Shares begin with whole vectors, so the first one
/// has the elements before the first whole vector too.
#[cube]
fn share_start(nth: usize, input: usize, len: usize, #[comptime] access: Access) -> usize {
    let vector = comptime![access.vector];
    let head = if comptime![access.peeled && access.direction == Direction::Along] {
        input.div_ceil(vector) * vector - input
    } else {
        0usize.runtime()
    };
    select(nth == 0, 0usize, clamp_max(head + nth * comptime![SegmentsPlan::share(access)], len))
}

/// What units of a cube tell each other of their shares.
#[derive(CubeType)]
struct Tails<N: Width> {
    /// What each unit has behind the last end of a region in its share, and then what others have
    /// before the unit's share, behind the last end in the shares of its group.
    of_units: Columns<AccumulatorTypes, N>,
    /// Whether a region ends in the unit's share, and then in a share of its group before.
    ends: Slice<u32>,
    /// The same of groups of units.
    of_groups: Columns<AccumulatorTypes, N>,
    group_ends: Slice<u32>,
}

#[cube]
impl<N: Width> Tails<N> {
    fn new(#[comptime] team: Team, #[comptime] operator: OperatorRef) -> Tails<N> {
        let units = comptime![team.units_per_cube as usize];
        let groups = comptime![units / group(team.units_per_tile) as usize];
        let fields = comptime![operator.0.fields];
        Tails::<N> {
            of_units: Columns::shared(units, fields),
            ends: Slice::of(&Shared::<[u32]>::new_slice(units)),
            of_groups: Columns::shared(groups, fields),
            group_ends: Slice::of(&Shared::<[u32]>::new_slice(groups)),
        }
    }
}

/// Cubes reduce tiles in turn. They write the results of segments that end in the tile in which they
/// begin, and leave the parts of others.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_segments(
    _types: &KernelTypes,
    input: &InputArrays,
    offsets: &[Operand],
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

/// Reduces the tiles of a cube, and writes what segments without elements become.
#[cube]
fn reduce_tiles<N: Width>(
    target: &mut Target,
    partials: &mut Columns<AccumulatorTypes, Single>,
    reading: &Reading<'_>,
    cubes: usize,
) {
    let (regions, reducer) = (reading.regions, reading.reducer);
    let place = place(comptime![reducer.team]);
    let side_by_side = comptime![reducer.team.tiles_per_cube()];
    let numbers = regions.numbers;
    let tiles = numbers.tiles * numbers.blocks;
    let mut tails = Tails::<N>::new(comptime![reducer.team], comptime![reducer.operator]);
    // The grid may hold a few cubes past the last, which have no tiles.
    let mut number = select(CUBE_POS < cubes, CUBE_POS, tiles);
    while number < tiles {
        let output = number / numbers.tiles * side_by_side + place.tile as usize;
        let share = reading.outputs(output, place, side_by_side);
        let nth = number % numbers.tiles;
        reduce_tile::<N>(target, partials, &mut tails, nth, &share, regions, reducer);
        number += cubes;
    }
    write_empty::<N>(target, &mut tails, reading, cubes);
}

/// Writes the results of the segments that have no elements, of which each unit asks about as many.
/// Every unit of the cube must get here.
#[cube]
fn write_empty<N: Width>(
    target: &mut Target,
    tails: &mut Tails<N>,
    reading: &Reading<'_>,
    cubes: usize,
) {
    let (geometry, regions, reducer) = (reading.geometry, reading.regions, reading.reducer);
    // Results of constants would be computed when the kernel is compiled, and WGSL has no constant
    // NaN for a mean. LLVM also looks through a loop; where it found a NaN under a root, Mesa's
    // software adapter stored nothing. Compilers do not look through a barrier.
    tails.of_units.put(UNIT_POS as usize, reducer.identity::<N>());
    sync_cube();
    let nothing = tails.of_units.at(UNIT_POS as usize);
    let units = comptime![reducer.team.units_per_cube as usize];
    let all = regions.numbers.segments * geometry.tiles;
    let mut nth = CUBE_POS * units + UNIT_POS as usize;
    while nth < all {
        let segment = nth / geometry.tiles;
        if regions.begin(segment + 1) >= regions.end(segment + 1) {
            let place = UnitPlace { tile: 0u32.runtime(), member: 0u32.runtime() };
            let share = reading.outputs(nth % geometry.tiles, place, 1usize);
            put::<N>(target, nothing, segment, regions.numbers.zero, &share, regions, reducer);
        }
        nth += cubes * units;
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

/// Reduces tile number `nth` of the outputs of a share. Every unit of the cube must get here.
#[cube]
fn reduce_tile<N: Width>(
    target: &mut Target,
    partials: &mut Columns<AccumulatorTypes, Single>,
    tails: &mut Tails<N>,
    nth: usize,
    share: &Share<'_>,
    regions: &Regions,
    reducer: &Reducer<'_>,
) {
    let access = comptime![share.access];
    let members = comptime![reducer.team.units_per_tile as usize];
    let (input, len) = (share.tile.input, regions.numbers.len);
    let first = nth * members;
    let number = first + share.place.member as usize;
    let start = share_start(number, input, len, access);
    let end = share_start(number + 1, input, len, access);

    // 1. The unit's own share. What it has of the region that began before waits for the others.
    let mut region = regions.at(start, 0usize);
    let mut region_end = regions.end(region);
    let mut waits = regions.begin(region) < start;
    let mut head_region = 0usize.runtime();
    let mut has_head = false.runtime();
    let mut ends = false.runtime();
    let mut head = reducer.identity::<N>();
    let mut total = reducer.identity::<N>();
    let mut at = start;
    // Where heads of rows are peeled, vectors of the first share may begin behind its start.
    let first_is_whole =
        comptime![!access.peeled || access.direction == Direction::Across].runtime();
    while at < end {
        // Of a whole share without an end, all loads are issued before the first is used.
        let is_whole = at == start && end - start == comptime![SegmentsPlan::share(access)];
        if is_whole && region_end >= end && (number > 0 || first_is_whole) {
            total = whole_share::<N>(total, number, share, reducer);
            at = end;
        } else {
            total = push_element::<N>(total, at, share, reducer);
            at += 1;
        }
        if at == region_end {
            ends = true;
            if waits {
                waits = false;
                has_head = true;
                head = total;
                head_region = region;
            } else {
                let (segment, exists) = regions.segment(region);
                if exists {
                    let elements = region_end - regions.begin(region);
                    put::<N>(target, total, segment, elements, share, regions, reducer);
                }
            }
            total = reducer.identity::<N>();
            region = regions.at(at, region);
            region_end = regions.end(region);
        }
    }

    // 2. What shares have before those of other units, in their order.
    tails.of_units.put(UNIT_POS as usize, total);
    tails.ends[UNIT_POS as usize] = u32::cast_from(ends);
    sync_cube();
    let tail = carry::<N>(tails, share, reducer);

    // 3. The regions that began in other shares of the tile end here. Parts of others are left.
    if has_head {
        let group = comptime![group(reducer.team.units_per_tile)];
        let of_group = group_place(share.place.member / group, share, reducer);
        let mut before = tails.of_units.at(UNIT_POS as usize);
        if tails.ends[UNIT_POS as usize] == 0 {
            before = reducer.merge::<N>(tails.of_groups.at(of_group), before);
        }
        let whole = reducer.merge::<N>(before, head);
        let (segment, exists) = regions.segment(head_region);
        let begin = regions.begin(head_region);
        if exists {
            if begin >= share_start(first, input, len, access) {
                let elements = regions.end(head_region) - begin;
                put::<N>(target, whole, segment, elements, share, regions, reducer);
            } else {
                leave::<N>(partials, whole, nth, share);
            }
        }
    }
    if share.place.member == 0 {
        leave::<N>(partials, tail, regions.numbers.tiles + nth, share);
    }
    // The next tile writes where this one reads.
    sync_cube();
}

/// The place of a group of units of a share's output.
#[cube]
fn group_place(nth: u32, share: &Share<'_>, reducer: &Reducer<'_>) -> usize {
    let side_by_side = comptime![reducer.team.tiles_per_cube() as u32];
    (nth * side_by_side + share.place.tile) as usize
}

/// Replaces what each unit has behind the last end in its share by what others have before the
/// share. Returns, in member 0, what the tile has behind its last end. Every unit of the cube must
/// get here.
///
/// One unit merges a few shares, and one more those of all such units: both take fewer merges than a
/// scan by all units, whose steps would each have a barrier too.
#[cube]
fn carry<N: Width>(
    tails: &mut Tails<N>,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let team = comptime![reducer.team];
    let group = comptime![group(team.units_per_tile)];
    let groups = comptime![team.units_per_tile / group];
    let side_by_side = comptime![team.tiles_per_cube() as u32];
    let zero = share.unknown_zero();
    let (member, tile) = (share.place.member, share.place.tile);
    let side_by_side = comptime![side_by_side as usize];
    if member < groups {
        let first = (member * group) as usize * side_by_side + tile as usize;
        let (records, flags) = (&mut tails.of_units, tails.ends);
        let (running, ends) =
            put_what_is_before::<N>(records, flags, first, side_by_side, group + zero, reducer);
        let place = group_place(member, share, reducer);
        tails.of_groups.put(place, running);
        tails.group_ends[place] = ends;
    }
    sync_cube();
    let mut of_tile = reducer.identity::<N>();
    if member == 0 {
        let (records, flags) = (&mut tails.of_groups, tails.group_ends);
        let first = tile as usize;
        let (running, _) =
            put_what_is_before::<N>(records, flags, first, side_by_side, groups + zero, reducer);
        of_tile = running;
    }
    sync_cube();
    of_tile
}

/// Replaces each of `count` accumulators, `step` places apart, by what those before it have behind
/// the last end of a region, and the flag of an end by whether there was one before. Returns both for
/// what comes behind all of them.
#[cube]
fn put_what_is_before<N: Width>(
    records: &mut Columns<AccumulatorTypes, N>,
    flags: Slice<u32>,
    first: usize,
    step: usize,
    count: u32,
    reducer: &Reducer<'_>,
) -> (Accumulator<N>, u32) {
    let mut flags = flags;
    let mut running = reducer.identity::<N>();
    let mut ends = 0u32.runtime();
    for nth in 0..count {
        let place = first + nth as usize * step;
        let tail = records.at(place);
        let is_end = flags[place];
        records.put(place, running);
        flags[place] = ends;
        if is_end == 1 {
            running = tail;
            ends = 1u32;
        } else {
            running = reducer.merge::<N>(running, tail);
        }
    }
    (running, ends)
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

/// Adds all elements of share number `number`, which is whole.
#[cube]
fn whole_share<N: Width>(
    accumulator: Accumulator<N>,
    number: usize,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let access = comptime![share.access];
    let in_flight = comptime![access.loads_in_flight];
    let mut loads = Sequence::<Loaded>::new();
    #[unroll]
    for nth in 0..in_flight {
        loads.push(load(share, number * in_flight + nth, AtEnd::Never));
    }
    let mut vectors = reducer.identity::<Wide>();
    #[unroll]
    for nth in 0..in_flight {
        vectors = push_loaded::<Wide>(vectors, *loads.index(nth), reducer);
    }
    reducer.merge::<N>(accumulator, combine_vectors::<N>(vectors, access.direction, reducer))
}

/// Adds one element of each output of a share.
#[cube]
fn push_element<N: Width>(
    accumulator: Accumulator<N>,
    element: usize,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let access = comptime![share.access];
    if comptime![access.direction == Direction::Along && access.vector > 1] {
        let edge = edge_at(share, 0usize, element, true.runtime());
        push_edge(accumulator.resized::<Single>(), &edge, reducer).resized::<N>()
    } else {
        let loaded = load(share, element, AtEnd::Never);
        push_loaded::<Wide>(accumulator.resized::<Wide>(), loaded, reducer).resized::<N>()
    }
}

/// Merges the parts of each segment that lies in several tiles, in the order of the tiles. A cube
/// looks after the segment that begins in one tile and ends in another.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn merge_segments(
    _types: &KernelTypes,
    offset_values: &[Operand],
    partials: &mut PartialArrays,
    target: &mut TargetArrays,
    kept: &Sequence<Dim>,
    numbers: &SegmentNumbers,
    parameters: &Parameters,
    outputs: usize,
    #[comptime] access: Access,
    #[comptime] members_of_tile: usize,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let partials = partials_of(partials);
    let mut target = target_of(target);
    let regions = Regions::new(offset_values, numbers);
    let reducer = Reducer::new(parameters, team, operator);
    let place = place(team);
    let (nth, block) = (CUBE_POS % numbers.tiles, CUBE_POS / numbers.tiles);
    let number = block * comptime![team.tiles_per_cube()] + place.tile as usize;
    let index = clamp_max(number, outputs - 1);
    let at = offsets(kept, index);
    let len = numbers.len;
    let start = share_start(nth * members_of_tile, at.input, len, access);
    let end = share_start((nth + 1) * members_of_tile, at.input, len, access);
    let region = regions.at(end, 0usize);
    let (segment, exists) = regions.segment(region);
    let begin = regions.begin(region);
    let ends_at = regions.end(region);
    // All units of a cube have the same answer: along the axis, it has one output.
    let leaves = exists && end < len && begin >= start && begin < end;
    let mut total = reducer.identity::<Single>();
    // The tile that has the last element.
    let last = nth + 1 + tiles_between(end, ends_at, members_of_tile, access);
    let last = clamp_max(last, numbers.tiles - 1);
    if leaves {
        let tails = numbers.tiles;
        let mut tile = nth + place.member as usize;
        while tile < last {
            let part = partials.at((tails + tile) * outputs + index);
            total = reducer.merge::<Single>(total, part);
            tile += comptime![team.units_per_tile as usize];
        }
    }
    total = combine_team::<Single>(total, unknown_zero(numbers.tiles, outputs), &reducer);
    if leaves && place.member == 0 && number < outputs {
        total = reducer.merge::<Single>(total, partials.at(last * outputs + index));
        let offset = at.target + segment * numbers.result_stride;
        target.put(offset, total, outputs, ends_at - begin, parameters, operator);
    }
}

/// The whole tiles between the end of a tile and that of a region, which lies behind it.
#[cube]
fn tiles_between(
    end: usize,
    ends_at: usize,
    #[comptime] members_of_tile: usize,
    #[comptime] access: Access,
) -> usize {
    let tile = comptime![members_of_tile * SegmentsPlan::share(access)];
    (clamp_min(ends_at, end + 1) - 1 - end) / tile
}
