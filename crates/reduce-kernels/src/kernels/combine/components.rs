//! The components of a vector.

use cubecl::prelude::*;

use crate::{
    kernels::reducer::Reducer,
    operator::{Accumulator, Single, Wide},
};

/// Merges the components of an accumulator: neighbours first, then neighbouring pairs, and so on.
#[cube]
pub(in crate::kernels) fn combine_components(
    accumulator: Accumulator<Wide>,
    reducer: &Reducer<'_>,
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
        parts.push(reducer.merge::<Single>(left, right));
    }
    *parts.index(comptime![2 * width - 2])
}
