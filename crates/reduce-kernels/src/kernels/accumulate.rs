//! The work of one unit on its share of a tile: it issues several loads, then pushes their
//! elements.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    conversion::as_pushed,
    geometry::Geometry,
    load::{
        AtEnd, Edge, Loaded, edge_slots, ends_outside, lie_evenly, load, load_block_of_list,
        load_edge, load_even_rows, load_rest, loads_with_rests, position_across,
    },
    pairwise::{CHAIN, Tree, is_pairwise},
    realign::inside_block,
    reducer::Reducer,
    share::Share,
};
use crate::operator::{
    Accumulator, Block, BlockTraits, In, Inputs, OperatorRef, Position, Single, Stored, Stored2,
    Wide, Width, block::all, component_at, one_input, push, push_block, same_bits::normal,
    two_inputs,
};

/// Adds a share, without peeled edges, to an accumulator. The components of the accumulator are
/// those of a load, or `N` is [`Single`] and the operator takes blocks.
#[cube]
pub(super) fn accumulate<N: Width>(
    accumulator: Accumulator<N>,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let access = comptime![share.access];
    let operator = comptime![reducer.operator];
    let outer_dims = share.geometry.reduced.len().comptime();
    let in_one = comptime![is_large(operator) || operator.0.inputs == 2];
    if comptime![in_one || any_load_may_be_missing(access, outer_dims)] {
        in_one_loop::<N>(accumulator, share, reducer)
    } else {
        whole_blocks_first::<N>(accumulator, share, reducer)
    }
}

/// Whole blocks, then the rest. Neither the addresses nor the elements of whole blocks are
/// questioned.
///
/// Across outputs, the loop loads the values of its next turn. NVIDIA's compiler moves a load down
/// to where its value is used, which leaves two or three in flight, but not over the end of a loop.
/// Along the reduction, where vectors are wide and units many, those are enough.
///
/// On one H200, sums of 8192 × 8192 along axis 0 took, without and with the next turn's loads: bf16
/// 36.7 and 35.5 us, with half the units 47.1 and 41.8; f32 with half the units 76.4 and 65.1.
/// Along the reduction it made no difference, and took 62 registers instead of 40.
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is generated, the inner when it runs"
)]
#[cube]
fn whole_blocks_first<N: Width>(
    accumulator: Accumulator<N>,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let access = comptime![share.access];
    let operator = comptime![reducer.operator];
    let geometry = share.geometry;
    let in_flight = comptime![access.loads_in_flight];
    let pairwise = is_pairwise(operator);
    let blocks_per_chain = comptime![CHAIN.div_ceil(in_flight) as u32].runtime();
    let zero = share.unknown_zero();
    let tree = Tree::<N>::new(operator);
    let mut chains: u32 = 0u32.runtime();
    let mut blocks: u32 = 0u32.runtime();
    let mut total = accumulator;
    let block = share.block_stride();
    let whole_blocks = loads_surely_valid(geometry, access) / block;
    let outer_dims = geometry.reduced.len().comptime();
    let ascending = comptime![is_ascending(access, outer_dims)];
    let whole = comptime![BlockTraits { whole: true, ascending, ..SOME_BLOCK }];
    let ahead = comptime![access.direction == Direction::Across];
    let arrays = share.input.vectors.count();
    let mut values = Sequence::<RuntimeCell<Vector<Stored, Wide>>>::new();
    if comptime![ahead] {
        #[unroll]
        for _ in 0..in_flight {
            values.push(RuntimeCell::new(Vector::empty()));
        }
        // A unit without a whole block must not load one, because its loads may not exist.
        if whole_blocks > 0 {
            load_whole(&values, share, share.first);
        }
    }
    for nth in 0..whole_blocks {
        let first = share.first + nth * block;
        let mut loads = Sequence::<Loaded>::new();
        if comptime![arrays > 1] {
            load_block_of_list(&mut loads, share, first);
        }
        #[unroll]
        for k in 0..comptime![if arrays > 1 { 0 } else { in_flight }] {
            let nth = first + k * share.stride;
            // The turn before has loaded the value. The position costs no read and is computed
            // here.
            if comptime![ahead] {
                let value = values.index(k).read();
                let second = ComptimeOption::new_None();
                let position = position_across(geometry, nth);
                loads.push(Loaded { value, second, position, valid: true });
            } else {
                loads.push(load(share, nth, AtEnd::Never));
            }
        }
        let (pushed, _) = push_together::<N>(total, &loads, reducer, whole);
        total = pushed;
        // These loads stand at the end of the turn. The compiler would move them down to their use
        // if both were in one turn.
        if comptime![ahead] {
            if nth + 1 < whole_blocks {
                load_whole(&values, share, first + block);
            }
        }
        if comptime![pairwise] {
            blocks += 1;
            if blocks == blocks_per_chain {
                tree.take(total, chains, false, zero, reducer);
                total = reducer.identity::<N>();
                chains += 1;
                blocks = 0u32;
            }
        }
    }
    // The rest is at most a block.
    let first = share.first + whole_blocks * block;
    if first < geometry.loads_per_tile {
        let end = end_of(share, operator);
        let loads = issue(share, first, end, operator);
        let rest = comptime![BlockTraits { ascending, ..SOME_BLOCK }];
        let (pushed, _) = push_together::<N>(total, &loads, reducer, rest);
        total = pushed;
    }
    if comptime![takes_rests(access, operator)] {
        let (pushed, taken) = push_rests::<N>(total, share, tree, chains, zero, reducer);
        total = pushed;
        chains = taken;
    }
    if comptime![pairwise] {
        total = tree.take(total, chains, true, zero, reducer);
    }
    total
}

