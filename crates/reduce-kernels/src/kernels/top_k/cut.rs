//! The first entries of a buffer, found by radix selection.

use cubecl::prelude::*;

use super::{
    Selection,
    buffer::{Buffer, Entry},
};
use crate::operator::Slice;

/// An entry that is not among the first.
const DROPPED: u32 = 0;
/// An entry of which it is not known.
const OPEN: u32 = 1;
/// An entry that is among the first.
const KEPT: u32 = 2;

/// Digits of `bits` bits that entries are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Digits {
    bits: u32,
    per_word: u32,
    levels: u32,
    /// Values of a digit.
    bins: u32,
    /// Groups of neighbouring values, about as many as there are values in a group.
    groups: u32,
}

impl Digits {
    fn of(selection: Selection) -> Self {
        let bits = selection.digit_bits;
        let per_word = u32::BITS / bits;
        let levels = per_word * selection.words() as u32;
        Self { bits, per_word, levels, bins: 1 << bits, groups: 1 << (bits / 2) }
    }
}

/// Shared memory in which the entries of slices are counted. It belongs to the buffers, because a kernel
/// may have several cuts.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Counting {
    /// Entries with each value of a digit, of each slice.
    histogram: Slice<Atomic<u32>>,
    /// The same for groups of values.
    sums: Slice<u32>,
    /// The digit of entry number `k` of each slice.
    found: Slice<u32>,
    /// How many of the entries with that digit are among the first.
    needed: Slice<u32>,
    /// Whether all of them are.
    done: Slice<u32>,
    /// Slices of which that is not so.
    undone: Slice<Atomic<u32>>,
}

#[cube]
impl Counting {
    pub(super) fn new(#[comptime] selection: Selection) -> Counting {
        let digits = comptime![Digits::of(selection)];
        let tiles = comptime![selection.tiles()];
        let bins = comptime![tiles * digits.bins as usize];
        let groups = comptime![tiles * digits.groups as usize];
        Counting {
            histogram: Slice::of(&Shared::<[Atomic<u32>]>::new_slice(bins)),
            sums: Slice::of(&Shared::<[u32]>::new_slice(groups)),
            found: Slice::of(&Shared::<[u32]>::new_slice(tiles)),
            needed: Slice::of(&Shared::<[u32]>::new_slice(tiles)),
            done: Slice::of(&Shared::<[u32]>::new_slice(tiles)),
            undone: Slice::of(&Shared::<[Atomic<u32>]>::new_slice(1usize)),
        }
    }
}

