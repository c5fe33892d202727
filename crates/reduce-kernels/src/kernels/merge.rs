//! Merging what other launches left: the second launch of a split, and partial results of shards.

use cubecl::prelude::*;

use super::{
    args::{KernelTypes, PartialArrays, TargetArrays, partials_of},
    geometry::{Dim, offsets, unknown_zero},
    partials::{CubesOfUnit, tree_of_partials, with_partial},
    reducer::Reducer,
    target::{accumulator_of_words, target_of},
    team::{Team, place},
    total::combine_team,
};
use crate::operator::{OperatorRef, Parameters, Single, merge};

/// Merges the `cubes` partial results of each output in an order that depends on nothing else, and
/// writes the results.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn merge_partials(
    _types: &KernelTypes,
    partials: &mut PartialArrays,
    target: &mut TargetArrays,
    kept: &Sequence<Dim>,
    parameters: &Parameters,
    cubes: usize,
    outputs: usize,
    reduction_len: usize,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let partials = partials_of(partials);
    let mut target = target_of(target);
    let reducer = Reducer::new(parameters, team, operator);
    let place = place(team);
    // A second launch is for devices without 64-bit atomics, for partials that would take more than
    // 1 MiB of words, and for cubes that the kernel of one launch cannot handle. Elsewhere one
    // launch is faster: a full sum of 2^20 f32 takes 5.8 us on one H200, and took 14.1 with two.
    let units = comptime![team.units_per_tile as usize];
    let number = CUBE_POS * comptime![team.tiles_per_cube()] + place.tile as usize;
    let index = clamp_max(number, outputs - 1);
    let zero = unknown_zero(cubes, outputs);
    let own = CubesOfUnit::of(place.member as usize, units, cubes, operator);
    let tree = tree_of_partials(operator);
    let mut total = reducer.identity::<Single>();
    let mut cube = own.first;
    while cube < own.end {
        let partial = partials.at(cube * outputs + index);
        total = with_partial(total, partial, cube, &own, tree, zero, &reducer);
        cube += own.step;
    }
    total = combine_team::<Single>(total, zero, &reducer);
    if place.member == 0 && number < outputs {
        let offset = offsets(kept, index).target;
        target.put(offset, total, outputs, reduction_len, parameters, operator);
    }
}

/// Partial results of shards, one slot for each. A slot has the words of all outputs.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct ShardWords {
    pub(crate) words: Box<[u32]>,
    pub(crate) slots: usize,
}

/// Merges partial results in the order of the arrays and of their slots. A unit takes one output.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn merge_shards(
    _types: &KernelTypes,
    shards: &Sequence<ShardWords>,
    target: &mut TargetArrays,
    kept: &Sequence<Dim>,
    parameters: &Parameters,
    outputs: usize,
    reduction_len: usize,
    #[comptime] operator: OperatorRef,
) {
    let mut target = target_of(target);
    let index = clamp_max(ABSOLUTE_POS, outputs - 1);
    // The identity would turn a sum of -0 into +0, so the first slot is taken as it is.
    let first = &shards.index(0usize).words;
    let mut slot = 0usize;
    let mut total = accumulator_of_words(first, slot, index, outputs, operator);
    slot += 1;
    #[unroll]
    for nth in 0..shards.len().comptime() {
        let shard = shards.index(nth);
        // The order is that of shards and not of arrival, so each run gives the same bits.
        while slot < shard.slots {
            let partial = accumulator_of_words(&shard.words, slot, index, outputs, operator);
            total = merge::<Single>(operator, total, partial, parameters);
            slot += 1;
        }
        slot = 0usize;
    }
    if ABSOLUTE_POS < outputs {
        // Words are for another merge, which reads them in the row-major order of outputs. Results
        // go where the caller's output has them.
        let offset = if target.takes_words() { index } else { offsets(kept, index).target };
        target.put(offset, total, outputs, reduction_len, parameters, operator);
    }
}
