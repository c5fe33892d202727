//! Published partials: how the cubes of an output tile pass their partial results to the one that
//! finishes last, and how tiles of segments pass theirs to cubes that look back.
//!
//! Plain stores of one cube are not ordered for another without a fence, and not every device has
//! one. So a partial result is published in atomic words of 64 bits. The low half holds 32 bits of
//! an accumulator, the high half the number of the launch. Both are one atomic word, so a reader
//! that sees the number of its launch also sees the payload, in whatever order memory shows the
//! words.
//!
//! In SPIR-V, each of CubeCL's atomic operations is a fence itself: a unit waits for each word that
//! it stores or loads before it goes on to the next. The cubes of a split publish plain words there,
//! with the number of the launch too. Two fences of the whole cube, before and after it counts itself
//! in, order them (`sync_storage`, which rests on drivers: CubeCL marks no plain access as one that
//! others see). A word without the number is read again as an atomic one. Cubes that wait for others
//! read atomic words everywhere.
//!
//! Numbers grow from launch to launch and words begin as 0. Whatever an earlier launch left behind,
//! even if it was aborted, has a lower number and counts as not written. The counter of a block of
//! tiles has the number above its count: the first cube of a launch that arrives resets it by an
//! atomic maximum.
//!
//! A graph replays a launch with the number that it had when it was recorded. It would take the
//! words of the replay before for its own, so a graph records a launch of [`clear_words`] first.

use cubecl::prelude::*;
use reduce_planner::{Access, Combine, Direction};

use super::{
    args::whole_if_any,
    geometry::unknown_zero,
    pairwise::Tree,
    reducer::Reducer,
    team::{Team, UnitPlace, place},
    total::combine_team,
};
use crate::operator::{
    Accumulator, AccumulatorTypes, OperatorRef, Record, Single, Slice, Width, word_count,
};

/// Number of words that a unit of the last cube loads together and waits for.
///
/// Ten words would let a unit read two partial variances at a time. They took no more registers,
/// but 0.05 to 0.1 s of the first call on one H200.
const WORDS_IN_FLIGHT: usize = 8;

/// The words of one block of tiles. A counter comes first. The accumulators of `outputs` outputs
/// follow for each of `cubes` cubes, word by word, so that the words of neighbouring outputs lie
/// side by side.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Published {
    first: usize,
    cubes: usize,
    /// The number of the launch in the high half.
    mark: u64,
    /// The words as plain numbers, if fences order them.
    plain: ComptimeOption<Slice<u64>>,
    #[cube(comptime)]
    pub(super) outputs: usize,
    #[cube(comptime)]
    words: usize,
}

/// Number of outputs of one tile.
pub(super) fn outputs_per_tile(access: Access) -> usize {
    match access.direction {
        Direction::Along => 1,
        Direction::Across => access.vector,
    }
}

/// The team of a cube that merges what all cubes of its block have published. The units of one
/// output stand `outputs` apart, so neighbouring units read neighbouring words.
pub(super) fn merging_team(team: Team, outputs: usize) -> Team {
    let outputs = outputs as u32;
    Team {
        units_per_tile: team.units_per_cube / outputs,
        unit_stride: outputs,
        units_per_cube: team.units_per_cube,
        combine: if outputs == 1 { team.combine } else { Combine::Shared },
        merging_units: team.merging_units,
    }
}

/// The number of this cube among those of the launch that have begun, in the order in which they
/// did. The first word counts them. Whoever waits for cubes with lower numbers, and for a few that
/// follow, waits for cubes that run or that will as soon as there is room for them. Every unit of
/// the cube must get here.
#[cube]
pub(super) fn nth_to_begin(published: &[Atomic<u64>], mark: u64) -> usize {
    let mut number = Shared::<[u32]>::new_slice(1usize);
    if UNIT_POS == 0 {
        // The counter costs 1 to 2 % of a launch on one H200. Places in the grid cost nothing, but
        // no backend promises in which order cubes of a grid begin.
        number[0] = u32::cast_from(counted_in(published, 0usize, mark));
    }
    sync_cube();
    number[0] as usize
}