/// Whether the rests of rows are pushed after the loads, to the components that their positions
/// say. Operators that take blocks have one accumulator for all components, and take the rests as
/// [edges](accumulate_edges).
fn takes_rests(access: Access, operator: OperatorRef) -> bool {
    access.realigns_along() && operator.0.blocks.is_none()
}

/// Pushes a share of the rests of realigned rows, which go on with the loads and their chains:
/// `chains` chains have been taken, and one is under way. Returns also how many have been taken.
#[cube]
fn push_rests<N: Width>(
    accumulator: Accumulator<N>,
    share: &Share<'_>,
    tree: Tree<N>,
    chains: u32,
    zero: u32,
    reducer: &Reducer<'_>,
) -> (Accumulator<N>, u32) {
    let pairwise = is_pairwise(comptime![reducer.operator]);
    // A reduction by position has one row, and its rests are no longer than what remains of the
    // chain. So several rows may have longer chains here, but by no more than a chain.
    let loads = share.geometry.loads_per_tile;
    let turns = (clamp_min(loads, share.first) - share.first).div_ceil(share.stride);
    let end = loads_with_rests(share);
    let mut total = accumulator;
    let mut taken = chains;
    let mut links = 0u32;
    let mut nth = share.first + turns * share.stride;
    while nth < end {
        if comptime![pairwise] {
            if links == comptime![CHAIN as u32] {
                tree.take(total, taken, false, zero, reducer);
                total = reducer.identity::<N>();
                taken += 1;
                links = 0u32;
            }
            links += 1;
        }
        total = push_rest::<N>(total, share, nth, reducer);
        nth += share.stride;
    }
    (total, taken)
}

/// Pushes a rest to the components that have elements of it.
#[cube]
pub(super) fn push_rest<N: Width>(
    accumulator: Accumulator<N>,
    share: &Share<'_>,
    nth: usize,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let rest = load_rest(share, nth);
    let pushed = push_loaded::<N>(accumulator, rest.loaded, reducer);
    accumulator.with_first(rest.components, pushed)
}

/// Loads the values of the whole block `first`, `first + stride`, ... across outputs.
#[cube]
fn load_whole(
    values: &Sequence<RuntimeCell<Vector<Stored, Wide>>>,
    share: &Share<'_>,
    first: usize,
) {
    #[unroll]
    for k in 0..values.len().comptime() {
        let loaded = load(share, first + k * share.stride, AtEnd::Never);
        values.index(k).store(loaded.value);
    }
}

