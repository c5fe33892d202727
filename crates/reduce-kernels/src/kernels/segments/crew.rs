//! Units that take steps together.

use cubecl::prelude::*;
use reduce_planner::Combine;

use crate::kernels::team::Team;

/// The units of a cube that take the steps of a strip together, and meet after each: the lanes of a
/// plane, which meet at little cost, or all units of the cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Crew {
    pub(super) units: u32,
    /// Crews of a cube, which have neighbouring strips.
    pub(super) crews: u32,
    pub(super) in_plane: bool,
}

impl Crew {
    pub(super) fn of(team: Team) -> Self {
        let units = match team.combine {
            Combine::Plane { lanes } => lanes,
            Combine::Shared => team.units_per_cube,
        };
        let in_plane = matches!(team.combine, Combine::Plane { .. });
        Self { units, crews: team.units_per_cube / units, in_plane }
    }

    /// All units of a cube, whatever its teams.
    pub(crate) fn whole_cube(team: Team) -> Self {
        Self { units: team.units_per_cube, crews: 1, in_plane: false }
    }

    /// Outputs, or vectors of outputs, that a cube has side by side.
    pub(super) fn side_by_side(self, team: Team) -> usize {
        if self.in_plane { 1 } else { team.tiles_per_cube() }
    }
}

/// The number of this unit in its crew.
#[cube]
pub(super) fn unit_of_crew(#[comptime] crew: Crew) -> u32 {
    UNIT_POS % crew.units
}

/// Where the units of a crew meet: what they stored in shared memory is there for all of them.
#[cube]
pub(super) fn meet(#[comptime] crew: Crew) {
    if comptime![crew.in_plane] {
        sync_plane();
    } else {
        sync_cube();
    }
}
