//! The application of results to a share of a tile.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    ApplySpec,
    applier::{Applier, OutputPlace, output_place},
    converted::converted,
    in_segments::{InSegments, inside_of_segments},
    operands::{OperandStarts, edge_operands, load_operands, operand_starts},
};
use crate::{
    kernels::{
        accumulate::load_inside,
        args::CompanionSlices,
        companion::{components_inside, tile_offset},
        geometry::{CompanionAccess, strided},
        held::{Held, Hold, second_of_load},
        load::{AtEnd, Edge, Loaded, edge_slots, load_edge},
        realign::moved_together,
        share::Share,
        total::has_edges,
    },
    operator::{
        Applied, Applied2, Applied3, Operands, Real, Reals, Single, Stored2, Wide, apply_to,
    },
};

/// Applies results to a share of a tile: to the loads that are held, or to loads that are issued
/// here. `first_results` are those of the first component, for the elements at edges.
#[cube]
pub(super) fn apply_to_share(
    applier: &Applier<'_>,
    held: &Held,
    share: &Share<'_>,
    results: Reals<Wide>,
    first_results: Reals<Single>,
) {
    let geometry = share.geometry;
    // Offsets of operands are found here and not before the reduction, which needs the registers.
    let starts = operand_starts(applier, share);
    let whole = ComptimeOption::<InSegments<Wide>>::new_None();
    let in_flight = comptime![share.access.loads_in_flight];
    // Without held elements, loads are issued together again. They come from the cache where few
    // large tiles are under way at a time, which is up to the plan.
    if comptime![held.hold == Hold::Nothing] {
        let mut first = share.first;
        while first < geometry.loads_per_tile {
            let mut loads = Sequence::<Loaded>::new();
            #[unroll]
            for k in 0..in_flight {
                let nth = first + k * share.stride;
                loads.push(load_inside(share, nth, first, AtEnd::Never));
            }
            #[unroll]
            for k in 0..in_flight {
                let nth = first + k * share.stride;
                let value = Vector::<Real, Wide>::cast_from(loads.index(k).value);
                let second = loads.index(k).second;
                apply_to_load(applier, starts, share, nth, value, second, results, whole);
            }
            first += share.block_stride();
        }
    } else {
        #[unroll]
        for k in 0..in_flight {
            let nth = share.first + k * share.stride;
            let value = held.applied_to(k);
            let second = held.loads.index(k).second;
            apply_to_load(applier, starts, share, nth, value, second, results, whole);
        }
        if comptime![held.hold.in_shared() > 0] {
            let kept = held.kept.unwrap();
            let mut turn = held.first_turn(share);
            // Nothing asks whether a turn has loads: `apply_to_load` asks each load whether it
            // exists.
            for _ in 0..held.turns(share) {
                #[unroll]
                for k in 0..in_flight {
                    let nth = turn.first + k * share.stride;
                    let value = Vector::<Real, Wide>::cast_from(kept[held.place(&turn, k)]);
                    let second = second_of_load(share, nth, turn.first);
                    apply_to_load(applier, starts, share, nth, value, second, results, whole);
                }
                held.end_turn(&mut turn, share);
            }
        }
    }
    if comptime![has_edges(share.access)] {
        apply_to_edges(applier, starts, share, first_results);
    }
}

/// Applies results to this unit's share of the elements at the edges of inner dimensions.
#[cube]
fn apply_to_edges(
    applier: &Applier<'_>,
    starts: OperandStarts,
    share: &Share<'_>,
    results: Reals<Single>,
) {
    let each = comptime![edge_slots(share.access.vector)];
    let slots = share.geometry.inner_count * each;
    let mut slot = share.first;
    while slot < slots {
        let edge = load_edge(share, slot);
        if share.tile.results > 0 && edge.valid {
            let whole = ComptimeOption::<InSegments<Single>>::new_None();
            apply_to_edge(applier, starts, share, slot / each, edge, results, whole);
        }
        slot += share.stride;
    }
}

