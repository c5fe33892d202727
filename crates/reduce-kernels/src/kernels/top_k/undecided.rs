//! The entries of a buffer while it is cut.

use cubecl::prelude::*;

use super::{buffer::Buffer, entry::Entry, one_per_slice::OnePerSlice};

/// An entry that is not among the first.
const DROPPED: u32 = 0;
/// An entry of which it is not known.
const OPEN: u32 = 1;
/// An entry that is among the first.
const KEPT: u32 = 2;

/// The entries of a buffer that a unit takes, in registers, and what is known of each.
#[derive(CubeType)]
pub(super) struct Undecided {
    entries: Sequence<Entry>,
    states: Sequence<RuntimeCell<u32>>,
    /// What is known of the last entry that is among the first.
    threshold: Sequence<RuntimeCell<u32>>,
}

#[cube]
impl Undecided {
    /// The unit's entries of a buffer, if `exact` without those that `excluded` reaches. If the cut
    /// `is_done`, the threshold stays the former one.
    pub(super) fn of(
        buffer: &Buffer,
        former: &Entry,
        excluded: &Entry,
        is_done: bool,
        #[comptime] exact: bool,
    ) -> Undecided {
        let selection = comptime![buffer.selection];
        let units = comptime![selection.team.units_per_tile];
        let held = buffer.held();
        let mut entries = Sequence::<Entry>::new();
        let mut states = Sequence::<RuntimeCell<u32>>::new();
        #[unroll]
        for nth in 0..comptime![selection.entries_per_unit()] {
            let at = buffer.place.member + comptime![nth as u32 * units];
            let entry = buffer.at(at);
            let mut is_open = at < held;
            if comptime![exact] {
                is_open = is_open && entry.exceeds(excluded);
            }
            entries.push(entry);
            states.push(RuntimeCell::new(select(is_open, OPEN.runtime(), DROPPED.runtime())));
        }
        let mut threshold = Sequence::<RuntimeCell<u32>>::new();
        #[unroll]
        for word in 0..comptime![selection.words()] {
            threshold.push(RuntimeCell::new(select(is_done, *former.words.index(word), 0u32)));
        }
        Undecided { entries, states, threshold }
    }

    /// Whether nothing is known of an entry.
    pub(super) fn is_open(&self, #[comptime] nth: usize) -> bool {
        self.states.index(nth).read() == OPEN
    }

    /// Whether an entry is not known to be behind the first.
    pub(super) fn is_left(&self, #[comptime] nth: usize) -> bool {
        self.states.index(nth).read() != DROPPED
    }

    pub(super) fn entry(&self, #[comptime] nth: usize) -> &Entry {
        self.entries.index(nth)
    }

    /// A word of an entry.
    pub(super) fn word(&self, #[comptime] nth: usize, word: u32) -> u32 {
        let words = &self.entries.index(nth).words;
        let mut value = *words.index(0usize);
        #[unroll]
        for nth in 1..words.len().comptime() {
            value = select(word == comptime![nth as u32], *words.index(nth), value);
        }
        value
    }

    /// The least and the greatest word of the open entries; the greatest number and 0 if there are
    /// none.
    pub(super) fn range(&self, word: u32) -> (u32, u32) {
        let mut least = u32::MAX.runtime();
        let mut greatest = 0u32.runtime();
        #[unroll]
        for nth in 0..self.states.len().comptime() {
            let own = self.word(nth, word);
            least = select(self.is_open(nth), min(least, own), least);
            greatest = select(self.is_open(nth), max(greatest, own), greatest);
        }
        (least, greatest)
    }

    /// Takes in that the last of the first entries has this digit: so many parts of the range from
    /// `base` on, of `1 << shift` words each, lie before its own.
    pub(super) fn decide(&self, word: u32, base: u32, shift: u32, digit: u32) {
        #[unroll]
        for nth in 0..self.states.len().comptime() {
            let state = self.states.index(nth);
            if state.read() == OPEN {
                let own = (self.word(nth, word) - base) >> shift;
                if own > digit {
                    state.store(KEPT);
                }
                if own < digit {
                    state.store(DROPPED);
                }
            }
        }
    }

    /// Takes in that the last of the first entries has the least word of the open ones.
    pub(super) fn keep_above(&self, word: u32, least: u32) {
        #[unroll]
        for nth in 0..self.states.len().comptime() {
            let state = self.states.index(nth);
            if state.read() == OPEN && self.word(nth, word) > least {
                state.store(KEPT);
            }
        }
    }

    /// Takes in that a word of the last of the first entries is no less than `least`, unless the
    /// slice's cut `was_done` before.
    pub(super) fn put_word(&self, word: u32, least: u32, was_done: bool) {
        #[unroll]
        for nth in 0..self.threshold.len().comptime() {
            let cell = self.threshold.index(nth);
            let is_known = word == comptime![nth as u32] && !was_done;
            cell.store(select(is_known, least, cell.read()));
        }
    }

    /// Stores the open entry, of which one is left in all units.
    pub(super) fn put_last(&self, last: &OnePerSlice) {
        #[unroll]
        for nth in 0..self.states.len().comptime() {
            last.put_if(self.entries.index(nth), self.is_open(nth));
        }
    }

    /// What is known of the last of the first entries, with zeros behind it.
    pub(super) fn threshold(&self) -> Entry {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..self.threshold.len().comptime() {
            words.push(self.threshold.index(word).read());
        }
        Entry { words }
    }
}
