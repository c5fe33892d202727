//! A split in one launch: several cubes per output tile, of which the last to finish merges.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    accumulate::Share,
    args::{InputArrays, KernelTypes, TargetArrays, input_of},
    geometry::{Geometry, locate},
    partials::{Published, merging_team, outputs_per_tile},
    target::target_of,
    team::{Team, place},
    total::{total_across, total_along},
};
use crate::operator::{OperatorRef, Parameters};

/// Each of `cubes` cubes reduces a share of each tile. The teams publish their accumulators in
/// `published`, under the `mark` of the launch. The last cube of a block of tiles merges them and
/// writes the results.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_split_single_pass(
    _types: &KernelTypes,
    input: &InputArrays,
    published: &mut [Atomic<u64>],
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
    let place = place(team);
    let units = comptime![team.units_per_tile as usize];
    let tiles_per_cube = comptime![team.tiles_per_cube()];
    let width = comptime![outputs_per_tile(access)];
    let block = CUBE_POS / cubes;
    let cube = CUBE_POS % cubes;
    let first_tile = block * tiles_per_cube;
    let number = place.tile as usize;
    let tile = locate(geometry, first_tile + number, access, tiles_per_cube);
    let share = Share { first: cube * units + place.member as usize, stride: cubes * units };
    let partials = Published::of(block, cubes, mark, comptime![tiles_per_cube * width], operator);
    partials.open(&*published);
    match comptime![access.direction] {
        Direction::Along => {
            let total =
                total_along(&input, geometry, parameters, tile, share, access, team, operator);
            if place.member == 0 {
                partials.publish(&*published, cube, number, total);
            }
        }
        Direction::Across => {
            let total =
                total_across(&input, geometry, parameters, tile, share, access, team, operator);
            if place.member == 0 {
                #[unroll]
                for nth in 0..width {
                    let output = number * width + nth;
                    partials.publish(&*published, cube, output, total.component(nth));
                }
            }
        }
    }
    // All units of the cube take the same branch. The grid may hold a few cubes past the last
    // block.
    if partials.is_last(&*published) {
        let merging = comptime![merging_team(team, tiles_per_cube * width)];
        let total = partials.merge(&*published, parameters, merging, operator);
        let nth_output = UNIT_POS as usize;
        let tile = locate(geometry, first_tile + nth_output / width, access, tiles_per_cube);
        let nth = nth_output % width;
        if nth_output < comptime![tiles_per_cube * width] && nth < tile.results as usize {
            let offset = tile.output + nth * geometry.inner_target_stride;
            target.put(
                offset,
                total,
                geometry.outputs,
                geometry.reduction_len,
                parameters,
                operator,
            );
        }
    }
}
