//! Operands of an application.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    applier::{Applier, OutputPlace},
    in_segments::InSegments,
};
use crate::{
    kernels::{
        args::CompanionSlices,
        companion::{load_elements, tile_offset},
        geometry::{CompanionAccess, strided},
        load::{Edge, second_of},
        share::Share,
    },
    operator::{
        Field, Operand, Operand2, Operand3, Real, RealTypes, Reals, Record, Single, Stored2, Wide,
    },
};

/// Where a tile lies in each operand.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct OperandStarts {
    first: OperandStart,
    second: OperandStart,
    third: OperandStart,
}

/// Where a tile lies in an operand.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct OperandStart {
    /// The offset, 0 if there is no operand.
    at: usize,
    /// The element that all of the tile have, read once for all of them: compilers do not see that
    /// what is stored in between leaves it as it is. 0 if they have others.
    of_tile: Real,
}

#[cube]
pub(super) fn operand_starts(applier: &Applier<'_>, share: &Share<'_>) -> OperandStarts {
    let operands = applier.operands;
    OperandStarts {
        first: operand_start::<Operand>(operands.first, applier, share, 0usize),
        second: operand_start::<Operand2>(operands.second, applier, share, 1usize),
        third: operand_start::<Operand3>(operands.third, applier, share, 2usize),
    }
}

#[cube]
fn operand_start<E: Float>(
    slices: CompanionSlices<E>,
    applier: &Applier<'_>,
    share: &Share<'_>,
    #[comptime] nth: usize,
) -> OperandStart {
    let accessed = comptime![applier.spec.operands[nth]];
    let mut at = 0usize;
    let mut of_tile = Real::from_int(0);
    if comptime![accessed != CompanionAccess::None] {
        at = tile_offset(applier.companions.index(comptime![nth + 1]), share);
        if comptime![accessed == CompanionAccess::OfTile] {
            // A tile past the last may lie beyond the operand.
            if share.tile.results > 0 {
                let elements = slices.elements.unwrap();
                of_tile = Real::cast_from(elements[at]);
            }
        }
    }
    OperandStart { at, of_tile }
}

/// The operands of a load.
#[cube]
pub(super) fn load_operands(
    applier: &Applier<'_>,
    starts: OperandStarts,
    share: &Share<'_>,
    place: OutputPlace,
    second: ComptimeOption<Vector<Stored2, Wide>>,
    segments: ComptimeOption<InSegments<Wide>>,
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
            segments,
            0usize,
        ),
        load_operand::<Operand2>(
            operands.second,
            starts.second,
            applier,
            share,
            place,
            second,
            segments,
            1usize,
        ),
        load_operand::<Operand3>(
            operands.third,
            starts.third,
            applier,
            share,
            place,
            second,
            segments,
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
    start: OperandStart,
    applier: &Applier<'_>,
    share: &Share<'_>,
    place: OutputPlace,
    second: ComptimeOption<Vector<Stored2, Wide>>,
    segments: ComptimeOption<InSegments<Wide>>,
    #[comptime] nth: usize,
) -> Field<Real, Wide> {
    let accessed = comptime![applier.spec.operands[nth]];
    // Operands are read at the application and not with the input, where they would take registers.
    // Weights and biases come from the cache, once for each tile.
    if comptime![accessed == CompanionAccess::None] {
        Field::<Real, Wide>::none()
    } else if comptime![accessed == CompanionAccess::Second] {
        Field::<Real, Wide>::some(Vector::cast_from(second.unwrap()))
    } else if comptime![accessed == CompanionAccess::SecondAgain] {
        let second = second_of(share, place.outer, place.element);
        Field::<Real, Wide>::some(Vector::cast_from(second.unwrap()))
    } else if comptime![accessed == CompanionAccess::OfTile] {
        Field::<Real, Wide>::some(Vector::new(start.of_tile))
    } else {
        let companion = applier.companions.index(comptime![nth + 1]);
        let of_segments = comptime![applier.spec.of_segments[nth]];
        let along = comptime![share.access.direction == Direction::Along];
        let mut at = start.at;
        if comptime![of_segments] {
            at += segments.unwrap().number(0usize) * companion.segment;
        } else {
            at += strided(&share.geometry.reduced, &companion.reduced, place.outer);
            at += place.element * companion.inner;
        }
        let policy = ComptimeOption::new_None();
        let mut loaded = load_elements::<E>(slices, at, companion.inner, share, policy, accessed);
        if comptime![of_segments && along] {
            let segments = segments.unwrap();
            if !segments.same {
                let elements = slices.elements.unwrap();
                #[unroll]
                for component in 1..comptime![share.access.vector] {
                    let at = start.at + segments.number(component) * companion.segment;
                    loaded.insert(component, elements[at]);
                }
            }
        }
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
    segments: ComptimeOption<InSegments<Single>>,
) -> Reals<Single> {
    let operands = applier.operands;
    Record::<RealTypes, Single>::new(
        edge_operand::<Operand>(
            operands.first,
            starts.first,
            applier,
            share,
            outer,
            edge,
            segments,
            0usize,
        ),
        edge_operand::<Operand2>(
            operands.second,
            starts.second,
            applier,
            share,
            outer,
            edge,
            segments,
            1usize,
        ),
        edge_operand::<Operand3>(
            operands.third,
            starts.third,
            applier,
            share,
            outer,
            edge,
            segments,
            2usize,
        ),
        Field::<Real, Single>::none(),
        Field::<Real, Single>::none(),
    )
}

#[cube]
fn edge_operand<E: Float>(
    slices: CompanionSlices<E>,
    start: OperandStart,
    applier: &Applier<'_>,
    share: &Share<'_>,
    outer: usize,
    edge: Edge,
    segments: ComptimeOption<InSegments<Single>>,
    #[comptime] nth: usize,
) -> Field<Real, Single> {
    let accessed = comptime![applier.spec.operands[nth]];
    if comptime![accessed == CompanionAccess::None] {
        Field::<Real, Single>::none()
    } else if comptime![
        accessed == CompanionAccess::Second || accessed == CompanionAccess::SecondAgain
    ] {
        Field::<Real, Single>::some(Vector::cast_from(edge.second.unwrap()))
    } else if comptime![accessed == CompanionAccess::OfTile] {
        Field::<Real, Single>::some(Vector::new(start.of_tile))
    } else {
        let companion = applier.companions.index(comptime![nth + 1]);
        let mut at = start.at;
        if comptime![applier.spec.of_segments[nth]] {
            at += segments.unwrap().number(0usize) * companion.segment;
        } else {
            at += strided(&share.geometry.reduced, &companion.reduced, outer);
            at += edge.element * companion.inner;
        }
        let elements = slices.elements.unwrap();
        Field::<Real, Single>::some(Vector::new(Real::cast_from(elements[at])))
    }
}
