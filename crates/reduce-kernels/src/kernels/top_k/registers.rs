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
    team::UnitPlace,
};
use crate::operator::Slice;

/// Elements of a unit of which more are left out if they cannot be among the first `k`.
const MANY_OF_A_UNIT: u32 = 4;

/// Most entries of a buffer if keys alone have been compared. Each entry is compared with each, which
/// takes long if there are many: 32 of each of 65536 rows of 1024 f32 with two values took 2938 us on
/// one H200 where half of a row just filled the buffer. Of random elements, fewer reach the threshold.
fn most_by_keys(capacity: u32) -> u32 {
    if capacity < 256 { capacity } else { capacity / 8 * 3 }
}

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
    let firsts = Firsts::new(share.place, selection);
    let offer = load_all(&share, order, selection);

    let is_appended = firsts.append_by_keys(&offer, &buffer, k);
    if !is_appended {
        firsts.append_by_entries(&offer, &buffer, k);
    }
    let first_of_all = firsts.first_of_all.get();
    let spreads = first_of_all.spreads(order, selection);
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

/// What the units of each slice find of their first entries.
#[derive(CubeType)]
struct Firsts {
    place: UnitPlace,
    /// Units of each slice whose first key has fewer than `k` greater ones.
    counts: Slice<Atomic<u32>>,
    /// The least of those keys.
    least: Slice<Atomic<u32>>,
    /// The greatest.
    greatest: Slice<Atomic<u32>>,
    /// Whether a buffer of the cube has not held what reaches the key.
    overflow: Slice<Atomic<u32>>,
    threshold: OnePerSlice,
    first_of_all: OnePerSlice,
    #[cube(comptime)]
    selection: Selection,
}

#[cube]
impl Firsts {
    /// A barrier must follow.
    fn new(place: UnitPlace, #[comptime] selection: Selection) -> Firsts {
        let tiles = comptime![selection.tiles()];
        let counts = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(tiles));
        let least = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(tiles));
        let greatest = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(tiles));
        let overflow = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(1usize));
        if place.member == 0 {
            counts[place.tile as usize].store(0u32);
            least[place.tile as usize].store(u32::MAX);
            greatest[place.tile as usize].store(0u32);
        }
        if UNIT_POS == 0 {
            overflow[0].store(0u32);
        }
        let threshold = OnePerSlice::new(place.tile, selection);
        threshold.put_if(&Entry::none(selection), place.member == 0);
        let first_of_all = OnePerSlice::new(place.tile, selection);
        Firsts { place, counts, least, greatest, overflow, threshold, first_of_all, selection }
    }

    /// Appends what reaches number `k` of the first keys, if keys have one word. Returns whether
    /// the buffers have held that: many equal elements may be too many. Every unit of the cube must
    /// get here.
    ///
    /// Comparing keys takes a third of the instructions that comparing entries takes, and no unit
    /// looks for the position of its first entry.
    fn append_by_keys(&self, offer: &Offer, buffer: &Buffer, k: u32) -> bool {
        let selection = comptime![self.selection];
        if comptime![selection.key_words == 1] {
            let tile = self.place.tile as usize;
            let mut keys = *buffer.words.index(0usize);
            let start = buffer.place_of(0u32);
            let own = offer.greatest_key();
            keys[start + self.place.member as usize] = own;
            sync_cube();
            let mut number = 0u32.runtime();
            #[unroll]
            for nth in 0..comptime![selection.team.units_per_tile as usize] {
                number += u32::cast_from(keys[start + nth] > own);
            }
            if number < k && offer.existing != 0 {
                if number == 0 {
                    self.greatest[tile].fetch_max(own);
                }
                self.least[tile].fetch_min(own);
                self.counts[tile].fetch_add(1u32);
            }
            sync_cube();
            // If fewer units than `k` have elements, all elements are entries of these.
            let least = select(self.counts[tile].load() < k, 0u32, self.least[tile].load());
            let rest = buffer.append(offer, offer.reaching(&Entry::of_key(least, selection)));
            // The last unit to append finds the number of all entries.
            let many = comptime![most_by_keys(selection.capacity)];
            if rest != 0 || buffer.count().load() > many {
                self.overflow[0].store(1u32);
            }
            let first = Entry::of_key(self.greatest[tile].load(), selection);
            self.first_of_all.put_if(&first, self.place.member == 0);
            sync_cube();
            self.overflow[0].load() == 0
        } else {
            false.runtime()
        }
    }

    /// Appends what reaches number `k` of the first entries. Every unit of the cube must get here.
    fn append_by_entries(&self, offer: &Offer, buffer: &Buffer, k: u32) {
        let first = offer.first();
        buffer.put(self.place.member, &first);
        if self.place.member == 0 {
            buffer.count().store(0u32);
        }
        sync_cube();
        let mut number = 0u32.runtime();
        for nth in 0..comptime![self.selection.team.units_per_tile] {
            number += u32::cast_from(buffer.at(nth).exceeds(&first));
        }
        // Units without elements have equal entries: if they are among the first `k`, there is no
        // threshold.
        self.threshold.put_if(&first, number + 1 == k && first.exists());
        self.first_of_all.put_if(&first, number == 0);
        sync_cube();
        let least = self.threshold.get();
        // The buffer may not hold all elements with the threshold's key of units behind the first `k`.
        if first.exists() && first.reaches(&least) {
            let mut reaching = offer.reaching(&least);
            // Entries are compared with each other: many equal elements would take long.
            if reaching.count_ones() > MANY_OF_A_UNIT {
                reaching = offer.reaching_by_load(&least);
            }
            buffer.append(offer, reaching);
        }
        sync_cube();
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
    Offer::of_loads(&loads, order, access.vector, selection)
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
