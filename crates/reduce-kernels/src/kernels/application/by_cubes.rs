//! Tiles that several cubes hold together.
//!
//! A tile that is too long for the registers of one cube may fit those of several. Each cube reduces
//! its part, publishes its accumulators, and waits until all cubes of the tile have published theirs.
//! Every cube merges all of them in the same order and gets the same bits, so no cube passes results
//! on.
//!
//! A cube that waits occupies its multiprocessor. Cubes take their tiles in the order in which they
//! begin, not in that of the grid. All cubes of all tiles but the last one have then begun, and go on.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    Hold, How,
    held::{held_across, held_along, hold_loads},
    store_and_apply_across, store_and_apply_along,
};
use crate::{
    kernels::{
        accumulate::Share,
        args::{
            AppliedArrays, InputArrays, KernelTypes, OperandArrays, ResultArrays, input_of,
            output_of,
        },
        companion::Companion,
        geometry::{Geometry, locate},
        partials::{Published, merging_team, nth_to_begin, outputs_per_tile},
        team::{Team, place},
    },
    operator::{Columns, OperatorRef, Parameters, ResultTypes, Single, Wide, finish},
};

/// Like [`reduce_and_apply`](super::reduce_and_apply) with tiles that `cubes` cubes hold. They publish
/// their accumulators in `published`, under the `mark` of the launch.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_and_apply_by_cubes(
    _types: &KernelTypes,
    input: &InputArrays,
    operands: &OperandArrays,
    published: &mut [Atomic<u64>],
    results: &mut ResultArrays,
    output: &mut AppliedArrays,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    parameters: &Parameters,
    apply_parameters: &Parameters,
    cubes: usize,
    mark: u64,
    #[comptime] hold: Hold,
    #[comptime] how: How,
    #[comptime] operator: OperatorRef,
) {
    let access = comptime![how.access];
    let team = comptime![how.team];
    let input = input_of(input);
    let mut stored = output_of(results);
    let place = place(team);
    let units = comptime![team.units_per_tile as usize];
    let tiles_per_cube = comptime![team.tiles_per_cube()];
    let width = comptime![outputs_per_tile(access)];
    let outputs = comptime![tiles_per_cube * width];
    let nth = nth_to_begin(&*published, mark);
    let block = nth / cubes;
    let cube = nth - block * cubes;
    let number = place.tile as usize;
    let tile = locate(geometry, block * tiles_per_cube + number, access, tiles_per_cube);
    let share = Share { first: cube * units + place.member as usize, stride: cubes * units };
    let partials = Published::of(block, cubes, mark, outputs, operator);
    let mut held = hold_loads(&input, geometry, tile, share, access, team, hold);
    let writer = place.member == 0 && cube == 0;
    match comptime![access.direction] {
        Direction::Along => {
            let total = held_along(
                &mut held, &input, geometry, parameters, tile, share, access, team, hold, operator,
            );
            if place.member == 0 {
                partials.publish(&*published, cube, number, total);
            }
            let of_cube = merged_results(
                &partials,
                &*published,
                geometry,
                parameters,
                outputs,
                team,
                operator,
            );
            store_and_apply_along(
                of_cube.at(number),
                &held,
                &input,
                operands,
                &mut stored,
                output,
                geometry,
                companions,
                apply_parameters,
                tile,
                share,
                writer,
                hold,
                how,
            );
        }
        Direction::Across => {
            let total = held_across(
                &mut held, &input, geometry, parameters, tile, share, access, team, hold, operator,
            );
            if place.member == 0 {
                #[unroll]
                for component in 0..width {
                    let output = number * width + component;
                    partials.publish(&*published, cube, output, total.component(component));
                }
            }
            let of_cube = merged_results(
                &partials,
                &*published,
                geometry,
                parameters,
                outputs,
                team,
                operator,
            );
            let mut own = of_cube.at(number * width).repeated::<Wide>();
            #[unroll]
            for component in 1..width {
                let next = of_cube.at(number * width + component);
                own = own.with_component(comptime![component as u32].runtime(), next);
            }
            store_and_apply_across(
                own,
                &held,
                &input,
                operands,
                &mut stored,
                output,
                geometry,
                companions,
                apply_parameters,
                tile,
                share,
                writer,
                hold,
                how,
            );
        }
    }
}

/// The results of all outputs of a cube, from what all cubes of its tiles publish. Every unit of the
/// cube must get here.
#[cube]
fn merged_results(
    partials: &Published,
    published: &[Atomic<u64>],
    geometry: &Geometry,
    parameters: &Parameters,
    #[comptime] outputs: usize,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) -> Columns<ResultTypes, Single> {
    let merging = comptime![merging_team(team, outputs)];
    let total = partials.merge(published, parameters, merging, operator);
    let result = finish::<Single>(operator, total, geometry.reduction_len, parameters);
    let mut of_cube =
        Columns::<ResultTypes, Single>::shared(outputs, comptime![operator.0.results]);
    let output = UNIT_POS as usize;
    if output < outputs {
        of_cube.put(output, result);
    }
    sync_cube();
    of_cube
}
