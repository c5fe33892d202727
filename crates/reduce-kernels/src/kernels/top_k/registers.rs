//! Selections of short slices, each of which a few units hold in registers.

use cubecl::prelude::*;
use reduce_planner::{Access, Over};

use super::{
    buffer::Buffer,
    entry::Entry,
    offer::Offer,
    one_per_slice::OnePerSlice,
    probabilities::{InOrder, Softmax, write_probabilities},
    selected::{SelectedArrays, Source},
    selection::{Order, Selection},
    sort::number_of,
};
use crate::kernels::{
    accumulate::load_inside,
    args::{InputArrays, KernelTypes, input_of},
    geometry::Geometry,
    load::{AtEnd, Loaded},
    share::{Share, share_among_cubes},
};

/// Selects `k` elements of each slice and writes their values and positions.
///
/// Entry number `k` of the first entries of all units is a threshold: at least `k` entries reach
/// it, and they are of no more than `k` units. What reaches it is put in order by counting. The
/// buffer has places for a first entry of each unit, and for all entries of `k` units.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn select_in_registers(
    _types: &KernelTypes,
    input: &InputArrays,
    selected: &mut SelectedArrays,
    geometry: &Geometry,
    order: Order,
    k: u32,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    let input = input_of(input);
    let team = comptime![selection.team];
    let share = share_among_cubes(&input, geometry, CUBE_POS, 0usize, 1usize, access, team);
    let buffer = Buffer::new(share.place, selection);
    let threshold = OnePerSlice::new(share.place.tile, selection);
    let first_of_all = OnePerSlice::new(share.place.tile, selection);
    let offer = load_all(&share, order, selection);
    let first = offer.first();
    buffer.put(share.place.member, &first);
    threshold.put_if(&Entry::none(selection), share.place.member == 0);
    sync_cube();

    let mut number = 0u32.runtime();
    for nth in 0..comptime![team.units_per_tile] {
        number += u32::cast_from(buffer.at(nth).exceeds(&first));
    }
    // Units without elements have equal entries: if they are among the first `k`, there is no
    // threshold.
    threshold.put_if(&first, number + 1 == k && first.exists());
    first_of_all.put_if(&first, number == 0);
    sync_cube();

    let least = threshold.get();
    let spreads = first_of_all.get().spreads(order, selection);
    // A unit whose first entry does not reach it has none that does.
    if first.exists() && first.reaches(&least) {
        buffer.append(&offer, offer.reaching(&least));
    }
    sync_cube();
    if comptime![selection.probabilities.is_some()] {
        let entries = in_order(&buffer, order, k);
        let softmax = if comptime![selection.probabilities == Some(Over::Slice)] {
            Softmax::over_slice(&offer, &first_of_all, share.place, order, selection)
        } else {
            Softmax::over_selected(&entries, share.place, order, k, selection)
        };
        write_probabilities(selected, &share, &entries, &softmax, order, selection);
    } else {
        write_in_order(selected, &buffer, &share, spreads, order, k);
    }
}

/// All elements of a unit.
#[cube]
fn load_all(share: &Share<'_>, order: Order, #[comptime] selection: Selection) -> Offer {
    let access = comptime![share.access];
    let other = clamp_max(share.first, share.geometry.loads_per_tile - 1);
    let mut loads = Sequence::<Loaded>::new();
    #[unroll]
    for nth in 0..comptime![access.loads_in_flight] {
        loads.push(load_inside(share, share.first + nth * share.stride, other, AtEnd::Never));
    }
    let mut offer = Offer::new(loads.index(0usize).position.step, access.vector, selection);
    #[unroll]
    for nth in 0..loads.len().comptime() {
        let loaded = loads.index(nth);
        offer.push_load(loaded.value, loaded.position, loaded.valid, order);
    }
    offer
}

/// Leaves the first `k` entries of each buffer by value. Every unit of the cube must get here.
#[cube]
fn drop_others(buffer: &Buffer, order: Order, held: u32, k: u32) {
    let selection = comptime![buffer.selection];
    let units = comptime![selection.team.units_per_tile];
    let Order { inverted, nan, spreading, .. } = order;
    let by_value = Order { inverted, nan, counting: u32::MAX.runtime(), spreading };
    // A unit has no more entries than a word has bits.
    let mut dropped = 0u32.runtime();
    let mut turn = 0u32.runtime();
    let mut nth = buffer.place.member;
    while nth < held {
        let number = number_of(buffer, &buffer.at(nth), held, by_value);
        dropped |= u32::cast_from(number >= k) << turn;
        turn += 1;
        nth += units;
    }
    sync_cube();
    let mut nth = buffer.place.member;
    while nth < held {
        if dropped & 1 == 1 {
            buffer.put(nth, &Entry::none(selection));
        }
        dropped >>= 1u32;
        nth += units;
    }
    sync_cube();
}

/// The first `k` entries of each buffer, in order. There are no more of them than units of a slice.
/// Every unit of the cube must get here.
#[cube]
fn in_order(buffer: &Buffer, order: Order, k: u32) -> InOrder {
    let selection = comptime![buffer.selection];
    let held = buffer.held();
    if order.is_of_positions() {
        drop_others(buffer, order, held, k);
    }
    let ranked = Buffer::new(buffer.place, comptime![selection.with_entry_of_each_unit()]);
    let mut nth = buffer.place.member;
    while nth < held {
        let entry = buffer.at(nth);
        let number = number_of(buffer, &entry, held, order);
        if number < k && entry.exists() {
            ranked.put(number, &entry);
        }
        nth += comptime![selection.team.units_per_tile];
    }
    sync_cube();
    InOrder::of_buffer(&ranked)
}

/// Writes the first `k` entries of a buffer, or those of them that have the numbers; the first
/// entry of the slice everywhere, if it `spreads`. Every unit of the cube must get here.
#[cube]
fn write_in_order(
    selected: &mut SelectedArrays,
    buffer: &Buffer,
    share: &Share<'_>,
    spreads: bool,
    order: Order,
    k: u32,
) {
    let selection = comptime![buffer.selection];
    let access = comptime![share.access];
    let (input, geometry, tile) = (share.input, share.geometry, share.tile);
    let source = Source::new(input, geometry, tile, order, access, selection);
    let held = buffer.held();
    if order.is_of_positions() {
        drop_others(buffer, order, held, k);
    }
    if tile.results > 0 {
        let mut nth = buffer.place.member;
        while nth < held {
            let entry = buffer.at(nth);
            let number = number_of(buffer, &entry, held, order);
            if number < k && entry.exists() {
                if comptime![selected.ranks.is_some()] {
                    for written in 0..selected.written {
                        if select(spreads, 0u32, selected.rank(tile, written)) == number {
                            selected.put(&source, &entry, written);
                        }
                    }
                } else {
                    let number = number as usize;
                    selected.put(&source, &entry, number);
                }
            }
            nth += comptime![selection.team.units_per_tile];
        }
    }
}