/// All loads in one loop. Compilers take long for large operators, whose functions are therefore
/// written into the kernel as few times as possible: the loop also takes the last loads of the
/// share, and the tree of pairwise summation. When each load had a copy of `push`, and each level
/// of the tree one of `merge`, the first `var` took ten times as long to compile.
///
/// This loop does not load the values of its next turn. Operators that may refuse a block ask a
/// question about all of its elements first, which keeps their loads together, and the next ones
/// take registers: with them, var of f32 65536 × 1024 along axis 0 took 91.5 us on one H200 instead
/// of 73.4, and var of bf16 8192 × 8192 along axis 1 38.1 instead of 36.9.
#[cube]
fn in_one_loop<N: Width>(
    accumulator: Accumulator<N>,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let access = comptime![share.access];
    let operator = comptime![reducer.operator];
    let geometry = share.geometry;
    let in_flight = comptime![access.loads_in_flight];
    let pairwise = is_pairwise(operator);
    let blocks_per_chain = comptime![CHAIN.div_ceil(in_flight) as u32].runtime();
    let zero = share.unknown_zero();
    let tree = Tree::<N>::new(operator);
    let mut chains: u32 = 0u32.runtime();
    let mut blocks: u32 = 0u32.runtime();
    let mut total = accumulator;
    let end = end_of(share, operator);
    let rests = comptime![takes_rests(access, operator)];
    let mut first = share.first;
    while first < geometry.loads_per_tile {
        let after = first + share.block_stride();
        let loads = issue(share, first, end, operator);
        let (pushed, as_block) = take_loads::<N>(total, &loads, share, first, reducer, false);
        total = pushed;
        if comptime![pairwise] {
            // Along, a chain ends with a refused block, which adds many elements one by one.
            // Across, it adds no more of them to an output than it would have as a block, and no
            // output's chains depend on its neighbours.
            let counts = comptime![access.direction == Direction::Across].runtime() || as_block;
            blocks = select(counts, blocks + 1, blocks_per_chain);
            // The last chain is taken here too, so that the loop has the only copy of the tree. Where
            // rests follow, it goes on with them unless it is full.
            let last = after >= geometry.loads_per_tile;
            if comptime![rests] {
                let in_block = comptime![in_flight - 1] * share.stride;
                let full = first + in_block < geometry.loads_per_tile;
                blocks = select(full, blocks, 0u32);
            }
            let last = if comptime![rests] { false.runtime() } else { last };
            if blocks >= blocks_per_chain || last {
                total = tree.take(total, chains, last, zero, reducer);
                if !last {
                    total = reducer.identity::<N>();
                }
                chains += 1;
                blocks = 0u32;
            }
        }
        first = after;
    }
    if comptime![rests] {
        let (pushed, taken) = push_rests::<N>(total, share, tree, chains, zero, reducer);
        total = pushed;
        chains = taken;
        if comptime![pairwise] {
            total = tree.take(total, chains, true, zero, reducer);
        }
    }
    total
}

/// Whether the operator's functions are long, which compilers take long for.
pub(super) fn is_large(operator: OperatorRef) -> bool {
    operator.0.may_refuse() || operator.0.merges_in_loops()
}

/// Whether any load of a tile may be one that does not exist: those of several peeled inner
/// dimensions, which may hold one vector less than others.
fn any_load_may_be_missing(access: Access, outer_dims: usize) -> bool {
    access.peeled && access.direction == Direction::Along && outer_dims > 0
}

/// Whether positions are known to rise from load to load: over several reduced dimensions, the
/// order in memory may be another one than that of positions.
fn is_ascending(access: Access, outer_dims: usize) -> bool {
    match access.direction {
        Direction::Along => outer_dims == 0,
        Direction::Across => outer_dims <= 1,
    }
}

/// The number of loads of a tile that are vectors of the input, where not every load may be
/// missing. Only the last one of a single peeled inner dimension may be. That of realigned rows
/// across outputs may reach beyond the input.
#[cube]
fn loads_surely_valid(geometry: &Geometry, #[comptime] access: Access) -> usize {
    if comptime![access.realigns_across() || access.peeled && access.direction == Direction::Along]
    {
        geometry.loads_per_tile - 1
    } else {
        geometry.loads_per_tile
    }
}

/// The last load of a tile with realigned rows across outputs, whose vector may reach beyond the
/// input. Operators that refuse blocks do without: refused blocks are loaded again, and there with
/// single elements.
#[cube]
fn end_of(share: &Share<'_>, #[comptime] operator: OperatorRef) -> Vector<Stored, Wide> {
    if comptime![share.access.realigns_across() && !operator.0.may_refuse()] {
        load(share, share.geometry.loads_per_tile - 1, AtEnd::Whole).value
    } else {
        Vector::empty()
    }
}

