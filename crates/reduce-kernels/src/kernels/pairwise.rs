//! Pairwise summation: short chains that merge in a tree keep the rounding error of a long share
//! small.

use cubecl::prelude::*;

use crate::operator::{
    A, Accumulator, AccumulatorTypes, Columns, OperatorRef, Parameters, Width, merge,
};

/// Number of levels of the tree.
const LEVELS: u32 = 12;

/// Number of elements per component in a chain. Measured with a sum of 2^28 f32 on one H200, 331
/// elements per component: 261.4 us with chains of 64, whose totals pass through local memory;
/// 245.7 us with one chain of up to 512; 246.1 us without a tree.
pub(super) const CHAIN: usize = 512;

/// The totals of the chains that a unit has completed.
///
/// A chain merges with its neighbour, the pair with the neighbouring pair, and so on, as a binary
/// counter carries. Level `l` holds the total of 2^l chains wherever bit `l` of their number is
/// set. With `n` chains, each element takes part in about `log2 n` merges instead of up to `n`
/// (pairwise summation; Higham, "The accuracy of floating point summation", 1993). The last level
/// collects all totals that are carried past it.
#[derive(CubeType, CubeTypeMut)]
pub(super) struct Tree<N: Size> {
    levels: Columns<AccumulatorTypes, N>,
    chains: u32,
}

#[cube]
impl<N: Width> Tree<N> {
    pub(super) fn new(#[comptime] operator: OperatorRef) -> Self {
        Tree::<N> {
            levels: Columns::<AccumulatorTypes, N>::local(
                comptime![LEVELS as usize + 1],
                comptime![operator.0.fields],
            ),
            chains: 0u32,
        }
    }

    /// Adds the total of a complete chain.
    pub(super) fn take(
        &mut self,
        chain: Accumulator<N>,
        parameters: &Parameters,
        #[comptime] operator: OperatorRef,
    ) {
        let mut total = chain;
        let mut level = 0u32;
        while level < LEVELS && (self.chains >> level) & 1 == 1 {
            let held = self.levels.at(level as usize);
            total = merge::<N>(operator, held, total, parameters);
            level += 1;
        }
        if level == LEVELS && self.chains >> LEVELS > 0 {
            let held = self.levels.at(level as usize);
            total = merge::<N>(operator, held, total, parameters);
        }
        self.levels.put(level as usize, total);
        self.chains += 1;
    }

    /// The total of all chains and of `rest`, an incomplete one.
    pub(super) fn total(
        &self,
        rest: Accumulator<N>,
        parameters: &Parameters,
        #[comptime] operator: OperatorRef,
    ) -> Accumulator<N> {
        let mut total = rest;
        let mut level = 0u32;
        while level < LEVELS && self.chains >> level > 0 {
            if (self.chains >> level) & 1 == 1 {
                let held = self.levels.at(level as usize);
                total = merge::<N>(operator, held, total, parameters);
            }
            level += 1;
        }
        if self.chains >> LEVELS > 0 {
            let held = self.levels.at(LEVELS.runtime() as usize);
            total = merge::<N>(operator, held, total, parameters);
        }
        total
    }
}

/// Whether the operator gains from short chains, for accumulators of the kernel's types.
#[cube]
pub(super) fn is_pairwise(#[comptime] operator: OperatorRef) -> comptime_type!(bool) {
    let element = storage_type_of::<A>();
    comptime![operator.0.pairwise && element.is_float()]
}
