//! The first entries of a buffer, found by radix selection.

use cubecl::prelude::*;

use super::{
    buffer::Buffer, entry::Entry, one_per_slice::OnePerSlice, selection::Selection,
    undecided::Undecided,
};
use crate::{kernels::team::UnitPlace, operator::Slice};

/// Most cells among which units divide the search for the least and the greatest word of a slice.
/// Units that write to one cell wait for each other, and each unit reads all of them.
const CELLS: u32 = 16;

/// What the digits that entries are counted by need of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Digits {
    /// Most bits of a digit.
    bits: u32,
    /// Values of a digit.
    bins: u32,
    /// Groups of neighbouring values, about as many as there are values in a group.
    groups: u32,
    /// Cells of a slice for each word.
    cells: u32,
}

impl Digits {
    fn of(selection: Selection) -> Self {
        let bits = selection.digit_bits;
        let cells = CELLS.min(selection.team.units_per_tile);
        Self { bits, bins: 1 << bits, groups: 1 << (bits / 2), cells }
    }
}

/// Shared memory in which the entries of slices are counted. All cuts of a kernel use the same.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Counting {
    place: UnitPlace,
    /// Entries with each value of a digit, of each slice, for two digits in turn.
    histogram: Slice<Atomic<u32>>,
    /// The same for groups of values.
    sums: Slice<u32>,
    /// For each word of entries, cells of each slice: the least word of some entries.
    least: Slice<Atomic<u32>>,
    /// The greatest.
    greatest: Slice<Atomic<u32>>,
    /// The digit of entry number `k` of each slice.
    found: Slice<u32>,
    /// How many of the entries with that digit are among the first.
    needed: Slice<u32>,
    /// Whether all of them are.
    done: Slice<u32>,
    /// Slices of which that is not so.
    undone: Slice<Atomic<u32>>,
    /// For each word of entries, slices that have further digits of it.
    busy: Slice<Atomic<u32>>,
    #[cube(comptime)]
    selection: Selection,
}

#[cube]
impl Counting {
    pub(super) fn new(place: UnitPlace, #[comptime] selection: Selection) -> Counting {
        let digits = comptime![Digits::of(selection)];
        let (words, tiles) = comptime![(selection.words(), selection.tiles())];
        let bins = comptime![tiles * digits.bins as usize];
        let groups = comptime![tiles * digits.groups as usize];
        let cells = comptime![words * tiles * digits.cells as usize];
        Counting {
            place,
            histogram: Slice::of(&Shared::<[Atomic<u32>]>::new_slice(comptime![2 * bins])),
            sums: Slice::of(&Shared::<[u32]>::new_slice(groups)),
            least: Slice::of(&Shared::<[Atomic<u32>]>::new_slice(cells)),
            greatest: Slice::of(&Shared::<[Atomic<u32>]>::new_slice(cells)),
            found: Slice::of(&Shared::<[u32]>::new_slice(tiles)),
            needed: Slice::of(&Shared::<[u32]>::new_slice(tiles)),
            done: Slice::of(&Shared::<[u32]>::new_slice(tiles)),
            undone: Slice::of(&Shared::<[Atomic<u32>]>::new_slice(1usize)),
            busy: Slice::of(&Shared::<[Atomic<u32>]>::new_slice(words)),
            selection,
        }
    }

    /// Prepares a cut. A barrier must follow before anything is counted.
    pub(super) fn begin(&self) {
        let digits = comptime![Digits::of(self.selection)];
        let (words, cells) = comptime![(self.selection.words(), digits.cells)];
        self.clear(0u32.runtime());
        if self.place.member < cells {
            #[unroll]
            for word in 0..words {
                let cell =
                    self.first_cell(comptime![word as u32].runtime()) + self.place.member as usize;
                self.least[cell].store(u32::MAX);
                self.greatest[cell].store(0u32);
            }
        }
        if UNIT_POS == 0 {
            self.undone[0].store(comptime![self.selection.tiles() as u32]);
            #[unroll]
            for word in 0..words {
                self.busy[word].store(0u32);
            }
        }
    }

    /// Where the counts of a slice begin, those of one of two digits.
    pub(super) fn first_count(&self, turn: u32) -> usize {
        let bins = comptime![1usize << self.selection.digit_bits];
        let tiles = comptime![self.selection.tiles()];
        ((turn % 2) as usize * tiles + self.place.tile as usize) * bins
    }

    /// Where the cells of a slice begin, those of a word.
    fn first_cell(&self, word: u32) -> usize {
        let cells = comptime![Digits::of(self.selection).cells as usize];
        let tiles = comptime![self.selection.tiles()];
        (word as usize * tiles + self.place.tile as usize) * cells
    }

    /// Sets the counts of one of two digits to 0.
    pub(super) fn clear(&self, turn: u32) {
        let first = self.first_count(turn);
        let mut bin = self.place.member;
        while bin < comptime![1u32 << self.selection.digit_bits] {
            self.histogram[first + bin as usize].store(0u32);
            bin += comptime![self.selection.team.units_per_tile];
        }
    }

