//! Elements with given numbers, found by counting in a window of values.

use cubecl::prelude::*;
use reduce_planner::{Access, TopKPlan};

use super::{
    buffer::Buffer,
    cut::Counting,
    keys::{Limits, element_of, key},
    offer::Offer,
    selected::{SelectedArrays, Source},
    selection::{Order, Selection},
    sort::number_of,
};
use crate::{
    kernels::{
        accumulate::load_inside,
        args::{InputArrays, KernelTypes, input_of},
        geometry::Geometry,
        load::{AtEnd, Loaded, edge_slots, load_edge},
        share::{Share, share_among_cubes},
        team::UnitPlace,
    },
    operator::{Position, Slice, Stored},
};

/// How many standard deviations of a number among the samples a window reaches to both sides. With
/// two, one window of twenty does not have its element, and further ones are needed.
const DEVIATIONS: f32 = 2.0;

/// Cells that units add to in turn.
const CELLS: u32 = 4;

/// Entries that are compared with each other, even though there are smaller windows, if units have
/// fewer elements. A unit's comparisons of as many entries as it has elements take about as long as
/// another window.
const COMPARED: u32 = 32;

/// Fewest places of a window in fixed point.
const LEAST_PLACES: u32 = 1024;

/// Most windows in fixed point.
const MOST_FIXED: u32 = 6;

/// The bits of a binary32 number without its sign, and those of infinity.
const MAGNITUDE: u32 = 0x7fff_ffff;
const INFINITY: u32 = 0x7f80_0000;

/// Selects the elements with the given numbers of each slice, one after the other.
///
/// A cube takes some samples of its slice. Those around the place that the number has among them
/// bound a window of values that is likely to have the element (R. W. Floyd and R. L. Rivest,
/// "Expected time bounds for selection", 1975). The elements above it and those in each of its
/// parts are counted, and the part with the number becomes the next window. Where the number lies
/// outside, that is all on its side. When a window is a single value, the elements with it are
/// counted by the next words of their entries. When the buffer holds the elements of a window,
/// they are compared with each other.
///
/// The slice is read again for each window, mostly from a cache. Units that held it would need so
/// many registers that a multiprocessor had too few of them to work while others wait.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn select_in_windows(
    _types: &KernelTypes,
    input: &InputArrays,
    selected: &mut SelectedArrays,
    geometry: &Geometry,
    order: Order,
    #[comptime] access: Access,
    #[comptime] selection: Selection,
) {
    let input = input_of(input);
    let team = comptime![selection.team];
    let share = share_among_cubes(&input, geometry, CUBE_POS, 0usize, 1usize, access, team);
    let sample = load_sample(&share, selection);
    let samples = Samples::new(share.place, order, selection);
    samples.put(sample.value);
    let counting = Counting::new(share.place, selection);
    let buffer = Buffer::new(share.place, selection);
    let mut search = Search::new(share, order, samples, counting, buffer);
    sync_cube();
    search.samples.put_in_order();
    sync_cube();

    let tile = share.tile;
    let source = Source::new(&input, geometry, tile, order, access, selection);
    for nth in 0..selected.written {
        let number = selected.rank(tile, nth);
        let nth_of_buffer = search.find(number);
        let entries = search.buffer.held();
        let mut at = share.place.member;
        while at < entries {
            let entry = search.buffer.at(at);
            if number_of(&search.buffer, &entry, entries, order) == nth_of_buffer
                && tile.results > 0
            {
                selected.put(&source, &entry, nth);
            }
            at += comptime![team.units_per_tile];
        }
    }
}

/// The first element of one of a slice's loads for each unit, at about equal distances.
#[cube]
fn load_sample(share: &Share<'_>, #[comptime] selection: Selection) -> Loaded {
    let samples = comptime![samples_of(selection) as usize];
    let loads = share.geometry.loads_per_tile;
    let at = share.place.member as usize % samples * loads / samples;
    load_inside(share, at, 0usize.runtime(), AtEnd::Never)
}

