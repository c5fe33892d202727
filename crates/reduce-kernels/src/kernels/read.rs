//! Loads: from a step of a group's work to a vector of elements.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    geometry::{Geometry, Group, offsets},
    whole::whole,
};
use crate::operator::{Position, Types};

/// The input as vectors and, where runs are ragged, bound again for their edges, element by element.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Input<T: Types, N: Size> {
    pub(crate) vectors: Slice<Vector<T::Stored, N>>,
    pub(crate) elements: ComptimeOption<Slice<T::Stored>>,
}

#[cube]
impl<T: Types, N: Size> Input<T, N> {
    pub(crate) fn new(
        vectors: &Array<Vector<T::Stored, N>>,
        elements: &ComptimeOption<Array<T::Stored>>,
    ) -> Self {
        let elements = #[comptime]
        match elements {
            ComptimeOption::Some(elements) => ComptimeOption::new_Some(whole(elements)),
            ComptimeOption::None => ComptimeOption::new_None(),
        };
        Input::<T, N> { vectors: whole(vectors), elements }
    }
}

/// What one step loads.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Loaded<T: Types, N: Size> {
    pub(crate) value: Vector<T::Stored, N>,
    pub(crate) position: Position,
    /// Whether the step exists: a ragged run may hold one vector less than others.
    pub(crate) valid: bool,
}

/// Loads step `step` of `group`.
#[cube]
pub(crate) fn load<T: Types, N: Size>(
    input: &Input<T, N>,
    geometry: &Geometry,
    group: Group,
    step: usize,
    #[comptime] access: Access,
) -> Loaded<T, N> {
    match comptime![access.direction] {
        Direction::Along => load_along::<T, N>(input, geometry, group, step, access),
        Direction::Across => load_across::<T, N>(input, geometry, group, step, access),
    }
}

/// A vector of one run: neighbouring elements of one output.
#[cube]
fn load_along<T: Types, N: Size>(
    input: &Input<T, N>,
    geometry: &Geometry,
    group: Group,
    step: usize,
    #[comptime] access: Access,
) -> Loaded<T, N> {
    let vector = comptime![access.vector];
    let mut start = group.input;
    let mut position = 0usize;
    let mut slot = step;
    let outer_dims = geometry.reduced.len().comptime();
    if comptime![outer_dims > 0] {
        let (run, load) = geometry.loads.div_mod(step);
        let at = offsets(&geometry.reduced, run);
        start += at.stride;
        position = at.target;
        slot = load;
    }
    if comptime![access.ragged] {
        let first = start.div_ceil(vector);
        let end = (first + slot + 1) * vector;
        let valid = end <= start + geometry.run;
        // The first whole vector is in every run: what is loaded in vain is at least in cache.
        let index = select(valid, first + slot, first);
        let skipped = index * vector - start;
        Loaded::<T, N> {
            value: input.vectors[index],
            position: Position {
                start: position + skipped * geometry.run_target,
                step: geometry.run_target,
            },
            valid,
        }
    } else {
        let element = slot * vector;
        let index = if comptime![vector > 1] {
            start / vector + slot
        } else {
            start + slot * geometry.run_stride
        };
        Loaded::<T, N> {
            value: input.vectors[index],
            position: Position {
                start: position + element * geometry.run_target,
                step: geometry.run_target,
            },
            valid: true,
        }
    }
}

/// A vector across outputs: one element of each of the group's outputs.
#[cube]
fn load_across<T: Types, N: Size>(
    input: &Input<T, N>,
    geometry: &Geometry,
    group: Group,
    step: usize,
    #[comptime] access: Access,
) -> Loaded<T, N> {
    let vector = comptime![access.vector];
    let at = offsets(&geometry.reduced, step);
    let start = group.input + at.stride;
    let mut value = Vector::<T::Stored, N>::empty();
    if comptime![access.ragged] {
        if group.results == comptime![vector as u32] {
            value = input.vectors[start / vector];
        } else {
            // Past the row's end, its last element again; those lanes have no result.
            let elements = input.elements.unwrap();
            let last = clamp_min(group.results, 1u32) - 1;
            #[unroll]
            for lane in 0..vector {
                let column = clamp_max(comptime![lane as u32].runtime(), last);
                value[lane] = elements[start + column as usize];
            }
        }
    } else {
        value = input.vectors[start / vector];
    }
    Loaded::<T, N> { value, position: Position { start: at.target, step: 0usize }, valid: true }
}

/// Elements at the edges of a ragged run, at most: each edge is shorter than a vector.
pub(crate) fn edge_slots(vector: usize) -> usize {
    2 * vector
}

/// An element at the edge of a run.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Edge<T: Types> {
    pub(crate) value: Vector<T::Stored, Const<1>>,
    pub(crate) position: Position,
    pub(crate) valid: bool,
}

/// Loads edge element `slot` of all that `group`'s runs have: those before the first whole vector
/// and those after the last.
#[cube]
pub(crate) fn load_edge<T: Types, N: Size>(
    input: &Input<T, N>,
    geometry: &Geometry,
    group: Group,
    slot: usize,
    #[comptime] access: Access,
) -> Edge<T> {
    let vector = comptime![access.vector];
    let slots = comptime![edge_slots(vector)];
    let elements = input.elements.unwrap();
    let at = offsets(&geometry.reduced, slot / slots);
    let start = group.input + at.stride;
    let head = start.div_ceil(vector) * vector - start;
    let whole = (geometry.run - head) / vector * vector;
    let nth = slot % slots;
    let element = select(nth < head, nth, nth + whole);
    let valid = element < geometry.run;
    let inside = clamp_max(element, geometry.run - 1);
    Edge::<T> {
        value: Vector::cast_from(elements[start + inside]),
        position: Position {
            start: at.target + element * geometry.run_target,
            step: geometry.run_target,
        },
        valid,
    }
}
