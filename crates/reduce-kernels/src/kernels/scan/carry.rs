//! What is carried from one chunk of a row to the next.

use cubecl::prelude::*;
use reduce_planner::ScanPlan;

use crate::{
    kernels::{
        pairwise::{Tree, is_pairwise},
        reducer::Reducer,
    },
    operator::{Accumulator, Width},
};

/// What lies before the next chunk.
///
/// Were each chunk merged with all before it, the rounding error of a sum would grow with the
/// number of chunks. So only a few chunks are added up like this. Their total then moves to the
/// tree of pairwise summation, and what lies before is merged from its levels anew, in the order of
/// the row. All units carry the same: merging costs less than telling each other.
#[derive(CubeType)]
pub(super) struct Carry<N: Width> {
    /// What lies before the next chunk.
    pub(super) before: Accumulator<N>,
    /// What lies before the row's part, and before the chunks of `recent`.
    start: Accumulator<N>,
    older: Accumulator<N>,
    recent: Accumulator<N>,
    /// Chunks in `recent`, and totals in the tree.
    chunks: u32,
    totals: u32,
    tree: Tree<N>,
}

#[cube]
impl<N: Width> Carry<N> {
    pub(super) fn new(start: Accumulator<N>, reducer: &Reducer<'_>) -> Carry<N> {
        let operator = comptime![reducer.operator];
        let pairwise = is_pairwise(operator);
        let fields = comptime![if pairwise { operator.0.fields } else { 0 }];
        Carry::<N> {
            before: start,
            start,
            older: start,
            recent: reducer.identity::<N>(),
            chunks: 0u32.runtime(),
            totals: 0u32.runtime(),
            tree: Tree::of_fields(fields, operator),
        }
    }

    /// Goes on behind a chunk with this total. `zero` is 0, the same in all units, and unknown to
    /// compilers.
    pub(super) fn add(&mut self, total: Accumulator<N>, zero: u32, reducer: &Reducer<'_>) {
        let pairwise = is_pairwise(comptime![reducer.operator]);
        if comptime![pairwise] {
            self.recent = reducer.merge::<N>(self.recent, total);
            self.chunks += 1;
            if self.chunks == comptime![ScanPlan::CHUNKS_PER_TOTAL] {
                let all = self.tree.take(self.recent, self.totals, true, zero, reducer);
                self.older = reducer.merge::<N>(self.start, all);
                self.tree.take(self.recent, self.totals, false, zero, reducer);
                self.totals += 1;
                self.recent = reducer.identity::<N>();
                self.chunks = 0u32;
            }
            self.before = reducer.merge::<N>(self.older, self.recent);
        } else {
            self.before = reducer.merge::<N>(self.before, total);
        }
    }
}
