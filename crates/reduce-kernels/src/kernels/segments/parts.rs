//! What tiles have of segments that go on in others, and how it comes together.

use cubecl::prelude::*;

use super::{
    Reading, Taken,
    crew::Crew,
    put,
    regions::{Bounds, Places},
    step::Board,
};
use crate::{
    kernels::{
        partials::{Published, Ranges, merging_team, nth_to_begin},
        reducer::Reducer,
        share::Share,
        target::Target,
    },
    operator::{Accumulator, AccumulatorTypes, Columns, Single, Slice, Width},
};

/// The words in which tiles publish their parts, and the mark of the launch.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct PublishedArray {
    words: Box<[Atomic<u64>]>,
    mark: u64,
}

/// Where tiles leave their parts.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Parts<'a, N: Width> {
    /// For a second launch.
    left: Columns<AccumulatorTypes, Single>,
    /// For the cubes of tiles that follow, if no second launch merges.
    published: &'a ComptimeOption<PublishedArray>,
    /// The region that goes on into a tile, if its cube looks back.
    entering: ComptimeOption<Entering<N>>,
}

/// The region that goes on into a tile: where it lies, its segment, and what it has there if it ends
/// there.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Entering<N: Width> {
    places: Slice<usize>,
    parts: Columns<AccumulatorTypes, N>,
}

#[cube]
impl<'a, N: Width> Parts<'a, N> {
    pub(super) fn new(
        left: Columns<AccumulatorTypes, Single>,
        published: &'a ComptimeOption<PublishedArray>,
        reading: &Reading<'_>,
        #[comptime] side_by_side: usize,
    ) -> Parts<'a, N> {
        let entering = if comptime![published.is_some()] {
            let fields = comptime![reading.reducer.operator.0.fields];
            ComptimeOption::new_Some(Entering::<N> {
                places: Slice::of(&Shared::<[usize]>::new_slice(3usize)),
                parts: Columns::shared(side_by_side, fields),
            })
        } else {
            ComptimeOption::new_None()
        };
        Parts::<'a, N> { left, published, entering }
    }

    /// The number of the cube's first tile. One that is no number of a tile means that it has none.
    /// Every unit of the cube must get here.
    pub(super) fn first_tile(&self, cubes: usize, tiles: usize) -> usize {
        #[comptime]
        match self.published {
            // Whoever looks back waits for tiles with lower numbers, which must have begun.
            ComptimeOption::Some(published) => nth_to_begin(&published.words, published.mark),
            // The grid may hold a few cubes past the last.
            ComptimeOption::None => select(CUBE_POS < cubes, CUBE_POS, tiles),
        }
    }

    /// The number of the tile that the cube takes after tile number `number`, as
    /// [`first_tile`](Self::first_tile).
    pub(super) fn tile_after(&self, number: usize, cubes: usize) -> usize {
        #[comptime]
        match self.published {
            ComptimeOption::Some(published) => nth_to_begin(&published.words, published.mark),
            ComptimeOption::None => number + cubes,
        }
    }

    /// The first unit tells the others which region goes on into the tile, behind the next barrier.
    fn tell_entering(&self, segment: usize, exists: bool, bounds: &Bounds) {
        #[comptime]
        match &self.entering {
            ComptimeOption::Some(entering) => {
                if UNIT_POS == 0 {
                    let mut places = entering.places;
                    places[0] = bounds.begin;
                    // One that is no segment has no place where it ends.
                    places[1] = select(exists, bounds.end, 0usize);
                    places[2] = segment;
                }
            }
            ComptimeOption::None => {}
        }
    }

    /// Leaves what the region that goes on into tile number `nth` has there, where it ends.
    fn leave_end(
        &self,
        part: Accumulator<N>,
        nth: usize,
        share: &Share<'_>,
        #[comptime] beside: bool,
    ) {
        #[comptime]
        match &self.entering {
            ComptimeOption::Some(entering) => {
                let mut parts = entering.parts;
                let output = if beside { share.place.tile } else { 0u32.runtime() };
                parts.put(output as usize, part);
            }
            ComptimeOption::None => self.leave(part, nth, share),
        }
    }

    /// Leaves what tile number `number` has of the region that goes on behind it.
    fn leave_rest(
        &self,
        part: Accumulator<N>,
        number: usize,
        share: &Share<'_>,
        reading: &Reading<'_>,
    ) {
        let tiles = reading.regions.numbers.tiles;
        let nth = number % tiles;
        #[comptime]
        match self.published {
            ComptimeOption::Some(array) => {
                let published = published_by::<N>(number / tiles, array.mark, reading);
                published.publish_tile::<N>(&array.words, nth, part, share.place);
            }
            ComptimeOption::None => self.leave(part, tiles + nth, share),
        }
    }

    /// Leaves the parts of a region for a second launch, one for each output of the share, in slot
    /// `slot`.
    fn leave(&self, part: Accumulator<N>, slot: usize, share: &Share<'_>) {
        let mut left = self.left;
        #[unroll]
        for nth in 0..N::value().comptime() {
            let exists = comptime![nth as u32] < share.tile.results;
            if exists {
                let output = share.tile.index + nth;
                left.put(slot * share.geometry.outputs + output, part.component(nth));
            }
        }
    }

    /// Finishes the region that goes on into a tile and ends there, with what the tiles before have of
    /// it. Every unit of the cube must get here.
    fn look_back(
        &self,
        target: &mut Target,
        taken: &Taken<N>,
        number: usize,
        share: &Share<'_>,
        reading: &Reading<'_>,
    ) {
        #[comptime]
        match self.published {
            ComptimeOption::Some(array) => {
                let entering = self.entering.unwrap();
                let (begin, end) = (entering.places[0], entering.places[1]);
                if begin < taken.tile && taken.tile < end && end <= taken.end {
                    let (regions, reducer) = (reading.regions, reading.reducer);
                    let tiles = regions.numbers.tiles;
                    let first = begin / taken.len;
                    let tiles_before = Ranges::one(first, number % tiles - first);
                    let published = published_by::<N>(number / tiles, array.mark, reading);
                    let team = comptime![merging_team(reducer.team, published.outputs)];
                    let merging = reducer.with_team(team);
                    let before = published.merge_from(&array.words, tiles_before, &merging);
                    let before =
                        of_outputs::<N>(before, share, reducer, comptime![published.outputs]);
                    let crew = comptime![Crew::of(reducer.team)];
                    let (beside, writes) = if comptime![crew.in_plane] {
                        (0u32.runtime(), UNIT_POS == 0)
                    } else {
                        (share.place.tile, share.place.member == 0)
                    };
                    if writes {
                        let part = entering.parts.at(beside as usize);
                        let total = reducer.merge::<N>(before, part);
                        let segment = entering.places[2];
                        put::<N>(target, total, segment, end - begin, share, regions, reducer);
                    }
                }
            }
            ComptimeOption::None => {}
        }
    }
}

