//! Entries in memory, between launches.

use cubecl::prelude::*;

use super::entry::Entry;

/// The entries that cubes leave for a further launch, one array for each word.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct CandidateArrays {
    pub(super) words: Sequence<Box<[u32]>>,
}

impl CandidateArraysLaunch {
    /// The arrays of the words.
    pub(crate) fn of(words: impl IntoIterator<Item = BufferArg>) -> Self {
        Self::new(words.into_iter().collect())
    }
}

#[cube]
impl CandidateArrays {
    /// The entry at a place.
    pub(super) fn at(&self, place: usize) -> Entry {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..self.words.len().comptime() {
            words.push(self.words.index(word)[place]);
        }
        Entry { words }
    }

    /// Replaces the entry at a place.
    pub(super) fn put(&mut self, place: usize, entry: &Entry) {
        #[unroll]
        for word in 0..entry.words.len().comptime() {
            let words = self.words.index_mut(word);
            words[place] = *entry.words.index(word);
        }
    }
}