/// Issues the loads `first`, `first + stride`, ... of a block, of which the first exists. `end` is
/// that of [`end_of()`].
#[cube]
fn issue(
    share: &Share<'_>,
    first: usize,
    end: Vector<Stored, Wide>,
    #[comptime] operator: OperatorRef,
) -> Sequence<Loaded> {
    let access = comptime![share.access];
    let arrays = share.input.vectors.count();
    let mut loads = Sequence::<Loaded>::new();
    if comptime![arrays > 1] {
        load_block_of_list(&mut loads, share, first);
    }
    let evenly = lie_evenly(share);
    if comptime![arrays == 1 && evenly] {
        load_even_rows(&mut loads, share, first);
    }
    let last = share.geometry.loads_per_tile - 1;
    #[unroll]
    for k in 0..comptime![if arrays > 1 || evenly { 0 } else { access.loads_in_flight }] {
        let nth = first + k * share.stride;
        // Where rows are realigned, the last row may start at another distance from a vector's
        // boundary than the rows of this unit. Elsewhere any load of the tile will do, and the
        // smaller of two numbers takes fewer instructions than a choice.
        let loaded = if comptime![access.realigns_across()] {
            load_inside(share, nth, first, AtEnd::Clamped)
        } else {
            load_or_last(share, nth)
        };
        // Realigned rows across outputs hold elements of other outputs, or of no tensor, at both
        // ends. They are added to components without an output. An operator that may refuse a block
        // gets an element of the block instead, because NaN beside it would send the block the slow
        // way.
        let value = if comptime![!access.realigns_across()] {
            loaded.value
        } else if comptime![operator.0.may_refuse()] {
            inside_block(loaded.value, share.tile.block)
        } else {
            select(nth == last, end, loaded.value)
        };
        loads.push(Loaded {
            value,
            second: loaded.second,
            position: loaded.position,
            valid: loaded.valid,
        });
    }
    loads
}

/// Issues a load. A load past the end repeats load `other` of the same unit, and is not valid.
///
/// It is not skipped. WGSL demands the same control flow of all units before a barrier, and a load
/// that repeats another comes from the cache. An earlier version repeated the last load of the
/// tile. Where rows are realigned, the last row may start at another distance from a vector's
/// boundary than the rows of this unit.
#[cube]
pub(super) fn load_inside(
    share: &Share<'_>,
    nth: usize,
    other: usize,
    #[comptime] at_end: AtEnd,
) -> Loaded {
    let inside = nth < share.geometry.loads_per_tile;
    let loaded = load(share, select(inside, nth, other), at_end);
    Loaded {
        value: loaded.value,
        second: loaded.second,
        position: loaded.position,
        valid: loaded.valid && inside,
    }
}

/// Issues load `nth` of a tile that has loads. A load past the end repeats the last of the tile, and
/// is not valid.
#[cube]
fn load_or_last(share: &Share<'_>, nth: usize) -> Loaded {
    let last = share.geometry.loads_per_tile - 1;
    let loaded = load(share, clamp_max(nth, last), AtEnd::Never);
    Loaded {
        value: loaded.value,
        second: loaded.second,
        position: loaded.position,
        valid: loaded.valid && nth <= last,
    }
}

/// A block of which nothing is known.
const SOME_BLOCK: BlockTraits = BlockTraits { whole: false, ascending: false, starts: false };

