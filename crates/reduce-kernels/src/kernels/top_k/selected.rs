//! The outputs of a selection.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    entry::Entry,
    keys::element_of,
    probabilities::{InOrder, Softmax},
    selection::{Order, Selection},
};
use crate::{
    kernels::{
        args::Input,
        geometry::{Geometry, Tile},
        share::Share,
    },
    operator::{Out, Out2, Real},
};

/// The values and the positions of the selected elements.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct SelectedArrays {
    values: Box<[Out]>,
    positions: Box<[Out2]>,
    /// The numbers of the elements to write, in descending order, if not all are. They are the
    /// first of a table, or of the table of each slice.
    pub(super) ranks: ComptimeOption<Box<[u32]>>,
    /// From the table of a slice to that of the next: 0 if all slices have one.
    rank_table_stride: usize,
    /// What a reduction has found of each slice, if probabilities are over all of its elements.
    pub(super) found: ComptimeOption<SoftmaxArrays>,
    /// Elements to write of each slice.
    pub(super) written: usize,
    /// From one of them to the next.
    rank_stride: usize,
    /// Where the outputs of the first slice begin.
    start: usize,
    /// The number of the first position: its low and its high word.
    first: u32,
    first_high: u32,
}

/// What makes probabilities of the elements of each slice, where its outputs begin.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct SoftmaxArrays {
    /// The largest element.
    pub(super) maxima: Box<[Real]>,
    /// One over the sum of the exponentials of differences from it.
    pub(super) reciprocals: Box<[Real]>,
}

#[cube]
impl SelectedArrays {
    /// The number of the `nth` element to write of the slice of a tile. If slices have tables of
    /// their own, the outputs of a rank lie side by side, so the first output of the slice is also
    /// its number.
    pub(super) fn rank(&self, tile: Tile, nth: usize) -> u32 {
        #[comptime]
        match &self.ranks {
            ComptimeOption::Some(ranks) => ranks[tile.output * self.rank_table_stride + nth],
            ComptimeOption::None => nth as u32,
        }
    }

    /// Writes the value and the position of the element with an entry, the `nth` of its slice.
    pub(super) fn put(&mut self, source: &Source<'_>, entry: &Entry, nth: usize) {
        let selection = comptime![source.selection];
        let position = entry.position(selection);
        let place = self.start + source.tile.output + nth * self.rank_stride;
        let (value, is_only) = element_of::<Out>(&entry.words, source.order, selection);
        // Keys forget the sign of zeros and the bits of NaN, so these are read again. They rarely
        // come from further away than the L2 cache.
        if is_only {
            self.values[place] = value;
        } else {
            self.values[place] = source.element_at(position);
        }
        self.positions[place] = self.number_of(source, position);
    }

    /// The softmax over what is asked for: what a reduction has found of all elements of the slice,
    /// if that has run, or else the `k` selected ones. Every unit of the cube must get here.
    pub(super) fn softmax(
        &self,
        entries: &InOrder,
        share: &Share<'_>,
        order: Order,
        k: u32,
        #[comptime] selection: Selection,
    ) -> Softmax {
        #[comptime]
        match &self.found {
            ComptimeOption::Some(found) => Softmax {
                max: found.maxima[share.tile.output],
                reciprocal: found.reciprocals[share.tile.output],
            },
            ComptimeOption::None => {
                Softmax::over_selected(entries, share.place, order, k, selection)
            }
        }
    }

    /// Writes the probability and the position of the element with an entry, the `nth` of its slice.
    pub(super) fn put_probability(
        &mut self,
        source: &Source<'_>,
        entry: &Entry,
        nth: usize,
        softmax: &Softmax,
    ) {
        let selection = comptime![source.selection];
        let place = self.start + source.tile.output + nth * self.rank_stride;
        self.values[place] = Out::cast_from(softmax.of(entry, source.order, selection));
        self.positions[place] = self.number_of(source, entry.position(selection));
    }

    /// What is written for a position: the element of the second input if there is one, otherwise
    /// the position counted from the first.
    fn number_of(&self, source: &Source<'_>, position: usize) -> Out2 {
        let table = source.input.second.elements;
        #[comptime]
        match &table {
            ComptimeOption::Some(table) => Out2::cast_from(table[source.second_offset(position)]),
            ComptimeOption::None => Out2::cast_from(position) + self.first_position(),
        }
    }

    fn first_position(&self) -> Out2 {
        let output = elem_type_of::<Out2>();
        if comptime![output.size() == 8] {
            let high = u64::cast_from(self.first_high) << 32u64;
            Out2::cast_from(high | u64::cast_from(self.first))
        } else {
            Out2::cast_from(self.first)
        }
    }
}

/// The slice that elements are selected from, and how they are ordered.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Source<'a> {
    input: &'a Input,
    geometry: &'a Geometry,
    tile: Tile,
    order: Order,
    #[cube(comptime)]
    access: Access,
    #[cube(comptime)]
    selection: Selection,
}

#[cube]
impl<'a> Source<'a> {
    pub(super) fn new(
        input: &'a Input,
        geometry: &'a Geometry,
        tile: Tile,
        order: Order,
        #[comptime] access: Access,
        #[comptime] selection: Selection,
    ) -> Source<'a> {
        Source::<'a> { input, geometry, tile, order, access, selection }
    }

    /// The element of the slice at a position.
    fn element_at(&self, position: usize) -> Out {
        let geometry = self.geometry;
        let mut offset = self.tile.input;
        #[unroll]
        for nth in 0..geometry.reduced.len().comptime() {
            offset += self.coordinate(position, nth) * geometry.reduced.index(nth).stride;
        }
        offset += self.inner_coordinate(position) * geometry.inner_stride;
        Out::cast_from(self.input.elements.at(offset))
    }

    /// The offset of its element in the second input, which there is.
    fn second_offset(&self, position: usize) -> usize {
        let strides = self.geometry.second.as_ref().unwrap();
        let mut offset = self.tile.second;
        #[unroll]
        for nth in 0..self.geometry.reduced.len().comptime() {
            offset += self.coordinate(position, nth) * *strides.reduced.index(nth);
        }
        offset + self.inner_coordinate(position) * strides.inner
    }

    /// The index of a position along an outer reduced dimension.
    fn coordinate(&self, position: usize, #[comptime] nth: usize) -> usize {
        let dim = self.geometry.reduced.index(nth);
        let (_, coordinate) = dim.extent.div_mod(position / dim.target_stride);
        coordinate
    }

    /// The index of a position along the inner dimension, if that is reduced.
    fn inner_coordinate(&self, position: usize) -> usize {
        if comptime![self.access.direction == Direction::Along] {
            // A slice of one element has no inner dimension, and its position no stride.
            let step = clamp_min(self.geometry.inner_target_stride, 1usize);
            position / step % self.geometry.inner_len
        } else {
            0usize.runtime()
        }
    }
}