    /// Stores the least and the greatest of a unit's words.
    pub(super) fn put_range(&self, word: u32, least: u32, greatest: u32) {
        let cells = comptime![Digits::of(self.selection).cells];
        let cell = self.first_cell(word) + (self.place.member % cells) as usize;
        self.least[cell].fetch_min(least);
        self.greatest[cell].fetch_max(greatest);
    }

    /// The least and the greatest word of the slice.
    pub(super) fn range(&self, word: u32) -> (u32, u32) {
        let cells = comptime![Digits::of(self.selection).cells as usize];
        let first = self.first_cell(word);
        let mut least = u32::MAX.runtime();
        let mut greatest = 0u32.runtime();
        #[unroll]
        for cell in 0..cells {
            least = min(least, self.least[first + cell].load());
            greatest = max(greatest, self.greatest[first + cell].load());
        }
        (least, greatest)
    }

    /// Adds up the counts of each group of values, each by a unit.
    pub(super) fn add_groups(&self, turn: u32) {
        let digits = comptime![Digits::of(self.selection)];
        let member = self.place.member;
        let each = comptime![digits.bins / digits.groups];
        if member < comptime![digits.groups] {
            let first = self.first_count(turn) + (member * each) as usize;
            let mut sum = 0u32;
            #[unroll]
            for nth in 0..each {
                // Each unit begins with another value: those of the same number share a bank.
                let value = (nth + member) % each;
                sum += self.histogram[first + value as usize].load();
            }
            let groups = comptime![digits.groups as usize];
            let mut sums = self.sums;
            sums[self.place.tile as usize * groups + member as usize] = sum;
        }
    }

    /// Finds the digit of entry number `needed` among the counted ones. The unit whose group has it
    /// returns true, after it has stored the digit, how many of the entries with it are needed, and
    /// whether that is enough.
    pub(super) fn find(&self, turn: u32, needed: u32, #[comptime] exact: bool) -> bool {
        let digits = comptime![Digits::of(self.selection)];
        let groups = comptime![digits.groups as usize];
        let each = comptime![digits.bins / digits.groups];
        let (tile, member) = (self.place.tile as usize, self.place.member);
        let mut is_finder = false.runtime();
        if member < comptime![digits.groups] {
            let mut above = 0u32;
            #[unroll]
            for group in 0..groups {
                let sum = self.sums[tile * groups + group];
                above += select(comptime![group as u32] > member, sum, 0u32);
            }
            let in_group = self.sums[tile * groups + member as usize];
            is_finder = needed > above && needed <= above + in_group;
            if is_finder {
                let first = self.first_count(turn) + (member * each) as usize;
                let mut left = needed - above;
                let mut digit = 0u32;
                let mut of_digit = 0u32;
                let mut is_open = true.runtime();
                #[unroll]
                for nth in 0..each {
                    let value = comptime![each - 1 - nth];
                    let counted = self.histogram[first + comptime![value as usize]].load();
                    let is_last = is_open && left <= counted;
                    digit = select(is_last, value.runtime(), digit);
                    of_digit = select(is_last, counted, of_digit);
                    is_open = is_open && !is_last;
                    left = select(is_open, left - counted, left);
                }
                let is_enough = if comptime![exact] { of_digit == 1 } else { left == of_digit };
                let (mut found, mut needed, mut done) = (self.found, self.needed, self.done);
                found[tile] = member * each + digit;
                needed[tile] = left;
                done[tile] = u32::cast_from(is_enough);
            }
        }
        is_finder
    }

    /// The digit that has been found, the number from 1 of the wanted one among the entries with it,
    /// and how many these are.
    pub(super) fn found(&self, turn: u32) -> (u32, u32, u32) {
        let tile = self.place.tile as usize;
        let digit = self.found[tile];
        let counted = self.histogram[self.first_count(turn) + digit as usize].load();
        (digit, self.needed[tile], counted)
    }

    /// Counts entries with a digit, whose counts begin at the `first`.
    pub(super) fn add(&self, first: usize, digit: u32, entries: u32) {
        self.histogram[first + digit as usize].fetch_add(entries);
    }

    /// All entries of a digit, after [`add_groups`](Self::add_groups).
    pub(super) fn total(&self) -> u32 {
        let groups = comptime![Digits::of(self.selection).groups as usize];
        let mut total = 0u32.runtime();
        #[unroll]
        for group in 0..groups {
            total += self.sums[self.place.tile as usize * groups + group];
        }
        total
    }

    /// Takes in for the other slices of the cube that a slice has a digit, the last of a word or not.
    fn leave(&self, word: u32, is_last: bool) {
        if comptime![self.selection.tiles() > 1] {
            let is_enough = self.done[self.place.tile as usize] == 1;
            if is_enough {
                self.undone[0].fetch_sub(1u32);
            }
            if is_enough || is_last {
                self.busy[word as usize].fetch_sub(1u32);
            }
        }
    }
}

