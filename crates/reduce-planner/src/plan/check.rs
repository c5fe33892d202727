//! Every rule that a plan must obey to compute its problem on a device.
//!
//! The kernels rely on these rules for memory safety and for termination. Plans from a file are
//! arbitrary, so nothing here may overflow or divide by zero before the number is checked.

use crate::{
    device::Device,
    error::PlanError,
    illegal::{Illegal, Quantity},
    kind::ScheduleKind,
    limits::{self, INDEX_SLACK, NARROW_LIMIT},
    plan::{Access, Combine, Merge, Plan, Schedule},
    problem::{Direction, Problem},
    reproducible::{CHAIN, lanes},
};

/// Most bytes of published partials, whatever a tuning allows: indices of 32 bits reach every word.
pub(crate) const MOST_PUBLISHED_BYTES: u64 = 1 << 30;

impl Plan {
    /// Checks that the plan computes `problem` correctly on `device`, whatever its bits depend on.
    pub(crate) fn check_rules(&self, problem: &Problem, device: &Device) -> Result<(), PlanError> {
        if self.version != Self::VERSION {
            return Err(PlanError::Version { found: self.version, expected: Self::VERSION });
        }
        limits::check(problem, device)?;
        check_numbers(self, problem, device).map_err(|reason| self.unfit(device, reason))?;
        let (found, expected) = (self.numerics, problem.numerics());
        if found < expected || found.is_reproducible() != expected.is_reproducible() {
            return Err(self.unfit(device, Illegal::Numerics { found, expected }));
        }
        match problem.is_by_position() && !self.has_lanes(problem) {
            true => Err(self.unfit(device, Illegal::OtherBits { numerics: found })),
            false => Ok(()),
        }
    }

    /// The error that this plan cannot run on `device` for `reason`.
    #[must_use]
    pub fn unfit(&self, device: &Device, reason: Illegal) -> PlanError {
        device.unfit(self, reason)
    }
}

/// All rules for a problem and a device that agree with each other.
pub(crate) fn check_numbers(
    plan: &Plan,
    problem: &Problem,
    device: &Device,
) -> Result<(), Illegal> {
    check_access(plan.access, problem, device)?;
    check_accumulators(plan.access, problem)?;
    check_outputs_in_flight(plan.access, plan.schedule, problem)?;
    check_passes(plan, problem)?;
    check_schedule(plan, problem, device)
}

/// Several accumulators share the loads in flight of one output evenly. Only reductions by position
/// have them.
fn check_accumulators(access: Access, problem: &Problem) -> Result<(), Illegal> {
    let Access { accumulators, loads_in_flight: loads, outputs_in_flight, .. } = access;
    let divide = accumulators.is_power_of_two() && loads.is_multiple_of(accumulators);
    // Their totals are no chains that merge.
    let len = problem.reduction_len();
    let used =
        problem.is_by_position() && outputs_in_flight == 1 && len.div_ceil(CHAIN) <= lanes(len);
    match divide && (accumulators == 1 || used) {
        true => Ok(()),
        false => Err(Illegal::Accumulators { accumulators, loads }),
    }
}

/// [`check_numbers`] for a plan whose access has obeyed [`check_access`] with other loads in
/// flight.
pub(crate) fn check_beside(plan: &Plan, problem: &Problem, device: &Device) -> Result<(), Illegal> {
    check_loads(plan.access.loads_in_flight)?;
    check_outputs_in_flight(plan.access, plan.schedule, problem)?;
    check_schedule(plan, problem, device)
}

fn check_loads(loads: usize) -> Result<(), Illegal> {
    let max = Access::MOST_LOADS_IN_FLIGHT;
    if (1..=max).contains(&loads) { Ok(()) } else { Err(Illegal::LoadsInFlight { loads, max }) }
}

