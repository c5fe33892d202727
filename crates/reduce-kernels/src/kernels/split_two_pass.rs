//! The first launch of a split in two: several cubes per output tile, each with a partial result.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction};

use super::{
    args::{InputArrays, KernelTypes, PartialArrays, input_of, partials_of},
    geometry::Geometry,
    reducer::Reducer,
    share::{Share, share_among_cubes},
    team::Team,
    total::total,
};
use crate::operator::{AccumulatorTypes, Columns, OperatorRef, Parameters, Single, Wide, Width};

/// Each of `cubes` cubes reduces a share of each tile, and stores its accumulators as partial
/// results. Those of cube `c` start at `c * outputs`, in the order of the canonical kept
/// dimensions.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_split_two_pass(
    _types: &KernelTypes,
    input: &InputArrays,
    partials: &mut PartialArrays,
    geometry: &Geometry,
    parameters: &Parameters,
    cubes: usize,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let input = input_of(input);
    let mut partials = partials_of(partials);
    let reducer = Reducer::new(parameters, team, operator);
    let block = CUBE_POS / cubes;
    let cube = CUBE_POS % cubes;
    let share = share_among_cubes(&input, geometry, block, cube, cubes, access, team);
    // Partials of one cube lie side by side, so neighbouring units of the merge read neighbouring
    // partials.
    let first = cube * geometry.outputs + share.tile.index;
    match comptime![access.direction] {
        Direction::Along => store_total::<Single>(&mut partials, first, &share, &reducer),
        Direction::Across => store_total::<Wide>(&mut partials, first, &share, &reducer),
    }
}

/// Stores what this cube has accumulated of a tile as partials from number `first` on.
#[cube]
fn store_total<N: Width>(
    partials: &mut Columns<AccumulatorTypes, Single>,
    first: usize,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) {
    let total = total::<N>(share, reducer);
    #[unroll]
    for nth in 0..N::value().comptime() {
        // The comparison stands outside of `&&`: CubeCL 0.11 makes a branch of an operand that is a
        // call or a macro.
        let exists = comptime![nth as u32] < share.tile.results;
        if share.place.member == 0 && exists {
            partials.put(first + nth, total.component(nth));
        }
    }
}
