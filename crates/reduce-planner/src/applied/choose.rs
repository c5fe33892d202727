//! The choice of a plan for an applied reduction.

use core::fmt;

use super::{AppliedKind, AppliedPlan, ApplyLaunch, plan::combining_bytes};
use crate::{
    Access, AppliedProblem, Candidate, Choice, Combine, Device, Direction, Estimate, Explained,
    Illegal, Plan, PlanError, Problem, Refusal, Schedule, choose, choose::FEW_FIELDS,
    device::RESERVED_SHARED_BYTES, limits, plan::check::accumulator_bytes, tuning::share,
};

/// Round trips to memory of a cube that shares its tile: it takes a number, and partials are
/// published and read.
const PASSES_OF_CUBES: f64 = 3.0;

impl Explained for AppliedPlan {
    type Refusal = Refusal<AppliedKind, AppliedReason>;
}

/// Why a plan was not taken.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum AppliedReason {
    /// The registers of a cube do not hold a tile.
    TooLongToHold {
        /// Loads of a tile.
        loads: u64,
        /// Loads that the units of one cube can hold.
        most: u64,
    },
    /// Registers hold a tile.
    HeldInRegisters {
        /// Loads of a tile.
        loads: u64,
        /// Loads that the units of one cube can hold in registers.
        most: u64,
    },
    /// The plan applies, and another one should be faster.
    Slower {
        /// What it should take, in microseconds.
        microseconds: f64,
        /// What the plan that was taken should take, in microseconds.
        best_microseconds: f64,
    },
    /// The plan would break a rule that plans must obey.
    PassesLimits {
        /// The rule, with the numbers.
        limit: Illegal,
    },
}

impl fmt::Display for AppliedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppliedReason::TooLongToHold { loads, most } => {
                write!(f, "too long: {loads} loads per output tile, and a cube holds {most}")
            }
            AppliedReason::HeldInRegisters { loads, most } => {
                write!(f, "no need: {loads} loads per output tile, and registers hold {most}")
            }
            AppliedReason::Slower { microseconds, best_microseconds } => {
                write!(f, "slower: {microseconds:.1} us expected against {best_microseconds:.1} us")
            }
            AppliedReason::PassesLimits { limit } => limit.fmt(f),
        }
    }
}

