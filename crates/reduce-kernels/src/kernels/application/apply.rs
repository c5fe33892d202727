//! The application of results to a share of a tile.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    Hold, How,
    held::Held,
    operands::{edge_operands, load_operands, operand_offset},
};
use crate::{
    kernels::{
        accumulate::{Share, load_inside},
        args::{AppliedArrays, Input, OperandArrays, OperandSlices, operands_of, whole_if_any},
        companion::{Companion, CompanionAccess, components_inside},
        geometry::{Geometry, Tile, offsets, unknown_zero},
        load::{AtEnd, Loaded, edge_slots, load_edge},
    },
    operator::{
        Applied, Operands, Parameters, Real, Reals, Single, Slice, Stored2, Wide, apply_to,
    },
};

/// What an application reads and writes beside the input.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Beside {
    output: ComptimeOption<Slice<Vector<Applied, Wide>>>,
    elements: ComptimeOption<Slice<Applied>>,
    pub(super) operands: OperandSlices,
    /// The offset of the tile in each operand.
    pub(super) first: usize,
    pub(super) second: usize,
    pub(super) third: usize,
}

/// Applies results to a share of a tile: to the loads that are held, or to loads that are issued
/// here.
#[cube]
pub(super) fn apply_to_share(
    held: &Held,
    input: &Input,
    operands: &OperandArrays,
    output: &mut AppliedArrays,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    results: Reals<Wide>,
    edge_results: Reals<Single>,
    #[comptime] hold: Hold,
    #[comptime] how: How,
) {
    let access = comptime![how.access];
    let beside = Beside {
        output: whole_if_any(&output.vectors),
        elements: whole_if_any(&output.elements),
        operands: operands_of(operands),
        first: operand_offset(companions, geometry, tile, 0usize, how),
        second: operand_offset(companions, geometry, tile, 1usize, how),
        third: operand_offset(companions, geometry, tile, 2usize, how),
    };
    let in_flight = comptime![access.loads_in_flight];
    if comptime![hold == Hold::Nothing] {
        let mut first = share.first;
        while first < geometry.loads_per_tile {
            let mut loads = Sequence::<Loaded>::new();
            #[unroll]
            for k in 0..in_flight {
                let nth = first + k * share.stride;
                loads.push(load_inside(input, geometry, tile, nth, first, AtEnd::Never, access));
            }
            #[unroll]
            for k in 0..in_flight {
                let nth = first + k * share.stride;
                let value = Vector::<Real, Wide>::cast_from(loads.index(k).value);
                let second = loads.index(k).second;
                apply_to_load(
                    value, second, nth, beside, geometry, companions, parameters, tile, results,
                    how,
                );
            }
            first += share.stride * in_flight;
        }
    } else {
        #[unroll]
        for k in 0..in_flight {
            let nth = share.first + k * share.stride;
            let value = held.applied_to(k);
            let second = held.loads.index(k).second;
            apply_to_load(
                value, second, nth, beside, geometry, companions, parameters, tile, results, how,
            );
        }
        if comptime![hold.in_shared() > 0] {
            let kept = held.kept.unwrap();
            let units = comptime![how.team.units_per_cube as usize];
            let zero = unknown_zero(geometry.tiles, geometry.outputs);
            let mut first = share.first + share.stride * in_flight;
            let mut slot = UNIT_POS as usize;
            for _ in 0..comptime![(hold.in_shared() / in_flight) as u32] + zero {
                #[unroll]
                for k in 0..in_flight {
                    let nth = first + k * share.stride;
                    let value = Vector::<Real, Wide>::cast_from(kept[slot + k * units]);
                    let second = second_of_load(input, geometry, tile, nth, first, access);
                    apply_to_load(
                        value, second, nth, beside, geometry, companions, parameters, tile,
                        results, how,
                    );
                }
                first += share.stride * in_flight;
                slot += comptime![units * in_flight];
            }
        }
    }
    if comptime![access.peeled && access.direction == Direction::Along] {
        let slots = geometry.inner_count * comptime![edge_slots(access.vector)];
        let mut slot = share.first;
        while slot < slots {
            let edge = load_edge(input, geometry, tile, slot, access);
            if tile.results > 0 && edge.valid {
                let outer = slot / comptime![edge_slots(access.vector)];
                let operands = Operands::<Single>::of(edge_operands(
                    beside,
                    geometry,
                    companions,
                    outer,
                    edge.element,
                    edge.second,
                    how,
                ));
                let value = apply_to::<Single>(
                    comptime![how.apply],
                    Vector::cast_from(edge.value),
                    edge_results,
                    operands,
                    parameters,
                );
                let mut elements = beside.elements.unwrap();
                elements[tile.output + edge.position.start] =
                    Applied::cast_from(value.extract(0usize));
            }
            slot += share.stride;
        }
    }
}

