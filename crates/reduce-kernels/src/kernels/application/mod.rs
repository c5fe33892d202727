//! Reductions whose results are applied to their own elements.
//!
//! A team makes the results of its tile, its members share them, and each member applies them to the
//! elements that it has read: from where it has [held] them, or by reading them again. Several cubes
//! may hold a tile [together](by_cubes).

mod apply;
mod by_cubes;
mod held;
mod operands;
mod passes;

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use self::{
    apply::apply_to_share,
    held::{Held, held_across, held_along, hold_loads},
    passes::results_in_passes,
};
use super::{
    accumulate::Share,
    args::{
        AppliedArrays, Input, InputArrays, KernelTypes, OperandArrays, Output, ResultArrays,
        input_of, output_of,
    },
    companion::{Companion, CompanionAccess, tile_offset},
    geometry::{Geometry, Tile, locate},
    team::{Place, Team, place},
    total::{total_across, total_along},
};
use crate::operator::{
    ApplyRef, Columns, OperatorRef, Parameters, PassesRef, RealTypes, ResultTypes, Results, Single,
    Wide, Width, finish,
};

pub(crate) use self::by_cubes::reduce_and_apply_by_cubes;

/// What kernels know of an application when they are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct How {
    pub(crate) access: Access,
    pub(crate) team: Team,
    pub(crate) apply: ApplyRef,
    pub(crate) operands: [CompanionAccess; 3],
}

/// Where units hold the elements of their tile between the reduction and the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hold {
    /// Nowhere: they are read again.
    Nothing,
    /// As many loads as are in flight in registers, and this many more in shared memory.
    Elements {
        /// Loads of a unit in shared memory, a multiple of those in flight.
        in_shared: usize,
        /// Whether all loads of all units exist.
        whole: bool,
        /// Whether several cubes share each tile.
        by_cubes: bool,
    },
}

impl Hold {
    fn is_whole(self) -> bool {
        matches!(self, Hold::Elements { whole: true, .. })
    }

    /// Whether units keep elements converted. Those of tiles in shared memory and of tiles that cubes
    /// share leave the registers to other loads.
    fn is_converted(self) -> bool {
        matches!(self, Hold::Elements { in_shared: 0, by_cubes: false, .. })
    }

    fn in_shared(self) -> usize {
        match self {
            Hold::Nothing => 0,
            Hold::Elements { in_shared, .. } => in_shared,
        }
    }
}

/// Each team reduces one tile and applies the results to its elements. `results` is bound if the
/// caller wants them.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_and_apply(
    _types: &KernelTypes,
    input: &InputArrays,
    operands: &OperandArrays,
    results: &mut ResultArrays,
    output: &mut AppliedArrays,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    parameters: &Parameters,
    apply_parameters: &Parameters,
    #[comptime] hold: Hold,
    #[comptime] how: How,
    #[comptime] operator: OperatorRef,
) {
    let access = comptime![how.access];
    let team = comptime![how.team];
    let input = input_of(input);
    let mut stored = output_of(results);
    let place = place(team);
    let tiles_per_cube = comptime![team.tiles_per_cube()];
    let number = CUBE_POS * tiles_per_cube + place.tile as usize;
    let tile = locate(geometry, number, access, tiles_per_cube);
    let units = comptime![team.units_per_tile as usize].runtime();
    let share = Share { first: place.member as usize, stride: units };
    let mut held = hold_loads(&input, geometry, tile, share, access, team, hold);
    let writer = place.member == 0;
    match comptime![access.direction] {
        Direction::Along => {
            let own = results_along(
                &mut held, &input, geometry, parameters, tile, place, share, access, team, hold,
                operator,
            );
            store_and_apply_along(
                own,
                &held,
                &input,
                operands,
                &mut stored,
                output,
                geometry,
                companions,
                apply_parameters,
                tile,
                share,
                writer,
                hold,
                how,
            );
        }
        Direction::Across => {
            let own = results_across(
                &mut held, &input, geometry, parameters, tile, place, share, access, team, hold,
                operator,
            );
            store_and_apply_across(
                own,
                &held,
                &input,
                operands,
                &mut stored,
                output,
                geometry,
                companions,
                apply_parameters,
                tile,
                share,
                writer,
                hold,
                how,
            );
        }
    }
}

