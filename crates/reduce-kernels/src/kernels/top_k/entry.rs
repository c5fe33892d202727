//! Elements that may be selected, as words that are compared.

use cubecl::prelude::*;

use super::{
    keys::is_nan,
    selection::{Order, Selection},
};

/// An element that may be selected: the words of its key, then those of its position with all bits
/// inverted, the most significant words first. Entries are ordered as the numbers that their words
/// make. An entry of zeros, that of no element, comes after that of every element.
#[derive(CubeType, Clone)]
#[expand(derive(Clone))]
pub(super) struct Entry {
    pub(super) words: Sequence<u32>,
}

#[cube]
impl Entry {
    /// The entry of the element with the words of a key and a position.
    pub(super) fn new(
        key: Sequence<u32>,
        position: usize,
        #[comptime] selection: Selection,
    ) -> Entry {
        let mut words = key;
        // Of equal elements, the one with the lower position comes first.
        if comptime![selection.position_words == 2] {
            words.push(!u32::cast_from(position >> 32usize));
        }
        words.push(!u32::cast_from(position));
        Entry { words }
    }

    /// The entry of no element.
    pub(super) fn none(#[comptime] selection: Selection) -> Entry {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for _ in 0..comptime![selection.words()] {
            words.push(0u32.runtime());
        }
        Entry { words }
    }

    /// What is known of an entry with a key of one word: zeros are behind it.
    pub(super) fn of_key(key: u32, #[comptime] selection: Selection) -> Entry {
        let mut words = Sequence::<u32>::new();
        words.push(key);
        #[unroll]
        for _ in 1..comptime![selection.words()] {
            words.push(0u32.runtime());
        }
        Entry { words }
    }

    /// This entry, or that of no element.
    pub(super) fn if_exists(&self, exists: bool) -> Entry {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..self.words.len().comptime() {
            words.push(select(exists, *self.words.index(word), 0u32));
        }
        Entry { words }
    }

    /// Whether it is that of an element.
    pub(super) fn exists(&self) -> bool {
        let mut bits = 0u32;
        #[unroll]
        for word in 0..self.words.len().comptime() {
            bits |= *self.words.index(word);
        }
        bits != 0
    }

    /// Whether this entry comes before another when the selected elements are put in order.
    pub(super) fn comes_before(
        &self,
        other: &Entry,
        order: Order,
        #[comptime] selection: Selection,
    ) -> bool {
        before(self, other, order.counting, comptime![selection.key_words], false)
    }

    /// Whether this entry comes before another by value.
    pub(super) fn exceeds(&self, other: &Entry) -> bool {
        before(self, other, u32::MAX.runtime(), 0usize, false)
    }

    /// Whether this entry does not come after another by value.
    pub(super) fn reaches(&self, other: &Entry) -> bool {
        before(self, other, u32::MAX.runtime(), 0usize, true)
    }

    /// Whether the element, if it is the first of its slice, is written in place of all others.
    pub(super) fn spreads(&self, order: Order, #[comptime] selection: Selection) -> bool {
        order.spreading != 0 && is_nan(&self.words, order, selection)
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
