//! A step of a cube: the loads of its units, the ends of regions among them, and what the shares
//! of units become.

use cubecl::prelude::*;
use reduce_planner::{Direction, SegmentsPlan};

use super::{
    Reading,
    carry::{Carry, Tail, Tails},
    crew::{Crew, unit_of_crew},
    fetch::{Fetched, position_of},
    regions::{Bounds, Least, Offsets, Places},
};
use crate::{
    kernels::{
        accumulate::{is_large, push_component, push_loaded, push_whole},
        geometry::CompanionAccess,
        load::{AtEnd, Loaded, load},
        reducer::Reducer,
        share::Share,
    },
    operator::{
        Accumulator, AccumulatorTypes, Columns, Slice, Stored, Stored2, Wide, Width, block::all,
    },
};

/// Regions about which a unit asks together where many end in a step.
pub(super) const TOGETHER: usize = 4;

/// What the units of a cube tell each other in a step.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Board<N: Width> {
    /// Loads of all units, along the reduction: a unit loads what lies beside that of its
    /// neighbours, and takes the elements of its share.
    values: ComptimeOption<Slice<Vector<Stored, Wide>>>,
    /// The same of the second input.
    seconds: ComptimeOption<Slice<Vector<Stored2, Wide>>>,
    /// Bit `i` of a member's word: a region ends with element `i` of its share.
    ends: Slice<Atomic<u32>>,
    /// At the cell of an element with which a region ends, the accumulator of that region.
    ended: Columns<AccumulatorTypes, N>,
    /// That of no elements.
    nothing: Columns<AccumulatorTypes, N>,
    /// What a strip has of the region that goes on, and of the one that ended in it and began
    /// before, of each crew or of each of the outputs side by side.
    goes_on: Tails<N>,
    heads: Columns<AccumulatorTypes, N>,
    pub(super) least: Least,
    pub(super) carry: Carry<N>,
    /// Where the memory of the unit's crew begins: its loads, words of ends, and cells.
    first_load: usize,
    first_word: usize,
    first_cell: usize,
    #[cube(comptime)]
    pub(super) crew: Crew,
    #[cube(comptime)]
    share: usize,
    #[cube(comptime)]
    side_by_side: usize,
    #[cube(comptime)]
    direction: Direction,
}

#[cube]
impl<N: Width> Board<N> {
    /// A board for steps without ends. Every unit of the cube must get here.
    pub(super) fn new(reading: &Reading<'_>) -> Board<N> {
        let (access, reducer) = (comptime![reading.access], reading.reducer);
        let team = comptime![reducer.team];
        let fields = comptime![reducer.operator.0.fields];
        let along = comptime![access.direction == Direction::Along];
        let crew = comptime![Crew::of(team)];
        let crews = comptime![crew.crews as usize];
        let share = comptime![SegmentsPlan::share(access)];
        let side_by_side = comptime![crew.side_by_side(team)];
        let members = comptime![team.units_per_tile as usize];
        let second = comptime![reading.input.second_access];
        let cells =
            comptime![if along { members * (share + 1) } else { members * share * side_by_side }];
        let vectors = comptime![members * (access.loads_in_flight + 1)];
        let values = if along {
            ComptimeOption::new_Some(Slice::of(&Shared::<[Vector<Stored, Wide>]>::new_slice(
                comptime![crews * vectors],
            )))
        } else {
            ComptimeOption::new_None()
        };
        let seconds = if comptime![along && second != CompanionAccess::None] {
            ComptimeOption::new_Some(Slice::of(&Shared::<[Vector<Stored2, Wide>]>::new_slice(
                comptime![crews * vectors],
            )))
        } else {
            ComptimeOption::new_None()
        };
        let words = comptime![crews * members];
        let ends = Slice::of(&Shared::<[Atomic<u32>]>::new_slice(words));
        let ended = Columns::shared(comptime![crews * cells], fields);
        let goes_on = Tails::new(comptime![team.tiles_per_cube()], fields);
        let heads = Columns::shared(comptime![team.tiles_per_cube()], fields);
        // Results of constants would be computed when the kernel is compiled, and WGSL has no
        // constant NaN for a mean. LLVM also looks through a loop; where it found a NaN under a root,
        // Mesa's software adapter stored nothing. Compilers do not look through a barrier.
        let mut nothing = Columns::<AccumulatorTypes, N>::shared(1usize, fields);
        if UNIT_POS == 0 {
            nothing.put(0usize, reducer.identity::<N>());
        }
        if UNIT_POS < comptime![words as u32] {
            ends[UNIT_POS as usize].store(0u32);
        }
        let least = Least::new(crew);
        sync_cube();
        let direction = comptime![access.direction];
        let nth =
            if comptime![crews > 1] { (UNIT_POS / crew.units) as usize } else { 0usize.runtime() };
        Board::<N> {
            values,
            seconds,
            ends,
            ended,
            nothing,
            goes_on,
            heads,
            least,
            carry: Carry::new(reducer),
            first_load: nth * vectors,
            first_word: nth * members,
            first_cell: nth * cells,
            crew,
            share,
            side_by_side,
            direction,
        }
    }

