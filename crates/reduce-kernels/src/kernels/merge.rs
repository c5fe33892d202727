//! The second launch of a split: partial results into results.

use cubecl::prelude::*;

use super::{
    args::{KernelTypes, PartialArrays, ResultArrays, output_of, partials_of},
    geometry::{Dim, offsets, unknown_zero},
    team::{Team, place},
    total::combine_team,
};
use crate::operator::{OperatorRef, Parameters, Single, finish, identity, merge};

/// Merges the `cubes` partial results of each output in an order that depends on nothing else, and
/// writes the results.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn merge_partials(
    _types: &KernelTypes,
    partials: &mut PartialArrays,
    output: &mut ResultArrays,
    kept: &Sequence<Dim>,
    parameters: &Parameters,
    cubes: usize,
    outputs: usize,
    reduction_len: usize,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let partials = partials_of(partials);
    let mut output = output_of(output);
    let place = place(team);
    let units = comptime![team.units_per_tile as usize];
    let number = CUBE_POS * comptime![team.tiles_per_cube()] + place.tile as usize;
    let index = clamp_max(number, outputs - 1);
    let mut total = identity::<Single>(operator);
    let mut cube = place.member as usize;
    while cube < cubes {
        let partial = partials.at(cube * outputs + index);
        total = merge::<Single>(operator, total, partial, parameters);
        cube += units;
    }
    total = combine_team::<Single>(total, parameters, unknown_zero(cubes, outputs), team, operator);
    let result = finish::<Single>(operator, total, reduction_len, parameters);
    if place.member == 0 && number < outputs {
        output.elements.put(offsets(kept, index).target, result);
    }
}
