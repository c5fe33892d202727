//! A plan for a scan as data, its sentence, and the rules that it must obey.

use core::fmt;

use super::choose_scan;
use crate::{
    choose::FEW_FIELDS,
    device::{Device, RESERVED_SHARED_BYTES},
    error::PlanError,
    illegal::{Illegal, Quantity},
    kind::ScheduleKind,
    limits::{self, INDEX_SLACK, NARROW_LIMIT},
    numerics::Numerics,
    plan::{
        Access, Combine,
        check::{
            MOST_PUBLISHED_BYTES, accumulator_bytes, check_access, check_lanes, cubes_may_wait,
            fits_bindings, fits_grid, fits_shared, power_of_two,
        },
        div_ceil,
    },
    problem::{Direction, Reproducible, ScanProblem},
};

/// How the cubes that share a row learn what lies before their parts of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ScanParts {
    /// A first launch leaves the accumulator of each part, and the second one scans.
    #[default]
    TwoLaunches,
    /// Each cube holds one chunk, publishes its accumulator, and waits for those of the chunks
    /// before it. The device must promise that cubes which have begun go on.
    LookBack,
}

/// What will be launched for a scan on a device.
///
/// The units of an output take a chunk of its row at a time. Along the scanned axis, neighbouring
/// units read neighbouring vectors: load `k` of a plane's lanes comes before their load `k + 1`,
/// and all loads of a plane before those of the next one. Across, each unit takes as many
/// neighbouring elements of its columns as it has loads in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ScanPlan {
    /// Version of the planner that made the plan. See [`ScanPlan::VERSION`].
    pub version: u32,
    /// How the input is read. Along the scanned axis, results are written in the same way.
    pub access: Access,
    /// Units of a cube that share an output, or a vector of outputs across: a power of two.
    pub units_per_output: u32,
    /// Outputs, or vectors of outputs, that a cube works on at a time: a power of two.
    pub outputs_per_cube: u32,
    /// How these units learn what lies before their elements: from the lanes of their plane and,
    /// across planes, through shared memory, or through shared memory alone. Units without others
    /// have nothing to learn.
    pub combine: Combine,
    /// Cubes that share an output. Each has a part of its chunks.
    pub cubes_per_output: u32,
    /// How several of them learn what lies before their parts.
    #[cfg_attr(feature = "serde", serde(default))]
    pub parts: ScanParts,
    /// Loads of a chunk that each unit of a cube that looks back along rows keeps in shared memory
    /// while it waits, besides those in flight, which it keeps in registers: a multiple of these.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_zero"))]
    pub in_shared: usize,
    /// What the bits of results may depend on.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Numerics::is_default"))]
    pub numerics: Numerics,
}

impl ScanPlan {
    /// The version that this planner makes and runs.
    pub const VERSION: u32 = 4;

    /// Totals that one unit adds up where units learn through shared memory alone.
    pub const SUMMED_BY_A_UNIT: u32 = 16;

    /// Chunks after which the total of a row moves to a tree of such totals. So the rounding error
    /// of sums grows with the logarithm of the number of chunks.
    pub const CHUNKS_PER_TOTAL: u32 = 16;

    /// Most parts, or groups of them, whose accumulators a cube merges at each level when it looks
    /// back.
    pub const MOST_LOOKED_BACK: u32 = 256;

    /// Most levels of groups.
    pub const MOST_LEVELS: u32 = 3;

    /// A plan of this version for one cube per output, with bits that depend on no more than
    /// `problem` asks for.
    pub(super) fn new(
        problem: &ScanProblem,
        access: Access,
        units_per_output: u32,
        outputs_per_cube: u32,
        combine: Combine,
    ) -> Self {
        Self {
            version: Self::VERSION,
            access,
            units_per_output,
            outputs_per_cube,
            combine,
            cubes_per_output: 1,
            parts: ScanParts::TwoLaunches,
            in_shared: 0,
            numerics: problem.problem().numerics(),
        }
    }

