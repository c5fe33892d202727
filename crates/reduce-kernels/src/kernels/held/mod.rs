//! Tiles whose elements are held: for a second pass over them, or until the results are applied to
//! them.

mod passes;

use cubecl::prelude::*;

pub(super) use self::passes::results_in_passes;

use super::{
    accumulate::{load_inside, take_loads, taken},
    combine::combine_vectors,
    conversion::as_pushed,
    geometry::CompanionAccess,
    load::{AtEnd, Loaded, load},
    reducer::Reducer,
    share::Share,
    team::Team,
    total::{combine_team, has_edges, with_edges},
};
use crate::operator::{Accumulator, In, Real, Slice, Stored, Stored2, Wide, Width};

/// Where units hold the elements of their tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Hold {
    /// Nowhere: they are taken as they are read.
    Nothing,
    /// As many loads as are in flight in registers, and this many more in shared memory.
    Elements {
        /// Loads of a unit in shared memory, a multiple of those in flight.
        in_shared: usize,
        /// Loads of each unit that exist in all units. They are its first ones.
        sure: usize,
        /// Whether several cubes share each tile.
        by_cubes: bool,
        /// Whether elements of the second input are read again each time, because slices share
        /// them.
        second_again: bool,
    },
}

impl Hold {
    /// How many of so many loads of each unit exist in all units.
    fn sure(self, loads: usize) -> usize {
        match self {
            Hold::Nothing => 0,
            Hold::Elements { sure, .. } => sure.min(loads),
        }
    }

    /// Whether units keep elements converted. Those of tiles in shared memory and of tiles that
    /// cubes share leave the registers to other loads.
    fn is_converted(self) -> bool {
        matches!(self, Hold::Elements { in_shared: 0, by_cubes: false, .. })
    }

    fn reads_second_again(self) -> bool {
        matches!(self, Hold::Elements { second_again: true, .. })
    }

    pub(super) fn in_shared(self) -> usize {
        match self {
            Hold::Nothing => 0,
            Hold::Elements { in_shared, .. } => in_shared,
        }
    }
}

/// The loads that a unit holds. Those in shared memory come after those in registers, and each unit
/// has places of its own.
#[derive(CubeType)]
pub(super) struct Held {
    pub(super) loads: Sequence<Loaded>,
    /// The elements of these loads, converted once: compilers do not see that two conversions of
    /// one 16-bit element are the same. Empty if units have no registers left for them; see
    /// [`Hold::is_converted`].
    values: Sequence<Vector<In, Wide>>,
    pub(super) kept: ComptimeOption<Slice<Vector<Stored, Wide>>>,
    #[cube(comptime)]
    pub(super) hold: Hold,
    /// The number of units that hold loads in the same shared memory.
    #[cube(comptime)]
    units: usize,
}

/// A turn of the loop over the loads in shared memory. Each turn takes as many as a unit has in
/// flight.
#[derive(CubeType)]
pub(super) struct Turn {
    /// The number of the turn's first load in the tile.
    pub(super) first: usize,
    /// The place of that load in shared memory.
    place: usize,
}

#[cube]
impl Held {
    /// The number of turns, which compilers must not know: see
    /// [`unknown_zero()`](crate::kernels::geometry::unknown_zero).
    pub(super) fn turns(&self, share: &Share<'_>) -> u32 {
        let in_flight = comptime![share.access.loads_in_flight];
        comptime![(self.hold.in_shared() / in_flight) as u32] + share.unknown_zero()
    }

    pub(super) fn first_turn(&self, share: &Share<'_>) -> Turn {
        Turn { first: share.first + share.block_stride(), place: UNIT_POS as usize }
    }

    pub(super) fn end_turn(&self, turn: &mut Turn, share: &Share<'_>) {
        turn.first += share.block_stride();
        turn.place += comptime![self.units * share.access.loads_in_flight];
    }

    /// The place in shared memory of load number `nth` of a turn.
    pub(super) fn place(&self, turn: &Turn, #[comptime] nth: usize) -> usize {
        turn.place + comptime![nth * self.units]
    }