/// The elements of the second input that go with load number `nth`, if there is one. A load past the
/// end repeats load `other`.
#[cube]
fn second_of_load(
    input: &Input,
    geometry: &Geometry,
    tile: Tile,
    nth: usize,
    other: usize,
    #[comptime] access: Access,
) -> ComptimeOption<Vector<Stored2, Wide>> {
    if comptime![input.second_access == CompanionAccess::None] {
        ComptimeOption::new_None()
    } else {
        // The elements of the input, which are held, are not used: compilers drop their loads.
        let last = geometry.loads_per_tile - 1;
        load_inside(input, geometry, tile, nth, clamp_max(other, last), AtEnd::Never, access).second
    }
}

/// Where a load lies.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Spot {
    /// Index over the reduced dimensions of the geometry.
    pub(super) outer: usize,
    /// Along, number of the first element in the inner dimension.
    pub(super) element: usize,
    /// Offset of the first element in the output.
    pub(super) output: usize,
    /// Whether the load exists, in a tile with results.
    pub(super) exists: bool,
}

/// Where load number `nth` of a tile lies.
#[cube]
pub(super) fn spot(
    geometry: &Geometry,
    tile: Tile,
    nth: usize,
    #[comptime] access: Access,
) -> Spot {
    let vector = comptime![access.vector];
    let inside = tile.results > 0 && nth < geometry.loads_per_tile;
    match comptime![access.direction] {
        Direction::Along => {
            let outer_dims = geometry.reduced.len().comptime();
            let mut outer = 0usize;
            let mut slot = nth;
            let mut start = tile.input;
            let mut target = tile.output;
            if comptime![outer_dims > 0] {
                let (quotient, load) = geometry.loads_per_inner.div_mod(nth);
                let at = offsets(&geometry.reduced, quotient);
                outer = quotient;
                slot = load;
                start += at.input;
                target += at.target;
            }
            let mut element = slot * vector;
            let mut exists = inside;
            if comptime![access.peeled] {
                element = (start.div_ceil(vector) + slot) * vector - start;
                exists = inside && element + vector <= geometry.inner_len;
            }
            let output = target + element * geometry.inner_target_stride;
            Spot { outer, element, output, exists }
        }
        Direction::Across => {
            let target = offsets(&geometry.reduced, nth).target;
            Spot { outer: nth, element: 0usize, output: tile.output + target, exists: inside }
        }
    }
}

/// Applies results to a load and stores the vector.
#[cube]
fn apply_to_load(
    value: Vector<Real, Wide>,
    second: ComptimeOption<Vector<Stored2, Wide>>,
    nth: usize,
    beside: Beside,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    parameters: &Parameters,
    tile: Tile,
    results: Reals<Wide>,
    #[comptime] how: How,
) {
    let access = comptime![how.access];
    let vector = comptime![access.vector];
    let spot = spot(geometry, tile, nth, access);
    if spot.exists {
        let operands = Operands::<Wide>::of(load_operands(
            beside, geometry, companions, tile, spot, second, how,
        ));
        let value = apply_to::<Wide>(comptime![how.apply], value, results, operands, parameters);
        let value = Vector::<Applied, Wide>::cast_from(value);
        let in_vectors = beside.output.is_some();
        let in_part = comptime![access.peeled && access.direction == Direction::Across];
        let mut elements =
            select(comptime![!in_vectors].runtime(), components_inside(tile, access), 0u32);
        if comptime![in_vectors] {
            if comptime![in_part] {
                if tile.results == comptime![vector as u32] {
                    let mut output = beside.output.unwrap();
                    output[spot.output / vector] = value;
                } else {
                    elements = tile.results;
                }
            } else {
                let mut output = beside.output.unwrap();
                output[spot.output / vector] = value;
            }
        }
        if comptime![!in_vectors || in_part] {
            let mut output = beside.elements.unwrap();
            #[unroll]
            for nth in 0..vector {
                if comptime![nth as u32] < elements {
                    output[spot.output + nth * geometry.inner_target_stride] = value.extract(nth);
                }
            }
        }
    }
}