    /// Which schedule it is.
    #[must_use]
    pub fn kind(&self) -> ScheduleKind {
        match (self.cubes_per_output, self.units_per_output, self.combine) {
            (2.., _, _) => ScheduleKind::Split,
            (_, 0 | 1, _) => ScheduleKind::Unit,
            (_, units, Combine::Plane { lanes }) if units == lanes => ScheduleKind::Plane,
            _ => ScheduleKind::Cube,
        }
    }

    /// Number of launches.
    #[must_use]
    pub const fn launches(&self) -> u32 {
        match self.parts {
            ScanParts::TwoLaunches if self.cubes_per_output > 1 => 2,
            _ => 1,
        }
    }

    /// Whether cubes look back at those of the parts before theirs.
    #[must_use]
    pub const fn looks_back(&self) -> bool {
        self.cubes_per_output > 1 && matches!(self.parts, ScanParts::LookBack)
    }

    /// Parts, or groups of as many of them, whose accumulators a cube merges when it looks back.
    ///
    /// The last cube of a group publishes that of the whole group, and the last of as many groups
    /// that of them all. So no cube waits for a chain of others, and which accumulators it merges,
    /// and in which order, does not depend on when the others publish theirs.
    ///
    /// Two levels of about equal size have the fewest accumulators to merge. Of a row alone, each
    /// unit of a cube merges one, so that a level may as well be full.
    #[must_use]
    pub const fn looked_back(&self) -> u32 {
        let (most, parts) = (Self::MOST_LOOKED_BACK, self.cubes_per_output);
        if parts <= most && matches!(self.access.direction, Direction::Along) {
            return most;
        }
        let mut group = 1;
        while group < most && group * group < parts {
            group *= 2;
        }
        group
    }

    /// Levels of groups at which a cube looks back: those before it in its own group of parts, the
    /// groups before that in their own group, and so on. 0 if it does not.
    #[must_use]
    pub const fn levels(&self) -> u32 {
        let (mut levels, mut groups) = (0, self.cubes_per_output);
        while self.looks_back() && groups > 1 {
            groups = groups.div_ceil(self.looked_back());
            levels += 1;
        }
        levels
    }

    /// Accumulators of an output that cubes publish: of each part, and of each group.
    const fn published_per_output(&self) -> u64 {
        let (mut published, mut groups) = (0, self.cubes_per_output);
        while self.looks_back() && groups > 1 {
            published += groups as u64;
            groups = groups.div_ceil(self.looked_back());
        }
        published
    }

    /// Outputs, one by one, that a cube works on at a time.
    fn outputs_of_cube(&self) -> u32 {
        self.outputs_per_cube.saturating_mul(self.access.outputs_per_tile() as u32)
    }

    /// Words of 64 bits in which the cubes of a grid publish accumulators of so many words each,
    /// and a counter for each block of outputs. `None` if they publish none.
    #[must_use]
    pub fn published_words(&self, cubes: u64, words: usize) -> Option<u64> {
        let of_output = self.published_per_output().saturating_mul(words as u64);
        let of_block = of_output.saturating_mul(self.outputs_of_cube().into()).saturating_add(1);
        let blocks = div_ceil(cubes, u64::from(self.cubes_per_output.max(1)));
        self.looks_back().then(|| blocks.saturating_mul(of_block))
    }

    /// Whether the lanes of a plane exchange the elements that they have loaded, through shared
    /// memory, so that each has neighbouring loads. They then have one total for the others, not
    /// one of each load, which takes fewer merges: those of operators of many fields, or of
    /// exponentials, take longer than elements do.
    #[must_use]
    pub fn transposes(&self, problem: &ScanProblem) -> bool {
        let Access { direction, loads_in_flight, .. } = self.access;
        has_long_functions(problem)
            && direction == Direction::Along
            && loads_in_flight > 1
            && self.units_per_output > 1
            && matches!(self.combine, Combine::Plane { .. })
    }

    /// Units of a cube.
    #[must_use]
    pub const fn units_per_cube(&self) -> u32 {
        self.units_per_output.saturating_mul(self.outputs_per_cube)
    }

