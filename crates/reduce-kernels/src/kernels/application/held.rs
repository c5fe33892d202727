//! Tiles whose elements are held between the reduction and the application.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::Hold;
use crate::{
    kernels::{
        accumulate::{Share, accumulate_edges, load_inside, take_loads},
        args::Input,
        combine::combine_components,
        geometry::{Geometry, Tile, unknown_zero},
        load::{AtEnd, Loaded},
        single_pass::taken,
        team::Team,
        total::combine_team,
    },
    operator::{
        Accumulator, In, OperatorRef, Parameters, Real, Single, Slice, Stored, Wide, Width, merge,
    },
};

/// The loads that a unit holds. Those in shared memory come after those in registers, and each unit
/// has places of its own.
#[derive(CubeType)]
pub(super) struct Held {
    pub(super) loads: Sequence<Loaded>,
    /// The elements of these loads, converted once: compilers do not see that two conversions of one
    /// 16-bit element are the same. Empty if units have no registers left for them; see
    /// [`Hold::is_converted`].
    values: Sequence<Vector<In, Wide>>,
    pub(super) kept: ComptimeOption<Slice<Vector<Stored, Wide>>>,
}

#[cube]
impl Held {
    /// The elements of load number `nth` of those in registers.
    pub(super) fn value(&self, #[comptime] nth: usize) -> Vector<In, Wide> {
        let converted = self.values.len().comptime();
        if comptime![converted > 0] {
            *self.values.index(nth)
        } else {
            Vector::cast_from(self.loads.index(nth).value)
        }
    }

    /// The same elements in the type in which results are applied. They do not pass through a
    /// narrower type that an operator accumulates in.
    pub(super) fn applied_to(&self, #[comptime] nth: usize) -> Vector<Real, Wide> {
        let pushed = elem_type_of::<In>();
        let real = elem_type_of::<Real>();
        if comptime![pushed == real] {
            Vector::cast_from(self.value(nth))
        } else {
            Vector::cast_from(self.loads.index(nth).value)
        }
    }
}

/// Issues the loads that are held in registers.
#[cube]
pub(super) fn hold_loads(
    input: &Input,
    geometry: &Geometry,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] hold: Hold,
) -> Held {
    let mut loads = Sequence::<Loaded>::new();
    let mut values = Sequence::<Vector<In, Wide>>::new();
    if comptime![hold != Hold::Nothing] {
        // A unit without loads repeats those of another.
        let other = clamp_max(share.first, geometry.loads_per_tile - 1);
        #[unroll]
        for k in 0..comptime![access.loads_in_flight] {
            let nth = share.first + k * share.stride;
            let loaded = load_inside(input, geometry, tile, nth, other, AtEnd::Never, access);
            if comptime![hold.is_converted()] {
                values.push(Vector::cast_from(loaded.value));
            }
            loads.push(loaded);
        }
    }
    let places = comptime![hold.in_shared() * team.units_per_cube as usize];
    let kept = if comptime![places > 0] {
        let memory = Shared::<[Vector<Stored, Wide>]>::new_slice(places);
        ComptimeOption::new_Some(Slice::of(&memory))
    } else {
        ComptimeOption::new_None()
    };
    Held { loads, values, kept }
}

/// The accumulator of the loads that a unit holds, of which it stores those that follow the ones in
/// registers.
#[cube]
fn of_unit<N: Width>(
    held: &mut Held,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] hold: Hold,
    #[comptime] operator: OperatorRef,
) -> Accumulator<N> {
    let mut total = taken::<N>(
        &held.loads,
        input,
        geometry,
        parameters,
        tile,
        share.first,
        share.stride,
        access,
        operator,
    );
    if comptime![hold.in_shared() > 0] {
        let mut kept = held.kept.unwrap();
        let in_flight = comptime![access.loads_in_flight];
        let units = comptime![team.units_per_cube as usize];
        let zero = unknown_zero(geometry.tiles, geometry.outputs);
        let mut first = share.first + share.stride * in_flight;
        let mut slot = UNIT_POS as usize;
        for _ in 0..comptime![(hold.in_shared() / in_flight) as u32] + zero {
            if first < geometry.loads_per_tile {
                let mut loads = Sequence::<Loaded>::new();
                #[unroll]
                for k in 0..in_flight {
                    let nth = first + k * share.stride;
                    let loaded =
                        load_inside(input, geometry, tile, nth, first, AtEnd::Never, access);
                    kept[slot + k * units] = loaded.value;
                    loads.push(loaded);
                }
                let (pushed, _) = take_loads::<N>(
                    total,
                    &loads,
                    input,
                    geometry,
                    parameters,
                    tile,
                    first,
                    share.stride,
                    false,
                    access,
                    operator,
                );
                total = pushed;
            }
            first += share.stride * in_flight;
            slot += comptime![units * in_flight];
        }
    }
    total
}

/// Along, the accumulator of a tile that is held, complete in member 0.
#[cube]
pub(super) fn held_along(
    held: &mut Held,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] hold: Hold,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Single> {
    let of_vectors = if comptime![operator.0.blocks.is_some()] {
        of_unit::<Single>(
            held, input, geometry, parameters, tile, share, access, team, hold, operator,
        )
    } else {
        let wide = of_unit::<Wide>(
            held, input, geometry, parameters, tile, share, access, team, hold, operator,
        );
        combine_components(wide, parameters, operator)
    };
    let of_unit = if comptime![access.peeled] {
        let edges = accumulate_edges(input, geometry, parameters, tile, share, access, operator);
        merge::<Single>(operator, of_vectors, edges, parameters)
    } else {
        of_vectors
    };
    let zero = unknown_zero(geometry.tiles, geometry.outputs);
    combine_team::<Single>(of_unit, parameters, zero, team, operator)
}

/// Across, the accumulators of a tile that is held, complete in member 0.
#[cube]
pub(super) fn held_across(
    held: &mut Held,
    input: &Input,
    geometry: &Geometry,
    parameters: &Parameters,
    tile: Tile,
    share: Share,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] hold: Hold,
    #[comptime] operator: OperatorRef,
) -> Accumulator<Wide> {
    let wide = of_unit::<Wide>(
        held, input, geometry, parameters, tile, share, access, team, hold, operator,
    );
    let zero = unknown_zero(geometry.tiles, geometry.outputs);
    combine_team::<Wide>(wide, parameters, zero, team, operator)
}
