//! How units learn what lies before their elements in a chunk.

use cubecl::prelude::*;
use reduce_planner::{Combine, Direction, ScanPlan};

use super::ScanSpec;
use crate::{
    kernels::{
        combine::scan_lanes,
        reducer::Reducer,
        share::Share,
        team::{Team, unit_in_plane},
    },
    operator::{Accumulator, AccumulatorTypes, Columns, Width},
};

/// What a unit has learned of a chunk.
#[derive(CubeType, Clone)]
#[expand(derive(Clone))]
pub(super) struct Learned<N: Width> {
    /// For each total of the unit, what lies before it in the chunk.
    pub(super) before: Sequence<Accumulator<N>>,
    /// That of the whole chunk.
    pub(super) total: Accumulator<N>,
}

/// The memory through which the units of a cube tell each other their totals. Totals are in the
/// order of the row: of a plane's units, number `k` of them all comes before their number `k + 1`.
/// Where units learn through shared memory alone, those of the whole cube are one plane in this.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Exchange<N: Width> {
    /// The totals of planes, or of units where these do not exchange values in planes.
    near: Columns<AccumulatorTypes, N>,
    /// Those of groups of units, and behind them that of the chunk.
    far: Columns<AccumulatorTypes, N>,
}

/// Totals that a unit tells the others.
pub(super) fn totals_per_unit(spec: ScanSpec) -> u32 {
    match spec.access.direction {
        Direction::Along if !spec.transposes => spec.access.loads_in_flight as u32,
        _ => 1,
    }
}

/// Whether units tell each other anything through shared memory.
fn has_memory(team: Team) -> bool {
    team.units_per_tile > 1 && !team.is_in_plane()
}

/// Totals that one unit adds up, of so many.
fn group(totals: u32) -> u32 {
    totals.min(ScanPlan::SUMMED_BY_A_UNIT)
}

#[cube]
impl<N: Width> Exchange<N> {
    pub(super) fn new(#[comptime] spec: ScanSpec, reducer: &Reducer<'_>) -> Exchange<N> {
        let team = comptime![spec.team];
        let fields = comptime![if has_memory(team) { reducer.operator.0.fields } else { 0 }];
        let totals = comptime![team.units_per_tile * totals_per_unit(spec)];
        let tiles = comptime![team.tiles_per_cube()];
        let (near, far, fields_of_far) = comptime![match team.combine {
            // Those of a chunk lie beside those of the next one, so units need not wait until all
            // have read them.
            Combine::Plane { lanes } => (2 * team.units_per_tile / lanes, 0, 0),
            Combine::Shared => (totals, totals / group(totals) + 1, fields),
        }];
        Exchange::<N> {
            near: Columns::shared(comptime![near as usize * tiles], fields),
            far: Columns::shared(comptime![far as usize * tiles], fields_of_far),
        }
    }

    /// From the totals of each unit, what lies before each of them. `call` counts the calls. Every
    /// unit of the cube must get here.
    pub(super) fn through(
        &self,
        totals: &Sequence<Accumulator<N>>,
        call: u32,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
    ) -> Learned<N> {
        let team = comptime![reducer.team];
        if comptime![team.units_per_tile == 1] {
            alone::<N>(totals, reducer)
        } else {
            match comptime![team.combine] {
                Combine::Plane { lanes } => {
                    if comptime![team.is_in_plane()] {
                        in_plane::<N>(totals, share.place.member, share, reducer, lanes)
                    } else {
                        self.across_planes(totals, call, share, reducer, lanes)
                    }
                }
                Combine::Shared => self.through_shared(totals, share, reducer),
            }
        }
    }

    /// The lanes of each plane scan their totals, and then those of all planes, which is the same
    /// work in each plane and takes one barrier.
    fn across_planes(
        &self,
        totals: &Sequence<Accumulator<N>>,
        call: u32,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
        #[comptime] lanes: u32,
    ) -> Learned<N> {
        let team = comptime![reducer.team];
        let (planes, stride) = comptime![(team.units_per_tile / lanes, team.unit_stride)];
        let tiles = comptime![team.tiles_per_cube() as u32];
        let each = comptime![planes.div_ceil(lanes)];
        let zero = share.unknown_zero();
        let member = share.place.member;
        let (plane, lane) = (member / lanes, member % lanes);
        let first = (call & 1) * comptime![planes * tiles] + share.place.tile;
        let mut near = self.near;
        let own = in_plane::<N>(totals, lane, share, reducer, lanes);
        if lane == 0 {
            near.put((first + plane * tiles) as usize, own.total);
        }
        sync_cube();
        // Each lane has the totals of neighbouring planes, or of one. What lies before this plane is
        // known to the lane that has its total.
        let mut of_planes = near.at((first + clamp_max(lane * each, planes - 1) * tiles) as usize);
        let mut within = reducer.identity::<N>();
        if comptime![each > 1] {
            #[unroll]
            for nth in 1..each {
                if lane * each + nth <= plane {
                    within = of_planes;
                }
                let next = near.at((first + (lane * each + nth) * tiles) as usize);
                of_planes = reducer.merge::<N>(of_planes, next);
            }
        }
        let scanned = scan_lanes::<N>(of_planes, lane, zero, reducer, lanes, stride);
        let first_lane = unit_in_plane() - lane * stride;
        let last_lane = comptime![(planes / each - 1) * stride];
        let mut earlier = scanned.shuffle_up(stride);
        if lane == 0 {
            earlier = reducer.identity::<N>();
        }
        if comptime![each > 1] {
            earlier = reducer.merge::<N>(earlier, within);
        }
        let earlier = earlier.shuffle_from(first_lane + plane / each * stride);
        let mut before = Sequence::<Accumulator<N>>::new();
        #[unroll]
        for k in 0..totals.len().comptime() {
            before.push(reducer.merge::<N>(earlier, *own.before.index(k)));
        }
        Learned::<N> { before, total: scanned.shuffle_from(first_lane + last_lane) }
    }

