//! Probabilities in place of values: exponentials over their sum.
//!
//! The sum of the exponentials of the selected elements is made of 32 sums, each of every 32nd
//! element in the order in which they are written. Units share these sums, so the bits of a
//! probability depend neither on the number of units nor on the method.

use cubecl::prelude::*;
use reduce_planner::TopKPlan;

use super::{
    buffer::Buffer,
    candidates::CandidateArrays,
    entry::Entry,
    keys::{element_of, is_nan},
    offer::Offer,
    selected::{SelectedArrays, Source},
    selection::{Order, Selection},
};
use crate::{
    kernels::{share::Share, team::UnitPlace},
    operator::{
        Real, Single, Slice,
        builtin::exponential,
        element_wise::{is_finite, nan_or_lowest},
    },
};

/// The sums that the exponentials of selected elements are added up in.
const SUMS: u32 = TopKPlan::EXPONENTIAL_SUMS;

/// What makes probabilities of the elements of a slice.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Softmax {
    /// The largest element.
    pub(super) max: Real,
    /// One over the sum of the exponentials of differences from it.
    pub(super) reciprocal: Real,
}

#[cube]
impl Softmax {
    /// With the largest element and the sum. If the largest is infinite, all probabilities are NaN,
    /// as they are if one element is NaN.
    fn new(max: Real, sum: Real) -> Softmax {
        let is_finite = is_finite::<Real, Single>(Vector::new(max)).extract(0usize);
        let reciprocal = select(is_finite, Real::from_int(1) / sum, nan_or_lowest::<Real>());
        Softmax { max, reciprocal }
    }

    /// Over the selected elements of a slice, of which there are `k`. Every unit of the cube must
    /// get here.
    pub(super) fn over_selected(
        selected: &InOrder,
        place: UnitPlace,
        order: Order,
        k: u32,
        #[comptime] selection: Selection,
    ) -> Softmax {
        let units = comptime![selection.team.units_per_tile];
        let sums = PerSlice::new(place.tile, SUMS, selection);
        let largest = select(order.inverted == 0, 0u32, k - 1);
        let mut max = value_of(&selected.entry(largest), order, selection);
        if order.is_of_positions() {
            let mut nth = place.member;
            while nth < SUMS {
                let mut max = value_of(&selected.entry(clamp_max(nth, k - 1)), order, selection);
                let mut rank = nth + SUMS;
                while rank < k {
                    max = greater(max, value_of(&selected.entry(rank), order, selection));
                    rank += SUMS;
                }
                sums.put(nth, max);
                nth += units;
            }
            sync_cube();
            max = sums.greatest(SUMS.runtime());
            sync_cube();
        }
        let mut nth = place.member;
        while nth < SUMS {
            let mut sum = Real::from_int(0);
            let mut rank = nth;
            while rank < k {
                sum += exponential_of(&selected.entry(rank), max, order, selection);
                rank += SUMS;
            }
            sums.put(nth, sum);
            nth += units;
        }
        sync_cube();
        Softmax::new(max, sums.total(clamp_max(k, SUMS)))
    }

    /// Over all elements of a slice, which units hold. `first` has the key that comes first. Every
    /// unit of the cube must get here.
    pub(super) fn over_slice(
        offer: &Offer,
        first: &Entry,
        place: UnitPlace,
        order: Order,
        #[comptime] selection: Selection,
    ) -> Softmax {
        let units = comptime![selection.team.units_per_tile];
        let sums = PerSlice::new(place.tile, units, selection);
        let mut max = value_of(first, order, selection);
        if order.inverted != 0 {
            let mut own = max;
            #[unroll]
            for nth in 0..offer.elements().comptime() {
                let (key, exists) = offer.key(nth);
                let value = value_of(&key, order, selection);
                own = select(exists, greater(own, value), own);
            }
            sums.put(place.member, own);
            sync_cube();
            max = sums.greatest(units.runtime());
            sync_cube();
        }
        let mut sum = Real::from_int(0);
        #[unroll]
        for nth in 0..offer.elements().comptime() {
            let (key, exists) = offer.key(nth);
            let exponential = exponential_of(&key, max, order, selection);
            sum += select(exists, exponential, Real::from_int(0));
        }
        sums.put(place.member, sum);
        sync_cube();
        Softmax::new(max, sums.total(units.runtime()))
    }

