//! The work of a team, from the first load to the tile's accumulator.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    accumulate::{Share, accumulate, accumulate_edges},
    args::Input,
    combine::{combine_components, combine_units},
    geometry::{Geometry, Tile, unknown_zero},
    realign::{combine_windows, window},
    team::Team,
};
use crate::operator::{Accumulator, OperatorRef, Parameters, Single, Wide, Width, identity, merge};

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
    let edges = comptime![access.peeled];
    total_with_edges(input, geometry, parameters, tile, share, edges, access, team, operator)
}

/// [`total_along`], where `edges` says whether the ends of inner dimensions are read element by
/// element. They are if the access is peeled.
#[cube]
pub(super) fn total_with_edges(
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] edges: bool,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let total = if comptime![operator.0.blocks.is_some()] {
        let first = if edges {
            accumulate_edges(input, geometry, parameters, tile, share, access, operator)
        } else {
            identity::<Single>(operator)
        };
        accumulate::<Single>(first, input, geometry, parameters, tile, share, access, operator)
    } else {
        let none = identity::<Wide>(operator);
        let wide =
            accumulate::<Wide>(none, input, geometry, parameters, tile, share, access, operator);
        let vectors = combine_components(wide, parameters, operator);
        if edges {
            let of_edges =
                accumulate_edges(input, geometry, parameters, tile, share, access, operator);
            merge::<Single>(operator, vectors, of_edges, parameters)
        } else {
            vectors
        }
    };
    combine_team::<Single>(
        total,
        parameters,
        unknown_zero(geometry.tiles, geometry.outputs),
        team,
        operator,
    )
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
    let none = identity::<Wide>(operator);
    let zero = unknown_zero(geometry.tiles, geometry.outputs);
    if comptime![access.realigned] {
        let window = window(geometry, tile, share, access);
        let tile = window.tile;
        let wide =
            accumulate::<Wide>(none, input, geometry, parameters, tile, share, access, operator);
        combine_windows(wide, window.before, tile.block, parameters, zero, team, operator)
    } else {
        let wide =
            accumulate::<Wide>(none, input, geometry, parameters, tile, share, access, operator);
        combine_team::<Wide>(wide, parameters, zero, team, operator)
    }
}

/// Combines what the members of a team accumulated, complete in member 0. `zero` is 0, the same in
/// all units, and unknown to compilers.
#[cube]
pub(super) fn combine_team<N: Width>(
    accumulator: Accumulator<N>,
    parameters: &Parameters,
    zero: u32,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) -> Accumulator<N> {
    if comptime![team.units_per_tile > 1] {
        combine_units::<N>(accumulator, parameters, zero, team, operator)
    } else {
        accumulator
    }
}
