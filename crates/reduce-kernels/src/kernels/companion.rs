//! Tensors beside the input, with strides along the same dimensions: a second input, operands of an
//! application, and stored results.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{
    args::CompanionSlices,
    cache::{CachePolicy, read_vector},
    geometry::{Companion, CompanionAccess, strided},
    share::Share,
};
use crate::operator::Wide;

/// The components of a load that belong to the tile.
#[cube]
pub(super) fn components_inside(share: &Share<'_>) -> u32 {
    match comptime![share.access.direction] {
        Direction::Along => comptime![share.access.vector as u32].runtime(),
        Direction::Across => share.tile.results,
    }
}

/// The offset of a tile in a companion.
#[cube]
pub(super) fn tile_offset(companion: &Companion, share: &Share<'_>) -> usize {
    let (geometry, tile) = (share.geometry, share.tile);
    match comptime![share.access.direction] {
        Direction::Along => strided(&geometry.kept, &companion.kept, tile.index),
        // The host prepares no reciprocal for this division, which a unit does once for each tile.
        Direction::Across => {
            let row = tile.index / geometry.inner_len;
            let column = tile.index - row * geometry.inner_len;
            strided(&geometry.kept, &companion.kept, row) + column * companion.inner
        }
    }
}

/// The elements of a companion that go with a load. The first lies at offset `at`, and neighbours
/// lie `inner` apart. Components beyond the tile repeat its last. Vectors are read under `policy`.
#[cube]
pub(super) fn load_elements<E: Float>(
    slices: CompanionSlices<E>,
    at: usize,
    inner: usize,
    share: &Share<'_>,
    policy: CachePolicy,
    #[comptime] accessed: CompanionAccess,
) -> Vector<E, Wide> {
    let vector = comptime![share.access.vector];
    match accessed {
        CompanionAccess::Vector => {
            let vectors = slices.vectors.unwrap();
            read_vector::<E>(&vectors[at / vector], policy)
        }
        CompanionAccess::Same => {
            let elements = slices.elements.unwrap();
            Vector::new(elements[at])
        }
        _ => {
            let elements = slices.elements.unwrap();
            // A tile past the last has no components inside; its loads repeat the first element.
            let last = clamp_min(components_inside(share), 1u32) - 1;
            let mut value = Vector::<E, Wide>::empty();
            #[unroll]
            for component in 0..vector {
                let inside = clamp_max(comptime![component as u32].runtime(), last);
                value.insert(component, elements[at + inside as usize * inner]);
            }
            value
        }
    }
}