/// Takes the loads `first`, `first + stride`, ..., which have been issued together. Returns also
/// whether they were taken as a block, rather than one by one. If it `starts`, the accumulator
/// holds no elements yet.
#[allow(unused_assignments, reason = "CubeCL declares mutable variables with a value")]
#[allow(
    clippy::collapsible_if,
    reason = "the outer condition is known when the kernel is generated, the inner when it runs"
)]
#[cube]
pub(super) fn take_loads<N: Width>(
    accumulator: Accumulator<N>,
    loads: &Sequence<Loaded>,
    share: &Share<'_>,
    first: usize,
    reducer: &Reducer<'_>,
    #[comptime] starts: bool,
) -> (Accumulator<N>, bool) {
    let access = comptime![share.access];
    let operator = comptime![reducer.operator];
    let geometry = share.geometry;
    let in_flight = comptime![access.loads_in_flight];
    let in_blocks = comptime![operator.0.blocks.is_some()];
    let may_refuse = comptime![operator.0.may_refuse()];
    let outer_dims = geometry.reduced.len().comptime();
    let ascending = comptime![is_ascending(access, outer_dims)];
    let some = comptime![BlockTraits { ascending, starts, ..SOME_BLOCK }];
    let whole = comptime![BlockTraits { whole: true, ..some }];
    let mut total = accumulator;
    let mut taken = Vector::<bool, N>::new(true);
    // Blocks whose loads all exist have a copy of the push of their own, without questions about
    // single loads. One copy for whole blocks and one for what it refuses were rejected: that is
    // less code, but both hold the accumulator and the loads: logsumexp of bf16 8192 × 32000 along
    // axis 1 needed 80 registers instead of 53, argmax of f32 65536 × 1024 along axis 0 75 instead
    // of 61 (ptxas 13.0).
    if comptime![in_flight == 1 && !access.peeled && !access.realigns_across()] {
        let (pushed, as_block) = push_together::<N>(total, loads, reducer, whole);
        total = pushed;
        taken = as_block;
    } else if comptime![
        // Without block functions, one copy of the pushes has to do for large operators. Functions
        // that may refuse are large too, and of a short output one copy takes no longer.
        in_flight == 1
            || !in_blocks
            || starts && may_refuse
            || any_load_may_be_missing(access, outer_dims)
    ] {
        let (pushed, as_block) = push_together::<N>(total, loads, reducer, some);
        total = pushed;
        taken = as_block;
    } else if first + comptime![in_flight - 1] * share.stride < loads_surely_valid(geometry, access)
    {
        let (pushed, as_block) = push_together::<N>(total, loads, reducer, whole);
        total = pushed;
        taken = as_block;
    } else {
        let (pushed, as_block) = push_together::<N>(total, loads, reducer, some);
        total = pushed;
        taken = as_block;
    }
    // The value of a load at the input's end is not the one that belongs there: `issue` has clamped
    // it. Such a block counts as refused, and its elements are read again one by one.
    if comptime![may_refuse && access.realigns_across()] {
        let last = first + comptime![in_flight - 1] * share.stride;
        let sure = last < loads_surely_valid(geometry, access);
        taken = taken.vec_and(Vector::new(sure || !ends_outside(share)));
    }
    let mut as_block = true.runtime();
    if comptime![may_refuse] {
        as_block = all::<N>(taken);
        if !as_block {
            total = push_one_by_one::<N>(accumulator, total, taken, share, first, reducer);
        }
    }
    (total, as_block)
}

/// Pushes loads as a block with these traits, or one after the other if the operator has no block
/// functions. Returns also the components that were taken.
#[cube]
pub(super) fn push_together<N: Width>(
    accumulator: Accumulator<N>,
    loads: &Sequence<Loaded>,
    reducer: &Reducer<'_>,
    #[comptime] traits: BlockTraits,
) -> (Accumulator<N>, Vector<bool, N>) {
    let operator = comptime![reducer.operator];
    if comptime![operator.0.blocks.is_some()] {
        let block = block_of(loads, traits);
        push_block::<N>(operator, accumulator, &block, reducer.parameters)
    } else {
        let whole = comptime![traits.whole];
        (push_loads::<N>(accumulator, loads, reducer, whole), Vector::new(true))
    }
}

/// The block of these loads.
#[cube]
fn block_of(loads: &Sequence<Loaded>, #[comptime] traits: BlockTraits) -> Block<Wide> {
    let mut block = Block::<Wide>::new(traits);
    #[unroll]
    for k in 0..loads.len().comptime() {
        let loaded = *loads.index(k);
        let value = normal::<In, Wide>(as_pushed(loaded.value));
        block.add(value, loaded.position, loaded.valid);
    }
    block
}

