//! The units of a cube, through shared memory.

use cubecl::prelude::*;

use super::Team;
use crate::operator::{Fields, FieldsOf, Operator, Parameters, Types};

/// Merges the accumulators of every `lanes`-th worker of a team, in a halving tree: barriers
/// throughout, so every unit of the cube must get here.
#[cube]
pub(crate) fn combine_cube<O: Operator, T: Types, N: Size>(
    accumulator: FieldsOf<O::Fields, T, N>,
    parameters: &Parameters,
    #[comptime] team: Team,
    #[comptime] lanes: u32,
) -> FieldsOf<O::Fields, T, N> {
    let slots = comptime![(team.units / lanes) as usize];
    let distance = comptime![team.distance];
    let members = comptime![team.workers / lanes];
    let worker = UNIT_POS / distance % comptime![team.workers];
    let member = worker / lanes;
    // One lane of each group holds the group's accumulator.
    let leads = worker == member * lanes;
    let slot = (UNIT_POS / lanes) as usize;
    let mut shared = O::Fields::shared::<T::Accumulator, N>(slots);
    let mut total = accumulator;
    if leads {
        O::Fields::put::<T::Accumulator, N>(&mut shared, slot, total);
    }
    sync_cube();
    #[unroll]
    for level in 0..comptime![members.ilog2()] {
        let half = comptime![members >> (level + 1)];
        if leads && member < half {
            let partner = slot + comptime![(half * distance) as usize];
            let other = O::Fields::at::<T::Accumulator, N>(&shared, partner);
            total = O::merge::<T, N>(total, other, parameters);
            O::Fields::put::<T::Accumulator, N>(&mut shared, slot, total);
        }
        sync_cube();
    }
    total
}