    /// Totals of a chunk that units, or planes of units, tell each other: of each load of a unit
    /// along, and of all its loads across; of all loads of a plane.
    const fn totals_per_output(&self) -> u32 {
        match (self.combine, self.access.direction) {
            (Combine::Plane { lanes }, _) if lanes > 0 => self.units_per_output / lanes,
            (_, Direction::Along) => {
                self.units_per_output.saturating_mul(self.access.loads_in_flight as u32)
            }
            (_, Direction::Across) => self.units_per_output,
        }
    }

    /// Loads of a chunk that each unit has.
    const fn loads_per_unit(&self) -> usize {
        self.access.loads_in_flight.saturating_add(self.in_shared)
    }

    /// Loads of a chunk of an output.
    #[must_use]
    pub const fn loads_per_chunk(&self) -> u64 {
        (self.units_per_output as u64).saturating_mul(self.loads_per_unit() as u64)
    }

    /// Chunks of an output's row.
    #[must_use]
    pub fn chunks(&self, problem: &ScanProblem) -> u64 {
        div_ceil(row_loads(self.access, problem), self.loads_per_chunk().max(1))
    }

    /// Chunks of the part of a row that one cube has. The last cubes of a row may have fewer.
    #[must_use]
    pub fn chunks_per_cube(&self, problem: &ScanProblem) -> u64 {
        div_ceil(self.chunks(problem), u64::from(self.cubes_per_output.max(1)))
    }

    /// Cubes of each launch.
    #[must_use]
    pub fn cubes(&self, problem: &ScanProblem) -> u64 {
        let tiles = self.access.output_tiles(problem.problem());
        let blocks = div_ceil(tiles, u64::from(self.outputs_per_cube.max(1)));
        blocks.saturating_mul(self.cubes_per_output.into())
    }

    /// Whether units load the values of the next chunk before they scan one.
    #[must_use]
    pub fn loads_ahead(&self, problem: &ScanProblem) -> bool {
        self.access.direction == Direction::Across && self.chunks_per_cube(problem) > 1
    }

    /// Whether a cube has more chunks than are added up one after the other; see
    /// [`CHUNKS_PER_TOTAL`](Self::CHUNKS_PER_TOTAL).
    #[must_use]
    pub fn adds_many_chunks(&self, problem: &ScanProblem) -> bool {
        self.chunks_per_cube(problem) > u64::from(Self::CHUNKS_PER_TOTAL)
    }

    /// Whether results are stored in vectors, if outputs begin at a multiple of so many bytes.
    #[must_use]
    pub fn stores_vectors(&self, problem: &ScanProblem, alignment: usize) -> bool {
        let (of_row, output) = (problem.problem(), problem.output());
        let mut results = of_row.results().iter();
        results.all(|&element| self.access.suits(of_row, output, element, alignment))
    }

    /// Accumulators that the first of two launches leaves: one of each output and cube.
    #[must_use]
    pub fn partials(&self, problem: &ScanProblem) -> u64 {
        match self.launches() {
            1 => 0,
            _ => (problem.problem().outputs() as u64).saturating_mul(self.cubes_per_output.into()),
        }
    }

    /// Cubes that reside on a multiprocessor, as far as their registers, as `ScanTuning` has them,
    /// and their shared memory allow.
    pub(super) fn resident_cubes(&self, problem: &ScanProblem, device: &Device) -> u32 {
        let by_units = device.tuning.scan.units_per_multiprocessor / self.units_per_cube().max(1);
        let of_cube = self.shared_bytes(problem).saturating_add(RESERVED_SHARED_BYTES);
        let by_memory = device.shared_memory_per_multiprocessor / of_cube;
        let most = device.cubes_per_multiprocessor.max(1);
        by_units.min(u32::try_from(by_memory).unwrap_or(u32::MAX)).clamp(1, most)
    }

