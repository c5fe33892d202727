//! Scans: the results of a reduction at each of its positions.
//!
//! A *chunk* is what the units of a row take at a time. Units hold its elements in registers, or
//! part of them in shared memory ([`turns`]). They accumulate them to *totals*, tell each other the
//! totals ([`exchange`]), and accumulate them once more, each from what lies before it, to the
//! results ([`results`]). What lies before a chunk is *carried* from one to the next ([`carry`]).
//!
//! *Numbers* of loads and elements count in the direction of the scan, from the last one if it is
//! reverse. A cube has a *part* of a row. Where a row has several, a first launch leaves an
//! accumulator of each part, or each cube [looks back](look_back) at the parts before its own.
//! Partial results of other tensors may come before the first element of each row ([`earlier`]).
//! Of a [list], a cube has rows of one of many tensors.

mod carry;
mod earlier;
mod edges;
mod exchange;
mod list;
mod look_back;
mod parts;
mod results;
mod transpose;
mod turns;

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

pub(crate) use self::{
    earlier::{Earlier, EarlierLaunch, EarlierWordsLaunch},
    list::{WORDS_OF_KEPT, WORDS_OF_SCAN, WORDS_OF_SCANNED, scan_list},
    look_back::{LookedBack, scan_looking_back},
};

use self::{
    carry::Carry,
    earlier::{elements_before_row, with_earlier},
    edges::{Edges, issue_peeled},
    exchange::Exchange,
    parts::{before_part, reduce_part},
    results::store_results,
    transpose::Transposition,
};
use super::{
    accumulate::{push_component, push_loaded, push_together},
    args::{
        InputArrays, KernelTypes, Output, PartialArrays, ResultArrays, input_of, output_of,
        partials_of,
    },
    at_once::hash_at_once,
    geometry::{Companion, Geometry},
    load::{AtEnd, Loaded, load, load_together, position_of},
    reducer::Reducer,
    share::{Share, share_among_cubes},
    team::Team,
};
use crate::operator::{
    Accumulator, BlockTraits, OperatorRef, Parameters, Position, Single, Stored, Wide, Width,
    block::all, component_at,
};

/// How a scan is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScanSpec {
    pub(crate) access: Access,
    pub(crate) team: Team,
    /// Whether the element at a position is left out of the result there.
    pub(crate) exclusive: bool,
    /// Whether the last element is the first one that is scanned.
    pub(crate) reverse: bool,
    /// Whether an earlier launch has left the accumulators of parts.
    pub(crate) split: bool,
    /// Whether partial results of other tensors come before the rows.
    pub(crate) continues: bool,
    /// Whether units load the values of the next chunk before they scan this one.
    pub(crate) ahead: bool,
    /// Whether the lanes of a plane exchange elements, so that each has neighbouring loads.
    pub(crate) transposes: bool,
    /// Loads of a chunk that each unit keeps in shared memory, a multiple of those in flight.
    pub(crate) in_shared: usize,
}

hash_at_once!(ScanSpec {
    access,
    team,
    exclusive,
    reverse,
    split,
    continues,
    ahead,
    transposes,
    in_shared
});

impl ScanSpec {
    /// Turns in which units take the loads of a chunk, as many as are in flight at a time.
    fn turns(self) -> usize {
        1 + self.in_shared / self.access.loads_in_flight
    }
}

/// How rows are cut into parts.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Cuts {
    /// Cubes of a row.
    pub(crate) cubes: usize,
    /// Chunks of a row.
    pub(crate) chunks: usize,
    /// Chunks of each cube. The last ones of a row may have fewer.
    pub(crate) chunks_per_cube: usize,
}

/// The part of a row, or of a vector of columns, that a cube has.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Part<'a> {
    share: &'a Share<'a>,
    /// The number of the cube among those of the row.
    cube: usize,
    /// Its first chunk, and the one behind its last.
    first: usize,
    end: usize,
    /// Elements of other tensors that come before the row.
    before: usize,
    edges: Edges,
    #[cube(comptime)]
    spec: ScanSpec,
}

