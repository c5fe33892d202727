//! A plan: what will be launched, as data. Legality is in `check.rs`, the sentence in `display.rs`.

pub(crate) mod check;
mod display;
mod tree;

use core::hash::{Hash, Hasher};

pub(crate) use tree::Tree;

use crate::{
    kind::ScheduleKind,
    numerics::Numerics,
    problem::{Direction, Problem},
};

/// How units read the input.
///
/// Read along the reduction, an *output tile* is one output. Read across outputs, it is one vector
/// of neighbouring outputs. Units work on whole output tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Access {
    /// Whether vectors and neighbouring units lie along the reduction or across outputs.
    pub direction: Direction,
    /// Elements per load, a power of two. It is 1 where the inner dimension has gaps.
    pub vector: usize,
    /// Whether the head and the tail of an inner dimension are peeled, because they do not fill a
    /// vector. Their elements are read one by one.
    pub peeled: bool,
    /// Whether rows that start off a vector's boundary are read in aligned vectors all the same. The
    /// vectors of a row then begin up to a vector before its first element.
    ///
    /// Along the reduction, a load reads two neighbouring vectors and moves its elements together.
    /// The last elements of each row, fewer than two vectors, are read one by one. Which component
    /// of which load an element is follows from its position alone.
    ///
    /// Across outputs, the rows of one unit all begin equally far behind a boundary, and the units
    /// of a cube move their components to the right outputs when they combine.
    #[cfg_attr(feature = "serde", serde(default))]
    pub realigned: bool,
    /// Independent loads of one output that a unit issues before it uses the first.
    pub loads_in_flight: usize,
    /// Output tiles that a team has in flight together. More than one pays where each is short.
    #[cfg_attr(feature = "serde", serde(default = "one"))]
    pub outputs_in_flight: usize,
    /// Accumulators that a unit has for an output tile, a power of two that divides the loads in
    /// flight. Each takes every load of its number among neighbouring ones. Reproducible plans have
    /// more than one where a unit takes several of their lanes.
    #[cfg_attr(feature = "serde", serde(default = "one", skip_serializing_if = "is_one"))]
    pub accumulators: usize,
    /// Whether units hold all elements of an output and take them in two passes, such as the mean
    /// and then the squared distances from it. All loads of an output are then in flight.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "is_false"))]
    pub in_passes: bool,
}

/// All numbers in one write, and all flags in another. Every launch hashes an access several times,
/// and a write may take longer than what it writes.
impl Hash for Access {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // All fields are named: kernels on the disk are told apart by their hash alone.
        let Self {
            direction,
            vector,
            peeled,
            realigned,
            loads_in_flight,
            outputs_in_flight,
            accumulators,
            in_passes,
        } = *self;
        let is_across = match direction {
            Direction::Along => false,
            Direction::Across => true,
        };
        let flags = [is_across, peeled, realigned, in_passes].map(u8::from);
        state.write_u32(u32::from_ne_bytes(flags));
        let numbers = [vector, loads_in_flight, outputs_in_flight, accumulators];
        usize::hash_slice(&numbers, state);
    }
}

/// The outputs in flight, and the accumulators, of plans that do not say.
#[cfg(feature = "serde")]
const fn one() -> usize {
    1
}

#[cfg(feature = "serde")]
fn is_false(&flag: &bool) -> bool {
    !flag
}

#[cfg(feature = "serde")]
fn is_one(&accumulators: &usize) -> bool {
    accumulators == one()
}

/// How the units that share an output combine their accumulators within a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase", deny_unknown_fields))]
pub enum Combine {
    /// Plane operations over this many lanes first, then shared memory for what remains.
    Plane {
        /// Lanes that combine, a power of two up to the smallest plane.
        lanes: u32,
    },
    /// Shared memory alone.
    Shared,
}

/// Who shares the work on one output tile.
///
/// "Output" in the names of these numbers means an output tile: one output along the reduction, one
/// vector of neighbouring outputs across. The kernels call the same numbers `units_per_tile` and
/// `tiles_per_cube`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase", deny_unknown_fields))]
#[non_exhaustive]
pub enum Schedule {
    /// One unit works on an output.
    Unit {
        /// Units of a cube, a power of two.
        units_per_cube: u32,
    },
    /// Lanes of one plane share an output.
    Plane {
        /// Lanes that share an output, a power of two from 2 to the smallest plane.
        lanes_per_output: u32,
        /// Units of a cube, a power of two.
        units_per_cube: u32,
    },
    /// Units of one cube share an output.
    Cube {
        /// Units that share an output, a power of two.
        units_per_output: u32,
        /// Outputs that a cube works on at a time, a power of two.
        outputs_per_cube: u32,
        /// How the units combine.
        combine: Combine,
    },
    /// Units of several cubes share an output. Each cube has partials, which are merged in the
    /// order of the cubes.
    Split {
        /// Cubes that share an output, at least 2.
        cubes_per_output: u32,
        /// Units of each of these cubes that share an output, a power of two.
        units_per_output: u32,
        /// Outputs that a cube works on at a time, a power of two.
        outputs_per_cube: u32,
        /// How the units of one cube combine.
        combine: Combine,
        /// Who merges the partials.
        merge: Merge,
    },
}