/// Pushes the loads of an operator without block functions. `N` is [`Wide`].
#[allow(
    clippy::if_same_then_else,
    reason = "one condition is known when the kernel is generated, the other when it runs"
)]
#[cube]
fn push_loads<N: Width>(
    accumulator: Accumulator<N>,
    loads: &Sequence<Loaded>,
    reducer: &Reducer<'_>,
    #[comptime] whole: bool,
) -> Accumulator<N> {
    let mut total = accumulator;
    #[unroll]
    for k in 0..loads.len().comptime() {
        let loaded = *loads.index(k);
        if comptime![whole] {
            total = push_loaded::<N>(total, loaded, reducer);
        } else if loaded.valid {
            total = push_loaded::<N>(total, loaded, reducer);
        }
    }
    total
}

/// The elements of one input, or of two, in the form in which operators take them.
#[cube]
fn inputs_of<W: Size, N: Size>(
    value: Vector<Stored, W>,
    second: ComptimeOption<Vector<Stored2, W>>,
    #[comptime] operator: OperatorRef,
) -> Inputs<N> {
    let value = normal::<In, N>(Vector::cast_from(as_pushed(value)));
    if comptime![operator.0.inputs == 2] {
        let second = as_pushed(second.unwrap());
        two_inputs::<N>(value, normal::<In, N>(Vector::cast_from(second)))
    } else {
        one_input::<N>(value)
    }
}

/// Pushes the elements of a load.
#[cube]
pub(super) fn push_loaded<N: Width>(
    accumulator: Accumulator<N>,
    loaded: Loaded,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let operator = comptime![reducer.operator];
    let inputs = inputs_of::<Wide, N>(loaded.value, loaded.second, operator);
    push::<N>(operator, accumulator, inputs, loaded.position, reducer.parameters)
}

/// Pushes one element of a load along the reduction. `N` is [`Single`].
#[cube]
pub(super) fn push_component<N: Width>(
    accumulator: Accumulator<N>,
    loaded: &Loaded,
    #[comptime] nth: usize,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let operator = comptime![reducer.operator];
    let value = Vector::<Stored, Single>::new(loaded.value.extract(nth));
    let second = component_of_second(loaded.second, nth);
    let inputs = inputs_of::<Single, N>(value, second, operator);
    let start = loaded.position.start + nth * loaded.position.step;
    let position = Position { start, step: 0usize };
    push::<N>(operator, accumulator, inputs, position, reducer.parameters)
}

#[cube]
fn component_of_second(
    second: ComptimeOption<Vector<Stored2, Wide>>,
    #[comptime] nth: usize,
) -> ComptimeOption<Vector<Stored2, Single>> {
    #[comptime]
    match &second {
        ComptimeOption::Some(second) => ComptimeOption::new_Some(Vector::new(second.extract(nth))),
        ComptimeOption::None => ComptimeOption::new_None(),
    }
}

/// Pushes the elements of a load one by one: those of one output along the reduction, and one of
/// each output across.
#[cube]
pub(super) fn push_single<N: Width>(
    accumulator: Accumulator<N>,
    loaded: Loaded,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let operator = comptime![reducer.operator];
    if comptime![share.access.direction == Direction::Across] {
        push_loaded::<Wide>(accumulator.resized::<Wide>(), loaded, reducer).resized::<N>()
    } else {
        let mut total = accumulator;
        for nth in 0..comptime![share.access.vector as u32] + share.unknown_zero() {
            let value = component_at::<Stored, Wide>(loaded.value, nth);
            let inputs = one_input::<N>(normal::<In, N>(Vector::cast_from(value)));
            let start = loaded.position.start + nth as usize * loaded.position.step;
            let position = Position { start, step: 0usize };
            total = push::<N>(operator, total, inputs, position, reducer.parameters);
        }
        total
    }
}

/// Takes loads that all exist, in the order of their positions. Returns also the components that
/// were taken: an operator with block functions may refuse them.
#[cube]
pub(super) fn push_whole<N: Width>(
    accumulator: Accumulator<N>,
    loads: &Sequence<Loaded>,
    reducer: &Reducer<'_>,
    #[comptime] ascending: bool,
) -> (Accumulator<N>, Vector<bool, N>) {
    let traits = comptime![BlockTraits { whole: true, ascending, starts: false }];
    push_together::<N>(accumulator, loads, reducer, traits)
}

