//! A buffer with a threshold.

use cubecl::prelude::*;

use super::{
    buffer::Buffer,
    cut::{Counting, cut},
    elements::Offered,
    entry::Entry,
    one_per_slice::OnePerSlice,
    selection::{Order, Selection},
};
use crate::{kernels::team::UnitPlace, operator::Slice};

/// The buffers of a cube's slices and what further entries must reach.
#[derive(CubeType)]
pub(super) struct Selector {
    pub(super) buffer: Buffer,
    /// The entry that others must reach to be appended.
    threshold: Sequence<RuntimeCell<u32>>,
    /// Three flags, used in turn: whether a unit found its buffer full.
    full: Slice<Atomic<u32>>,
    /// Turns of [`offer`](Self::offer).
    turn: u32,
    counting: Counting,
    /// The entry that was found by its number.
    last: OnePerSlice,
    /// Whether a slice is known by its first entry alone, one for each.
    spread: Slice<Atomic<u32>>,
}

#[cube]
impl Selector {
    /// Empty buffers. Every unit of the cube must get here.
    pub(super) fn new(place: UnitPlace, #[comptime] selection: Selection) -> Selector {
        let buffer = Buffer::new(place, selection);
        let mut threshold = Sequence::<RuntimeCell<u32>>::new();
        #[unroll]
        for _ in 0..comptime![selection.words()] {
            threshold.push(RuntimeCell::new(0u32));
        }
        let full = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(3usize));
        if UNIT_POS < 3 {
            full[UNIT_POS as usize].store(0u32);
        }
        let counting = Counting::new(selection);
        let last = OnePerSlice::new(place.tile, selection);
        let spread = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(comptime![selection.tiles()]));
        sync_cube();
        let turn = 0u32.runtime();
        Selector { buffer, threshold, full, turn, counting, last, spread }
    }

    /// Appends those of the offered elements whose bit of `existing` is set and that reach the
    /// threshold. Where a buffer is full, those of all slices are cut to their first `k` entries,
    /// and the rest is offered again. If the buffer `is_empty` and all elements of all units exist,
    /// they have places before they are counted. Every unit of the cube must get here. Of each that
    /// is offered, there are `each` entries.
    pub(super) fn offer(
        &mut self,
        offered: &Sequence<Offered>,
        existing: u32,
        is_empty: bool,
        k: u32,
        #[comptime] each: usize,
    ) {
        let selection = comptime![self.buffer.selection];
        let units = comptime![selection.team.units_per_tile];
        let loads = offered.len().comptime();
        let all = comptime![((1u64 << each) - 1) as u32];
        let mut pending = 0u32;
        let least = self.threshold.index(0usize).read();
        #[unroll]
        for nth in 0..loads {
            let may_reach = offered.index(nth).may_reach(least, selection);
            pending |= select(may_reach, all.runtime(), 0u32) << comptime![(nth * each) as u32];
        }
        pending &= existing;
        if is_empty {
            let placed = comptime![(loads * each).min(selection.entries_per_unit())];
            #[unroll]
            for nth in 0..comptime![placed.div_ceil(each)] {
                let entries = offered.index(nth).entries(selection);
                #[unroll]
                for component in 0..comptime![each.min(placed - nth * each)] {
                    let row = comptime![(nth * each + component) as u32];
                    let at = self.buffer.place.member + row * units;
                    self.buffer.put(at, entries.index(component));
                }
            }
            if self.buffer.place.member == 0 {
                self.buffer.count().store(comptime![placed as u32 * units]);
            }
            pending &= comptime![!(((1u64 << placed) - 1) as u32)];
            sync_cube();
            if comptime![placed < loads * each] {
                self.cut(k);
            }
        }
        let mut again = true.runtime();
        while again {
            let flag = self.turn % 3;
            // All units have read the flag of the turn before last, and none sets it in this one:
            // there is one barrier in each turn.
            if UNIT_POS == 0 {
                self.full[((self.turn + 1) % 3) as usize].store(0u32);
            }
            if pending != 0 {
                let threshold = self.threshold();
                let mut reaching = 0u32;
                #[unroll]
                for nth in 0..loads {
                    if pending & comptime![all << (nth * each)] != 0 {
                        let entries = offered.index(nth).entries(selection);
                        #[unroll]
                        for component in 0..each {
                            let reaches = entries.index(component).reaches(&threshold);
                            let bit = comptime![(nth * each + component) as u32];
                            reaching |= u32::cast_from(reaches) << bit;
                        }
                    }
                }
                pending &= reaching;
                let is_room = self.buffer.count().load() < comptime![selection.capacity];
                if pending != 0 && is_room {
                    let mut at = self.buffer.reserve(pending.count_ones());
                    #[unroll]
                    for nth in 0..loads {
                        if pending & comptime![all << (nth * each)] != 0 {
                            let entries = offered.index(nth).entries(selection);
                            #[unroll]
                            for component in 0..each {
                                let bit = comptime![1u32 << (nth * each + component)];
                                if pending & bit != 0 && at < comptime![selection.capacity] {
                                    self.buffer.put(at, entries.index(component));
                                    pending &= comptime![!bit];
                                    at += 1;
                                }
                            }
                        }
                    }
                }
                if pending != 0 {
                    self.full[flag as usize].store(1u32);
                }
            }
            sync_cube();
            again = self.full[flag as usize].load() == 1;
            self.turn += 1;
            if again {
                self.cut(k);
            }
        }
    }

    /// Leaves the first `k` entries of each slice, and raises the threshold. Every unit of the cube
    /// must get here.
    pub(super) fn cut(&mut self, k: u32) {
        let threshold = self.cut_to(k, false);
        #[unroll]
        for word in 0..comptime![self.buffer.selection.words()] {
            self.threshold.index(word).store(*threshold.words.index(word));
        }
    }

    /// Leaves the first entries up to the one with this number, from 0, and returns that. Every unit
    /// of the cube must get here.
    pub(super) fn entry_number(&mut self, number: u32) -> Entry {
        self.cut_to(number + 1, true);
        self.last.get()
    }

    fn cut_to(&self, k: u32, #[comptime] exact: bool) -> Entry {
        let former = self.threshold();
        cut(&self.buffer, &self.counting, &self.last, &former, k, exact)
    }

    /// Whether the first entry of the unit's slice is written in place of all others. Every unit of
    /// the cube must get here.
    pub(super) fn spreads(&self, order: Order) -> bool {
        let flag = &self.spread[self.buffer.place.tile as usize];
        if self.buffer.place.member == 0 {
            flag.store(0u32);
        }
        sync_cube();
        let held = self.buffer.held();
        let mut nth = self.buffer.place.member;
        while nth < held {
            if self.buffer.at(nth).spreads(order) {
                flag.store(1u32);
            }
            nth += comptime![self.buffer.selection.team.units_per_tile];
        }
        sync_cube();
        let spreads = flag.load() == 1;
        sync_cube();
        spreads
    }

    /// The entry that others must reach.
    fn threshold(&self) -> Entry {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..comptime![self.buffer.selection.words()] {
            words.push(self.threshold.index(word).read());
        }
        Entry { words }
    }
}
