//! Short chains, merged pairwise: how a unit keeps the rounding of a long share small.

use cubecl::prelude::*;

use crate::operator::{Fields, FieldsOf, Operator, Parameters, Types};

/// Levels of the tree.
const LEVELS: u32 = 12;

/// Elements per lane that a chain takes. A sum of 2^28 f32 on one H200, 331 elements per lane: 261.4 us
/// with chains of 64, whose totals pass through local memory; 245.7 with one chain of up to 512, and
/// 246.1 without a tree.
pub(crate) const CHAIN: usize = 512;

/// What a unit has accumulated in chains that are complete. A chain merges with its neighbour, the
/// pair with the neighbouring pair, and so on, as a binary counter carries: level `l` holds the total
/// of 2^l chains wherever bit `l` of their number is set. Each element then passes `log2` of the number
/// of chains instead of all of them (pairwise summation; Higham, "The accuracy of floating point
/// summation", 1993). What is carried past the last level gathers there.
#[derive(CubeType, CubeTypeMut)]
pub(crate) struct Cascade<O: Operator, T: Types, N: Size> {
    levels: <O::Fields as Fields>::Slots<T::Accumulator, N>,
    chains: u32,
}

#[cube]
impl<O: Operator, T: Types, N: Size> Cascade<O, T, N> {
    pub(crate) fn new() -> Self {
        Cascade::<O, T, N> {
            levels: O::Fields::local::<T::Accumulator, N>(comptime![LEVELS as usize + 1]),
            chains: 0u32,
        }
    }

    /// Takes a complete chain.
    pub(crate) fn take(&mut self, chain: FieldsOf<O::Fields, T, N>, parameters: &Parameters) {
        let mut total = chain;
        let mut level = 0u32;
        while level < LEVELS && (self.chains >> level) & 1 == 1 {
            total = self.merged(level, total, parameters);
            level += 1;
        }
        if level == LEVELS && self.chains >> LEVELS > 0 {
            total = self.merged(level, total, parameters);
        }
        O::Fields::put::<T::Accumulator, N>(&mut self.levels, level as usize, total);
        self.chains += 1;
    }

    /// The total of all chains and of `rest`, an incomplete one.
    pub(crate) fn total(
        &self,
        rest: FieldsOf<O::Fields, T, N>,
        parameters: &Parameters,
    ) -> FieldsOf<O::Fields, T, N> {
        let mut total = rest;
        let mut level = 0u32;
        while level < LEVELS && self.chains >> level > 0 {
            if (self.chains >> level) & 1 == 1 {
                total = self.merged(level, total, parameters);
            }
            level += 1;
        }
        if self.chains >> LEVELS > 0 {
            total = self.merged(LEVELS.runtime(), total, parameters);
        }
        total
    }

    /// What `level` holds, and `later` after it.
    fn merged(
        &self,
        level: u32,
        later: FieldsOf<O::Fields, T, N>,
        parameters: &Parameters,
    ) -> FieldsOf<O::Fields, T, N> {
        let held = O::Fields::at::<T::Accumulator, N>(&self.levels, level as usize);
        O::merge::<T, N>(held, later, parameters)
    }
}

/// Whether `O` gains from short chains, for accumulators of these types.
#[cube]
pub(crate) fn is_pairwise<O: Operator, T: Types>() -> comptime_type!(bool) {
    let element = storage_type_of::<T::A>();
    comptime![O::PAIRWISE && element.is_float()]
}
