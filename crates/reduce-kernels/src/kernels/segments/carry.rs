//! What shares have of regions that go on in others, in the order of the shares.

use cubecl::prelude::*;
use reduce_planner::{Combine, SegmentsPlan};

use crate::{
    kernels::{combine::scan_lanes, reducer::Reducer, share::Share},
    operator::{Accumulator, AccumulatorTypes, Columns, Slice, Width},
};

/// What some neighbouring shares have: behind the last end of a region in them, and whether there is
/// one.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Tail<N: Width> {
    pub(super) rest: Accumulator<N>,
    /// 0 if no region ends in them.
    pub(super) ends: u32,
}

#[cube]
impl<N: Width> Tail<N> {
    pub(super) fn new(rest: Accumulator<N>, ends: u32) -> Tail<N> {
        Tail::<N> { rest, ends }
    }

    /// That of no shares.
    pub(super) fn nothing(reducer: &Reducer<'_>) -> Tail<N> {
        Tail::<N> { rest: reducer.identity::<N>(), ends: 0u32.runtime() }
    }

    /// What lies behind the last end in these shares, after what `before` holds.
    fn after(&self, before: Accumulator<N>, reducer: &Reducer<'_>) -> Accumulator<N> {
        let mut rest = self.rest;
        if self.ends == 0 {
            rest = reducer.merge::<N>(before, self.rest);
        }
        rest
    }

    /// That of these shares and of those that follow them.
    fn and(&self, following: &Tail<N>, reducer: &Reducer<'_>) -> Tail<N> {
        let mut rest = following.rest;
        let mut ends = following.ends;
        if following.ends == 0 {
            rest = reducer.merge::<N>(self.rest, following.rest);
            ends = self.ends;
        }
        Tail::<N> { rest, ends }
    }
}

/// Tails in shared memory.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Tails<N: Width> {
    rests: Columns<AccumulatorTypes, N>,
    ends: Slice<u32>,
}

#[cube]
impl<N: Width> Tails<N> {
    pub(super) fn new(#[comptime] count: usize, #[comptime] fields: usize) -> Tails<N> {
        let rests = Columns::shared(count, fields);
        Tails::<N> { rests, ends: Slice::of(&Shared::<[u32]>::new_slice(count)) }
    }

    pub(super) fn put(&self, place: usize, tail: &Tail<N>) {
        let mut rests = self.rests;
        let mut ends = self.ends;
        rests.put(place, tail.rest);
        ends[place] = tail.ends;
    }

    pub(super) fn at(&self, place: usize) -> Tail<N> {
        Tail::<N> { rest: self.rests.at(place), ends: self.ends[place] }
    }
}

/// How units learn what the shares before theirs have.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Carry<N: Width> {
    /// Those of units, where these do not exchange values in planes.
    near: Tails<N>,
    /// Those of groups of units, if there are any.
    far: Tails<N>,
}

/// Members of an output that look back at others; more of them share the merges.
const MOST_LOOKING_BACK: u32 = 32;

/// Shares that one unit merges, where units do not exchange values in planes.
fn group(units_per_tile: u32) -> u32 {
    units_per_tile.min(SegmentsPlan::MERGED_BY_A_UNIT)
}

#[cube]
impl<N: Width> Carry<N> {
    pub(super) fn new(reducer: &Reducer<'_>) -> Carry<N> {
        let team = comptime![reducer.team];
        let fields = comptime![reducer.operator.0.fields];
        let (near, far) = comptime![match team.combine {
            Combine::Plane { .. } => (1, 1),
            Combine::Shared =>
                (team.units_per_cube, team.units_per_cube / group(team.units_per_tile),),
        }];
        Carry::<N> {
            near: Tails::new(comptime![near as usize], fields),
            far: Tails::new(comptime![far as usize], fields),
        }
    }

    /// From the tail of each share and from what the strip has before the step, what it has before
    /// the share, and in member 0 what it has behind the step. Every unit of the crew must get here.
    pub(super) fn through(
        &self,
        tail: &Tail<N>,
        of_strip: Accumulator<N>,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
    ) -> (Accumulator<N>, Accumulator<N>) {
        match comptime![reducer.team.combine] {
            Combine::Plane { lanes } => self.through_plane(tail, of_strip, share, reducer, lanes),
            Combine::Shared => {
                if comptime![reducer.team.units_per_tile <= MOST_LOOKING_BACK] {
                    self.looking_back(tail, of_strip, share, reducer)
                } else {
                    self.through_shared(tail, of_strip, share, reducer)
                }
            }
        }
    }

