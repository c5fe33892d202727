//! Pairwise summation: short chains that merge in a tree keep the rounding error of a long share
//! small.

use cubecl::prelude::*;

use crate::operator::{
    A, Accumulator, AccumulatorTypes, Columns, OperatorRef, Parameters, Single, Width, merge,
};

/// Number of levels of the tree.
const LEVELS: u32 = 12;

/// Number of loads in a chain; with blocks, their number times the loads of each. Measured with a
/// sum of 2^28 f32 on one H200, 331 elements per component: 261.4 us with chains of 64, whose totals
/// pass through local memory; 245.7 us with one chain of up to 512; 246.1 us without a tree.
pub(super) const CHAIN: usize = 512;

/// The totals of the chains that a unit has completed.
///
/// A chain merges with its neighbour, the pair with the neighbouring pair, and so on, as a binary
/// counter carries. Level `l` holds the total of 2^l chains wherever bit `l` of their number is
/// set. With `n` chains, each element takes part in about `log2 n` merges instead of up to `n`
/// (pairwise summation; Higham, "The accuracy of floating point summation", 1993). The last level
/// collects all totals that are carried past it.
///
/// Operators with long merges hold and merge one component at a time, which takes less code and
/// fewer registers.
#[derive(CubeType, Clone, Copy)]
pub(super) struct Tree<N: Size> {
    vectors: Columns<AccumulatorTypes, N>,
    components: Columns<AccumulatorTypes, Single>,
}

#[cube]
impl<N: Width> Tree<N> {
    pub(super) fn new(#[comptime] operator: OperatorRef) -> Self {
        let levels = comptime![LEVELS as usize + 1];
        let fields = comptime![operator.0.fields];
        let components = N::value().comptime();
        let apart = comptime![operator.0.merges_in_loops()];
        Tree::<N> {
            vectors: Columns::local(levels, comptime![if apart { 0 } else { fields }]),
            components: Columns::local(
                comptime![levels * components],
                comptime![if apart { fields } else { 0 }],
            ),
        }
    }

    /// Takes the total of a chain, after `chains` others. With `last`, returns the total of all
    /// chains; until then, what it returns has no meaning. `zero` is 0, which compilers must not
    /// know. They would unroll a loop whose number of turns they can bound.
    pub(super) fn take(
        self,
        chain: Accumulator<N>,
        chains: u32,
        last: bool,
        zero: u32,
        parameters: &Parameters,
        #[comptime] operator: OperatorRef,
    ) -> Accumulator<N> {
        let mut total = chain;
        if comptime![operator.0.merges_in_loops()] {
            let components = N::value().comptime();
            for nth in 0..comptime![components as u32] + zero {
                let part = total.component_at(nth);
                let stride = comptime![components as u32].runtime();
                let mut levels = self.components;
                let part = carry::<Single>(
                    &mut levels,
                    stride,
                    nth,
                    chains,
                    part,
                    last,
                    zero,
                    parameters,
                    operator,
                );
                total = total.with_component(nth, part);
            }
        } else {
            let (stride, first) = (1u32.runtime(), 0u32.runtime());
            let mut levels = self.vectors;
            total = carry::<N>(
                &mut levels,
                stride,
                first,
                chains,
                total,
                last,
                zero,
                parameters,
                operator,
            );
        }
        total
    }
}

/// Merges the total of a chain with those of the levels that are carried. Level `l` is held at
/// index `l * stride + first`.
#[cube]
fn carry<N: Width>(
    levels: &mut Columns<AccumulatorTypes, N>,
    stride: u32,
    first: u32,
    chains: u32,
    chain: Accumulator<N>,
    last: bool,
    zero: u32,
    parameters: &Parameters,
    #[comptime] operator: OperatorRef,
) -> Accumulator<N> {
    let mut total = chain;
    let top = comptime![LEVELS] + zero;
    let mut level = 0u32;
    while level <= top && (holds(chains, level) || (last && chains >> level > 0)) {
        if holds(chains, level) {
            let held = levels.at((level * stride + first) as usize);
            total = merge::<N>(operator, held, total, parameters);
        }
        level += 1;
    }
    if !last {
        levels.put((clamp_max(level, LEVELS) * stride + first) as usize, total);
    }
    total
}

/// Whether a level holds a total.
#[cube]
fn holds(chains: u32, level: u32) -> bool {
    let carried = chains >> level;
    carried & 1 == 1 || (level == LEVELS && carried > 0)
}

/// Whether the operator gains from short chains, for accumulators of the kernel's types.
#[cube]
pub(super) fn is_pairwise(#[comptime] operator: OperatorRef) -> comptime_type!(bool) {
    let element = storage_type_of::<A>();
    comptime![operator.0.pairwise && element.is_float()]
}
