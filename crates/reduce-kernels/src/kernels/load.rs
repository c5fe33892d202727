//! Loads: from the number of a load to a vector of elements.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    companion::load_elements,
    geometry::{CompanionAccess, Geometry, offsets, strided, strided_vectors},
    realign::moved_together,
    share::Share,
};
use crate::operator::{Position, Single, Stored, Stored2, Wide, copied::copied_through_references};

/// One load.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Loaded {
    pub(super) value: Vector<Stored, Wide>,
    /// The elements of the second input that go with them, if there is one.
    pub(super) second: ComptimeOption<Vector<Stored2, Wide>>,
    pub(super) position: Position,
    /// Whether the load exists: a peeled inner dimension may hold one vector less than others.
    pub(super) valid: bool,
}

copied_through_references!(LoadedExpand);

/// What a load of realigned rows across outputs does if its vector reaches beyond the input. Only
/// the last load of a tile may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AtEnd {
    /// It is known to be another load.
    Never,
    /// It reads the last vector of the input instead.
    Clamped,
    /// It reads single elements.
    Whole,
}

/// Issues load number `nth` of a tile.
#[cube]
pub(super) fn load(share: &Share<'_>, nth: usize, #[comptime] at_end: AtEnd) -> Loaded {
    let nth = share.input.element(nth);
    match comptime![share.access.direction] {
        Direction::Along => load_along(share, nth),
        Direction::Across => load_across(share, nth, at_end),
    }
}

/// Where a load along the reduction lies.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct VectorPlace {
    /// Index of the vector in the input.
    index: usize,
    /// Elements of that vector before the first of the load, if rows are realigned.
    before: u32,
    position: Position,
    valid: bool,
    /// Index over the outer reduced dimensions, and the first element of the inner one.
    outer: usize,
    element: usize,
}

copied_through_references!(VectorPlaceExpand);

/// The place of load number `nth` of a tile.
#[cube]
fn vector_place(share: &Share<'_>, nth: usize) -> VectorPlace {
    let geometry = share.geometry;
    let vector = comptime![share.access.vector];
    let mut start = share.tile.input;
    let mut position = 0usize;
    let mut slot = nth;
    let mut outer_index = 0usize;
    let outer_dims = geometry.reduced.len().comptime();
    // A problem is canonical: dimensions that leave no gap are one. A reduction without gaps has no
    // outer dimensions, and its kernel no division here.
    if comptime![outer_dims > 0] {
        let (outer, load) = geometry.loads_per_inner.div_mod(nth);
        let at = offsets(&geometry.reduced, outer);
        start += at.input;
        position = at.target;
        slot = load;
        outer_index = outer;
    }
    if comptime![share.access.peeled] {
        let first = start.div_ceil(vector);
        let end = (first + slot + 1) * vector;
        let valid = end <= start + geometry.inner_len;
        // Every inner dimension holds its first whole vector. A load that does not exist repeats
        // it, from the cache.
        let index = select(valid, first + slot, first);
        let skipped = index * vector - start;
        VectorPlace {
            index,
            before: 0u32,
            position: Position {
                start: geometry.position(position + skipped * geometry.inner_target_stride),
                step: geometry.inner_target_stride,
            },
            valid,
            outer: outer_index,
            element: skipped,
        }
    } else {
        let element = slot * vector;
        let index = if comptime![vector > 1] {
            start / vector + slot
        } else {
            start + slot * geometry.inner_stride
        };
        let before = if comptime![share.access.realigned] {
            u32::cast_from(start % vector)
        } else {
            0u32.runtime()
        };
        VectorPlace {
            index,
            before,
            position: Position {
                start: geometry.position(position + element * geometry.inner_target_stride),
                step: geometry.inner_target_stride,
            },
            valid: true.runtime(),
            outer: outer_index,
            element,
        }
    }
}

/// A vector along the inner dimension: neighbouring elements of one output.
#[cube]
fn load_along(share: &Share<'_>, nth: usize) -> Loaded {
    let place = vector_place(share, nth);
    let mut value = share.input.vector(place.index);
    if comptime![share.access.realigned] {
        // The vector after the last of an aligned row may lie beyond the input.
        let next = select(place.before == 0, place.index, place.index + 1);
        value = moved_together::<Stored>(value, share.input.vector(next), place.before);
    }
    Loaded {
        value,
        second: second_of(share, place.outer, place.element),
        position: place.position,
        valid: place.valid,
    }
}

