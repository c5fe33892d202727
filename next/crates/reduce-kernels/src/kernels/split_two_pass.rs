//! The first launch of a split in two: several cubes per output tile, each with a partial result.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    accumulate::Share,
    args::{InputArrays, KernelTypes, PartialArrays, input_of, partials_of},
    geometry::{Geometry, locate},
    team::{Team, place},
    total::{total_across, total_along},
};
use crate::operator::{OperatorRef, Parameters};

/// Each of `cubes` cubes reduces a share of each tile, and stores its accumulators as partial
/// results. Those of cube `c` start at `c * outputs`, in the order of the canonical kept
/// dimensions.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_split_two_pass(
    _types: &KernelTypes,
    input: &InputArrays,
    partials: &mut PartialArrays,
    geometry: &Geometry,
    parameters: &Parameters,
    cubes: usize,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let input = input_of(input);
    let mut partials = partials_of(partials);
    let place = place(team);
    let units = comptime![team.units_per_tile as usize];
    let block = CUBE_POS / cubes;
    let cube = CUBE_POS % cubes;
    let number = block * comptime![team.tiles_per_cube()] + place.tile as usize;
    let tile = locate(geometry, number, access, comptime![team.tiles_per_cube()]);
    let share = Share { first: cube * units + place.member as usize, stride: cubes * units };
    let partial = cube * geometry.outputs + tile.index;
    match comptime![access.direction] {
        Direction::Along => {
            let total =
                total_along(&input, geometry, parameters, tile, share, access, team, operator);
            if place.member == 0 && tile.results > 0 {
                partials.put(partial, total);
            }
        }
        Direction::Across => {
            let total =
                total_across(&input, geometry, parameters, tile, share, access, team, operator);
            #[unroll]
            for nth in 0..comptime![access.vector] {
                if place.member == 0 && comptime![nth as u32] < tile.results {
                    partials.put(partial + nth, total.component(nth));
                }
            }
        }
    }
}
