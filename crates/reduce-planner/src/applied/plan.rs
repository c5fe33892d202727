//! A plan for an applied reduction as data, its sentence, and the rules that it must obey.

use core::fmt;

use crate::{
    device::Device,
    error::PlanError,
    illegal::{Illegal, Quantity},
    limits::{self, INDEX_SLACK},
    numerics::Numerics,
    plan::{
        Access, Combine, Merge, Plan, Schedule,
        check::{
            check_access, check_split, cubes_may_wait, fits_bindings, fits_grid, fits_shared,
            power_of_two, shared_bytes,
        },
    },
    problem::{AppliedProblem, Direction, Problem, Second},
    segments::SegmentsPlan,
};

/// Most results of an operator, and most bytes of each.
const MOST_RESULT_BYTES: usize = 3 * 8;

/// Where the elements are between the reduction and its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
#[non_exhaustive]
pub enum AppliedPlan {
    /// One launch. Units hold the elements of their tile: as many loads as are in flight in
    /// registers, and the others in shared memory.
    Held {
        /// How the units of one cube take their part of the tile.
        plan: Plan,
        /// Loads of a unit in shared memory, a multiple of those in flight.
        #[cfg_attr(feature = "serde", serde(default))]
        in_shared: usize,
        /// Cubes that share an output tile. If there are several, each publishes its partials,
        /// waits for those of the others, and merges all of them.
        #[cfg_attr(feature = "serde", serde(default = "one_cube"))]
        cubes_per_output: u32,
    },
    /// One launch. Units read the elements of their tile again, most likely from the cache.
    ReadAgain(Plan),
    /// The results are stored by the launches of a reduction, and applied by one more.
    Separately {
        /// The reduction.
        reduce: Plan,
        /// The application.
        apply: ApplyLaunch,
    },
    /// The results of segments are stored by the launches of their reduction, and applied by one
    /// more, whose cubes have neighbouring elements of the axis.
    Segments {
        /// The reduction.
        reduce: SegmentsPlan,
        /// The application.
        apply: ApplyLaunch,
    },
}

/// The cubes per output of plans that do not say.
#[cfg(feature = "serde")]
const fn one_cube() -> u32 {
    1
}

/// A launch that applies stored results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ApplyLaunch {
    /// How elements are read.
    pub access: Access,
    /// Units of a cube that share an output tile, a power of two.
    pub units_per_output: u32,
    /// Output tiles that a cube works on, a power of two.
    pub outputs_per_cube: u32,
    /// Cubes that share an output tile.
    pub cubes_per_output: u32,
}

/// The plans by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum AppliedKind {
    /// [`AppliedPlan::Held`] by one cube, in registers alone.
    Held,
    /// [`AppliedPlan::Held`] by one cube, in registers and in shared memory.
    HeldInShared,
    /// [`AppliedPlan::Held`] by several cubes.
    HeldByCubes,
    /// [`AppliedPlan::ReadAgain`].
    ReadAgain,
    /// [`AppliedPlan::Separately`], and [`AppliedPlan::Segments`].
    Separately,
}

impl AppliedKind {
    /// Every kind, in the order of the bytes that it moves.
    pub const ALL: [AppliedKind; 5] = [
        AppliedKind::Held,
        AppliedKind::HeldInShared,
        AppliedKind::HeldByCubes,
        AppliedKind::ReadAgain,
        AppliedKind::Separately,
    ];

    /// The name in plans and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AppliedKind::Held => "held",
            AppliedKind::HeldInShared => "held in shared memory",
            AppliedKind::HeldByCubes => "held by several cubes",
            AppliedKind::ReadAgain => "read again",
            AppliedKind::Separately => "separately",
        }
    }
}

impl fmt::Display for AppliedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl ApplyLaunch {
    /// A launch in which so many units of so many cubes share a tile.
    #[must_use]
    pub const fn new(
        access: Access,
        units_per_output: u32,
        outputs_per_cube: u32,
        cubes_per_output: u32,
    ) -> Self {
        Self { access, units_per_output, outputs_per_cube, cubes_per_output }
    }