    /// Shared memory of a cube in bytes.
    pub(super) fn shared_bytes(&self, problem: &ScanProblem) -> usize {
        let outputs = self.outputs_per_cube as usize;
        let totals = self.totals_per_output() as usize;
        let of_outputs = self.outputs_of_cube() as usize;
        let looking_back = match self.looks_back() {
            // What outputs have, and what the units that merge tell each other: those of the last
            // part of a group, and those of other parts.
            true => of_outputs.saturating_add((self.units_per_cube() as usize).saturating_mul(2)),
            false => 0,
        };
        let looking_back =
            looking_back.saturating_mul(problem.problem().operator().accumulator_bytes);
        let records = match self.combine {
            // Units without others have nothing to tell, and the lanes of one plane need no memory.
            _ if self.units_per_output <= 1 => 0,
            Combine::Plane { lanes } if lanes == self.units_per_output => 0,
            // Those of this chunk and of the one before, which some units may still read.
            Combine::Plane { .. } => totals.saturating_mul(2),
            Combine::Shared => {
                let groups = totals.div_ceil(Self::SUMMED_BY_A_UNIT as usize);
                totals.saturating_add(groups).saturating_add(1)
            }
        };
        let accumulator = accumulator_bytes(problem.problem(), self.access);
        let transposed = match self.transposes(problem) {
            true => {
                let of_row = problem.problem();
                let loads = self.units_per_cube() as usize * self.access.loads_in_flight;
                // The first results replace the elements, if both have one type.
                let (input, results) = (of_row.input(), of_row.results());
                let own = if results.first() == Some(&input) { 0 } else { input.bytes() };
                let bytes = own + results.iter().map(|result| result.bytes()).sum::<usize>();
                // One vector in eight is left out.
                (loads + loads / 8).saturating_mul(self.access.vector).saturating_mul(bytes)
            }
            false => 0,
        };
        let vector = self.access.vector.saturating_mul(problem.problem().input().bytes());
        let kept = (self.units_per_cube() as usize).saturating_mul(self.in_shared);
        records
            .saturating_mul(outputs)
            .saturating_mul(accumulator)
            .saturating_add(looking_back)
            .saturating_add(transposed)
            .saturating_add(kept.saturating_mul(vector))
    }

    /// Checks that the plan computes `problem` correctly on `device`. Plans from [`choose_scan`]
    /// and [`force_scan`](super::force_scan) always do.
    ///
    /// # Errors
    ///
    /// The plan is of another version, the device lacks what the problem needs, the problem asks
    /// for numerics that its operator does not have, or the plan breaks a rule.
    pub fn check(&self, problem: &ScanProblem, device: &Device) -> Result<(), PlanError> {
        if self.version != Self::VERSION {
            return Err(PlanError::Version { found: self.version, expected: Self::VERSION });
        }
        check_device(problem, device)?;
        self.obeys_rules(problem, device).map_err(|reason| device.unfit(self, reason))?;
        let exact = problem.problem().operator().reproducible == Reproducible::Exact;
        if exact || !self.numerics.is_batch_invariant() {
            return Ok(());
        }
        match choose_scan(problem, device)?.plan.tree() == self.tree() {
            true => Ok(()),
            false => Err(device.unfit(self, Illegal::OtherBits { numerics: self.numerics })),
        }
    }