    /// Where the accumulator of the region that ends with element number `nth` of a step lies, of the
    /// outputs with number `tile` of those side by side.
    fn cell(&self, nth: usize, tile: u32) -> usize {
        match comptime![self.direction] {
            // Members have one cell more than elements, so that neighbours use different banks.
            Direction::Along => self.first_cell + nth + nth / comptime![self.share],
            Direction::Across => nth * comptime![self.side_by_side] + tile as usize,
        }
    }

    /// The word of a member's ends.
    pub(super) fn ends_of(&self, member: u32) -> u32 {
        self.ends[self.first_word + member as usize].load()
    }

    /// Forgets the ends of a member.
    pub(super) fn clear(&self, member: u32) {
        self.ends[self.first_word + member as usize].store(0u32);
    }

    fn mark(&self, nth: usize) {
        let share = comptime![self.share];
        let bit = 1u32 << u32::cast_from(nth % share);
        self.ends[self.first_word + nth / share].fetch_or(bit);
    }

    /// What a region that ends with element number `nth` has in this step.
    pub(super) fn ended_with(&self, nth: usize, tile: u32) -> Accumulator<N> {
        self.ended.at(self.cell(nth, tile))
    }

    /// The accumulator of a region without elements.
    pub(super) fn nothing(&self) -> Accumulator<N> {
        self.nothing.at(0usize)
    }

    /// Member 0 tells the others what a strip has and goes on, behind the next meeting.
    pub(super) fn tell(&self, goes_on: Accumulator<N>, ends: bool, share: &Share<'_>) {
        if share.place.member == 0 {
            let tail = Tail::new(goes_on, u32::cast_from(ends));
            self.goes_on.put(share.place.tile as usize, &tail);
        }
    }

    /// What member 0 of a crew, or of outputs, has told.
    pub(super) fn told(&self, tile: u32) -> Tail<N> {
        self.goes_on.at(tile as usize)
    }

    /// What member 0 has, for all members. Every unit of the crew must get here.
    pub(super) fn for_all(&self, goes_on: Accumulator<N>, share: &Share<'_>) -> Accumulator<N> {
        if comptime![self.crew.in_plane] {
            goes_on.shuffle_from(0u32.runtime())
        } else {
            self.tell(goes_on, false.runtime(), share);
            sync_cube();
            self.told(share.place.tile).rest
        }
    }

    /// Keeps what a strip has of the region that began before it.
    pub(super) fn keep_head(&self, head: Accumulator<N>, share: &Share<'_>) {
        let mut heads = self.heads;
        heads.put(share.place.tile as usize, head);
    }

    pub(super) fn head(&self, share: &Share<'_>) -> Accumulator<N> {
        self.heads.at(share.place.tile as usize)
    }

    /// Puts what a region has before a share before what it has in it. `word` says where it ends.
    pub(super) fn put_before(
        &self,
        before: Accumulator<N>,
        word: u32,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
    ) {
        let first = share.place.member as usize * comptime![self.share];
        let cell = self.cell(first + u32::trailing_zeros(word) as usize, share.place.tile);
        let mut ended = self.ended;
        ended.put(cell, reducer.merge::<N>(before, ended.at(cell)));
    }
}