/// Leaves the first `k` entries of each slice in no order, or all if there are fewer. Returns an
/// entry that all further ones must reach to be among the first `k`. Every unit of the cube must get
/// here.
///
/// Entries are counted by their most significant digit. The digit of entry number `k` follows, and
/// with it entries that are surely among the first and others that are surely not. Those with the
/// same digit are counted by the next one, until all of them are among the first. They wait in
/// registers meanwhile.
#[cube]
pub(super) fn cut(buffer: &mut Buffer, k: u32) -> Entry {
    let selection = comptime![buffer.selection];
    let digits = comptime![Digits::of(selection)];
    let units = comptime![selection.team.units_per_tile];
    let tiles = comptime![selection.tiles()];
    let each = comptime![selection.entries_per_unit()];
    let place = buffer.place();
    let (tile, member) = (place.tile as usize, place.member);

    let bins = comptime![digits.bins as usize];
    let groups = comptime![digits.groups as usize];
    let Counting { histogram, sums, found, needed, done, undone } = buffer.counting();
    let (mut sums, mut found, mut needed, mut done) = (sums, found, needed, done);

    let held = buffer.held();
    let mut entries = Sequence::<Entry>::new();
    let mut states = Sequence::<RuntimeCell<u32>>::new();
    #[unroll]
    for nth in 0..each {
        let at = member + comptime![nth as u32 * units];
        entries.push(buffer.at(at));
        states.push(RuntimeCell::new(select(at < held, OPEN.runtime(), DROPPED.runtime())));
    }
    // A slice without more than `k` entries keeps its threshold: the cube cuts for another slice.
    let mut is_done = held <= k;
    let former = buffer.threshold();
    let mut threshold = Sequence::<RuntimeCell<u32>>::new();
    #[unroll]
    for word in 0..comptime![selection.words()] {
        threshold.push(RuntimeCell::new(select(is_done, *former.words.index(word), 0u32)));
    }
    if UNIT_POS == 0 {
        undone[0].store(comptime![tiles as u32]);
    }
    sync_cube();
    if member == 0 {
        needed[tile] = k;
        done[tile] = u32::cast_from(is_done);
        if is_done {
            undone[0].fetch_sub(1u32);
        }
    }
    sync_cube();

    let mut level = 0u32.runtime();
    let mut works = undone[0].load() > 0;
    while works {
        let word = level / comptime![digits.per_word];
        let shift = comptime![digits.bits]
            * (comptime![digits.per_word - 1] - level % comptime![digits.per_word]);

        let mut bin = member as usize;
        while bin < bins {
            histogram[tile * bins + bin].store(0u32);
            bin += comptime![units as usize];
        }
        sync_cube();
        #[unroll]
        for nth in 0..each {
            if states.index(nth).read() == OPEN && !is_done {
                let digit = digit_of(entries.index(nth), word, shift, digits);
                histogram[tile * bins + digit as usize].fetch_add(1u32);
            }
        }
        sync_cube();
        // Two steps of a few additions find the digit: the greatest group of digits, then the digit.
        if member < comptime![digits.groups] {
            let mut sum = 0u32;
            let first = tile * bins + member as usize * comptime![bins / groups];
            #[unroll]
            for nth in 0..comptime![bins / groups] {
                sum += histogram[first + nth].load();
            }
            sums[tile * groups + member as usize] = sum;
        }
        sync_cube();
        if member == 0 && !is_done {
            let mut need = needed[tile];
            let mut group = comptime![groups - 1].runtime();
            let mut in_group = sums[tile * groups + group];
            while need > in_group {
                need -= in_group;
                group -= 1;
                in_group = sums[tile * groups + group];
            }
            let mut digit = group * comptime![bins / groups] + comptime![bins / groups - 1];
            let mut of_digit = histogram[tile * bins + digit].load();
            while need > of_digit {
                need -= of_digit;
                digit -= 1;
                of_digit = histogram[tile * bins + digit].load();
            }
            found[tile] = digit as u32;
            needed[tile] = need;
            if need == of_digit {
                done[tile] = 1u32;
                undone[0].fetch_sub(1u32);
            }
        }
        sync_cube();
        if !is_done {
            let digit_of_last = found[tile];
            #[unroll]
            for nth in 0..each {
                let state = states.index(nth);
                if state.read() == OPEN {
                    let digit = digit_of(entries.index(nth), word, shift, digits);
                    if digit > digit_of_last {
                        state.store(KEPT);
                    }
                    if digit < digit_of_last {
                        state.store(DROPPED);
                    }
                }
            }
            #[unroll]
            for nth in 0..comptime![selection.words()] {
                if word == comptime![nth as u32] {
                    let cell = threshold.index(nth);
                    cell.store(cell.read() | digit_of_last << shift);
                }
            }
            is_done = done[tile] == 1;
        }
        level += 1;
        works = undone[0].load() > 0 && level < comptime![digits.levels];
    }

    if member == 0 {
        buffer.count().store(0u32);
    }
    sync_cube();
    #[unroll]
    for nth in 0..each {
        if states.index(nth).read() != DROPPED {
            let at = buffer.count().fetch_add(1u32);
            buffer.put(at, entries.index(nth));
        }
    }
    sync_cube();
    let mut words = Sequence::<u32>::new();
    #[unroll]
    for word in 0..comptime![selection.words()] {
        words.push(threshold.index(word).read());
    }
    Entry { words }
}

/// The digit of an entry in one of its words.
#[cube]
fn digit_of(entry: &Entry, word: u32, shift: u32, #[comptime] digits: Digits) -> u32 {
    let mut value = *entry.words.index(0usize);
    #[unroll]
    for nth in 1..entry.words.len().comptime() {
        value = select(word == comptime![nth as u32], *entry.words.index(nth), value);
    }
    value >> shift & comptime![digits.bins - 1]
}