/// Leaves the first `k` entries of each slice in no order, or all if there are fewer. Returns an
/// entry that all further ones must reach to be among the first `k`; `former` if nothing was cut.
/// Every unit of the cube must get here.
///
/// The range of the entries' most significant words is divided into equal parts, whose number is a
/// power of two, and the entries of each are counted. The part of entry number `k` follows, and
/// with it entries that are surely among the first and others that are surely not. Those of the
/// same part are counted in smaller parts, and when their words are equal, by their next word. This
/// ends when all of them are among the first, or, if it is `exact`, when one is left: entry number
/// `k`, which becomes the `last`. They wait in registers meanwhile.
///
/// The leading bits of a word would make poor digits: nearly all numbers of a buffer have the same
/// sign and exponent, and additions to one count wait for each other.
#[cube]
pub(super) fn cut(
    buffer: &Buffer,
    counting: &Counting,
    last: &OnePerSlice,
    former: &Entry,
    k: u32,
    #[comptime] exact: bool,
) -> Entry {
    let selection = comptime![buffer.selection];
    let words = comptime![selection.words() as u32];
    let tiles = comptime![selection.tiles()];
    let each = comptime![selection.entries_per_unit()];
    let (tile, member) = (buffer.place.tile as usize, buffer.place.member);

    let held = buffer.held();
    // A slice without more than `k` entries keeps its threshold: the cube cuts for another slice.
    let mut is_done = if comptime![exact] { held < k } else { held <= k };
    // Of a buffer that was cut exactly, the last entry is known. If entry number `k` is the one
    // before, as of a median of an even number of elements, it is the least of the others.
    let found = if comptime![exact] { last.get() } else { Entry::none(selection) };
    let excludes = held > k && found.exists();
    let is_least = comptime![exact] && held == k + u32::cast_from(excludes);
    let undecided = Undecided::of(buffer, former, &found.if_exists(excludes), is_done, exact);
    counting.begin();
    sync_cube();
    if member == 0 && is_done {
        counting.undone[0].fetch_sub(1u32);
    }

    let mut needed = k;
    let mut turn = 0u32.runtime();
    let mut word = 0u32.runtime();
    let mut works = true.runtime();
    while works {
        if !is_done {
            let (least, greatest) = undecided.range(word);
            counting.put_range(word, least, greatest);
        }
        sync_cube();
        let was_done = is_done;
        let (least, greatest) = counting.range(word);
        let mut base = least;
        // The bits that distinguish the words of open entries.
        let mut bits =
            select(is_done || is_least, 0u32, 32u32 - (greatest - least).leading_zeros());
        if is_least {
            undecided.keep_above(word, least);
        }
        if comptime![tiles > 1] {
            if member == 0 && bits > 0 {
                counting.busy[word as usize].fetch_add(1u32);
            }
            sync_cube();
        }
        let mut is_busy =
            if comptime![tiles > 1] { counting.busy[word as usize].load() > 0 } else { bits > 0 };
        while is_busy {
            let shift = bits - clamp_max(bits, selection.digit_bits);
            let is_counted = bits > 0 && !is_done;
            if is_counted {
                let first = counting.first_count(turn);
                #[unroll]
                for nth in 0..each {
                    if undecided.is_open(nth) {
                        let digit = (undecided.word(nth, word) - base) >> shift;
                        counting.add(first, digit, 1u32.runtime());
                    }
                }
            }
            sync_cube();
            counting.clear(turn + 1);
            if is_counted {
                counting.add_groups(turn);
            }
            sync_cube();
            if is_counted && counting.find(turn, needed, exact) {
                counting.leave(word, shift == 0);
            }
            sync_cube();
            if is_counted {
                let digit = counting.found[tile];
                undecided.decide(word, base, shift, digit);
                needed = counting.needed[tile];
                is_done = counting.done[tile] == 1;
                base += digit << shift;
                bits = shift;
            }
            turn += 1;
            is_busy = if comptime![tiles > 1] {
                counting.busy[word as usize].load() > 0
            } else {
                bits > 0 && !is_done
            };
        }
        undecided.put_word(word, base, was_done);
        word += 1;
        works = word < words
            && if comptime![tiles > 1] { counting.undone[0].load() > 0 } else { !is_done };
    }

    if member == 0 {
        buffer.count().store(0u32);
    }
    sync_cube();
    let mut left = 0u32;
    #[unroll]
    for nth in 0..each {
        left += u32::cast_from(undecided.is_left(nth));
    }
    let mut at = buffer.reserve(left);
    #[unroll]
    for nth in 0..each {
        if undecided.is_left(nth) {
            buffer.put(at, undecided.entry(nth));
            at += 1;
        }
    }
    if comptime![exact] {
        undecided.put_last(last);
    }
    sync_cube();
    undecided.threshold()
}
