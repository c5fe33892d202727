//! The schedules of one launch: a unit, a plane or a cube per output tile.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    accumulate::{load_inside, taken},
    args::{InputArrays, KernelTypes, TargetArrays, input_of},
    combine::combine_vectors,
    geometry::{Geometry, Tile, locate},
    held::{Held, Hold, hold_loads, results_in_passes},
    load::{AtEnd, Loaded},
    reducer::Reducer,
    share::Share,
    target::{Target, target_of},
    team::{Team, place},
    total::{combine_team, total},
};
use crate::operator::{OperatorRef, Parameters, Single, Wide, Width};

/// Each team of units reduces one tile. Its member 0 writes the results, or the accumulators.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_single_pass(
    _types: &KernelTypes,
    input: &InputArrays,
    target: &mut TargetArrays,
    geometry: &Geometry,
    parameters: &Parameters,
    #[comptime] hold: Hold,
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
    let tile = locate(geometry, first, access, tiles_per_cube);
    let each = comptime![access.accumulators];
    let first_load = place.member as usize * each;
    let stride = comptime![team.units_per_tile as usize * each].runtime();
    let share = Share::new(&input, geometry, tile, place, first_load, stride, access);
    let reducer = Reducer::new(parameters, team, operator);
    match comptime![access.direction] {
        Direction::Along if hold != Hold::Nothing => {
            reduce_tiles_in_passes(&mut target, first, &share, &reducer, hold);
        }
        Direction::Along => reduce_tiles::<Single>(&mut target, first, &share, &reducer),
        Direction::Across => reduce_tiles::<Wide>(&mut target, first, &share, &reducer),
    }
}

/// [`reduce_tiles()`] by an operator that takes elements in two passes. The loads of all tiles are
/// issued together, and held.
#[cube]
fn reduce_tiles_in_passes(
    target: &mut Target,
    first: usize,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
    #[comptime] hold: Hold,
) {
    let outputs = comptime![share.access.outputs_in_flight];
    let mut tiles = Sequence::<Tile>::new();
    let mut held = Sequence::<Held>::new();
    #[unroll]
    for nth in 0..outputs {
        let tile = nth_tile(first, share, reducer.team, nth);
        held.push(hold_loads(&share.with_tile(tile), reducer.team, hold));
        tiles.push(tile);
    }
    #[unroll]
    for nth in 0..outputs {
        let share = share.with_tile(*tiles.index(nth));
        let results = results_in_passes::<Single>(held.index(nth), &share, reducer);
        target.put_results::<Single>(results, &share);
    }
}

/// The tile that comes as number `nth` of those that a team has in flight. The one of `share` comes
/// first, and its number is `first`.
#[cube]
fn nth_tile(
    first: usize,
    share: &Share<'_>,
    #[comptime] team: Team,
    #[comptime] nth: usize,
) -> Tile {
    let tiles_per_cube = comptime![team.tiles_per_cube()];
    if comptime![nth == 0] {
        share.tile
    } else {
        let number = first + comptime![nth * tiles_per_cube];
        locate(share.geometry, number, comptime![share.access], tiles_per_cube)
    }
}

/// Reduces the tiles of a team, of which `first` is the number of the first, and the tile of
/// `share`.
#[cube]
fn reduce_tiles<N: Width>(
    target: &mut Target,
    first: usize,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) {
    let access = comptime![share.access];
    if comptime![access.outputs_in_flight == 1] {
        target.put_tile::<N>(total::<N>(share, reducer), share, reducer);
    } else {
        // Short reductions: the loads of several tiles are issued together, then their elements are
        // taken one tile after the other. Rows of 32 bytes give a unit one or two loads, and a cube
        // starts and ends for very little work. Together with fewer units for each row, several
        // rows took a sum of 2^20 rows of 32 f32 from 50 to 36 us on one H200.
        let zero = share.unknown_zero();
        // A unit without loads repeats those of another.
        let other = clamp_max(share.first, share.geometry.loads_per_tile - 1);
        let mut tiles = Sequence::<Tile>::new();
        let mut loads = Sequence::<Sequence<Loaded>>::new();
        #[unroll]
        for nth in 0..comptime![access.outputs_in_flight] {
            let tile = nth_tile(first, share, reducer.team, nth);
            let share = share.with_tile(tile);
            let mut of_tile = Sequence::<Loaded>::new();
            #[unroll]
            for k in 0..comptime![access.loads_in_flight] {
                let nth = share.first + k * share.stride;
                of_tile.push(load_inside(&share, nth, other, AtEnd::Never));
            }
            tiles.push(tile);
            loads.push(of_tile);
        }
        #[unroll]
        for nth in 0..comptime![access.outputs_in_flight] {
            let share = share.with_tile(*tiles.index(nth));
            let of_tile = loads.index(nth);
            // Merges and stores of one tile follow the pushes of the tile, so only one accumulator
            // lives at a time beside the loads.
            let of_unit = if comptime![reducer.operator.0.blocks.is_some()] {
                taken::<N>(of_tile, &share, reducer)
            } else {
                let vectors = taken::<Wide>(of_tile, &share, reducer);
                combine_vectors::<N>(vectors, access.direction, reducer)
            };
            let total = combine_team::<N>(of_unit, zero, reducer);
            target.put_tile::<N>(total, &share, reducer);
        }
    }
}