/// How many cubes of this launch the word at `counter` has counted before this one.
#[cube]
fn counted_in(published: &[Atomic<u64>], counter: usize, mark: u64) -> u64 {
    let mut earlier = published[counter].fetch_add(1u64);
    // The first cubes find the count of an earlier launch.
    if earlier < mark {
        published[counter].fetch_max(mark);
        earlier = published[counter].fetch_add(1u64);
    }
    earlier - mark
}

/// Turns the first `count` words into words that no launch has written.
#[cube(launch_unchecked)]
pub(crate) fn clear_words(published: &mut [Atomic<u64>], count: usize) {
    if ABSOLUTE_POS < count {
        published[ABSOLUTE_POS].store(0u64);
    }
}

/// Cubes whose accumulators are merged: those of one range, or those of a first range and then those
/// of a second.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Ranges {
    first: usize,
    cubes_of_first: usize,
    second: usize,
    cubes_of_second: usize,
    #[cube(comptime)]
    are_two: bool,
}

#[cube]
impl Ranges {
    /// So many cubes from number `first` on.
    pub(super) fn one(first: usize, cubes: usize) -> Ranges {
        Ranges {
            first,
            cubes_of_first: cubes,
            second: first,
            cubes_of_second: 0usize.runtime(),
            are_two: false,
        }
    }

    /// So many cubes from number `first` on, and so many from number `second` on.
    pub(super) fn two(
        first: usize,
        cubes_of_first: usize,
        second: usize,
        cubes_of_second: usize,
    ) -> Ranges {
        Ranges { first, cubes_of_first, second, cubes_of_second, are_two: true }
    }

    fn cubes(&self) -> usize {
        if comptime![self.are_two] {
            self.cubes_of_first + self.cubes_of_second
        } else {
            self.cubes_of_first
        }
    }

    /// The cube that comes as number `nth`.
    fn cube(&self, nth: usize) -> usize {
        if comptime![self.are_two] {
            let in_first = nth < self.cubes_of_first;
            // Numbers behind the first range count from its end. The others are not used.
            let behind = clamp_min(nth, self.cubes_of_first) - self.cubes_of_first;
            select(in_first, self.first + nth, self.second + behind)
        } else {
            self.first + nth
        }
    }
}

/// The cubes whose partials a unit merges: `first`, `first + step`, ... before `end`.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct CubesOfUnit {
    pub(super) first: usize,
    pub(super) step: usize,
    pub(super) end: usize,
}

#[cube]
impl CubesOfUnit {
    /// The cubes of unit `member` of `units`. They lie `units` apart, so that neighbouring units
    /// read neighbouring partials. By position, they are neighbours: the tree over all lanes merges
    /// those first.
    pub(super) fn of(
        member: usize,
        #[comptime] units: usize,
        cubes: usize,
        #[comptime] operator: OperatorRef,
    ) -> CubesOfUnit {
        if comptime![operator.0.is_by_position] {
            let each = cubes.div_ceil(units);
            let first = member * each;
            CubesOfUnit { first, step: 1usize.runtime(), end: clamp_max(first + each, cubes) }
        } else {
            CubesOfUnit { first: member, step: units.runtime(), end: cubes }
        }
    }
}

/// The tree in which a unit merges partials by position. Otherwise it merges one after the other.
#[cube]
pub(super) fn tree_of_partials(#[comptime] operator: OperatorRef) -> Tree<Single> {
    Tree::<Single>::of_fields(
        comptime![if operator.0.is_by_position { operator.0.fields } else { 0 }],
        operator,
    )
}

/// The total of a unit with the partial of cube `from`, one of its `own`.
#[cube]
pub(super) fn with_partial(
    total: Accumulator<Single>,
    partial: Accumulator<Single>,
    from: usize,
    own: &CubesOfUnit,
    tree: Tree<Single>,
    zero: u32,
    reducer: &Reducer<'_>,
) -> Accumulator<Single> {
    if comptime![reducer.operator.0.is_by_position] {
        let turn = u32::cast_from(from - own.first);
        tree.take(partial, turn, from + 1 == own.end, zero, reducer)
    } else {
        reducer.merge::<Single>(total, partial)
    }
}