    /// Units of one cube.
    #[must_use]
    pub const fn units_per_cube(&self) -> u32 {
        self.units_per_output.saturating_mul(self.outputs_per_cube)
    }

    /// Cubes, before they are spread over the grid.
    #[must_use]
    pub fn cubes(&self, problem: &Problem) -> u64 {
        let tiles = self.access.output_tiles(problem);
        let blocks = tiles.div_ceil(u64::from(self.outputs_per_cube.max(1)));
        blocks.saturating_mul(u64::from(self.cubes_per_output))
    }

    fn check(&self, problem: &Problem, device: &Device) -> Result<(), Illegal> {
        check_access(self.access, problem, device)?;
        plain(self.access)?;
        let units = self.units_per_output.checked_mul(self.outputs_per_cube);
        let units = units.ok_or(Illegal::UnitsDoNotDivide)?;
        power_of_two(Quantity::UnitsPerCube, units, device.max_units_per_cube)?;
        power_of_two(Quantity::UnitsPerOutput, self.units_per_output, units)?;
        if self.cubes_per_output == 0 {
            return Err(Illegal::NoCubes);
        }
        let stride = u64::from(self.cubes_per_output)
            .saturating_mul(units.into())
            .saturating_mul(self.access.loads_in_flight as u64);
        if stride > INDEX_SLACK {
            let cubes = self.cubes_per_output;
            return Err(Illegal::SplitStride { cubes, max: INDEX_SLACK });
        }
        fits_grid(self.cubes(problem), false, device)
    }
}

impl AppliedPlan {
    /// Which plan it is.
    #[must_use]
    pub const fn kind(&self) -> AppliedKind {
        match self {
            AppliedPlan::Held { in_shared: 0, cubes_per_output: 1, .. } => AppliedKind::Held,
            AppliedPlan::Held { cubes_per_output: 1, .. } => AppliedKind::HeldInShared,
            AppliedPlan::Held { .. } => AppliedKind::HeldByCubes,
            AppliedPlan::ReadAgain(_) => AppliedKind::ReadAgain,
            AppliedPlan::Separately { .. } | AppliedPlan::Segments { .. } => {
                AppliedKind::Separately
            }
        }
    }

    /// Number of launches.
    #[must_use]
    pub const fn launches(&self) -> u32 {
        match self {
            AppliedPlan::Held { .. } | AppliedPlan::ReadAgain(_) => 1,
            AppliedPlan::Separately { reduce, .. } => reduce.schedule.launches() + 1,
            AppliedPlan::Segments { .. } => 3,
        }
    }

    /// How the launch that applies results reads elements and deals them to units, and how many
    /// cubes share an output tile.
    #[must_use]
    pub const fn applying(&self) -> (Plan, u32) {
        match *self {
            AppliedPlan::Held { plan, cubes_per_output, .. } => (plan, cubes_per_output),
            AppliedPlan::ReadAgain(plan) => (plan, 1),
            AppliedPlan::Separately { apply, .. } | AppliedPlan::Segments { apply, .. } => {
                let schedule = Schedule::Cube {
                    units_per_output: apply.units_per_output,
                    outputs_per_cube: apply.outputs_per_cube,
                    combine: Combine::Shared,
                };
                (Plan::new(apply.access, schedule), apply.cubes_per_output)
            }
        }
    }

    /// Buffers that the launch that applies results binds, or fewer. `reduction` is the reduction
    /// alone.
    #[must_use]
    pub fn bindings(&self, applied: &AppliedProblem, reduction: &Problem) -> usize {
        let stores = applied.stores_results() || self.kind() == AppliedKind::Separately;
        let results = if stores { reduction.results().len() } else { 0 };
        let words = usize::from(self.kind() == AppliedKind::HeldByCubes);
        let offsets = usize::from(applied.segments().is_some());
        bound_tensors(self.applying().0.access, applied) + results + words + offsets
    }

