//! The assignment of units to tiles.

use cubecl::prelude::*;
use reduce_planner::Combine;

use super::at_once::hash_at_once;
use crate::operator::HardwareMath;

/// The units of a cube that work on one tile: their number, their positions, and how they combine.
///
/// The unit at position `p` is member `p / unit_stride % units_per_tile` of its team. The other
/// digits of `p` say which of the cube's tiles the team works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Team {
    /// Units per tile, a power of two.
    pub(crate) units_per_tile: u32,
    /// Positions between neighbouring members: 1 `Along`, the number of adjacent tiles `Across`.
    pub(crate) unit_stride: u32,
    /// Units of the cube.
    pub(crate) units_per_cube: u32,
    /// How the members combine.
    pub(crate) combine: Combine,
    /// Units that merge the partials of an output, if cubes leave any.
    pub(crate) merging_units: u32,
}

hash_at_once!(Team { units_per_tile, unit_stride, units_per_cube, combine, merging_units });

impl Team {
    /// Whether the units of a tile are lanes of one plane.
    pub(super) fn is_in_plane(self) -> bool {
        matches!(self.combine, Combine::Plane { lanes } if lanes == self.units_per_tile)
    }

    /// Lanes of a plane that combine by plane operations, 1 if none do.
    pub(crate) fn lanes(self) -> u32 {
        match self.combine {
            Combine::Plane { lanes } => lanes,
            Combine::Shared => 1,
        }
    }

    /// Units of a tile, one after the other, that read loads side by side: the lanes of a plane, or
    /// all of them where planes do not combine.
    pub(super) fn neighbours(self) -> u32 {
        match self.combine {
            Combine::Plane { lanes } => lanes,
            Combine::Shared => self.units_per_tile,
        }
    }

    /// Tiles that a cube works on at a time.
    pub(super) fn tiles_per_cube(self) -> usize {
        (self.units_per_cube / self.units_per_tile) as usize
    }
}

/// Where a unit stands in its cube.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct UnitPlace {
    /// Which of the cube's tiles.
    pub(super) tile: u32,
    /// Number among the members of the team. Member 0 ends up with the tile's accumulator.
    pub(super) member: u32,
}

/// The number of this unit in its plane.
///
/// Through NVRTC, CubeCL 0.11's `UNIT_POS_PLANE` is a remainder by `warpSize`, which that compiler
/// does not know: a division, of fifteen instructions.
#[cube]
pub(super) fn unit_in_plane() -> u32 {
    let by_nvrtc = HardwareMath::value().comptime() == 2;
    let properties = comptime::device_properties().comptime();
    let size = comptime![properties.hardware.plane_size_max];
    if comptime![by_nvrtc] { UNIT_POS % size } else { UNIT_POS_PLANE }
}

/// The place of this unit in its cube.
#[cube]
pub(super) fn place(#[comptime] team: Team) -> UnitPlace {
    let units = comptime![team.units_per_tile];
    let adjacent = comptime![team.unit_stride];
    let member = UNIT_POS / adjacent % units;
    let tile = UNIT_POS % adjacent + UNIT_POS / comptime![adjacent * units] * adjacent;
    UnitPlace { tile, member }
}
