//! The share of a tile that one unit takes, with all that is needed to load it.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    args::Input,
    geometry::{Geometry, Tile, locate, unknown_zero},
    team::{Team, UnitPlace, place},
};

/// The share of one unit: the loads `first`, `first + stride`, ... of a tile. `stride` is the number
/// of accumulators that units have for the tile. A unit with several takes as many neighbouring
/// loads at each step.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Share<'a> {
    pub(super) input: &'a Input,
    pub(super) geometry: &'a Geometry,
    pub(super) tile: Tile,
    /// Where the unit stands in its cube.
    pub(super) place: UnitPlace,
    pub(super) first: usize,
    pub(super) stride: usize,
    #[cube(comptime)]
    pub(super) access: Access,
}

#[cube]
impl<'a> Share<'a> {
    pub(super) fn new(
        input: &'a Input,
        geometry: &'a Geometry,
        tile: Tile,
        place: UnitPlace,
        first: usize,
        stride: usize,
        #[comptime] access: Access,
    ) -> Share<'a> {
        Share::<'a> { input, geometry, tile, place, first, stride, access }
    }

    /// The same share of another tile.
    pub(super) fn with_tile(&self, tile: Tile) -> Share<'a> {
        Share::<'a> {
            input: self.input,
            geometry: self.geometry,
            tile,
            place: self.place,
            first: self.first,
            stride: self.stride,
            access: comptime![self.access],
        }
    }

    /// The number of loads from the first of one block of this unit to the first of its next.
    pub(super) fn block_stride(&self) -> usize {
        self.stride * comptime![self.access.loads_in_flight / self.access.accumulators]
    }

    /// The number of the load with number `nth` of the block that begins with load `first`.
    pub(super) fn load_after(&self, first: usize, #[comptime] nth: usize) -> usize {
        let accumulators = comptime![self.access.accumulators];
        first + comptime![nth % accumulators] + comptime![nth / accumulators] * self.stride
    }

    /// [`unknown_zero()`] from the numbers of the problem.
    pub(super) fn unknown_zero(&self) -> u32 {
        unknown_zero(self.geometry.tiles, self.geometry.outputs)
    }
}

/// This unit's share of a tile that `cubes` cubes work on, of which this one has the number `cube`.
/// They work on the block of tiles with the number `block`, one for each team of a cube.
#[cube]
pub(super) fn share_among_cubes<'a>(
    input: &'a Input,
    geometry: &'a Geometry,
    block: usize,
    cube: usize,
    cubes: usize,
    #[comptime] access: Access,
    #[comptime] team: Team,
) -> Share<'a> {
    let place = place(team);
    // The loads of a tile are dealt in turns of all units of all cubes, so no unit has more than
    // one load more than another.
    let units = comptime![team.units_per_tile as usize];
    let tiles_per_cube = comptime![team.tiles_per_cube()];
    let number = block * tiles_per_cube + place.tile as usize;
    let tile = locate(geometry, number, access, tiles_per_cube);
    let first = cube * units + place.member as usize;
    let each = comptime![access.accumulators];
    Share::new(input, geometry, tile, place, first * each, cubes * units * each, access)
}
