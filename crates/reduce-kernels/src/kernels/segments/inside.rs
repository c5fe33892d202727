//! Steps that lie inside of one region: units add up what they load, as other reductions do.

use cubecl::prelude::*;

use super::{
    fetch::{Fetched, load_number, place_of_load},
    regions::Places,
    step::with_taken,
};
use crate::{
    kernels::{
        accumulate::{push_loaded, push_single, push_whole},
        combine::combine_vectors,
        load::{AtEnd, Loaded, load},
        reducer::Reducer,
        share::Share,
        total::combine_team,
    },
    operator::{Accumulator, Wide, Width, block::all},
};

/// What a unit has of the region that it is inside of.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Inside<N: Width> {
    /// Of operators with block functions.
    pub(super) of_blocks: Accumulator<N>,
    /// Of others, an accumulator for each component of a load.
    pub(super) of_loads: Accumulator<Wide>,
}

#[cube]
impl<N: Width> Inside<N> {
    pub(super) fn nothing(reducer: &Reducer<'_>) -> Inside<N> {
        Inside::<N> { of_blocks: reducer.identity::<N>(), of_loads: reducer.identity::<Wide>() }
    }

    /// With the loads of the step that begins at place `start`.
    pub(super) fn with(
        &self,
        fetched: &Fetched,
        start: usize,
        places: &Places,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
        #[comptime] members: usize,
    ) -> Inside<N> {
        let in_flight = comptime![share.access.loads_in_flight];
        let mut of_blocks = self.of_blocks;
        let mut of_loads = self.of_loads;
        let mut loads = Sequence::<Loaded>::new();
        #[unroll]
        for k in 0..in_flight {
            let place = place_of_load(share, start, k, members);
            loads.push(fetched.loaded(share, places, place, k));
        }
        if comptime![reducer.operator.0.blocks.is_some()] {
            let (pushed, taken) =
                push_whole::<N>(of_blocks, &loads, reducer, share.input.is_in_order());
            if comptime![reducer.operator.0.may_refuse()] {
                let as_block = all::<N>(taken);
                if as_block {
                    of_blocks = pushed;
                } else {
                    // Loads come from the cache a second time, so that one copy of the push has to
                    // do.
                    let first = place_of_load(share, start, 0usize, members);
                    let second = place_of_load(share, start, 1usize, members);
                    for k in 0..in_flight + share.unknown_zero() as usize {
                        let place = first + k * (second - first);
                        let nth = load_number(places, place, comptime![share.access]);
                        let loaded = load(share, nth, AtEnd::Never);
                        of_blocks = push_single::<N>(of_blocks, loaded, share, reducer);
                    }
                    of_blocks = with_taken::<N>(of_blocks, pushed, taken);
                }
            } else {
                of_blocks = pushed;
            }
        } else {
            #[unroll]
            for k in 0..in_flight {
                of_loads = push_loaded::<Wide>(of_loads, *loads.index(k), reducer);
            }
        }
        Inside::<N> { of_blocks, of_loads }
    }

    /// What all units have, complete in member 0. Every unit of the cube must get here.
    pub(super) fn total(&self, share: &Share<'_>, reducer: &Reducer<'_>) -> Accumulator<N> {
        let of_unit = if comptime![reducer.operator.0.blocks.is_some()] {
            self.of_blocks
        } else {
            combine_vectors::<N>(self.of_loads, comptime![share.access.direction], reducer)
        };
        combine_team::<N>(of_unit, share.unknown_zero(), reducer)
    }
}
