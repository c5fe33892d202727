//! The work of a team, from the first load to the tile's accumulator.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    accumulate::{Share, accumulate, accumulate_edges},
    args::Input,
    combine::{combine_components, combine_units},
    geometry::{Geometry, Tile},
    team::Team,
};
use crate::operator::{Accumulator, OperatorRef, Parameters, Single, Wide, Width, merge};

/// `Along`: one output's accumulator, complete in member 0.
#[cube]
pub(super) fn total_along(
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let wide = accumulate(input, geometry, parameters, tile, share, access, operator);
    let mut total = combine_components(wide, parameters, operator);
    if comptime![access.peeled] {
        let edges = accumulate_edges(input, geometry, parameters, tile, share, access, operator);
        total = merge::<Single>(operator, total, edges, parameters);
    }
    combine_team::<Single>(total, parameters, team, operator)
}

/// `Across`: the accumulators of a vector of outputs, complete in member 0.
#[cube]
pub(super) fn total_across(
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Wide> {
    let wide = accumulate(input, geometry, parameters, tile, share, access, operator);
    combine_team::<Wide>(wide, parameters, team, operator)
}

/// Combines what the members of a team accumulated, complete in member 0.
#[cube]
pub(super) fn combine_team<N: Width>(
    accumulator: Accumulator<N>,
    parameters: &Parameters,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) -> Accumulator<N> {
    if comptime![team.units_per_tile > 1] {
        combine_units::<N>(accumulator, parameters, team, operator)
    } else {
        accumulator
    }
}
