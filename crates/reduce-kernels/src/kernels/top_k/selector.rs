//! A buffer with a threshold.

use cubecl::prelude::*;

use super::{
    buffer::Buffer,
    cut::{Counting, cut},
    entry::Entry,
    offer::Offer,
    one_per_slice::OnePerSlice,
    selection::{Order, Selection},
};
use crate::{kernels::team::UnitPlace, operator::Slice};

/// The buffers of a cube's slices and what further entries must reach.
#[derive(CubeType)]
pub(super) struct Selector {
    pub(super) buffer: Buffer,
    /// The entry that others must reach to be appended.
    threshold: Sequence<RuntimeCell<u32>>,
    /// Three flags, used in turn: whether a unit found its buffer full.
    full: Slice<Atomic<u32>>,
    /// Turns of [`offer`](Self::offer).
    turn: u32,
    counting: Counting,
    /// The entry that was last found by its number.
    last: OnePerSlice,
    /// Whether a slice is known by its first entry alone, one for each.
    spread: Slice<Atomic<u32>>,
}

#[cube]
impl Selector {
    /// Empty buffers. Every unit of the cube must get here.
    pub(super) fn new(place: UnitPlace, #[comptime] selection: Selection) -> Selector {
        let buffer = Buffer::new(place, selection);
        let mut threshold = Sequence::<RuntimeCell<u32>>::new();
        #[unroll]
        for _ in 0..comptime![selection.words()] {
            threshold.push(RuntimeCell::new(0u32));
        }
        let full = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(3usize));
        if UNIT_POS < 3 {
            full[UNIT_POS as usize].store(0u32);
        }
        let counting = Counting::new(place, selection);
        let last = OnePerSlice::new(place.tile, selection);
        last.put_if(&Entry::none(selection), place.member == 0);
        let spread = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(comptime![selection.tiles()]));
        sync_cube();
        let turn = 0u32.runtime();
        Selector { buffer, threshold, full, turn, counting, last, spread }
    }

    /// Appends those of the offered elements that reach the threshold. Where a buffer is full,
    /// those of all slices are cut to their first `k` entries, and the rest is offered again. Every
    /// unit of the cube must get here.
    ///
    /// If the buffer `is_empty` and all elements of all units exist, there is no threshold yet.
    /// Each unit then appends only a greatest element of each of some groups of its elements. Entry
    /// number `k` of these is a threshold that few of the others reach.
    pub(super) fn offer(&mut self, offer: &Offer, is_empty: bool, k: u32) {
        let mut pending = offer.existing;
        if is_empty {
            pending &= !self.append_greatest(offer);
            let elements = offer.elements().comptime();
            // A cut here and another in the loop make long code, but one for both was slower: 32 of
            // 1024 columns of 65536 f32 took 240 us in place of 182 on an H100.
            if comptime![elements > self.buffer.selection.entries_per_unit()] {
                self.cut(k);
            }
        }
        let mut again = true.runtime();
        while again {
            let flag = self.turn % 3;
            // All units have read the flag of the turn before last, and none sets it in this one:
            // there is one barrier in each turn.
            if UNIT_POS == 0 {
                self.full[((self.turn + 1) % 3) as usize].store(0u32);
            }
            pending = self.buffer.append(offer, pending & offer.reaching(&self.threshold()));
            if pending != 0 {
                self.full[flag as usize].store(1u32);
            }
            sync_cube();
            again = self.full[flag as usize].load() == 1;
            self.turn += 1;
            if again {
                self.cut(k);
            }
        }
    }

    /// Fills empty buffers with a greatest element of each group, and returns the bits of these.
    fn append_greatest(&self, offer: &Offer) -> u32 {
        let selection = comptime![self.buffer.selection];
        let units = comptime![selection.team.units_per_tile];
        let elements = offer.elements().comptime();
        let groups = comptime![elements.min(selection.entries_per_unit())];
        let mut appended = 0u32;
        #[unroll]
        for group in 0..groups {
            let start = comptime![group * elements / groups];
            let end = comptime![(group + 1) * elements / groups];
            let (greatest, bit) = offer.greatest_of(start, end);
            let at = self.buffer.place.member + comptime![group as u32 * units];
            self.buffer.put(at, &greatest);
            appended |= bit;
        }
        if self.buffer.place.member == 0 {
            self.buffer.count().store(comptime![groups as u32 * units]);
        }
        sync_cube();
        appended
    }

    /// Leaves the first `k` entries of each slice, and raises the threshold. Every unit of the cube
    /// must get here.
    pub(super) fn cut(&mut self, k: u32) {
        let threshold = self.cut_to(k, false);
        #[unroll]
        for word in 0..comptime![self.buffer.selection.words()] {
            self.threshold.index(word).store(*threshold.words.index(word));
        }
    }

    /// Leaves the first entries up to the one with this number, from 0, and returns that. Every
    /// unit of the cube must get here.
    pub(super) fn entry_number(&mut self, number: u32) -> Entry {
        self.cut_to(number + 1, true);
        self.last.get()
    }

    fn cut_to(&self, k: u32, #[comptime] exact: bool) -> Entry {
        let former = self.threshold();
        cut(&self.buffer, &self.counting, &self.last, &former, k, exact)
    }

    /// Whether the first entry of the unit's slice is written in place of all others. Every unit of
    /// the cube must get here.
    pub(super) fn spreads(&self, order: Order) -> bool {
        let selection = comptime![self.buffer.selection];
        let flag = &self.spread[self.buffer.place.tile as usize];
        if self.buffer.place.member == 0 {
            flag.store(0u32);
        }
        sync_cube();
        let held = self.buffer.held();
        let mut nth = self.buffer.place.member;
        while nth < held {
            if self.buffer.at(nth).spreads(order, selection) {
                flag.store(1u32);
            }
            nth += comptime![self.buffer.selection.team.units_per_tile];
        }
        sync_cube();
        let spreads = flag.load() == 1;
        sync_cube();
        spreads
    }

    /// The entry that others must reach.
    fn threshold(&self) -> Entry {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..comptime![self.buffer.selection.words()] {
            words.push(self.threshold.index(word).read());
        }
        Entry { words }
    }
}
