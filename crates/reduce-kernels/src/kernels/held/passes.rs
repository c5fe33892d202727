//! Tiles that are held and taken in two passes.

use cubecl::prelude::*;

use super::{Held, second_of_load};
use crate::{
    kernels::{
        accumulate::load_inside,
        combine::combine_plane,
        conversion::as_pushed,
        load::{AtEnd, Loaded, edge_slots, load_edge},
        reducer::Reducer,
        share::Share,
        team::UnitPlace,
        total::{combine_team, has_edges},
    },
    operator::{
        Accumulator, AccumulatorTypes, Block, BlockTraits, Columns, In, OperatorRef, Parameters,
        PassWidth, PassesRef, Position, Results, Single, Stored2, Wide, after_first, between,
        element_of, finish_passes, one_input, push, push_block, two_inputs,
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
pub(in crate::kernels) fn results_in_passes<N: PassWidth>(
    held: &Held,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Results<N> {
    let passes = comptime![PassesRef(reducer.operator)];
    let parameters = reducer.parameters;
    let count = share.geometry.reduction_len;
    let nothing = Accumulator::<N>::none();
    let first = total_of_pass::<N>(held, nothing, share, reducer, Pass::First);
    let after = after_first::<N>(passes, first, count, parameters);
    let second = total_of_pass::<N>(held, after, share, reducer, Pass::Second);
    finish_passes::<N>(passes, first, second, count, parameters)
}

/// The accumulator of a pass, in all members of the team.
#[cube]
fn total_of_pass<N: PassWidth>(
    held: &Held,
    after: Accumulator<N>,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
    #[comptime] pass: Pass,
) -> Accumulator<N> {
    let passes = comptime![PassesRef(reducer.operator)];
    let reducer = reducer.with_operator(comptime![operator_of(passes, pass)]);
    let of_unit = accumulate_pass::<N>(held, after, share, &reducer, passes, pass);
    everywhere::<N>(of_unit, share.unknown_zero(), share.place, &reducer)
}

/// The accumulator of the elements of one unit, where the second pass needs what comes `after` the
/// first. The first pass stores those that are held in shared memory.
#[cube]
fn accumulate_pass<N: PassWidth>(
    held: &Held,
    after: Accumulator<N>,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
    #[comptime] passes: PassesRef,
    #[comptime] pass: Pass,
) -> Accumulator<N> {
    let access = comptime![share.access];
    let operator = comptime![reducer.operator];
    let geometry = share.geometry;
    let parameters = reducer.parameters;
    let mut values = Sequence::<Vector<In, Wide>>::new();
    #[unroll]
    for k in 0..comptime![access.loads_in_flight] {
        let again = comptime![pass == Pass::Second && held.hold.reads_second_again()];
        let second = if comptime![again] {
            second_of_load(share, share.first + k * share.stride, share.first)
        } else {
            held.loads.index(k).second
        };
        values.push(element::<Wide, Wide>(held.value(k), second, parameters, passes));
    }
    // Passes take blocks that are never refused, so nothing reads elements again. Where all loads
    // of all units exist, nothing asks whether they do.
    let held_loads = comptime![access.loads_in_flight + held.hold.in_shared()];
    let whole = comptime![held.hold.sure(held_loads) == held_loads];
    let traits = comptime![BlockTraits { whole, ascending: false, starts: false }];
    let block = block_of::<N>(&held.loads, &values, after, parameters, traits, passes, pass);
    let (pushed, _) = push_block::<N>(operator, reducer.identity::<N>(), &block, parameters);
    let mut total = pushed;
    if comptime![held.hold.in_shared() > 0] {
        let mut kept = held.kept.unwrap();
        let mut turn = held.first_turn(share);
        for _ in 0..held.turns(share) {
            if turn.first < geometry.loads_per_tile {
                let mut loads = Sequence::<Loaded>::new();
                #[unroll]
                for k in 0..comptime![access.loads_in_flight] {
                    let nth = turn.first + k * share.stride;
                    match comptime![pass] {
                        Pass::First => {
                            let loaded = load_inside(share, nth, turn.first, AtEnd::Never);
                            kept[held.place(&turn, k)] = loaded.value;
                            loads.push(loaded);
                        }
                        // Operators of a second pass need no positions. Compilers drop a load
                        // whose elements are not used.
                        Pass::Second => {
                            let again = load_inside(share, nth, turn.first, AtEnd::Never);
                            loads.push(Loaded {
                                value: kept[held.place(&turn, k)],
                                second: again.second,
                                position: Position { start: 0usize, step: 0usize },
                                valid: again.valid,
                            });
                        }
                    }
                }
                let mut values = Sequence::<Vector<In, Wide>>::new();
                #[unroll]
                for k in 0..comptime![access.loads_in_flight] {
                    let loaded = *loads.index(k);
                    let value = as_pushed(loaded.value);
                    values.push(element::<Wide, Wide>(value, loaded.second, parameters, passes));
                }
                let block = block_of::<N>(&loads, &values, after, parameters, traits, passes, pass);
                let (pushed, _) = push_block::<N>(operator, total, &block, parameters);
                total = pushed;
            }
            held.end_turn(&mut turn, share);
        }
    }
    if comptime![has_edges(access)] {
        let slots = geometry.inner_count * comptime![edge_slots(access.vector)];
        let mut slot = share.first;
        while slot < slots {
            let edge = load_edge(share, slot);
            if edge.valid {
                let value = Vector::<In, Single>::cast_from(edge.value);
                let value = element::<N, Single>(
                    Vector::<In, N>::cast_from(value),
                    edge.second,
                    parameters,
                    passes,
                );
                let value = if comptime![pass == Pass::Second] {
                    between::<N>(passes, value, after, parameters)
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

/// What passes take of an element and that of the second input that goes with it, if there is one.
#[cube]
fn element<N: PassWidth, W: Size>(
    value: Vector<In, N>,
    second: ComptimeOption<Vector<Stored2, W>>,
    parameters: &Parameters,
    #[comptime] passes: PassesRef,
) -> Vector<In, N> {
    let inputs = if comptime![passes.0.0.inputs == 2] {
        let second = as_pushed(second.unwrap());
        two_inputs::<N>(value, Vector::cast_from(second))
    } else {
        one_input::<N>(value)
    };
    element_of::<N>(passes, inputs, parameters)
}

/// The block of these loads with these elements, as the pass takes them.
#[cube]
fn block_of<N: PassWidth>(
    loads: &Sequence<Loaded>,
    values: &Sequence<Vector<In, Wide>>,
    after: Accumulator<N>,
    parameters: &Parameters,
    #[comptime] traits: BlockTraits,
    #[comptime] passes: PassesRef,
    #[comptime] pass: Pass,
) -> Block<Wide> {
    let mut block = Block::<Wide>::new(traits);
    let after = after.spread::<Wide>();
    #[unroll]
    for k in 0..loads.len().comptime() {
        let loaded = *loads.index(k);
        let value = *values.index(k);
        let value = if comptime![pass == Pass::Second] {
            between::<Wide>(passes, value, after, parameters)
        } else {
            value
        };
        block.add(value, loaded.position, loaded.valid);
    }
    block
}

/// The accumulator of a team, the same in all of its members. Merges must be commutative to the
/// last bit, because members merge in different orders. It may contain barriers, so every unit of
/// the cube must call it.
#[cube]
fn everywhere<N: PassWidth>(
    total: Accumulator<N>,
    zero: u32,
    place: UnitPlace,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let team = comptime![reducer.team];
    let lanes = comptime![team.lanes()];
    let fields = comptime![reducer.operator.0.fields];
    // Merges are commutative to the last bit, so a butterfly leaves the same bits in all lanes. One
    // barrier joins the planes of a cube: each plane then merges what all of them have put down,
    // instead of one plane that passes the total on behind a second barrier.
    let planes = comptime![team.units_per_tile / lanes];
    if comptime![team.units_per_tile == 1] {
        total
    } else if comptime![lanes > 1 && planes <= lanes] {
        let of_lanes = combine_plane::<N>(total, zero, reducer, lanes, comptime![team.unit_stride]);
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
            combine_plane::<N>(of_plane, zero, reducer, planes, 1u32)
        } else {
            of_lanes
        }
    } else {
        let of_team = combine_team::<N>(total, zero, reducer);
        let mut shared = Columns::<AccumulatorTypes, N>::shared(team.tiles_per_cube(), fields);
        if place.member == 0 {
            shared.put(place.tile as usize, of_team);
        }
        sync_cube();
        shared.at(place.tile as usize)
    }
}