/// Adds the loads `first`, `first + stride`, ... of a tensor of a list, whose array is found once
/// for all of them. A load past the end repeats the last and is not valid.
#[cube]
pub(super) fn load_block_of_list(loads: &mut Sequence<Loaded>, share: &Share<'_>, first: usize) {
    // CUDA's compiler keeps the branches that find an array. With one choice for each load, the L2
    // norm of a list of bf16 tensors (2.0 GB on one H200) took 581 us, and with one choice for all
    // loads of a block 477.
    let in_flight = comptime![share.access.loads_in_flight];
    let mut numbers = Sequence::<usize>::new();
    #[unroll]
    for k in 0..in_flight {
        let nth = first + k * share.stride;
        numbers.push(clamp_max(nth, share.geometry.loads_per_tile - 1));
    }
    let mut together = Sequence::<Loaded>::new();
    load_together(&mut together, share, &numbers);
    #[unroll]
    for k in 0..in_flight {
        let loaded = *together.index(k);
        loads.push(Loaded {
            value: loaded.value,
            second: loaded.second,
            position: loaded.position,
            valid: first + k * share.stride < share.geometry.loads_per_tile,
        });
    }
}

/// Whether the loads of a tile are whole vectors across outputs, of rows that lie equally far apart.
#[cube]
pub(super) fn lie_evenly(share: &Share<'_>) -> comptime_type!(bool) {
    let access = comptime![share.access];
    let rows = share.geometry.reduced.len().comptime();
    let in_order = share.input.is_in_order();
    let across = comptime![access.direction == Direction::Across && rows == 1 && in_order];
    comptime![across && !access.peeled && !access.realigned]
}

/// Adds the loads `first`, `first + stride`, ... of rows that [lie evenly](lie_evenly), of which the
/// first exists. A load past the end repeats the last and is not valid.
///
/// Each index is the one before and a step, which takes one instruction where a product of the row
/// and its stride takes three.
#[cube]
pub(super) fn load_even_rows(loads: &mut Sequence<Loaded>, share: &Share<'_>, first: usize) {
    let geometry = share.geometry;
    let vector = comptime![share.access.vector];
    let count = geometry.loads_per_tile;
    let stride = geometry.reduced.index(0).stride / vector;
    let start = share.tile.input / vector;
    let last = start + (count - 1) * stride;
    // Steps beyond the last row may not fit an index.
    let step = clamp_max(share.stride, count) * stride;
    let mut index = start + first * stride;
    #[unroll]
    for k in 0..comptime![share.access.loads_in_flight] {
        if comptime![k > 0] {
            index = clamp_max(index + step, last);
        }
        let nth = first + k * share.stride;
        let row = clamp_max(nth, count - 1);
        loads.push(Loaded {
            value: share.input.vector(index),
            second: second_of(share, row, 0usize),
            position: position_across(geometry, row),
            valid: nth < count,
        });
    }
}

/// Adds loads of a tile of a list's tensor, by their numbers. The tensor's array is found once for
/// all of them, and its rows are neither peeled nor realigned.
#[cube]
pub(super) fn load_together(
    loads: &mut Sequence<Loaded>,
    share: &Share<'_>,
    numbers: &Sequence<usize>,
) {
    let geometry = share.geometry;
    let vector = comptime![share.access.vector];
    let mut indices = Sequence::<usize>::new();
    let mut starts = Sequence::<usize>::new();
    #[unroll]
    for k in 0..numbers.len().comptime() {
        let nth = *numbers.index(k);
        match comptime![share.access.direction] {
            Direction::Along => {
                let place = vector_place(share, nth);
                indices.push(place.index);
                starts.push(place.position.start);
            }
            Direction::Across => {
                let at = geometry.at_reduced(nth);
                indices.push((share.tile.input + at.input) / vector);
                starts.push(at.target);
            }
        }
    }
    let step = match comptime![share.access.direction] {
        Direction::Along => geometry.inner_target_stride,
        Direction::Across => 0usize.runtime(),
    };
    let values = share.input.vectors.at_each(&indices, Vector::empty());
    #[unroll]
    for k in 0..numbers.len().comptime() {
        loads.push(Loaded {
            value: values.index(k).read(),
            second: ComptimeOption::new_None(),
            position: Position { start: *starts.index(k), step },
            valid: true.runtime(),
        });
    }
}