/// Along, stores the results of a tile if this unit is their `writer`, and applies them to its share.
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is generated, the inner when it runs"
)]
#[cube]
fn store_and_apply_along(
    own: Results<Single>,
    held: &Held,
    input: &Input,
    operands: &OperandArrays,
    stored: &mut Output,
    output: &mut AppliedArrays,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    apply_parameters: &Parameters,
    tile: Tile,
    share: Share,
    writer: bool,
    #[comptime] hold: Hold,
    #[comptime] how: How,
) {
    let stores = stored.elements.is_some();
    if comptime![stores] {
        if writer && tile.results > 0 {
            let companion = companions.index(0usize);
            let at = tile_offset(companion, geometry, tile, comptime![how.access]);
            stored.elements.put(at, own);
        }
    }
    let results = own.converted::<RealTypes>();
    apply_to_share(
        held,
        input,
        operands,
        output,
        geometry,
        companions,
        apply_parameters,
        tile,
        share,
        results.repeated::<Wide>(),
        results,
        hold,
        how,
    );
}

/// Across, stores the results of a tile if this unit is their `writer`, and applies them to its
/// share.
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is generated, the inner when it runs"
)]
#[cube]
fn store_and_apply_across(
    own: Results<Wide>,
    held: &Held,
    input: &Input,
    operands: &OperandArrays,
    stored: &mut Output,
    output: &mut AppliedArrays,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    apply_parameters: &Parameters,
    tile: Tile,
    share: Share,
    writer: bool,
    #[comptime] hold: Hold,
    #[comptime] how: How,
) {
    let access = comptime![how.access];
    let stores = stored.elements.is_some();
    if comptime![stores] {
        if writer {
            let companion = companions.index(0usize);
            let at = tile_offset(companion, geometry, tile, access);
            #[unroll]
            for nth in 0..comptime![access.vector] {
                if comptime![nth as u32] < tile.results {
                    stored.elements.put(at + nth * companion.inner, own.component(nth));
                }
            }
        }
    }
    let results = own.converted::<RealTypes>();
    apply_to_share(
        held,
        input,
        operands,
        output,
        geometry,
        companions,
        apply_parameters,
        tile,
        share,
        results,
        results.component(0usize),
        hold,
        how,
    );
}

/// Applies results that an earlier launch stored. `cubes` cubes share each tile.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn apply_stored(
    _types: &KernelTypes,
    input: &InputArrays,
    operands: &OperandArrays,
    results: &mut ResultArrays,
    output: &mut AppliedArrays,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    apply_parameters: &Parameters,
    cubes: usize,
    #[comptime] how: How,
) {
    let access = comptime![how.access];
    let team = comptime![how.team];
    let input = input_of(input);
    let stored = output_of(results);
    let place = place(team);
    let tiles_per_cube = comptime![team.tiles_per_cube()];
    let block = CUBE_POS / cubes;
    let cube = CUBE_POS - block * cubes;
    let number = block * tiles_per_cube + place.tile as usize;
    let tile = locate(geometry, number, access, tiles_per_cube);
    let units = comptime![team.units_per_tile as usize];
    let share = Share { first: cube * units + place.member as usize, stride: cubes * units };
    let companion = companions.index(0usize);
    let at = tile_offset(companion, geometry, tile, access);
    let hold = comptime![Hold::Nothing];
    let held = hold_loads(&input, geometry, tile, share, access, team, hold);
    match comptime![access.direction] {
        Direction::Along => {
            let results = stored.elements.at(at).converted::<RealTypes>();
            apply_to_share(
                &held,
                &input,
                operands,
                output,
                geometry,
                companions,
                apply_parameters,
                tile,
                share,
                results.repeated::<Wide>(),
                results,
                hold,
                how,
            );
        }
        Direction::Across => {
            let first = stored.elements.at(at).converted::<RealTypes>();
            let mut results = first.repeated::<Wide>();
            let last = clamp_min(tile.results, 1u32) - 1;
            #[unroll]
            for nth in 1..comptime![access.vector] {
                let component = comptime![nth as u32].runtime();
                let column = clamp_max(component, last) as usize;
                let next = stored.elements.at(at + column * companion.inner);
                results = results.with_component(component, next.converted::<RealTypes>());
            }
            apply_to_share(
                &held,
                &input,
                operands,
                output,
                geometry,
                companions,
                apply_parameters,
                tile,
                share,
                results,
                first,
                hold,
                how,
            );
        }
    }
}