/// Who merges the partials of a split. The order of the merge depends on nothing but the plan, so
/// results are reproducible bit for bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
#[non_exhaustive]
pub enum Merge {
    /// The last cube of an output to finish, in the same launch. It needs 64-bit atomics.
    LastCube,
    /// A second launch.
    SecondLaunch {
        /// Units that merge the partials of one output, a power of two.
        units_per_output: u32,
        /// Outputs that a cube merges, a power of two.
        outputs_per_cube: u32,
    },
}

/// What will be launched for a problem on a device.
///
/// A plan is plain data. It can be compared, printed as a sentence, saved with the feature `serde`,
/// and used again for any problem and device that [`Plan::check`] accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct Plan {
    /// Version of the planner that made the plan. See [`Plan::VERSION`].
    pub version: u32,
    /// How the input is read.
    pub access: Access,
    /// Who shares the work on one output.
    pub schedule: Schedule,
    /// What the bits of a result may depend on.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Numerics::is_default"))]
    pub numerics: Numerics,
}

/// How the outputs of a realigned row are dealt to cubes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RealignedBlocks {
    /// Blocks of a row, each for one cube.
    pub per_row: usize,
    /// Outputs of a block. The last of a row may have fewer.
    pub outputs: usize,
}

impl Schedule {
    /// Which schedule it is.
    #[must_use]
    pub const fn kind(&self) -> ScheduleKind {
        match self {
            Schedule::Unit { .. } => ScheduleKind::Unit,
            Schedule::Plane { .. } => ScheduleKind::Plane,
            Schedule::Cube { .. } => ScheduleKind::Cube,
            Schedule::Split { .. } => ScheduleKind::Split,
        }
    }

    /// Units of one cube.
    #[must_use]
    pub const fn units_per_cube(&self) -> u32 {
        match *self {
            Schedule::Unit { units_per_cube } | Schedule::Plane { units_per_cube, .. } => {
                units_per_cube
            }
            Schedule::Cube { units_per_output, outputs_per_cube, .. }
            | Schedule::Split { units_per_output, outputs_per_cube, .. } => {
                units_per_output.saturating_mul(outputs_per_cube)
            }
        }
    }

    /// Units of one cube that share an output.
    #[must_use]
    pub const fn units_per_output(&self) -> u32 {
        match *self {
            Schedule::Unit { .. } => 1,
            Schedule::Plane { lanes_per_output, .. } => lanes_per_output,
            Schedule::Cube { units_per_output, .. } | Schedule::Split { units_per_output, .. } => {
                units_per_output
            }
        }
    }

    /// Outputs (across outputs: output tiles) that one cube works on at a time.
    #[must_use]
    pub const fn outputs_per_cube(&self) -> u32 {
        match self.units_per_cube().checked_div(self.units_per_output()) {
            None | Some(0) => 1,
            Some(outputs) => outputs,
        }
    }

    /// Cubes that share an output.
    #[must_use]
    pub const fn cubes_per_output(&self) -> u32 {
        match *self {
            Schedule::Split { cubes_per_output, .. } => cubes_per_output,
            _ => 1,
        }
    }

    /// Units of all cubes that share an output.
    pub(crate) const fn all_units_per_output(&self) -> u64 {
        self.units_per_output() as u64 * self.cubes_per_output() as u64
    }

    /// Number of launches.
    #[must_use]
    pub const fn launches(&self) -> u32 {
        match self {
            Schedule::Split { merge: Merge::SecondLaunch { .. }, .. } => 2,
            _ => 1,
        }
    }

    /// How the units of one cube that share an output combine. `None` if it is one unit.
    #[must_use]
    pub const fn combine(&self) -> Option<Combine> {
        match *self {
            Schedule::Unit { .. } => None,
            Schedule::Plane { lanes_per_output, .. } => {
                Some(Combine::Plane { lanes: lanes_per_output })
            }
            Schedule::Cube { combine, .. } | Schedule::Split { combine, .. } => Some(combine),
        }
    }
}

impl Access {
    /// Most loads that a plan may have in flight, over all outputs in flight: each holds registers.
    pub const MOST_LOADS_IN_FLIGHT: usize = 16;