/// Loads of a unit that are in flight together.
#[cube]
fn load_round(share: &Share<'_>, round: usize, #[comptime] in_flight: usize) -> Sequence<Loaded> {
    let first = share.first + round * share.stride * in_flight;
    let other = clamp_max(share.first, share.geometry.loads_per_tile - 1);
    let mut loads = Sequence::<Loaded>::new();
    #[unroll]
    for nth in 0..in_flight {
        loads.push(load_inside(share, first + nth * share.stride, other, AtEnd::Never));
    }
    loads
}

/// Samples of a slice.
const fn samples_of(selection: Selection) -> u32 {
    let units = selection.team.units_per_tile;
    if units < TopKPlan::SAMPLES { units } else { TopKPlan::SAMPLES }
}

/// Whether elements are floats that binary32 holds.
#[cube]
fn has_fixed_point(#[comptime] selection: Selection) -> comptime_type!(bool) {
    let element = elem_type_of::<Stored>();
    comptime![element.is_float() && selection.key_words == 1]
}

/// The most significant words of some elements of a slice.
#[derive(CubeType)]
struct Samples {
    words: Slice<u32>,
    /// The word with a number from the greatest on, 0 where equal ones have a lower number.
    in_order: Slice<u32>,
    member: u32,
    order: Order,
    #[cube(comptime)]
    selection: Selection,
}

#[cube]
impl Samples {
    fn new(place: UnitPlace, order: Order, #[comptime] selection: Selection) -> Samples {
        let count = comptime![samples_of(selection) as usize];
        let words = Slice::of(&Shared::<[u32]>::new_slice(count));
        let in_order = Slice::of(&Shared::<[u32]>::new_slice(count));
        Samples { words, in_order, member: place.member, order, selection }
    }

    /// Stores the sample of each unit. A barrier must follow.
    fn put<N: Size>(&self, value: Vector<Stored, N>) {
        let selection = comptime![self.selection];
        let key = key::<N>(value, self.order, selection);
        if self.member < comptime![samples_of(selection)] {
            let word = Limits::new(self.order, selection).of(key.index(0usize).extract(0usize));
            let (mut words, mut in_order) = (self.words, self.in_order);
            words[self.member as usize] = word;
            in_order[self.member as usize] = 0u32;
        }
    }

    /// Puts the samples in order. A barrier must follow.
    fn put_in_order(&self) {
        let count = comptime![samples_of(self.selection)];
        if self.member < count {
            let own = self.words[self.member as usize];
            let mut greater = 0u32.runtime();
            #[unroll]
            for nth in 0..comptime![count as usize] {
                greater += u32::cast_from(self.words[nth] > own);
            }
            let mut in_order = self.in_order;
            in_order[greater as usize] = own;
        }
    }

    /// The numbers of the samples between which entry `number` of `len` is likely to lie, from the
    /// greatest on: less than 0 or beyond all where there is no such sample.
    fn around(&self, number: u32, len: usize) -> (f32, f32) {
        let count = comptime![samples_of(self.selection) as f32];
        let share = (f32::cast_from(number) + 0.5f32) / f32::cast_from(len);
        let place = share * count;
        let reach = DEVIATIONS * (place * (1.0f32 - share)).sqrt() + 1.0f32;
        (place - reach, place + reach)
    }

    /// The least and the greatest word that entry `number` of `len` is likely to have.
    fn window(&self, number: u32, len: usize) -> (u32, u32) {
        let (first, last) = self.around(number, len);
        let mut least = 0u32.runtime();
        let mut greatest = u32::MAX.runtime();
        if last < comptime![samples_of(self.selection) as f32] {
            least = self.with_number(u32::cast_from(last));
        }
        if first >= 0.0f32 {
            greatest = self.with_number(u32::cast_from(first));
        }
        (least, greatest)
    }