/// The elements of the second input that go with a load: that of an index over the outer reduced
/// dimensions, from an `element` of the inner one on. None if there is no such input, or if only
/// some of its elements are read, later.
#[cube]
pub(super) fn second_of(
    share: &Share<'_>,
    outer: usize,
    element: usize,
) -> ComptimeOption<Vector<Stored2, Wide>> {
    let accessed = comptime![share.input.second_access];
    if comptime![accessed == CompanionAccess::None] {
        ComptimeOption::new_None()
    } else {
        let strides = share.geometry.second.as_ref().unwrap();
        let at = share.tile.second
            + strided(&share.geometry.reduced, &strides.reduced, outer)
            + element * strides.inner;
        let second = share.input.second;
        let inner = strides.inner;
        ComptimeOption::new_Some(load_elements::<Stored2>(
            second,
            at,
            inner,
            share,
            share.input.policy,
            accessed,
        ))
    }
}

/// A vector across outputs: one element of each of the tile's outputs.
#[cube]
fn load_across(share: &Share<'_>, nth: usize, #[comptime] at_end: AtEnd) -> Loaded {
    let (input, geometry, tile) = (share.input, share.geometry, share.tile);
    let access = comptime![share.access];
    let vector = comptime![access.vector];
    let start = tile.input + offsets(&geometry.reduced, nth).input;
    let mut value = Vector::<Stored, Wide>::empty();
    // Across outputs only the tail of a row may be peeled: its start is on a vector's boundary. The
    // branch asks about the tile, so all loads of a unit take the same way.
    if comptime![access.peeled] {
        if tile.results == comptime![vector as u32] {
            value = input.vector(start / vector);
        } else {
            // Past the end of the row, this repeats its last element. Those components have no
            // result.
            let last = clamp_min(tile.results, 1u32) - 1;
            #[unroll]
            for nth in 0..vector {
                let column = clamp_max(comptime![nth as u32].runtime(), last);
                value.insert(nth, input.elements.at(start + column as usize));
            }
        }
    } else if comptime![access.realigned && at_end == AtEnd::Whole] {
        let index = start / vector;
        if index < whole_vectors(share) {
            value = input.vector(index);
        } else {
            // Past the end, this repeats the last element, in components that have no result.
            let last = geometry.realigned.unwrap().elements - 1;
            #[unroll]
            for nth in 0..vector {
                value.insert(nth, input.elements.at(clamp_max(index * vector + nth, last)));
            }
        }
    } else if comptime![access.realigned && at_end == AtEnd::Clamped] {
        // There is no branch, because this load is in the loop. The caller replaces the value.
        value = input.vector(clamp_max(start / vector, whole_vectors(share) - 1));
    } else if comptime![access.realigned] {
        value = input.vector(start / vector);
    } else {
        value = input.vector(tile.input / vector + strided_vectors(&geometry.reduced, nth, vector));
    }
    let second = second_of(share, nth, 0usize);
    Loaded { value, second, position: position_across(geometry, nth), valid: true }
}

/// The position of load number `nth` of a tile.
#[cube]
pub(super) fn position_of(share: &Share<'_>, nth: usize) -> Position {
    match comptime![share.access.direction] {
        Direction::Along => vector_place(share, nth).position,
        Direction::Across => position_across(share.geometry, nth),
    }
}

/// The position of load number `nth` of a tile across outputs. All of its elements have the same.
#[cube]
pub(super) fn position_across(geometry: &Geometry, nth: usize) -> Position {
    Position { start: geometry.at_reduced(nth).target, step: 0usize }
}

/// Whether the last vector of a tile with realigned rows reaches beyond the input.
#[cube]
pub(super) fn ends_outside(share: &Share<'_>) -> bool {
    let last = offsets(&share.geometry.reduced, share.geometry.loads_per_tile - 1);
    (share.tile.input + last.input) / comptime![share.access.vector] >= whole_vectors(share)
}

/// The vectors that lie inside the input.
#[cube]
fn whole_vectors(share: &Share<'_>) -> usize {
    share.geometry.realigned.unwrap().elements / comptime![share.access.vector]
}

/// The largest number of elements at the edges of an inner dimension, and a few more. Each edge of
/// a peeled one is shorter than a vector, and the end of a realigned one is shorter than two.
pub(crate) fn edge_slots(vector: usize) -> usize {
    2 * vector
}

/// The loads of an inner dimension that is realigned.
#[cube]
fn whole_loads(share: &Share<'_>) -> usize {
    let vector = comptime![share.access.vector];
    (share.geometry.inner_len + 1 - vector) / vector
}

/// Up to a vector of the elements that the loads of realigned rows leave at the end of each.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Rest {
    /// Components past the last repeat it.
    pub(super) loaded: Loaded,
    pub(super) components: u32,
}

copied_through_references!(RestExpand);

