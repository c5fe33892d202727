//! The schedules of one launch: a unit, a plane or a cube per output tile.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    accumulate::{Share, load_inside, take_loads},
    args::{Input, InputArrays, KernelTypes, TargetArrays, input_of},
    combine::combine_components,
    geometry::{Geometry, Tile, locate, unknown_zero},
    load::{AtEnd, Loaded},
    target::target_of,
    team::{Team, place},
    total::{combine_team, total_across, total_along},
};
use crate::operator::{Accumulator, OperatorRef, Parameters, Single, Wide, Width, identity};

/// Each team of units reduces one tile. Its member 0 writes the results, or the accumulators.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_single_pass(
    _types: &KernelTypes,
    input: &InputArrays,
    target: &mut TargetArrays,
    geometry: &Geometry,
    parameters: &Parameters,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let input = input_of(input);
    let mut target = target_of(target);
    let place = place(team);
    let tiles_per_cube = comptime![team.tiles_per_cube()];
    let first =
        CUBE_POS * comptime![tiles_per_cube * access.outputs_in_flight] + place.tile as usize;
    if comptime![access.outputs_in_flight == 1] {
        let tile = locate(geometry, first, access, tiles_per_cube);
        let share = Share {
            first: place.member as usize,
            stride: comptime![team.units_per_tile as usize].runtime(),
        };
        match comptime![access.direction] {
            Direction::Along => {
                let total =
                    total_along(&input, geometry, parameters, tile, share, access, team, operator);
                target.put_along(geometry, parameters, tile, place.member, total, operator);
            }
            Direction::Across => {
                let total =
                    total_across(&input, geometry, parameters, tile, share, access, team, operator);
                target.put_across(geometry, parameters, tile, place.member, total, operator);
            }
        }
    } else {
        // Short reductions: the loads of several tiles are issued together, then their elements are
        // taken one tile after the other.
        let in_flight = comptime![access.loads_in_flight];
        let units = comptime![team.units_per_tile as usize].runtime();
        let member = place.member as usize;
        let zero = unknown_zero(geometry.tiles, geometry.outputs);
        // A unit without loads repeats those of another.
        let other = clamp_max(member, geometry.loads_per_tile - 1);
        let mut tiles = Sequence::<Tile>::new();
        let mut loads = Sequence::<Sequence<Loaded>>::new();
        #[unroll]
        for nth in 0..comptime![access.outputs_in_flight] {
            let number = first + comptime![nth * tiles_per_cube];
            let tile = locate(geometry, number, access, tiles_per_cube);
            let mut of_tile = Sequence::<Loaded>::new();
            #[unroll]
            for k in 0..in_flight {
                let nth = member + k * units;
                let loaded = load_inside(&input, geometry, tile, nth, other, AtEnd::Never, access);
                of_tile.push(loaded);
            }
            tiles.push(tile);
            loads.push(of_tile);
        }
        #[unroll]
        for nth in 0..comptime![access.outputs_in_flight] {
            let tile = *tiles.index(nth);
            let of_tile = loads.index(nth);
            match comptime![access.direction] {
                Direction::Along => {
                    let of_unit = if comptime![operator.0.blocks.is_some()] {
                        taken::<Single>(
                            of_tile, &input, geometry, parameters, tile, member, units, access,
                            operator,
                        )
                    } else {
                        let wide = taken::<Wide>(
                            of_tile, &input, geometry, parameters, tile, member, units, access,
                            operator,
                        );
                        combine_components(wide, parameters, operator)
                    };
                    let total = combine_team::<Single>(of_unit, parameters, zero, team, operator);
                    target.put_along(geometry, parameters, tile, place.member, total, operator);
                }
                Direction::Across => {
                    let wide = taken::<Wide>(
                        of_tile, &input, geometry, parameters, tile, member, units, access,
                        operator,
                    );
                    let total = combine_team::<Wide>(wide, parameters, zero, team, operator);
                    target.put_across(geometry, parameters, tile, place.member, total, operator);
                }
            }
        }
    }
}

/// The accumulator of the loads that a member has of a tile, all of which are in flight.
#[cube]
pub(super) fn taken<N: Width>(
    loads: &Sequence<Loaded>,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    member: usize,
    units: usize,
    #[comptime] access: Access,
    #[comptime] operator: OperatorRef,
) -> Accumulator<N> {
    let mut total = identity::<N>(operator);
    if member < geometry.loads_per_tile {
        let (pushed, _) = take_loads::<N>(
            total, loads, input, geometry, parameters, tile, member, units, true, access, operator,
        );
        total = pushed;
    }
    total
}
