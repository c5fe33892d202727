//! An entry of each slice that units share.

use cubecl::prelude::*;

use super::{entry::Entry, selection::Selection};
use crate::operator::Slice;

/// Shared memory for an entry of each slice of a cube.
#[derive(CubeType)]
pub(super) struct OnePerSlice {
    words: Sequence<Slice<u32>>,
    tile: u32,
}

#[cube]
impl OnePerSlice {
    pub(super) fn new(tile: u32, #[comptime] selection: Selection) -> OnePerSlice {
        let mut words = Sequence::<Slice<u32>>::new();
        #[unroll]
        for _ in 0..comptime![selection.words()] {
            words.push(Slice::of(&Shared::<[u32]>::new_slice(comptime![selection.tiles()])));
        }
        OnePerSlice { words, tile }
    }

    /// The entry of the unit's slice.
    pub(super) fn get(&self) -> Entry {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..self.words.len().comptime() {
            words.push(self.words.index(word)[self.tile as usize]);
        }
        Entry { words }
    }

    /// Replaces the entry of the unit's slice.
    pub(super) fn put_if(&self, entry: &Entry, condition: bool) {
        if condition {
            #[unroll]
            for word in 0..self.words.len().comptime() {
                let mut words = *self.words.index(word);
                words[self.tile as usize] = *entry.words.index(word);
            }
        }
    }
}