/// Every vector load is aligned, and its elements lie inside its inner dimension, or those that
/// count where rows are realigned.
pub(crate) fn check_access(
    access: Access,
    problem: &Problem,
    device: &Device,
) -> Result<(), Illegal> {
    let Access { direction, vector, peeled, realigned, loads_in_flight, .. } = access;
    check_loads(loads_in_flight)?;
    if !vector.is_power_of_two() || vector > device.max_vector.max(1) {
        return Err(Illegal::Vector { vector, max: device.max_vector });
    }
    if realigned && problem.second().is_some() {
        return Err(Illegal::SecondRealigned);
    }
    if realigned && (vector == 1 || peeled) {
        return Err(Illegal::NothingToRealign);
    }
    if vector == 1 {
        return if peeled { Err(Illegal::PeeledElements) } else { Ok(()) };
    }
    if problem.input_span() < vector {
        return Err(Illegal::InputTooShort { vector, span: problem.input_span() });
    }
    let bytes = vector.saturating_mul(problem.input().bytes());
    if bytes > device.load_bytes {
        return Err(Illegal::LoadTooWide { bytes, max: device.load_bytes });
    }
    if !problem.alignment().is_multiple_of(bytes) {
        return Err(Illegal::Misaligned { bytes, alignment: problem.alignment() });
    }
    let aligned = |stride: usize| stride.is_multiple_of(vector);
    let (kept, reduced) = (problem.kept(), problem.reduced());
    let (inner_stride, aligned_rows) = match direction {
        Direction::Along => (
            reduced.last().map(|dim| dim.stride),
            kept.iter().all(|dim| aligned(dim.stride))
                && reduced.iter().rev().skip(1).all(|dim| aligned(dim.stride)),
        ),
        Direction::Across => (
            kept.last().map(|dim| dim.stride),
            reduced.iter().all(|dim| aligned(dim.stride))
                && kept.iter().rev().skip(1).all(|dim| aligned(dim.stride)),
        ),
    };
    if inner_stride != Some(1) {
        return Err(Illegal::InnerStride { vector });
    }
    let inner_len = access.inner_len(problem);
    match (realigned, direction) {
        (true, Direction::Across) => return check_realigned_rows(vector, problem),
        // A row this long has one load whose second vector ends inside it, wherever it starts.
        (true, Direction::Along) if inner_len < 2 * vector - 1 => {
            return Err(Illegal::InnerTooShort { inner_len, vector });
        }
        (true, Direction::Along) => return Ok(()),
        (false, _) => {}
    }
    let whole = inner_len.is_multiple_of(vector);
    match (direction, peeled) {
        (Direction::Along, false) if !(aligned_rows && whole) => {
            Err(Illegal::InnerNotWhole { inner_len, vector })
        }
        // An inner dimension this long holds one whole vector wherever it starts.
        (Direction::Along, true) if inner_len < 2 * vector - 1 => {
            Err(Illegal::InnerTooShort { inner_len, vector })
        }
        (Direction::Across, _) if !aligned_rows => Err(Illegal::RowsMisaligned { vector }),
        (Direction::Across, false) if !whole => Err(Illegal::InnerNotWhole { inner_len, vector }),
        (Direction::Across, true) if inner_len < vector => {
            Err(Illegal::InnerTooShort { inner_len, vector })
        }
        _ => Ok(()),
    }
}

/// [`check_access`] for a tensor of a list, whose kernels read the end of each inner dimension on
/// their own. Each inner dimension starts at a vector's boundary.
pub(crate) fn check_listed(
    access: Access,
    problem: &Problem,
    device: &Device,
) -> Result<(), Illegal> {
    let vector = access.vector;
    let plain = Access::new(Direction::Along)
        .with_vector(vector)
        .with_loads_in_flight(access.loads_in_flight);
    if access != plain {
        return Err(Illegal::ListAccess);
    }
    match check_access(access, problem, device) {
        Err(Illegal::InnerNotWhole { inner_len, .. }) => {
            let outer = problem.reduced().iter().rev().skip(1);
            let aligned = outer.map(|dim| dim.stride).all(|stride| stride.is_multiple_of(vector));
            if inner_len < vector {
                Err(Illegal::InnerTooShort { inner_len, vector })
            } else if !aligned {
                Err(Illegal::RowsMisaligned { vector })
            } else {
                Ok(())
            }
        }
        checked => checked,
    }
}

/// Only the last row of a reduction may end in a vector that reaches beyond the input, which is not
/// empty.
fn check_realigned_rows(vector: usize, problem: &Problem) -> Result<(), Illegal> {
    match problem.reduced().iter().map(|dim| dim.stride).min() {
        Some(stride) if stride < vector => Err(Illegal::RowsOverlap { stride, vector }),
        _ => Ok(()),
    }
}