    /// The probability of an element.
    pub(super) fn of(&self, entry: &Entry, order: Order, #[comptime] selection: Selection) -> Real {
        exponential_of(entry, self.max, order, selection) * self.reciprocal
    }
}

/// The selected elements of a slice in the order in which they are written: their entries, in
/// shared memory or in memory.
#[derive(CubeType)]
pub(super) struct InOrder {
    /// An array for each word.
    words: Sequence<Slice<u32>>,
    /// The place of the first.
    start: usize,
}

#[cube]
impl InOrder {
    /// Those of the unit's slice, at the beginning of its buffer.
    pub(super) fn of_buffer(buffer: &Buffer) -> InOrder {
        let mut words = Sequence::<Slice<u32>>::new();
        #[unroll]
        for word in 0..buffer.words.len().comptime() {
            words.push(*buffer.words.index(word));
        }
        InOrder { words, start: buffer.place_of(0u32) }
    }

    /// Those from a place on.
    pub(super) fn of_candidates(candidates: &CandidateArrays, start: usize) -> InOrder {
        let mut words = Sequence::<Slice<u32>>::new();
        #[unroll]
        for word in 0..candidates.words.len().comptime() {
            words.push(Slice::of(candidates.words.index(word)));
        }
        InOrder { words, start }
    }

    fn entry(&self, rank: u32) -> Entry {
        let place = self.start + rank as usize;
        let mut words = Sequence::<u32>::new();
        #[unroll]
        for word in 0..self.words.len().comptime() {
            words.push(self.words.index(word)[place]);
        }
        Entry { words }
    }
}

/// Writes the probabilities and the positions of the selected elements of a slice.
#[cube]
pub(super) fn write_probabilities(
    selected: &mut SelectedArrays,
    share: &Share<'_>,
    entries: &InOrder,
    softmax: &Softmax,
    order: Order,
    #[comptime] selection: Selection,
) {
    let (input, geometry, tile) = (share.input, share.geometry, share.tile);
    if tile.results > 0 {
        let access = comptime![share.access];
        let source = Source::new(input, geometry, tile, order, access, selection);
        let mut nth = share.place.member as usize;
        while nth < selected.written {
            let entry = entries.entry(selected.rank(share.tile, nth));
            selected.put_probability(&source, &entry, nth, softmax);
            nth += comptime![selection.team.units_per_tile as usize];
        }
    }
}

/// Shared memory for some numbers of each slice of a cube.
#[derive(CubeType)]
struct PerSlice {
    numbers: Slice<Real>,
    first: usize,
}

#[cube]
impl PerSlice {
    fn new(tile: u32, #[comptime] count: u32, #[comptime] selection: Selection) -> PerSlice {
        let places = comptime![selection.tiles() * count as usize];
        let numbers = Slice::of(&Shared::<[Real]>::new_slice(places));
        PerSlice { numbers, first: (tile * count) as usize }
    }

    fn put(&self, nth: u32, number: Real) {
        let mut numbers = self.numbers;
        numbers[self.first + nth as usize] = number;
    }

    /// The sum of the first `count`, in their order.
    fn total(&self, count: u32) -> Real {
        let mut total = Real::from_int(0);
        for nth in 0..count as usize {
            total += self.numbers[self.first + nth];
        }
        total
    }

    /// The greatest of the first `count`, which may be NaN if one of them is.
    fn greatest(&self, count: u32) -> Real {
        let mut greatest = self.numbers[self.first];
        for nth in 1..count as usize {
            greatest = greater(greatest, self.numbers[self.first + nth]);
        }
        greatest
    }
}

#[cube]
fn greater(left: Real, right: Real) -> Real {
    select(right > left, right, left)
}

/// The element of an entry, or of its key.
#[cube]
fn value_of(entry: &Entry, order: Order, #[comptime] selection: Selection) -> Real {
    let (value, _) = element_of::<Real>(&entry.words, order, selection);
    value
}

/// The exponential of an element's difference from the largest one.
#[cube]
fn exponential_of(
    entry: &Entry,
    max: Real,
    order: Order,
    #[comptime] selection: Selection,
) -> Real {
    let difference = value_of(entry, order, selection) - max;
    let result = exponential::<Real, Single>(Vector::new(difference)).extract(0usize);
    // A device may assume that there is no NaN where it computes.
    select(is_nan(&entry.words, order, selection), nan_or_lowest::<Real>(), result)
}
