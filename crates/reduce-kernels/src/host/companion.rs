//! Tensors beside the input: how kernels read them, and the arguments that describe them.

use cubecl::prelude::*;
use reduce_planner::{Access, Companion, Direction, ElementType, Problem};

use super::bound::Bound;
use crate::kernels::geometry::{CompanionAccess, CompanionLaunch};

/// How the components of a companion that belong to one load are read.
pub(super) fn companion_access(
    problem: &Problem,
    access: Access,
    companion: &Companion,
    element: ElementType,
    alignment: usize,
) -> CompanionAccess {
    let inner = companion.inner(access.direction);
    // A vector at the edge of a row across outputs may reach past the companion.
    let whole = !(access.peeled && access.direction == Direction::Across);
    if inner.is_none_or(|stride| stride == 0) {
        CompanionAccess::Same
    } else if whole && access.suits(problem, companion, element, alignment) {
        CompanionAccess::Vector
    } else {
        CompanionAccess::Elements
    }
}

/// How the second input is read.
pub(super) fn second_access(problem: &Problem, access: Access) -> CompanionAccess {
    let Some(second) = problem.second() else { return CompanionAccess::None };
    let (element, alignment) = (second.element(), second.alignment());
    companion_access(problem, access, second.strides(), element, alignment)
}

/// The second input as an array of elements and as one of vectors, and how it is read.
pub(super) fn second_arrays(
    problem: &Problem,
    access: Access,
    bound: Option<&Bound<'_>>,
) -> (Option<BufferArg>, Option<BufferArg>, CompanionAccess) {
    let how = second_access(problem, access);
    let Some(bound) = bound else { return (None, None, how) };
    let in_vectors = how == CompanionAccess::Vector;
    let elements = (!in_vectors || access.peeled || access.realigned).then(|| bound.elements());
    let vectors = in_vectors.then(|| bound.vectors(access.vector));
    (elements, vectors, how)
}

/// The launch argument for the strides of a companion, of which `segment` is that from one segment to
/// the next.
pub(super) fn companion_launch(
    companion: &Companion,
    direction: Direction,
    segment: usize,
) -> CompanionLaunch {
    let (mut kept, mut reduced) = (&companion.kept[..], &companion.reduced[..]);
    let inner = match direction {
        Direction::Along => split_last(&mut reduced),
        Direction::Across => split_last(&mut kept),
    };
    CompanionLaunch::new(list(kept), list(reduced), inner, segment)
}

/// The last of these strides, which keep the others; 0 if there are none.
fn split_last(strides: &mut &[usize]) -> usize {
    match strides.split_last() {
        Some((&last, others)) => {
            *strides = others;
            last
        }
        None => 0,
    }
}

pub(super) fn list(strides: &[usize]) -> SequenceArg<usize> {
    let mut sequence = SequenceArg::new();
    strides.iter().for_each(|&stride| sequence.push(stride));
    sequence
}
