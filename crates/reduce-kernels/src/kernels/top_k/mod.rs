//! The first elements of each slice in an order of values: its `k` largest or smallest.
//!
//! A team reads a slice once. What is not behind the threshold waits in a buffer in shared memory.
//! When the buffer is full, [`cut`] leaves its first `k` entries and raises the threshold to the
//! last of them, so nearly every further element of random data is refused by one comparison. At the
//! end, [`order`] puts the `k` entries in order, and their values are read again by position.
//!
//! An entry is a few words of 32 bits: those of the element's [`keys`] and those of its position.
//! Entries are compared as one long number, and no two are equal, so the result depends neither on
//! the order in which units append nor on how the elements are dealt to them.
//!
//! [`runs`] serves more selected elements than a buffer holds. Several cubes may share a slice. Each leaves its first `k` entries in memory, and a second launch
//! reads those in place of elements.

mod buffer;
mod cut;
pub(crate) mod interpolate;
mod keys;
mod order;
pub(crate) mod runs;

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use self::{
    buffer::{Buffer, Entry},
    keys::entries_of_load,
    order::sort,
};
use super::{
    accumulate::load_inside,
    args::{Input, InputArrays, KernelTypes, input_of},
    geometry::{Geometry, Tile},
    load::{AtEnd, edge_slots, load_edge},
    share::{Share, share_among_cubes},
    team::Team,
};
use crate::operator::{Out, Out2};

/// Everything about a selection that its kernel is generated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Selection {
    /// The units of a slice.
    pub(crate) team: Team,
    /// Entries that the buffer of a slice holds: a power of two, and a multiple of its units.
    pub(crate) capacity: u32,
    /// Bits of a digit by which entries are counted.
    pub(crate) digit_bits: u32,
    /// Words of an entry's key.
    pub(crate) key_words: usize,
    /// Words of an entry's position.
    pub(crate) position_words: usize,
}

/// Which elements come first. These are numbers and not constants, so one kernel serves all orders.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Order {
    /// The bits of a number's key that are inverted: none if the largest come first, otherwise all.
    pub(crate) inverted: u32,
    /// Each word of the key of NaN: the greatest if NaN comes first, the least if it comes last.
    pub(crate) nan: u32,
    /// The bits of keys that count when the selected elements are put in order: all, or none if they
    /// are put in the order of their positions.
    pub(crate) counting: u32,
    /// The bits of a first element's key that must be set for it to be written in place of all
    /// others: all, which only NaN has, or none if it never is.
    pub(crate) spreading: u32,
}

impl Selection {
    /// Words of an entry.
    fn words(self) -> usize {
        self.key_words + self.position_words
    }

    /// Slices that a cube works on.
    fn tiles(self) -> usize {
        self.team.tiles_per_cube()
    }

    /// Places in the buffers of a cube.
    fn places(self) -> usize {
        self.tiles() * self.capacity as usize
    }

    /// Entries of its slice's buffer that a unit takes.
    fn entries_per_unit(self) -> usize {
        (self.capacity / self.team.units_per_tile) as usize
    }
}

#[cube]
impl Order {
    /// Whether a first element with this word of its key is written in place of all others.
    fn spreads(&self, word: u32) -> bool {
        word & self.spreading == u32::MAX
    }
}

/// The entries that cubes leave for a second launch, one array for each word. Those of a slice lie
/// side by side, and those of a cube among them.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct CandidateArrays {
    words: Sequence<Box<[u32]>>,
}

impl CandidateArraysLaunch {
    /// The arrays of the words.
    pub(crate) fn of(words: impl IntoIterator<Item = BufferArg>) -> Self {
        Self::new(words.into_iter().collect())
    }
}

/// The values and the positions of the selected elements.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct SelectedArrays {
    values: Box<[Out]>,
    positions: Box<[Out2]>,
    /// The numbers of the elements to write, if not all are.
    ranks: ComptimeOption<Box<[u32]>>,
    /// Elements to write of each slice.
    written: usize,
    /// From one of them to the next.
    rank_stride: usize,
}