/// Along, the results of a tile, in all members of its team. It may contain barriers, so every unit of
/// the cube must call it.
#[cube]
fn results_along(
    held: &mut Held,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    place: Place,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] hold: Hold,
    #[comptime] operator: OperatorRef,
) -> Results<Single> {
    let holds = comptime![hold != Hold::Nothing];
    if comptime![takes_passes(operator, hold)] {
        let passes = comptime![PassesRef(operator)];
        results_in_passes::<Single>(
            &*held, input, geometry, parameters, tile, place, share, access, team, hold, passes,
        )
    } else {
        let total = if comptime![holds] {
            held_along(held, input, geometry, parameters, tile, share, access, team, hold, operator)
        } else {
            total_along(input, geometry, parameters, tile, share, access, team, operator)
        };
        let own = finish::<Single>(operator, total, geometry.reduction_len, parameters);
        shared_results::<Single>(own, place, team, comptime![operator.0.results])
    }
}

/// Across, the results of a tile, in all members of its team. It may contain barriers, so every unit of
/// the cube must call it.
#[cube]
fn results_across(
    held: &mut Held,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    place: Place,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] hold: Hold,
    #[comptime] operator: OperatorRef,
) -> Results<Wide> {
    let holds = comptime![hold != Hold::Nothing];
    if comptime![takes_passes(operator, hold)] {
        let passes = comptime![PassesRef(operator)];
        results_in_passes::<Wide>(
            &*held, input, geometry, parameters, tile, place, share, access, team, hold, passes,
        )
    } else {
        let total = if comptime![holds] {
            held_across(
                held, input, geometry, parameters, tile, share, access, team, hold, operator,
            )
        } else {
            total_across(input, geometry, parameters, tile, share, access, team, operator)
        };
        let own = finish::<Wide>(operator, total, geometry.reduction_len, parameters);
        shared_results::<Wide>(own, place, team, comptime![operator.0.results])
    }
}

/// Whether a tile is taken in two passes. Where cubes hold tiles in shared memory, each has a
/// multiprocessor for itself, and the second pass would wait for the last load of the tile: operators
/// whose one pass is cheap do better with it.
fn takes_passes(operator: OperatorRef, hold: Hold) -> bool {
    const CHEAP_FIELDS: usize = 3;
    let one_pass = hold.in_shared() > 0 && operator.0.fields <= CHEAP_FIELDS;
    hold != Hold::Nothing && operator.0.passes.is_some() && !one_pass
}

/// The results of member 0, for all members of its team. It may contain a barrier, so every unit of
/// the cube must call it.
#[cube]
fn shared_results<N: Width>(
    own: Results<N>,
    place: Place,
    #[comptime] team: Team,
    #[comptime] results: usize,
) -> Results<N> {
    if comptime![team.units_per_tile == 1] {
        own
    } else if comptime![team.is_in_plane()] {
        own.shuffle_from(UNIT_POS_PLANE - place.member * comptime![team.unit_stride])
    } else {
        let mut shared = Columns::<ResultTypes, N>::shared(team.tiles_per_cube(), results);
        if place.member == 0 {
            shared.put(place.tile as usize, own);
        }
        sync_cube();
        shared.at(place.tile as usize)
    }
}