    /// The elements of load number `nth` of those in registers.
    pub(super) fn value(&self, #[comptime] nth: usize) -> Vector<In, Wide> {
        let converted = self.values.len().comptime();
        if comptime![converted > 0] {
            *self.values.index(nth)
        } else {
            as_pushed(self.loads.index(nth).value)
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
    share: &Share<'_>,
    #[comptime] team: Team,
    #[comptime] hold: Hold,
) -> Held {
    let mut loads = Sequence::<Loaded>::new();
    let mut values = Sequence::<Vector<In, Wide>>::new();
    // All loads are issued before the first is used. A load that does not exist repeats another, and
    // `valid` says so when its elements are pushed. Of most loads it is known that they exist.
    if comptime![hold != Hold::Nothing] {
        let in_flight = comptime![share.access.loads_in_flight];
        // A unit without loads repeats those of another.
        let other = clamp_max(share.first, share.geometry.loads_per_tile - 1);
        #[unroll]
        for k in 0..in_flight {
            let nth = share.first + k * share.stride;
            let loaded = if comptime![k < hold.sure(in_flight)] {
                surely_valid(load(share, nth, AtEnd::Never))
            } else {
                load_inside(share, nth, other, AtEnd::Never)
            };
            if comptime![hold.is_converted()] {
                values.push(as_pushed(loaded.value));
            }
            loads.push(loaded);
        }
    }
    // The same load of neighbouring units lies side by side. No barrier is needed: a unit reads
    // only what it has written itself.
    let units = comptime![team.units_per_cube as usize];
    let places = comptime![hold.in_shared() * units];
    let kept = if comptime![places > 0] {
        let memory = Shared::<[Vector<Stored, Wide>]>::new_slice(places);
        ComptimeOption::new_Some(Slice::of(&memory))
    } else {
        ComptimeOption::new_None()
    };
    Held { loads, values, kept, hold, units }
}

/// A load that is known to exist.
#[cube]
fn surely_valid(loaded: Loaded) -> Loaded {
    Loaded {
        value: loaded.value,
        second: loaded.second,
        position: loaded.position,
        valid: true.runtime(),
    }
}

/// The accumulator of the loads that a unit holds, of which it stores those that follow the ones in
/// registers.
#[cube]
fn accumulate_held<N: Width>(
    held: &Held,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let mut total = taken::<N>(&held.loads, share, reducer);
    if comptime![held.hold.in_shared() > 0] {
        let mut kept = held.kept.unwrap();
        let mut turn = held.first_turn(share);
        for _ in 0..held.turns(share) {
            // The plan has counted turns for the longest share. Other units have no loads in the
            // last.
            if turn.first < share.geometry.loads_per_tile {
                let mut loads = Sequence::<Loaded>::new();
                #[unroll]
                for k in 0..comptime![share.access.loads_in_flight] {
                    let nth = turn.first + k * share.stride;
                    let loaded = load_inside(share, nth, turn.first, AtEnd::Never);
                    kept[held.place(&turn, k)] = loaded.value;
                    loads.push(loaded);
                }
                let (pushed, _) = take_loads::<N>(total, &loads, share, turn.first, reducer, false);
                total = pushed;
            }
            held.end_turn(&mut turn, share);
        }
    }
    total
}

/// The accumulator of a tile that is held, complete in member 0. `N` is
/// [`Single`](crate::operator::Single) along, and [`Wide`] across.
#[cube]
pub(super) fn held_total<N: Width>(
    held: &Held,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let vectors = if comptime![reducer.operator.0.blocks.is_some()] {
        accumulate_held::<N>(held, share, reducer)
    } else {
        let wide = accumulate_held::<Wide>(held, share, reducer);
        combine_vectors::<N>(wide, share.access.direction, reducer)
    };
    let of_unit = if comptime![has_edges(share.access)] {
        with_edges::<N>(vectors, share, reducer)
    } else {
        vectors
    };
    combine_team::<N>(of_unit, share.unknown_zero(), reducer)
}

/// The elements of the second input that go with load number `nth`, if there is one. A load past
/// the end repeats load `other`.
#[cube]
pub(super) fn second_of_load(
    share: &Share<'_>,
    nth: usize,
    other: usize,
) -> ComptimeOption<Vector<Stored2, Wide>> {
    if comptime![share.input.second_access == CompanionAccess::None] {
        ComptimeOption::new_None()
    } else {
        // The elements of the input, which are held, are not used: compilers drop their loads.
        let last = share.geometry.loads_per_tile - 1;
        load_inside(share, nth, clamp_max(other, last), AtEnd::Never).second
    }
}