/// Chooses a plan for an applied reduction on a device. `reduction` is the reduction alone, with
/// its results as outputs.
///
/// # Errors
///
/// Those of [`choose()`] for the two problems.
pub fn choose_applied(
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<Choice<AppliedPlan>, PlanError> {
    limits::check_applied(applied, device)?;
    let access = access(applied, device);
    let mut found = Vec::with_capacity(AppliedKind::ALL.len());
    let mut refused = Vec::with_capacity(AppliedKind::ALL.len());
    for kind in AppliedKind::ALL {
        match candidate(kind, applied, reduction, device, access)? {
            Ok(plan) => found
                .push(Candidate { plan, estimate: estimate(&plan, applied, reduction, device) }),
            Err(reason) => refused.push(Refusal::new(kind, reason)),
        }
    }
    found.sort_by(|a, b| a.estimate.total_ns().total_cmp(&b.estimate.total_ns()));
    let mut ranked = found.into_iter();
    let Some(Candidate { plan, estimate: best }) = ranked.next() else {
        return Err(no_plan(device, &refused));
    };
    let runners_up: Vec<Candidate<AppliedPlan>> = ranked.collect();
    refused.extend(runners_up.iter().map(|slower| {
        let (microseconds, best_microseconds) =
            (slower.estimate.microseconds(), best.microseconds());
        let reason = AppliedReason::Slower { microseconds, best_microseconds };
        Refusal::new(slower.plan.kind(), reason)
    }));
    refused.sort_by_key(|refusal| refusal.kind);
    Ok(Choice { plan, estimate: best, refused, runners_up })
}

/// A plan of one kind, whatever others would take. It serves tests and comparisons.
///
/// # Errors
///
/// Those of [`choose_applied`], and a kind that does not apply.
pub fn force_applied(
    kind: AppliedKind,
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<AppliedPlan, PlanError> {
    limits::check_applied(applied, device)?;
    candidate(kind, applied, reduction, device, access(applied, device))?
        .map_err(|reason| no_plan(device, &[Refusal::new(kind, reason)]))
}

fn no_plan(device: &Device, refused: &[Refusal<AppliedKind, AppliedReason>]) -> PlanError {
    let reasons: Vec<String> = refused.iter().map(ToString::to_string).collect();
    PlanError::NoAppliedPlan { device: device.name.clone(), reasons: reasons.join("; ") }
}

/// A plan of one kind that obeys the rules, or the reason against it. Where a peeled access binds
/// more buffers than the device allows, the plan reads single elements.
fn candidate(
    kind: AppliedKind,
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
    access: Access,
) -> Result<Result<AppliedPlan, AppliedReason>, PlanError> {
    let planned = candidate_with(access, kind, applied, reduction, device)?;
    match planned {
        Err(AppliedReason::PassesLimits { limit: Illegal::Bindings { .. } }) if access.peeled => {
            let single = Access { vector: 1, peeled: false, ..access };
            candidate_with(single, kind, applied, reduction, device)
        }
        planned => Ok(planned),
    }
}

/// [`candidate`] that reads elements in this way.
fn candidate_with(
    access: Access,
    kind: AppliedKind,
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Result<Result<AppliedPlan, AppliedReason>, PlanError> {
    let problem = applied.problem();
    let plan = match kind {
        AppliedKind::Held => {
            let one_cube = |plan| AppliedPlan::Held { plan, in_shared: 0, cubes_per_output: 1 };
            held(applied, device, access).map(one_cube)
        }
        AppliedKind::HeldInShared => held_in_shared(problem, device, access),
        AppliedKind::HeldByCubes => held_by_cubes(problem, device, access),
        AppliedKind::ReadAgain => Ok(AppliedPlan::ReadAgain(read_again(problem, device, access))),
        AppliedKind::Separately => {
            let reduce = choose(reduction, device)?.plan;
            Ok(AppliedPlan::Separately { reduce, apply: apply(problem, device, access) })
        }
    };
    let plan = match plan {
        Ok(plan) => plan,
        Err(reason) => return Ok(Err(reason)),
    };
    match plan.check(applied, reduction, device) {
        Ok(()) => Ok(Ok(plan)),
        Err(PlanError::Unfit { reason: limit, .. }) => {
            Ok(Err(AppliedReason::PassesLimits { limit }))
        }
        Err(other) => Err(other),
    }
}

/// Vectors that fit one load and one store.
fn access(applied: &AppliedProblem, device: &Device) -> Access {
    let problem = applied.problem();
    let (read, written) = (problem.input().bytes(), applied.output().bytes());
    let mut device = device.clone();
    device.load_bytes = (device.load_bytes * read / written.max(read)).max(1);
    Access::widest(problem, &device).with_outputs_in_flight(1)
}

/// Units that share a tile, and tiles that they read side by side.
struct Team {
    units: u32,
    tiles: u32,
}

/// Output tiles that lie side by side in a segment of memory.
fn adjacent_tiles(problem: &Problem, device: &Device, access: Access) -> u32 {
    match access.direction {
        Direction::Along => 1,
        Direction::Across => {
            let load_bytes = access.vector * problem.input().bytes();
            let segment = (device.tuning.applied.segment_bytes / load_bytes).max(1) as u64;
            segment.min(access.loads_per_inner(problem).next_power_of_two()) as u32
        }
    }
}

/// The schedule of a team whose units all work on one cube's tiles.
fn schedule(device: &Device, access: Access, team: &Team) -> Schedule {
    let tuning = &device.tuning.applied;
    let lanes = device.plane_size_min;
    let independent = tuning.independent_units_per_cube.min(device.max_units_per_cube);
    let along = access.direction == Direction::Along;
    match team.units {
        1 => Schedule::Unit { units_per_cube: independent.max(team.tiles) },
        units if along && device.plane_operations && units <= lanes && independent >= lanes => {
            Schedule::Plane { lanes_per_output: units, units_per_cube: independent }
        }
        units if along && device.plane_operations && units > lanes => Schedule::Cube {
            units_per_output: units,
            outputs_per_cube: team.tiles,
            combine: Combine::Plane { lanes },
        },
        units => Schedule::Cube {
            units_per_output: units,
            outputs_per_cube: team.tiles.max(if along { (independent / units).max(1) } else { 1 }),
            combine: Combine::Shared,
        },
    }
}

/// Largest power of two up to `value`, which is not 0.
fn power_of_two_below(value: u32) -> u32 {
    1 << value.max(1).ilog2()
}

/// As many units as leave each a few loads, unless there are not so many. Of two inputs, both are
/// held.
fn held(applied: &AppliedProblem, device: &Device, access: Access) -> Result<Plan, AppliedReason> {
    let problem = applied.problem();
    let tuning = &device.tuning.applied;
    let loads = access.loads_per_output(problem).max(1);
    let load_bytes = access.vector * applied.pair_bytes();
    let tiles = adjacent_tiles(problem, device, access);
    let (bytes, most_bytes, units) = match access.direction {
        Direction::Along => {
            (tuning.held_bytes_along, tuning.most_held_bytes_along, device.max_units_per_cube)
        }
        Direction::Across => {
            let units = tuning.across_units_per_cube.min(device.max_units_per_cube);
            (tuning.held_bytes_across, tuning.most_held_bytes_across, units / tiles)
        }
    };
    let most_units = power_of_two_below(units);
    let each = (bytes / load_bytes).clamp(1, Access::MOST_LOADS_IN_FLIGHT) as u64;
    let most_each = (most_bytes / load_bytes).clamp(1, Access::MOST_LOADS_IN_FLIGHT) as u64;
    let most = u64::from(most_units) * most_each;
    if loads > most {
        return Err(AppliedReason::TooLongToHold { loads, most });
    }
    // Units of a short row read a segment of memory together.
    let segment = match access.direction {
        Direction::Along => (tuning.segment_bytes / load_bytes).max(1) as u64,
        Direction::Across => 1,
    };
    let wanted = loads.div_ceil(each).max(segment.min(loads)).next_power_of_two();
    let units = wanted.min(u64::from(most_units)) as u32;
    let in_flight = loads.div_ceil(u64::from(units)) as usize;
    let team = Team { units, tiles };
    Ok(Plan::new(access.with_loads_in_flight(in_flight), schedule(device, access, &team)))
}

/// The largest cubes, which have a multiprocessor for themselves.
fn held_in_shared(
    problem: &Problem,
    device: &Device,
    access: Access,
) -> Result<AppliedPlan, AppliedReason> {
    let tuning = &device.tuning.applied;
    let load_bytes = access.vector * problem.input().bytes();
    let tiles = adjacent_tiles(problem, device, access);
    let units = match access.direction {
        Direction::Along => device.max_units_per_cube,
        Direction::Across => tuning.across_units_per_cube.min(device.max_units_per_cube) / tiles,
    };
    let team = Team { units: power_of_two_below(units), tiles };
    let in_flight =
        (tuning.shared_bytes_in_flight / load_bytes).clamp(1, Access::MOST_LOADS_IN_FLIGHT);
    let access = access.with_loads_in_flight(in_flight);
    let plan = Plan::new(access, schedule(device, access, &team));
    let loads = access.loads_per_output(problem);
    let of_unit = loads.div_ceil(team.units.into());
    let rest = of_unit.saturating_sub(in_flight as u64);
    if rest == 0 {
        let most = u64::from(team.units) * in_flight as u64;
        return Err(AppliedReason::HeldInRegisters { loads, most });
    }
    let available = device.most_shared_memory_bytes.max(device.shared_memory_bytes);
    let places = available.saturating_sub(combining_bytes(&plan, problem, 1))
        / (load_bytes * (team.units * team.tiles) as usize);
    let most_in_shared = places / in_flight * in_flight;
    let in_shared = rest.next_multiple_of(in_flight as u64);
    if in_shared > most_in_shared as u64 {
        let most = u64::from(team.units) * (in_flight + most_in_shared) as u64;
        return Err(AppliedReason::TooLongToHold { loads, most });
    }
    Ok(AppliedPlan::Held { plan, in_shared: in_shared as usize, cubes_per_output: 1 })
}

/// Cubes several of which reside on a multiprocessor, so that some write or wait while others read.
/// They hold what one such cube may of registers and shared memory. More cubes share a tile where
/// tiles are too few to fill the device.
fn held_by_cubes(
    problem: &Problem,
    device: &Device,
    access: Access,
) -> Result<AppliedPlan, AppliedReason> {
    let tuning = &device.tuning.applied;
    let load_bytes = access.vector * problem.input().bytes();
    let tiles = adjacent_tiles(problem, device, access);
    let units_per_cube = match access.direction {
        Direction::Along => tuning.by_cubes_units_per_cube,
        Direction::Across => tuning.across_units_per_cube,
    };
    let units_per_cube = units_per_cube.min(device.max_units_per_cube);
    let mut team = Team { units: power_of_two_below(units_per_cube / tiles), tiles };
    // Across outputs, the accumulators of all units lie in shared memory, and so do those that a
    // cube merges.
    let bytes =
        accumulator_bytes(problem, access).saturating_add(problem.operator().accumulator_bytes);
    while access.direction == Direction::Across
        && team.units > 1
        && bytes.saturating_mul((team.units * tiles) as usize) >= device.shared_memory_bytes
    {
        team.units /= 2;
    }
    let (units, cube_units) = (u64::from(team.units), team.units * tiles);
    let schedule = schedule(device, access, &team);
    let plan =
        |in_flight: u64| Plan::new(access.with_loads_in_flight(in_flight as usize), schedule);

    let in_flight = (tuning.by_cubes_bytes_in_flight / load_bytes)
        .clamp(1, Access::MOST_LOADS_IN_FLIGHT - 1) as u64;
    let resident = (tuning.by_cubes_units_per_multiprocessor / cube_units).max(1);
    let shared = device.most_shared_memory_bytes.max(device.shared_memory_bytes);
    // Merging what cubes have published takes no more than combining a cube did.
    let combining = combining_bytes(&plan(1), problem, 1) * 2 + RESERVED_SHARED_BYTES;
    let places =
        (shared / resident as usize).saturating_sub(combining) / (load_bytes * cube_units as usize);
    let most_each = in_flight + places as u64 / in_flight * in_flight;
    let most_cubes = device.most_waiting_units() / u64::from(cube_units);
    let loads = access.loads_per_output(problem).max(1);
    let most = units.saturating_mul(most_each).saturating_mul(most_cubes);
    if loads > most {
        return Err(AppliedReason::TooLongToHold { loads, most });
    }

    let blocks = access.output_tiles(problem).div_ceil(schedule.outputs_per_cube().into()).max(1);
    let fills = u64::from(device.multiprocessors) * u64::from(tuning.by_cubes_per_multiprocessor);
    let cubes = (fills / blocks)
        .min(loads.div_ceil(units))
        .max(loads.div_ceil(units * most_each))
        .clamp(2, most_cubes.max(2));
    let each = loads.div_ceil(units * cubes);
    // Loads in shared memory are a multiple of those in flight: one more in flight may waste fewer.
    let in_flight = [in_flight, in_flight + 1]
        .into_iter()
        .map(|in_flight| in_flight.min(each))
        .filter(|in_flight| each.next_multiple_of(*in_flight) <= most_each)
        .min_by_key(|in_flight| each.next_multiple_of(*in_flight))
        .unwrap_or(in_flight);
    let in_shared = (each.next_multiple_of(in_flight) - in_flight) as usize;
    Ok(AppliedPlan::Held { plan: plan(in_flight), in_shared, cubes_per_output: cubes as u32 })
}

/// Large cubes: fewer tiles are under way, and more of them in the cache.
fn read_again(problem: &Problem, device: &Device, access: Access) -> Plan {
    let tuning = &device.tuning.applied;
    let tiles = adjacent_tiles(problem, device, access);
    let most = tuning.read_again_units_per_cube.min(device.max_units_per_cube) / tiles;
    let loads = access.loads_per_output(problem).max(1);
    let in_flight = (tuning.read_again_bytes_in_flight / (access.vector * problem.input().bytes()))
        .clamp(1, Access::MOST_LOADS_IN_FLIGHT) as u64;
    let in_flight = in_flight.min(loads.next_power_of_two());
    let units = loads.div_ceil(in_flight).next_power_of_two().min(u64::from(most.max(1)));
    let mut team = Team { units: power_of_two_below(units as u32), tiles };
    let access = access.with_loads_in_flight(in_flight as usize);
    // Across outputs, the accumulators of all units lie in shared memory.
    while team.units > 1 && access.direction == Direction::Across {
        let bytes = accumulator_bytes(problem, access);
        if bytes * (team.units * tiles) as usize * 2 <= device.shared_memory_bytes {
            break;
        }
        team.units /= 2;
    }
    Plan::new(access, schedule(device, access, &team))
}

/// Units with a few loads each.
fn apply(problem: &Problem, device: &Device, access: Access) -> ApplyLaunch {
    let tuning = &device.tuning.applied;
    let most = power_of_two_below(tuning.apply_units_per_cube.min(device.max_units_per_cube));
    let adjacent = adjacent_tiles(problem, device, access).min(most);
    let loads = access.loads_per_output(problem).max(1);
    let in_flight = (tuning.apply_loads_in_flight as u64).min(loads);
    let wanted = loads.div_ceil(in_flight).next_power_of_two();
    let units = wanted.min(u64::from(most / adjacent)) as u32;
    let cubes = loads.div_ceil(u64::from(units) * in_flight);
    ApplyLaunch::new(
        access.with_loads_in_flight(in_flight as usize),
        units,
        most / units,
        cubes.min(1 << 16) as u32,
    )
}

/// What a plan should take. Memory is the limit, unless tiles are too few for all multiprocessors.
/// The device waits for each launch.
fn estimate(
    plan: &AppliedPlan,
    applied: &AppliedProblem,
    reduction: &Problem,
    device: &Device,
) -> Estimate {
    let (tuning, profile) = (&device.tuning.applied, &device.profile);
    let launch_ns = profile.launch_ns as f64;
    let bytes_per_ns = profile.bandwidth.max(1) as f64 * 1e-9;
    let (moved, read) = (applied.bytes() as f64, applied.read_bytes() as f64);
    let multiprocessors = f64::from(device.multiprocessors.max(1));
    let occupied = |plan: &Plan, cubes_per_output: u32| {
        let cubes = plan.cubes(applied.problem()) as f64 * f64::from(cubes_per_output);
        (cubes / multiprocessors).min(1.0)
    };
    match *plan {
        AppliedPlan::Held { plan: held, cubes_per_output: cubes, .. } => {
            let problem = applied.problem();
            let narrow = problem.input().bytes() < size_of::<f32>();
            let (rate, passes) = match plan.kind() {
                AppliedKind::HeldByCubes if narrow && problem.operator().fields > FEW_FIELDS => {
                    (tuning.by_cubes_narrow_rate_percent, PASSES_OF_CUBES)
                }
                AppliedKind::HeldByCubes => (tuning.by_cubes_rate_percent, PASSES_OF_CUBES),
                AppliedKind::HeldInShared => (tuning.shared_rate_percent, 0.0),
                _ => (100, 0.0),
            };
            let waiting_ns = passes * profile.latency_ns as f64;
            let transfer_ns = moved / bytes_per_ns / occupied(&held, cubes);
            Estimate::streamed(launch_ns, launch_ns, waiting_ns, transfer_ns, share(rate))
        }
        AppliedPlan::ReadAgain(plan) => {
            let cubes = plan.cubes(applied.problem()) as f64;
            // With their loads in flight, units take more than a unit's share of the registers.
            let resident = f64::from(device.units_per_multiprocessor)
                / f64::from(2 * plan.schedule.units_per_cube().max(1));
            let under_way = cubes.min(multiprocessors * resident.max(1.0));
            let cached = read / cubes.max(1.0) * under_way
                <= device.cache_bytes as f64 * share(tuning.cached_percent);
            let again = if cached { share(tuning.cached_read_percent) } else { 1.0 };
            let transfer_ns = (moved + again * read) / bytes_per_ns / occupied(&plan, 1);
            Estimate::streamed(launch_ns, launch_ns, 0.0, transfer_ns, 1.0)
        }
        AppliedPlan::Separately { reduce, .. } => {
            let reduce = reduce.estimate(reduction, device);
            let launch_ns = reduce.launch_ns + launch_ns;
            let transfer_ns = moved / bytes_per_ns;
            Estimate {
                launch_ns,
                gap_ns: launch_ns + reduce.gap_ns,
                transfer_ns: reduce.transfer_ns + transfer_ns,
                together_ns: reduce.together_ns + transfer_ns,
                ..reduce
            }
        }
    }
}
