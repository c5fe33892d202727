//! The loads of a unit in a step.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction, SegmentsPlan};

use super::regions::Places;
use crate::{
    kernels::{
        geometry::CompanionAccess,
        load::{AtEnd, Loaded, edge_at, load, position_across},
        share::Share,
    },
    operator::{Position, Stored, Stored2, Wide},
};

/// The loads of a unit in a step. Those of places outside of the axis repeat elements of it.
#[derive(CubeType)]
pub(super) struct Fetched {
    pub(super) values: Sequence<RuntimeCell<Vector<Stored, Wide>>>,
    /// The same of the second input, if there is one.
    pub(super) seconds: Sequence<RuntimeCell<Vector<Stored2, Wide>>>,
    #[cube(comptime)]
    paired: bool,
}

#[cube]
impl Fetched {
    /// Loads that have not been issued.
    pub(super) fn new(share: &Share<'_>) -> Fetched {
        let paired = comptime![share.input.second_access != CompanionAccess::None];
        let mut values = Sequence::<RuntimeCell<Vector<Stored, Wide>>>::new();
        let mut seconds = Sequence::<RuntimeCell<Vector<Stored2, Wide>>>::new();
        #[unroll]
        for _ in 0..comptime![share.access.loads_in_flight] {
            values.push(RuntimeCell::new(Vector::empty()));
            if comptime![paired] {
                seconds.push(RuntimeCell::new(Vector::empty()));
            }
        }
        Fetched { values, seconds, paired }
    }

    /// The same loads, so that those of the next step may be issued in their place.
    pub(super) fn copied(&self) -> Fetched {
        let mut values = Sequence::<RuntimeCell<Vector<Stored, Wide>>>::new();
        let mut seconds = Sequence::<RuntimeCell<Vector<Stored2, Wide>>>::new();
        #[unroll]
        for k in 0..self.values.len().comptime() {
            values.push(RuntimeCell::new(self.values.index(k).read()));
            if comptime![self.paired] {
                seconds.push(RuntimeCell::new(self.seconds.index(k).read()));
            }
        }
        Fetched { values, seconds, paired: comptime![self.paired] }
    }

    /// Issues the loads of the step that begins at place `start`.
    pub(super) fn issue(
        &self,
        share: &Share<'_>,
        places: &Places,
        start: usize,
        #[comptime] members: usize,
    ) {
        let access = comptime![share.access];
        let in_flight = comptime![access.loads_in_flight];
        let len_of_step = comptime![members * SegmentsPlan::share(access)];
        // The branch asks about the step, so that all loads of a unit are issued together.
        if start >= places.before && start + len_of_step <= places.end {
            #[unroll]
            for k in 0..in_flight {
                self.issue_at(share, places, place_of_load(share, start, k, members), k);
            }
        } else if places.end > places.before {
            #[unroll]
            for k in 0..in_flight {
                let place = place_of_load(share, start, k, members);
                self.issue_near_edge(share, places, place, k);
            }
        }
    }

    /// Issues load number `k`, from a place inside of the axis on.
    fn issue_at(&self, share: &Share<'_>, places: &Places, place: usize, #[comptime] k: usize) {
        let nth = load_number(places, place, comptime![share.access]);
        let loaded = load(share, nth, AtEnd::Never);
        self.values.index(k).store(loaded.value);
        if comptime![self.paired] {
            self.seconds.index(k).store(loaded.second.unwrap());
        }
    }

    /// The same where some elements may lie outside of the axis.
    fn issue_near_edge(
        &self,
        share: &Share<'_>,
        places: &Places,
        place: usize,
        #[comptime] k: usize,
    ) {
        let access = comptime![share.access];
        let width = comptime![SegmentsPlan::share(access) / access.loads_in_flight];
        let inside = place >= places.before && place + width <= places.end;
        if comptime![access.direction == Direction::Across || width == 1] {
            self.issue_at(share, places, clamp_max(place, places.end - 1), k);
        } else if inside {
            self.issue_at(share, places, place, k);
        } else {
            let mut value = Vector::<Stored, Wide>::empty();
            let mut second = Vector::<Stored2, Wide>::empty();
            #[unroll]
            for component in 0..width {
                let element = places.position(clamp_max(place + component, places.end - 1));
                let edge = edge_at(share, 0usize, element, true.runtime());
                value.insert(component, edge.value.extract(0usize));
                if comptime![self.paired] {
                    second.insert(component, edge.second.unwrap().extract(0usize));
                }
            }
            self.values.index(k).store(value);
            if comptime![self.paired] {
                self.seconds.index(k).store(second);
            }
        }
    }

    /// Load number `k` of the unit, which begins at a place.
    pub(super) fn loaded(
        &self,
        share: &Share<'_>,
        places: &Places,
        place: usize,
        #[comptime] k: usize,
    ) -> Loaded {
        let second = if comptime![self.paired] {
            ComptimeOption::new_Some(self.seconds.index(k).read())
        } else {
            ComptimeOption::new_None()
        };
        Loaded {
            value: self.values.index(k).read(),
            second,
            position: position_of(share, places, place),
            valid: true.runtime(),
        }
    }
}

/// The positions of the elements of the load that begins at a place. Elements before the axis have
/// those of others; they belong to no region.
#[cube]
pub(super) fn position_of(share: &Share<'_>, places: &Places, place: usize) -> Position {
    match comptime![share.access.direction] {
        Direction::Along => {
            let step = share.geometry.inner_target_stride;
            let element = share.input.element(place - places.before);
            Position { start: share.geometry.position(element * step), step }
        }
        Direction::Across => position_across(share.geometry, share.input.element(place)),
    }
}

/// The place of the first element of a unit's load number `k` of a step. Along the reduction,
/// neighbouring units load what lies side by side, and across outputs each loads its share.
#[cube]
pub(super) fn place_of_load(
    share: &Share<'_>,
    start: usize,
    #[comptime] k: usize,
    #[comptime] members: usize,
) -> usize {
    let access = comptime![share.access];
    let member = share.place.member as usize;
    match comptime![access.direction] {
        Direction::Along => start + (comptime![k * members] + member) * comptime![access.vector],
        Direction::Across => start + member * comptime![SegmentsPlan::share(access)] + k,
    }
}

/// The number of the load that begins at a place. Those of peeled rows count from the first whole
/// vector.
#[cube]
pub(super) fn load_number(places: &Places, place: usize, #[comptime] access: Access) -> usize {
    match comptime![access.direction] {
        Direction::Along => {
            let peeled = usize::cast_from(places.before > 0);
            place / comptime![access.vector] - peeled
        }
        Direction::Across => place,
    }
}