    pub(super) fn obeys_rules(
        &self,
        problem: &ScanProblem,
        device: &Device,
    ) -> Result<(), Illegal> {
        let Self { access, units_per_output: units, outputs_per_cube: outputs, .. } = *self;
        let of_row = problem.problem();
        check_access(access, of_row, device)?;
        let plain = Access::new(access.direction)
            .with_vector(access.vector)
            .with_peeled(access.peeled)
            .with_loads_in_flight(access.loads_in_flight);
        if access != plain || !access.loads_in_flight.is_power_of_two() {
            return Err(Illegal::ScanAccess);
        }
        if access.peeled && !may_peel(problem, access.direction) {
            return Err(Illegal::PeeledScan);
        }
        let of_cube = units.checked_mul(outputs).ok_or(Illegal::UnitsDoNotDivide)?;
        power_of_two(Quantity::UnitsPerCube, of_cube, device.max_units_per_cube)?;
        power_of_two(Quantity::UnitsPerOutput, units, of_cube)?;
        if let Combine::Plane { lanes } = self.combine {
            check_lanes(Direction::Along, of_cube, units, lanes, device)?;
            if lanes < 2 {
                return Err(Illegal::OneLane);
            }
            // Across, the outputs of a cube lie side by side in each plane.
            let plane = device.plane_size_min;
            let fills_plane =
                plane == device.plane_size_max && lanes.checked_mul(outputs) == Some(plane);
            if access.direction == Direction::Across && !fills_plane {
                return Err(Illegal::LanesBesideOutputs { lanes, outputs, plane });
            }
        }
        fits_shared(self.shared_bytes(problem), device)?;
        let cubes = self.cubes_per_output;
        if cubes == 0 {
            return Err(Illegal::NoCubes);
        }
        let (in_shared, in_flight) = (self.in_shared, access.loads_in_flight);
        if !in_shared.is_multiple_of(in_flight) {
            return Err(Illegal::HeldInParts { in_shared, in_flight });
        }
        if in_shared > 0 && !self.may_keep(problem) {
            return Err(Illegal::ScanInShared { in_shared });
        }
        let (found, expected) = (self.numerics, of_row.numerics());
        if found < expected || found.is_reproducible() != expected.is_reproducible() {
            return Err(Illegal::Numerics { found, expected });
        }
        // The last of equal parts may end so many loads past the row, and a chunk may by itself.
        let past = match self.parts {
            ScanParts::TwoLaunches => u64::from(cubes).saturating_mul(self.loads_per_chunk()),
            ScanParts::LookBack => self.loads_per_chunk(),
        };
        if cubes > 1 && past > INDEX_SLACK {
            return Err(Illegal::SplitStride { cubes, max: INDEX_SLACK });
        }
        let partials = self.partials(problem);
        if partials > NARROW_LIMIT {
            return Err(Illegal::TooManyPartials { partials, max: NARROW_LIMIT });
        }
        if self.looks_back() {
            self.may_look_back(problem, device)?;
        }
        // The input and a buffer for each result, each of them as vectors and as elements where
        // rows begin and end inside vectors; what comes before the rows; and a buffer for each
        // field of partials, or one of words.
        let tensors = (1 + of_row.results().len()) * (1 + usize::from(access.peeled));
        let earlier = usize::from(problem.earlier().is_some());
        let fields = match (cubes, self.parts) {
            (0 | 1, _) => 0,
            (_, ScanParts::TwoLaunches) => of_row.operator().fields,
            (_, ScanParts::LookBack) => 1,
        };
        fits_bindings(tensors + earlier + fields, device)?;
        fits_grid(self.cubes(problem), false, device)
    }

    /// Whether units may keep loads in shared memory.
    fn may_keep(&self, problem: &ScanProblem) -> bool {
        self.looks_back()
            && matches!(self.combine, Combine::Plane { .. })
            && self.access.direction == Direction::Along
            && !self.transposes(problem)
    }

    /// Cubes may wait for parts that others have begun before theirs: however many there are, those
    /// that run go on.
    fn may_look_back(&self, problem: &ScanProblem, device: &Device) -> Result<(), Illegal> {
        cubes_may_wait(device)?;
        let (cubes, chunks) = (self.cubes_per_output, self.chunks(problem));
        if u64::from(cubes) != chunks {
            return Err(Illegal::ChunksOfCubes { cubes, chunks });
        }
        let (units, outputs) = (self.units_per_cube(), u64::from(self.outputs_of_cube()));
        if outputs > u64::from(units) {
            return Err(Illegal::MergeBelowOutputs { units, outputs });
        }
        if units < device.plane_size_max {
            return Err(Illegal::MergeBelowPlane { units, plane: device.plane_size_max });
        }
        let (levels, most) = (self.levels(), Self::MOST_LEVELS);
        if levels > most {
            return Err(Illegal::LookBackLevels { cubes, levels, most });
        }
        // Cubes count themselves, as do those that the grid holds past the last.
        let counted = self.cubes(problem).saturating_add(cubes.into());
        if counted > NARROW_LIMIT {
            return Err(Illegal::TooManyTiles { tiles: counted, max: NARROW_LIMIT });
        }
        // Each field has words of its own.
        let operator = problem.problem().operator();
        let words = operator.accumulator_bytes.div_ceil(size_of::<u32>()).max(operator.fields);
        let bytes = self.published_words(counted, words).unwrap_or(0).saturating_mul(8);
        let max = device.tuning.applied.published_bytes.min(MOST_PUBLISHED_BYTES);
        match bytes > max {
            true => Err(Illegal::PublishedPartials { bytes, max }),
            false => Ok(()),
        }
    }