#[cube]
impl<'a> Part<'a> {
    fn new(
        share: &'a Share<'a>,
        cuts: &Cuts,
        before: usize,
        cube: usize,
        #[comptime] spec: ScanSpec,
    ) -> Part<'a> {
        let first = clamp_max(cube * cuts.chunks_per_cube, cuts.chunks);
        let end = clamp_max(first + cuts.chunks_per_cube, cuts.chunks);
        let edges = Edges::of(share, spec);
        Part::<'a> { share, cube, first, end, before, edges, spec }
    }

    /// The number of a turn of a chunk. Where chunks have one turn each, it is that of the chunk.
    fn turn(&self, chunk: usize, nth: usize) -> usize {
        chunk * comptime![self.spec.turns()] + nth
    }

    /// The number of load `k` of this unit in a turn.
    fn number(&self, turn: usize, #[comptime] k: usize) -> usize {
        let loads = comptime![self.spec.access.loads_in_flight];
        let units = comptime![self.spec.team.units_per_tile as usize];
        let member = self.share.place.member as usize;
        let turns = comptime![self.spec.turns()];
        let (chunk, nth) = (turn / turns, turn % turns);
        match comptime![self.spec.access.direction] {
            // Neighbouring units read neighbouring vectors. Those of a plane follow each other.
            Direction::Along => {
                let lanes = comptime![self.spec.team.neighbours() as usize];
                let planes = comptime![units / lanes];
                let (plane, lane) = (member / lanes, member % lanes);
                (((chunk * planes + plane) * turns + nth) * loads + k) * lanes + lane
            }
            // Neighbouring units read neighbouring columns, and each has neighbouring elements of
            // its own.
            Direction::Across => ((chunk * units + member) * turns + nth) * loads + k,
        }
    }

    /// The number of the load that comes as number `k` of neighbouring ones of this unit, if lanes
    /// exchange them.
    fn number_of_neighbour(&self, chunk: usize, k: usize) -> usize {
        let loads = comptime![self.spec.access.loads_in_flight];
        let units = comptime![self.spec.team.units_per_tile as usize];
        (chunk * units + self.share.place.member as usize) * loads + k
    }

    /// The load with this number and value.
    fn loaded(&self, number: usize, value: Vector<Stored, Wide>) -> Loaded {
        let count = self.edges.loads;
        let place = self.place(clamp_max(number, count - 1));
        Loaded {
            value,
            second: ComptimeOption::new_None(),
            position: self.position(place),
            valid: number < count,
        }
    }

    /// The load with this number, which exists, read again. To take it from registers, a kernel
    /// would have to know its place there when it is generated.
    fn loaded_again(&self, number: usize) -> Loaded {
        self.loaded(number, load(self.share, self.place(number), AtEnd::Never).value)
    }

    /// The position of the load that lies there in the row.
    fn position(&self, place: usize) -> Position {
        let (share, vector) = (self.share, comptime![self.spec.access.vector]);
        let geometry = share.geometry;
        if comptime![self.spec.access.peeled] {
            // Of a vector that begins before the row, the position wraps around, and back at the
            // row's first element.
            let step = geometry.inner_target_stride;
            let skipped = share.tile.input % vector;
            let start = geometry.position((place * vector - skipped) * step);
            Position { start, step }
        } else {
            position_of(share, place)
        }
    }

    /// Where the load with this number lies in the row.
    fn place(&self, number: usize) -> usize {
        if comptime![self.spec.reverse] { self.edges.loads - 1 - number } else { number }
    }

    /// Elements that the scan has come across before those of the load along the row with this
    /// number, had the row all of its components.
    fn count_before(&self, number: usize) -> usize {
        self.before + number * comptime![self.spec.access.vector] - self.edges.lead
    }

    /// The loads of a chunk of one turn, whose values have been loaded `ahead` if units do so.
    fn take(&self, ahead: &Ahead, chunk: usize) -> Sequence<Loaded> {
        if comptime![self.spec.ahead] {
            let mut loads = Sequence::<Loaded>::new();
            #[unroll]
            for k in 0..comptime![self.spec.access.loads_in_flight] {
                loads.push(self.loaded(self.number(chunk, k), ahead.index(k).read()));
            }
            loads
        } else {
            self.issue(chunk)
        }
    }

    /// Loads the values of a chunk ahead.
    fn load_ahead(&self, ahead: &Ahead, chunk: usize) {
        let loads = self.issue(chunk);
        #[unroll]
        for k in 0..loads.len().comptime() {
            let loaded = *loads.index(k);
            ahead.index(k).store(loaded.value);
        }
    }

    /// Issues the loads of a turn. Those past the end of the row repeat its last, and are not
    /// valid.
    fn issue(&self, turn: usize) -> Sequence<Loaded> {
        if comptime![self.spec.access.peeled] {
            issue_peeled(self, turn)
        } else {
            let count = self.edges.loads;
            let in_flight = comptime![self.spec.access.loads_in_flight];
            let arrays = self.share.input.vectors.count();
            let mut together = Sequence::<Loaded>::new();
            // One choice among the arrays of a list serves all loads of the chunk.
            if comptime![arrays > 1] {
                let mut places = Sequence::<usize>::new();
                #[unroll]
                for k in 0..in_flight {
                    places.push(self.place(clamp_max(self.number(turn, k), count - 1)));
                }
                load_together(&mut together, self.share, &places);
            }
            let mut loads = Sequence::<Loaded>::new();
            #[unroll]
            for k in 0..in_flight {
                let number = self.number(turn, k);
                let valid = number < count;
                let loaded = if comptime![arrays > 1] {
                    *together.index(k)
                } else {
                    let place = self.place(select(valid, number, count - 1));
                    load(self.share, place, AtEnd::Never)
                };
                loads.push(Loaded {
                    value: loaded.value,
                    second: loaded.second,
                    position: loaded.position,
                    valid,
                });
            }
            loads
        }
    }
}

