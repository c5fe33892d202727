//! The units of a plane.

use cubecl::prelude::*;

use crate::operator::{Fields, FieldsOf, Operator, Parameters, Types};

/// Merges groups of `lanes` units that stand `distance` apart in their plane, in halving
/// butterflies; the first of each group ends up with the total. Every unit of the plane must get
/// here, and a cube's units must fill its planes in the order of their positions, as they do on every
/// backend whose cubes are one-dimensional and hold whole planes.
#[cube]
pub(crate) fn combine_plane<O: Operator, T: Types, N: Size>(
    accumulator: FieldsOf<O::Fields, T, N>,
    parameters: &Parameters,
    #[comptime] lanes: u32,
    #[comptime] distance: u32,
) -> FieldsOf<O::Fields, T, N> {
    let mut total = accumulator;
    #[unroll]
    for level in 0..comptime![lanes.ilog2()] {
        let mask = comptime![(lanes >> (level + 1)) * distance];
        let partner = O::Fields::shuffle_xor::<T::Accumulator, N>(total, mask);
        total = O::merge::<T, N>(total, partner, parameters);
    }
    total
}
