//! Rows of several cubes in one launch: each cube looks back at the parts before its own.
//!
//! Merrill and Garland ("Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016) let a
//! part look back until it finds one that already knows what lies before it. How far that is
//! depends on the time, and so do the rounding errors of a sum. Here the accumulators form a tree
//! of fixed shape: a part publishes its own, and the last part of each group of them that of the
//! group. A cube merges what its own group, its group's group and so on have before it, in the
//! order of parts, so every run gives the same bits. It waits for no chain longer than the levels
//! of the tree.
//!
//! Cubes take their parts in the order in which they begin, so those that a cube waits for have
//! begun. Where there are several rows, the first parts of all come first, then the second ones.
//!
//! A cube takes one part. Cubes that stay, and ask for their next part before they wait, hide how
//! long the counter takes to answer. But then later parts wait for one whose cube is still busy
//! with its part before: a running sum of 2²⁸ f32 took 950 us so on one H200, and 595 otherwise.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    Chunk, Cuts, Part, ScanSpec,
    earlier::{Earlier, elements_before_row, with_earlier},
    exchange::Exchange,
    results::store_results,
    totals,
    transpose::Transposition,
    turns::Turns,
};
use crate::{
    kernels::{
        args::{InputArrays, KernelTypes, Output, ResultArrays, input_of, output_of},
        combine::combine_plane,
        geometry::{Companion, Geometry},
        partials::{Published, Ranges, merging_team, nth_to_begin, outputs_per_tile},
        reducer::Reducer,
        share::share_among_cubes,
    },
    operator::{
        Accumulator, AccumulatorTypes, Columns, OperatorRef, Parameters, Single, Wide, Width,
    },
};

/// The groups of parts whose accumulators are published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LookedBack {
    /// Levels of groups.
    pub(crate) levels: u32,
    /// Parts, or groups of the level below, of each group.
    pub(crate) each: u32,
}

/// Scans rows of several cubes, which have a chunk each. They publish their accumulators in
/// `published`, under the `mark` of the launch.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn scan_looking_back(
    _types: &KernelTypes,
    input: &InputArrays,
    results: &mut ResultArrays,
    published: &mut [Atomic<u64>],
    geometry: &Geometry,
    output: &Companion,
    cuts: &Cuts,
    earlier: &Earlier,
    parameters: &Parameters,
    mark: u64,
    #[comptime] groups: LookedBack,
    #[comptime] spec: ScanSpec,
    #[comptime] operator: OperatorRef,
) {
    let input = input_of(input);
    let mut results = output_of(results);
    let reducer = Reducer::new(parameters, comptime![spec.team], operator);
    let (access, team) = comptime![(spec.access, spec.team)];
    let outputs = comptime![team.tiles_per_cube() * outputs_per_tile(access)];
    let blocks = geometry.tiles.div_ceil(comptime![team.tiles_per_cube()]);
    let (block, cube) = in_turns(nth_to_begin(&*published, mark), blocks, cuts.cubes);
    let share = share_among_cubes(&input, geometry, block, cube, cuts.cubes, access, team);
    let part = Part::new(&share, cuts, elements_before_row(earlier), cube, spec);
    let tree = PublishedTree {
        published: Published::of(block, slots(cuts.cubes, groups), mark, outputs, operator),
        parts: cuts.cubes,
        groups,
    };
    let words = &*published;
    match comptime![access.direction] {
        Direction::Along => {
            scan_chunk::<Single>(&mut results, output, words, &tree, earlier, &part, &reducer);
        }
        Direction::Across => {
            scan_chunk::<Wide>(&mut results, output, words, &tree, earlier, &part, &reducer);
        }
    }
}

/// Scans the chunk that a cube has. Every unit of the cube must get here.
#[cube]
fn scan_chunk<N: Width>(
    results: &mut Output,
    output: &Companion,
    words: &[Atomic<u64>],
    tree: &PublishedTree,
    earlier: &Earlier,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) {
    let spec = comptime![part.spec];
    let number = part.cube;
    let exchange = Exchange::<N>::new(spec, reducer);
    let transposition = Transposition::new(spec, reducer);
    if comptime![spec.turns() > 1] {
        let turns = Turns::<N>::of_chunk(number, part, &exchange, transposition, reducer);
        let before = tree.look_back::<N>(words, turns.total, part, reducer);
        let before = with_earlier::<N>(earlier, before, part.share, spec, reducer);
        turns.store_results(results, output, before, part, reducer);
    } else {
        let loads = part.issue(number);
        let totals = totals::<N>(&loads, &transposition, number, part, reducer);
        let learned = exchange.through(&totals, 0u32.runtime(), part.share, reducer);
        let before = tree.look_back::<N>(words, learned.total, part, reducer);
        let before = with_earlier::<N>(earlier, before, part.share, spec, reducer);
        let chunk = Chunk::<N> { number, before, loads, transposition };
        store_results(results, output, &chunk, &learned, part, reducer);
    }
}

