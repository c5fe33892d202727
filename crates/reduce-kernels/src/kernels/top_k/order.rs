//! Puts the entries of each slice in order.

use cubecl::prelude::*;

use super::{
    Order,
    buffer::{Buffer, Entry},
};

/// Puts the first `k` entries of each slice in order. A slice must hold at least `k` entries or have fewer in
/// all. Every unit of the cube must get here.
#[cube]
pub(super) fn sort(buffer: &Buffer, order: Order, k: u32) {
    let selection = comptime![buffer.selection];
    let words = comptime![selection.words()];
    let units = comptime![selection.team.units_per_tile];
    let member = buffer.place().member;
    let mut len = 1u32.runtime();
    while len < k {
        len *= 2;
    }
    // Places up to the next power of two hold entries that come last.
    let mut none = Sequence::<u32>::new();
    #[unroll]
    for _ in 0..words {
        none.push(0u32.runtime());
    }
    let none = Entry { words: none };
    let mut at = buffer.held() + member;
    while at < len {
        buffer.put(at, &none);
        at += units;
    }
    sync_cube();
    sort_len(buffer, order, len);
}

/// Puts the entries of each slice in order, of which each has `len`, a power of two, by bitonic
/// sorting (K. E. Batcher, "Sorting networks and their applications", 1968). Every unit of the cube
/// must get here.
#[cube]
pub(super) fn sort_len(buffer: &Buffer, order: Order, len: u32) {
    let selection = comptime![buffer.selection];
    let units = comptime![selection.team.units_per_tile];
    let member = buffer.place().member;
    let mut size = 2u32.runtime();
    while size <= len {
        let mut step = size / 2;
        while step > 0 {
            let mut pair = member;
            while pair < len / 2 {
                let lower = 2 * pair - (pair & (step - 1));
                let (left, right) = (buffer.at(lower), buffer.at(lower + step));
                let forwards = lower & size == 0;
                if right.comes_before(&left, order, selection) == forwards {
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
