//! The units of a cube, through shared memory.

use cubecl::prelude::*;

use crate::{
    kernels::team::Team,
    operator::{Accumulator, AccumulatorTypes, Columns, OperatorRef, Parameters, Width, merge},
};

/// Merges the accumulators of every `lanes`-th member of a team, in a halving tree through shared
/// memory. It contains barriers, so every unit of the cube must call it.
#[cube]
pub(super) fn combine_cube<N: Width>(
    accumulator: Accumulator<N>,
    parameters: &Parameters,
    #[comptime] team: Team,
    #[comptime] lanes: u32,
    #[comptime] operator: OperatorRef,
) -> Accumulator<N> {
    let slots = comptime![(team.units_per_cube / lanes) as usize];
    let unit_stride = comptime![team.unit_stride];
    let leaders = comptime![team.units_per_tile / lanes];
    let member = UNIT_POS / unit_stride % comptime![team.units_per_tile];
    let leader = member / lanes;
    // The first of every `lanes` lanes holds the accumulator of all of them.
    let leads = member == leader * lanes;
    let slot = (UNIT_POS / lanes) as usize;
    let mut shared = Columns::<AccumulatorTypes, N>::shared(slots, comptime![operator.0.fields]);
    let mut total = accumulator;
    if leads {
        shared.put(slot, total);
    }
    sync_cube();
    #[unroll]
    for level in 0..comptime![leaders.ilog2()] {
        let half = comptime![leaders >> (level + 1)];
        if leads && leader < half {
            let partner = slot + comptime![(half * unit_stride) as usize];
            let other = shared.at(partner);
            total = merge::<N>(operator, total, other, parameters);
            shared.put(slot, total);
        }
        sync_cube();
    }
    total
}
