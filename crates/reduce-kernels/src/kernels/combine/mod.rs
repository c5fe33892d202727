//! Combining accumulators: the components of a vector, the units of a plane, the units of a cube.

mod components;
mod cube;
mod plane;

use cubecl::prelude::*;
use reduce_planner::Combine;

use self::cube::combine_cube;
use super::reducer::Reducer;
use crate::operator::{Accumulator, Width};

pub(super) use self::{
    components::{combine_neighbours, combine_vectors},
    plane::{combine_plane, scan_lanes},
};

/// Combines the accumulators of a team with more than one unit. Member 0's becomes the team's; the
/// others' have no meaning afterwards.
///
/// `zero` is 0, the same in all units, and unknown to compilers. They would unroll a loop whose
/// number of turns they know.
#[cube]
pub(super) fn combine_units<N: Width>(
    accumulator: Accumulator<N>,
    zero: u32,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let team = comptime![reducer.team];
    // Lanes combine first. A shuffle needs neither shared memory nor a barrier, and leaves one
    // accumulator in a plane for the tree through shared memory. A device without plane operations,
    // such as wgpu reports for Mesa's software adapter and for browsers, has the tree alone.
    match comptime![team.combine] {
        Combine::Plane { lanes } => {
            let of_lanes =
                combine_plane::<N>(accumulator, zero, reducer, lanes, comptime![team.unit_stride]);
            if comptime![team.units_per_tile > lanes] {
                combine_cube::<N>(of_lanes, zero, reducer, lanes)
            } else {
                of_lanes
            }
        }
        Combine::Shared => combine_cube::<N>(accumulator, zero, reducer, 1u32),
    }
}
