//! The components of a vector.

use cubecl::prelude::*;

use crate::operator::{Accumulator, OperatorRef, Parameters, Single, Wide, merge};

/// Merges the components of an accumulator: neighbours first, then neighbouring pairs, and so on.
#[cube]
pub(in crate::kernels) fn combine_components(
    accumulator: Accumulator<Wide>,
    parameters: &Parameters,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let width = Wide::value().comptime();
    // The list holds the components, then the merged pairs of the list. Its last entry is the
    // total.
    let mut parts = Sequence::<Accumulator<Single>>::new();
    #[unroll]
    for nth in 0..width {
        parts.push(accumulator.component(nth));
    }
    #[unroll]
    for pair in 0..width - 1 {
        let left = *parts.index(comptime![2 * pair]);
        let right = *parts.index(comptime![2 * pair + 1]);
        parts.push(merge::<Single>(operator, left, right, parameters));
    }
    *parts.index(comptime![2 * width - 2])
}
