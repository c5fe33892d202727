//! Tiles that are held and taken in two passes.

use cubecl::prelude::*;
use reduce_planner::{Access, Combine, Direction};

use super::{Hold, apply::spot, held::Held};
use crate::{
    kernels::{
        accumulate::{Share, load_inside},
        args::Input,
        combine::combine_plane,
        geometry::{Geometry, Tile, unknown_zero},
        load::{AtEnd, Loaded, edge_slots, load_edge},
        team::{Place, Team},
        total::combine_team,
    },
    operator::{
        A, Accumulator, AccumulatorTypes, Block, BlockTraits, Columns, In, OperatorRef, Parameters,
        PassWidth, PassesRef, Position, Results, Single, Wide, after_first, between, block::spread,
        finish_passes, identity, one_input, push, push_block,
    },
};

/// A pass over the elements of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Pass {
    First,
    Second,
}

/// The operator of a pass.
fn operator_of(passes: PassesRef, pass: Pass) -> OperatorRef {
    OperatorRef(match pass {
        Pass::First => passes.get().first,
        Pass::Second => passes.get().second,
    })
}

/// The results of a tile, in all members of its team. It may contain barriers, so every unit of the
/// cube must call it. `N` is [`Single`] along, and [`Wide`] across.
#[cube]
pub(super) fn results_in_passes<N: PassWidth>(
    held: &Held,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    place: Place,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] hold: Hold,
    #[comptime] passes: PassesRef,
) -> Results<N> {
    let count = geometry.reduction_len;
    let nothing = Vector::<A, N>::from_int(0);
    let first = of_unit::<N>(
        held,
        nothing,
        input,
        geometry,
        parameters,
        tile,
        share,
        access,
        team,
        hold,
        passes,
        Pass::First,
    );
    let operator = comptime![operator_of(passes, Pass::First)];
    let first = everywhere::<N>(first, geometry, parameters, place, team, operator);
    let first = after_first::<N>(passes, first, count, parameters);
    let second = of_unit::<N>(
        held,
        first,
        input,
        geometry,
        parameters,
        tile,
        share,
        access,
        team,
        hold,
        passes,
        Pass::Second,
    );
    let operator = comptime![operator_of(passes, Pass::Second)];
    let second = everywhere::<N>(second, geometry, parameters, place, team, operator);
    finish_passes::<N>(passes, first, second, count, parameters)
}

/// The accumulator of the elements of one unit. The first pass stores those that are held in shared
/// memory.
#[cube]
fn of_unit<N: PassWidth>(
    held: &Held,
    first: Vector<A, N>,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] hold: Hold,
    #[comptime] passes: PassesRef,
    #[comptime] pass: Pass,
) -> Accumulator<N> {
    let operator = comptime![operator_of(passes, pass)];
    let mut values = Sequence::<Vector<In, Wide>>::new();
    #[unroll]
    for k in 0..comptime![access.loads_in_flight] {
        values.push(held.value(k));
    }
    let traits = comptime![BlockTraits { whole: hold.is_whole(), ascending: false, starts: false }];
    let block = block_of::<N>(&held.loads, &values, first, parameters, traits, passes, pass);
    let (pushed, _) = push_block::<N>(operator, identity::<N>(operator), &block, parameters);
    let mut total = pushed;
    if comptime![hold.in_shared() > 0] {
        let mut kept = held.kept.unwrap();
        let in_flight = comptime![access.loads_in_flight];
        let units = comptime![team.units_per_cube as usize];
        let zero = unknown_zero(geometry.tiles, geometry.outputs);
        let mut nth = share.first + share.stride * in_flight;
        let mut slot = UNIT_POS as usize;
        for _ in 0..comptime![(hold.in_shared() / in_flight) as u32] + zero {
            if nth < geometry.loads_per_tile {
                let mut loads = Sequence::<Loaded>::new();
                #[unroll]
                for k in 0..in_flight {
                    let number = nth + k * share.stride;
                    match comptime![pass] {
                        Pass::First => {
                            let loaded = load_inside(
                                input,
                                geometry,
                                tile,
                                number,
                                nth,
                                AtEnd::Never,
                                access,
                            );
                            kept[slot + k * units] = loaded.value;
                            loads.push(loaded);
                        }
                        Pass::Second => loads.push(Loaded {
                            value: kept[slot + k * units],
                            second: ComptimeOption::new_None(),
                            position: Position { start: 0usize, step: 0usize },
                            valid: spot(geometry, tile, number, access).exists,
                        }),
                    }
                }
                let mut values = Sequence::<Vector<In, Wide>>::new();
                #[unroll]
                for k in 0..in_flight {
                    values.push(Vector::cast_from(loads.index(k).value));
                }
                let block = block_of::<N>(&loads, &values, first, parameters, traits, passes, pass);
                let (pushed, _) = push_block::<N>(operator, total, &block, parameters);
                total = pushed;
            }
            nth += share.stride * in_flight;
            slot += comptime![units * in_flight];
        }
    }
    if comptime![access.peeled && access.direction == Direction::Along] {
        let slots = geometry.inner_count * comptime![edge_slots(access.vector)];
        let mut slot = share.first;
        while slot < slots {
            let edge = load_edge(input, geometry, tile, slot, access);
            if edge.valid {
                let element = Vector::<In, Single>::cast_from(edge.value);
                let value = Vector::<In, N>::cast_from(element);
                let value = if comptime![pass == Pass::Second] {
                    between::<N>(passes, value, first, parameters)
                } else {
                    value
                };
                let inputs = one_input::<N>(value);
                total = push::<N>(operator, total, inputs, edge.position, parameters);
            }
            slot += share.stride;
        }
    }
    total
}

