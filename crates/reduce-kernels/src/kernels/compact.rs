//! Elements that satisfy a predicate, side by side. A scan has counted them: `counts` has, at the
//! position of each element, how many there are up to it, with itself.

use cubecl::{ir::ElemType, prelude::*};

use super::geometry::{Dim, offsets};

/// Writes the elements that were counted, in their order, and how many they are.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn compact_elements<C: Int, E: Numeric>(
    input: &[E],
    counts: &[C],
    kept: &mut [E],
    total: &mut [C],
    dims: &Sequence<Dim>,
    elements: usize,
    #[define(C, E)] _types: [ElemType; 2],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if position < elements {
        let count = counts[position];
        if count > before::<C>(counts, position) {
            kept[usize::cast_from(count) - 1] = input[offsets(dims, position).input];
        }
        if position + 1 == elements {
            total[0] = count;
        }
    }
}

/// Writes the positions of the elements that were counted, and how many they are.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn compact_positions<C: Int>(
    counts: &[C],
    kept: &mut [C],
    total: &mut [C],
    elements: usize,
    #[define(C)] _type: ElemType,
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if position < elements {
        let count = counts[position];
        if count > before::<C>(counts, position) {
            kept[usize::cast_from(count) - 1] = C::cast_from(position);
        }
        if position + 1 == elements {
            total[0] = count;
        }
    }
}

/// How many elements before a position were counted.
#[cube]
fn before<C: Int>(counts: &[C], position: usize) -> C {
    let mut count = C::from_int(0);
    if position > 0 {
        count = counts[position - 1];
    }
    count
}
