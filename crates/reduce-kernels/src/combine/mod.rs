//! Putting accumulators together: the lanes of a vector, the units of a plane, the units of a cube.

mod cube;
mod plane;
mod vector;

use cubecl::prelude::*;
use reduce_planner::Combine;

pub(crate) use cube::combine_cube;
pub(crate) use plane::combine_plane;
pub(crate) use vector::combine_lanes;

use crate::operator::{FieldsOf, Operator, Parameters, Types};

/// The units of a cube that work on one output: how many, where they stand, how they combine.
///
/// The unit at position `p` is worker `p / distance % workers`, and `p`'s other digits say which of
/// the cube's outputs it works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Team {
    /// Units per output, a power of two.
    pub(crate) workers: u32,
    /// Distance of neighbouring workers: 1 `Along`; the outputs abreast `Across`.
    pub(crate) distance: u32,
    /// Units of the cube.
    pub(crate) units: u32,
    /// How they combine.
    pub(crate) combine: Combine,
}

/// Combines the accumulators of a team. Worker 0's is the team's; the others' are of no use.
#[cube]
pub(crate) fn combine_team<O: Operator, T: Types, N: Size>(
    accumulator: FieldsOf<O::Fields, T, N>,
    parameters: &Parameters,
    #[comptime] team: Team,
) -> FieldsOf<O::Fields, T, N> {
    match comptime![team.combine] {
        Combine::Plane { lanes } => {
            let distance = comptime![team.distance];
            let of_group = combine_plane::<O, T, N>(accumulator, parameters, lanes, distance);
            if comptime![team.workers > lanes] {
                combine_cube::<O, T, N>(of_group, parameters, team, lanes)
            } else {
                of_group
            }
        }
        Combine::Shared => combine_cube::<O, T, N>(accumulator, parameters, team, 1u32),
    }
}
