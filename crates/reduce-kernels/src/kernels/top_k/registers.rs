//! Selections of short slices, each of which a few units hold in registers.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    buffer::Buffer,
    elements::Offered,
    entry::Entry,
    one_per_slice::OnePerSlice,
    selected::{SelectedArrays, Source},
    selection::{Order, Selection},
    sort::number_of,
};
use crate::kernels::{
    accumulate::load_inside,
    args::{InputArrays, KernelTypes, input_of},
    geometry::Geometry,
    load::AtEnd,
    share::{Share, share_among_cubes},
};

/// Selects `k` elements of each slice and writes their values and positions.
///
/// Entry number `k` of the first entries of all units is a threshold: at least `k` entries reach
/// it, and of each unit but one, if it is before the others. What reaches it is put in order by
/// counting. The buffer has places for a first entry of each unit, and for all entries of `k - 1`
/// units and one more.
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
    let mut offered = Sequence::<Offered>::new();
    let mut existing = Sequence::<bool>::new();
    let first = load_all(&mut offered, &mut existing, &share, order, selection);
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
    let spreads = first_of_all.get().spreads(order);
    // A unit whose first entry does not reach it has none that does.
    if first.exists() && first.reaches(&least) {
        let mut reaching = 0u32;
        #[unroll]
        for nth in 0..offered.len().comptime() {
            let entries = offered.index(nth).entries(selection);
            #[unroll]
            for component in 0..comptime![access.vector] {
                let reaches = *existing.index(nth) && entries.index(component).reaches(&least);
                let bit = comptime![(nth * access.vector + component) as u32];
                reaching |= u32::cast_from(reaches) << bit;
            }
        }
        let mut at = buffer.reserve(reaching.count_ones());
        #[unroll]
        for nth in 0..offered.len().comptime() {
            let entries = offered.index(nth).entries(selection);
            #[unroll]
            for component in 0..comptime![access.vector] {
                let bit = comptime![1u32 << (nth * access.vector + component)];
                if reaching & bit != 0 {
                    buffer.put(at, entries.index(component));
                    at += 1;
                }
            }
        }
    }
    sync_cube();
    write_in_order(selected, &buffer, &share, spreads, order, k);
}

/// Loads all elements of a unit, and says which of its loads exist. Returns its first entry, that
/// of no element if it has none.
#[cube]
fn load_all(
    offered: &mut Sequence<Offered>,
    existing: &mut Sequence<bool>,
    share: &Share<'_>,
    order: Order,
    #[comptime] selection: Selection,
) -> Entry {
    let access = comptime![share.access];
    let other = clamp_max(share.first, share.geometry.loads_per_tile - 1);
    #[unroll]
    for nth in 0..comptime![access.loads_in_flight] {
        let loaded = load_inside(share, share.first + nth * share.stride, other, AtEnd::Never);
        offered.push(Offered::of_load(loaded.value, loaded.position, order));
        existing.push(loaded.valid);
    }
    let mut first = Sequence::<RuntimeCell<u32>>::new();
    #[unroll]
    for _ in 0..comptime![selection.words()] {
        first.push(RuntimeCell::new(0u32));
    }
    #[unroll]
    for nth in 0..offered.len().comptime() {
        let entries = offered.index(nth).entries(selection);
        #[unroll]
        for component in 0..comptime![access.vector] {
            let entry = entries.index(component);
            let is_before = *existing.index(nth) && entry.exceeds(&entry_of(&first));
            #[unroll]
            for word in 0..comptime![selection.words()] {
                let cell = first.index(word);
                cell.store(select(is_before, *entry.words.index(word), cell.read()));
            }
        }
    }
    entry_of(&first)
}

#[cube]
fn entry_of(cells: &Sequence<RuntimeCell<u32>>) -> Entry {
    let mut words = Sequence::<u32>::new();
    #[unroll]
    for word in 0..cells.len().comptime() {
        words.push(cells.index(word).read());
    }
    Entry { words }
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
                        if select(spreads, 0u32, selected.rank(written)) == number {
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
