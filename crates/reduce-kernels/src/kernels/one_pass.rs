//! The schedules of one launch: a unit, a plane or a cube per output.

use cubecl::{ir::StorageType, prelude::*};
use reduce_planner::{Access, Direction};

use super::{
    fold::Share,
    geometry::{Geometry, locate},
    read::Input,
    work::{place, total_across, total_along},
};
use crate::{combine::Team, operator::Operator};

/// Each team of units reduces one group; its worker 0 writes the results.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_one_pass<
    O: Operator,
    In: Float,
    A: Float,
    B: Float,
    C: Float,
    Out: Float,
    N: Size,
>(
    vectors: &Array<Vector<In, N>>,
    elements: &Array<In>,
    output: &mut Array<Out>,
    geometry: &Geometry,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[define(In, A, B, C, Out)] _types: [StorageType; 5],
) {
    let input = Input::<(In, A, B, C, Out), N>::new(vectors, elements);
    let place = place(team);
    let groups_per_cube = comptime![(team.units / team.workers) as usize];
    let group = locate(geometry, CUBE_POS * groups_per_cube + place.group as usize, access);
    let share =
        Share { first: place.worker as usize, stride: comptime![team.workers as usize].runtime() };
    match comptime![access.direction] {
        Direction::Along => {
            let total = total_along::<O, (In, A, B, C, Out), N>(
                &input, geometry, group, share, access, team,
            );
            let result = O::finish::<(In, A, B, C, Out), Const<1>>(total, geometry.reduction_len);
            if place.worker == 0 && group.results > 0 {
                output[group.output] = result[0];
            }
        }
        Direction::Across => {
            let total = total_across::<O, (In, A, B, C, Out), N>(
                &input, geometry, group, share, access, team,
            );
            let result = O::finish::<(In, A, B, C, Out), N>(total, geometry.reduction_len);
            #[unroll]
            for lane in 0..comptime![access.vector] {
                if place.worker == 0 && comptime![lane as u32] < group.results {
                    output[group.output + lane * geometry.run_target] = result[lane];
                }
            }
        }
    }
}