#[cube]
impl Published {
    pub(super) fn of(
        block: usize,
        cubes: usize,
        mark: u64,
        #[comptime] outputs: usize,
        #[comptime] operator: OperatorRef,
    ) -> Self {
        let words = word_count::<AccumulatorTypes>(comptime![operator.0.fields]);
        let per_cube = comptime![outputs * words].runtime();
        let first = block * (1 + cubes * per_cube);
        Published { first, cubes, mark, plain: ComptimeOption::new_None(), outputs, words }
    }

    /// The same in plain words, if they are bound as such. All cubes must publish before one
    /// merges: see [`is_last`](Self::is_last).
    pub(super) fn in_plain_words(self, plain: &ComptimeOption<Box<[u64]>>) -> Self {
        let Published { first, cubes, mark, outputs, words, .. } = self;
        Published { first, cubes, mark, plain: whole_if_any(plain), outputs, words }
    }

    /// 0, the same in all units, and unknown to compilers.
    pub(super) fn zero(&self) -> u32 {
        unknown_zero(self.cubes, self.first)
    }

    /// Resets the counter for this launch. The cubes count themselves in much later, so the reset
    /// costs nothing. Where it would be a fence, the first cubes that count themselves in do it.
    pub(super) fn open(&self, published: &[Atomic<u64>]) {
        if comptime![self.plain.is_none()] && UNIT_POS == 0 {
            published[self.first].fetch_max(self.mark);
        }
    }

    /// The index of word `word` of the accumulator of `output` from `cube`.
    fn at(&self, cube: usize, output: usize, #[comptime] word: usize) -> usize {
        let row = cube * comptime![self.words] + comptime![word];
        self.first + 1 + row * comptime![self.outputs] + output
    }

    /// Publishes the accumulator of `output`.
    pub(super) fn publish(
        &self,
        published: &[Atomic<u64>],
        cube: usize,
        output: usize,
        accumulator: Accumulator<Single>,
    ) {
        let bits = accumulator.bits();
        #[unroll]
        for word in 0..comptime![self.words] {
            // The last cube does not clear the words. An earlier version had it exchange each for
            // 0: after one launch that did not take all of its words, the results of the next
            // launches were wrong.
            let marked = u64::cast_from(*bits.index(word)) | self.mark;
            let at = self.at(cube, output, word);
            #[comptime]
            match self.plain {
                ComptimeOption::Some(mut words) => words[at] = marked,
                ComptimeOption::None => published[at].store(marked),
            }
        }
    }

    /// Member 0 of a tile's team publishes the accumulators of the tile's outputs.
    pub(super) fn publish_tile<N: Width>(
        &self,
        published: &[Atomic<u64>],
        cube: usize,
        total: Accumulator<N>,
        place: UnitPlace,
    ) {
        let width = N::value().comptime();
        if place.member == 0 {
            #[unroll]
            for nth in 0..width {
                let output = place.tile as usize * width + nth;
                self.publish(published, cube, output, total.component(nth));
            }
        }
    }

    /// Counts this cube in, and returns whether it is the last. Every unit of the cube must get
    /// here, after [`open`](Self::open).
    pub(super) fn is_last(&self, published: &[Atomic<u64>]) -> bool {
        // The answer goes through shared memory and not through a plane operation: all units of the
        // cube must take the same branch, because the merge has barriers.
        let mut last = Shared::<[u32]>::new_slice(1usize);
        // A cube counts itself in behind its partial results, so the last one rarely waits.
        self.sync();
        if UNIT_POS == 0 {
            let earlier = if comptime![self.plain.is_some()] {
                counted_in(published, self.first, self.mark)
            } else {
                published[self.first].fetch_add(1u64) - self.mark
            };
            let is_last = usize::cast_from(earlier) + 1 == self.cubes;
            last[0] = u32::cast_from(is_last);
        }
        self.sync();
        last[0] == 1
    }

    /// Waits for the units of the cube, and for their plain words if there are any.
    fn sync(&self) {
        if comptime![self.plain.is_some()] {
            sync_storage();
        } else {
            sync_cube();
        }
    }