    /// Single elements, one load of one output in flight.
    #[must_use]
    pub const fn new(direction: Direction) -> Self {
        Self {
            direction,
            vector: 1,
            peeled: false,
            realigned: false,
            loads_in_flight: 1,
            outputs_in_flight: 1,
            accumulators: 1,
            in_passes: false,
        }
    }

    /// The same with vectors of so many elements.
    #[must_use]
    pub const fn with_vector(self, vector: usize) -> Self {
        Self { vector, ..self }
    }

    /// The same with head and tail of the inner dimension peeled, or not.
    #[must_use]
    pub const fn with_peeled(self, peeled: bool) -> Self {
        Self { peeled, ..self }
    }

    /// The same with rows realigned, or not.
    #[must_use]
    pub const fn with_realigned(self, realigned: bool) -> Self {
        Self { realigned, ..self }
    }

    /// The same with so many loads of an output in flight.
    #[must_use]
    pub const fn with_loads_in_flight(self, loads_in_flight: usize) -> Self {
        Self { loads_in_flight, ..self }
    }

    /// The same with so many output tiles in flight.
    #[must_use]
    pub const fn with_outputs_in_flight(self, outputs_in_flight: usize) -> Self {
        Self { outputs_in_flight, ..self }
    }

    /// The same with so many accumulators of a unit for an output tile.
    #[must_use]
    pub const fn with_accumulators(self, accumulators: usize) -> Self {
        Self { accumulators, ..self }
    }

    /// The same with elements held and taken in two passes, or not.
    #[must_use]
    pub const fn with_in_passes(self, in_passes: bool) -> Self {
        Self { in_passes, ..self }
    }

    /// Elements of the inner dimension: the innermost reduced one along the reduction, the
    /// innermost kept one across outputs. Vectors lie in it.
    #[must_use]
    pub fn inner_len(&self, problem: &Problem) -> usize {
        match self.direction {
            Direction::Along => problem.reduced().last().map_or(1, |dim| dim.extent),
            Direction::Across => problem.kept().last().map_or(1, |dim| dim.extent),
        }
    }

    /// Whether the inner dimension ends with elements that do not fill a vector.
    pub(crate) fn leaves_tail(&self, problem: &Problem) -> bool {
        !self.inner_len(problem).is_multiple_of(self.vector.max(1))
    }

    /// Whether rows along the reduction are realigned.
    #[must_use]
    pub const fn realigns_along(&self) -> bool {
        self.realigned && matches!(self.direction, Direction::Along)
    }

    /// Whether rows across outputs are realigned.
    #[must_use]
    pub const fn realigns_across(&self) -> bool {
        self.realigned && matches!(self.direction, Direction::Across)
    }

    /// Along the reduction, the loads of an inner dimension. Those of realigned rows read a vector
    /// that begins up to a vector less one element behind their last element, and still lies inside
    /// the row.
    #[must_use]
    pub const fn whole_loads(&self, inner_len: usize) -> usize {
        let vector = if self.vector == 0 { 1 } else { self.vector };
        let before = if self.realigned { vector - 1 } else { 0 };
        div(inner_len.saturating_sub(before) as u64, vector as u64) as usize
    }

    /// Loads that cover the inner dimension, wherever it starts if it is realigned.
    pub(crate) fn loads_per_inner(&self, problem: &Problem) -> u64 {
        let vector = self.vector.max(1);
        let before = if self.realigns_across() { vector - 1 } else { 0 };
        div_ceil(self.inner_len(problem).saturating_add(before) as u64, vector as u64)
    }

    /// Number of output tiles. Along the reduction an output tile is one output, across outputs it
    /// is one vector of neighbouring outputs. Realigned rows have a few more if several cubes work
    /// on each ([`Plan::output_tiles`]).
    #[must_use]
    pub fn output_tiles(&self, problem: &Problem) -> u64 {
        match self.direction {
            Direction::Along => problem.outputs() as u64,
            Direction::Across => {
                let (inner, outer) = problem
                    .kept()
                    .split_last()
                    .map_or((1, [].as_slice()), |(inner, outer)| (inner.extent, outer));
                let rows: usize =
                    if inner == 0 { 0 } else { outer.iter().map(|dim| dim.extent).product() };
                (rows as u64).saturating_mul(self.loads_per_inner(problem))
            }
        }
    }