/// Applies results to an element at an edge, which exists, and stores it. `outer` is its index over
/// the outer reduced dimensions, and `segments` has its segment if there are segments.
#[cube]
pub(super) fn apply_to_edge(
    applier: &Applier<'_>,
    starts: OperandStarts,
    share: &Share<'_>,
    outer: usize,
    edge: Edge,
    results: Reals<Single>,
    segments: ComptimeOption<InSegments<Single>>,
) {
    let operands = edge_operands(applier, starts, share, outer, edge, segments);
    let outputs = apply_to::<Single>(
        comptime![applier.spec.apply],
        Vector::cast_from(edge.value),
        results,
        Operands::<Single>::of(operands),
        applier.parameters,
    );
    let value = inside_of_segments::<Single>(outputs.a(), segments);
    let mut elements = applier.elements.unwrap();
    let value = converted::<Applied, Single>(value);
    elements[share.tile.output + edge.position.start] = value.extract(0usize);
    if outputs.has_b() {
        let value = inside_of_segments::<Single>(outputs.b(), segments);
        let at = further_edge_offset(applier, share, outer, edge.element, 0usize);
        let mut elements = applier.further.second.elements.unwrap();
        elements[at] = converted::<Applied2, Single>(value).extract(0usize);
    }
    if outputs.has_c() {
        let value = inside_of_segments::<Single>(outputs.c(), segments);
        let at = further_edge_offset(applier, share, outer, edge.element, 1usize);
        let mut elements = applier.further.third.elements.unwrap();
        elements[at] = converted::<Applied3, Single>(value).extract(0usize);
    }
}

/// The companion of output number `nth` of those beside the first. They follow the results and the
/// operands.
fn further_companion(spec: ApplySpec, nth: usize) -> usize {
    let operands = spec.operands.iter().filter(|&&operand| operand != CompanionAccess::None);
    1 + operands.count() + nth
}

/// The offset in output number `nth` of those beside the first of an element at an edge.
#[cube]
fn further_edge_offset(
    applier: &Applier<'_>,
    share: &Share<'_>,
    outer: usize,
    element: usize,
    #[comptime] nth: usize,
) -> usize {
    let companion = applier.companions.index(comptime![further_companion(applier.spec, nth)]);
    tile_offset(companion, share)
        + strided(&share.geometry.reduced, &companion.reduced, outer)
        + element * companion.inner
}

/// Stores a load of output number `nth` of those beside the first.
#[cube]
fn store_further<E: Float>(
    slices: CompanionSlices<E>,
    applier: &Applier<'_>,
    share: &Share<'_>,
    place: OutputPlace,
    value: Vector<E, Wide>,
    #[comptime] nth: usize,
) {
    let vector = comptime![share.access.vector];
    let companion = applier.companions.index(comptime![further_companion(applier.spec, nth)]);
    let at = tile_offset(companion, share)
        + strided(&share.geometry.reduced, &companion.reduced, place.outer)
        + place.element * companion.inner;
    if comptime![applier.spec.further[nth] == CompanionAccess::Vector] {
        let mut vectors = slices.vectors.unwrap();
        vectors[at / vector] = value;
    } else {
        let mut elements = slices.elements.unwrap();
        let inside = components_inside(share);
        #[unroll]
        for component in 0..vector {
            if comptime![component as u32] < inside {
                elements[at + component * companion.inner] = value.extract(component);
            }
        }
    }
}