/// What the tiles of a block of outputs publish under a mark.
#[cube]
fn published_by<N: Width>(block: usize, mark: u64, reading: &Reading<'_>) -> Published {
    let reducer = reading.reducer;
    let width = N::value().comptime();
    let crew = comptime![Crew::of(reducer.team)];
    let outputs = comptime![crew.side_by_side(reducer.team) * width];
    let tiles = reading.regions.numbers.tiles;
    Published::of(block, tiles, mark, outputs, comptime![reducer.operator])
}

/// For member 0 of each tile of outputs their accumulators, of which the unit with the number of an
/// output has that of it. Every unit of the cube must get here.
#[cube]
fn of_outputs<N: Width>(
    of_unit: Accumulator<Single>,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
    #[comptime] outputs: usize,
) -> Accumulator<N> {
    if comptime![outputs == 1] {
        of_unit.resized::<N>()
    } else {
        let fields = comptime![reducer.operator.0.fields];
        let mut of_cube = Columns::<AccumulatorTypes, Single>::shared(outputs, fields);
        if UNIT_POS < comptime![outputs as u32] {
            of_cube.put(UNIT_POS as usize, of_unit);
        }
        sync_cube();
        of_cube.neighbours::<N>(share.place.tile as usize * N::value().comptime())
    }
}

/// Brings the strips of a tile together: stores the results of segments that went on in several of
/// them, and leaves what other tiles wait for. Every unit of the cube must get here.
#[cube]
pub(super) fn finish_tile<N: Width>(
    target: &mut Target,
    parts: &Parts<'_, N>,
    board: &Board<N>,
    taken: &Taken<N>,
    number: usize,
    share: &Share<'_>,
    reading: &Reading<'_>,
) {
    let (regions, reducer) = (reading.regions, reading.reducer);
    let in_plane = comptime![board.crew.in_plane];
    let nth = number % regions.numbers.tiles;
    let places = Places::of(share.tile.input, regions.numbers.len, comptime![share.access]);
    let bounds = regions.bounds(&places, taken.first);
    let (segment, exists) = regions.segment(taken.first);
    // What strips have of regions that go on in others of the tile, in the order of the strips.
    board.tell(taken.rest, taken.has_ends, share);
    parts.tell_entering(segment, exists, &bounds);
    sync_cube();
    if share.place.member == 0 {
        if in_plane {
            if share.place.tile == 0 {
                let nothing = reducer.identity::<N>();
                let strips = comptime![board.crew.crews].runtime();
                let rest = with_strips_before::<N>(nothing, strips, board, reducer);
                parts.leave_rest(rest, number, share, reading);
            }
        } else {
            parts.leave_rest(taken.rest, number, share, reading);
        }
        let Bounds { begin, end } = bounds;
        let began_before = begin < taken.strip && taken.strip < end;
        if exists && taken.has_ends && began_before {
            let head = board.head(share);
            let whole = with_strips_before::<N>(head, share.place.tile, board, reducer);
            if begin < taken.tile {
                parts.leave_end(whole, nth, share, comptime![!in_plane]);
            } else {
                put::<N>(target, whole, segment, end - begin, share, regions, reducer);
            }
        }
    }
    parts.look_back(target, taken, number, share, reading);
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
