//! Where segments lie, and which of them has an element.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    SegmentNumbers,
    crew::{Crew, unit_of_crew},
};
use crate::operator::{Offset, Slice, copied::copied_through_references};

/// Where regions end. Offsets may be wrong: no answer lies outside of the axis, and every search
/// ends.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Regions {
    offsets: Slice<Offset>,
    pub(crate) numbers: SegmentNumbers,
}

#[cube]
impl Regions {
    pub(crate) fn new(offsets: &[Offset], numbers: &SegmentNumbers) -> Regions {
        let numbers = SegmentNumbers {
            segments: numbers.segments,
            len: numbers.len,
            offset_stride: numbers.offset_stride,
            result_stride: numbers.result_stride,
            steps: numbers.steps,
            tiles: numbers.tiles,
            blocks: numbers.blocks,
            zero: numbers.zero,
        };
        Regions { offsets: Slice::of(offsets), numbers }
    }

    /// The offset with which a region ends, or the last one.
    pub(super) fn offset(&self, region: usize) -> Offset {
        self.offsets[clamp_max(region, self.numbers.segments) * self.numbers.offset_stride]
    }

    /// Where a region with this offset ends. The one behind all segments ends with the axis, as do
    /// those that do not exist.
    pub(super) fn end_at(&self, offset: Offset, region: usize) -> usize {
        let SegmentNumbers { segments, len, .. } = self.numbers;
        // A negative offset becomes a large one. Offsets that indices do not hold do not come back
        // from one.
        let end = usize::cast_from(offset);
        let is_inside = region <= segments && Offset::cast_from(end) == offset;
        select(is_inside, clamp_max(end, len), len)
    }

    pub(crate) fn end(&self, region: usize) -> usize {
        self.end_at(self.offset(region), region)
    }

    /// The offsets with which a region and the one before it end.
    pub(super) fn offsets(&self, region: usize) -> Offsets {
        Offsets { before: self.offset(clamp_min(region, 1usize) - 1), own: self.offset(region) }
    }

    /// Where a region with these offsets lies.
    pub(super) fn bounds_at(&self, offsets: &Offsets, region: usize, places: &Places) -> Bounds {
        let before = self.end_at(offsets.before, clamp_min(region, 1usize) - 1);
        let begin = select(region == 0, 0usize, before);
        let end = self.end_at(offsets.own, region);
        Bounds { begin: places.place(begin), end: places.place(end) }
    }

    /// Where a region lies.
    pub(super) fn bounds(&self, places: &Places, region: usize) -> Bounds {
        self.bounds_at(&self.offsets(region), region, places)
    }

    /// The number of the segment that a region is, and whether it is one.
    pub(super) fn segment(&self, region: usize) -> (usize, bool) {
        (clamp_min(region, 1usize) - 1, region > 0 && region <= self.numbers.segments)
    }

    /// The number of the segment that a region is, and whether it is one. Where it is none, the number
    /// is that of another segment, or 0 if there are none.
    pub(crate) fn held_segment(&self, region: usize) -> (u32, bool) {
        let (segment, exists) = self.segment(region);
        let last = clamp_min(self.numbers.segments, 1usize) - 1;
        (clamp_max(segment, last) as u32, exists)
    }

    /// The region of the element at this position, of those whose keys name them in place of offsets.
    /// Keys that name no segment name the region before all segments.
    pub(crate) fn named(&self, position: usize) -> usize {
        let key = self.offsets[position * self.numbers.offset_stride];
        let segment = usize::cast_from(key);
        let names = segment < self.numbers.segments && Offset::cast_from(segment) == key;
        select(names, segment + 1, 0usize)
    }

    /// The number behind those of all regions.
    pub(super) fn count(&self) -> usize {
        self.numbers.segments + 2
    }

    /// The first region that ends behind a position: the one that has it. Every unit of the crew must
    /// get here, with the same position.
    pub(crate) fn at(&self, position: usize, least: &Least) -> usize {
        // Each unit asks about the last region of an equal part of those that may be the one. So a
        // million of them take three or four rounds of loads, which a bisection by one unit would
        // need twenty of.
        let crew = comptime![least.crew];
        let unit = unit_of_crew(crew);
        let mut lower = 0usize;
        let mut upper = self.numbers.segments + 1;
        while lower < upper {
            let part = (upper - lower).div_ceil(comptime![crew.units as usize]);
            let first = lower + unit as usize * part;
            let last = clamp_max(first + part, upper) - 1;
            let mut is_first = false.runtime();
            if first < upper && self.end(last) > position {
                is_first = first == lower || self.end(clamp_min(first, 1usize) - 1) <= position;
            }
            let found = least.first(is_first);
            if found == u32::MAX {
                lower = upper;
            } else {
                lower += found as usize * part;
                upper = clamp_max(lower + part, upper) - 1;
            }
        }
        upper
    }