/// The block of rows, and the part of them, of the cube that is the `nth` to begin. Blocks take
/// turns: the part just before that of a cube is with a cube that began as many cubes earlier as
/// there are blocks, and cubes that run together have neighbouring columns. On one H200, running
/// sums of f32 [65536, 1024] along axis 0 take 142 us so, and took 172 where each block began
/// behind the one before it; those of [16, 4194304] along axis 1 take 141, and took 160.
#[cube]
fn in_turns(nth: usize, blocks: usize, cubes: usize) -> (usize, usize) {
    let mut cube = nth / blocks;
    let mut block = nth - cube * blocks;
    // A grid may have more cubes than there are parts. They have blocks of their own.
    if cube >= cubes {
        block = nth / cubes;
        cube = nth - block * cubes;
    }
    (block, cube)
}

/// Accumulators of an output that the cubes of a row publish: those of parts, then those of groups,
/// then those of groups of groups.
#[cube]
fn slots(parts: usize, #[comptime] groups: LookedBack) -> usize {
    let mut slots = 0usize;
    let mut of_level = parts;
    #[unroll]
    for _ in 0..comptime![groups.levels] {
        slots += of_level;
        of_level = of_level.div_ceil(comptime![groups.each as usize]);
    }
    slots
}

/// The published accumulators of a block of outputs.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct PublishedTree {
    published: Published,
    parts: usize,
    #[cube(comptime)]
    groups: LookedBack,
}

#[cube]
impl PublishedTree {
    /// Publishes the total of a part, and returns what lies before it. Every unit of the cube must
    /// get here.
    fn look_back<N: Width>(
        &self,
        words: &[Atomic<u64>],
        total: Accumulator<N>,
        part: &Part<'_>,
        reducer: &Reducer<'_>,
    ) -> Accumulator<N> {
        let published = self.published;
        let outputs = comptime![published.outputs];
        let looked_back = comptime![self.groups.each as usize];
        let (place, number) = (part.share.place, part.cube);
        published.publish_tile::<N>(words, number, total, place);
        let merging = reducer.with_team(comptime![merging_team(reducer.team, outputs)]);
        let first = place.tile as usize * N::value().comptime();
        let in_group = number % looked_back;
        if comptime![self.groups.levels == 1] {
            let parts = Ranges::one(number - in_group, in_group);
            self.told_all::<N>(published.own_from(words, parts, &merging), first, &merging)
        } else {
            let group = number / looked_back;
            let among_groups = group % looked_back;
            let ends_group = in_group + 1 == looked_back;
            let mut before = reducer.identity::<N>();
            // All units of the cube take the same branch.
            if ends_group {
                before = self.behind_group::<N>(words, total, part, &merging);
            }
            // Groups and parts are merged together: a second round would cost all cubes another
            // trip to memory and a barrier.
            if !ends_group {
                let far = self.parts + group - among_groups;
                let both = Ranges::two(far, among_groups, number - in_group, in_group);
                let own = published.own_from(words, both, &merging);
                before = self.told_all::<N>(own, first, &merging);
            }
            if comptime![self.groups.levels > 2] {
                let groups = self.parts.div_ceil(looked_back);
                let topmost = Ranges::one(self.parts + groups, group / looked_back);
                let own = published.own_from(words, topmost, &merging);
                before = reducer.merge::<N>(self.told_all::<N>(own, first, &merging), before);
            }
            before
        }
    }

