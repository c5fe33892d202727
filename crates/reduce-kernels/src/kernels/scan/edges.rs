//! Rows that begin and end inside vectors. Their loads are the aligned vectors that hold any of their
//! elements. Of the first and the last one, a row has some components, and the others are those of
//! other rows.

use cubecl::prelude::*;

use super::{Part, ScanSpec};
use crate::{
    kernels::{load::Loaded, share::Share},
    operator::{Stored, Wide},
};

/// The ends of a row, counted in the direction of the scan.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Edges {
    /// Loads of the row.
    pub(super) loads: usize,
    /// Components of its first load that come before its first element.
    pub(super) lead: usize,
    /// Elements of the row, if it is peeled.
    len: usize,
}

/// Which components of a load the row has, by the numbers in which they come.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Components {
    pub(super) first: u32,
    /// The number behind the last.
    pub(super) end: u32,
}

#[cube]
impl Edges {
    pub(super) fn of(share: &Share<'_>, #[comptime] spec: ScanSpec) -> Edges {
        if comptime![spec.access.peeled] {
            let vector = comptime![spec.access.vector];
            let len = share.geometry.inner_len;
            let before = share.tile.input % vector;
            let loads = (before + len).div_ceil(vector);
            let lead = if comptime![spec.reverse] { loads * vector - before - len } else { before };
            Edges { loads, lead, len }
        } else {
            Edges {
                loads: share.geometry.loads_per_tile,
                lead: 0usize.runtime(),
                len: 0usize.runtime(),
            }
        }
    }

    /// Whether the row has all components of the load with this number.
    pub(super) fn is_whole(&self, number: usize, #[comptime] spec: ScanSpec) -> bool {
        if comptime![spec.access.peeled] {
            let vector = comptime![spec.access.vector];
            let begins = number * vector >= self.lead;
            let ends = (number + 1) * vector <= self.lead + self.len;
            begins && ends
        } else {
            true.runtime()
        }
    }

    /// The components of the load with this number, which exists.
    pub(super) fn components(&self, number: usize, #[comptime] spec: ScanSpec) -> Components {
        let vector = comptime![spec.access.vector];
        if comptime![spec.access.peeled] {
            let before = number * vector;
            let first = clamp_min(self.lead, before) - before;
            let end = clamp_max(self.lead + self.len - before, vector);
            Components { first: u32::cast_from(first), end: u32::cast_from(end) }
        } else {
            Components { first: 0u32.runtime(), end: comptime![vector as u32].runtime() }
        }
    }
}

/// [`Part::issue`] of rows that begin and end inside vectors.
#[cube]
pub(super) fn issue_peeled(part: &Part<'_>, turn: usize) -> Sequence<Loaded> {
    let (share, spec) = (part.share, comptime![part.spec]);
    let (geometry, input) = (share.geometry, share.input);
    let vector = comptime![spec.access.vector];
    let (start, count) = (share.tile.input, part.edges.loads);
    let end = start + geometry.inner_len;
    // A row this long has a whole vector.
    let (first_whole, behind_whole) = (start.div_ceil(vector), end / vector);
    let mut indices = Sequence::<usize>::new();
    let mut wholes = Sequence::<usize>::new();
    let mut vectors = Sequence::<Vector<Stored, Wide>>::new();
    let arrays = input.vectors.count();
    // All vectors are asked for before the first one is waited for.
    #[unroll]
    for k in 0..comptime![spec.access.loads_in_flight] {
        let number = part.number(turn, k);
        let place = part.place(clamp_max(number, count - 1));
        let index = start / vector + place;
        let is_whole = index >= first_whole && index < behind_whole;
        indices.push(index);
        let whole = select(is_whole, index, first_whole);
        if comptime![arrays > 1] {
            wholes.push(whole);
        } else {
            vectors.push(input.vectors.at(whole));
        }
    }
    // One choice among the arrays of a list serves all of them.
    if comptime![arrays > 1] {
        let values = input.vectors.at_each(&wholes, Vector::empty());
        #[unroll]
        for k in 0..wholes.len().comptime() {
            vectors.push(values.index(k).read());
        }
    }
    let mut loads = Sequence::<Loaded>::new();
    #[unroll]
    for k in 0..comptime![spec.access.loads_in_flight] {
        let index = *indices.index(k);
        let mut value = *vectors.index(k);
        let is_whole = index >= first_whole && index < behind_whole;
        if !is_whole {
            // The vector may reach beyond the input, so it is read element by element. What is not
            // of the row repeats its first element or its last, and is not used.
            let mut elements = Sequence::<usize>::new();
            #[unroll]
            for nth in 0..vector {
                elements.push(clamp_max(clamp_min(index * vector + nth, start), end - 1));
            }
            if comptime![arrays > 1] {
                let own = input.elements.at_each(&elements, Stored::from_int(0));
                #[unroll]
                for nth in 0..vector {
                    value.insert(nth, own.index(nth).read());
                }
            } else {
                #[unroll]
                for nth in 0..vector {
                    value.insert(nth, input.elements.at(*elements.index(nth)));
                }
            }
        }
        loads.push(part.loaded(part.number(turn, k), value));
    }
    loads
}
