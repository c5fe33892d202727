//! Reductions whose results are applied to their own elements.
//!
//! A team makes the results of its tile, its members share them, and each member applies them to the
//! elements that it has read: from its registers, or by reading them again.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    accumulate::{Share, accumulate_edges, load_inside},
    args::{
        AppliedArrays, Input, InputArrays, KernelTypes, OperandArrays, OperandSlices, ResultArrays,
        input_of, operands_of, output_of, whole_mut,
    },
    combine::combine_components,
    geometry::{Dim, Geometry, Tile, locate, offsets, unknown_zero},
    load::{AtEnd, Loaded, edge_slots, load_edge},
    single_pass::taken,
    team::{Place, Team, place},
    total::{combine_team, total_across, total_along},
};
use crate::operator::{
    Accumulator, Applied, ApplyRef, Columns, Field, Operand, Operand2, Operand3, Operands,
    OperatorRef, Parameters, Real, RealTypes, Reals, Record, ResultTypes, Results, Single, Wide,
    Width, apply_to, finish, merge,
};

/// The strides of a tensor beside the input, for the dimensions of a [`Geometry`].
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Companion {
    /// Strides along [`Geometry::kept`].
    pub(crate) kept: Sequence<usize>,
    /// Strides along [`Geometry::reduced`].
    pub(crate) reduced: Sequence<usize>,
    /// Stride along the inner dimension.
    pub(crate) inner: usize,
}

/// How the components of an operand that belong to one load are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OperandAccess {
    /// There is no such operand.
    None,
    /// All components are the same element.
    Same,
    /// They are a vector in memory.
    Vector,
    /// They are read one by one.
    Elements,
}

/// What kernels know of an application when they are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct How {
    pub(crate) access: Access,
    pub(crate) team: Team,
    pub(crate) apply: ApplyRef,
    pub(crate) operands: [OperandAccess; 3],
    /// The number of results.
    pub(crate) results: usize,
}

/// What an application reads and writes beside the input.
#[derive(CubeType, Clone, Copy)]
struct Beside {
    output: ComptimeOption<SliceMut<Vector<Applied, Wide>>>,
    elements: ComptimeOption<SliceMut<Applied>>,
    operands: OperandSlices,
    /// The offset of the tile in each operand.
    first: usize,
    second: usize,
    third: usize,
}