    /// The same as numbers, of which those that come first are greater. Where there is no sample,
    /// the window ends as far behind the last one as it reaches before that.
    fn values(&self, number: u32, len: usize) -> (f32, f32) {
        let (first, last) = self.around(number, len);
        let count = comptime![samples_of(self.selection)];
        let end = comptime![count - 1];
        let is_below = last >= comptime![count as f32];
        let is_above = first < 0.0f32;
        let least = self.value(select(is_below, end.runtime(), u32::cast_from(max(last, 0.0f32))));
        let greatest = self.value(u32::cast_from(max(first, 0.0f32)));
        let reach = greatest - least;
        (select(is_below, least - reach, least), select(is_above, greatest + reach, greatest))
    }

    fn value(&self, number: u32) -> f32 {
        let mut words = Sequence::<u32>::new();
        words.push(self.with_number(number));
        let (value, _) = element_of::<f32>(&words, self.order, comptime![self.selection]);
        value * sign(self.order)
    }

    fn with_number(&self, number: u32) -> u32 {
        let mut at = number as usize;
        let mut word = self.in_order[at];
        while word == 0 && at > 0 {
            at -= 1;
            word = self.in_order[at];
        }
        word
    }
}

/// What makes numbers greater that come first.
#[cube]
fn sign(order: Order) -> f32 {
    select(order.inverted == 0, 1.0f32, -1.0f32)
}

/// Which integer of elements lies in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Measure {
    /// The number in fixed point, as the bits of its sum with a greater one. Windows of it have
    /// parts of equal widths, on both sides of zero too.
    Fixed,
    /// The first word of the entry.
    FirstWord,
    /// A later word, if the words before are known.
    LaterWord,
}

impl Measure {
    /// The greatest of the integers, of which 0 is the least. The sums of numbers in fixed point are
    /// positive, unless a number is far below the window.
    const fn greatest(self) -> u32 {
        match self {
            Self::Fixed => MAGNITUDE,
            Self::FirstWord | Self::LaterWord => u32::MAX,
        }
    }
}

/// What is done with the elements of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Visit {
    /// Finds the least and the greatest integer of all elements whose former words are known.
    Range,
    /// Counts them by parts of the window.
    Count,
    /// Appends them to the buffer.
    Append,
}

/// What a unit finds of elements.
#[derive(CubeType)]
struct Tally {
    /// Where the counts of the turn begin, and how far integers are shifted to be counted.
    first: usize,
    shift: u32,
    /// Elements above the window.
    above: RuntimeCell<u32>,
    /// Elements of a window of one integer.
    equal: RuntimeCell<u32>,
    least: RuntimeCell<u32>,
    greatest: RuntimeCell<u32>,
}

/// The search for entries with given numbers.
#[derive(CubeType)]
struct Search<'a> {
    share: Share<'a>,
    order: Order,
    samples: Samples,
    counting: Counting,
    /// Elements above the window, in cells, of two turns.
    above: Slice<Atomic<u32>>,
    /// The first word of NaN if one is written in place of all elements, otherwise 0.
    spreading: Slice<Atomic<u32>>,
    /// Whether there is a NaN.
    unordered: Slice<Atomic<u32>>,
    buffer: Buffer,
    /// The words that the entry is known to have, and all bits for each of them.
    known: Sequence<RuntimeCell<u32>>,
    masks: Sequence<RuntimeCell<u32>>,
    /// The number of the word that is searched for.
    word: u32,
    /// What is added to numbers in fixed point.
    addend: f32,
    /// The least integer of the window, and how far it reaches from there.
    base: u32,
    width: u32,
    /// Windows that have been counted.
    turn: u32,
    /// The number of the entry in the slice.
    number: u32,
    /// The same without the entries above the window, once they have been counted.
    needed: u32,
    /// All bits until a window has been counted, then none.
    fresh: u32,
    /// Entries of the window, if they have been counted.
    open: u32,
    /// The number that the first entry of the buffer has in the slice.
    first_in_buffer: u32,
    #[cube(comptime)]
    selection: Selection,
}