#[cube]
impl SelectedArrays {
    /// The number of the `nth` element to write.
    fn rank(&self, nth: usize) -> u32 {
        #[comptime]
        match &self.ranks {
            ComptimeOption::Some(ranks) => ranks[nth],
            ComptimeOption::None => nth as u32,
        }
    }
}

/// Selects `k` elements of each slice and writes their values and positions.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn select_first(
    _types: &KernelTypes,
    input: &InputArrays,
    selected: &mut SelectedArrays,
    geometry: &Geometry,
    order: Order,
    k: u32,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    let input = input_of(input);
    let team = comptime![selection.team];
    let share = share_among_cubes(&input, geometry, CUBE_POS, 0usize, 1usize, access, team);
    let mut buffer = Buffer::new(share.place, selection);
    take_elements(&mut buffer, &share, order, k);
    sort(&buffer, order, k);
    store_selected(selected, &buffer, &share, order);
}

/// Selects `k` elements of each of `cubes` parts of each slice, and leaves their entries.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn select_candidates(
    _types: &KernelTypes,
    input: &InputArrays,
    candidates: &mut CandidateArrays,
    geometry: &Geometry,
    order: Order,
    k: u32,
    cubes: usize,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    let input = input_of(input);
    let team = comptime![selection.team];
    let (block, cube) = (CUBE_POS / cubes, CUBE_POS % cubes);
    let share = share_among_cubes(&input, geometry, block, cube, cubes, access, team);
    let mut buffer = Buffer::new(share.place, selection);
    take_elements(&mut buffer, &share, order, k);
    sort(&buffer, order, k);
    if share.tile.results > 0 {
        let first = (share.tile.index * cubes + cube) * k as usize;
        let mut rank = share.place.member;
        while rank < k {
            let entry = buffer.at(rank);
            #[unroll]
            for word in 0..comptime![selection.words()] {
                let words = candidates.words.index_mut(word);
                words[first + rank as usize] = *entry.words.index(word);
            }
            rank += comptime![team.units_per_tile];
        }
    }
}

/// Selects `k` of the `candidates` that cubes have left for each slice, and writes the values and
/// the positions of the elements.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn select_among_candidates(
    _types: &KernelTypes,
    input: &InputArrays,
    candidates: &CandidateArrays,
    selected: &mut SelectedArrays,
    geometry: &Geometry,
    order: Order,
    k: u32,
    count: usize,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    let input = input_of(input);
    let team = comptime![selection.team];
    let share = share_among_cubes(&input, geometry, CUBE_POS, 0usize, 1usize, access, team);
    let mut buffer = Buffer::new(share.place, selection);
    let units = comptime![team.units_per_tile as usize];
    let in_flight = comptime![access.loads_in_flight];
    let start = share.tile.index * count;
    let rounds = count.div_ceil(comptime![units * in_flight]);
    for round in 0..rounds {
        let first = round * comptime![units * in_flight] + share.place.member as usize;
        let mut entries = Sequence::<Entry>::new();
        let mut pending = 0u32;
        #[unroll]
        for nth in 0..in_flight {
            let at = first + comptime![nth * units];
            let place = start + clamp_max(at, count - 1);
            let mut words = Sequence::<u32>::new();
            let mut bits = 0u32;
            #[unroll]
            for word in 0..comptime![selection.words()] {
                let found = candidates.words.index(word)[place];
                words.push(found);
                bits |= found;
            }
            entries.push(Entry { words });
            // A cube with fewer than `k` elements has left entries of none, which are all equal: a
            // buffer of them could not be cut.
            pending |= u32::cast_from(at < count && bits != 0) << comptime![nth as u32];
        }
        buffer.offer(&entries, pending, round + 1 == rounds, k);
    }
    sort(&buffer, order, k);
    store_selected(selected, &buffer, &share, order);
}