    /// What the bits of results depend on beside the row.
    fn tree(&self) -> impl PartialEq {
        let Access { direction, vector, peeled, loads_in_flight, .. } = self.access;
        let vector = if direction == Direction::Along { vector } else { 1 };
        let of_units = (self.units_per_output, self.combine, self.cubes_per_output, self.parts);
        (direction, vector, peeled, loads_in_flight, self.in_shared, of_units)
    }
}

/// Whether the functions of the operator take much longer than reading an element: its accumulators
/// have many fields, or its elements take exponentials or the like.
pub(super) fn has_long_functions(problem: &ScanProblem) -> bool {
    let operator = problem.problem().operator();
    operator.fields > FEW_FIELDS || operator.element_cost.is_transcendental()
}

/// Loads of an output's row. Those of a peeled one are the aligned vectors that hold any of its
/// elements, wherever it begins.
pub(super) fn row_loads(access: Access, problem: &ScanProblem) -> u64 {
    let of_row = problem.problem();
    match access.peeled {
        true => {
            let edges = 2 * (access.vector.max(1) - 1);
            (access.inner_len(of_row).saturating_add(edges) / access.vector.max(1)) as u64
        }
        false => access.loads_per_output(of_row),
    }
}

/// Whether the rows of a scan may begin and end inside vectors, of which some components are then
/// left out. Where a row begins would decide which of its elements are added up first, so it may
/// not where a row alone decides the bits.
pub(super) fn may_peel(problem: &ScanProblem, direction: Direction) -> bool {
    let of_row = problem.problem();
    direction == Direction::Along
        && of_row.reduced().len() == 1
        && !of_row.numerics().is_batch_invariant()
}

#[cfg(feature = "serde")]
fn is_zero(&loads: &usize) -> bool {
    loads == 0
}

/// Checks that a device has what the problem needs, whatever the plan.
pub(super) fn check_device(problem: &ScanProblem, device: &Device) -> Result<(), PlanError> {
    problem.check_numerics()?;
    limits::check_limits(problem.problem(), device, problem.problem().index_span()).map(|_| ())
}

impl fmt::Display for ScanPlan {
    /// One line, such as `scan by a cube: 256 units per output in planes of 32, 1 output per cube;
    /// vectors of 4 along the reduction, 4 loads in flight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { access, units_per_output: units, outputs_per_cube: outputs, .. } = self;
        let cubes = self.cubes_per_output;
        let (output, plural) = (access.tile_name(), |count: u32| if count == 1 { "" } else { "s" });
        match self.kind() {
            ScheduleKind::Split if self.looks_back() => {
                write!(f, "scan by {cubes} cubes per {output} that look back: ")?;
            }
            ScheduleKind::Split => write!(f, "scan by {cubes} cubes per {output} in 2 launches: ")?,
            kind => write!(f, "scan by a {kind}: ")?,
        }
        write!(f, "{units} unit{} per {output}", plural(*units))?;
        match self.combine {
            _ if *units <= 1 => {}
            Combine::Plane { lanes } => write!(f, " in planes of {lanes}")?,
            Combine::Shared => f.write_str(" through shared memory")?,
        }
        write!(f, ", {outputs} {output}{} per cube; {access}", plural(*outputs))?;
        if self.in_shared > 0 {
            write!(f, ", {} more in shared memory", self.in_shared)?;
        }
        self.numerics.write_unusual(f, "; ")
    }
}