/// The rests of each inner dimension, 1 or 2. They go on with the loads: what is left of the first
/// inner dimension, then of the next.
#[cube]
fn rests_per_inner(share: &Share<'_>) -> usize {
    let vector = comptime![share.access.vector];
    (share.geometry.inner_len - whole_loads(share) * vector).div_ceil(vector)
}

/// The loads and rests of a tile with realigned rows.
#[cube]
pub(super) fn loads_with_rests(share: &Share<'_>) -> usize {
    let geometry = share.geometry;
    geometry.loads_per_tile + geometry.inner_count * rests_per_inner(share)
}

/// Loads the rest that has number `nth` among the loads and rests of a tile with realigned rows.
#[cube]
pub(super) fn load_rest(share: &Share<'_>, nth: usize) -> Rest {
    let geometry = share.geometry;
    let vector = comptime![share.access.vector];
    let each = rests_per_inner(share);
    let number = nth - geometry.loads_per_tile;
    let outer = number / each;
    let element = (whole_loads(share) + number % each) * vector;
    let at = geometry.at_reduced(outer);
    let start = share.tile.input + at.input + element;
    let count = clamp_max(geometry.inner_len - element, vector.runtime());
    let mut value = Vector::<Stored, Wide>::empty();
    #[unroll]
    for component in 0..vector {
        let inside = clamp_max(component.runtime(), count - 1);
        value.insert(component, share.input.elements.at(start + inside));
    }
    let position = Position {
        start: at.target + element * geometry.inner_target_stride,
        step: geometry.inner_target_stride,
    };
    let second = ComptimeOption::new_None();
    let loaded = Loaded { value, second, position, valid: true.runtime() };
    Rest { loaded, components: u32::cast_from(count) }
}

/// An element at an edge of an inner dimension.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Edge {
    pub(super) value: Vector<Stored, Single>,
    /// The element of the second input that goes with it, if there is one.
    pub(super) second: ComptimeOption<Vector<Stored2, Single>>,
    pub(super) position: Position,
    pub(super) valid: bool,
    /// Number of the element in its inner dimension.
    pub(super) element: usize,
}

/// The element of the second input that goes with one at an edge; none as in [`second_of`].
#[cube]
fn second_at_edge(
    share: &Share<'_>,
    outer: usize,
    element: usize,
) -> ComptimeOption<Vector<Stored2, Single>> {
    if comptime![share.input.second_access == CompanionAccess::None] {
        ComptimeOption::new_None()
    } else {
        let strides = share.geometry.second.as_ref().unwrap();
        let at = share.tile.second
            + strided(&share.geometry.reduced, &strides.reduced, outer)
            + element * strides.inner;
        let elements = share.input.second.elements.unwrap();
        ComptimeOption::new_Some(Vector::cast_from(elements[at]))
    }
}

/// Loads edge element `slot` of a tile. The edges are the elements before the first whole vector of
/// each inner dimension, and those after the last. Realigned rows have the latter alone.
#[cube]
pub(super) fn load_edge(share: &Share<'_>, slot: usize) -> Edge {
    let geometry = share.geometry;
    let vector = comptime![share.access.vector];
    let slots = comptime![edge_slots(vector)];
    let at = geometry.at_reduced(slot / slots);
    let start = share.tile.input + at.input;
    let (head, whole) = if comptime![share.access.realigned] {
        (0usize.runtime(), whole_loads(share) * vector)
    } else {
        let head = start.div_ceil(vector) * vector - start;
        (head, (geometry.inner_len - head) / vector * vector)
    };
    // Both edges of an inner dimension share one numbering, so one loop reads them. Slots past both
    // edges have no element.
    let at_edge = slot % slots;
    let element = select(at_edge < head, at_edge, at_edge + whole);
    edge_at(share, slot / slots, element, element < geometry.inner_len)
}

/// Loads one element of an inner dimension, which is number `outer` of those of the tile. An
/// element that is not `valid` repeats the last.
#[cube]
pub(super) fn edge_at(share: &Share<'_>, outer: usize, element: usize, valid: bool) -> Edge {
    let geometry = share.geometry;
    let at = geometry.at_reduced(outer);
    let inside = clamp_max(element, geometry.inner_len - 1);
    Edge {
        value: Vector::cast_from(share.input.elements.at(share.tile.input + at.input + inside)),
        second: second_at_edge(share, outer, inside),
        position: Position {
            start: at.target + element * geometry.inner_target_stride,
            step: geometry.inner_target_stride,
        },
        valid,
        element: inside,
    }
}