/// Applies results to a load and stores the vector. `segments` has those of its elements if there are
/// segments.
#[cube]
pub(super) fn apply_to_load(
    applier: &Applier<'_>,
    starts: OperandStarts,
    share: &Share<'_>,
    nth: usize,
    value: Vector<Real, Wide>,
    second: ComptimeOption<Vector<Stored2, Wide>>,
    results: Reals<Wide>,
    segments: ComptimeOption<InSegments<Wide>>,
) {
    let place = output_place(share, nth);
    let moves_back = comptime![applier.spec.moves_back];
    let mut result = Vector::<Real, Wide>::from_int(0);
    // A load that does not exist repeats another, whose own unit stores its elements. Operands are
    // inside the branch: an operand that lies beyond its tensor must not be read.
    if place.exists {
        let operands = load_operands(applier, starts, share, place, second, segments);
        let operands = Operands::<Wide>::of(operands);
        let apply = comptime![applier.spec.apply];
        let outputs = apply_to::<Wide>(apply, value, results, operands, applier.parameters);
        if outputs.has_b() {
            let value = inside_of_segments::<Wide>(outputs.b(), segments);
            let slices = applier.further.second;
            let value = converted::<Applied2, Wide>(value);
            store_further::<Applied2>(slices, applier, share, place, value, 0usize);
        }
        if outputs.has_c() {
            let value = inside_of_segments::<Wide>(outputs.c(), segments);
            let slices = applier.further.third;
            let value = converted::<Applied3, Wide>(value);
            store_further::<Applied3>(slices, applier, share, place, value, 1usize);
        }
        let value = inside_of_segments::<Wide>(outputs.a(), segments);
        if comptime![moves_back] {
            result = value;
        } else {
            store(applier, share, place, converted::<Applied, Wide>(value));
        }
    }
    // All lanes of a plane exchange elements, those of loads that do not exist too.
    if comptime![moves_back] {
        store_moved_back(applier, share, nth, place, result);
    }
}

/// Stores the vector of a load.
#[cube]
fn store(
    applier: &Applier<'_>,
    share: &Share<'_>,
    place: OutputPlace,
    value: Vector<Applied, Wide>,
) {
    let access = comptime![share.access];
    let vector = comptime![access.vector];
    let tile = share.tile;
    let in_vectors = applier.output.is_some();
    let in_part = comptime![access.peeled && access.direction == Direction::Across];
    let mut elements = select(comptime![!in_vectors].runtime(), components_inside(share), 0u32);
    if comptime![in_vectors] {
        if comptime![in_part] {
            if tile.results == comptime![vector as u32] {
                let mut output = applier.output.unwrap();
                output[place.output / vector] = value;
            } else {
                elements = tile.results;
            }
        } else {
            let mut output = applier.output.unwrap();
            output[place.output / vector] = value;
        }
    }
    if comptime![!in_vectors || in_part] {
        let mut output = applier.elements.unwrap();
        #[unroll]
        for nth in 0..vector {
            if comptime![nth as u32] < elements {
                output[place.output + nth * share.geometry.inner_target_stride] =
                    value.extract(nth);
            }
        }
    }
}

/// Stores the elements of realigned rows as vectors of the output, whose rows begin anywhere. A
/// vector that begins in the load of another unit is stored by the unit that has its end, and single
/// elements where these units are lanes of different planes or at the ends of a row. All lanes of
/// the plane must call it.
#[cube]
fn store_moved_back(
    applier: &Applier<'_>,
    share: &Share<'_>,
    nth: usize,
    place: OutputPlace,
    value: Vector<Real, Wide>,
) {
    let vector = comptime![share.access.vector];
    let lanes = comptime![applier.spec.team.lanes()];
    let member = share.place.member;
    // The lane before has the load before.
    let of_lane_before = plane_shuffle_up(value, 1u32);
    let starts_row = place.element == 0;
    let next = output_place(share, nth + 1);
    let ends_row = !next.exists || next.element == 0;
    let lane = member % lanes;
    let joins_before = lane > 0 && !starts_row;
    let joins_after = lane + 1 < lanes && !ends_row;
    // Elements of the output's vector before the first of the load.
    let before = place.output % vector;
    let whole = before == 0;
    let first = select(whole, value, of_lane_before);
    let by = u32::cast_from((vector - before) % vector);
    let moved = moved_together::<Real>(first, value, by);
    let value = converted::<Applied, Wide>(value);
    let mut elements = applier.elements.unwrap();
    if place.exists {
        if whole || joins_before {
            let mut output = applier.output.unwrap();
            output[place.output / vector] = converted::<Applied, Wide>(moved);
        }
        #[unroll]
        for component in 0..vector {
            let in_first = component + before < vector;
            let joined = (in_first && joins_before) || (!in_first && joins_after);
            let stored = whole || joined;
            if !stored {
                elements[place.output + component] = value.extract(component);
            }
        }
    }
}