/// The block of these loads with these elements, as the pass takes them.
#[cube]
fn block_of<N: PassWidth>(
    loads: &Sequence<Loaded>,
    values: &Sequence<Vector<In, Wide>>,
    first: Vector<A, N>,
    parameters: &Parameters,
    #[comptime] traits: BlockTraits,
    #[comptime] passes: PassesRef,
    #[comptime] pass: Pass,
) -> Block<Wide> {
    let mut block = Block::<Wide>::new(traits);
    let first = spread::<A, N, Wide>(first);
    #[unroll]
    for k in 0..loads.len().comptime() {
        let loaded = *loads.index(k);
        let value = *values.index(k);
        let value = if comptime![pass == Pass::Second] {
            between::<Wide>(passes, value, first, parameters)
        } else {
            value
        };
        block.add(value, loaded.position, loaded.valid);
    }
    block
}

/// The accumulator of a team, the same in all of its members. Merges must be commutative to the last
/// bit, because members merge in different orders. It may contain barriers, so every unit of the
/// cube must call it.
#[cube]
fn everywhere<N: PassWidth>(
    total: Accumulator<N>,
    geometry: &Geometry,
    parameters: &Parameters,
    place: Place,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) -> Accumulator<N> {
    let zero = unknown_zero(geometry.tiles, geometry.outputs);
    let lanes = comptime![team.lanes()];
    let fields = comptime![operator.0.fields];
    let planes = comptime![team.units_per_tile / lanes];
    if comptime![team.units_per_tile == 1] {
        total
    } else if comptime![lanes > 1 && planes <= lanes] {
        let of_lanes =
            combine_plane::<N>(total, parameters, zero, lanes, team.unit_stride, operator);
        if comptime![planes > 1] {
            let places = comptime![planes as usize * team.tiles_per_cube()];
            let mut shared = Columns::<AccumulatorTypes, N>::shared(places, fields);
            let own = place.tile * planes;
            let plane = place.member / lanes;
            if place.member == plane * lanes {
                shared.put((own + plane) as usize, of_lanes);
            }
            sync_cube();
            let of_plane = shared.at((own + place.member % planes) as usize);
            combine_plane::<N>(of_plane, parameters, zero, planes, 1u32, operator)
        } else {
            of_lanes
        }
    } else {
        let of_team = combine_team::<N>(total, parameters, zero, team, operator);
        let mut shared = Columns::<AccumulatorTypes, N>::shared(team.tiles_per_cube(), fields);
        if place.member == 0 {
            shared.put(place.tile as usize, of_team);
        }
        sync_cube();
        shared.at(place.tile as usize)
    }
}

impl Team {
    /// Lanes of a plane that combine by plane operations, 1 if none do.
    fn lanes(self) -> u32 {
        match self.combine {
            Combine::Plane { lanes } => lanes,
            Combine::Shared => 1,
        }
    }
}
