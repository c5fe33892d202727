//! The schedules of one launch: a unit, a plane or a cube per output tile.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    accumulate::{Share, push_loaded},
    args::{InputArrays, KernelTypes, Output, ResultArrays, input_of, output_of},
    combine::combine_components,
    geometry::{Geometry, Tile, locate},
    load::{Loaded, load},
    team::{Team, place},
    total::{combine_team, total_across, total_along},
};
use crate::operator::{OperatorRef, Parameters, Results, Single, Wide, finish, identity};

/// Each team of units reduces one tile. Its member 0 writes the results.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_single_pass(
    _types: &KernelTypes,
    input: &InputArrays,
    output: &mut ResultArrays,
    geometry: &Geometry,
    parameters: &Parameters,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let input = input_of(input);
    let mut output = output_of(output);
    let place = place(team);
    let tiles_per_cube = comptime![team.tiles_per_cube()];
    let first =
        CUBE_POS * comptime![tiles_per_cube * access.outputs_in_flight] + place.tile as usize;
    if comptime![access.outputs_in_flight == 1] {
        let tile = locate(geometry, first, access);
        let share = Share {
            first: place.member as usize,
            stride: comptime![team.units_per_tile as usize].runtime(),
        };
        match comptime![access.direction] {
            Direction::Along => {
                let total =
                    total_along(&input, geometry, parameters, tile, share, access, team, operator);
                let result = finish::<Single>(operator, total, geometry.reduction_len, parameters);
                write_along(&mut output, tile, place.member, result);
            }
            Direction::Across => {
                let total =
                    total_across(&input, geometry, parameters, tile, share, access, team, operator);
                let result = finish::<Wide>(operator, total, geometry.reduction_len, parameters);
                write_across(&mut output, geometry, tile, place.member, result, access);
            }
        }
    } else {
        // Short reductions: the loads of several tiles are issued together, then their elements are
        // pushed one tile after the other.
        let in_flight = comptime![access.loads_in_flight];
        let units = comptime![team.units_per_tile as usize];
        let last = geometry.loads_per_tile - 1;
        let mut tiles = Sequence::<Tile>::new();
        let mut loads = Sequence::<Loaded>::new();
        #[unroll]
        for nth in 0..comptime![access.outputs_in_flight] {
            let tile = locate(geometry, first + comptime![nth * tiles_per_cube], access);
            #[unroll]
            for k in 0..in_flight {
                let number = clamp_max(place.member as usize + comptime![k * units], last);
                loads.push(load(&input, geometry, tile, number, access));
            }
            tiles.push(tile);
        }
        #[unroll]
        for nth in 0..comptime![access.outputs_in_flight] {
            let tile = *tiles.index(nth);
            let mut wide = identity::<Wide>(operator);
            #[unroll]
            for k in 0..in_flight {
                if place.member as usize + comptime![k * units] < geometry.loads_per_tile {
                    let loaded = *loads.index(comptime![nth * in_flight + k]);
                    wide = push_loaded(wide, loaded, parameters, operator);
                }
            }
            match comptime![access.direction] {
                Direction::Along => {
                    let of_unit = combine_components(wide, parameters, operator);
                    let total = combine_team::<Single>(of_unit, parameters, team, operator);
                    let result =
                        finish::<Single>(operator, total, geometry.reduction_len, parameters);
                    write_along(&mut output, tile, place.member, result);
                }
                Direction::Across => {
                    let total = combine_team::<Wide>(wide, parameters, team, operator);
                    let result =
                        finish::<Wide>(operator, total, geometry.reduction_len, parameters);
                    write_across(&mut output, geometry, tile, place.member, result, access);
                }
            }
        }
    }
}

/// Member 0 writes the results of its output.
#[cube]
fn write_along(output: &mut Output, tile: Tile, member: u32, result: Results<Single>) {
    if member == 0 && tile.results > 0 {
        output.elements.put(tile.output, result);
    }
}

/// Member 0 writes the results of its vector of outputs.
#[cube]
fn write_across(
    output: &mut Output,
    geometry: &Geometry,
    tile: Tile,
    member: u32,
    result: Results<Wide>,
    #[comptime] access: Access,
) {
    let in_vectors = output.vectors.is_some();
    if comptime![in_vectors] {
        if member == 0 && tile.results > 0 {
            output.vectors.put(tile.output / comptime![access.vector], result);
        }
    } else {
        #[unroll]
        for nth in 0..comptime![access.vector] {
            if member == 0 && comptime![nth as u32] < tile.results {
                output
                    .elements
                    .put(tile.output + nth * geometry.inner_target_stride, result.component(nth));
            }
        }
    }
}
