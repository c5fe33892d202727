//! The order in which the elements of an output are combined. Plans with equal trees give equal
//! bits.

use crate::{
    plan::{Combine, Merge, Plan, Schedule},
    problem::{Direction, Problem},
};

/// How the elements of one output are dealt and combined: everything of a plan that its bits depend
/// on.
///
/// The load with the number `i` of a slice goes to unit `i % (units * cubes)`. A unit combines its
/// loads in their order, then its components. Units combine in trees, the lanes of a plane before
/// planes; then cubes do. Neighbours combine first everywhere. Nothing here says which outputs a cube works on,
/// or how many: no output's bits depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    direction: Direction,
    /// Elements of a load that belong to one output, and whether the ends of rows are peeled.
    components: usize,
    peeled: bool,
    /// Whether the last elements of rows along the reduction, whose vectors are realigned, are read
    /// one by one.
    realigned: bool,
    /// Loads that are taken as a block, or 1 for operators that take elements one by one.
    block: usize,
    /// Units of a cube.
    units: u32,
    /// Units that combine before the others do.
    lanes: u32,
    cubes: u32,
    /// Units that merge what several cubes leave.
    merging: u32,
    /// Whether elements are taken in two passes.
    in_passes: bool,
}

impl Tree {
    /// The tree of a plan for a problem.
    pub(crate) fn of(plan: &Plan, problem: &Problem) -> Self {
        let (access, schedule) = (plan.access, plan.schedule);
        let units = schedule.units_per_output();
        let along = access.direction == Direction::Along;
        let lanes = match schedule.combine() {
            Some(Combine::Plane { lanes }) if along => lanes.min(units),
            // One tree over all units is that of a plane with as many lanes.
            _ => units,
        };
        Self {
            direction: access.direction,
            components: if along { access.vector } else { 1 },
            peeled: along && access.peeled,
            realigned: access.realigns_along(),
            block: if problem.operator().blockwise { access.loads_in_flight } else { 1 },
            units,
            lanes,
            cubes: schedule.cubes_per_output(),
            merging: plan.merging_units(),
            in_passes: access.in_passes,
        }
    }
}

impl Plan {
    /// Units that merge the partials of an output across outputs in a batch-invariant plan,
    /// whatever units the last cube has.
    pub(crate) const MERGING_UNITS_ACROSS: u32 = 8;

    /// Units that merge the partials of an output, which several cubes leave. 0 if there are none.
    #[must_use]
    pub fn merging_units(&self) -> u32 {
        match self.schedule {
            Schedule::Split { merge: Merge::SecondLaunch { units_per_output, .. }, .. } => {
                units_per_output
            }
            Schedule::Split { merge: Merge::LastCube, .. } => {
                let all = self.schedule.units_per_cube() / self.outputs_of_cube().max(1);
                let across = self.access.direction == Direction::Across;
                match self.numerics.is_batch_invariant() && across {
                    true => all.min(Self::MERGING_UNITS_ACROSS),
                    false => all,
                }
            }
            _ => 0,
        }
    }
}