/// Scans the part of each row that a cube has, and writes its results. Of a row of several cubes,
/// `partials` holds the accumulator of each part.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn scan_rows(
    _types: &KernelTypes,
    input: &InputArrays,
    results: &mut ResultArrays,
    partials: &mut PartialArrays,
    geometry: &Geometry,
    output: &Companion,
    cuts: &Cuts,
    earlier: &Earlier,
    parameters: &Parameters,
    #[comptime] spec: ScanSpec,
    #[comptime] operator: OperatorRef,
) {
    let input = input_of(input);
    let partials = partials_of(partials);
    let mut results = output_of(results);
    let reducer = Reducer::new(parameters, comptime![spec.team], operator);
    let (block, cube) = (CUBE_POS / cuts.cubes, CUBE_POS % cuts.cubes);
    let (access, team) = comptime![(spec.access, spec.team)];
    let share = share_among_cubes(&input, geometry, block, cube, cuts.cubes, access, team);
    let part = Part::new(&share, cuts, elements_before_row(earlier), cube, spec);
    match comptime![access.direction] {
        Direction::Along => {
            let exchange = Exchange::<Single>::new(spec, &reducer);
            let before = before_part::<Single>(partials, &part, &exchange, &reducer);
            let before = with_earlier::<Single>(earlier, before, &share, spec, &reducer);
            scan_part::<Single>(&mut results, output, before, &part, &exchange, &reducer);
        }
        Direction::Across => {
            let exchange = Exchange::<Wide>::new(spec, &reducer);
            let before = before_part::<Wide>(partials, &part, &exchange, &reducer);
            let before = with_earlier::<Wide>(earlier, before, &share, spec, &reducer);
            scan_part::<Wide>(&mut results, output, before, &part, &exchange, &reducer);
        }
    }
}

/// Accumulates the part of each row that a cube has. Those of cube `c` start at `c * outputs`, in
/// the order of the canonical kept dimensions.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_parts(
    _types: &KernelTypes,
    input: &InputArrays,
    partials: &mut PartialArrays,
    geometry: &Geometry,
    cuts: &Cuts,
    parameters: &Parameters,
    #[comptime] spec: ScanSpec,
    #[comptime] operator: OperatorRef,
) {
    let input = input_of(input);
    let mut partials = partials_of(partials);
    let reducer = Reducer::new(parameters, comptime![spec.team], operator);
    let (block, cube) = (CUBE_POS / cuts.cubes, CUBE_POS % cuts.cubes);
    let (access, team) = comptime![(spec.access, spec.team)];
    let share = share_among_cubes(&input, geometry, block, cube, cuts.cubes, access, team);
    let part = Part::new(&share, cuts, 0usize.runtime(), cube, spec);
    match comptime![access.direction] {
        Direction::Along => reduce_part::<Single>(&mut partials, &part, &reducer),
        Direction::Across => reduce_part::<Wide>(&mut partials, &part, &reducer),
    }
}

/// A chunk that is scanned, or a turn of one.
#[derive(CubeType)]
struct Chunk<N: Width> {
    /// The number of the turn.
    number: usize,
    /// What lies before it.
    before: Accumulator<N>,
    loads: Sequence<Loaded>,
    transposition: Transposition,
}