#[cube]
impl<N: Width> Board<N> {
    /// Shows the loads of a step to all units, behind the next barrier.
    pub(super) fn show(&self, fetched: &Fetched, member: u32, #[comptime] members: usize) {
        let in_flight = fetched.values.len().comptime();
        #[comptime]
        match &self.values {
            ComptimeOption::Some(values) => {
                let mut values = *values;
                #[unroll]
                for k in 0..in_flight {
                    let vector = comptime![k * members] + member as usize;
                    values[self.first_load + vector + vector / in_flight] =
                        fetched.values.index(k).read();
                }
            }
            ComptimeOption::None => {}
        }
        #[comptime]
        match &self.seconds {
            ComptimeOption::Some(seconds) => {
                let mut seconds = *seconds;
                #[unroll]
                for k in 0..in_flight {
                    let vector = comptime![k * members] + member as usize;
                    seconds[self.first_load + vector + vector / in_flight] =
                        fetched.seconds.index(k).read();
                }
            }
            ComptimeOption::None => {}
        }
    }

    /// Marks the ends of the regions from `first` on that end in a step, which goes from place
    /// `start` to `stop`. `own` are the offsets of the region that comes as many behind the first as
    /// the unit behind the first one. Returns the first region that does not end in the step. Every unit
    /// of the crew must get here, and they meet behind the marks.
    pub(super) fn mark_ends(
        &self,
        reading: &Reading<'_>,
        places: &Places,
        first: usize,
        own: &Offsets,
        start: usize,
        stop: usize,
    ) -> usize {
        let regions = reading.regions;
        let units = comptime![self.crew.units as usize];
        let unit = unit_of_crew(comptime![self.crew]) as usize;
        let last = regions.count();
        // What lies before the axis belongs to no region.
        if unit == 0 && start < places.before {
            self.mark(places.before - 1 - start);
        }
        let bounds = regions.bounds_at(own, first + unit, places);
        let mut next = self.least.first(self.mark_end(first + unit, last, &bounds, start, stop));
        let mut seen = units.runtime();
        while next == u32::MAX {
            // Many regions end in the step: units ask about several at a time.
            let mut several = Sequence::<Offsets>::new();
            #[unroll]
            for k in 0..TOGETHER {
                several.push(regions.offsets(first + seen + k * units + unit));
            }
            let mut are_next = Sequence::<bool>::new();
            #[unroll]
            for k in 0..TOGETHER {
                let region = first + seen + k * units + unit;
                let bounds = regions.bounds_at(several.index(k), region, places);
                are_next.push(self.mark_end(region, last, &bounds, start, stop));
            }
            let found = self.least.first_of_several(&are_next, comptime![units as u32]);
            next = select(found == u32::MAX, u32::MAX, u32::cast_from(seen) + found);
            seen += comptime![TOGETHER * units];
            // Among offsets that descend there may be no such region.
            if next == u32::MAX && first + seen > last {
                next = u32::cast_from(last - first);
            }
        }
        first + next as usize
    }

    /// Marks the end of a region. Returns whether it is the first one that ends behind the step.
    fn mark_end(
        &self,
        region: usize,
        last: usize,
        bounds: &Bounds,
        start: usize,
        stop: usize,
    ) -> bool {
        let Bounds { begin, end } = *bounds;
        if region < last && begin < end && end > start && end <= stop {
            self.mark(end - 1 - start);
        }
        region <= last && begin <= stop && (end > stop || region == last)
    }

