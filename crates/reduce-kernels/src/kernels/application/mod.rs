//! Reductions whose results are applied to their own elements.
//!
//! A team makes the results of its tile, its members share them, and each member applies them to
//! the elements that it has read: from where it has [held](super::held) them, or by reading them
//! again. Several cubes may hold a tile [together](by_cubes). Elements of [segments] have the
//! results of theirs.

mod applier;
mod apply;
mod by_cubes;
mod converted;
mod in_segments;
mod operands;
mod segments;

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use self::{
    applier::{Applier, applier_of},
    apply::apply_to_share,
};
use super::{
    args::{
        AppliedArrays, InputArrays, KernelTypes, OperandArrays, Output, ResultArrays, input_of,
        output_of,
    },
    at_once::hash_at_once,
    companion::tile_offset,
    geometry::{Companion, CompanionAccess, Geometry, locate},
    held::{Held, Hold, held_total, hold_loads, results_in_passes},
    reducer::Reducer,
    share::{Share, share_among_cubes},
    team::{Team, UnitPlace, place, unit_in_plane},
    total::total,
};
use crate::operator::{
    ApplyRef, Columns, OperatorRef, Parameters, PassWidth, RealTypes, Reals, ResultTypes, Results,
    Single, Wide, Width,
};

pub(crate) use self::{by_cubes::reduce_and_apply_by_cubes, segments::apply_to_segments};

/// What kernels know of an application when they are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ApplySpec {
    pub(crate) access: Access,
    pub(crate) team: Team,
    pub(crate) apply: ApplyRef,
    pub(crate) operands: [CompanionAccess; 3],
    /// How the outputs beside the first are written: as vectors or as elements.
    pub(crate) further: [CompanionAccess; 2],
    /// Which of the operands have segments in place of the axis.
    pub(crate) of_segments: [bool; 3],
    /// Whether keys say to which segment an element belongs, in place of offsets.
    pub(crate) by_keys: bool,
    /// Whether stored results of neighbouring outputs are read as vectors too.
    pub(crate) results_in_vectors: bool,
    /// Whether elements of realigned rows are moved back to the vectors of an output whose rows
    /// begin anywhere. Units that hold elements side by side, as lanes of a plane, exchange those
    /// that belong to one vector.
    pub(crate) moves_back: bool,
}

hash_at_once!(ApplySpec {
    access,
    team,
    apply,
    operands,
    further,
    of_segments,
    by_keys,
    results_in_vectors,
    moves_back
});

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
    #[comptime] spec: ApplySpec,
    #[comptime] operator: OperatorRef,
) {
    let access = comptime![spec.access];
    let team = comptime![spec.team];
    let input = input_of(input);
    let mut stored = output_of(results);
    let place = place(team);
    let tiles_per_cube = comptime![team.tiles_per_cube()];
    let number = CUBE_POS * tiles_per_cube + place.tile as usize;
    let tile = locate(geometry, number, access, tiles_per_cube);
    let units = comptime![team.units_per_tile as usize].runtime();
    let share = Share::new(&input, geometry, tile, place, place.member as usize, units, access);
    let reducer = Reducer::new(parameters, team, operator);
    let applier = applier_of(operands, output, companions, apply_parameters, spec);
    // `held` is not `mut`. CubeCL would copy each held vector into a variable of its own, and its
    // optimiser would not see that the second pass and the application of a softmax compute the
    // same exponentials.
    let held = hold_loads(&share, team, hold);
    let writes = place.member == 0;
    match comptime![access.direction] {
        Direction::Along => {
            let own = results_of_tile::<Single>(&held, &share, &reducer);
            store_and_apply::<Single>(own, &mut stored, &applier, &held, &share, writes);
        }
        Direction::Across => {
            let own = results_of_tile::<Wide>(&held, &share, &reducer);
            store_and_apply::<Wide>(own, &mut stored, &applier, &held, &share, writes);
        }
    }
}

