//! Sorted runs of entries in memory, for more selected elements than shared memory holds.
//!
//! A slice is cut into runs as long as a buffer. Cubes sort them, then launches merge neighbouring
//! runs until one is left, of which no more than `k` entries are kept at any time. A run has a
//! place for each of its elements in the arrays of entries, whether it keeps them or not.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    buffer::Buffer,
    candidates::CandidateArrays,
    entry::Entry,
    offer::Offer,
    probabilities::{InOrder, write_probabilities},
    selected::{SelectedArrays, Source},
    selection::{Order, Selection},
    sort::sort_len,
};
use crate::kernels::{
    args::{InputArrays, KernelTypes, input_of},
    geometry::{Geometry, locate},
    load::{AtEnd, load},
    share::{Share, share_among_cubes},
    team::place,
};

/// Sorts each of `runs` runs of each slice.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn sort_runs(
    _types: &KernelTypes,
    input: &InputArrays,
    sorted: &mut CandidateArrays,
    geometry: &Geometry,
    order: Order,
    runs: usize,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    let input = input_of(input);
    let team = comptime![selection.team];
    let slice = CUBE_POS / runs;
    let share = share_among_cubes(&input, geometry, slice, 0usize, 1usize, access, team);
    let buffer = Buffer::new(share.place, selection);
    let capacity = comptime![selection.capacity as usize];
    let first = CUBE_POS % runs * capacity;
    let mut nth = share.place.member;
    while nth < comptime![selection.capacity] {
        let at = first + nth as usize;
        let entry = entry_of_element(&share, at, order, selection);
        buffer.put(nth, &entry);
        nth += comptime![team.units_per_tile];
    }
    sync_cube();
    sort_len(&buffer, order, comptime![selection.capacity].runtime());
    put_run(sorted, &buffer, share.tile.results > 0);
}

/// Sorts each of `runs` runs of the first `k` entries of each slice, of which each has `places` in
/// the arrays of entries.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn sort_runs_of_entries(
    entries: &CandidateArrays,
    sorted: &mut CandidateArrays,
    order: Order,
    k: usize,
    slices: usize,
    places: usize,
    runs: usize,
    #[comptime] selection: Selection,
) {
    let place = place(comptime![selection.team]);
    let buffer = Buffer::new(place, selection);
    let slice = clamp_max(CUBE_POS / runs, slices - 1);
    let first = CUBE_POS % runs * comptime![selection.capacity as usize];
    let mut nth = place.member;
    while nth < comptime![selection.capacity] {
        let at = first + nth as usize;
        let entry = entries.at(slice * places + clamp_max(at, k - 1)).if_exists(at < k);
        buffer.put(nth, &entry);
        nth += comptime![selection.team.units_per_tile];
    }
    sync_cube();
    sort_len(&buffer, order, comptime![selection.capacity].runtime());
    put_run(sorted, &buffer, CUBE_POS < slices * runs);
}

/// Stores the entries of a cube's run.
#[cube]
fn put_run(sorted: &mut CandidateArrays, buffer: &Buffer, exists: bool) {
    let selection = comptime![buffer.selection];
    if exists {
        let first = CUBE_POS * comptime![selection.capacity as usize];
        let mut nth = buffer.place.member;
        while nth < comptime![selection.capacity] {
            sorted.put(first + nth as usize, &buffer.at(nth));
            nth += comptime![selection.team.units_per_tile];
        }
    }
}

/// Merges neighbouring runs of `len` entries, of which at most `k` count. A unit takes an entry:
/// its place is that in its own run, and as many further as there are entries of the other run
/// before it.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn merge_runs(
    entries: &CandidateArrays,
    merged: &mut CandidateArrays,
    order: Order,
    k: usize,
    len: usize,
    places: usize,
    count: usize,
    #[comptime] selection: Selection,
) {
    // Units leave here, because no barrier follows.
    if ABSOLUTE_POS < count {
        let start = ABSOLUTE_POS / places * places;
        let place = ABSOLUTE_POS - start;
        let (run, nth) = (place / len, place % len);
        if nth < kept_entries(run, len, k, places) {
            let entry = entries.at(ABSOLUTE_POS);
            let other = run ^ 1usize;
            let is_left = run < other;
            let mut low = 0usize.runtime();
            let mut high = kept_entries(other, len, k, places);
            while low < high {
                let middle = (low + high) / 2;
                let found = entries.at(start + other * len + middle);
                // Entries of no element are equal: those of the left run come first.
                let ahead = found.comes_before(&entry, order, selection);
                let behind = entry.comes_before(&found, order, selection);
                if ahead || !behind && !is_left {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            let at = nth + low;
            if at < clamp_max(2 * len, k) {
                merged.put(start + run / 2 * (2 * len) + at, &entry);
            }
        }
    }
}

/// The entries that a run keeps. The last run may be shorter than `len`, and its neighbour not
/// exist.
#[cube]
fn kept_entries(run: usize, len: usize, k: usize, places: usize) -> usize {
    let first = clamp_max(run * len, places);
    clamp_max(clamp_max(len, k), places - first)
}

/// Writes the values and the positions of entries of each slice.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn store_runs(
    _types: &KernelTypes,
    input: &InputArrays,
    entries: &CandidateArrays,
    selected: &mut SelectedArrays,
    geometry: &Geometry,
    order: Order,
    places: usize,
    count: usize,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    if ABSOLUTE_POS < count {
        let input = input_of(input);
        let (slice, nth) = (ABSOLUTE_POS / selected.written, ABSOLUTE_POS % selected.written);
        let tile = locate(geometry, slice, access, 1usize);
        let start = slice * places;
        let spreads = entries.at(start).spreads(order, selection);
        let rank = select(spreads, 0usize, selected.rank(tile, nth) as usize);
        let entry = entries.at(start + rank);
        let source = Source::new(&input, geometry, tile, order, access, selection);
        selected.put(&source, &entry, nth);
    }
}

/// Writes the probabilities and the positions of entries of each slice. A cube takes a slice.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn store_probabilities_of_runs(
    _types: &KernelTypes,
    input: &InputArrays,
    entries: &CandidateArrays,
    selected: &mut SelectedArrays,
    geometry: &Geometry,
    order: Order,
    k: u32,
    places: usize,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    let input = input_of(input);
    let team = comptime![selection.team];
    let share = share_among_cubes(&input, geometry, CUBE_POS, 0usize, 1usize, access, team);
    let entries = InOrder::of_candidates(entries, share.tile.index * places);
    let softmax = selected.softmax(&entries, &share, order, k, selection);
    write_probabilities(selected, &share, &entries, &softmax, order, selection);
}

/// The entry of element number `at` of a slice, in the order of loads; that of none past the end.
#[cube]
fn entry_of_element(
    share: &Share<'_>,
    at: usize,
    order: Order,
    #[comptime] selection: Selection,
) -> Entry {
    let last = share.geometry.loads_per_tile - 1;
    let loaded = load(share, clamp_max(at, last), AtEnd::Never);
    let mut offer = Offer::new(loaded.position.step, order, 1usize, selection);
    offer.push_load(loaded.value, loaded.position, loaded.valid, order);
    offer.entry(0u32).if_exists(at <= last)
}
