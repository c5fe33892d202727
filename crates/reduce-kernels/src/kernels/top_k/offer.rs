//! What units offer to the buffers of their slices.

use cubecl::prelude::*;

use super::{
    entry::Entry,
    keys::{Limits, key},
    selection::{Order, Selection},
};
use crate::{
    kernels::load::Loaded,
    operator::{Position, Stored},
};

/// What a unit offers to its slice's buffer at a time: the elements of some loads, or entries that
/// exist already.
#[derive(CubeType)]
pub(super) struct Offer {
    /// For each word of keys, that of each element, not within the limits.
    keys: Sequence<Sequence<u32>>,
    limits: Limits,
    /// For each load, the position of its first element.
    starts: Sequence<usize>,
    /// The distance of the positions of an element and the next one.
    step: usize,
    /// A bit for each element that exists.
    pub(super) existing: u32,
    /// Elements of a load.
    #[cube(comptime)]
    vector: usize,
    #[cube(comptime)]
    selection: Selection,
}

#[cube]
impl Offer {
    /// No loads of `vector` elements, whose positions are `step` apart.
    pub(super) fn new(
        step: usize,
        order: Order,
        #[comptime] vector: usize,
        #[comptime] selection: Selection,
    ) -> Offer {
        let mut keys = Sequence::<Sequence<u32>>::new();
        #[unroll]
        for _ in 0..comptime![selection.key_words] {
            keys.push(Sequence::<u32>::new());
        }
        let existing = 0u32.runtime();
        let limits = Limits::new(order, selection);
        let starts = Sequence::<usize>::new();
        Offer { keys, limits, starts, step, existing, vector, selection }
    }

    /// The elements of some loads.
    pub(super) fn of_loads(
        loads: &Sequence<Loaded>,
        order: Order,
        #[comptime] vector: usize,
        #[comptime] selection: Selection,
    ) -> Offer {
        let mut offer = Offer::new(loads.index(0usize).position.step, order, vector, selection);
        #[unroll]
        for nth in 0..loads.len().comptime() {
            let loaded = loads.index(nth);
            offer.push_load(loaded.value, loaded.position, loaded.valid, order);
        }
        offer
    }

    /// Adds the elements of a load.
    pub(super) fn push_load<N: Size>(
        &mut self,
        value: Vector<Stored, N>,
        position: Position,
        exists: bool,
        order: Order,
    ) {
        let selection = comptime![self.selection];
        let key = key::<N>(value, order, selection);
        let first = self.keys.index(0usize).len().comptime();
        #[unroll]
        for word in 0..comptime![selection.key_words] {
            let words = self.keys.index_mut(word);
            #[unroll]
            for nth in 0..N::value().comptime() {
                words.push(key.index(word).extract(nth));
            }
        }
        self.starts.push(position.start);
        let all = comptime![((1u64 << self.vector) - 1) as u32];
        self.existing |= select(exists, all.runtime(), 0u32) << comptime![first as u32];
    }

    /// Adds an entry, as a load of one element.
    pub(super) fn push_entry(&mut self, entry: &Entry, exists: bool) {
        let selection = comptime![self.selection];
        let first = self.keys.index(0usize).len().comptime();
        #[unroll]
        for word in 0..comptime![selection.key_words] {
            self.keys.index_mut(word).push(*entry.words.index(word));
        }
        self.starts.push(entry.position(selection));
        self.existing |= u32::cast_from(exists) << comptime![first as u32];
    }

    /// The number of elements, of those that exist and of others.
    pub(super) fn elements(&self) -> comptime_type!(usize) {
        self.keys.index(0usize).len()
    }

    /// A bit for each element that exists and may come before the threshold, or be the one with it.
    /// It is set for no others but those that have the threshold's key and a load that begins
    /// before its position.
    pub(super) fn reaching(&self, threshold: &Entry) -> u32 {
        let position = threshold.position(comptime![self.selection]);
        let mut ties = false.runtime();
        #[unroll]
        for load in 0..self.starts.len().comptime() {
            ties = ties || *self.starts.index(load) <= position;
        }
        self.with_key(threshold, ties)
    }

    /// The same bits, of which those for the threshold's key are only set in loads that begin before
    /// its position. This takes twice the comparisons.
    pub(super) fn reaching_by_load(&self, threshold: &Entry) -> u32 {
        let position = threshold.position(comptime![self.selection]);
        let loads = self.starts.len().comptime();
        let elements = self.elements();
        let vector = comptime![elements / loads];
        let mut before = 0u32.runtime();
        #[unroll]
        for load in 0..loads {
            let bits = comptime![(((1u64 << vector) - 1) << (load * vector)) as u32];
            before |= select(*self.starts.index(load) <= position, bits.runtime(), 0u32);
        }
        self.with_key(threshold, false.runtime())
            | self.with_key(threshold, true.runtime()) & before
    }