/// The values of loads of the next chunk.
type Ahead = Sequence<RuntimeCell<Vector<Stored, Wide>>>;

/// Scans a part, before which lies `before`. Every unit of the cube must get here.
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is generated, the inner when it runs"
)]
#[cube]
fn scan_part<N: Width>(
    results: &mut Output,
    output: &Companion,
    before: Accumulator<N>,
    part: &Part<'_>,
    exchange: &Exchange<N>,
    reducer: &Reducer<'_>,
) {
    let transposition = Transposition::new(comptime![part.spec], reducer);
    let mut carry = Carry::<N>::new(before, reducer);
    let mut ahead = Ahead::new();
    if comptime![part.spec.ahead] {
        #[unroll]
        for _ in 0..comptime![part.spec.access.loads_in_flight] {
            ahead.push(RuntimeCell::new(Vector::empty()));
        }
        if part.first < part.end {
            part.load_ahead(&ahead, part.first);
        }
    }
    for chunk in part.first..part.end {
        let loads = part.take(&ahead, chunk);
        // While units wait for each other, the next chunk is on its way.
        if comptime![part.spec.ahead] {
            if chunk + 1 < part.end {
                part.load_ahead(&ahead, chunk + 1);
            }
        }
        let totals = totals::<N>(&loads, &transposition, chunk, part, reducer);
        let call = u32::cast_from(chunk - part.first) + 1;
        let learned = exchange.through(&totals, call, part.share, reducer);
        let chunk = Chunk::<N> { number: chunk, before: carry.before, loads, transposition };
        store_results::<N>(results, output, &chunk, &learned, part, reducer);
        carry.add(learned.total, part.share.unknown_zero(), reducer);
    }
}

