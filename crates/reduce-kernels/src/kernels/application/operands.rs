//! Operands of an application.

use cubecl::prelude::*;

use super::applier::{Applier, OutputPlace};
use crate::{
    kernels::{
        args::CompanionSlices,
        companion::{load_elements, tile_offset},
        geometry::{CompanionAccess, strided},
        load::Edge,
        share::Share,
    },
    operator::{
        Field, Operand, Operand2, Operand3, Real, RealTypes, Reals, Record, Single, Stored2, Wide,
    },
};

/// The offset of a tile in each operand, 0 where there is none.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct OperandStarts {
    first: usize,
    second: usize,
    third: usize,
}

#[cube]
pub(super) fn operand_starts(applier: &Applier<'_>, share: &Share<'_>) -> OperandStarts {
    OperandStarts {
        first: operand_start(applier, share, 0usize),
        second: operand_start(applier, share, 1usize),
        third: operand_start(applier, share, 2usize),
    }
}

#[cube]
fn operand_start(applier: &Applier<'_>, share: &Share<'_>, #[comptime] nth: usize) -> usize {
    if comptime![applier.spec.operands[nth] == CompanionAccess::None] {
        0usize.runtime()
    } else {
        tile_offset(applier.companions.index(comptime![nth + 1]), share)
    }
}

/// The operands of a load.
#[cube]
pub(super) fn load_operands(
    applier: &Applier<'_>,
    starts: OperandStarts,
    share: &Share<'_>,
    place: OutputPlace,
    second: ComptimeOption<Vector<Stored2, Wide>>,
) -> Reals<Wide> {
    let operands = applier.operands;
    Record::<RealTypes, Wide>::new(
        load_operand::<Operand>(
            operands.first,
            starts.first,
            applier,
            share,
            place,
            second,
            0usize,
        ),
        load_operand::<Operand2>(
            operands.second,
            starts.second,
            applier,
            share,
            place,
            second,
            1usize,
        ),
        load_operand::<Operand3>(
            operands.third,
            starts.third,
            applier,
            share,
            place,
            second,
            2usize,
        ),
        Field::<Real, Wide>::none(),
        Field::<Real, Wide>::none(),
    )
}

/// Operand `nth` of a load, from the offset of its tile.
#[cube]
fn load_operand<E: Float>(
    slices: CompanionSlices<E>,
    start: usize,
    applier: &Applier<'_>,
    share: &Share<'_>,
    place: OutputPlace,
    second: ComptimeOption<Vector<Stored2, Wide>>,
    #[comptime] nth: usize,
) -> Field<Real, Wide> {
    let accessed = comptime![applier.spec.operands[nth]];
    // Operands are read at the application and not with the input, where they would take registers.
    // Weights and biases come from the cache, once for each tile.
    if comptime![accessed == CompanionAccess::None] {
        Field::<Real, Wide>::none()
    } else if comptime![accessed == CompanionAccess::Second] {
        Field::<Real, Wide>::some(Vector::cast_from(second.unwrap()))
    } else {
        let companion = applier.companions.index(comptime![nth + 1]);
        let at = start
            + strided(&share.geometry.reduced, &companion.reduced, place.outer)
            + place.element * companion.inner;
        let loaded = load_elements::<E>(slices, at, companion.inner, share, accessed);
        Field::<Real, Wide>::some(Vector::cast_from(loaded))
    }
}

/// The operands of an element at an edge. `outer` is its index over the outer reduced dimensions.
#[cube]
pub(super) fn edge_operands(
    applier: &Applier<'_>,
    starts: OperandStarts,
    share: &Share<'_>,
    outer: usize,
    edge: Edge,
) -> Reals<Single> {
    let operands = applier.operands;
    Record::<RealTypes, Single>::new(
        edge_operand::<Operand>(operands.first, starts.first, applier, share, outer, edge, 0usize),
        edge_operand::<Operand2>(
            operands.second,
            starts.second,
            applier,
            share,
            outer,
            edge,
            1usize,
        ),
        edge_operand::<Operand3>(operands.third, starts.third, applier, share, outer, edge, 2usize),
        Field::<Real, Single>::none(),
        Field::<Real, Single>::none(),
    )
}

#[cube]
fn edge_operand<E: Float>(
    slices: CompanionSlices<E>,
    start: usize,
    applier: &Applier<'_>,
    share: &Share<'_>,
    outer: usize,
    edge: Edge,
    #[comptime] nth: usize,
) -> Field<Real, Single> {
    let accessed = comptime![applier.spec.operands[nth]];
    if comptime![accessed == CompanionAccess::None] {
        Field::<Real, Single>::none()
    } else if comptime![accessed == CompanionAccess::Second] {
        Field::<Real, Single>::some(Vector::cast_from(edge.second.unwrap()))
    } else {
        let companion = applier.companions.index(comptime![nth + 1]);
        let at = start
            + strided(&share.geometry.reduced, &companion.reduced, outer)
            + edge.element * companion.inner;
        let elements = slices.elements.unwrap();
        Field::<Real, Single>::some(Vector::new(Real::cast_from(elements[at])))
    }
}