    /// A bit for each element that exists and has a greater key than the threshold, or, where `ties`
    /// count, the same.
    fn with_key(&self, threshold: &Entry, ties: bool) -> u32 {
        let selection = comptime![self.selection];
        // Where ties do not count, keys must reach the next greater one.
        let mut least = Sequence::<u32>::new();
        let mut carry = select(ties, 0u32, 1u32);
        #[unroll]
        for nth in 0..comptime![selection.key_words] {
            let word = comptime![selection.key_words - 1 - nth];
            let sum = *threshold.words.index(word) + carry;
            carry = select(sum < carry, 1u32, 0u32);
            least.push(sum);
        }
        let bits = if comptime![selection.key_words == 1] {
            let (least, any) = self.limits.reached(*least.index(0usize));
            select(any, self.at_least(least), 0u32)
        } else {
            self.wide_at_least(&least)
        };
        select(carry == 1, 0u32, bits & self.existing)
    }

    /// A bit for each element with at least this key of one word.
    fn at_least(&self, least: u32) -> u32 {
        let keys = self.keys.index(0usize);
        let mut bits = 0u32;
        #[unroll]
        for element in 0..self.elements().comptime() {
            let reaches = *keys.index(element) >= least;
            bits |= select(reaches, comptime![1u32 << element].runtime(), 0u32);
        }
        bits
    }

    /// A bit for each element with at least the key of these two words, the less significant one
    /// first.
    fn wide_at_least(&self, least: &Sequence<u32>) -> u32 {
        let selection = comptime![self.selection];
        let mut bits = 0u32;
        #[unroll]
        for element in 0..self.elements().comptime() {
            let mut reaches = true.runtime();
            #[unroll]
            for nth in 0..comptime![selection.key_words] {
                let word =
                    *self.keys.index(comptime![selection.key_words - 1 - nth]).index(element);
                let least = *least.index(nth);
                reaches = if comptime![nth == 0] {
                    word >= least
                } else {
                    word > least || word == least && reaches
                };
            }
            bits |= select(reaches, comptime![1u32 << element].runtime(), 0u32);
        }
        bits
    }

    /// The greatest key of one word of all elements, and 0 if none exists.
    pub(super) fn greatest_key(&self) -> u32 {
        let keys = self.keys.index(0usize);
        let mut greatest = *keys.index(0usize);
        // Where an element does not exist, there is the key of another of the unit, if it has any.
        #[unroll]
        for element in 1..self.elements().comptime() {
            greatest = max(greatest, *keys.index(element));
        }
        select(self.existing == 0, 0u32, self.limits.of(greatest))
    }

    /// The entry that comes first, that of no element if none exists.
    pub(super) fn first(&self) -> Entry {
        let selection = comptime![self.selection];
        let elements = self.elements().comptime();
        let best = no_key(selection);
        #[unroll]
        for element in 0..elements {
            let exceeds = self.exists(element) && self.exceeds(element, &best);
            self.copy_key_if(exceeds, element, &best);
        }
        // The positions of a unit's elements need not ascend.
        let last = comptime![match selection.position_words {
            1 => u32::MAX as usize,
            _ => usize::MAX,
        }];
        let mut position = last.runtime();
        #[unroll]
        for element in 0..elements {
            let mut is_best = self.exists(element);
            #[unroll]
            for word in 0..comptime![selection.key_words] {
                is_best = is_best && self.key_word(word, element) == best.index(word).read();
            }
            let load = *self.starts.index(comptime![element / self.vector]);
            let own = load + comptime![element % self.vector] * self.step;
            position = select(is_best, min(position, own), position);
        }
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..comptime![selection.key_words] {
            words.push(best.index(word).read());
        }
        Entry::new(words, position, selection).if_exists(self.existing != 0)
    }

    /// The words of an element's key, and whether the element exists.
    pub(super) fn key(&self, #[comptime] element: usize) -> (Entry, bool) {
        (Entry { words: self.key_words(element) }, self.exists(element))
    }