    /// Words of 64 bits in which cubes publish partials, for an accumulator of so many words of 32
    /// bits; see [`Plan::published_words`]. `None` if the launch that applies results publishes
    /// none.
    #[must_use]
    pub fn published_words(&self, applied: &AppliedProblem, words: usize) -> Option<u64> {
        match *self {
            AppliedPlan::Held { plan, cubes_per_output, .. } if cubes_per_output > 1 => {
                let split = published_by(&plan, cubes_per_output);
                Some(split.published_words(applied.problem(), words))
            }
            _ => None,
        }
    }

    /// Units that merge the partials of an output, which several cubes publish. 0 if there are none.
    #[must_use]
    pub fn merging_units(&self) -> u32 {
        match *self {
            AppliedPlan::Held { plan, cubes_per_output, .. } if cubes_per_output > 1 => {
                published_by(&plan, cubes_per_output).merging_units()
            }
            _ => 0,
        }
    }

    /// What the bits of the results, and of what they are applied to, may depend on.
    #[must_use]
    pub const fn numerics(&self) -> Numerics {
        match *self {
            AppliedPlan::Held { plan, .. }
            | AppliedPlan::ReadAgain(plan)
            | AppliedPlan::Separately { reduce: plan, .. } => plan.numerics,
            AppliedPlan::Segments { .. } => Numerics::Deterministic,
        }
    }

    /// The same plan with bits that depend on no more than this. Those of segments have
    /// [`Numerics::Deterministic`].
    #[must_use]
    pub const fn with_numerics(self, numerics: Numerics) -> Self {
        match self {
            AppliedPlan::Held { plan, in_shared, cubes_per_output } => {
                let plan = plan.with_numerics(numerics);
                AppliedPlan::Held { plan, in_shared, cubes_per_output }
            }
            AppliedPlan::ReadAgain(plan) => AppliedPlan::ReadAgain(plan.with_numerics(numerics)),
            AppliedPlan::Separately { reduce, apply } => {
                AppliedPlan::Separately { reduce: reduce.with_numerics(numerics), apply }
            }
            AppliedPlan::Segments { .. } => self,
        }
    }

    /// Checks that the plan computes `applied` correctly on `device`, whatever its bits depend on.
    pub(super) fn check_rules(
        &self,
        applied: &AppliedProblem,
        reduction: &Problem,
        device: &Device,
    ) -> Result<(), PlanError> {
        let problem = applied.problem();
        let unfit = |reason| device.unfit(self, reason);
        limits::check_applied(applied, device)?;
        fits_bindings(self.bindings(applied, reduction), device).map_err(unfit)?;
        if matches!(self, AppliedPlan::Segments { .. }) != applied.segments().is_some() {
            return Err(unfit(Illegal::AppliedSegments));
        }
        match *self {
            AppliedPlan::Held { plan, in_shared, cubes_per_output: cubes } => {
                plan.check_rules(problem, device)?;
                one_cube_per_tile(&plan, problem, device).map_err(unfit)?;
                let shared = check_held(&plan, in_shared, cubes, problem, device).map_err(unfit)?;
                if cubes > 1 {
                    may_wait(&plan, cubes, shared, problem, device).map_err(unfit)?;
                }
                Ok(())
            }
            AppliedPlan::ReadAgain(plan) => {
                plan.check_rules(problem, device)?;
                one_cube_per_tile(&plan, problem, device).map_err(unfit)
            }
            AppliedPlan::Separately { reduce, apply } => {
                reduce.check_rules(reduction, device)?;
                apply.check(problem, device).map_err(unfit)
            }
            AppliedPlan::Segments { reduce, apply } => {
                if let Some(segments) = applied.segments() {
                    reduce.check(segments, device)?;
                }
                apply.check(problem, device).map_err(unfit)?;
                // What has segments reads elements where they lie.
                let realigned = apply.access.realigned;
                if realigned { Err(unfit(Illegal::SegmentsAccess)) } else { Ok(()) }
            }
        }
    }
}

