//! Combining accumulators: the components of a vector, the units of a plane, the units of a cube.

mod components;
mod cube;
mod plane;

use cubecl::prelude::*;
use reduce_planner::Combine;

use self::cube::combine_cube;
use super::team::Team;
use crate::operator::{Accumulator, OperatorRef, Parameters, Width};

pub(super) use self::{components::combine_components, plane::combine_plane};

/// Combines the accumulators of a team with more than one unit. Member 0's becomes the team's; the
/// others' have no meaning afterwards.
///
/// `zero` is 0, the same in all units, and unknown to compilers. They would unroll a loop whose
/// number of turns they know.
#[cube]
pub(super) fn combine_units<N: Width>(
    accumulator: Accumulator<N>,
    parameters: &Parameters,
    zero: u32,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) -> Accumulator<N> {
    match comptime![team.combine] {
        Combine::Plane { lanes } => {
            let of_lanes = combine_plane::<N>(
                accumulator,
                parameters,
                zero,
                lanes,
                comptime![team.unit_stride],
                operator,
            );
            if comptime![team.units_per_tile > lanes] {
                combine_cube::<N>(of_lanes, parameters, zero, team, lanes, operator)
            } else {
                of_lanes
            }
        }
        Combine::Shared => combine_cube::<N>(accumulator, parameters, zero, team, 1u32, operator),
    }
}