    /// The lanes of a plane scan it.
    fn through_plane(
        &self,
        tail: &Tail<N>,
        of_strip: Accumulator<N>,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
        #[comptime] lanes: u32,
    ) -> (Accumulator<N>, Accumulator<N>) {
        let lane = share.place.member;
        // A plane has as many units as lanes, and no more than a word of the ballot has bits.
        let ends = plane_ballot(tail.ends != 0).extract(0usize);
        // How many lanes before this one belong to the same region.
        let upto = ends & (u32::MAX >> (31 - lane));
        let reach = select(upto == 0, lane, lane + upto.leading_zeros() - 31);
        let rest = scan_lanes::<N>(tail.rest, reach, share.unknown_zero(), reducer, lanes, 1u32);
        let of_lanes = Tail::new(rest.shuffle_up(1u32), ends & ((1u32 << lane) - 1));
        let mut before = of_strip;
        if lane > 0 {
            before = of_lanes.after(of_strip, reducer);
        }
        let behind = Tail::new(rest.shuffle_from(comptime![lanes - 1].runtime()), ends);
        (before, behind.after(of_strip, reducer))
    }

    /// Members look back at those before them, to the last one with an end. Where segments are
    /// short, it is near.
    fn looking_back(
        &self,
        tail: &Tail<N>,
        of_strip: Accumulator<N>,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
    ) -> (Accumulator<N>, Accumulator<N>) {
        let members = comptime![reducer.team.units_per_tile];
        let step = comptime![reducer.team.tiles_per_cube()];
        let (member, tile) = (share.place.member, share.place.tile as usize);
        self.near.put(member as usize * step + tile, tail);
        sync_cube();
        let before = self.look_back(member, tile, of_strip, step, reducer);
        // Member 0 has none before it, and looks back from behind the last one.
        let mut running = before;
        if member == 0 {
            running = self.look_back(members.runtime(), tile, of_strip, step, reducer);
        }
        (before, running)
    }

    fn look_back(
        &self,
        member: u32,
        tile: usize,
        of_strip: Accumulator<N>,
        #[comptime] step: usize,
        reducer: &Reducer<'_>,
    ) -> Accumulator<N> {
        let mut rest = reducer.identity::<N>();
        let mut ends = 0u32.runtime();
        let mut other = member;
        while other > 0 && ends == 0 {
            other -= 1;
            let of_other = self.near.at(other as usize * step + tile);
            rest = reducer.merge::<N>(of_other.rest, rest);
            ends = of_other.ends;
        }
        Tail::new(rest, ends).after(of_strip, reducer)
    }

    /// One unit merges a few shares, and one more those of all such units: both take fewer merges
    /// than a scan by all units, whose steps would each have a barrier too.
    fn through_shared(
        &self,
        tail: &Tail<N>,
        of_strip: Accumulator<N>,
        share: &Share<'_>,
        reducer: &Reducer<'_>,
    ) -> (Accumulator<N>, Accumulator<N>) {
        let team = comptime![reducer.team];
        let group = comptime![group(team.units_per_tile)];
        let groups = comptime![team.units_per_tile / group];
        let step = comptime![team.tiles_per_cube()];
        let zero = share.unknown_zero();
        let (member, tile) = (share.place.member, share.place.tile as usize);
        let own = member as usize * step + tile;
        self.near.put(own, tail);
        sync_cube();
        if member < groups {
            let first = (member * group) as usize * step + tile;
            let nothing = Tail::nothing(reducer);
            let of_group =
                put_what_is_before(&self.near, &nothing, first, step, group + zero, reducer);
            self.far.put(own, &of_group);
        }
        sync_cube();
        let mut running = of_strip;
        if member == 0 {
            let start = Tail::new(of_strip, 0u32.runtime());
            let behind = put_what_is_before(&self.far, &start, tile, step, groups + zero, reducer);
            running = behind.rest;
        }
        sync_cube();
        let of_group = (member / group) as usize * step + tile;
        let before = self.far.at(of_group).and(&self.near.at(own), reducer);
        (before.rest, running)
    }
}

/// Replaces each of `count` tails, `step` places apart, by what lies before it, beginning with
/// `start`. Returns what lies before all that follows them.
#[cube]
fn put_what_is_before<N: Width>(
    tails: &Tails<N>,
    start: &Tail<N>,
    first: usize,
    step: usize,
    count: u32,
    reducer: &Reducer<'_>,
) -> Tail<N> {
    let mut rest = start.rest;
    let mut ends = start.ends;
    for nth in 0..count {
        let place = first + nth as usize * step;
        let before = Tail::new(rest, ends);
        let running = before.and(&tails.at(place), reducer);
        tails.put(place, &before);
        rest = running.rest;
        ends = running.ends;
    }
    Tail::new(rest, ends)
}