/// Elements are applied where they are read: rows across outputs are not realigned, and a team has
/// one tile.
fn plain(access: Access) -> Result<(), Illegal> {
    match access {
        _ if access.realigns_across() => Err(Illegal::AppliedRealigned),
        // What is held for an application is taken in passes without being asked.
        Access { in_passes: true, .. } => Err(Illegal::PassesAccess),
        Access { outputs_in_flight: 1, .. } => Ok(()),
        Access { outputs_in_flight: outputs, .. } => Err(Illegal::AppliedTogether { outputs }),
    }
}

/// A tile belongs to one cube, whose units share its results.
fn one_cube_per_tile(plan: &Plan, problem: &Problem, device: &Device) -> Result<(), Illegal> {
    plain(plan.access)?;
    if let Schedule::Split { cubes_per_output: cubes, .. } = plan.schedule {
        return Err(Illegal::AppliedSplit { cubes });
    }
    fits_shared(combining_bytes(plan, problem, 1), device)
}

/// The units of a tile hold all of it, in memory that they have. The result is the shared memory
/// that a cube takes, in bytes.
fn check_held(
    plan: &Plan,
    in_shared: usize,
    cubes: u32,
    problem: &Problem,
    device: &Device,
) -> Result<usize, Illegal> {
    let in_flight = plan.access.loads_in_flight;
    if !in_shared.is_multiple_of(in_flight) {
        return Err(Illegal::HeldInParts { in_shared, in_flight });
    }
    if cubes == 0 {
        return Err(Illegal::NoCubes);
    }
    let each = in_flight.saturating_add(in_shared) as u64;
    let units = u64::from(plan.schedule.units_per_output()).saturating_mul(cubes.into());
    let (loads, held) = (plan.access.loads_per_output(problem), units.saturating_mul(each));
    if loads > held {
        return Err(Illegal::HeldTooLong { loads, held });
    }
    let load_bytes = plan.access.vector.saturating_mul(problem.input().bytes());
    let units = plan.schedule.units_per_cube() as usize;
    let bytes = in_shared
        .saturating_mul(load_bytes)
        .saturating_mul(units)
        .saturating_add(combining_bytes(plan, problem, cubes));
    let available = match in_shared {
        0 => device.shared_memory_bytes,
        _ => device.requestable_shared_bytes(),
    };
    match bytes > available {
        true => Err(Illegal::SharedMemory { bytes, available }),
        false => Ok(bytes),
    }
}

/// The split whose partials are published as those of a plan that several cubes hold. The numbers
/// of its merge are the same, only that every cube merges.
pub(super) fn published_by(plan: &Plan, cubes_per_output: u32) -> Plan {
    let schedule = Schedule::Split {
        cubes_per_output,
        units_per_output: plan.schedule.units_per_output(),
        outputs_per_cube: plan.schedule.outputs_per_cube(),
        combine: plan.schedule.combine().unwrap_or(Combine::Shared),
        merge: Merge::LastCube,
    };
    Plan { schedule, ..*plan }
}

/// Cubes of so much `shared` memory may publish partials and wait for others of their tile. Cubes
/// take their numbers when they begin, so only the tile that was begun last has cubes that wait for
/// some that have not begun. They leave room for these, and for one more launch at least.
fn may_wait(
    plan: &Plan,
    cubes: u32,
    shared: usize,
    problem: &Problem,
    device: &Device,
) -> Result<(), Illegal> {
    cubes_may_wait(device)?;
    let split = published_by(plan, cubes);
    // Another kind of plan would have other bits.
    let published = match plan.numerics.is_batch_invariant() {
        true => device.tuning.invariant.published_bytes,
        false => device.tuning.applied.published_bytes,
    };
    check_split(&split, problem, device, cubes, Merge::LastCube, published)?;
    let units_per_cube = plan.schedule.units_per_cube();
    let units = u64::from(cubes).saturating_mul(units_per_cube.into());
    let most = device.most_waiting_units();
    if units > most {
        return Err(Illegal::TooManyWait { units, most });
    }
    let most = device.most_waiting_cubes(units_per_cube, shared);
    match u64::from(cubes) > most {
        true => Err(Illegal::TooManyCubesWait { cubes, most, shared }),
        false => Ok(()),
    }
}