/// Applies the results of a tile to its share, and stores them if they are wanted and this unit
/// `writes` them.
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is generated, the inner when it runs"
)]
#[cube]
fn store_and_apply<N: Width>(
    own: Results<N>,
    stored: &mut Output,
    applier: &Applier<'_>,
    held: &Held,
    share: &Share<'_>,
    writes: bool,
) {
    let stores = stored.elements.is_some();
    if comptime![stores] {
        if writes {
            let companion = applier.companions.index(0usize);
            let at = tile_offset(companion, share);
            #[unroll]
            for nth in 0..N::value().comptime() {
                if comptime![nth as u32] < share.tile.results {
                    stored.elements.put(at + nth * companion.inner, own.component(nth));
                }
            }
        }
    }
    let results = own.converted::<RealTypes>();
    match comptime![share.access.direction] {
        Direction::Along => {
            let one = results.resized::<Single>();
            apply_to_share(applier, held, share, one.repeated::<Wide>(), one);
        }
        Direction::Across => {
            let first = results.component(0usize);
            apply_to_share(applier, held, share, results.resized::<Wide>(), first);
        }
    }
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
    #[comptime] spec: ApplySpec,
) {
    let access = comptime![spec.access];
    let team = comptime![spec.team];
    let input = input_of(input);
    let stored = output_of(results);
    let block = CUBE_POS / cubes;
    let cube = CUBE_POS - block * cubes;
    let share = share_among_cubes(&input, geometry, block, cube, cubes, access, team);
    let applier = applier_of(operands, output, companions, apply_parameters, spec);
    let held = hold_loads(&share, team, comptime![Hold::Nothing]);
    let at = tile_offset(companions.index(0usize), &share);
    let first = stored.elements.at(at).converted::<RealTypes>();
    let results = match comptime![access.direction] {
        Direction::Along => first.repeated::<Wide>(),
        Direction::Across => neighbours(&stored, &applier, &share, at, first),
    };
    apply_to_share(&applier, &held, &share, results, first);
}

/// Across, the stored results of a tile, of which `first` lies at offset `at`. Components past the
/// tile repeat its last.
#[cube]
fn neighbours(
    stored: &Output,
    applier: &Applier<'_>,
    share: &Share<'_>,
    at: usize,
    first: Reals<Single>,
) -> Reals<Wide> {
    let vector = comptime![share.access.vector];
    if comptime![applier.spec.results_in_vectors] {
        stored.vectors.at(at / vector).converted::<RealTypes>()
    } else {
        let stride = applier.companions.index(0usize).inner;
        let mut results = first.repeated::<Wide>();
        let last = clamp_min(share.tile.results, 1u32) - 1;
        #[unroll]
        for nth in 1..vector {
            let component = comptime![nth as u32].runtime();
            let column = clamp_max(component, last) as usize;
            let next = stored.elements.at(at + column * stride);
            results = results.with_component(component, next.converted::<RealTypes>());
        }
        results
    }
}

/// The results of a tile, in all members of its team. It may contain barriers, so every unit of the
/// cube must call it. `N` is [`Single`] along, and [`Wide`] across.
#[cube]
fn results_of_tile<N: PassWidth>(
    held: &Held,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Results<N> {
    let hold = comptime![held.hold];
    if comptime![takes_passes(reducer.operator, hold, reducer.team)] {
        results_in_passes::<N>(held, share, reducer)
    } else {
        let total = if comptime![hold != Hold::Nothing] {
            held_total::<N>(held, share, reducer)
        } else {
            total::<N>(share, reducer)
        };
        let own = reducer.finish::<N>(total, share.geometry.reduction_len);
        let count = comptime![reducer.operator.0.results];
        shared_results::<N>(own, share.place, comptime![reducer.team], count)
    }
}

/// Whether a tile is taken in two passes. A large cube that holds its tile in shared memory has a
/// multiprocessor for itself, and the second pass would wait for the last load of the tile:
/// operators whose one pass is cheap do better with it.
fn takes_passes(operator: OperatorRef, hold: Hold, team: Team) -> bool {
    // On one H200, in registers, layer normalisation of f32 8192 × 8192 took 165 us by the
    // streaming operator in cubes of 512, and 143 in two passes. In shared memory, softmax of bf16
    // 8192 × 128256 took 1512 us in two passes of cubes of 1024, and 1249 in one. In cubes of 256,
    // L2 normalisation of bf16 16384 × 32768 took 553 us in two passes, and 604 in one.
    const CHEAP_FIELDS: usize = 3;
    const LARGE_CUBE: u32 = 1024;
    let alone = hold.in_shared() > 0 && team.units_per_cube >= LARGE_CUBE;
    let one_pass = alone && operator.0.fields <= CHEAP_FIELDS;
    hold != Hold::Nothing && operator.0.passes.is_some() && !one_pass
}

/// The results of member 0, for all members of its team. It may contain a barrier, so every unit of
/// the cube must call it.
#[cube]
fn shared_results<N: Width>(
    own: Results<N>,
    place: UnitPlace,
    #[comptime] team: Team,
    #[comptime] results: usize,
) -> Results<N> {
    if comptime![team.units_per_tile == 1] {
        own
    } else if comptime![team.is_in_plane()] {
        // A shuffle instead of a barrier took softmax of f32 1048576 × 64 from 150 to 137 us on one
        // H200.
        own.shuffle_from(unit_in_plane() - place.member * comptime![team.unit_stride])
    } else {
        let mut shared = Columns::<ResultTypes, N>::shared(team.tiles_per_cube(), results);
        if place.member == 0 {
            shared.put(place.tile as usize, own);
        }
        sync_cube();
        shared.at(place.tile as usize)
    }
}