/// Pushes a single element.
#[cube]
pub(super) fn push_edge(
    accumulator: Accumulator<Single>,
    edge: &Edge,
    reducer: &Reducer<'_>,
) -> Accumulator<Single> {
    let operator = comptime![reducer.operator];
    let inputs = inputs_of::<Single, Single>(edge.value, edge.second, operator);
    push::<Single>(operator, accumulator, inputs, edge.position, reducer.parameters)
}

/// Adds the elements of a block one by one to the components that were not `taken`; the others are
/// those of `block`. Loads are issued again, most likely from the cache. One component is pushed at
/// a time, which takes the least code and registers.
///
/// Components across belong to different outputs. Those that were taken keep what they have: the
/// bits of an output do not depend on whether a neighbour was refused.
#[cube]
fn push_one_by_one<N: Width>(
    accumulator: Accumulator<N>,
    block: Accumulator<N>,
    taken: Vector<bool, N>,
    share: &Share<'_>,
    first: usize,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let access = comptime![share.access];
    let operator = comptime![reducer.operator];
    let width = Wide::value().comptime();
    let components = N::value().comptime();
    // Elements of each load that belong to the same component of the accumulator.
    let each = comptime![(width / components) as u32];
    let zero = share.unknown_zero();
    // Both loops have bounds that compilers do not know. They would unroll them, and write the push
    // once for each element of the block.
    let turns = comptime![access.loads_in_flight as u32 * each] + zero;
    let mut total = block;
    for component in 0..comptime![components as u32] + zero {
        let mut part = accumulator.component_at(component);
        let refused = !component_at::<bool, N>(taken, component);
        let turns = select(refused, turns, 0u32);
        for turn in 0..turns {
            let nth = first + usize::cast_from(turn / each) * share.stride;
            let loaded = load_inside(share, nth, first, AtEnd::Whole);
            if loaded.valid {
                let element = component + turn % each;
                let vector = if comptime![access.realigns_across()] {
                    inside_block(loaded.value, share.tile.block)
                } else {
                    loaded.value
                };
                let value = component_at::<Stored, Wide>(vector, element);
                let inputs = one_input::<Single>(normal::<In, Single>(Vector::cast_from(value)));
                let start =
                    loaded.position.start + usize::cast_from(element) * loaded.position.step;
                let position = Position { start, step: 0usize };
                part = push::<Single>(operator, part, inputs, position, reducer.parameters);
            }
        }
        if refused {
            total = total.with_component(component, part);
        }
    }
    total
}

/// The accumulator of a share of the elements at the edges of inner dimensions.
#[cube]
pub(super) fn accumulate_edges(share: &Share<'_>, reducer: &Reducer<'_>) -> Accumulator<Single> {
    let access = comptime![share.access];
    let operator = comptime![reducer.operator];
    let geometry = share.geometry;
    let slots = geometry.inner_count * comptime![edge_slots(access.vector)];
    // The edges of one inner dimension are too few for a chain.
    let outer_dims = geometry.reduced.len().comptime();
    let pairwise = is_pairwise(operator);
    let chained = comptime![pairwise && outer_dims > 0];
    // The edges of an inner dimension have fewer elements than two vectors, so they are pushed one
    // by one, and never as a block.
    let mut total = reducer.identity::<Single>();
    let zero = share.unknown_zero();
    let tree = Tree::<Single>::new(operator);
    let mut chains: u32 = 0u32.runtime();
    let mut link = 0usize;
    let mut slot = share.first;
    while slot < slots {
        let edge = load_edge(share, slot);
        if edge.valid {
            total = push_edge(total, &edge, reducer);
        }
        slot += share.stride;
        if comptime![chained] {
            link += 1;
            let last = slot >= slots;
            if link == CHAIN || last {
                total = tree.take(total, chains, last, zero, reducer);
                if !last {
                    total = reducer.identity::<Single>();
                }
                chains += 1;
                link = 0;
            }
        }
    }
    total
}

/// The accumulator of the loads that a member has of a tile, all of which are in flight.
#[cube]
pub(super) fn taken<N: Width>(
    loads: &Sequence<Loaded>,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    // A unit without loads of its own has issued those of another, and must not push them.
    let mut total = reducer.identity::<N>();
    if share.first < share.geometry.loads_per_tile {
        let (pushed, _) = take_loads::<N>(total, loads, share, share.first, reducer, true);
        total = pushed;
    }
    total
}
