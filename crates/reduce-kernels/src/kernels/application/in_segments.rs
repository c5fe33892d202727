//! The segments of the elements of a load: whose results and operands they take, and which are in none.

use cubecl::prelude::*;

use crate::operator::Real;

/// The segments of the elements of a load.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct InSegments<N: Size> {
    /// The number of each component's segment, and that of another where it is in none.
    pub(super) numbers: Vector<u32, N>,
    /// 1 where a component is in a segment, 0 where it is in none.
    pub(super) inside: Vector<u32, N>,
    /// Whether all components have the same.
    pub(super) same: bool,
}

#[cube]
impl<N: Size> InSegments<N> {
    /// The number of the segment of a component.
    pub(super) fn number(&self, #[comptime] component: usize) -> usize {
        self.numbers.extract(component) as usize
    }
}

/// Zero in place of elements that are in no segment, if there are segments.
#[cube]
pub(super) fn inside_of_segments<N: Size>(
    value: Vector<Real, N>,
    segments: ComptimeOption<InSegments<N>>,
) -> Vector<Real, N> {
    if comptime![segments.is_some()] {
        let inside = segments.unwrap().inside.equal(&Vector::from_int(1));
        select_many(inside, value, Vector::from_int(0))
    } else {
        value
    }
}
