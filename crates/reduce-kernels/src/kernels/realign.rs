//! Rows that start off a vector's boundary, read in aligned vectors.
//!
//! # Along the reduction
//!
//! The elements of a load lie in two neighbouring vectors, which both are read. The second one is
//! the first of the next load, so it comes from a cache. Both are
//! [moved together](moved_together) in registers by what the row starts behind a boundary. So the
//! component and the load of an element follow from its position, whatever its row begins at.
//!
//! A row has as many loads as have both vectors inside it, wherever it begins. The rest, of fewer
//! than two vectors, is read in single elements ([`Rest`](super::load::Rest)).
//!
//! # Across outputs
//!
//! Units read aligned vectors all the same. The vectors of a row begin `before` elements ahead of
//! the first output of a cube's block, where `before` is less than a vector. A plan deals rows to
//! units so that all rows of a unit have the same `before`: two rows of odd length do if they are a
//! vector's length of rows apart. A unit then adds its rows component by component, as if they were
//! aligned. Its components belong to outputs by the same distance in each row, and are moved there
//! when the cube combines.

use cubecl::prelude::*;

use super::{
    geometry::{RowBlock, Tile, offsets},
    reducer::Reducer,
    share::Share,
};
use crate::operator::{Accumulator, AccumulatorTypes, Columns, Single, Stored, Wide};

/// The elements of two neighbouring vectors from number `by` on, which is less than a vector.
#[cube]
pub(super) fn moved_together<T: Scalar>(
    first: Vector<T, Wide>,
    second: Vector<T, Wide>,
    by: u32,
) -> Vector<T, Wide> {
    let width = Wide::value().comptime();
    let mut elements = Sequence::<T>::new();
    #[unroll]
    for nth in 0..width {
        elements.push(first.extract(nth));
    }
    #[unroll]
    for nth in 0..width {
        elements.push(second.extract(nth));
    }
    moved::<T>(&elements, by, comptime![width / 2])
}

/// Moves elements down by the bits of `by` from that of `step` on. A component with a number that is
/// known when the kernel runs would be read from local memory, so each bit selects among two that
/// are known before.
#[cube]
fn moved<T: Scalar>(elements: &Sequence<T>, by: u32, #[comptime] step: usize) -> Vector<T, Wide> {
    let width = Wide::value().comptime();
    if comptime![step == 0] {
        let mut value = Vector::<T, Wide>::empty();
        #[unroll]
        for nth in 0..width {
            value.insert(nth, *elements.index(nth));
        }
        value
    } else {
        let moves = by & comptime![step as u32] != 0;
        let mut nearer = Sequence::<T>::new();
        // The smaller steps reach as far beyond a vector as this one less 1.
        #[unroll]
        for nth in 0..comptime![width + step - 1] {
            let further = *elements.index(comptime![nth + step]);
            nearer.push(select(moves, further, *elements.index(nth)));
        }
        moved::<T>(&nearer, by, comptime![step / 2])
    }
}

/// The vectors that a unit reads, one of each of its rows.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Window {
    /// The tile, with the offset in the input of an element of the vector in the first row.
    pub(super) tile: Tile,
    /// Elements from the start of the block's first vector to the block's first output.
    pub(super) before: usize,
}

/// The window of a share of a tile. Units past the end of the block repeat its last vector.
#[cube]
pub(super) fn window(share: &Share<'_>) -> Window {
    let tile = share.tile;
    let vector = comptime![share.access.vector];
    let block = tile.block;
    // The distance of the unit's first row is that of all of its rows; the plan sees to that.
    let start = tile.input - block.before;
    let before = (start + offsets(&share.geometry.reduced, share.first).input) % vector;
    // The last vector that has an element of the block. Only in the last row of a reduction may it
    // reach beyond the input; see `AtEnd`.
    let last = (before + block.outputs - 1) / vector * vector;
    let at = clamp_max(block.before, last);
    // Not `clamp_max`: CUDA has no minimum of a position of 64 bits and a constant of 32.
    let rest = before + block.outputs - at;
    let until = select(rest < vector, rest, vector.runtime());
    Window {
        tile: Tile {
            input: start + at,
            output: tile.output,
            index: tile.index,
            results: tile.results,
            block: RowBlock {
                first: block.first,
                before: block.before,
                outputs: block.outputs,
                from: clamp_min(before, at) - at,
                until,
            },
            second: tile.second,
        },
        before,
    }
}

