//! Offsets of the segments that sorted keys name, and the other way round.

use cubecl::prelude::*;

/// Writes, for each number up to that of the segments, where the keys from that number on begin.
/// Each unit bisects, so that neither long nor empty segments make another wait.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn offsets_of_keys<K: Numeric, O: Numeric>(
    keys: &[K],
    offsets: &mut [O],
    count: usize,
    stride: usize,
    segments: usize,
) {
    let segment = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if segment <= segments {
        let first = K::cast_from(segment);
        let mut lower = 0usize;
        let mut upper = count;
        while lower < upper {
            let middle = lower + (upper - lower) / 2;
            if keys[middle * stride] < first {
                lower = middle + 1;
            } else {
                upper = middle;
            }
        }
        offsets[segment] = O::cast_from(lower);
    }
}

/// Writes, for each position, how many offsets do not lie behind it, less one: the number of its
/// segment. Each unit bisects.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn numbers_of_elements<O: Numeric, K: Numeric>(
    offsets: &[O],
    keys: &mut [K],
    count: usize,
    stride: usize,
    len: usize,
) {
    let position = CUBE_POS * CUBE_DIM as usize + UNIT_POS as usize;
    if position < len {
        let mut lower = 0usize;
        let mut upper = count;
        while lower < upper {
            let middle = lower + (upper - lower) / 2;
            if usize::cast_from(offsets[middle * stride]) <= position {
                lower = middle + 1;
            } else {
                upper = middle;
            }
        }
        keys[position] = K::cast_from(lower) - K::from_int(1);
    }
}
