//! The first entries of a buffer, found by radix selection.

use cubecl::prelude::*;

use super::{
    buffer::Buffer, entry::Entry, one_per_slice::OnePerSlice, selection::Selection,
    undecided::Undecided,
};
use crate::operator::Slice;

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

/// Shared memory in which the entries of slices are counted. All cuts of a kernel use the same.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Counting {
    /// Entries with each value of a digit, of each slice, for two digits in turn.
    histogram: Slice<Atomic<u32>>,
    /// The same for groups of values.
    sums: Slice<u32>,
    /// The digit of entry number `k` of each slice.
    found: Slice<u32>,
    /// How many of the entries with that digit are among the first, for two digits in turn.
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
            histogram: Slice::of(&Shared::<[Atomic<u32>]>::new_slice(comptime![2 * bins])),
            sums: Slice::of(&Shared::<[u32]>::new_slice(groups)),
            found: Slice::of(&Shared::<[u32]>::new_slice(tiles)),
            needed: Slice::of(&Shared::<[u32]>::new_slice(comptime![2 * tiles])),
            done: Slice::of(&Shared::<[u32]>::new_slice(tiles)),
            undone: Slice::of(&Shared::<[Atomic<u32>]>::new_slice(1usize)),
        }
    }
}

/// Leaves the first `k` entries of each slice in no order, or all if there are fewer. Returns an
/// entry that all further ones must reach to be among the first `k`; `former` if nothing was cut.
/// Every unit of the cube must get here.
///
/// Entries are counted by their most significant digit. The digit of entry number `k` follows, and
/// with it entries that are surely among the first and others that are surely not. Those with the
/// same digit are counted by the next one, until all of them are among the first, or, if it is
/// `exact`, until one is left: entry number `k`, which becomes the `last`. They wait in registers meanwhile.
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
    let digits = comptime![Digits::of(selection)];
    let units = comptime![selection.team.units_per_tile];
    let tiles = comptime![selection.tiles()];
    let each = comptime![selection.entries_per_unit()];
    let place = buffer.place;
    let (tile, member) = (place.tile as usize, place.member);

    let bins = comptime![digits.bins as usize];
    let mask = comptime![digits.bins - 1];
    let groups = comptime![digits.groups as usize];
    let (histogram, undone) = (counting.histogram, counting.undone);
    let (mut sums, mut found) = (counting.sums, counting.found);
    let (mut needed, mut done) = (counting.needed, counting.done);

    let held = buffer.held();
    // A slice without more than `k` entries keeps its threshold: the cube cuts for another slice.
    let mut is_done = if comptime![exact] { held < k } else { held <= k };
    let undecided = Undecided::of(buffer, former, is_done);
    clear(histogram, member, tile * bins, comptime![bins as u32], units);
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
        // One of the two digits is counted, and the counts of the next begin as zeros.
        let (now, next) = ((level % 2) as usize, ((level + 1) % 2) as usize);
        let counts = (now * tiles + tile) * bins;
        #[unroll]
        for nth in 0..each {
            if undecided.is_open(nth) && !is_done {
                let digit = undecided.digit(nth, word, shift, mask);
                histogram[counts + digit as usize].fetch_add(1u32);
            }
        }
        sync_cube();
        clear(histogram, member, (next * tiles + tile) * bins, comptime![bins as u32], units);
        // A unit for each group of digits adds up its counts, and the one that has the digit finds
        // it.
        let of_group = comptime![bins / groups];
        let first = counts + member as usize * of_group;
        if member < comptime![digits.groups] {
            let mut sum = 0u32;
            #[unroll]
            for nth in 0..of_group {
                sum += histogram[first + nth].load();
            }
            sums[tile * groups + member as usize] = sum;
        }
        sync_cube();
        if member < comptime![digits.groups] && !is_done {
            let mut above = 0u32;
            #[unroll]
            for group in 0..groups {
                let sum = sums[tile * groups + group];
                above += select(comptime![group as u32] > member, sum, 0u32);
            }
            let need = needed[now * tiles + tile];
            let in_group = sums[tile * groups + member as usize];
            if need > above && need <= above + in_group {
                let mut left = need - above;
                let mut digit = 0u32;
                let mut of_digit = 0u32;
                let mut is_open = true.runtime();
                #[unroll]
                for nth in 0..of_group {
                    let value = comptime![of_group - 1 - nth];
                    let counted = histogram[first + value].load();
                    let is_last = is_open && left <= counted;
                    digit = select(is_last, comptime![value as u32].runtime(), digit);
                    of_digit = select(is_last, counted, of_digit);
                    is_open = is_open && !is_last;
                    left = select(is_open, left - counted, left);
                }
                found[tile] = member * comptime![of_group as u32] + digit;
                needed[next * tiles + tile] = left;
                let is_enough = if comptime![exact] { of_digit == 1 } else { left == of_digit };
                if is_enough {
                    done[tile] = 1u32;
                    undone[0].fetch_sub(1u32);
                }
            }
        }
        sync_cube();
        if !is_done {
            undecided.decide(word, shift, found[tile], mask);
            is_done = done[tile] == 1;
        }
        level += 1;
        works = undone[0].load() > 0 && level < comptime![digits.levels];
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

/// Clears so many counts, from `first` on.
#[cube]
fn clear(
    histogram: Slice<Atomic<u32>>,
    member: u32,
    first: usize,
    #[comptime] bins: u32,
    #[comptime] units: u32,
) {
    let mut bin = member;
    while bin < bins {
        histogram[first + bin as usize].store(0u32);
        bin += units;
    }
}