/// The vector with one of its components that belong to the block in place of those that do not.
///
/// What lies beside the block may be anything, also NaN in memory that belongs to no tensor. An
/// operator that asks questions about all components at once would take another path for it, on
/// which results are rounded otherwise.
#[cube]
pub(super) fn inside_block(value: Vector<Stored, Wide>, block: RowBlock) -> Vector<Stored, Wide> {
    let width = Wide::value().comptime();
    let mut own = value.extract(0usize);
    #[unroll]
    for nth in 1..width {
        own = select(block.from == nth, value.extract(nth), own);
    }
    let mut result = value;
    #[unroll]
    for nth in 0..width {
        let inside = nth >= block.from && nth < block.until;
        result.insert(nth, select(inside, value.extract(nth), own));
    }
    result
}

/// Merges the accumulators of a cube's units by output: member 0 of each team ends up with the
/// totals of its tile. It contains barriers, so every unit of the cube must call it.
#[cube]
pub(super) fn combine_windows(
    accumulator: Accumulator<Wide>,
    before: usize,
    block: RowBlock,
    zero: u32,
    reducer: &Reducer<'_>,
) -> Accumulator<Wide> {
    let team = comptime![reducer.team];
    let operator = comptime![reducer.operator];
    let vector = Wide::value().comptime();
    // Components move to the places of their outputs once, when the cube combines. Accumulators of
    // several fields take as long to move as wide vectors save, unless elements have two bytes or
    // one. Plans for argmax and var of f32 therefore read such rows element by element (`Accesses`
    // in the planner).
    //
    // Each member has a row of places, one for each output of the block and a few without one.
    let row = comptime![(team.tiles_per_cube() * vector) as u32];
    let places = comptime![row as usize * team.units_per_tile as usize];
    let mut shared =
        Columns::<AccumulatorTypes, Single>::shared(places, comptime![operator.0.fields]);
    let member = UNIT_POS / comptime![team.unit_stride];
    let first = UNIT_POS % comptime![team.unit_stride] * comptime![vector as u32];
    let before = u32::cast_from(before);
    let outputs = u32::cast_from(block.outputs);
    #[unroll]
    for nth in 0..vector {
        let element = first + comptime![nth as u32];
        if element >= before && element - before < outputs {
            shared.put((member * row + element - before) as usize, accumulator.component(nth));
        }
    }
    sync_cube();
    // Neighbours merge first, as in `combine_cube`. All units of the cube share the merges of a
    // level, not only those of the members that merge.
    let mut distance = 1u32 + zero;
    while distance < comptime![team.units_per_tile] {
        let merges = comptime![team.units_per_tile] / (2 * distance) * row;
        let mut nth = UNIT_POS;
        while nth < merges {
            let place = nth / row * (2 * distance * row) + nth % row;
            if nth % row < outputs {
                let left = shared.at(place as usize);
                let right = shared.at((place + distance * row) as usize);
                shared.put(place as usize, reducer.merge::<Single>(left, right));
            }
            nth += comptime![team.units_per_cube];
        }
        sync_cube();
        distance *= 2;
    }
    // Only member 0 has the place of its tile in the row of totals.
    let mut total = accumulator;
    #[unroll]
    for nth in 0..vector {
        let component = comptime![nth as u32].runtime();
        // Places past the last output hold nothing.
        let place = clamp_max(first + comptime![nth as u32], outputs - 1);
        total = total.with_component(component, shared.at(place as usize));
    }
    total
}
