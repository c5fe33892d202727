//! The entries of slices that wait in shared memory.

use cubecl::prelude::*;

use super::{entry::Entry, offer::Offer, selection::Selection};
use crate::{kernels::team::UnitPlace, operator::Slice};

/// The buffers of a cube's slices, as a unit of one of them sees them. A copy is the same memory.
#[derive(CubeType)]
pub(super) struct Buffer {
    /// The entries of all slices, an array for each word.
    pub(super) words: Sequence<Slice<u32>>,
    /// Entries that units of each slice wanted to append, which may be more than there is room for.
    counts: Slice<Atomic<u32>>,
    pub(super) place: UnitPlace,
    #[cube(comptime)]
    pub(super) selection: Selection,
}

#[cube]
impl Buffer {
    /// Empty buffers. A barrier must follow.
    pub(super) fn new(place: UnitPlace, #[comptime] selection: Selection) -> Buffer {
        let mut words = Sequence::<Slice<u32>>::new();
        #[unroll]
        for _ in 0..comptime![selection.words()] {
            words.push(Slice::of(&Shared::<[u32]>::new_slice(comptime![selection.places()])));
        }
        let counts = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(comptime![selection.tiles()]));
        if place.member == 0 {
            counts[place.tile as usize].store(0u32);
        }
        Buffer { words, counts, place, selection }
    }

    /// The place of entry number `nth` of the unit's slice.
    pub(super) fn place_of(&self, nth: u32) -> usize {
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

    /// Reserves places for so many entries at the end of the unit's slice, and returns the number
    /// of the first. Places beyond the capacity do not exist.
    ///
    /// A unit reserves all its places at once: additions to one count wait for each other, for two
    /// or three cycles each on an H100. When each entry reserved its own, they took nearly all of
    /// the time of ascending data.
    pub(super) fn reserve(&self, entries: u32) -> u32 {
        let mut first = 0u32;
        if entries > 0 {
            first = self.count().fetch_add(entries);
        }
        first
    }

    /// Appends those of the offered entries whose bit is set, as far as there is room, and returns
    /// the bits of the others.
    pub(super) fn append(&self, offer: &Offer, bits: u32) -> u32 {
        let capacity = comptime![self.selection.capacity];
        let mut left = bits;
        if left != 0 && self.count().load() < capacity {
            let mut at = self.reserve(left.count_ones());
            while left != 0 && at < capacity {
                self.put(at, &offer.entry(left.trailing_zeros()));
                left &= left - 1;
                at += 1;
            }
        }
        left
    }

    /// Entries of the unit's slice.
    pub(super) fn held(&self) -> u32 {
        clamp_max(self.count().load(), comptime![self.selection.capacity])
    }

    /// The number of entries, to be set.
    pub(super) fn count(&self) -> &Atomic<u32> {
        &self.counts[self.place.tile as usize]
    }
}
