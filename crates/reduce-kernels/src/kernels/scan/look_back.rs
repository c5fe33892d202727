//! Rows of several cubes in one launch: each cube looks back at the parts before its own.
//!
//! Merrill and Garland ("Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016) let a
//! part look back until it finds one that already knows what lies before it. How far that is depends
//! on the time, and so do the rounding errors of a sum. Here the accumulators form a tree of fixed
//! shape: a part publishes its own, and the last part of each group of them that of the group. A
//! cube merges what its own group, its group's group and so on have before it, in the order of
//! parts, so every run gives the same bits. It waits for no chain longer than the levels of the
//! tree.
//!
//! Cubes take their parts in the order in which they begin, so those that a cube waits for have
//! begun.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    Cuts, Part, ScanSpec,
    earlier::{Earlier, elements_before_row, with_earlier},
    exchange::{Exchange, Learned},
    results::store_results,
    totals,
};
use crate::{
    kernels::{
        args::{InputArrays, KernelTypes, ResultArrays, input_of, output_of},
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
    let nth = nth_to_begin(&*published, mark);
    let block = nth / cuts.cubes;
    let cube = nth - block * cuts.cubes;
    let share = share_among_cubes(&input, geometry, block, cube, cuts.cubes, access, team);
    let part = Part::new(&share, cuts, elements_before_row(earlier), cube, spec);
    let tree = PublishedTree {
        published: Published::of(block, slots(cuts.cubes, groups), mark, outputs, operator),
        parts: cuts.cubes,
        groups,
    };
    match comptime![access.direction] {
        Direction::Along => {
            let loads = part.issue(cube);
            let exchange = Exchange::<Single>::new(spec, &reducer);
            let totals = totals::<Single>(&loads, cube, &part, &reducer);
            let learned = exchange.through(&totals, 0u32.runtime(), &share, &reducer);
            let before = tree.look_back::<Single>(&*published, &learned, &part, &reducer);
            let before = with_earlier::<Single>(earlier, before, &share, spec, &reducer);
            store_results(&mut results, output, &loads, &learned, before, cube, &part, &reducer);
        }
        Direction::Across => {
            let loads = part.issue(cube);
            let exchange = Exchange::<Wide>::new(spec, &reducer);
            let totals = totals::<Wide>(&loads, cube, &part, &reducer);
            let learned = exchange.through(&totals, 0u32.runtime(), &share, &reducer);
            let before = tree.look_back::<Wide>(&*published, &learned, &part, &reducer);
            let before = with_earlier::<Wide>(earlier, before, &share, spec, &reducer);
            store_results(&mut results, output, &loads, &learned, before, cube, &part, &reducer);
        }
    }
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
        learned: &Learned<N>,
        part: &Part<'_>,
        reducer: &Reducer<'_>,
    ) -> Accumulator<N> {
        let width = N::value().comptime();
        let outputs = comptime![self.published.outputs];
        let fields = comptime![reducer.operator.0.fields];
        let place = part.share.place;
        let first = place.tile as usize * width;
        let mut of_outputs = Columns::<AccumulatorTypes, Single>::shared(outputs, fields);
        self.published.publish_tile::<N>(words, part.cube, learned.total, place);
        if place.member == 0 {
            #[unroll]
            for nth in 0..width {
                of_outputs.put(first + nth, learned.total.component(nth));
            }
        }
        sync_cube();
        let merging = reducer.with_team(comptime![merging_team(reducer.team, outputs)]);
        let output = UNIT_POS as usize;
        let has_output = output < outputs;
        // The total of the part, in the unit of each output.
        let mut of_part = reducer.identity::<Single>();
        if has_output {
            of_part = of_outputs.at(output);
        }
        let before = self.before(words, of_part, part.cube, output, &merging);
        if has_output {
            of_outputs.put(output, before);
        }
        sync_cube();
        of_outputs.neighbours::<N>(first)
    }

    /// What lies before a part, complete in the first unit of each output, which has the total of
    /// the part. Every unit of the cube must get here.
    fn before(
        &self,
        words: &[Atomic<u64>],
        of_part: Accumulator<Single>,
        number: usize,
        output: usize,
        merging: &Reducer<'_>,
    ) -> Accumulator<Single> {
        let published = self.published;
        let looked_back = comptime![self.groups.each as usize];
        let in_group = number % looked_back;
        let parts = Ranges::one(number - in_group, in_group);
        if comptime![self.groups.levels == 1] {
            published.merge_from(words, parts, merging)
        } else {
            let has_output = output < comptime![published.outputs];
            let group = number / looked_back;
            let among_groups = group % looked_back;
            let (first_group, groups) = (self.parts, self.parts.div_ceil(looked_back));
            let far = first_group + group - among_groups;
            let ends_group = in_group + 1 == looked_back;
            let mut before = merging.identity::<Single>();
            // All units of the cube take the same branch.
            if ends_group {
                let of_parts = published.merge_from(words, parts, merging);
                let of_group = merging.merge::<Single>(of_parts, of_part);
                if has_output {
                    published.publish(words, first_group + group, output, of_group);
                }
                let earlier = Ranges::one(far, among_groups);
                let of_groups = published.merge_from(words, earlier, merging);
                before = merging.merge::<Single>(of_groups, of_parts);
                if comptime![self.groups.levels > 2] {
                    let ends_groups = among_groups + 1 == looked_back;
                    if has_output && ends_groups {
                        let all = merging.merge::<Single>(of_groups, of_group);
                        let slot = first_group + groups + group / looked_back;
                        published.publish(words, slot, output, all);
                    }
                }
            }
            // Groups and parts are merged together: a second round would cost all cubes another
            // trip to memory and two barriers.
            if !ends_group {
                let both = Ranges::two(far, among_groups, number - in_group, in_group);
                before = published.merge_from(words, both, merging);
            }
            if comptime![self.groups.levels > 2] {
                let topmost = Ranges::one(first_group + groups, group / looked_back);
                let of_topmost = published.merge_from(words, topmost, merging);
                before = merging.merge::<Single>(of_topmost, before);
            }
            before
        }
    }
}