#[cube]
impl<'a> Search<'a> {
    /// A barrier must follow.
    fn new(
        share: Share<'a>,
        order: Order,
        samples: Samples,
        counting: Counting,
        buffer: Buffer,
    ) -> Search<'a> {
        let selection = comptime![buffer.selection];
        let mut known = Sequence::<RuntimeCell<u32>>::new();
        let mut masks = Sequence::<RuntimeCell<u32>>::new();
        #[unroll]
        for _ in 0..comptime![selection.words()] {
            known.push(RuntimeCell::new(0u32));
            masks.push(RuntimeCell::new(0u32));
        }
        let above = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(comptime![2 * CELLS as usize]));
        let spreading = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(1usize));
        let unordered = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(1usize));
        if share.place.member == 0 {
            spreading[0].store(0u32);
            unordered[0].store(0u32);
        }
        let zero = 0u32.runtime();
        Search::<'a> {
            share,
            order,
            samples,
            counting,
            above,
            spreading,
            unordered,
            buffer,
            known,
            masks,
            word: zero,
            addend: 0.0f32.runtime(),
            base: zero,
            width: zero,
            turn: zero,
            number: zero,
            needed: zero,
            fresh: zero,
            open: zero,
            first_in_buffer: zero,
            selection,
        }
    }

    /// Leaves the entry with a number in the buffer, and returns which number it has there. Every
    /// unit of the cube must get here.
    fn find(&mut self, number: u32) -> u32 {
        // After the first search, it is known whether NaN spreads.
        self.number = select(self.spreading[0].load() != 0, 0u32, number);
        let is_there = self.number >= self.first_in_buffer
            && self.number - self.first_in_buffer < self.buffer.held();
        if !is_there {
            let mut is_found = false.runtime();
            let has_fixed = has_fixed_point(comptime![self.selection]);
            if has_fixed {
                // Read before a barrier: other units may find NaN as soon as they visit elements.
                let is_ordered = self.unordered[0].load() == 0;
                self.begin();
                is_found = self.search_fixed(is_ordered);
            }
            if !is_found {
                self.begin();
                self.search_words();
            }
            self.first_in_buffer = self.number - self.needed;
            sync_cube();
        }
        self.number - self.first_in_buffer
    }

    /// Every unit of the cube must get here.
    fn begin(&mut self) {
        let member = self.share.place.member;
        // All units have read the buffer.
        sync_cube();
        self.counting.begin();
        self.clear_above(0u32.runtime());
        if member == 0 {
            self.buffer.count().store(0u32);
        }
        self.turn = 0u32.runtime();
        sync_cube();
    }

    /// Begins with a window of all integers from one to another.
    fn open_window(&mut self, base: u32, last: u32) {
        self.base = base;
        self.width = last - base;
        self.needed = self.number;
        self.fresh = u32::MAX.runtime();
        self.open = u32::MAX.runtime();
    }

    /// Searches among numbers in fixed point. Returns whether the entry is in the buffer. Every unit
    /// of the cube must get here.
    fn search_fixed(&mut self, is_ordered: bool) -> bool {
        let (least, greatest) = self.samples.values(self.number, self.share.geometry.reduction_len);
        // The addend has an exponent so great that all sums of the window have the same.
        let magnitude =
            max(u32::reinterpret(least) & MAGNITUDE, u32::reinterpret(greatest) & MAGNITUDE);
        let exponent = (magnitude >> 23u32) + 3;
        let half = 1u32 << 22u32;
        self.addend = f32::reinterpret(exponent << 23u32 | half);
        let (base, last) =
            (u32::reinterpret(least + self.addend), u32::reinterpret(greatest + self.addend));
        let is_wide = exponent < 255 && last > base && last - base >= LEAST_PLACES;
        let mut works = is_wide && is_ordered;
        let mut is_found = false.runtime();
        let mut turns = 0u32.runtime();
        self.open_window(base, last);
        // Of a window without the number, all on its side is one that may have it.
        while works {
            self.visit(Measure::Fixed, Visit::Count);
            self.step(Measure::Fixed);
            turns += 1;
            is_found = self.is_few() && self.unordered[0].load() == 0;
            works = !is_found
                && self.width > 0
                && turns < MOST_FIXED
                && (turns == 1 || self.open != u32::MAX)
                && self.unordered[0].load() == 0;
        }
        if is_found {
            self.visit(Measure::Fixed, Visit::Append);
        }
        is_found
    }

    /// Searches among the words of entries, one word after the other. Every unit of the cube must
    /// get here.
    fn search_words(&mut self) {
        let words = comptime![self.selection.words()];
        #[unroll]
        for word in 0..words {
            self.masks.index(word).store(0u32);
        }
        self.word = 0u32.runtime();
        let (least, greatest) = self.samples.window(self.number, self.share.geometry.reduction_len);
        self.open_window(least, greatest);
        let mut works = true.runtime();
        while works {
            if self.word == 0 {
                self.visit(Measure::FirstWord, Visit::Count);
                self.step(Measure::FirstWord);
                let spreading = self.spreading[0].load();
                if spreading != 0 && self.number != 0 {
                    // The first elements are NaN, all of which have the same key.
                    self.number = 0u32.runtime();
                    self.open_window(spreading, spreading);
                    self.fresh = 0u32.runtime();
                }
            } else {
                self.visit(Measure::LaterWord, Visit::Count);
                self.step(Measure::LaterWord);
            }
            works = !self.is_few();
            if works && self.open != u32::MAX && self.width == 0 {
                // All open elements have the same word, but not the same position.
                #[unroll]
                for word in 0..words {
                    if self.word == comptime![word as u32] {
                        self.known.index(word).store(self.base);
                        self.masks.index(word).store(u32::MAX);
                    }
                }
                self.word += 1;
                self.visit(Measure::LaterWord, Visit::Range);
                sync_cube();
                let (least, greatest) = self.counting.range(self.word);
                self.base = least;
                self.width = greatest - least;
            }
        }
        if self.word == 0 {
            self.visit(Measure::FirstWord, Visit::Append);
        } else {
            self.visit(Measure::LaterWord, Visit::Append);
        }
    }

    /// Whether the elements of the window are to be compared with each other.
    fn is_few(&self) -> bool {
        let capacity = comptime![self.selection.capacity];
        let units = comptime![self.selection.team.units_per_tile];
        let each = u32::cast_from(self.share.geometry.reduction_len) / units;
        let compared = select(self.width == 0, capacity.runtime(), max(each, COMPARED));
        self.open <= clamp_max(compared, capacity)
    }

    /// Takes the part of a counted window that has the number, or all on one of its sides, as the
    /// next one. Every unit of the cube must get here.
    fn step(&mut self, #[comptime] measure: Measure) {
        sync_cube();
        self.counting.clear(self.turn + 1);
        self.clear_above(self.turn + 1);
        self.counting.add_groups(self.turn);
        sync_cube();
        let above = self.count_above() & self.fresh;
        let inside = self.counting.total();
        let is_inside = self.needed >= above && self.needed - above < inside;
        if is_inside {
            self.counting.find(self.turn, self.needed - above + 1, false);
        }
        sync_cube();
        self.open = u32::MAX.runtime();
        if is_inside {
            let (digit, nth, count) = self.counting.found(self.turn);
            let shift = self.shift();
            self.base += digit << shift;
            self.width = clamp_max((1u32 << shift) - 1, self.width - (digit << shift));
            self.needed = nth - 1;
            self.open = count;
        } else if self.needed < above {
            self.base += self.width + 1;
            self.width = comptime![measure.greatest()] - self.base;
        } else {
            self.needed -= above + inside;
            self.width = self.base - 1;
            self.base = 0u32.runtime();
        }
        self.fresh = 0u32.runtime();
        self.turn += 1;
    }

    /// The bits of an integer that do not tell parts of the window from each other.
    fn shift(&self) -> u32 {
        let bits = 32u32 - self.width.leading_zeros();
        bits - clamp_max(bits, comptime![self.selection.digit_bits])
    }

    fn clear_above(&self, turn: u32) {
        let member = self.share.place.member;
        if member < CELLS {
            self.above[(turn % 2 * CELLS + member) as usize].store(0u32);
        }
    }

    /// Elements above the window.
    fn count_above(&self) -> u32 {
        let first = (self.turn % 2 * CELLS) as usize;
        let mut above = 0u32.runtime();
        #[unroll]
        for cell in 0..comptime![CELLS as usize] {
            above += self.above[first + cell].load();
        }
        above
    }

    /// Does something with each element of the window, which a unit loads.
    fn visit(&self, #[comptime] measure: Measure, #[comptime] visit: Visit) {
        let share = &self.share;
        let access = comptime![share.access];
        let tally = Tally {
            first: self.counting.first_count(self.turn),
            shift: self.shift(),
            above: RuntimeCell::new(0u32),
            equal: RuntimeCell::new(0u32),
            least: RuntimeCell::new(u32::MAX),
            greatest: RuntimeCell::new(0u32),
        };
        let in_flight = comptime![access.loads_in_flight];
        let geometry = share.geometry;
        let rounds = geometry.loads_per_tile.div_ceil(share.stride * in_flight);
        for round in 0..rounds {
            let loads = load_round(share, round, in_flight);
            #[unroll]
            for nth in 0..in_flight {
                let loaded = loads.index(nth);
                let (position, valid) = (loaded.position, loaded.valid);
                self.take(loaded.value, position, valid, &tally, measure, visit);
            }
        }
        if comptime![access.peeled] {
            let slots = geometry.inner_count * comptime![edge_slots(access.vector)];
            let rounds = slots.div_ceil(share.stride);
            for round in 0..rounds {
                let slot = share.first + round * share.stride;
                let edge = load_edge(share, clamp_max(slot, slots - 1));
                let exists = edge.valid && slot < slots;
                self.take(edge.value, edge.position, exists, &tally, measure, visit);
            }
        }
        self.put_tally(&tally, measure, visit);
    }

    fn put_tally(&self, tally: &Tally, #[comptime] measure: Measure, #[comptime] visit: Visit) {
        if comptime![visit == Visit::Range] {
            if tally.least.read() <= tally.greatest.read() {
                self.counting.put_range(self.word, tally.least.read(), tally.greatest.read());
            }
        } else if comptime![visit == Visit::Count] {
            let above = tally.above.read();
            if above & self.fresh != 0 {
                let cell = self.turn % 2 * CELLS + self.share.place.member % CELLS;
                self.above[cell as usize].fetch_add(above);
            }
            let equal = tally.equal.read();
            if equal > 0 {
                self.counting.add(tally.first, 0u32.runtime(), equal);
            }
            if comptime![measure == Measure::Fixed] {
                // All bits but the sign, one place higher.
                if tally.greatest.read() > comptime![INFINITY << 1] {
                    self.unordered[0].store(1u32);
                }
            }
        }
    }

    /// Does something with the elements of a load.
    fn take<N: Size>(
        &self,
        value: Vector<Stored, N>,
        position: Position,
        exists: bool,
        tally: &Tally,
        #[comptime] measure: Measure,
        #[comptime] visit: Visit,
    ) {
        let (selection, order) = (comptime![self.selection], self.order);
        let vector = N::value().comptime();
        if comptime![measure == Measure::Fixed] {
            let numbers = Vector::<f32, N>::cast_from(value);
            let sums = numbers * Vector::new(sign(order)) + Vector::new(self.addend);
            let integers = Vector::<u32, N>::reinterpret(sums);
            if comptime![visit == Visit::Count] {
                let bits = Vector::<u32, N>::reinterpret(numbers) << Vector::new(1u32);
                #[unroll]
                for nth in 0..vector {
                    // What does not exist repeats an element of the slice.
                    tally.greatest.store(max(tally.greatest.read(), bits.extract(nth)));
                    let own = integers.extract(nth);
                    let last = self.base + self.width;
                    let is_above = exists && i32::reinterpret(own) > i32::reinterpret(last);
                    tally.above.store(tally.above.read() + u32::cast_from(is_above));
                    self.count(own, exists, tally);
                }
            } else {
                let mut inside = 0u32.runtime();
                #[unroll]
                for nth in 0..vector {
                    let is_inside = integers.extract(nth) - self.base <= self.width;
                    inside |= select(is_inside, comptime![1u32 << nth].runtime(), 0u32);
                }
                if exists && inside != 0 {
                    let mut offer = Offer::new(position.step, order, vector, selection);
                    offer.push_load(value, position, exists, order);
                    self.buffer.append(&offer, inside);
                }
            }
        } else {
            let mut offer = Offer::new(position.step, order, vector, selection);
            offer.push_load(value, position, exists, order);
            if comptime![visit == Visit::Count] {
                // Additions to one count would wait for each other.
                if self.width == 0 {
                    #[unroll]
                    for nth in 0..vector {
                        let own = self.word_of(&offer, nth, measure);
                        let is_open = exists && self.has_known_words(&offer, nth, measure);
                        let is_equal = u32::cast_from(is_open && own == self.base);
                        tally.equal.store(tally.equal.read() + is_equal);
                    }
                } else {
                    #[unroll]
                    for nth in 0..vector {
                        let is_open = exists && self.has_known_words(&offer, nth, measure);
                        self.count(self.word_of(&offer, nth, measure), is_open, tally);
                    }
                }
                // Later words are searched for in windows of all that there are.
                if comptime![measure == Measure::FirstWord] {
                    #[unroll]
                    for nth in 0..vector {
                        let own = self.word_of(&offer, nth, measure);
                        let is_above = exists && own > self.base + self.width;
                        tally.above.store(tally.above.read() + u32::cast_from(is_above));
                        self.note_nan(&offer, nth);
                    }
                }
            } else {
                let mut inside = 0u32.runtime();
                #[unroll]
                for nth in 0..vector {
                    let own = self.word_of(&offer, nth, measure);
                    let is_open = exists && self.has_known_words(&offer, nth, measure);
                    if comptime![visit == Visit::Range] {
                        let (least, greatest) = (tally.least.read(), tally.greatest.read());
                        tally.least.store(select(is_open, min(least, own), least));
                        tally.greatest.store(select(is_open, max(greatest, own), greatest));
                    } else {
                        let is_inside = is_open && own - self.base <= self.width;
                        inside |= select(is_inside, comptime![1u32 << nth].runtime(), 0u32);
                    }
                }
                if comptime![visit == Visit::Append] {
                    self.buffer.append(&offer, inside);
                }
            }
        }
    }

    /// Counts an element in its part of the window, if it is open and in any.
    fn count(&self, own: u32, is_open: bool, tally: &Tally) {
        let place = own - self.base;
        if is_open && place <= self.width {
            self.counting.add(tally.first, place >> tally.shift, 1u32.runtime());
        }
    }

    fn note_nan(&self, offer: &Offer, #[comptime] element: usize) {
        if self.order.spreading != 0 {
            let (entry, exists) = offer.key(element);
            if exists && entry.spreads(self.order, comptime![self.selection]) {
                self.spreading[0].store(*entry.words.index(0usize));
            }
        }
    }

    fn has_known_words(
        &self,
        offer: &Offer,
        #[comptime] element: usize,
        #[comptime] measure: Measure,
    ) -> bool {
        let mut has = true.runtime();
        if comptime![measure == Measure::LaterWord] {
            #[unroll]
            for word in 0..comptime![self.selection.words() - 1] {
                let differing = offer.word(word, element) ^ self.known.index(word).read();
                has = has && differing & self.masks.index(word).read() == 0;
            }
        }
        has
    }

    /// The word of an element that is searched for.
    fn word_of(
        &self,
        offer: &Offer,
        #[comptime] element: usize,
        #[comptime] measure: Measure,
    ) -> u32 {
        if comptime![measure == Measure::FirstWord] {
            offer.word(0usize, element)
        } else {
            let mut own = offer.word(1usize, element);
            #[unroll]
            for word in 2..comptime![self.selection.words()] {
                let is_asked = self.word == comptime![word as u32];
                own = select(is_asked, offer.word(word, element), own);
            }
            own
        }
    }
}
