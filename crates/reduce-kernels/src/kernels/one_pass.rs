//! The schedules of one launch: a unit, a plane or a cube per output.

use cubecl::{ir::StorageType, prelude::*};
use reduce_planner::{Access, Direction};

use super::{
    fold::{Share, push_loaded},
    geometry::{Geometry, Group, locate},
    read::{Input, Loaded, load},
    whole::{results, vector_results},
    work::{combine_workers, place, total_across, total_along},
};
use crate::{
    combine::{Team, combine_lanes},
    operator::{Columns, Fields, Operator, Parameters, ResultsOf, Types, VectorColumns},
};

/// The results' arrays, bound as vectors where all lanes of a group's results lie side by side.
#[derive(CubeType, Clone, Copy)]
struct Results<T: Types, N: Size> {
    results: Columns<T::Results>,
    vectors: VectorColumns<T::Results, N>,
}

#[cube]
impl<T: Types, N: Size> Results<T, N> {
    fn new(results: Columns<T::Results>, vectors: VectorColumns<T::Results, N>) -> Self {
        Results::<T, N> { results, vectors }
    }
}

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
    xs: &mut ComptimeOption<Array<Vector<X, N>>>,
    ys: &mut ComptimeOption<Array<Vector<Y, N>>>,
    zs: &mut ComptimeOption<Array<Vector<Z, N>>>,
    geometry: &Geometry,
    parameters: &Parameters,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[define(S, In, A, B, C, D, E, X, Y, Z)] _types: [StorageType; 10],
) {
    let input = Input::<(S, In, A, B, C, D, E, X, Y, Z), N>::new(vectors, elements);
    let results = results(x, y, z);
    let vectors = vector_results(xs, ys, zs);
    let mut results = Results::<(S, In, A, B, C, D, E, X, Y, Z), N>::new(results, vectors);
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
    results: &mut Results<T, N>,
    geometry: &Geometry,
    parameters: &Parameters,
    #[comptime] access: Access,
    #[comptime] team: Team,
) {
    let place = place(team);
    let groups_per_cube = comptime![(team.units / team.workers) as usize];
    let first = CUBE_POS * comptime![groups_per_cube * access.batch] + place.group as usize;
    if comptime![access.batch == 1] {
        let group = locate(geometry, first, access);
        let share = Share {
            first: place.worker as usize,
            stride: comptime![team.workers as usize].runtime(),
        };
        match comptime![access.direction] {
            Direction::Along => {
                let total =
                    total_along::<O, T, N>(input, geometry, parameters, group, share, access, team);
                let result = O::finish::<T, Const<1>>(total, geometry.reduction_len, parameters);
                write_along::<O, T>(&mut results.results, group, place.worker, result);
            }
            Direction::Across => {
                let total = total_across::<O, T, N>(
                    input, geometry, parameters, group, share, access, team,
                );
                let result = O::finish::<T, N>(total, geometry.reduction_len, parameters);
                write_across::<O, T, N>(results, geometry, group, place.worker, result, access);
            }
        }
    } else {
        several::<O, T, N>(
            input,
            results,
            geometry,
            parameters,
            first,
            groups_per_cube,
            place.worker,
            access,
            team,
        );
    }
}

/// Short reductions: the loads of a whole batch of groups, `distance` apart, then one group after the
/// other.
#[cube]
#[allow(clippy::too_many_arguments, reason = "what a unit's work consists of")]
fn several<O: Operator, T: Types, N: Size>(
    input: &Input<T, N>,
    results: &mut Results<T, N>,
    geometry: &Geometry,
    parameters: &Parameters,
    first: usize,
    #[comptime] distance: usize,
    worker: u32,
    #[comptime] access: Access,
    #[comptime] team: Team,
) {
    let in_flight = comptime![access.in_flight];
    let workers = comptime![team.workers as usize];
    let last = geometry.steps - 1;
    let mut groups = Sequence::<Group>::new();
    let mut loads = Sequence::<Loaded<T, N>>::new();
    #[unroll]
    for b in 0..comptime![access.batch] {
        let group = locate(geometry, first + comptime![b * distance], access);
        #[unroll]
        for k in 0..in_flight {
            let step = clamp_max(worker as usize + comptime![k * workers], last);
            loads.push(load::<T, N>(input, geometry, group, step, access));
        }
        groups.push(group);
    }
    #[unroll]
    for b in 0..comptime![access.batch] {
        let group = *groups.index(b);
        let mut lanes = O::identity::<T, N>();
        #[unroll]
        for k in 0..in_flight {
            if worker as usize + comptime![k * workers] < geometry.steps {
                let loaded = *loads.index(comptime![b * in_flight + k]);
                lanes = push_loaded::<O, T, N>(lanes, loaded, parameters);
            }
        }
        match comptime![access.direction] {
            Direction::Along => {
                let of_unit = combine_lanes::<O, T, N>(lanes, parameters);
                let total = combine_workers::<O, T, Const<1>>(of_unit, parameters, team);
                let result = O::finish::<T, Const<1>>(total, geometry.reduction_len, parameters);
                write_along::<O, T>(&mut results.results, group, worker, result);
            }
            Direction::Across => {
                let total = combine_workers::<O, T, N>(lanes, parameters, team);
                let result = O::finish::<T, N>(total, geometry.reduction_len, parameters);
                write_across::<O, T, N>(results, geometry, group, worker, result, access);
            }
        }
    }
}

/// Worker 0 writes the results of its output.
#[cube]
fn write_along<O: Operator, T: Types>(
    results: &mut Columns<T::Results>,
    group: Group,
    worker: u32,
    result: ResultsOf<O::Results, T, Const<1>>,
) {
    if worker == 0 && group.results > 0 {
        O::Results::store::<T::Results>(results, group.output, result);
    }
}

/// Worker 0 writes the results of its vector of outputs.
#[cube]
fn write_across<O: Operator, T: Types, N: Size>(
    results: &mut Results<T, N>,
    geometry: &Geometry,
    group: Group,
    worker: u32,
    result: ResultsOf<O::Results, T, N>,
    #[comptime] access: Access,
) {
    let in_vectors = results.vectors.is_some();
    if comptime![in_vectors] {
        if worker == 0 && group.results > 0 {
            let index = group.output / comptime![access.vector];
            O::Results::store_lanes::<T::Results, N>(&mut results.vectors, index, result);
        }
    } else {
        #[unroll]
        for lane in 0..comptime![access.vector] {
            if worker == 0 && comptime![lane as u32] < group.results {
                O::Results::store::<T::Results>(
                    &mut results.results,
                    group.output + lane * geometry.run_target,
                    O::Results::lane::<T::Results, N>(result, lane),
                );
            }
        }
    }
}