/// Across outputs, the rows of a unit lie alike: they start equally far behind a boundary of
/// vectors.
fn check_realigned(plan: &Plan, problem: &Problem) -> Result<(), Illegal> {
    let Plan { access, schedule, .. } = *plan;
    if !access.realigns_across() {
        return Ok(());
    }
    let vector = access.vector;
    let tiles = plan.output_tiles(problem);
    if tiles > NARROW_LIMIT && !limits::needs_wide_indices(problem) {
        return Err(Illegal::TooManyTiles { tiles, max: NARROW_LIMIT });
    }
    if !matches!(schedule.kind(), ScheduleKind::Cube | ScheduleKind::Split) {
        return Err(Illegal::RealignedOutsideCube);
    }
    if schedule.outputs_per_cube() < 2 {
        return Err(Illegal::RealignedTile);
    }
    let units = schedule.all_units_per_output();
    let steps = (units % vector as u64) as usize;
    let alike =
        |stride: usize, times: usize| (stride % vector * (times % vector)).is_multiple_of(vector);
    let Some((inner, outer)) = problem.reduced().split_last() else { return Ok(()) };
    // A unit goes on from the last row of the inner dimension to the first ones of the next.
    let wraps = outer.is_empty()
        || (alike(inner.stride, inner.extent) && outer.iter().all(|dim| alike(dim.stride, 1)));
    match alike(inner.stride, steps) && wraps {
        true => Ok(()),
        false => Err(Illegal::RowsUnlike { units, vector }),
    }
}

/// Where a team has several outputs in flight, all their loads are in flight.
pub(crate) fn check_outputs_in_flight(
    access: Access,
    schedule: Schedule,
    problem: &Problem,
) -> Result<(), Illegal> {
    let (outputs, loads) = (access.outputs_in_flight, access.loads_in_flight);
    if outputs == 1 {
        return Ok(());
    }
    let max = Access::MOST_LOADS_IN_FLIGHT;
    if !outputs.checked_mul(loads).is_some_and(|all| (1..=max).contains(&all)) {
        return Err(Illegal::OutputsInFlight { outputs, loads, max });
    }
    if access.peeled || access.realigns_along() {
        return Err(Illegal::SeveralOutputsPeeled);
    }
    if !matches!(schedule.kind(), ScheduleKind::Unit | ScheduleKind::Plane) {
        return Err(Illegal::SeveralOutputsOfCube);
    }
    let per_output = access.loads_per_output(problem);
    if per_output == 0 {
        return Err(Illegal::SeveralOutputsEmpty);
    }
    let in_flight = u64::from(schedule.units_per_output()).saturating_mul(loads as u64);
    if per_output > in_flight {
        return Err(Illegal::SeveralOutputsTooLong { loads: per_output, in_flight });
    }
    Ok(())
}

/// Units that take elements in two passes hold all of them.
fn check_passes(plan: &Plan, problem: &Problem) -> Result<(), Illegal> {
    let Plan { access, schedule, .. } = *plan;
    if !access.in_passes {
        return Ok(());
    }
    let operator = problem.operator();
    if operator.passes_bytes.is_none() || problem.is_by_position() {
        return Err(Illegal::NoPasses);
    }
    let along = access.direction == Direction::Along;
    if !along || access.realigned || schedule.kind() == ScheduleKind::Split {
        return Err(Illegal::PassesAccess);
    }
    let loads = access.loads_per_output(problem);
    let units = u64::from(schedule.units_per_output());
    let in_flight = units.saturating_mul(access.loads_in_flight as u64);
    match (1..=in_flight).contains(&loads) {
        true => Ok(()),
        false => Err(Illegal::PassesNotHeld { loads, in_flight }),
    }
}

/// The numbers of the schedule are those that the kernels rely on, and fit the device.
pub(crate) fn check_schedule(
    plan: &Plan,
    problem: &Problem,
    device: &Device,
) -> Result<(), Illegal> {
    let schedule = plan.schedule;
    let units = match schedule {
        Schedule::Unit { units_per_cube } => Some(units_per_cube),
        Schedule::Plane { lanes_per_output, units_per_cube } => {
            units_per_cube.is_multiple_of(lanes_per_output.max(1)).then_some(units_per_cube)
        }
        Schedule::Cube { units_per_output, outputs_per_cube, .. }
        | Schedule::Split { units_per_output, outputs_per_cube, .. } => {
            units_per_output.checked_mul(outputs_per_cube)
        }
    };
    let units = units.ok_or(Illegal::UnitsDoNotDivide)?;
    power_of_two(Quantity::UnitsPerCube, units, device.max_units_per_cube)?;
    power_of_two(Quantity::UnitsPerOutput, schedule.units_per_output(), units)?;
    if let Some(Combine::Plane { lanes }) = schedule.combine() {
        check_plane(plan, device, units, lanes)?;
    }
    check_realigned(plan, problem)?;
    fits_shared(shared_bytes(plan, problem), device)?;
    if let Schedule::Split { cubes_per_output, merge, .. } = schedule {
        let few_plans = plan.numerics.is_batch_invariant() || problem.is_by_position();
        let published = match few_plans {
            true => device.tuning.invariant.published_bytes,
            false => device.tuning.published_bytes,
        };
        check_split(plan, problem, device, cubes_per_output, merge, published)?;
    }
    check_bindings(plan, problem, device)?;
    fits_grid(plan.cubes(problem), false, device)
}

