//! The second launch of a split: partial results into results.

use cubecl::{ir::StorageType, prelude::*};

use super::{
    geometry::{Dim, offsets},
    whole::{partials, results},
    work::{combine_workers, place},
};
use crate::{
    combine::Team,
    operator::{Columns, Fields, Operator, Parameters, Types},
};

/// Merges the `cubes` partial results of each output in an order that depends on nothing else, and
/// writes the results.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn merge_partials<
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
>(
    a: &mut ComptimeOption<Array<A>>,
    b: &mut ComptimeOption<Array<B>>,
    c: &mut ComptimeOption<Array<C>>,
    d: &mut ComptimeOption<Array<D>>,
    e: &mut ComptimeOption<Array<E>>,
    x: &mut ComptimeOption<Array<X>>,
    y: &mut ComptimeOption<Array<Y>>,
    z: &mut ComptimeOption<Array<Z>>,
    kept: &Sequence<Dim>,
    parameters: &Parameters,
    cubes: usize,
    outputs: usize,
    reduction_len: usize,
    #[comptime] team: Team,
    #[define(S, In, A, B, C, D, E, X, Y, Z)] _types: [StorageType; 10],
) {
    let partials = partials(a, b, c, d, e);
    let mut results = results(x, y, z);
    merge::<O, (S, In, A, B, C, D, E, X, Y, Z)>(
        &partials,
        &mut results,
        kept,
        parameters,
        cubes,
        outputs,
        reduction_len,
        team,
    );
}

#[cube]
#[allow(clippy::too_many_arguments, reason = "the kernel's own")]
fn merge<O: Operator, T: Types>(
    partials: &Columns<T::Accumulator>,
    results: &mut Columns<T::Results>,
    kept: &Sequence<Dim>,
    parameters: &Parameters,
    cubes: usize,
    outputs: usize,
    reduction_len: usize,
    #[comptime] team: Team,
) {
    let place = place(team);
    let workers = comptime![team.workers as usize];
    let groups_per_cube = comptime![(team.units / team.workers) as usize];
    let number = CUBE_POS * groups_per_cube + place.group as usize;
    let index = clamp_max(number, outputs - 1);
    let mut total = O::identity::<T, Const<1>>();
    let mut cube = place.worker as usize;
    while cube < cubes {
        let partial = O::Fields::load::<T::Accumulator>(partials, cube * outputs + index);
        total = O::merge::<T, Const<1>>(total, partial, parameters);
        cube += workers;
    }
    total = combine_workers::<O, T, Const<1>>(total, parameters, team);
    let result = O::finish::<T, Const<1>>(total, reduction_len, parameters);
    if place.worker == 0 && number < outputs {
        O::Results::store::<T::Results>(results, offsets(kept, index).target, result);
    }
}
