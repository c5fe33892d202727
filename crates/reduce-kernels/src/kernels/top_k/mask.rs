//! Inputs of which only the selected elements are kept.

use cubecl::prelude::*;

use super::{
    entry::Entry,
    keys::{Limits, key},
    selection::{Order, Selection},
};
use crate::{
    kernels::{
        args::KernelTypes,
        geometry::{Dim, offsets, strided},
    },
    operator::{Out, Out2, Single, Stored},
};

/// Elements of a unit, as many as units of a cube apart.
pub(crate) const EACH: usize = 4;

/// Writes each of `count` elements that does not come after the last selected element of its slice,
/// and `fill` in place of every other. A unit takes [`EACH`] elements. The targets of `dims` are
/// offsets in the output; the other strides lead to the last selected element of a slice, and to the
/// position of an element in its slice.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn keep_selected(
    _types: &KernelTypes,
    elements: &[Stored],
    last: &[Stored],
    last_positions: &[Out2],
    kept: &mut [Out],
    dims: &Sequence<Dim>,
    of_last: &Sequence<usize>,
    of_position: &Sequence<usize>,
    order: Order,
    fill: f32,
    count: usize,
    #[comptime] selection: Selection,
) {
    let units = CUBE_DIM as usize;
    let first = CUBE_POS * (units * EACH) + UNIT_POS as usize;
    // Units leave here, because no barrier follows.
    if first < count {
        // All loads are issued before the first is used. An element that does not exist repeats the
        // first, which no other unit writes.
        let mut values = Sequence::<Stored>::new();
        let mut lasts = Sequence::<Stored>::new();
        #[unroll]
        for nth in 0..EACH {
            let at = first + nth * units;
            let at = select(at < count, at, first);
            values.push(elements[offsets(dims, at).input]);
            lasts.push(last[strided(dims, of_last, at)]);
        }
        #[unroll]
        for nth in 0..EACH {
            let at = first + nth * units;
            if at < count {
                let element = *values.index(nth);
                let position = strided(dims, of_position, at);
                let entry = entry_of(element, position, order, selection);
                let last_position = usize::cast_from(last_positions[strided(dims, of_last, at)]);
                let last = entry_of(*lasts.index(nth), last_position, order, selection);
                let is_kept = entry.reaches(&last);
                let kept_or_filled = select(is_kept, Out::cast_from(element), Out::cast_from(fill));
                kept[offsets(dims, at).target] = kept_or_filled;
            }
        }
    }
}

#[cube]
fn entry_of(
    element: Stored,
    position: usize,
    order: Order,
    #[comptime] selection: Selection,
) -> Entry {
    let key = key::<Single>(Vector::new(element), order, selection);
    let limits = Limits::new(order, selection);
    let mut words = Sequence::<u32>::new();
    #[unroll]
    for word in 0..comptime![selection.key_words] {
        words.push(limits.of(key.index(word).extract(0usize)));
    }
    Entry::new(words, position, selection)
}