    /// One unit adds up a few totals, and one more those of all such units: both take fewer merges
    /// than a scan by all units, whose steps would each have a barrier too.
    fn through_shared(
        &self,
        totals: &Sequence<Accumulator<N>>,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
    ) -> Learned<N> {
        let team = comptime![reducer.team];
        let units = comptime![team.units_per_tile];
        let count = comptime![units * totals.len() as u32];
        let group = comptime![group(count)];
        let groups = comptime![count / group];
        let tiles = comptime![team.tiles_per_cube()];
        let zero = share.unknown_zero();
        let (member, tile) = (share.place.member, share.place.tile as usize);
        let mut near = self.near;
        let mut far = self.far;
        #[unroll]
        for k in 0..totals.len().comptime() {
            let nth = comptime![k as u32 * units] + member;
            near.put(nth as usize * tiles + tile, *totals.index(k));
        }
        sync_cube();
        if member < groups {
            let first = (member * group) as usize * tiles + tile;
            let total = put_what_is_before::<N>(near, first, tiles, group + zero, reducer);
            far.put(member as usize * tiles + tile, total);
        }
        sync_cube();
        if comptime![groups > 1] {
            if member == 0 {
                let total = put_what_is_before::<N>(far, tile, tiles, groups + zero, reducer);
                far.put(comptime![groups as usize * tiles] + tile, total);
            }
            sync_cube();
        }
        let mut before = Sequence::<Accumulator<N>>::new();
        #[unroll]
        for k in 0..totals.len().comptime() {
            let nth = comptime![k as u32 * units] + member;
            let of_group = near.at(nth as usize * tiles + tile);
            if comptime![groups > 1] {
                let earlier = far.at((nth / group) as usize * tiles + tile);
                before.push(reducer.merge::<N>(earlier, of_group));
            } else {
                before.push(of_group);
            }
        }
        let last = comptime![if groups > 1 { groups as usize * tiles } else { 0 }];
        Learned::<N> { before, total: far.at(last + tile) }
    }
}

/// What lies before the totals of a unit that has a row alone.
#[cube]
fn alone<N: Width>(totals: &Sequence<Accumulator<N>>, reducer: &Reducer<'_>) -> Learned<N> {
    let count = totals.len().comptime();
    let mut before = Sequence::<Accumulator<N>>::new();
    before.push(reducer.identity::<N>());
    #[unroll]
    for k in 0..count {
        before.push(reducer.merge::<N>(*before.index(k), *totals.index(k)));
    }
    let total = *before.index(count);
    Learned::<N> { before, total }
}

/// The lanes of one plane, or of a part of it, have a row, or neighbouring loads of one.
#[cube]
pub(super) fn in_plane<N: Width>(
    totals: &Sequence<Accumulator<N>>,
    lane: u32,
    share: &Share<'_>,
    reducer: &Reducer<'_>,
    #[comptime] lanes: u32,
) -> Learned<N> {
    let zero = share.unknown_zero();
    let stride = comptime![reducer.team.unit_stride];
    let last = unit_in_plane() - lane * stride + comptime![(lanes - 1) * stride];
    let count = totals.len().comptime();
    let mut before = Sequence::<Accumulator<N>>::new();
    let mut of_loads = Sequence::<Accumulator<N>>::new();
    of_loads.push(reducer.identity::<N>());
    #[unroll]
    for k in 0..count {
        let scanned = scan_lanes::<N>(*totals.index(k), lane, zero, reducer, lanes, stride);
        let earlier = scanned.shuffle_up(stride);
        let mut all = *of_loads.index(k);
        if lane > 0 {
            all = reducer.merge::<N>(*of_loads.index(k), earlier);
        }
        before.push(all);
        of_loads.push(reducer.merge::<N>(*of_loads.index(k), scanned.shuffle_from(last)));
    }
    Learned::<N> { before, total: *of_loads.index(count) }
}

/// Replaces each of `count` totals, `step` places apart, by what lies before it. Returns the total
/// of all.
#[cube]
fn put_what_is_before<N: Width>(
    totals: Columns<AccumulatorTypes, N>,
    first: usize,
    #[comptime] step: usize,
    count: u32,
    reducer: &Reducer<'_>,
) -> Accumulator<N> {
    let mut totals = totals;
    let mut running = reducer.identity::<N>();
    for nth in 0..count {
        let place = first + nth as usize * step;
        let next = reducer.merge::<N>(running, totals.at(place));
        totals.put(place, running);
        running = next;
    }
    running
}
