//! Tensors beside the input: operands and results.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    How,
    apply::{Beside, Spot},
};
use crate::{
    kernels::geometry::{Dim, Geometry, Tile},
    operator::{Field, Operand, Operand2, Operand3, Real, RealTypes, Reals, Record, Single, Wide},
};

/// The strides of a tensor beside the input, for the dimensions of a [`Geometry`].
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Companion {
    /// Strides along [`Geometry::kept`].
    pub(crate) kept: Sequence<usize>,
    /// Strides along [`Geometry::reduced`].
    pub(crate) reduced: Sequence<usize>,
    /// Stride along the inner dimension.
    pub(crate) inner: usize,
}

/// How the components of an operand that belong to one load are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum OperandAccess {
    /// There is no such operand.
    None,
    /// All components are the same element.
    Same,
    /// They are a vector in memory.
    Vector,
    /// They are read one by one.
    Elements,
}

/// The components of a load that belong to the tile.
#[cube]
pub(super) fn components_inside(tile: Tile, #[comptime] access: Access) -> u32 {
    match comptime![access.direction] {
        Direction::Along => comptime![access.vector as u32].runtime(),
        Direction::Across => tile.results,
    }
}

/// The offset of a tile in a companion.
#[cube]
pub(super) fn tile_offset(
    companion: &Companion,
    geometry: &Geometry,
    tile: Tile,
    #[comptime] access: Access,
) -> usize {
    match comptime![access.direction] {
        Direction::Along => strided(&geometry.kept, &companion.kept, tile.index),
        Direction::Across => {
            let row = tile.index / geometry.inner_len;
            let column = tile.index - row * geometry.inner_len;
            strided(&geometry.kept, &companion.kept, row) + column * companion.inner
        }
    }
}

/// The offset of a row-major index over `dims` with other strides.
#[cube]
pub(in crate::kernels) fn strided(
    dims: &Sequence<Dim>,
    strides: &Sequence<usize>,
    index: usize,
) -> usize {
    let rank = dims.len().comptime();
    let mut rest = index;
    let mut offset = 0usize;
    #[unroll]
    for i in 0..rank {
        let nth = comptime![rank - 1 - i];
        let dim = dims.index(nth);
        let stride = *strides.index(nth);
        if comptime![i + 1 < rank] {
            let (outer, coordinate) = dim.extent.div_mod(rest);
            offset += coordinate * stride;
            rest = outer;
        } else {
            offset += rest * stride;
        }
    }
    offset
}

/// The offset of a tile in operand `nth`, 0 if there is none.
#[cube]
pub(super) fn operand_offset(
    companions: &Sequence<Companion>,
    geometry: &Geometry,
    tile: Tile,
    #[comptime] nth: usize,
    #[comptime] how: How,
) -> usize {
    if comptime![how.operands[nth] == OperandAccess::None] {
        0usize.runtime()
    } else {
        tile_offset(companions.index(comptime![nth + 1]), geometry, tile, comptime![how.access])
    }
}

/// The operands of a load.
#[cube]
pub(super) fn load_operands(
    beside: Beside,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    tile: Tile,
    spot: Spot,
    #[comptime] how: How,
) -> Reals<Wide> {
    Record::<RealTypes, Wide>::new(
        load_operand::<Operand>(
            beside.operands.first,
            beside.operands.first_wide,
            companions,
            geometry,
            tile,
            beside.first,
            spot,
            0usize,
            how,
        ),
        load_operand::<Operand2>(
            beside.operands.second,
            beside.operands.second_wide,
            companions,
            geometry,
            tile,
            beside.second,
            spot,
            1usize,
            how,
        ),
        load_operand::<Operand3>(
            beside.operands.third,
            beside.operands.third_wide,
            companions,
            geometry,
            tile,
            beside.third,
            spot,
            2usize,
            how,
        ),
        Field::<Real, Wide>::none(),
        Field::<Real, Wide>::none(),
    )
}

/// One operand of a load, from the offset of its tile.
#[cube]
fn load_operand<E: Float>(
    elements: ComptimeOption<Slice<E>>,
    vectors: ComptimeOption<Slice<Vector<E, Wide>>>,
    companions: &Sequence<Companion>,
    geometry: &Geometry,
    tile: Tile,
    start: usize,
    spot: Spot,
    #[comptime] nth: usize,
    #[comptime] how: How,
) -> Field<Real, Wide> {
    let access = comptime![how.access];
    let vector = comptime![access.vector];
    if comptime![how.operands[nth] == OperandAccess::None] {
        Field::<Real, Wide>::none()
    } else {
        let companion = companions.index(comptime![nth + 1]);
        let at = start
            + strided(&geometry.reduced, &companion.reduced, spot.outer)
            + spot.element * companion.inner;
        match comptime![how.operands[nth]] {
            OperandAccess::Vector => {
                let vectors = vectors.unwrap();
                Field::<Real, Wide>::some(Vector::cast_from(vectors[at / vector]))
            }
            OperandAccess::Same => {
                let elements = elements.unwrap();
                Field::<Real, Wide>::some(Vector::new(Real::cast_from(elements[at])))
            }
            _ => {
                let elements = elements.unwrap();
                let last = clamp_min(components_inside(tile, access), 1u32) - 1;
                let mut value = Vector::<Real, Wide>::empty();
                #[unroll]
                for component in 0..vector {
                    let inside = clamp_max(comptime![component as u32].runtime(), last);
                    let element = elements[at + inside as usize * companion.inner];
                    value[component] = Real::cast_from(element);
                }
                Field::<Real, Wide>::some(value)
            }
        }
    }
}

/// The operands of an element at an edge.
#[cube]
pub(super) fn edge_operands(
    beside: Beside,
    geometry: &Geometry,
    companions: &Sequence<Companion>,
    outer: usize,
    element: usize,
    #[comptime] how: How,
) -> Reals<Single> {
    Record::<RealTypes, Single>::new(
        edge_operand::<Operand>(
            beside.operands.first,
            companions,
            geometry,
            beside.first,
            outer,
            element,
            0usize,
            how,
        ),
        edge_operand::<Operand2>(
            beside.operands.second,
            companions,
            geometry,
            beside.second,
            outer,
            element,
            1usize,
            how,
        ),
        edge_operand::<Operand3>(
            beside.operands.third,
            companions,
            geometry,
            beside.third,
            outer,
            element,
            2usize,
            how,
        ),
        Field::<Real, Single>::none(),
        Field::<Real, Single>::none(),
    )
}

#[cube]
fn edge_operand<E: Float>(
    elements: ComptimeOption<Slice<E>>,
    companions: &Sequence<Companion>,
    geometry: &Geometry,
    start: usize,
    outer: usize,
    element: usize,
    #[comptime] nth: usize,
    #[comptime] how: How,
) -> Field<Real, Single> {
    if comptime![how.operands[nth] == OperandAccess::None] {
        Field::<Real, Single>::none()
    } else {
        let companion = companions.index(comptime![nth + 1]);
        let at = start
            + strided(&geometry.reduced, &companion.reduced, outer)
            + element * companion.inner;
        let elements = elements.unwrap();
        Field::<Real, Single>::some(Vector::new(Real::cast_from(elements[at])))
    }
}
