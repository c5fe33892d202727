//! A split in one launch: several cubes per output tile, of which the last to finish merges.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    args::{InputArrays, KernelTypes, TargetArrays, input_of},
    geometry::{Geometry, locate},
    partials::{Published, merging_team, outputs_per_tile},
    reducer::Reducer,
    share::{Share, share_among_cubes},
    target::target_of,
    team::Team,
    total::total,
};
use crate::operator::{OperatorRef, Parameters, Single, Wide, Width};

/// Each of `cubes` cubes reduces a share of each tile. The teams publish their accumulators in
/// `published`, under the `mark` of the launch. The last cube of a block of tiles merges them and
/// writes the results. If `plain` is bound, it is the same memory as `published`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_split_single_pass(
    _types: &KernelTypes,
    input: &InputArrays,
    published: &mut [Atomic<u64>],
    plain: &mut ComptimeOption<Box<[u64]>>,
    target: &mut TargetArrays,
    geometry: &Geometry,
    parameters: &Parameters,
    cubes: usize,
    mark: u64,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let input = input_of(input);
    let mut target = target_of(target);
    let reducer = Reducer::new(parameters, team, operator);
    let tiles_per_cube = comptime![team.tiles_per_cube()];
    let width = comptime![outputs_per_tile(access)];
    let outputs = comptime![tiles_per_cube * width];
    let block = CUBE_POS / cubes;
    let cube = CUBE_POS % cubes;
    let share = share_among_cubes(&input, geometry, block, cube, cubes, access, team);
    let partials = Published::of(block, cubes, mark, outputs, operator).in_plain_words(&*plain);
    partials.open(&*published);
    match comptime![access.direction] {
        Direction::Along => publish_total::<Single>(&partials, &*published, cube, &share, &reducer),
        Direction::Across => publish_total::<Wide>(&partials, &*published, cube, &share, &reducer),
    }
    // All units of the cube take the same branch. The grid may hold a few cubes past the last
    // block.
    if partials.is_last(&*published) {
        let merging = reducer.with_team(comptime![merging_team(team, outputs)]);
        let total = partials.merge(&*published, &merging);
        let output = UNIT_POS as usize;
        let number = block * tiles_per_cube + output / width;
        let tile = locate(geometry, number, access, tiles_per_cube);
        let nth = output % width;
        if output < outputs && nth < tile.results as usize {
            let offset = tile.output + nth * geometry.inner_target_stride;
            let (outputs, len) = (geometry.outputs, geometry.reduction_len);
            target.put(offset, total, outputs, len, parameters, operator);
        }
    }
}

/// Publishes what this cube has accumulated of a tile.
#[cube]
fn publish_total<N: Width>(
    partials: &Published,
    published: &[Atomic<u64>],
    cube: usize,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) {
    let total = total::<N>(share, reducer);
    partials.publish_tile::<N>(published, cube, total, share.place);
}
