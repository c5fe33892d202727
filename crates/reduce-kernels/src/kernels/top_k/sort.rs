//! Puts the entries of each slice in order.

use cubecl::prelude::*;

use super::{buffer::Buffer, entry::Entry, selection::Order};

/// Puts the first `k` entries of each slice in order. A slice must hold at least `k` entries or
/// have fewer in all. Every unit of the cube must get here.
#[cube]
pub(super) fn sort(buffer: &Buffer, order: Order, k: u32) {
    let selection = comptime![buffer.selection];
    let units = comptime![selection.team.units_per_tile];
    let member = buffer.place.member;
    let mut len = 1u32.runtime();
    while len < k {
        len *= 2;
    }
    // Places up to the next power of two hold entries that come last.
    let none = Entry::none(selection);
    let mut at = buffer.held() + member;
    while at < len {
        buffer.put(at, &none);
        at += units;
    }
    sync_cube();
    sort_len(buffer, order, len);
}

/// How many of the first `held` entries of the unit's slice come before an entry. The number of a
/// few entries is found by this sooner than by sorting them, because it needs no barrier.
#[cube]
pub(super) fn number_of(buffer: &Buffer, entry: &Entry, held: u32, order: Order) -> u32 {
    let selection = comptime![buffer.selection];
    let mut number = 0u32.runtime();
    for nth in 0..held {
        number += u32::cast_from(buffer.at(nth).comes_before(entry, order, selection));
    }
    number
}

/// Puts the entries of each slice in order, of which each has `len`, a power of two, by bitonic
/// sorting (K. E. Batcher, "Sorting networks and their applications", 1968). Every unit of the cube
/// must get here.
#[cube]
pub(super) fn sort_len(buffer: &Buffer, order: Order, len: u32) {
    let selection = comptime![buffer.selection];
    let units = comptime![selection.team.units_per_tile];
    let member = buffer.place.member;
    let mut size = 2u32.runtime();
    while size <= len {
        let mut step = size / 2;
        while step > 0 {
            let mut pair = member;
            while pair < len / 2 {
                let lower = 2 * pair - (pair & (step - 1));
                let (left, right) = (buffer.at(lower), buffer.at(lower + step));
                let forwards = lower & size == 0;
                let ahead = right.comes_before(&left, order, selection);
                // No equality: CubeCL 0.11 compares truth values in WGSL alone.
                if ahead && forwards || !ahead && !forwards {
                    buffer.put(lower, &right);
                    buffer.put(lower + step, &left);
                }
                pair += units;
            }
            sync_cube();
            step /= 2;
        }
        size *= 2;
    }
}