/// Offers all elements of a share to its slice's buffer, and leaves the first `k`.
#[cube]
fn take_elements(buffer: &mut Buffer, share: &Share<'_>, order: Order, k: u32) {
    let selection = comptime![buffer.selection];
    let access = comptime![share.access];
    let geometry = share.geometry;
    let in_flight = comptime![access.loads_in_flight];
    let peeled = comptime![access.peeled];
    // All units of a cube take the same turns, because `offer` has barriers.
    let rounds = geometry.loads_per_tile.div_ceil(share.stride * in_flight);
    let other = clamp_max(share.first, geometry.loads_per_tile - 1);
    for round in 0..rounds {
        let first = share.first + round * share.block_stride();
        let mut entries = Sequence::<Entry>::new();
        let mut pending = 0u32;
        #[unroll]
        for nth in 0..in_flight {
            let loaded = load_inside(share, first + nth * share.stride, other, AtEnd::Never);
            let count = comptime![access.vector as u32];
            entries_of_load(&mut entries, loaded.value, loaded.position, order, selection);
            let all = comptime![((1u64 << count) - 1) as u32];
            let bits = select(loaded.valid, all.runtime(), 0u32);
            pending |= bits << comptime![nth as u32 * count];
        }
        buffer.offer(&entries, pending, !peeled && round + 1 == rounds, k);
    }
    if comptime![peeled] {
        let slots = geometry.inner_count * comptime![edge_slots(access.vector)];
        let rounds = slots.div_ceil(share.stride);
        for round in 0..rounds {
            let slot = share.first + round * share.stride;
            let edge = load_edge(share, clamp_max(slot, slots - 1));
            let mut entries = Sequence::<Entry>::new();
            entries_of_load(&mut entries, edge.value, edge.position, order, selection);
            let pending = u32::cast_from(edge.valid && slot < slots);
            buffer.offer(&entries, pending, round + 1 == rounds, k);
        }
    }
}

/// Writes entries of a buffer that are in order as values and positions.
#[cube]
fn store_selected(selected: &mut SelectedArrays, buffer: &Buffer, share: &Share<'_>, order: Order) {
    let selection = comptime![buffer.selection];
    if share.tile.results > 0 {
        let first = buffer.at(0u32);
        let spreads = order.spreads(*first.words.index(0usize));
        let mut nth = share.place.member as usize;
        while nth < selected.written {
            let entry = buffer.at(select(spreads, 0u32, selected.rank(nth)));
            let (tile, geometry) = (share.tile, share.geometry);
            let access = comptime![share.access];
            store_entry(selected, share.input, geometry, tile, &entry, nth, access, selection);
            nth += comptime![selection.team.units_per_tile as usize];
        }
    }
}

/// Writes the value and the position of the element with an entry, the `nth` of its slice.
#[cube]
fn store_entry(
    selected: &mut SelectedArrays,
    input: &Input,
    geometry: &Geometry,
    tile: Tile,
    entry: &Entry,
    nth: usize,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    let position = entry.position(selection);
    let place = tile.output + nth * selected.rank_stride;
    // Keys forget the sign of zeros and the bits of NaN, so values are read again. They rarely come
    // from further away than the L2 cache.
    selected.values[place] = element_at(input, geometry, tile, position, access.direction);
    selected.positions[place] = Out2::cast_from(position);
}

/// The element of a slice at a position.
#[cube]
fn element_at(
    input: &Input,
    geometry: &Geometry,
    tile: Tile,
    position: usize,
    #[comptime] direction: Direction,
) -> Out {
    let mut offset = tile.input;
    #[unroll]
    for nth in 0..geometry.reduced.len().comptime() {
        let dim = geometry.reduced.index(nth);
        let (_, coordinate) = dim.extent.div_mod(position / dim.target_stride);
        offset += coordinate * dim.stride;
    }
    if comptime![direction == Direction::Along] {
        // A slice of one element has no inner dimension, and its position no stride.
        let step = clamp_min(geometry.inner_target_stride, 1usize);
        offset += position / step % geometry.inner_len * geometry.inner_stride;
    }
    Out::cast_from(input.elements.at(offset))
}