/// Lanes that exchange values are in one plane and work for one output, and planes are whole.
pub(crate) fn check_lanes(
    direction: Direction,
    units: u32,
    per_output: u32,
    lanes: u32,
    device: &Device,
) -> Result<(), Illegal> {
    if !device.plane_operations {
        return Err(Illegal::NoPlaneOperations);
    }
    power_of_two(Quantity::Lanes, lanes, device.plane_size_min)?;
    if units < device.plane_size_min {
        return Err(Illegal::CubeBelowPlane { units });
    }
    match direction {
        Direction::Across => Err(Illegal::PlaneAcrossOutputs),
        Direction::Along if per_output < lanes => {
            Err(Illegal::LanesNotFilled { units: per_output, lanes })
        }
        Direction::Along => Ok(()),
    }
}

/// The rules of [`check_lanes`], and those of lanes that have an output alone.
fn check_plane(plan: &Plan, device: &Device, units: u32, lanes: u32) -> Result<(), Illegal> {
    let across = plan.access.direction == Direction::Across;
    if !matches!(plan.schedule, Schedule::Plane { .. }) {
        let per_output = plan.schedule.units_per_output();
        return check_lanes(plan.access.direction, units, per_output, lanes, device);
    }
    // The lanes of a plane are all members of one output or of several.
    check_lanes(Direction::Along, units, lanes, lanes, device)?;
    match plan.schedule {
        Schedule::Plane { .. } if lanes < 2 => Err(Illegal::OneLane),
        // Across outputs, the lanes of an output lie `plane / lanes` apart in one plane.
        Schedule::Plane { .. } if across && device.plane_size_min != device.plane_size_max => {
            Err(Illegal::PlaneSizeVaries)
        }
        _ => Ok(()),
    }
}

/// Indices can count the partials, of which no more than `published_bytes` are published, and the
/// device can do the merge.
pub(crate) fn check_split(
    plan: &Plan,
    problem: &Problem,
    device: &Device,
    cubes: u32,
    merge: Merge,
    published_bytes: u64,
) -> Result<(), Illegal> {
    if cubes < 2 {
        return Err(Illegal::OneCube);
    }
    let units = plan.schedule.units_per_cube();
    let loads = plan.access.loads_in_flight as u64;
    if u64::from(cubes) * u64::from(units) * loads > INDEX_SLACK {
        return Err(Illegal::SplitStride { cubes, max: INDEX_SLACK });
    }
    let outputs = u64::from(plan.outputs_of_cube());
    let all_cubes = plan.cubes(problem);
    let partials = all_cubes.saturating_mul(outputs);
    if partials > NARROW_LIMIT || all_cubes > NARROW_LIMIT {
        return Err(Illegal::TooManyPartials { partials, max: NARROW_LIMIT });
    }
    let accumulator = problem.operator().accumulator_bytes;
    match merge {
        Merge::LastCube => {
            if !device.wide_atomics {
                return Err(Illegal::NoWideAtomics);
            }
            if outputs > u64::from(units) {
                return Err(Illegal::MergeBelowOutputs { units, outputs });
            }
            // Mesa's software adapter drops iterations of idle lanes that wait beside busy ones.
            if units < device.plane_size_max {
                return Err(Illegal::MergeBelowPlane { units, plane: device.plane_size_max });
            }
            if all_cubes > u64::from(device.max_cube_count[0]) {
                return Err(Illegal::SeveralGridRows);
            }
            let words = accumulator.div_ceil(size_of::<u32>());
            let bytes = plan.published_words(problem, words).saturating_mul(8);
            let max = published_bytes.min(MOST_PUBLISHED_BYTES);
            if bytes > max {
                return Err(Illegal::PublishedPartials { bytes, max });
            }
            // The units combine once for the cube and once for the output, in separate memory.
            let first = shared_bytes(plan, problem);
            let second = (units as usize).saturating_mul(accumulator);
            fits_shared(first.saturating_add(second).saturating_add(size_of::<u32>()), device)
        }
        Merge::SecondLaunch { units_per_output, outputs_per_cube } => {
            let units = units_per_output.checked_mul(outputs_per_cube);
            let units = units.ok_or(Illegal::UnitsDoNotDivide)?;
            power_of_two(Quantity::UnitsPerMergingCube, units, device.max_units_per_cube)?;
            power_of_two(Quantity::MergingUnitsPerOutput, units_per_output, units)?;
            fits_shared((units as usize).saturating_mul(accumulator), device)?;
            let cubes = (problem.outputs() as u64).div_ceil(u64::from(outputs_per_cube));
            fits_grid(cubes, true, device)
        }
    }
}