    /// What the units of each output have merged, merged in all units of the tile whose outputs
    /// begin at `first`. Every unit of the cube must get here.
    fn told_all<N: Width>(
        &self,
        own: Accumulator<Single>,
        first: usize,
        merging: &Reducer<'_>,
    ) -> Accumulator<N> {
        let team = comptime![merging.team];
        let (outputs, lanes) = comptime![(self.published.outputs as u32, team.lanes())];
        let slots = comptime![team.units_per_cube / lanes];
        let fields = comptime![merging.operator.0.fields];
        let zero = self.published.zero();
        let mut told = Columns::<AccumulatorTypes, Single>::shared(slots as usize, fields);
        let mut of_lanes = own;
        if comptime![lanes > 1] {
            // Units that waited may have left their plane's other units behind.
            sync_plane();
            of_lanes = combine_plane::<Single>(own, zero, merging, lanes, 1u32);
        }
        let lane = UNIT_POS % lanes;
        if lane == 0 {
            told.put((UNIT_POS / lanes) as usize, of_lanes);
        }
        sync_cube();
        // All units merge the same few. A tree among them would take a barrier for each level.
        let mut all = told.neighbours::<N>(first);
        for nth in 1..comptime![slots / outputs] + zero {
            let place = (nth * outputs) as usize + first;
            all = merging.merge::<N>(all, told.neighbours::<N>(place));
        }
        all
    }

    /// What lies before the last part of a group, which has this total, but for the topmost level.
    /// Publishes the accumulator of the group, and that of the groups' group if it ends that too.
    /// Every unit of the cube must get here.
    fn behind_group<N: Width>(
        &self,
        words: &[Atomic<u64>],
        total: Accumulator<N>,
        part: &Part<'_>,
        merging: &Reducer<'_>,
    ) -> Accumulator<N> {
        let published = self.published;
        let width = N::value().comptime();
        let outputs = comptime![published.outputs];
        let looked_back = comptime![self.groups.each as usize];
        let (place, number) = (part.share.place, part.cube);
        let first = place.tile as usize * width;
        let fields = comptime![merging.operator.0.fields];
        let mut of_outputs = Columns::<AccumulatorTypes, Single>::shared(outputs, fields);
        if place.member == 0 {
            #[unroll]
            for nth in 0..width {
                of_outputs.put(first + nth, total.component(nth));
            }
        }
        sync_cube();
        let output = UNIT_POS as usize;
        let has_output = output < outputs;
        let group = number / looked_back;
        let among_groups = group % looked_back;
        let (first_group, groups) = (self.parts, self.parts.div_ceil(looked_back));
        let in_group = comptime![looked_back - 1].runtime();
        let parts = Ranges::one(number - in_group, in_group);
        let of_parts = published.merge_from(words, parts, merging);
        let mut of_group = of_parts;
        if has_output {
            of_group = merging.merge::<Single>(of_parts, of_outputs.at(output));
            published.publish(words, first_group + group, output, of_group);
        }
        let earlier = Ranges::one(first_group + group - among_groups, among_groups);
        let of_groups = published.merge_from(words, earlier, merging);
        if comptime![self.groups.levels > 2] {
            let ends_groups = among_groups + 1 == looked_back;
            if has_output && ends_groups {
                let all = merging.merge::<Single>(of_groups, of_group);
                let slot = first_group + groups + group / looked_back;
                published.publish(words, slot, output, all);
            }
        }
        if has_output {
            of_outputs.put(output, merging.merge::<Single>(of_groups, of_parts));
        }
        sync_cube();
        of_outputs.neighbours::<N>(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every part of every block is with one cube, and with a cube that begins after those of all
    /// earlier parts, for which it waits. Cubes that are too many have no part of any block.
    #[test]
    fn parts_begin_after_those_that_they_wait_for() {
        for (blocks, cubes) in [(1, 1), (1, 7), (7, 1), (3, 5), (5, 3), (4, 4), (132, 17)] {
            let mut began = vec![None; blocks * cubes];
            for nth in 0..2 * blocks * cubes + 3 {
                let (block, cube) = in_turns(nth, blocks, cubes);
                assert!(cube < cubes, "{nth} of {blocks} blocks with {cubes} parts");
                if block < blocks {
                    let first = began[block * cubes + cube].replace(nth);
                    assert_eq!(first, None, "part {cube} of block {block} is taken twice");
                }
            }
            for of_block in began.chunks(cubes) {
                assert!(of_block.iter().all(Option::is_some), "{of_block:?}");
                assert!(of_block.is_sorted(), "{of_block:?}");
            }
        }
    }
}
