//! Operands of an application.

use cubecl::prelude::*;

use super::{
    How,
    apply::{Beside, Spot},
};
use crate::{
    kernels::{
        companion::{Companion, CompanionAccess, load_elements, strided, tile_offset},
        geometry::{Geometry, Tile},
    },
    operator::{
        Field, Operand, Operand2, Operand3, Real, RealTypes, Reals, Record, Single, Slice, Stored2,
        Wide,
    },
};

/// The offset of a tile in operand `nth`, 0 if there is none.
#[cube]
pub(super) fn operand_offset(
    companions: &Sequence<Companion>,
    geometry: &Geometry,
    tile: Tile,
    #[comptime] nth: usize,
    #[comptime] how: How,
) -> usize {
    if comptime![how.operands[nth] == CompanionAccess::None] {
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
    second: ComptimeOption<Vector<Stored2, Wide>>,
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
            second,
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
            second,
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
            second,
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
    second: ComptimeOption<Vector<Stored2, Wide>>,
    #[comptime] nth: usize,
    #[comptime] how: How,
) -> Field<Real, Wide> {
    let access = comptime![how.access];
    if comptime![how.operands[nth] == CompanionAccess::None] {
        Field::<Real, Wide>::none()
    } else if comptime![how.operands[nth] == CompanionAccess::Second] {
        Field::<Real, Wide>::some(Vector::cast_from(second.unwrap()))
    } else {
        let companion = companions.index(comptime![nth + 1]);
        let at = start
            + strided(&geometry.reduced, &companion.reduced, spot.outer)
            + spot.element * companion.inner;
        let accessed = comptime![how.operands[nth]];
        let loaded =
            load_elements::<E>(elements, vectors, at, companion.inner, tile, accessed, access);
        Field::<Real, Wide>::some(Vector::cast_from(loaded))
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
    second: ComptimeOption<Vector<Stored2, Single>>,
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
            second,
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
            second,
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
            second,
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
    second: ComptimeOption<Vector<Stored2, Single>>,
    #[comptime] nth: usize,
    #[comptime] how: How,
) -> Field<Real, Single> {
    if comptime![how.operands[nth] == CompanionAccess::None] {
        Field::<Real, Single>::none()
    } else if comptime![how.operands[nth] == CompanionAccess::Second] {
        Field::<Real, Single>::some(Vector::cast_from(second.unwrap()))
    } else {
        let companion = companions.index(comptime![nth + 1]);
        let at = start
            + strided(&geometry.reduced, &companion.reduced, outer)
            + element * companion.inner;
        let elements = elements.unwrap();
        Field::<Real, Single>::some(Vector::new(Real::cast_from(elements[at])))
    }
}