    /// Merges what all cubes published: the total of output `UNIT_POS % outputs`, complete in the
    /// first unit of each output. The order depends on the number of cubes and units alone.
    pub(super) fn merge(
        &self,
        published: &[Atomic<u64>],
        reducer: &Reducer<'_>,
    ) -> Accumulator<Single> {
        self.merge_from(published, Ranges::one(0usize, self.cubes), reducer)
    }

    /// [`merge`](Self::merge) of what these cubes published.
    pub(super) fn merge_from(
        &self,
        published: &[Atomic<u64>],
        ranges: Ranges,
        reducer: &Reducer<'_>,
    ) -> Accumulator<Single> {
        let total = self.own_from(published, ranges, reducer);
        // Units that waited may have left their plane's other units behind. CubeCL's plane
        // operations on CUDA take part with whichever units happen to be there.
        sync_cube();
        combine_team::<Single>(total, self.zero(), reducer)
    }

    /// What this unit merges of that.
    pub(super) fn own_from(
        &self,
        published: &[Atomic<u64>],
        ranges: Ranges,
        reducer: &Reducer<'_>,
    ) -> Accumulator<Single> {
        let cubes = ranges.cubes();
        let team = comptime![reducer.team];
        let words = comptime![self.words];
        let cubes_in_flight = comptime![(WORDS_IN_FLIGHT / words).max(1)];
        let place = place(team);
        let output = place.tile as usize;
        // Batch-invariant plans have fewer units merge than a cube may have. The others merge
        // nothing, and the bits of an output do not depend on how many outputs a cube has.
        let units = comptime![team.merging_units.min(team.units_per_tile) as usize];
        let member = if comptime![units < team.units_per_tile as usize] {
            let merges = place.member < comptime![units as u32];
            select(merges, place.member as usize, cubes)
        } else {
            place.member as usize
        };
        let own = CubesOfUnit::of(member, units, cubes, comptime![reducer.operator]);
        let zero = self.zero();
        let tree = tree_of_partials(comptime![reducer.operator]);
        let mut total = reducer.identity::<Single>();
        // The loop is counted. A `while` over the same rounds lost its results on Mesa's software
        // adapter: the words were taken, and the result was never written. The cause was not found.
        let rounds = cubes.div_ceil(comptime![cubes_in_flight * units]);
        for round in 0..rounds {
            let cube = own.first + round * (cubes_in_flight * own.step);
            let mut taken = Sequence::<u64>::new();
            #[unroll]
            for k in 0..cubes_in_flight {
                let from = cube + k * own.step;
                // All words of the round are asked for before the first one is waited for.
                #[unroll]
                for word in 0..words {
                    let mut found = 0u64;
                    if from < own.end {
                        let at = self.at(ranges.cube(from), output, word);
                        #[comptime]
                        match self.plain {
                            ComptimeOption::Some(words) => found = words[at],
                            ComptimeOption::None => found = published[at].load(),
                        }
                    }
                    taken.push(found);
                }
            }
            #[unroll]
            for k in 0..cubes_in_flight {
                let from = cube + k * own.step;
                if from < own.end {
                    let mut bits = Sequence::<u32>::new();
                    #[unroll]
                    for word in 0..words {
                        let mut found = *taken.index(comptime![k * words + word]);
                        // The last cube counted itself in after the others, so it rarely waits
                        // here. A cube that looks back waits for tiles that are still reduced.
                        // Lanes that have no partial must not spin: Mesa's software adapter leaves
                        // a loop after 65535 turns, and those of idle lanes count.
                        while found < self.mark {
                            found = published[self.at(ranges.cube(from), output, word)].load();
                        }
                        bits.push(u32::cast_from(found));
                    }
                    let fields = comptime![reducer.operator.0.fields];
                    let partial = Record::<AccumulatorTypes, Single>::from_bits(&bits, fields);
                    // The order is that of cubes and not of arrival, so each run gives the same
                    // bits.
                    total = with_partial(total, partial, from, &own, tree, zero, reducer);
                }
            }
        }
        total
    }
}