    /// Takes the elements of a share. `word` says with which of them regions end: what those have in
    /// the share is put into their cells. Returns what lies behind the last end.
    pub(super) fn take_share(
        &self,
        fetched: &Fetched,
        word: u32,
        start: usize,
        places: &Places,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
    ) -> Accumulator<N> {
        let operator = comptime![reducer.operator];
        let in_flight = comptime![share.access.loads_in_flight];
        let first = share.place.member as usize * comptime![self.share];
        let mut total = reducer.identity::<N>();
        let mut one_by_one = true.runtime();
        let mut taken = Vector::<bool, N>::new(false);
        let mut of_block = reducer.identity::<N>();
        if comptime![operator.0.blocks.is_some()] {
            // Where no region ends, the operator takes the whole share.
            if word == 0 {
                let mut loads = Sequence::<Loaded>::new();
                #[unroll]
                for k in 0..in_flight {
                    loads.push(match comptime![self.direction] {
                        Direction::Along => self.shown(k.runtime(), start, places, share),
                        Direction::Across => fetched.loaded(share, places, start + first + k, k),
                    });
                }
                let (pushed, as_block) =
                    push_whole::<N>(total, &loads, reducer, share.input.is_in_order());
                of_block = pushed;
                taken = as_block;
                one_by_one = !all::<N>(taken);
            }
        }
        if one_by_one {
            // Along the reduction, each element's cell gets what the region has up to it: a store
            // costs less than a branch for the few that are read.
            let cells = self.cell(first, share.place.tile);
            let mut ended = self.ended;
            if comptime![self.direction == Direction::Along] {
                let width = comptime![self.share / in_flight];
                // The bound is one that compilers do not know, so that they do not write the push
                // for each load of the share.
                for k in 0..in_flight + share.unknown_zero() as usize {
                    let loaded = self.shown(k, start, places, share);
                    let bits = word >> u32::cast_from(k * width);
                    #[unroll]
                    for component in 0..width {
                        total = push_component::<N>(total, &loaded, component, reducer);
                        ended.put(cells + k * width + component, total);
                        if bits & comptime![1u32 << component] != 0 {
                            total = reducer.identity::<N>();
                        }
                    }
                }
            } else if comptime![is_large(operator)] {
                // Loads come from the cache a second time, so that one copy of the push has to do.
                for k in 0..in_flight + share.unknown_zero() as usize {
                    let row = clamp_max(start + first + k, places.end - 1);
                    let loaded = load(share, row, AtEnd::Never);
                    total = push_across::<N>(total, loaded, reducer);
                    ended.put(cells + k * comptime![self.side_by_side], total);
                    if (word >> u32::cast_from(k)) & 1 == 1 {
                        total = reducer.identity::<N>();
                    }
                }
            } else {
                #[unroll]
                for k in 0..in_flight {
                    let loaded = fetched.loaded(share, places, start + first + k, k);
                    total = push_across::<N>(total, loaded, reducer);
                    if word & comptime![1u32 << k] != 0 {
                        ended.put(cells + comptime![k * self.side_by_side], total);
                        total = reducer.identity::<N>();
                    }
                }
            }
        }
        if comptime![operator.0.blocks.is_some()] {
            total = with_taken::<N>(total, of_block, taken);
        }
        total
    }

    /// Load number `k` of a share along the reduction.
    fn shown(&self, k: usize, start: usize, places: &Places, share: &Share<'_>) -> Loaded {
        let in_flight = comptime![share.access.loads_in_flight];
        let member = share.place.member as usize;
        let place = start + (member * in_flight + k) * comptime![share.access.vector];
        let vector = self.first_load + member * comptime![in_flight + 1] + k;
        let values = self.values.unwrap();
        Loaded {
            value: values[vector],
            second: self.seconds.map(|seconds| seconds[vector]),
            position: position_of(share, places, place),
            valid: true.runtime(),
        }
    }
}

/// An accumulator with the components of another that were `taken` as a block. What becomes of one
/// output does not depend on whether others are.
#[cube]
pub(super) fn with_taken<N: Width>(
    one_by_one: Accumulator<N>,
    of_block: Accumulator<N>,
    taken: Vector<bool, N>,
) -> Accumulator<N> {
    let mut total = one_by_one;
    #[unroll]
    for component in 0..N::value().comptime() {
        if taken.extract(component) {
            let index = comptime![component as u32].runtime();
            total = total.with_component(index, of_block.component(component));
        }
    }
    total
}

/// Pushes a load across outputs. `N` is [`Wide`].
#[cube]
fn push_across<N: Width>(
    accumulator: Accumulator<N>,
    loaded: Loaded,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    push_loaded::<Wide>(accumulator.resized::<Wide>(), loaded, reducer).resized::<N>()
}
