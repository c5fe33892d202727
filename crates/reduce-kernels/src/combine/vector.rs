//! The lanes of a vector.

use cubecl::prelude::*;

use crate::operator::{Fields, FieldsOf, Operator, Types};

/// Merges the lanes of an accumulator from the first to the last.
#[cube]
pub(crate) fn combine_lanes<O: Operator, T: Types, N: Size>(
    accumulator: FieldsOf<O::Fields, T, N>,
) -> FieldsOf<O::Fields, T, Const<1>> {
    let lanes = N::value().comptime();
    let mut total = O::Fields::lane::<T, N>(accumulator, 0usize);
    #[unroll]
    for lane in 1..lanes {
        total = O::merge::<T, Const<1>>(total, O::Fields::lane::<T, N>(accumulator, lane));
    }
    total
}