/// Each team reduces one tile and applies the results to its elements. `results` is bound if the
/// caller wants them. `held` says whether units hold their elements.
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
    #[comptime] held: bool,
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
    let mut loads = Sequence::<Loaded>::new();
    if comptime![held] {
        // A unit without loads repeats those of another.
        let other = clamp_max(share.first, geometry.loads_per_tile - 1);
        #[unroll]
        for k in 0..comptime![access.loads_in_flight] {
            let nth = share.first + k * units;
            loads.push(load_inside(&input, geometry, tile, nth, other, AtEnd::Never, access));
        }
    }
    let stores = stored.elements.is_some();
    match comptime![access.direction] {
        Direction::Along => {
            let total = if comptime![held] {
                held_along(
                    &loads, &input, geometry, parameters, tile, share, access, team, operator,
                )
            } else {
                total_along(&input, geometry, parameters, tile, share, access, team, operator)
            };
            let own = finish::<Single>(operator, total, geometry.reduction_len, parameters);
            if comptime![stores] {
                if place.member == 0 && tile.results > 0 {
                    let at = tile_offset(companions.index(0usize), geometry, tile, access);
                    stored.elements.put(at, own);
                }
            }
            let shared = shared_results::<Single>(own, place, team, comptime![how.results]);
            let results = shared.converted::<RealTypes>();
            apply_to_share(
                &loads,
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
                held,
                how,
            );
        }
        Direction::Across => {
            let total = if comptime![held] {
                held_across(
                    &loads, &input, geometry, parameters, tile, share, access, team, operator,
                )
            } else {
                total_across(&input, geometry, parameters, tile, share, access, team, operator)
            };
            let own = finish::<Wide>(operator, total, geometry.reduction_len, parameters);
            if comptime![stores] {
                if place.member == 0 {
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
            let shared = shared_results::<Wide>(own, place, team, comptime![how.results]);
            let results = shared.converted::<RealTypes>();
            apply_to_share(
                &loads,
                &input,
                operands,
                output,
                geometry,
                companions,
                apply_parameters,
                tile,
                share,
                results,
                results.component(0usize),
                held,
                how,
            );
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
    let loads = Sequence::<Loaded>::new();
    match comptime![access.direction] {
        Direction::Along => {
            let results = stored.elements.at(at).converted::<RealTypes>();
            apply_to_share(
                &loads,
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
                false,
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
                &loads,
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
                false,
                how,
            );
        }
    }
}

/// The accumulator of a tile whose loads are held, complete in member 0.
#[cube]
fn held_along(
    loads: &Sequence<Loaded>,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let of_vectors = if comptime![operator.0.blocks.is_some()] {
        taken::<Single>(
            loads,
            input,
            geometry,
            parameters,
            tile,
            share.first,
            share.stride,
            access,
            operator,
        )
    } else {
        let wide = taken::<Wide>(
            loads,
            input,
            geometry,
            parameters,
            tile,
            share.first,
            share.stride,
            access,
            operator,
        );
        combine_components(wide, parameters, operator)
    };
    let of_unit = if comptime![access.peeled] {
        let edges = accumulate_edges(input, geometry, parameters, tile, share, access, operator);
        merge::<Single>(operator, of_vectors, edges, parameters)
    } else {
        of_vectors
    };
    let zero = unknown_zero(geometry.tiles, geometry.outputs);
    combine_team::<Single>(of_unit, parameters, zero, team, operator)
}

/// The accumulators of a tile whose loads are held, complete in member 0.
#[cube]
fn held_across(
    loads: &Sequence<Loaded>,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Wide> {
    let wide = taken::<Wide>(
        loads,
        input,
        geometry,
        parameters,
        tile,
        share.first,
        share.stride,
        access,
        operator,
    );
    let zero = unknown_zero(geometry.tiles, geometry.outputs);
    combine_team::<Wide>(wide, parameters, zero, team, operator)
}

/// The results of member 0, for all members of its team. It contains a barrier, so every unit of the
/// cube must call it.
#[cube]
fn shared_results<N: Width>(
    own: Results<N>,
    place: Place,
    #[comptime] team: Team,
    #[comptime] results: usize,
) -> Results<N> {
    if comptime![team.units_per_tile > 1] {
        let mut shared = Columns::<ResultTypes, N>::shared(team.tiles_per_cube(), results);
        if place.member == 0 {
            shared.put(place.tile as usize, own);
        }
        sync_cube();
        shared.at(place.tile as usize)
    } else {
        own
    }
}

/// Applies results to a share of a tile: to the loads that are held, or to loads that are issued
/// here.
#[cube]
fn apply_to_share(
    held_loads: &Sequence<Loaded>,
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
    #[comptime] held: bool,
    #[comptime] how: How,
) {
    let access = comptime![how.access];
    let beside = Beside {
        output: whole_mut(&mut output.vectors),
        elements: whole_mut(&mut output.elements),
        operands: operands_of(operands),
        first: operand_offset(companions, geometry, tile, 0usize, how),
        second: operand_offset(companions, geometry, tile, 1usize, how),
        third: operand_offset(companions, geometry, tile, 2usize, how),
    };
    if comptime![held] {
        #[unroll]
        for k in 0..comptime![access.loads_in_flight] {
            let nth = share.first + k * share.stride;
            let loaded = *held_loads.index(k);
            if tile.results > 0 && nth < geometry.loads_per_tile && loaded.valid {
                apply_to_load(
                    loaded, nth, beside, geometry, companions, parameters, tile, results, how,
                );
            }
        }
    } else {
        let mut first = share.first;
        while first < geometry.loads_per_tile {
            let mut loads = Sequence::<Loaded>::new();
            #[unroll]
            for k in 0..comptime![access.loads_in_flight] {
                let nth = first + k * share.stride;
                loads.push(load_inside(input, geometry, tile, nth, first, AtEnd::Never, access));
            }
            #[unroll]
            for k in 0..comptime![access.loads_in_flight] {
                let loaded = *loads.index(k);
                if tile.results > 0 && loaded.valid {
                    let nth = first + k * share.stride;
                    apply_to_load(
                        loaded, nth, beside, geometry, companions, parameters, tile, results, how,
                    );
                }
            }
            first += share.stride * comptime![access.loads_in_flight];
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
                elements[tile.output + edge.position.start] = Applied::cast_from(value[0]);
            }
            slot += share.stride;
        }
    }
}

/// Where a load lies.
#[derive(CubeType, Clone, Copy)]
struct Spot {
    /// Index over the reduced dimensions of the geometry.
    outer: usize,
    /// Along, number of the first element in the inner dimension.
    element: usize,
    /// Offset of the first element in the output.
    output: usize,
}

/// Where load number `nth` of a tile lies.
#[cube]
fn spot(geometry: &Geometry, tile: Tile, nth: usize, #[comptime] access: Access) -> Spot {
    let vector = comptime![access.vector];
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
            if comptime![access.peeled] {
                element = (start.div_ceil(vector) + slot) * vector - start;
            }
            Spot { outer, element, output: target + element * geometry.inner_target_stride }
        }
        Direction::Across => {
            let target = offsets(&geometry.reduced, nth).target;
            Spot { outer: nth, element: 0usize, output: tile.output + target }
        }
    }
}

/// Applies results to a load and stores the vector.
#[cube]
fn apply_to_load(
    loaded: Loaded,
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
    let operands =
        Operands::<Wide>::of(load_operands(beside, geometry, companions, tile, spot, how));
    let value = apply_to::<Wide>(
        comptime![how.apply],
        Vector::cast_from(loaded.value),
        results,
        operands,
        parameters,
    );
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
                output[spot.output + nth * geometry.inner_target_stride] = value[nth];
            }
        }
    }
}

