//! The results of a chunk: its elements accumulated once more, each from what lies before it.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    Chunk, Part, ScanSpec, component_at_number, component_of, exchange::Learned,
    has_blocks_and_runs, push_at,
};
use crate::{
    kernels::{
        accumulate::{push_component, push_loaded},
        args::Output,
        geometry::{Companion, strided},
        load::Loaded,
        reducer::Reducer,
    },
    operator::{
        Accumulator, In, OperatorRef, ROWS_OF_STRIP, Results, RunWidth, RunsRef, Single, Strip,
        Wide, Width, block::all, run,
    },
};

/// Stores the results of a chunk.
///
/// Elements are pushed a second time: an accumulator for each element, to be merged with what lies
/// before, would take the registers of several fields and a merge, which costs more than a push.
/// Some operators have the results of neighbouring elements together ([`run()`]).
#[cube]
pub(super) fn store_results<N: Width>(
    results: &mut Output,
    output: &Companion,
    chunk: &Chunk<N>,
    learned: &Learned<N>,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) {
    let loads = &chunk.loads;
    match comptime![part.spec.access.direction] {
        Direction::Along if part.spec.transposes => {
            let before = reducer.merge::<N>(chunk.before, *learned.before.index(0usize));
            let mut running = before.resized::<Single>();
            let count = comptime![part.spec.access.loads_in_flight as u32];
            for k in 0..count + part.share.unknown_zero() {
                let k = k as usize;
                let number = part.number_of_neighbour(chunk.number, k);
                if comptime![reducer.operator.0.runs.is_some()] {
                    running = put_run::<N>(running, chunk, k, number, part, reducer);
                } else {
                    let loaded = part.loaded(number, chunk.transposition.value(k));
                    let (all, after) = results_along(running, &loaded, number, part, reducer);
                    chunk.transposition.put(k, all);
                    running = after;
                }
            }
            sync_plane();
            #[unroll]
            for k in 0..loads.len().comptime() {
                let number = part.number(chunk.number, k);
                let all = chunk.transposition.results(k);
                store(results, output, all, number, loads.index(k).valid, part);
            }
        }
        Direction::Along =>
        {
            #[unroll]
            for k in 0..loads.len().comptime() {
                let number = part.number(chunk.number, k);
                let before = reducer.merge::<N>(chunk.before, *learned.before.index(k));
                let (all, _) = results_along(
                    before.resized::<Single>(),
                    loads.index(k),
                    number,
                    part,
                    reducer,
                );
                let valid = loads.index(k).valid;
                store(results, output, all, number, valid, part);
            }
        }
        Direction::Across => {
            let before = reducer.merge::<N>(chunk.before, *learned.before.index(0usize));
            if comptime![has_strips(part.spec, reducer.operator)] {
                store_strips::<N>(results, output, chunk, before, part, reducer);
            } else {
                let mut running = before;
                #[unroll]
                for k in 0..loads.len().comptime() {
                    let number = part.number(chunk.number, k);
                    let loaded = *loads.index(k);
                    let (pushed, all) = push_row::<N>(running, &loaded, number, part, reducer);
                    store(results, output, all, number, loaded.valid, part);
                    running = pushed;
                }
            }
        }
    }
}

