//! The merge of segments that lie in several tiles.

use cubecl::prelude::*;
use reduce_planner::{Access, SegmentsPlan};

use super::{
    SegmentNumbers,
    crew::Crew,
    regions::{Bounds, Least, Places, Regions},
};
use crate::{
    kernels::{
        args::{KernelTypes, PartialArrays, TargetArrays, partials_of},
        geometry::{Dim, offsets, unknown_zero},
        reducer::Reducer,
        target::target_of,
        team::{Team, place},
        total::combine_team,
    },
    operator::{Offset, OperatorRef, Parameters, Single},
};

/// Merges the parts of each segment that lies in several tiles, in the order of the tiles. A cube
/// looks after the segment that begins in one tile and ends in another.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn merge_segments(
    _types: &KernelTypes,
    offset_values: &[Offset],
    partials: &mut PartialArrays,
    target: &mut TargetArrays,
    kept: &Sequence<Dim>,
    numbers: &SegmentNumbers,
    parameters: &Parameters,
    outputs: usize,
    #[comptime] access: Access,
    #[comptime] members_of_tile: usize,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let partials = partials_of(partials);
    let mut target = target_of(target);
    let regions = Regions::new(offset_values, numbers);
    let reducer = Reducer::new(parameters, team, operator);
    let least = Least::new(comptime![Crew::of(team)]);
    sync_cube();
    let place = place(team);
    let (nth, block) = (CUBE_POS % numbers.tiles, CUBE_POS / numbers.tiles);
    let number = block * comptime![team.tiles_per_cube()] + place.tile as usize;
    let index = clamp_max(number, outputs - 1);
    let at = offsets(kept, index);
    let places = Places::of(at.input, numbers.len, access);
    let len_of_tile = numbers.steps * comptime![members_of_tile * SegmentsPlan::share(access)];
    let start = nth * len_of_tile;
    let end = start + len_of_tile;
    // Along the reduction, a cube has one output, and across outputs all have the same places.
    let region = regions.at(places.position(end), &least);
    let (segment, exists) = regions.segment(region);
    let Bounds { begin, end: ends_at } = regions.bounds(&places, region);
    // What begins before the first place of the axis begins in the first tile.
    let begins_here = begin >= start && begin < end;
    let leaves = exists && end < places.end && begins_here && ends_at > end;
    let mut total = reducer.identity::<Single>();
    // The tile that has the last element.
    let last = clamp_max((clamp_min(ends_at, 1usize) - 1) / len_of_tile, numbers.tiles - 1);
    if leaves {
        let tails = numbers.tiles;
        let mut tile = nth + place.member as usize;
        while tile < last {
            let part = partials.at((tails + tile) * outputs + index);
            total = reducer.merge::<Single>(total, part);
            tile += comptime![team.units_per_tile as usize];
        }
    }
    total = combine_team::<Single>(total, unknown_zero(numbers.tiles, outputs), &reducer);
    if leaves && place.member == 0 && number < outputs {
        total = reducer.merge::<Single>(total, partials.at(last * outputs + index));
        let offset = at.target + segment * numbers.result_stride;
        target.put(offset, total, outputs, ends_at - begin, parameters, operator);
    }
}