    /// The regions that have these positions, of those from number `lower` to `upper`. A unit bisects
    /// for all of them at once, so that it waits for one load after the other and not for those of
    /// each.
    pub(crate) fn at_each(
        &self,
        positions: &Sequence<usize>,
        lower: usize,
        upper: usize,
    ) -> Sequence<RuntimeCell<usize>> {
        let mut found = Sequence::<RuntimeCell<usize>>::new();
        #[unroll]
        for _ in 0..positions.len().comptime() {
            found.push(RuntimeCell::new(lower));
        }
        // A region comes at most so many behind the one that was found for it.
        let mut behind = upper - lower;
        while behind > 0 {
            let half = behind.div_ceil(2usize);
            #[unroll]
            for k in 0..positions.len().comptime() {
                let before = found.index(k).read();
                let ended = self.end(before + half - 1) <= *positions.index(k);
                found.index(k).store(select(ended, before + half, before));
            }
            behind -= half;
        }
        found
    }

    /// [`at_each`](Self::at_each) for one position.
    pub(crate) fn among(&self, position: usize, lower: usize, upper: usize) -> usize {
        let mut positions = Sequence::<usize>::new();
        positions.push(position);
        let found = self.at_each(&positions, lower, upper);
        found.index(0usize).read()
    }
}

/// What has been read of a region. Its bounds are computed where they are needed: units wait for a
/// load where it is first used.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Offsets {
    pub(super) before: Offset,
    pub(super) own: Offset,
}

/// Where a region begins and ends, in places.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Bounds {
    pub(super) begin: usize,
    pub(super) end: usize,
}

copied_through_references!(BoundsExpand);

/// The least of the numbers of a crew's units.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Least {
    /// One in use, one that units may still read, and one that is prepared. Planes need none.
    numbers: Slice<Atomic<u32>>,
    turn: Slice<u32>,
    #[cube(comptime)]
    crew: Crew,
}

#[cube]
impl Least {
    /// A barrier must follow before the first number is told.
    pub(crate) fn new(#[comptime] crew: Crew) -> Least {
        let numbers = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(3usize));
        if UNIT_POS == 0 {
            numbers[0].store(u32::MAX);
        }
        let mut turn = Slice::<u32>::local(1usize);
        turn[0] = 0u32;
        Least { numbers, turn, crew }
    }

    /// The first unit of which something holds, and `u32::MAX` if it holds of none. Every unit of the
    /// crew must get here, and they have met then.
    pub(super) fn first(&self, holds: bool) -> u32 {
        if comptime![self.crew.in_plane] {
            let first = first_lane(holds);
            sync_plane();
            first
        } else {
            self.of(select(holds, UNIT_POS, u32::MAX))
        }
    }

    /// The first of several things that hold, of which each unit asks about each `step`-th.
    /// `u32::MAX` if none does. Every unit of the crew must get here, and they have met then.
    pub(super) fn first_of_several(&self, holds: &Sequence<bool>, #[comptime] step: u32) -> u32 {
        let mut first = u32::MAX.runtime();
        #[unroll]
        for k in 0..holds.len().comptime() {
            let holds = *holds.index(k);
            let before = comptime![k as u32 * step];
            if comptime![self.crew.in_plane] {
                let lane = first_lane(holds);
                first = min(first, select(lane == u32::MAX, u32::MAX, before + lane));
            } else {
                first = min(first, select(holds, before + UNIT_POS, u32::MAX));
            }
        }
        if comptime![self.crew.in_plane] {
            sync_plane();
            first
        } else {
            self.of(first)
        }
    }

    /// The least of the numbers of all units of the cube, of which `u32::MAX` is none.
    fn of(&self, number: u32) -> u32 {
        let mut turn_of_unit = self.turn;
        let turn = turn_of_unit[0];
        let next = select(turn == 2, 0u32, turn + 1);
        if UNIT_POS == 0 {
            self.numbers[next as usize].store(u32::MAX);
        }
        if number != u32::MAX {
            self.numbers[turn as usize].fetch_min(number);
        }
        sync_cube();
        turn_of_unit[0] = next;
        self.numbers[turn as usize].load()
    }
}

/// The first lane of the plane of which something holds, and `u32::MAX` if it holds of none.
#[cube]
fn first_lane(holds: bool) -> u32 {
    let lanes = plane_ballot(holds).extract(0usize);
    select(lanes == 0, u32::MAX, lanes.trailing_zeros())
}

/// How many elements the shares, steps and tiles of an output hold, and where they begin: in
/// *places*, which count from the vector that has the first element of the axis.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Places {
    /// Elements of that vector before the axis.
    pub(super) before: usize,
    /// Where the axis ends.
    pub(super) end: usize,
}

#[cube]
impl Places {
    /// The places of an axis of `len` elements from element `input` on.
    pub(super) fn of(input: usize, len: usize, #[comptime] access: Access) -> Places {
        let peels = comptime![access.peeled && access.direction == Direction::Along];
        let before = if peels { input % comptime![access.vector] } else { 0usize.runtime() };
        Places { before, end: before + len }
    }

    /// The place of a position.
    pub(super) fn place(&self, position: usize) -> usize {
        self.before + position
    }

    /// The position of a place, and of one before the axis the first.
    pub(super) fn position(&self, place: usize) -> usize {
        clamp_min(place, self.before) - self.before
    }
}
