//! Selections through a buffer in shared memory.

use cubecl::prelude::*;
use reduce_planner::{Access, TopKPlan};

use super::{
    candidates::CandidateArrays,
    offer::Offer,
    probabilities::{InOrder, write_probabilities},
    selected::{SelectedArrays, Source},
    selection::{Order, Selection},
    selector::Selector,
    sort::{number_of, sort},
};
use crate::kernels::{
    accumulate::load_inside,
    args::{InputArrays, KernelTypes, input_of},
    geometry::Geometry,
    load::{AtEnd, Loaded, edge_slots, load_edge},
    share::{Share, share_among_cubes},
};

/// Most entries that are put in order by counting. For more, the comparisons of each with each take
/// longer than the barriers of a sorting network.
const COUNTED: u32 = 256;

/// Selects `k` elements of each slice and writes their values and positions.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn select_first(
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
    let mut selector = Selector::new(share.place, selection);
    take_elements(&mut selector, &share, order, k);
    write_selected(selected, &mut selector, &share, order, k);
}

/// Selects `k` elements of each of `cubes` parts of each slice, and leaves their entries. Those of
/// a slice lie side by side, and those of a cube among them, in no order.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn select_candidates(
    _types: &KernelTypes,
    input: &InputArrays,
    candidates: &mut CandidateArrays,
    geometry: &Geometry,
    order: Order,
    k: u32,
    cubes: usize,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    let input = input_of(input);
    let team = comptime![selection.team];
    let (block, cube) = (CUBE_POS / cubes, CUBE_POS % cubes);
    let share = share_among_cubes(&input, geometry, block, cube, cubes, access, team);
    let mut selector = Selector::new(share.place, selection);
    take_elements(&mut selector, &share, order, k);
    selector.cut(k);
    if share.tile.results > 0 {
        let first = (share.tile.index * cubes + cube) * k as usize;
        let held = selector.buffer.held();
        let mut nth = share.place.member;
        while nth < k {
            // A cube with fewer than `k` elements leaves entries of none.
            let entry = selector.buffer.at(nth).if_exists(nth < held);
            candidates.put(first + nth as usize, &entry);
            nth += comptime![team.units_per_tile];
        }
    }
}

/// Selects `k` of the `count` candidates that cubes have left for each slice, and writes the values
/// and the positions of the elements.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn select_among_candidates(
    _types: &KernelTypes,
    input: &InputArrays,
    candidates: &CandidateArrays,
    selected: &mut SelectedArrays,
    geometry: &Geometry,
    order: Order,
    k: u32,
    count: usize,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    let input = input_of(input);
    let team = comptime![selection.team];
    let share = share_among_cubes(&input, geometry, CUBE_POS, 0usize, 1usize, access, team);
    let mut selector = Selector::new(share.place, selection);
    let units = comptime![team.units_per_tile as usize];
    let in_flight = comptime![access.loads_in_flight];
    let start = share.tile.index * count;
    let rounds = count.div_ceil(comptime![units * in_flight]);
    for round in 0..rounds {
        let first = round * comptime![units * in_flight] + share.place.member as usize;
        let mut offer = Offer::new(0usize, order, 1usize, selection);
        #[unroll]
        for nth in 0..in_flight {
            let at = first + comptime![nth * units];
            let entry = candidates.at(start + clamp_max(at, count - 1));
            // Entries of no element are equal: a buffer of them could not be cut.
            let exists = at < count && entry.exists();
            offer.push_entry(&entry, exists);
        }
        selector.offer(&offer, false.runtime(), k);
    }
    write_selected(selected, &mut selector, &share, order, k);
}

/// Offers all elements of a share to its slice's buffer.
#[cube]
fn take_elements(selector: &mut Selector, share: &Share<'_>, order: Order, k: u32) {
    let selection = comptime![selector.buffer.selection];
    let access = comptime![share.access];
    let geometry = share.geometry;
    let in_flight = comptime![access.loads_in_flight];
    let peeled = comptime![access.peeled];
    // All units of a cube take the same turns, because `offer` has barriers.
    let rounds = geometry.loads_per_tile.div_ceil(share.stride * in_flight);
    let other = clamp_max(share.first, geometry.loads_per_tile - 1);
    let is_full = !peeled && geometry.loads_per_tile >= share.stride * in_flight;
    for round in 0..rounds {
        let first = share.first + round * share.block_stride();
        // All loads are issued before the first is used.
        let mut loads = Sequence::<Loaded>::new();
        #[unroll]
        for nth in 0..in_flight {
            let at = first + nth * share.stride;
            loads.push(load_inside(share, at, other, AtEnd::Never));
        }
        let offer = Offer::of_loads(&loads, order, access.vector, selection);
        selector.offer(&offer, round == 0 && is_full, k);
    }
    if comptime![peeled] {
        let slots = geometry.inner_count * comptime![edge_slots(access.vector)];
        let rounds = slots.div_ceil(share.stride);
        for round in 0..rounds {
            let slot = share.first + round * share.stride;
            let edge = load_edge(share, clamp_max(slot, slots - 1));
            let mut offer = Offer::new(edge.position.step, order, 1usize, selection);
            offer.push_load(edge.value, edge.position, edge.valid && slot < slots, order);
            selector.offer(&offer, false.runtime(), k);
        }
    }
}

/// Writes the first `k` elements of each slice, or those of them that have the numbers.
#[cube]
fn write_selected(
    selected: &mut SelectedArrays,
    selector: &mut Selector,
    share: &Share<'_>,
    order: Order,
    k: u32,
) {
    let selection = comptime![selector.buffer.selection];
    let access = comptime![share.access];
    let units = comptime![selection.team.units_per_tile];
    let (input, geometry, tile) = (share.input, share.geometry, share.tile);
    let source = Source::new(input, geometry, tile, order, access, selection);
    let exists = tile.results > 0;
    let member = share.place.member;
    let mut is_done = false.runtime();
    if comptime![selection.probabilities.is_some()] {
        selector.cut(k);
        sort(&selector.buffer, order, k);
        let entries = InOrder::of_buffer(&selector.buffer);
        let softmax = selected.softmax(&entries, share, order, k, selection);
        write_probabilities(selected, share, &entries, &softmax, order, selection);
        is_done = true;
    } else if comptime![selected.ranks.is_some()] {
        let spreads = selector.spreads(order);
        if selected.written <= comptime![TopKPlan::FEW_NUMBERS] {
            for nth in 0..selected.written {
                let number = select(spreads, 0u32, selected.rank(tile, nth));
                let entry = selector.entry_number(number);
                if exists && member == 0 {
                    selected.put(&source, &entry, nth);
                }
            }
            is_done = true;
        }
        if !is_done {
            selector.cut(k);
        }
    } else {
        selector.cut(k);
        if k <= COUNTED {
            if exists {
                let mut nth = member;
                while nth < k {
                    let entry = selector.buffer.at(nth);
                    let number = number_of(&selector.buffer, &entry, k, order) as usize;
                    selected.put(&source, &entry, number);
                    nth += units;
                }
            }
            is_done = true;
        }
    }
    if !is_done {
        sort(&selector.buffer, order, k);
        if exists {
            let spreads = selector.buffer.at(0u32).spreads(order, selection);
            let mut nth = member as usize;
            while nth < selected.written {
                let entry = selector.buffer.at(select(spreads, 0u32, selected.rank(tile, nth)));
                selected.put(&source, &entry, nth);
                nth += comptime![units as usize];
            }
        }
    }
}