    /// How realigned rows are dealt to cubes, each of which works on so many output tiles. These
    /// cover as many whole vectors, of which the first may begin up to a vector less one element
    /// before the first output.
    #[must_use]
    pub fn realigned_blocks(&self, problem: &Problem, tiles_per_cube: u32) -> RealignedBlocks {
        let inner = self.inner_len(problem).max(1);
        let tiles = tiles_per_cube.max(1) as usize;
        let most = (tiles - 1).saturating_mul(self.vector).saturating_add(1);
        let per_row = inner.div_ceil(most);
        RealignedBlocks { per_row, outputs: inner.div_ceil(per_row) }
    }

    /// Blocks of so many neighbouring output tiles that cover all outputs.
    pub(crate) fn cube_blocks(&self, problem: &Problem, tiles_per_cube: u32) -> u64 {
        if !self.realigns_across() {
            return div_ceil(self.output_tiles(problem), tiles_per_cube.max(1).into());
        }
        let rows = problem.outputs() / self.inner_len(problem).max(1);
        let blocks = self.realigned_blocks(problem, tiles_per_cube).per_row;
        (rows as u64).saturating_mul(blocks as u64)
    }

    /// Loads per output tile, without single elements at the ends of rows.
    #[must_use]
    pub fn loads_per_output(&self, problem: &Problem) -> u64 {
        match self.direction {
            Direction::Along => {
                let Some((inner, outer)) = problem.reduced().split_last() else {
                    return u64::from(self.vector <= 1);
                };
                let rows: usize = outer.iter().map(|dim| dim.extent).product();
                rows as u64 * self.whole_loads(inner.extent) as u64
            }
            Direction::Across => problem.reduction_len() as u64,
        }
    }

    /// Outputs of one output tile.
    pub(crate) const fn outputs_per_tile(&self) -> usize {
        match self.direction {
            Direction::Along => 1,
            Direction::Across => self.vector,
        }
    }
}

impl Plan {
    /// The version that this planner makes and runs. It changes whenever an old plan would run
    /// differently or not at all.
    pub const VERSION: u32 = 4;

    /// A plan of this version.
    #[must_use]
    pub const fn new(access: Access, schedule: Schedule) -> Self {
        let numerics = Numerics::Deterministic;
        Self { version: Self::VERSION, access, schedule, numerics }
    }

    /// The same plan with bits that depend on no more than this. [`Plan::check`] tells whether it
    /// can promise that.
    #[must_use]
    pub const fn with_numerics(self, numerics: Numerics) -> Self {
        Self { numerics, ..self }
    }

    /// Number of output tiles that the units work on. See [`Access::output_tiles`].
    #[must_use]
    pub fn output_tiles(&self, problem: &Problem) -> u64 {
        match self.access.realigns_across() {
            true => {
                let tiles = self.schedule.outputs_per_cube();
                self.access.cube_blocks(problem, tiles).saturating_mul(tiles.into())
            }
            false => self.access.output_tiles(problem),
        }
    }

    /// Cubes of the first launch, before they are spread over the grid.
    #[must_use]
    pub fn cubes(&self, problem: &Problem) -> u64 {
        let tiles = u64::from(self.schedule.outputs_per_cube())
            .saturating_mul(self.access.outputs_in_flight.max(1) as u64);
        let blocks = div_ceil(self.output_tiles(problem), tiles);
        blocks.saturating_mul(u64::from(self.schedule.cubes_per_output()))
    }

    /// Words of 64 bits in which the cubes of a split publish their partials for the last one.
    /// `words` is the number of 32-bit words of an accumulator. Each block of outputs takes one
    /// counter, and each cube one word of 64 bits for each accumulator word of its outputs.
    #[must_use]
    pub fn published_words(&self, problem: &Problem, words: usize) -> u64 {
        let cubes = u64::from(self.schedule.cubes_per_output()).max(1);
        let outputs = u64::from(self.outputs_of_cube());
        let per_block = cubes.saturating_mul(outputs).saturating_mul(words as u64);
        (self.cubes(problem) / cubes).saturating_mul(per_block.saturating_add(1))
    }

    /// Outputs that one cube works on at a time, each output of a tile counted.
    pub(crate) const fn outputs_of_cube(&self) -> u32 {
        self.schedule.outputs_per_cube().saturating_mul(self.access.outputs_per_tile() as u32)
    }
}

/// A quotient, as fast as a shift where the divisor is a power of two, as almost all numbers of a
/// plan are.
pub(crate) const fn div(value: u64, by: u64) -> u64 {
    if by.is_power_of_two() { value >> by.trailing_zeros() } else { value / by }
}

/// The same, rounded up.
pub(crate) const fn div_ceil(value: u64, by: u64) -> u64 {
    if by.is_power_of_two() {
        (value >> by.trailing_zeros()) + (value & (by - 1) != 0) as u64
    } else {
        value.div_ceil(by)
    }
}
