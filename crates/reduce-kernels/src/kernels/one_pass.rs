//! The schedules of one launch: a unit, a plane or a cube per output.

use cubecl::{ir::StorageType, prelude::*};
use reduce_planner::{Access, Direction};

use super::{
    fold::Share,
    geometry::{Geometry, locate},
    read::Input,
    whole::results,
    work::{place, total_across, total_along},
};
use crate::{
    combine::Team,
    operator::{Columns, Fields, Operator, Parameters, Types},
};

/// Each team of units reduces one group; its worker 0 writes the results.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_one_pass<
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
    x: &mut ComptimeOption<Array<X>>,
    y: &mut ComptimeOption<Array<Y>>,
    z: &mut ComptimeOption<Array<Z>>,
    geometry: &Geometry,
    parameters: &Parameters,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[define(S, In, A, B, C, D, E, X, Y, Z)] _types: [StorageType; 10],
) {
    let input = Input::<(S, In, A, B, C, D, E, X, Y, Z), N>::new(vectors, elements);
    let mut results = results(x, y, z);
    one_pass::<O, (S, In, A, B, C, D, E, X, Y, Z), N>(
        &input,
        &mut results,
        geometry,
        parameters,
        access,
        team,
    );
}

#[cube]
fn one_pass<O: Operator, T: Types, N: Size>(
    input: &Input<T, N>,
    results: &mut Columns<T::Results>,
    geometry: &Geometry,
    parameters: &Parameters,
    #[comptime] access: Access,
    #[comptime] team: Team,
) {
    let place = place(team);
    let groups_per_cube = comptime![(team.units / team.workers) as usize];
    let group = locate(geometry, CUBE_POS * groups_per_cube + place.group as usize, access);
    let share =
        Share { first: place.worker as usize, stride: comptime![team.workers as usize].runtime() };
    let count = geometry.reduction_len;
    match comptime![access.direction] {
        Direction::Along => {
            let total =
                total_along::<O, T, N>(input, geometry, parameters, group, share, access, team);
            let result = O::finish::<T, Const<1>>(total, count, parameters);
            if place.worker == 0 && group.results > 0 {
                O::Results::store::<T::Results>(results, group.output, result);
            }
        }
        Direction::Across => {
            let total =
                total_across::<O, T, N>(input, geometry, parameters, group, share, access, team);
            let result = O::finish::<T, N>(total, count, parameters);
            #[unroll]
            for lane in 0..comptime![access.vector] {
                if place.worker == 0 && comptime![lane as u32] < group.results {
                    O::Results::store::<T::Results>(
                        results,
                        group.output + lane * geometry.run_target,
                        O::Results::lane::<T::Results, N>(result, lane),
                    );
                }
            }
        }
    }
}