/// Shared memory in which the units of a cube combine and share results. If several `cubes` share a
/// tile, the units also combine what all of these have published, and share the number of the cube.
pub(super) fn combining_bytes(plan: &Plan, problem: &Problem, cubes: u32) -> usize {
    let components = plan.access.outputs_per_tile();
    let outputs = (plan.schedule.outputs_per_cube() as usize).saturating_mul(components);
    let results = outputs.saturating_mul(MOST_RESULT_BYTES);
    let published = match cubes {
        0 | 1 => 0,
        _ => merging_bytes(plan, problem).saturating_add(size_of::<u32>()),
    };
    shared_bytes(plan, problem).saturating_add(results).saturating_add(published)
}

/// Shared memory in which the units of a cube merge published partials. Planes combine only where
/// the cube has one output: the units of each of several outputs lie apart.
fn merging_bytes(plan: &Plan, problem: &Problem) -> usize {
    let units = plan.schedule.units_per_cube();
    let slots = match plan.schedule.combine() {
        Some(Combine::Plane { lanes }) if plan.outputs_of_cube() == 1 => {
            units.div_ceil(lanes.max(1))
        }
        _ => units,
    };
    (slots as usize).saturating_mul(problem.operator().accumulator_bytes)
}

/// Buffers of the inputs, of the operands and of the output. A peeled or realigned access binds the
/// input as vectors and as elements, and the output too where it is written in vectors. Along rows,
/// it does the same with a second input and with operands whose elements lie side by side.
fn bound_tensors(access: Access, applied: &AppliedProblem) -> usize {
    let problem = applied.problem();
    let second = problem.second().map(Second::strides);
    // The results are the first companion, and the second input is the next.
    let operands = applied.companions().iter().skip(1 + usize::from(second.is_some()));
    let twice = access.peeled || access.realigned;
    let has_edges = twice && access.direction == Direction::Along;
    let beside = second.into_iter().chain(operands);
    let beside =
        beside.map(|tensor| 1 + usize::from(has_edges && tensor.reduced.last() == Some(&1)));
    2 * (1 + usize::from(twice)) + beside.sum::<usize>()
}

impl fmt::Display for AppliedPlan {
    /// Such as `held in registers: cube: 512 units per output, 1 output per cube, combined by plane
    /// operations over 32 lanes; vectors of 4 along the reduction, 4 loads in flight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AppliedPlan::Held { plan, in_shared, cubes_per_output } => {
                f.write_str("held in registers")?;
                if *in_shared > 0 {
                    write!(f, ", and {in_shared} loads in shared memory")?;
                }
                if *cubes_per_output > 1 {
                    write!(f, ", by {cubes_per_output} cubes per output tile")?;
                }
                write!(f, ": {plan}")
            }
            AppliedPlan::ReadAgain(plan) => write!(f, "read again: {plan}"),
            AppliedPlan::Separately { reduce, apply } => write!(f, "separately: {reduce}{apply}"),
            AppliedPlan::Segments { reduce, apply } => write!(f, "separately: {reduce}{apply}"),
        }
    }
}

impl fmt::Display for ApplyLaunch {
    /// The end of a sentence, such as `; then applied with 256 units and 8 cubes per output, 1 per
    /// cube; vectors of 4 along the reduction, 4 loads in flight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { access, units_per_output, outputs_per_cube, cubes_per_output } = self;
        write!(
            f,
            "; then applied with {units_per_output} units and {cubes_per_output} cubes per {}, \
             {outputs_per_cube} per cube; {access}",
            access.tile_name()
        )
    }
}
