//! A split in one launch: several cubes per output, of which the last to finish merges.

use cubecl::{ir::StorageType, prelude::*};
use reduce_planner::{Access, Combine, Direction};

use super::{
    fold::Share,
    geometry::{Geometry, locate},
    hand_over::Words,
    read::Input,
    whole::results,
    work::{place, total_across, total_along},
};
use crate::{
    combine::Team,
    operator::{Columns, Fields, Operator, Parameters, Types},
};

/// Each team reduces every `cubes`-th share of a group and publishes its accumulator in `memory`, under
/// the launch's `mark`; the last cube of a block of outputs writes their results.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_split_once<
    O: Operator,
    S: Float,
    In: Float,
    A: Float,
    B: Float,
    C: Float,
    D: Float,
    E: Float,
    X: Float,
    Y: Float,
    Z: Float,
    N: Size,
>(
    vectors: &Array<Vector<S, N>>,
    elements: &ComptimeOption<Array<S>>,
    memory: &mut Array<Atomic<u64>>,
    x: &mut ComptimeOption<Array<X>>,
    y: &mut ComptimeOption<Array<Y>>,
    z: &mut ComptimeOption<Array<Z>>,
    geometry: &Geometry,
    parameters: &Parameters,
    cubes: usize,
    mark: u64,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[define(S, In, A, B, C, D, E, X, Y, Z)] _types: [StorageType; 10],
) {
    let input = Input::<(S, In, A, B, C, D, E, X, Y, Z), N>::new(vectors, elements);
    let mut results = results(x, y, z);
    split_once::<O, (S, In, A, B, C, D, E, X, Y, Z), N>(
        &input,
        memory,
        &mut results,
        geometry,
        parameters,
        cubes,
        mark,
        access,
        team,
    );
}

#[cube]
#[allow(clippy::too_many_arguments, reason = "the kernel's own")]
fn split_once<O: Operator, T: Types, N: Size>(
    input: &Input<T, N>,
    memory: &Array<Atomic<u64>>,
    results: &mut Columns<T::Results>,
    geometry: &Geometry,
    parameters: &Parameters,
    cubes: usize,
    mark: u64,
    #[comptime] access: Access,
    #[comptime] team: Team,
) {
    let place = place(team);
    let workers = comptime![team.workers as usize];
    let groups_per_cube = comptime![(team.units / team.workers) as usize];
    let lanes = comptime![lanes(access)];
    let block = CUBE_POS / cubes;
    let cube = CUBE_POS % cubes;
    let first_group = block * groups_per_cube;
    let number = place.group as usize;
    let group = locate(geometry, first_group + number, access);
    let share = Share { first: cube * workers + place.worker as usize, stride: cubes * workers };
    let words = Words::of::<O, T>(block, cubes, mark, comptime![groups_per_cube * lanes]);
    words.open(memory);
    match comptime![access.direction] {
        Direction::Along => {
            let total =
                total_along::<O, T, N>(input, geometry, parameters, group, share, access, team);
            if place.worker == 0 {
                words.publish::<O, T>(memory, cube, number, total);
            }
        }
        Direction::Across => {
            let total =
                total_across::<O, T, N>(input, geometry, parameters, group, share, access, team);
            if place.worker == 0 {
                #[unroll]
                for lane in 0..lanes {
                    let of_lane = O::Fields::lane::<T::Accumulator, N>(total, lane);
                    words.publish::<O, T>(memory, cube, number * lanes + lane, of_lane);
                }
            }
        }
    }
    // The same for all units of the cube. The grid may hold a few cubes past the last block.
    if words.is_last(memory) {
        let merging = comptime![merging_team(team, groups_per_cube * lanes)];
        let total = words.merge::<O, T>(memory, parameters, merging);
        let result = O::finish::<T, Const<1>>(total, geometry.reduction_len, parameters);
        let output = UNIT_POS as usize;
        let group = locate(geometry, first_group + output / lanes, access);
        let lane = output % lanes;
        if output < comptime![groups_per_cube * lanes] && lane < group.results as usize {
            let target = group.output + lane * geometry.run_target;
            O::Results::store::<T::Results>(results, target, result);
        }
    }
}

/// Outputs of one group.
fn lanes(access: Access) -> usize {
    match access.direction {
        Direction::Along => 1,
        Direction::Across => access.vector,
    }
}

/// The units of the last cube, dealt out to its outputs: the units of one output stand `outputs` apart,
/// so that neighbours read neighbouring words.
fn merging_team(team: Team, outputs: usize) -> Team {
    let outputs = outputs as u32;
    Team {
        workers: team.units / outputs,
        distance: outputs,
        units: team.units,
        combine: if outputs == 1 { team.combine } else { Combine::Shared },
    }
}
