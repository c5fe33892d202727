//! Tiles that several cubes hold together.
//!
//! A tile that is too long for the registers of one cube may fit those of several. Each cube
//! reduces its part, publishes its accumulators, and waits until all cubes of the tile have
//! published theirs. Every cube merges all of them in the same order and gets the same bits, so no
//! cube passes results on.
//!
//! A cube that waits occupies its multiprocessor. Cubes take their tiles in the order in which they
//! begin, not in that of the grid. All cubes of all tiles but the last one have then begun, and go
//! on.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{ApplySpec, applier::applier_of, store_and_apply};
use crate::{
    kernels::{
        args::{
            AppliedArrays, InputArrays, KernelTypes, OperandArrays, ResultArrays, input_of,
            output_of,
        },
        geometry::{Companion, Geometry},
        held::{Hold, held_total, hold_loads},
        partials::{Published, merging_team, nth_to_begin, outputs_per_tile},
        reducer::Reducer,
        share::{Share, share_among_cubes},
    },
    operator::{Columns, OperatorRef, Parameters, ResultTypes, Results, Single, Wide, Width},
};

/// Like [`reduce_and_apply`](super::reduce_and_apply) with tiles that `cubes` cubes hold. They
/// publish their accumulators in `published`, under the `mark` of the launch.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_and_apply_by_cubes(
    _types: &KernelTypes,
    input: &InputArrays,
    operands: &OperandArrays,
    published: &mut [Atomic<u64>],
    results: &mut ResultArrays,
    output: &mut AppliedArrays,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    parameters: &Parameters,
    apply_parameters: &Parameters,
    cubes: usize,
    mark: u64,
    #[comptime] hold: Hold,
    #[comptime] spec: ApplySpec,
    #[comptime] operator: OperatorRef,
) {
    let access = comptime![spec.access];
    let team = comptime![spec.team];
    let input = input_of(input);
    let mut stored = output_of(results);
    // Several small cubes reside on a multiprocessor, and some read while others write. One cube
    // that has a multiprocessor for itself does not. On one H200 softmax of f32 4096 × 50257 took
    // 497 us with rows that are read again, 537 in the registers and the shared memory of one cube,
    // and 435 held by several; batch normalisation of f32 64 × 256 × 56 × 56 took 163 read again,
    // and 150.
    let outputs = comptime![team.tiles_per_cube() * outputs_per_tile(access)];
    let nth = nth_to_begin(&*published, mark);
    let block = nth / cubes;
    let cube = nth - block * cubes;
    let share = share_among_cubes(&input, geometry, block, cube, cubes, access, team);
    let reducer = Reducer::new(parameters, team, operator);
    let applier = applier_of(operands, output, companions, apply_parameters, spec);
    let partials = Published::of(block, cubes, mark, outputs, operator);
    let held = hold_loads(&share, team, hold);
    let writes = share.place.member == 0 && cube == 0;
    match comptime![access.direction] {
        Direction::Along => {
            let total = held_total::<Single>(&held, &share, &reducer);
            partials.publish_tile::<Single>(&*published, cube, total, share.place);
            let own = merged_results::<Single>(&partials, &*published, &share, &reducer);
            store_and_apply::<Single>(own, &mut stored, &applier, &held, &share, writes);
        }
        Direction::Across => {
            let total = held_total::<Wide>(&held, &share, &reducer);
            partials.publish_tile::<Wide>(&*published, cube, total, share.place);
            let own = merged_results::<Wide>(&partials, &*published, &share, &reducer);
            store_and_apply::<Wide>(own, &mut stored, &applier, &held, &share, writes);
        }
    }
}

/// The results of a tile, from what all cubes of its block publish. Every unit of the cube must get
/// here.
#[cube]
fn merged_results<N: Width>(
    partials: &Published,
    published: &[Atomic<u64>],
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Results<N> {
    // Each cube merges all partials, in the same order, so that nobody has to pass results on.
    // Which devices may wait like this, and why it ends, is in docs/DESIGN.md, section "Waiting
    // cubes".
    let outputs = comptime![partials.outputs];
    let merging = reducer.with_team(comptime![merging_team(reducer.team, outputs)]);
    let total = partials.merge(published, &merging);
    let result = reducer.finish::<Single>(total, share.geometry.reduction_len);
    let mut of_cube =
        Columns::<ResultTypes, Single>::shared(outputs, comptime![reducer.operator.0.results]);
    let output = UNIT_POS as usize;
    if output < outputs {
        of_cube.put(output, result);
    }
    sync_cube();
    of_cube.neighbours::<N>(share.place.tile as usize * N::value().comptime())
}
