//! The lanes of a vector.

use cubecl::prelude::*;

use crate::operator::{Fields, FieldsOf, Operator, Parameters, Types};

/// Merges the lanes of an accumulator: neighbours first, then neighbouring pairs, and so on.
#[cube]
pub(crate) fn combine_lanes<O: Operator, T: Types, N: Size>(
    accumulator: FieldsOf<O::Fields, T, N>,
    parameters: &Parameters,
) -> FieldsOf<O::Fields, T, Const<1>> {
    let lanes = N::value().comptime();
    // The lanes, then what pairs of the list merge to: the last is the total.
    let mut parts = Sequence::<FieldsOf<O::Fields, T, Const<1>>>::new();
    #[unroll]
    for lane in 0..lanes {
        parts.push(O::Fields::lane::<T::Accumulator, N>(accumulator, lane));
    }
    #[unroll]
    for pair in 0..lanes - 1 {
        let left = *parts.index(comptime![2 * pair]);
        let right = *parts.index(comptime![2 * pair + 1]);
        parts.push(O::merge::<T, Const<1>>(left, right, parameters));
    }
    *parts.index(comptime![2 * lanes - 2])
}