/// The components of a load that belong to the tile.
#[cube]
fn components_inside(tile: Tile, #[comptime] access: Access) -> u32 {
    match comptime![access.direction] {
        Direction::Along => comptime![access.vector as u32].runtime(),
        Direction::Across => tile.results,
    }
}

/// The offset of a tile in a companion.
#[cube]
fn tile_offset(
    companion: &Companion,
    geometry: &Geometry,
    tile: Tile,
    #[comptime] access: Access,
) -> usize {
    match comptime![access.direction] {
        Direction::Along => strided(&geometry.kept, &companion.kept, tile.index),
        Direction::Across => {
            let row = tile.index / geometry.inner_len;
            let column = tile.index - row * geometry.inner_len;
            strided(&geometry.kept, &companion.kept, row) + column * companion.inner
        }
    }
}

/// The offset of a row-major index over `dims` with other strides.
#[cube]
fn strided(dims: &Sequence<Dim>, strides: &Sequence<usize>, index: usize) -> usize {
    let rank = dims.len().comptime();
    let mut rest = index;
    let mut offset = 0usize;
    #[unroll]
    for i in 0..rank {
        let nth = comptime![rank - 1 - i];
        let dim = dims.index(nth);
        let stride = *strides.index(nth);
        if comptime![i + 1 < rank] {
            let (outer, coordinate) = dim.extent.div_mod(rest);
            offset += coordinate * stride;
            rest = outer;
        } else {
            offset += rest * stride;
        }
    }
    offset
}

/// The offset of a tile in operand `nth`, 0 if there is none.
#[cube]
fn operand_offset(
    companions: &Sequence<Companion>,
    geometry: &Geometry,
    tile: Tile,
    #[comptime] nth: usize,
    #[comptime] how: How,
) -> usize {
    if comptime![how.operands[nth] == OperandAccess::None] {
        0usize.runtime()
    } else {
        tile_offset(companions.index(comptime![nth + 1]), geometry, tile, comptime![how.access])
    }
}

