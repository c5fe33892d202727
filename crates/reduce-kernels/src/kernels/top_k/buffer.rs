//! The entries of slices that wait in shared memory.

use cubecl::prelude::*;

use super::{
    Order, Selection,
    cut::{Counting, cut},
};
use crate::{kernels::team::UnitPlace, operator::Slice};

/// An element that may be selected: the words of its key, then those of its position with all bits
/// inverted, the most significant words first. Entries are ordered as the numbers that their words
/// make. An entry of zeros comes after that of every element.
#[derive(CubeType, Clone)]
#[expand(derive(Clone))]
pub(super) struct Entry {
    pub(super) words: Sequence<u32>,
}

#[cube]
impl Entry {
    /// Whether this entry comes before another when the selected elements are put in order.
    pub(super) fn comes_before(
        &self,
        other: &Entry,
        order: Order,
        #[comptime] selection: Selection,
    ) -> bool {
        before(self, other, order.counting, comptime![selection.key_words], false)
    }

    /// Whether this entry does not come after another.
    pub(super) fn reaches(&self, other: &Entry) -> bool {
        before(self, other, u32::MAX.runtime(), 0usize, true)
    }

    /// The position of the element.
    pub(super) fn position(&self, #[comptime] selection: Selection) -> usize {
        let last = comptime![selection.words() - 1];
        let low = usize::cast_from(!*self.words.index(last));
        if comptime![selection.position_words == 2] {
            let high = usize::cast_from(!*self.words.index(comptime![last - 1]));
            (high << 32usize) + low
        } else {
            low
        }
    }
}

/// Whether the words of one entry make a greater number than those of another. Of the first words,
/// only some bits count. Equal numbers give `or_equal`.
#[cube]
fn before(
    left: &Entry,
    right: &Entry,
    counting: u32,
    #[comptime] masked: usize,
    #[comptime] or_equal: bool,
) -> bool {
    let count = left.words.len().comptime();
    let mut result = or_equal.runtime();
    #[unroll]
    for nth in 0..count {
        let word = comptime![count - 1 - nth];
        let bits = if comptime![word < masked] { counting } else { u32::MAX.runtime() };
        let (left, right) = (*left.words.index(word) & bits, *right.words.index(word) & bits);
        result = left > right || left == right && result;
    }
    result
}

/// The buffers of a cube's slices, as a unit of one of them sees them.
#[derive(CubeType)]
pub(super) struct Buffer {
    /// The entries of all slices, an array for each word.
    words: Sequence<Slice<u32>>,
    /// The entry that others must reach to be appended.
    threshold: Sequence<RuntimeCell<u32>>,
    /// Entries that units of each slice wanted to append, which may be more than there is room for.
    counts: Slice<Atomic<u32>>,
    /// Three flags, used in turn: whether a unit found its buffer full.
    full: Slice<Atomic<u32>>,
    /// Turns of [`offer`](Self::offer).
    turn: u32,
    place: UnitPlace,
    counting: Counting,
    #[cube(comptime)]
    pub(super) selection: Selection,
}

#[cube]
impl Buffer {
    /// Empty buffers. Every unit of the cube must get here.
    pub(super) fn new(place: UnitPlace, #[comptime] selection: Selection) -> Buffer {
        let mut words = Sequence::<Slice<u32>>::new();
        let mut threshold = Sequence::<RuntimeCell<u32>>::new();
        #[unroll]
        for _ in 0..comptime![selection.words()] {
            words.push(Slice::of(&Shared::<[u32]>::new_slice(comptime![selection.places()])));
            threshold.push(RuntimeCell::new(0u32));
        }
        let counts = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(comptime![selection.tiles()]));
        let full = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(3usize));
        if place.member == 0 {
            counts[place.tile as usize].store(0u32);
        }
        if UNIT_POS < 3 {
            full[UNIT_POS as usize].store(0u32);
        }
        let counting = Counting::new(selection);
        sync_cube();
        let turn = 0u32.runtime();
        Buffer { words, threshold, counts, full, turn, place, counting, selection }
    }

    /// The place of entry number `nth` of the unit's slice.
    fn place_of(&self, nth: u32) -> usize {
        (self.place.tile * comptime![self.selection.capacity] + nth) as usize
    }

    /// Entry number `nth` of the unit's slice.
    pub(super) fn at(&self, nth: u32) -> Entry {
        let place = self.place_of(nth);
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..comptime![self.selection.words()] {
            words.push(self.words.index(word)[place]);
        }
        Entry { words }
    }

    /// Replaces entry number `nth` of the unit's slice.
    pub(super) fn put(&self, nth: u32, entry: &Entry) {
        let place = self.place_of(nth);
        #[unroll]
        for word in 0..comptime![self.selection.words()] {
            let mut words = *self.words.index(word);
            words[place] = *entry.words.index(word);
        }
    }

    /// Entries of the unit's slice.
    pub(super) fn held(&self) -> u32 {
        let wanted = self.counts[self.place.tile as usize].load();
        clamp_max(wanted, comptime![self.selection.capacity])
    }

    /// Appends those of `entries` whose bit of `pending` is set and that reach the threshold. Where a
    /// buffer is full, those of all slices are cut to their first `k` entries, and the rest is
    /// offered again. After the last entries, all are cut. Every unit of the cube must get here.
    pub(super) fn offer(
        &mut self,
        entries: &Sequence<Entry>,
        pending: u32,
        are_last: bool,
        k: u32,
    ) {
        let capacity = comptime![self.selection.capacity];
        let tile = self.place.tile as usize;
        let mut pending = pending;
        let mut again = true.runtime();
        while again {
            let flag = self.turn % 3;
            // All units have read the flag of the turn before last, and none sets it in this one:
            // there is one barrier in each turn.
            if UNIT_POS == 0 {
                self.full[((self.turn + 1) % 3) as usize].store(0u32);
            }
            let threshold = self.threshold();
            #[unroll]
            for nth in 0..entries.len().comptime() {
                let entry = entries.index(nth);
                let bit = comptime![1u32 << nth];
                if pending & bit != 0 {
                    let mut taken = true.runtime();
                    if entry.reaches(&threshold) {
                        let at = self.counts[tile].fetch_add(1u32);
                        taken = at < capacity;
                        if taken {
                            self.put(at, entry);
                        } else {
                            self.full[flag as usize].store(1u32);
                        }
                    }
                    if taken {
                        pending &= comptime![!bit];
                    }
                }
            }
            sync_cube();
            again = self.full[flag as usize].load() == 1;
            self.turn += 1;
            // There is one cut in a kernel, because its code is long.
            if again || are_last {
                self.cut(k);
            }
        }
    }

    /// Leaves the first `k` entries of each slice, and raises the threshold. Every unit of the cube
    /// must get here.
    fn cut(&mut self, k: u32) {
        let threshold = cut(self, k);
        #[unroll]
        for word in 0..comptime![self.selection.words()] {
            self.threshold.index(word).store(*threshold.words.index(word));
        }
    }

    /// The entry that others must reach.
    pub(super) fn threshold(&self) -> Entry {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..comptime![self.selection.words()] {
            words.push(self.threshold.index(word).read());
        }
        Entry { words }
    }

    /// The number of entries, to be set.
    pub(super) fn count(&self) -> &Atomic<u32> {
        &self.counts[self.place.tile as usize]
    }

    pub(super) fn counting(&self) -> Counting {
        self.counting
    }

    pub(super) fn place(&self) -> UnitPlace {
        self.place
    }
}
