//! Inputs of which only the selected elements are kept.

use cubecl::prelude::*;

use super::{
    entry::Entry,
    keys::key,
    selection::{Order, Selection},
};
use crate::{
    kernels::{
        args::KernelTypes,
        geometry::{Dim, offsets, strided},
    },
    operator::{Out, Out2, Single, Stored},
};

/// Writes each of `count` elements that does not come after the last selected element of its slice,
/// and `fill` in place of every other. A unit takes an element. The targets of `dims` are offsets in
/// the output; the other strides lead to the last selected element of a slice, and to the position
/// of an element in its slice.
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
    // Units leave here, because no barrier follows.
    if ABSOLUTE_POS < count {
        let at = offsets(dims, ABSOLUTE_POS);
        let slice = strided(dims, of_last, ABSOLUTE_POS);
        let element = elements[at.input];
        let position = strided(dims, of_position, ABSOLUTE_POS);
        let entry = entry_of(element, position, order, selection);
        let last_position = usize::cast_from(last_positions[slice]);
        let last = entry_of(last[slice], last_position, order, selection);
        let is_kept = entry.reaches(&last);
        kept[at.target] = select(is_kept, Out::cast_from(element), Out::cast_from(fill));
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
    let mut words = Sequence::<u32>::new();
    #[unroll]
    for word in 0..comptime![selection.key_words] {
        words.push(key.index(word).extract(0usize));
    }
    Entry::new(words, position, selection)
}