/// The launch that binds the most buffers fits the device. A peeled or realigned input is bound
/// twice, as vectors and as elements, and so may be a second one. Published words may be too, as
/// atomic ones and as plain ones.
fn check_bindings(plan: &Plan, problem: &Problem, device: &Device) -> Result<(), Illegal> {
    let twice = plan.access.peeled || plan.access.realigned;
    let second = if problem.second().is_some() { 2 } else { 0 };
    let inputs = 1 + usize::from(twice) + second;
    let (fields, results) = (problem.operator().fields, problem.results().len());
    let bindings = match plan.schedule {
        Schedule::Split { merge: Merge::LastCube, .. } => inputs + 2 + results,
        Schedule::Split { merge: Merge::SecondLaunch { .. }, .. } => {
            fields.saturating_add(inputs.max(results))
        }
        _ => inputs + results,
    };
    fits_bindings(bindings, device)
}

pub(crate) fn fits_bindings(bindings: usize, device: &Device) -> Result<(), Illegal> {
    let available = device.max_bindings;
    if bindings as u64 > u64::from(available) {
        return Err(Illegal::Bindings { bindings, available });
    }
    Ok(())
}

pub(crate) fn fits_grid(cubes: u64, merging: bool, device: &Device) -> Result<(), Illegal> {
    device.grid(cubes).map(|_| ()).ok_or(Illegal::Grid { cubes, merging })
}

/// Whether cubes may wait for what others publish.
pub(crate) fn cubes_may_wait(device: &Device) -> Result<(), Illegal> {
    if !device.tuning.applied.cubes_wait {
        return Err(Illegal::WaitingForbidden);
    }
    if !device.forward_progress {
        return Err(Illegal::NoForwardProgress);
    }
    match device.wide_atomics {
        true => Ok(()),
        false => Err(Illegal::NoWideAtomics),
    }
}

pub(crate) fn fits_shared(bytes: usize, device: &Device) -> Result<(), Illegal> {
    let available = device.shared_memory_bytes;
    if bytes > available {
        return Err(Illegal::SharedMemory { bytes, available });
    }
    Ok(())
}

pub(crate) fn power_of_two(quantity: Quantity, value: u32, max: u32) -> Result<(), Illegal> {
    if !value.is_power_of_two() || value > max {
        return Err(Illegal::NotPowerOfTwo { quantity, value, max });
    }
    Ok(())
}

/// Bytes of one unit's accumulators: one for each output of its tile.
pub(crate) fn accumulator_bytes(problem: &Problem, access: Access) -> usize {
    problem.operator().accumulator_bytes.saturating_mul(access.outputs_per_tile())
}

/// Shared memory in which the units of a cube combine, in bytes. The numbers of the schedule are
/// powers of two.
pub(crate) fn shared_bytes(plan: &Plan, problem: &Problem) -> usize {
    let (units, outputs) = (plan.schedule.units_per_output(), plan.schedule.outputs_per_cube());
    let slots = match (plan.schedule, plan.schedule.combine()) {
        // Units work for themselves, and lanes of a plane combine in registers.
        (Schedule::Unit { .. } | Schedule::Plane { .. }, _) | (_, None) => 0,
        (_, Some(Combine::Plane { lanes })) => units.div_ceil(lanes.max(1)).saturating_mul(outputs),
        (_, Some(Combine::Shared)) => units.saturating_mul(outputs),
    };
    // Each pass combines in memory of its own, and gives the total to all units through more.
    match problem.operator().passes_bytes.filter(|_| plan.access.in_passes && slots > 0) {
        Some(bytes) => (slots.saturating_add(outputs) as usize).saturating_mul(bytes),
        None => (slots as usize).saturating_mul(accumulator_bytes(problem, plan.access)),
    }
}
