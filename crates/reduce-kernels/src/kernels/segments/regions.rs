//! Where segments lie, and which of them has an element.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::SegmentNumbers;
use crate::operator::{Operand, Slice, copied::copied_through_references};

/// Where regions end. Offsets may be wrong: no answer lies outside of the axis, and every search
/// ends.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Regions {
    offsets: Slice<Operand>,
    pub(super) numbers: SegmentNumbers,
}

#[cube]
impl Regions {
    pub(super) fn new(offsets: &[Operand], numbers: &SegmentNumbers) -> Regions {
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

    /// Where a region ends. The one behind all segments ends with the axis, as do those that do not
    /// exist.
    pub(super) fn end(&self, region: usize) -> usize {
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
    pub(super) fn begin(&self, region: usize) -> usize {
        select(region == 0, 0usize, self.end(clamp_min(region, 1usize) - 1))
    }

    /// Where a region lies.
    pub(super) fn bounds(&self, places: &Places, region: usize) -> Bounds {
        Bounds { begin: places.place(self.begin(region)), end: places.place(self.end(region)) }
    }

    /// The number of the segment that a region is, and whether it is one.
    pub(super) fn segment(&self, region: usize) -> (usize, bool) {
        (clamp_min(region, 1usize) - 1, region > 0 && region <= self.numbers.segments)
    }

    /// The number behind those of all regions.
    pub(super) fn count(&self) -> usize {
        self.numbers.segments + 2
    }

    /// The first region that ends behind a position: the one that has it. Every unit of the cube
    /// must get here, with the same position.
    pub(super) fn at(&self, position: usize, least: &Least, #[comptime] units: u32) -> usize {
        // Each unit asks about the last region of an equal part of those that may be the one. So a
        // million of them take three rounds of loads, which a bisection by one unit would need
        // twenty of.
        let units = comptime![units as usize];
        let mut lower = 0usize;
        let mut upper = self.numbers.segments + 1;
        while lower < upper {
            let part = (upper - lower).div_ceil(units);
            let first = lower + UNIT_POS as usize * part;
            let last = clamp_max(first + part, upper) - 1;
            let mut candidate = u32::MAX.runtime();
            if first < upper && self.end(last) > position {
                let is_first = first == lower || self.end(clamp_min(first, 1usize) - 1) <= position;
                if is_first {
                    candidate = UNIT_POS;
                }
            }
            let found = least.of(candidate);
            if found == u32::MAX {
                lower = upper;
            } else {
                lower += found as usize * part;
                upper = clamp_max(lower + part, upper) - 1;
            }
        }
        upper
    }
}

/// Where a region begins and ends, in places.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Bounds {
    pub(super) begin: usize,
    pub(super) end: usize,
}

copied_through_references!(BoundsExpand);

/// The least of the numbers of a cube's units.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Least {
    /// One in use, one that units may still read, and one that is prepared.
    numbers: Slice<Atomic<u32>>,
    turn: Slice<u32>,
}

#[cube]
impl Least {
    /// A barrier must follow before the first number is told.
    pub(super) fn new() -> Least {
        let numbers = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(3usize));
        if UNIT_POS == 0 {
            numbers[0].store(u32::MAX);
        }
        let mut turn = Slice::<u32>::local(1usize);
        turn[0] = 0u32;
        Least { numbers, turn }
    }

    /// The least of the numbers of all units, of which `u32::MAX` is none. Every unit of the cube
    /// must get here.
    pub(super) fn of(&self, number: u32) -> u32 {
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
