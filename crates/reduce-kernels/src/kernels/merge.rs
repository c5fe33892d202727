//! The second launch of a split: partial results into results.

use cubecl::{ir::StorageType, prelude::*};

use super::{
    geometry::{Dim, offsets},
    work::place,
};
use crate::{
    combine::{Team, combine_team},
    operator::{Fields, Operator, Partials},
};

/// Merges the `cubes` partial results of each output in an order that depends on nothing else, and
/// writes the result.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn merge_partials<O: Operator, In: Float, A: Float, B: Float, C: Float, Out: Float>(
    a: &mut Array<A>,
    b: &mut Array<B>,
    c: &mut Array<C>,
    output: &mut Array<Out>,
    kept: &Sequence<Dim>,
    cubes: usize,
    outputs: usize,
    reduction_len: usize,
    #[comptime] team: Team,
    #[define(In, A, B, C, Out)] _types: [StorageType; 5],
) {
    let place = place(team);
    let workers = comptime![team.workers as usize];
    let groups_per_cube = comptime![(team.units / team.workers) as usize];
    let number = CUBE_POS * groups_per_cube + place.group as usize;
    let index = clamp_max(number, outputs - 1);
    let partials = Partials::<(In, A, B, C, Out)>::new(a, b, c);
    let mut total = O::identity::<(In, A, B, C, Out), Const<1>>();
    let mut cube = place.worker as usize;
    while cube < cubes {
        let partial = O::Fields::load::<(In, A, B, C, Out)>(&partials, cube * outputs + index);
        total = O::merge::<(In, A, B, C, Out), Const<1>>(total, partial);
        cube += workers;
    }
    if comptime![team.workers > 1] {
        total = combine_team::<O, (In, A, B, C, Out), Const<1>>(total, team);
    }
    let result = O::finish::<(In, A, B, C, Out), Const<1>>(total, reduction_len);
    if place.worker == 0 && number < outputs {
        output[offsets(kept, index).target] = result[0];
    }
}
