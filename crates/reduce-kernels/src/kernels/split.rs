//! The first launch of a split: several cubes per output, each with a partial result.

use cubecl::{ir::StorageType, prelude::*};
use reduce_planner::{Access, Direction};

use super::{
    fold::Share,
    geometry::{Geometry, locate},
    read::Input,
    work::{place, total_across, total_along},
};
use crate::{
    combine::Team,
    operator::{Fields, Operator, Partials},
};

/// Each team reduces every `cubes`-th share of a group and stores its accumulator. The partials of
/// cube `c` are those from `c * outputs`, in the order of the canonical kept dimensions.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_split<
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
    a: &mut Array<A>,
    b: &mut Array<B>,
    c: &mut Array<C>,
    geometry: &Geometry,
    cubes: usize,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[define(In, A, B, C, Out)] _types: [StorageType; 5],
) {
    let input = Input::<(In, A, B, C, Out), N>::new(vectors, elements);
    let place = place(team);
    let workers = comptime![team.workers as usize];
    let groups_per_cube = comptime![(team.units / team.workers) as usize];
    let block = CUBE_POS / cubes;
    let cube = CUBE_POS % cubes;
    let group = locate(geometry, block * groups_per_cube + place.group as usize, access);
    let share = Share { first: cube * workers + place.worker as usize, stride: cubes * workers };
    let mut partials = Partials::<(In, A, B, C, Out)>::new(a, b, c);
    let partial = cube * geometry.outputs + group.index;
    match comptime![access.direction] {
        Direction::Along => {
            let total = total_along::<O, (In, A, B, C, Out), N>(
                &input, geometry, group, share, access, team,
            );
            if place.worker == 0 && group.results > 0 {
                O::Fields::store::<(In, A, B, C, Out)>(&mut partials, partial, total);
            }
        }
        Direction::Across => {
            let total = total_across::<O, (In, A, B, C, Out), N>(
                &input, geometry, group, share, access, team,
            );
            #[unroll]
            for lane in 0..comptime![access.vector] {
                if place.worker == 0 && comptime![lane as u32] < group.results {
                    O::Fields::store::<(In, A, B, C, Out)>(
                        &mut partials,
                        partial + lane,
                        O::Fields::lane::<(In, A, B, C, Out), N>(total, lane),
                    );
                }
            }
        }
    }
}