/// The operands of a load.
#[cube]
fn load_operands(
    beside: Beside,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    tile: Tile,
    spot: Spot,
    #[comptime] how: How,
) -> Reals<Wide> {
    Record::<RealTypes, Wide>::new(
        load_operand::<Operand>(
            beside.operands.first,
            beside.operands.first_wide,
            companions,
            geometry,
            tile,
            beside.first,
            spot,
            0usize,
            how,
        ),
        load_operand::<Operand2>(
            beside.operands.second,
            beside.operands.second_wide,
            companions,
            geometry,
            tile,
            beside.second,
            spot,
            1usize,
            how,
        ),
        load_operand::<Operand3>(
            beside.operands.third,
            beside.operands.third_wide,
            companions,
            geometry,
            tile,
            beside.third,
            spot,
            2usize,
            how,
        ),
        Field::<Real, Wide>::none(),
        Field::<Real, Wide>::none(),
    )
}

/// One operand of a load, from the offset of its tile.
#[cube]
fn load_operand<E: Float>(
    elements: ComptimeOption<Slice<E>>,
    vectors: ComptimeOption<Slice<Vector<E, Wide>>>,
    companions: &Sequence<Companion>,
    geometry: &Geometry,
    tile: Tile,
    start: usize,
    spot: Spot,
    #[comptime] nth: usize,
    #[comptime] how: How,
) -> Field<Real, Wide> {
    let access = comptime![how.access];
    let vector = comptime![access.vector];
    if comptime![how.operands[nth] == OperandAccess::None] {
        Field::<Real, Wide>::none()
    } else {
        let companion = companions.index(comptime![nth + 1]);
        let at = start
            + strided(&geometry.reduced, &companion.reduced, spot.outer)
            + spot.element * companion.inner;
        match comptime![how.operands[nth]] {
            OperandAccess::Vector => {
                let vectors = vectors.unwrap();
                Field::<Real, Wide>::some(Vector::cast_from(vectors[at / vector]))
            }
            OperandAccess::Same => {
                let elements = elements.unwrap();
                Field::<Real, Wide>::some(Vector::new(Real::cast_from(elements[at])))
            }
            _ => {
                let elements = elements.unwrap();
                let last = clamp_min(components_inside(tile, access), 1u32) - 1;
                let mut value = Vector::<Real, Wide>::empty();
                #[unroll]
                for component in 0..vector {
                    let inside = clamp_max(comptime![component as u32].runtime(), last);
                    let element = elements[at + inside as usize * companion.inner];
                    value[component] = Real::cast_from(element);
                }
                Field::<Real, Wide>::some(value)
            }
        }
    }
}

/// The operands of an element at an edge.
#[cube]
fn edge_operands(
    beside: Beside,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    outer: usize,
    element: usize,
    #[comptime] how: How,
) -> Reals<Single> {
    Record::<RealTypes, Single>::new(
        edge_operand::<Operand>(
            beside.operands.first,
            companions,
            geometry,
            beside.first,
            outer,
            element,
            0usize,
            how,
        ),
        edge_operand::<Operand2>(
            beside.operands.second,
            companions,
            geometry,
            beside.second,
            outer,
            element,
            1usize,
            how,
        ),
        edge_operand::<Operand3>(
            beside.operands.third,
            companions,
            geometry,
            beside.third,
            outer,
            element,
            2usize,
            how,
        ),
        Field::<Real, Single>::none(),
        Field::<Real, Single>::none(),
    )
}

#[cube]
fn edge_operand<E: Float>(
    elements: ComptimeOption<Slice<E>>,
    companions: &Sequence<Companion>,
    geometry: &Geometry,
    start: usize,
    outer: usize,
    element: usize,
    #[comptime] nth: usize,
    #[comptime] how: How,
) -> Field<Real, Single> {
    if comptime![how.operands[nth] == OperandAccess::None] {
        Field::<Real, Single>::none()
    } else {
        let companion = companions.index(comptime![nth + 1]);
        let at = start
            + strided(&geometry.reduced, &companion.reduced, outer)
            + element * companion.inner;
        let elements = elements.unwrap();
        Field::<Real, Single>::some(Vector::new(Real::cast_from(elements[at])))
    }
}