/// What lies behind the load across outputs with this number, before which lies `before`, and the
/// results at it.
#[cube]
fn push_row<N: Width>(
    before: Accumulator<N>,
    loaded: &Loaded,
    number: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> (Accumulator<N>, Results<Wide>) {
    let count = part.before + number;
    let pushed = push_loaded::<N>(before, *loaded, reducer);
    let all = if comptime![part.spec.exclusive] {
        reducer.finish::<N>(before, count)
    } else {
        reducer.finish::<N>(pushed, count + 1)
    };
    (pushed, all.resized::<Wide>())
}

/// Whether a unit has the results of neighbouring elements of its columns together.
fn has_strips(spec: ScanSpec, operator: OperatorRef) -> bool {
    has_blocks_and_runs(operator) && spec.access.loads_in_flight.is_multiple_of(ROWS_OF_STRIP)
}

/// Stores the results of a chunk across outputs in strips of neighbouring loads, each column of
/// which has one run. `N` is [`Wide`].
///
/// Columns belong to different rows. The bits of a row do not depend on whether the run of a
/// neighbour is right.
#[cube]
fn store_strips<N: Width>(
    results: &mut Output,
    output: &Companion,
    chunk: &Chunk<N>,
    before: Accumulator<N>,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) {
    let columns = comptime![part.spec.access.vector];
    let rows = comptime![ROWS_OF_STRIP];
    let mut running = before;
    #[unroll]
    for strip in 0..comptime![part.spec.access.loads_in_flight / rows] {
        let above = comptime![strip * rows];
        let first = part.number(chunk.number, above);
        let count = part.before + first;
        let is_whole = first + comptime![rows - 1] < part.edges.loads;
        let mut of_columns = Sequence::<Results<Strip>>::new();
        let mut after = running;
        let mut right = Vector::<bool, N>::new(is_whole);
        #[unroll]
        for column in 0..columns {
            let mut values = Vector::<In, Strip>::empty();
            #[unroll]
            for row in 0..rows {
                let loaded = *chunk.loads.index(comptime![above + row]);
                values.insert(row, In::cast_from(loaded.value.extract(column)));
            }
            let own = running.component(column);
            let (of_run, behind, fits) = run_from::<Strip>(own, values, count, part, reducer);
            of_columns.push(of_run);
            after = after.with_component(comptime![column as u32].runtime(), behind);
            right.insert(column, is_whole && fits);
        }
        if all::<N>(right) {
            #[unroll]
            for row in 0..rows {
                let mut of_row = Results::<Wide>::empty(comptime![reducer.operator.0.results]);
                #[unroll]
                for column in 0..columns {
                    let result = of_columns.index(column).component(row);
                    of_row = of_row.with_component(comptime![column as u32].runtime(), result);
                }
                store(results, output, of_row, first + row, true.runtime(), part);
            }
            running = after;
        } else {
            let end = clamp_max(first + rows, part.edges.loads);
            for number in first..end {
                let loaded = part.loaded_again(number);
                let (pushed, result) = push_row::<N>(running, &loaded, number, part, reducer);
                let mut of_row = result;
                #[unroll]
                for column in 0..columns {
                    if right.extract(column) {
                        let row = u32::cast_from(number - first);
                        let result = of_columns.index(column).component_at(row);
                        of_row = of_row.with_component(comptime![column as u32].runtime(), result);
                    }
                }
                store(results, output, of_row, number, true.runtime(), part);
                running = pushed;
            }
            running = running.or_components_of(right, after);
        }
    }
}

/// Puts the results of the load that comes as number `k` of those that neighbouring units have
/// exchanged, and returns what lies before the next load.
///
/// [`results_along`] would keep each element and each result in a register of its own, for
/// the branch that takes them one by one. Each branch reads the elements for itself and puts its
/// results, so that those of narrow types stay together.
#[cube]
fn put_run<N: Width>(
    before: Accumulator<Single>,
    chunk: &Chunk<N>,
    k: usize,
    number: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<Single> {
    let transposition = chunk.transposition;
    let mut after = before;
    let mut one_by_one = true;
    if part.edges.is_whole(number, comptime![part.spec]) {
        let loaded = part.loaded(number, transposition.value(k));
        let (of_run, behind, fits) = results_of_run(before, &loaded, number, part, reducer);
        if fits {
            transposition.put(k, of_run);
            after = behind;
            one_by_one = false;
        }
    }
    if one_by_one {
        // Compilers do not see that this is the place of above, whose elements they would keep.
        let again = transposition.value(k + part.share.unknown_zero() as usize);
        let loaded = part.loaded(number, again);
        let (of_components, behind) = results_in_loop(before, &loaded, number, part, reducer);
        transposition.put(k, of_components);
        after = behind;
    }
    after
}

/// The results of the elements of the load along the row with this number, before which lies
/// `before`, and what lies before the next load.
#[cube]
fn results_along(
    before: Accumulator<Single>,
    loaded: &Loaded,
    number: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> (Results<Wide>, Accumulator<Single>) {
    if comptime![reducer.operator.0.runs.is_some()] {
        let mut all = Results::<Wide>::empty(comptime![reducer.operator.0.results]);
        let mut after = before;
        let mut one_by_one = true;
        if part.edges.is_whole(number, comptime![part.spec]) {
            let (of_run, behind, fits) = results_of_run(before, loaded, number, part, reducer);
            if fits {
                all = of_run;
                after = behind;
                one_by_one = false;
            }
        }
        if one_by_one {
            let (of_components, behind) = results_in_loop(before, loaded, number, part, reducer);
            all = of_components;
            after = behind;
        }
        (all, after)
    } else if comptime![is_long(reducer.operator)] {
        results_in_loop(before, loaded, number, part, reducer)
    } else if comptime![part.spec.access.peeled] {
        let mut all = Results::<Wide>::empty(comptime![reducer.operator.0.results]);
        let mut after = before;
        let is_whole = part.edges.is_whole(number, comptime![part.spec]);
        if is_whole {
            let (of_vector, behind) = results_of_vector(before, loaded, number, part, reducer);
            all = of_vector;
            after = behind;
        }
        if !is_whole {
            let (of_components, behind) = results_in_loop(before, loaded, number, part, reducer);
            all = of_components;
            after = behind;
        }
        (all, after)
    } else {
        results_of_vector(before, loaded, number, part, reducer)
    }
}

/// The results of all components of a load.
#[cube]
fn results_of_vector(
    before: Accumulator<Single>,
    loaded: &Loaded,
    number: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> (Results<Wide>, Accumulator<Single>) {
    let first = part.count_before(number);
    let mut running = before;
    let mut all = Results::<Wide>::empty(comptime![reducer.operator.0.results]);
    #[unroll]
    for nth in 0..comptime![part.spec.access.vector] {
        let component = comptime![component_of(nth, part.spec)];
        let pushed = push_component::<Single>(running, loaded, component, reducer);
        let result = if comptime![part.spec.exclusive] {
            reducer.finish::<Single>(running, first + nth)
        } else {
            reducer.finish::<Single>(pushed, first + nth + 1)
        };
        all = all.with_component(comptime![component as u32].runtime(), result);
        running = pushed;
    }
    (all, running)
}

/// The results of all components of a load together, what lies before the next load, and whether
/// both are right.
#[cube]
fn results_of_run(
    before: Accumulator<Single>,
    loaded: &Loaded,
    number: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> (Results<Wide>, Accumulator<Single>, bool) {
    let vector = comptime![part.spec.access.vector];
    let first = part.count_before(number);
    let mut values = Vector::<In, Wide>::empty();
    #[unroll]
    for nth in 0..vector {
        let component = comptime![component_of(nth, part.spec)];
        values.insert(nth, In::cast_from(loaded.value.extract(component)));
    }
    let (of_run, after, fits) = run_from::<Wide>(before, values, first, part, reducer);
    let mut all = Results::<Wide>::empty(comptime![reducer.operator.0.results]);
    #[unroll]
    for nth in 0..vector {
        let component = comptime![component_of(nth, part.spec) as u32].runtime();
        all = all.with_component(component, of_run.component(nth));
    }
    (all, after, fits)
}

/// The results at values that follow each other behind the `first` elements of `before`, the
/// accumulator behind them, and whether both are right.
#[cube]
fn run_from<W: RunWidth>(
    before: Accumulator<Single>,
    values: Vector<In, W>,
    first: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> (Results<W>, Accumulator<Single>, bool) {
    let runs = comptime![RunsRef(reducer.operator)];
    let (of_run, after, fits) = run::<W>(runs, before, values, first, reducer.parameters);
    if comptime![part.spec.exclusive] {
        let mut all = Results::<W>::empty(comptime![reducer.operator.0.results]);
        all = all.with_component(0u32.runtime(), reducer.finish::<Single>(before, first));
        #[unroll]
        for nth in 1..W::value().comptime() {
            let index = comptime![nth as u32].runtime();
            all = all.with_component(index, of_run.component(comptime![nth - 1]));
        }
        (all, after, fits)
    } else {
        (of_run, after, fits)
    }
}

/// The results of those components of a load that the row has.
#[cube]
fn results_in_loop(
    before: Accumulator<Single>,
    loaded: &Loaded,
    number: usize,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) -> (Results<Wide>, Accumulator<Single>) {
    let own = part.edges.components(number, comptime![part.spec]);
    let first = part.count_before(number);
    let mut running = before;
    let mut all = Results::<Wide>::empty(comptime![reducer.operator.0.results]);
    for nth in own.first..own.end + part.share.unknown_zero() {
        let pushed = push_at::<Single>(running, loaded, nth, part, reducer);
        let count = first + nth as usize;
        let result = if comptime![part.spec.exclusive] {
            reducer.finish::<Single>(running, count)
        } else {
            reducer.finish::<Single>(pushed, count + 1)
        };
        all = all.with_component(component_at_number(nth, part), result);
        running = pushed;
    }
    (all, running)
}

/// Stores the results of the load with this number, if it is valid.
#[cube]
fn store(
    results: &mut Output,
    output: &Companion,
    all: Results<Wide>,
    number: usize,
    valid: bool,
    part: &Part<'_>,
) {
    let (geometry, tile) = (part.share.geometry, part.share.tile);
    let vector = comptime![part.spec.access.vector];
    let outer_dims = geometry.reduced.len().comptime();
    let inner = match comptime![part.spec.access.direction] {
        Direction::Along => output.inner,
        Direction::Across => geometry.inner_target_stride,
    };
    let place = part.place(number);
    let mut offset = tile.output;
    match comptime![part.spec.access.direction] {
        Direction::Along => {
            if comptime![part.spec.access.peeled] {
                // A vector that begins before the row has no results there.
                offset += (place * vector - tile.input % vector) * inner;
            } else if comptime![outer_dims > 0] {
                let (outer, slot) = geometry.loads_per_inner.div_mod(place);
                offset += strided(&geometry.reduced, &output.reduced, outer);
                offset += slot * vector * inner;
            } else {
                offset += place * vector * inner;
            }
        }
        Direction::Across => offset += strided(&geometry.reduced, &output.reduced, place),
    }
    let exists = tile.results > 0;
    if valid && exists {
        if comptime![part.spec.access.peeled] {
            if part.edges.is_whole(number, comptime![part.spec]) {
                store_vector(results, all, offset, inner, part);
            } else {
                let own = part.edges.components(number, comptime![part.spec]);
                for nth in own.first..own.end {
                    let component = component_at_number(nth, part);
                    let place = offset + component as usize * inner;
                    results.elements.put(place, all.component_at(component));
                }
            }
        } else {
            store_vector(results, all, offset, inner, part);
        }
    }
}

/// Stores the results of all components of a load, `inner` elements apart.
#[cube]
fn store_vector(
    results: &mut Output,
    all: Results<Wide>,
    offset: usize,
    inner: usize,
    part: &Part<'_>,
) {
    let vector = comptime![part.spec.access.vector];
    if results.vectors.is_some() {
        results.vectors.put(offset / vector, all);
    } else {
        #[unroll]
        for nth in 0..vector {
            results.elements.put(offset + nth * inner, all.component(nth));
        }
    }
}

/// Whether compilers take long for a copy of a push for each component.
fn is_long(operator: OperatorRef) -> bool {
    operator.0.fields > 3
}
