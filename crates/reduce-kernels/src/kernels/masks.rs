//! Masks that are added to scores: 0 where a key is seen, and `-inf` elsewhere.

use cubecl::{ir::ElemType, prelude::*};

use super::geometry::{Dim, Divisor, offsets};
use crate::operator::element_wise::lowest;

/// Writes a row for each query. The last query sees all keys, and each one before it one less.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn mask_later_keys<E: Numeric>(
    mask: &mut [E],
    per_row: &Divisor,
    queries: usize,
    keys: usize,
    count: usize,
    #[define(E)] _element: ElemType,
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if position < count {
        let (query, key) = per_row.div_mod(position);
        // Sums, because a difference may be negative. Neither is above the number of elements.
        mask[position] = zero_if::<E>(key + queries <= query + keys);
    }
}

/// Writes a row for each length, whose first elements are seen.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn mask_after_lengths<L: Int, E: Numeric>(
    lengths: &[L],
    mask: &mut [E],
    rows: &Sequence<Dim>,
    per_row: &Divisor,
    count: usize,
    #[define(L, E)] _elements: [ElemType; 2],
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if position < count {
        let (row, key) = per_row.div_mod(position);
        let length = lengths[offsets(rows, row).input];
        mask[position] = zero_if::<E>(is_before::<L>(key, length));
    }
}

/// Whether the index is below the length.
#[cube]
fn is_before<L: Int>(index: usize, length: L) -> bool {
    let element = elem_type_of::<L>();
    if comptime![element.size() == size_of::<u64>()] {
        // Indices may have 32 bits, in which a length of 2^32 would be 0.
        L::cast_from(index) < length
    } else {
        // A narrow type may not hold the index.
        length > L::from_int(0) && index < usize::cast_from(length)
    }
}

/// 0 or `-inf`. Some devices convert elements of 16 bits, but do not compute with them.
#[cube]
fn zero_if<E: Numeric>(is_seen: bool) -> E {
    E::cast_from(select(is_seen, 0.0f32, lowest::<f32>()))
}
