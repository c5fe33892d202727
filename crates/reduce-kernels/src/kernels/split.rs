//! The first launch of a split in two: several cubes per output, each with a partial result.

use cubecl::{ir::StorageType, prelude::*};
use reduce_planner::{Access, Direction};

use super::{
    fold::Share,
    geometry::{Geometry, locate},
    read::Input,
    whole::partials,
    work::{place, total_across, total_along},
};
use crate::{
    combine::Team,
    operator::{Columns, Fields, Operator, Parameters, Types},
};

/// Each team reduces every `cubes`-th share of a group and stores its accumulator. The partials of
/// cube `c` are those from `c * outputs`, in the order of the canonical kept dimensions.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_split<
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
    a: &mut ComptimeOption<Array<A>>,
    b: &mut ComptimeOption<Array<B>>,
    c: &mut ComptimeOption<Array<C>>,
    d: &mut ComptimeOption<Array<D>>,
    e: &mut ComptimeOption<Array<E>>,
    geometry: &Geometry,
    parameters: &Parameters,
    cubes: usize,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[define(S, In, A, B, C, D, E, X, Y, Z)] _types: [StorageType; 10],
) {
    let input = Input::<(S, In, A, B, C, D, E, X, Y, Z), N>::new(vectors, elements);
    let mut partials = partials(a, b, c, d, e);
    split::<O, (S, In, A, B, C, D, E, X, Y, Z), N>(
        &input,
        &mut partials,
        geometry,
        parameters,
        cubes,
        access,
        team,
    );
}

#[cube]
fn split<O: Operator, T: Types, N: Size>(
    input: &Input<T, N>,
    partials: &mut Columns<T::Accumulator>,
    geometry: &Geometry,
    parameters: &Parameters,
    cubes: usize,
    #[comptime] access: Access,
    #[comptime] team: Team,
) {
    let place = place(team);
    let workers = comptime![team.workers as usize];
    let groups_per_cube = comptime![(team.units / team.workers) as usize];
    let block = CUBE_POS / cubes;
    let cube = CUBE_POS % cubes;
    let group = locate(geometry, block * groups_per_cube + place.group as usize, access);
    let share = Share { first: cube * workers + place.worker as usize, stride: cubes * workers };
    let partial = cube * geometry.outputs + group.index;
    match comptime![access.direction] {
        Direction::Along => {
            let total =
                total_along::<O, T, N>(input, geometry, parameters, group, share, access, team);
            if place.worker == 0 && group.results > 0 {
                O::Fields::store::<T::Accumulator>(partials, partial, total);
            }
        }
        Direction::Across => {
            let total =
                total_across::<O, T, N>(input, geometry, parameters, group, share, access, team);
            #[unroll]
            for lane in 0..comptime![access.vector] {
                if place.worker == 0 && comptime![lane as u32] < group.results {
                    O::Fields::store::<T::Accumulator>(
                        partials,
                        partial + lane,
                        O::Fields::lane::<T::Accumulator, N>(total, lane),
                    );
                }
            }
        }
    }
}
