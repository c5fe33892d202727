//! Elements and entries as units offer them.

use cubecl::prelude::*;

use super::{
    entry::Entry,
    keys::{key, may_reach},
    selection::{Order, Selection},
};
use crate::operator::{Position, Stored, Wide};

/// What a unit offers to its slice's buffer: the elements of a load, or an entry that exists
/// already. The entries of a load are made when they are needed, which is seldom.
#[derive(CubeType)]
pub(super) struct Offered {
    load: ComptimeOption<Vector<Stored, Wide>>,
    position: Position,
    order: Order,
    /// The entry that exists, if there is no load.
    entry: Sequence<Entry>,
}

#[cube]
impl Offered {
    /// The elements of a load.
    pub(super) fn of_load(
        value: Vector<Stored, Wide>,
        position: Position,
        order: Order,
    ) -> Offered {
        let load = ComptimeOption::new_Some(value);
        Offered { load, position, order, entry: Sequence::<Entry>::new() }
    }

    /// One entry.
    pub(super) fn of_entry(entry: &Entry, order: Order) -> Offered {
        let mut entries = Sequence::<Entry>::new();
        entries.push(entry.clone());
        let position = Position { start: 0usize, step: 0usize };
        Offered { load: ComptimeOption::new_None(), position, order, entry: entries }
    }

    /// Whether one of the entries may have a first word as great as `least`. It may be so where
    /// none has, but not the other way round.
    pub(super) fn may_reach(&self, least: u32, #[comptime] selection: Selection) -> bool {
        #[comptime]
        match &self.load {
            ComptimeOption::Some(value) => may_reach::<Wide>(*value, least, self.order, selection),
            ComptimeOption::None => *self.entry.index(0usize).words.index(0usize) >= least,
        }
    }

    /// The entries.
    pub(super) fn entries(&self, #[comptime] selection: Selection) -> Sequence<Entry> {
        #[comptime]
        match &self.load {
            ComptimeOption::Some(value) => {
                entries_of_load::<Wide>(*value, self.position, self.order, selection)
            }
            ComptimeOption::None => self.entry.clone(),
        }
    }
}

/// The entry of each component of a load.
#[cube]
pub(super) fn entries_of_load<N: Size>(
    value: Vector<Stored, N>,
    position: Position,
    order: Order,
    #[comptime] selection: Selection,
) -> Sequence<Entry> {
    let key = key::<N>(value, order, selection);
    let mut entries = Sequence::<Entry>::new();
    #[unroll]
    for nth in 0..N::value().comptime() {
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..comptime![selection.key_words] {
            words.push(key.index(word).extract(nth));
        }
        // Of equal elements, the one with the lower position comes first.
        let position = position.start + nth * position.step;
        if comptime![selection.position_words == 2] {
            words.push(!u32::cast_from(position >> 32usize));
        }
        words.push(!u32::cast_from(position));
        entries.push(Entry { words });
    }
    entries
}