    fn key_words(&self, #[comptime] element: usize) -> Sequence<u32> {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..comptime![self.selection.key_words] {
            words.push(self.key_word(word, element));
        }
        words
    }

    /// A word of an element's key.
    fn key_word(&self, #[comptime] word: usize, #[comptime] element: usize) -> u32 {
        self.limits.of(*self.keys.index(word).index(element))
    }

    /// The entry of an element with the greatest key of those from one number up to another, which
    /// all exist, and the bit of the element.
    pub(super) fn greatest_of(
        &self,
        #[comptime] start: usize,
        #[comptime] end: usize,
    ) -> (Entry, u32) {
        if comptime![end - start == 1] {
            // No choice among registers is needed.
            (self.known_entry(start), comptime![1u32 << start].runtime())
        } else {
            let greatest = self.number_of_greatest(start, end);
            (self.entry(greatest), 1u32 << greatest)
        }
    }

    fn number_of_greatest(&self, #[comptime] start: usize, #[comptime] end: usize) -> u32 {
        let mut greatest = comptime![start as u32].runtime();
        let best = no_key(comptime![self.selection]);
        #[unroll]
        for element in start..end {
            let exceeds = self.exceeds(element, &best);
            greatest = select(exceeds, comptime![element as u32].runtime(), greatest);
            self.copy_key_if(exceeds, element, &best);
        }
        greatest
    }

    /// A word of an element's entry.
    pub(super) fn word(&self, #[comptime] word: usize, #[comptime] element: usize) -> u32 {
        let key_words = comptime![self.selection.key_words];
        if comptime![word < key_words] {
            self.key_word(word, element)
        } else {
            let start = *self.starts.index(comptime![element / self.vector]);
            let position = start + comptime![element % self.vector] * self.step;
            if comptime![word + 1 < self.selection.words()] {
                !u32::cast_from(position >> 32usize)
            } else {
                !u32::cast_from(position)
            }
        }
    }

    fn exists(&self, #[comptime] element: usize) -> bool {
        // All elements of a load exist, or none does.
        self.existing & comptime![1u32 << (element / self.vector * self.vector)] != 0
    }

    /// Whether an element has a greater key.
    fn exceeds(&self, #[comptime] element: usize, key: &Sequence<RuntimeCell<u32>>) -> bool {
        let words = comptime![self.selection.key_words];
        let mut exceeds = false.runtime();
        #[unroll]
        for nth in 0..words {
            let word = comptime![words - 1 - nth];
            let own = self.key_word(word, element);
            let other = key.index(word).read();
            exceeds = own > other || own == other && exceeds;
        }
        exceeds
    }

    fn copy_key_if(
        &self,
        condition: bool,
        #[comptime] element: usize,
        key: &Sequence<RuntimeCell<u32>>,
    ) {
        #[unroll]
        for word in 0..comptime![self.selection.key_words] {
            let cell = key.index(word);
            let own = self.key_word(word, element);
            cell.store(select(condition, own, cell.read()));
        }
    }

    /// The entry of an element.
    pub(super) fn entry(&self, element: u32) -> Entry {
        let selection = comptime![self.selection];
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..comptime![selection.key_words] {
            words.push(self.limits.of(pick::<u32>(self.keys.index(word), element)));
        }
        Entry::new(words, self.position(element), selection)
    }

    /// The entry of an element whose number is known before the kernel runs.
    fn known_entry(&self, #[comptime] element: usize) -> Entry {
        let start = *self.starts.index(comptime![element / self.vector]);
        let position = start + comptime![element % self.vector] * self.step;
        Entry::new(self.key_words(element), position, comptime![self.selection])
    }

    /// The position of an element.
    fn position(&self, element: u32) -> usize {
        let load = element / comptime![self.vector as u32];
        let component = (element % comptime![self.vector as u32]) as usize;
        pick::<usize>(&self.starts, load) + component * self.step
    }
}

/// The words of the least key.
#[cube]
fn no_key(#[comptime] selection: Selection) -> Sequence<RuntimeCell<u32>> {
    let mut words = Sequence::<RuntimeCell<u32>>::new();
    #[unroll]
    for _ in 0..comptime![selection.key_words] {
        words.push(RuntimeCell::new(0u32));
    }
    words
}

/// The value with a number, of values in registers: a tree of choices by each bit of the number.
#[cube]
fn pick<T: CubePrimitive>(values: &Sequence<T>, number: u32) -> T {
    let count = values.len().comptime();
    if comptime![count == 1] {
        *values.index(0usize)
    } else {
        let mut left = Sequence::<T>::new();
        #[unroll]
        for pair in 0..comptime![count.div_ceil(2)] {
            let even = *values.index(comptime![2 * pair]);
            if comptime![2 * pair + 1 < count] {
                let odd = *values.index(comptime![2 * pair + 1]);
                left.push(select(number & 1 == 1, odd, even));
            } else {
                left.push(even);
            }
        }
        pick::<T>(&left, number >> 1u32)
    }
}
