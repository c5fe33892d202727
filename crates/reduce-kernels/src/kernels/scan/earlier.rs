//! Partial results of other tensors, which come before the first element of each row: those of the
//! shards before this one, or of what an earlier call has scanned.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::ScanSpec;
use crate::{
    kernels::{
        geometry::{Companion, strided},
        reducer::Reducer,
        share::Share,
        target::accumulator_of_words,
    },
    operator::{Accumulator, Width},
};

/// What comes before the first element of each row.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Earlier {
    words: ComptimeOption<EarlierWords>,
}

/// Accumulators as words of 32 bits. A slot has those of all rows.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct EarlierWords {
    words: Box<[u32]>,
    /// The first slot in memory of those that come before the rows, and their number.
    first: usize,
    slots: usize,
    /// Elements of each row that went into these slots.
    elements: usize,
    /// The strides of the rows' accumulators in a slot.
    rows: Companion,
}

/// Elements of other tensors that come before a row.
#[cube]
pub(super) fn elements_before_row(earlier: &Earlier) -> usize {
    #[comptime]
    match &earlier.words {
        ComptimeOption::Some(words) => words.elements,
        ComptimeOption::None => 0usize.runtime(),
    }
}

/// `before`, which lies between the beginning of the row and a part of it, with what comes before
/// the row.
#[cube]
pub(super) fn with_earlier<N: Width>(
    earlier: &Earlier,
    before: Accumulator<N>,
    share: &Share<'_>,
    #[comptime] spec: ScanSpec,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    #[comptime]
    match &earlier.words {
        ComptimeOption::Some(words) => {
            reducer.merge::<N>(words.merged::<N>(share, spec, reducer), before)
        }
        ComptimeOption::None => before,
    }
}

#[cube]
impl EarlierWords {
    /// The accumulators of a tile, merged in the order of the scan.
    fn merged<N: Width>(
        &self,
        share: &Share<'_>,
        #[comptime] spec: ScanSpec,
        reducer: &Reducer<'_>,
    ) -> Accumulator<N> {
        let (geometry, tile) = (share.geometry, share.tile);
        let width = N::value().comptime();
        let (row, column) = match comptime![spec.access.direction] {
            Direction::Along => (tile.index, 0usize.runtime()),
            Direction::Across => {
                let row = tile.index / geometry.inner_len;
                (row, tile.index - row * geometry.inner_len)
            }
        };
        let first = strided(&geometry.kept, &self.rows.kept, row);
        let last_column = geometry.inner_len - 1;
        let mut merged = reducer.identity::<N>();
        for nth in 0..self.slots {
            let slot = if comptime![spec.reverse] {
                self.first + self.slots - 1 - nth
            } else {
                self.first + nth
            };
            let mut of_slot = reducer.identity::<N>();
            #[unroll]
            for component in 0..width {
                // Columns behind the last of a row have no results.
                let own = clamp_max(column + component, last_column);
                let accumulator = accumulator_of_words(
                    &self.words,
                    slot,
                    first + own * self.rows.inner,
                    geometry.outputs,
                    comptime![reducer.operator],
                );
                of_slot =
                    of_slot.with_component(comptime![component as u32].runtime(), accumulator);
            }
            merged = reducer.merge::<N>(merged, of_slot);
        }
        merged
    }
}
