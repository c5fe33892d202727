//! The work of a team from the first load to the results, for every schedule.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    fold::{Share, fold, fold_edges},
    geometry::{Geometry, Group},
    read::Input,
};
use crate::{
    combine::{Team, combine_lanes, combine_team},
    operator::{FieldsOf, Operator, Parameters, Types},
};

/// Where a unit stands in its cube.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Place {
    /// Which of the cube's groups.
    pub(crate) group: u32,
    /// Number among the workers of the group.
    pub(crate) worker: u32,
}

/// The place of this unit in its cube.
#[cube]
pub(crate) fn place(#[comptime] team: Team) -> Place {
    let workers = comptime![team.workers];
    let abreast = comptime![team.distance];
    let worker = UNIT_POS / abreast % workers;
    let group = UNIT_POS % abreast + UNIT_POS / comptime![abreast * workers] * abreast;
    Place { group, worker }
}

/// `Along`: one output's accumulator, complete in worker 0.
#[cube]
pub(crate) fn total_along<O: Operator, T: Types, N: Size>(
    input: &Input<T, N>,
    geometry: &Geometry,
    parameters: &Parameters,
    group: Group,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
) -> FieldsOf<O::Fields, T, Const<1>> {
    let lanes = fold::<O, T, N>(input, geometry, parameters, group, share, access);
    let mut total = combine_lanes::<O, T, N>(lanes, parameters);
    if comptime![access.ragged] {
        let edges = fold_edges::<O, T, N>(input, geometry, parameters, group, share, access);
        total = O::merge::<T, Const<1>>(total, edges, parameters);
    }
    combine_workers::<O, T, Const<1>>(total, parameters, team)
}

/// `Across`: the accumulators of a vector of outputs, complete in worker 0.
#[cube]
pub(crate) fn total_across<O: Operator, T: Types, N: Size>(
    input: &Input<T, N>,
    geometry: &Geometry,
    parameters: &Parameters,
    group: Group,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
) -> FieldsOf<O::Fields, T, N> {
    let lanes = fold::<O, T, N>(input, geometry, parameters, group, share, access);
    combine_workers::<O, T, N>(lanes, parameters, team)
}

/// What the workers of a team accumulated, complete in worker 0.
#[cube]
pub(crate) fn combine_workers<O: Operator, T: Types, N: Size>(
    accumulator: FieldsOf<O::Fields, T, N>,
    parameters: &Parameters,
    #[comptime] team: Team,
) -> FieldsOf<O::Fields, T, N> {
    if comptime![team.workers > 1] {
        combine_team::<O, T, N>(accumulator, parameters, team)
    } else {
        accumulator
    }
}