/// What a unit has of a turn: along, the total of each load; across, or of neighbouring ones, that
/// of all loads.
#[cube]
fn totals<N: Width>(
    loads: &Sequence<Loaded>,
    transposition: &Transposition,
    turn: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Sequence<Accumulator<N>> {
    let mut totals = Sequence::<Accumulator<N>>::new();
    match comptime![part.spec.access.direction] {
        Direction::Along if part.spec.transposes => {
            transposition.exchange(loads);
            totals.push(total_of_neighbours::<N>(transposition, turn, part, reducer));
        }
        Direction::Along =>
        {
            #[unroll]
            for k in 0..loads.len().comptime() {
                let loaded = *loads.index(k);
                let mut total = reducer.identity::<N>();
                if loaded.valid {
                    total = total_of_load::<N>(&loaded, part.number(turn, k), part, reducer);
                }
                totals.push(total);
            }
        }
        Direction::Across => totals.push(total_of_rows::<N>(loads, turn, part, reducer)),
    }
    totals
}

/// The total of the neighbouring loads across outputs that a unit has of a turn. `N` is [`Wide`].
///
/// Components belong to different rows. The bits of a row do not depend on whether the block of a
/// neighbour is refused.
#[cube]
fn total_of_rows<N: Width>(
    loads: &Sequence<Loaded>,
    turn: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let count = loads.len().comptime();
    let mut total = reducer.identity::<N>();
    if comptime![has_blocks_and_runs(reducer.operator)] {
        let first = part.number(turn, 0usize);
        let is_whole = first + comptime![count - 1] < part.edges.loads;
        let (pushed, taken) = push_together::<N>(total, loads, reducer, WHOLE_BLOCK);
        let taken = taken.vec_and(Vector::new(is_whole));
        if all::<N>(taken) {
            total = pushed;
        } else {
            let end = clamp_max(first + count, part.edges.loads);
            for number in first..end {
                total = push_loaded::<N>(total, part.loaded_again(number), reducer);
            }
            total = total.or_components_of(taken, pushed);
        }
    } else {
        #[unroll]
        for k in 0..count {
            let loaded = *loads.index(k);
            if loaded.valid {
                total = push_loaded::<N>(total, loaded, reducer);
            }
        }
    }
    total
}

fn has_blocks_and_runs(operator: OperatorRef) -> bool {
    operator.0.blocks.is_some() && operator.0.runs.is_some()
}

/// The total of the neighbouring loads that a unit has of a chunk. `N` is [`Single`].
#[cube]
fn total_of_neighbours<N: Width>(
    transposition: &Transposition,
    chunk: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let count = comptime![part.spec.access.loads_in_flight];
    let mut total = reducer.identity::<N>();
    let mut one_by_one = true.runtime();
    if comptime![reducer.operator.0.blocks.is_some()] {
        let first = part.number_of_neighbour(chunk, 0usize);
        let last = part.number_of_neighbour(chunk, comptime![count - 1].runtime());
        let mut whole = last < part.edges.loads;
        if comptime![part.spec.access.peeled] {
            whole = part.edges.is_whole(first, comptime![part.spec])
                && part.edges.is_whole(last, comptime![part.spec]);
        }
        if whole {
            let mut loads = Sequence::<Loaded>::new();
            #[unroll]
            for k in 0..count {
                let value = transposition.value(comptime![k].runtime());
                loads.push(part.loaded(first + k, value));
            }
            let (pushed, taken) = push_together::<N>(total, &loads, reducer, WHOLE_BLOCK);
            if all::<N>(taken) {
                total = pushed;
                one_by_one = false;
            }
        }
    }
    if one_by_one {
        for k in 0..count + part.share.unknown_zero() as usize {
            let number = part.number_of_neighbour(chunk, k);
            let loaded = part.loaded(number, transposition.value(k));
            if loaded.valid {
                let own = part.edges.components(number, comptime![part.spec]);
                for nth in own.first..own.end {
                    total = push_at::<N>(total, &loaded, nth, part, reducer);
                }
            }
        }
    }
    total
}

/// The total of the load along the row with this number. `N` is [`Single`].
#[cube]
fn total_of_load<N: Width>(
    loaded: &Loaded,
    number: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    if comptime![reducer.operator.0.merges_in_loops()] {
        total_in_loop::<N>(loaded, number, part, reducer)
    } else if comptime![part.spec.access.peeled] {
        let mut total = reducer.identity::<N>();
        let is_whole = part.edges.is_whole(number, comptime![part.spec]);
        if is_whole {
            total = total_of_vector::<N>(loaded, part, reducer);
        }
        if !is_whole {
            total = total_in_loop::<N>(loaded, number, part, reducer);
        }
        total
    } else {
        total_of_vector::<N>(loaded, part, reducer)
    }
}

/// The total of all components of a load.
#[cube]
fn total_of_vector<N: Width>(
    loaded: &Loaded,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let mut total = reducer.identity::<N>();
    #[unroll]
    for nth in 0..comptime![part.spec.access.vector] {
        let component = comptime![component_of(nth, part.spec)];
        total = push_component::<N>(total, loaded, component, reducer);
    }
    total
}

/// A block of loads that exist, pushed to an accumulator of no elements.
const WHOLE_BLOCK: BlockTraits = BlockTraits { whole: true, ascending: false, starts: true };

/// The total of those components of a load that the row has.
#[cube]
fn total_in_loop<N: Width>(
    loaded: &Loaded,
    number: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let own = part.edges.components(number, comptime![part.spec]);
    let mut total = reducer.identity::<N>();
    for nth in own.first..own.end + part.share.unknown_zero() {
        total = push_at::<N>(total, loaded, nth, part, reducer);
    }
    total
}

/// The component of a load that comes as number `nth`.
fn component_of(nth: usize, spec: ScanSpec) -> usize {
    if spec.reverse { spec.access.vector - 1 - nth } else { nth }
}

/// Pushes the element of a load along the row that comes as number `nth`, which is known only when
/// the kernel runs: compilers take long for a copy of a long push for each element.
#[cube]
fn push_at<N: Width>(
    accumulator: Accumulator<N>,
    loaded: &Loaded,
    nth: u32,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let component = component_at_number(nth, part);
    let start = loaded.position.start + component as usize * loaded.position.step;
    let element = Loaded {
        value: Vector::new(component_at::<Stored, Wide>(loaded.value, component)),
        second: loaded.second,
        position: Position { start, step: loaded.position.step },
        valid: loaded.valid,
    };
    push_component::<N>(accumulator, &element, 0usize, reducer)
}

/// [`component_of()`] of a number that is known only when the kernel runs.
#[cube]
fn component_at_number(nth: u32, part: &Part<'_>) -> u32 {
    if comptime![part.spec.reverse] {
        comptime![part.spec.access.vector as u32 - 1] - nth
    } else {
        nth
    }
}
