//! A plan for segments as data, its sentence, and the rules that it must obey.

use core::fmt;

use crate::{
    device::Device,
    error::PlanError,
    estimate::Estimate,
    illegal::{Illegal, Quantity},
    limits::{self, NARROW_LIMIT},
    plan::{
        Access, Combine,
        check::{
            MOST_PUBLISHED_BYTES, check_access, check_lanes, cubes_may_wait, fits_bindings,
            fits_grid, fits_shared, power_of_two,
        },
        div_ceil,
    },
    problem::{Direction, SegmentsProblem},
};

/// What will be launched for a reduction of segments on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct SegmentsPlan {
    /// Version of the planner that made the plan. See [`SegmentsPlan::VERSION`].
    pub version: u32,
    /// How the input is read. A unit has so many loads of an output at a time: its share.
    pub access: Access,
    /// Units of a cube, a power of two. Those that have one output take a step together.
    pub units_per_cube: u32,
    /// Outputs, or vectors of outputs, that a cube has side by side: a power of two, and 1 along the
    /// axis.
    pub side_by_side: u32,
    /// How units learn what those before them have of a segment: the lanes of a plane from each
    /// other, which have a strip of the tile for themselves, or through shared memory.
    pub combine: Combine,
    /// Steps of a tile, which units take one after the other.
    pub steps: u32,
    /// Cubes, which take tiles in turn. Bits do not depend on it.
    pub cubes: u32,
    /// Who merges what a segment has in several tiles.
    pub merge: SegmentsMerge,
}

/// Who merges what a segment has in several tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
#[non_exhaustive]
pub enum SegmentsMerge {
    /// The cube in whose tile it ends, which looks back at the tiles before and waits for them
    /// (Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back", 2016, on
    /// which this is a variation without inclusive prefixes). Cubes take tiles in the order in which
    /// they begin.
    LookBack,
    /// A second launch, with a cube for each tile.
    SecondLaunch {
        /// Units of such a cube, a power of two.
        units_per_cube: u32,
    },
}

impl SegmentsPlan {
    /// The version that this planner makes and runs.
    pub const VERSION: u32 = 2;

    /// Shares whose accumulators one unit merges before those of all are.
    pub const MERGED_BY_A_UNIT: u32 = 16;

    /// Most elements of a share, each of which has a bit of a word.
    pub const MOST_ELEMENTS_OF_A_SHARE: usize = 32;

    /// Elements of an output that a unit takes at a time, if it reads the input in this way.
    #[must_use]
    pub const fn share(access: Access) -> usize {
        match access.direction {
            Direction::Along => access.loads_in_flight.saturating_mul(access.vector),
            Direction::Across => access.loads_in_flight,
        }
    }

    /// Units of a cube that have shares of one output.
    #[must_use]
    pub const fn units_per_output(&self) -> u32 {
        let side_by_side = if self.side_by_side == 0 { 1 } else { self.side_by_side };
        self.units_per_cube / side_by_side
    }

    /// Elements of a step.
    #[must_use]
    pub const fn step(&self) -> usize {
        Self::share(self.access).saturating_mul(self.units_per_output() as usize)
    }

    /// Elements of a tile.
    #[must_use]
    pub const fn tile(&self) -> usize {
        self.step().saturating_mul(self.steps as usize)
    }

    /// Tiles of the axis, at least one.
    #[must_use]
    pub fn tiles(&self, problem: &SegmentsProblem) -> usize {
        self.in_parts_of(self.tile(), problem)
    }

    /// Parts of so many elements that the axis lies in. Where it is peeled, the first one begins with
    /// the vector that has the first element.
    pub(super) fn in_parts_of(&self, elements: usize, problem: &SegmentsProblem) -> usize {
        let before = if self.access.peeled { self.access.vector.saturating_sub(1) } else { 0 };
        let places = problem.entries().saturating_add(before);
        places.div_ceil(elements.max(1)).max(1)
    }

    /// Blocks of outputs that cubes have side by side.
    #[must_use]
    pub fn blocks(&self, problem: &SegmentsProblem) -> u64 {
        div_ceil(self.access.output_tiles(problem.axis()), u64::from(self.side_by_side.max(1)))
    }

    /// Outputs, one by one, that a cube has side by side.
    #[must_use]
    pub const fn outputs_of_cube(&self) -> u32 {
        self.side_by_side.saturating_mul(self.access.outputs_per_tile() as u32)
    }

    /// 64-bit words in which tiles publish their parts, if an accumulator has `words` of 32 bits: a
    /// word for each of them, and one more for each block of outputs. `None` if a second launch
    /// merges.
    #[must_use]
    pub fn published_words(&self, problem: &SegmentsProblem, words: usize) -> Option<u64> {
        match self.merge {
            SegmentsMerge::LookBack => {
                let parts = u64::from(self.outputs_of_cube()).saturating_mul(words as u64);
                let of_block = parts.saturating_mul(self.tiles(problem) as u64).saturating_add(1);
                Some(self.blocks(problem).saturating_mul(of_block))
            }
            SegmentsMerge::SecondLaunch { .. } => None,
        }
    }

    /// Units of a cube of the second launch, and 0 if there is none.
    const fn merging_units(&self) -> u32 {
        match self.merge {
            SegmentsMerge::LookBack => 0,
            SegmentsMerge::SecondLaunch { units_per_cube } => units_per_cube,
        }
    }

    /// Outputs, one by one, that a cube of the second launch has side by side. Its other units merge
    /// parts of the same outputs.
    #[must_use]
    pub fn merged_side_by_side(&self, problem: &SegmentsProblem) -> u32 {
        let outputs = problem.axis().outputs().max(1).checked_next_power_of_two();
        let outputs = outputs.and_then(|outputs| u32::try_from(outputs).ok()).unwrap_or(u32::MAX);
        match self.access.direction {
            Direction::Along => 1,
            Direction::Across => self.merging_units().min(outputs),
        }
    }

    /// Cubes of the second launch, if there is one.
    #[must_use]
    pub fn merging_cubes(&self, problem: &SegmentsProblem) -> u64 {
        if self.merge == SegmentsMerge::LookBack {
            return 0;
        }
        let outputs = problem.axis().outputs() as u64;
        let blocks = div_ceil(outputs, u64::from(self.merged_side_by_side(problem).max(1)));
        blocks.saturating_mul(self.tiles(problem) as u64)
    }

    /// Accumulators that tiles leave for a second launch: of the segment that a tile ends and of the
    /// one that it begins, of each output.
    #[must_use]
    pub fn partials(&self, problem: &SegmentsProblem) -> usize {
        if self.merge == SegmentsMerge::LookBack {
            return 0;
        }
        let of_outputs = problem.axis().outputs().saturating_mul(2);
        of_outputs.saturating_mul(self.tiles(problem))
    }

    /// Shared memory of a cube in bytes: along the axis its loads, an accumulator of each element
    /// with which a segment may end, and what units tell each other.
    pub(super) fn shared_bytes(&self, problem: &SegmentsProblem) -> usize {
        let axis = problem.axis();
        let Access { direction, vector, loads_in_flight: loads, .. } = self.access;
        let units = self.units_per_cube as usize;
        let members = self.units_per_output() as usize;
        let share = Self::share(self.access);
        let accumulator = axis.operator().accumulator_bytes;
        let (loaded, width, cells) = match direction {
            Direction::Along => {
                let second = axis.second().map_or(0, |second| second.element().bytes());
                let vectors = members.saturating_mul(loads + 1);
                let bytes = vector.saturating_mul(axis.input().bytes() + second);
                (vectors.saturating_mul(bytes), 1, members.saturating_mul(share + 1))
            }
            Direction::Across => (0, vector, units.saturating_mul(share)),
        };
        let tails = match self.combine {
            Combine::Plane { lanes } => 2 * (units / (lanes.max(1) as usize)).max(1) + 2,
            Combine::Shared => {
                let group = members.clamp(1, Self::MERGED_BY_A_UNIT as usize);
                units + units / group
            }
        };
        // That of no elements, two of each output side by side, and a tree for the units inside of
        // one segment.
        let others = match self.combine {
            Combine::Plane { .. } => 1,
            Combine::Shared => 1 + 2 * self.side_by_side as usize + units,
        };
        // Those of the region that goes on into a tile, of the tiles before it, and a tree for these.
        let outputs = self.outputs_of_cube() as usize;
        let (looking_back, numbers) = match self.merge {
            SegmentsMerge::LookBack => (outputs.saturating_mul(2).saturating_add(units), 8),
            SegmentsMerge::SecondLaunch { .. } => (0, 0),
        };
        let records = cells.saturating_add(tails).saturating_add(others);
        let words = members + tails + self.side_by_side as usize + 3 + numbers;
        let accumulators = records.saturating_mul(accumulator.saturating_mul(width));
        let looking_back = looking_back.saturating_mul(accumulator);
        let accumulators = accumulators.saturating_add(looking_back);
        loaded.saturating_add(accumulators).saturating_add(words * size_of::<u32>())
    }

    /// Checks that the plan computes `problem` correctly on `device`. Plans from
    /// [`choose_segments`](super::choose_segments) always do.
    ///
    /// # Errors
    ///
    /// The plan is of another version, the device lacks what the problem needs, the problem asks for
    /// numerics that segments do not have, or the plan breaks a rule.
    pub fn check(&self, problem: &SegmentsProblem, device: &Device) -> Result<(), PlanError> {
        if self.version != Self::VERSION {
            return Err(PlanError::Version { found: self.version, expected: Self::VERSION });
        }
        check_device(problem, device)?;
        self.obeys_rules(problem, device).map_err(|reason| device.unfit(self, reason))
    }

    fn obeys_rules(&self, problem: &SegmentsProblem, device: &Device) -> Result<(), Illegal> {
        let axis = problem.axis();
        let Access { direction, vector, peeled, loads_in_flight: loads, .. } = self.access;
        check_access(self.access, axis, device)?;
        let plain = Access::new(direction)
            .with_vector(vector)
            .with_peeled(peeled)
            .with_loads_in_flight(loads);
        // Shares may end anywhere in a vector, whose elements are then read one by one.
        let has_edges = direction == Direction::Across || vector == 1 || peeled;
        // Neighbouring indices are not those of neighbouring elements.
        let one_by_one = direction == Direction::Across || vector == 1;
        let in_order = problem.indices().is_none() || one_by_one;
        if self.access != plain || !has_edges || !in_order {
            return Err(Illegal::SegmentsAccess);
        }
        let most = device.max_units_per_cube;
        power_of_two(Quantity::UnitsPerCube, self.units_per_cube, most)?;
        let fits = self.side_by_side.is_power_of_two() && self.side_by_side <= self.units_per_cube;
        let lone = direction == Direction::Across || self.side_by_side == 1;
        if !fits || !lone || self.cubes == 0 || self.steps == 0 {
            let Self { side_by_side, cubes, steps, .. } = *self;
            return Err(Illegal::SegmentTiles { side_by_side, cubes, steps });
        }
        let (share, most) = (Self::share(self.access), Self::MOST_ELEMENTS_OF_A_SHARE);
        if share > most {
            return Err(Illegal::SegmentShare { share, most });
        }
        if let Combine::Plane { lanes } = self.combine {
            let units = self.units_per_cube;
            check_lanes(direction, units, self.units_per_output(), lanes, device)?;
            // Each plane takes steps of its own, and a ballot of it fits a word.
            let whole = device.plane_size_min == lanes && device.plane_size_max == lanes;
            let alone = units == lanes || device.plane_barriers;
            if !whole || !alone || lanes > u32::BITS {
                return Err(Illegal::SegmentPlanes { units, lanes });
            }
        }
        match self.merge {
            SegmentsMerge::LookBack => self.may_look_back(problem, device)?,
            SegmentsMerge::SecondLaunch { units_per_cube } => {
                let most = device.max_units_per_cube;
                power_of_two(Quantity::UnitsPerMergingCube, units_per_cube, most)?;
                let accumulator = axis.operator().accumulator_bytes;
                fits_shared((units_per_cube as usize).saturating_mul(accumulator), device)?;
            }
        }
        fits_shared(self.shared_bytes(problem), device)?;
        // The input as vectors and as elements, the second input likewise, the offsets, the indices,
        // results as elements and as vectors, and a field of partials each or the published words.
        let inputs = 2 + if axis.second().is_some() { 2 } else { 0 };
        let indices = usize::from(problem.indices().is_some());
        let parts = match self.merge {
            SegmentsMerge::LookBack => 1,
            SegmentsMerge::SecondLaunch { .. } => axis.operator().fields,
        };
        let bindings = inputs + indices + 1 + 2 * axis.results().len() + parts;
        fits_bindings(bindings, device)?;
        fits_grid(self.cubes.into(), false, device)?;
        fits_grid(self.merging_cubes(problem), true, device)
    }

    /// Cubes may wait for tiles that others have begun before theirs: however many there are, those
    /// that run go on.
    fn may_look_back(&self, problem: &SegmentsProblem, device: &Device) -> Result<(), Illegal> {
        cubes_may_wait(device)?;
        let units = self.units_per_cube;
        let outputs = u64::from(self.outputs_of_cube());
        if outputs > u64::from(units) {
            return Err(Illegal::MergeBelowOutputs { units, outputs });
        }
        if units < device.plane_size_max {
            return Err(Illegal::MergeBelowPlane { units, plane: device.plane_size_max });
        }
        // Cubes count tiles, and each cube one more than there are, as do those that the grid holds
        // past the last.
        let tiles = self.blocks(problem).saturating_mul(self.tiles(problem) as u64);
        let counted = tiles.saturating_add(2 * u64::from(self.cubes));
        if counted > NARROW_LIMIT {
            return Err(Illegal::TooManyTiles { tiles: counted, max: NARROW_LIMIT });
        }
        // Each field has words of its own.
        let operator = problem.axis().operator();
        let words = operator.accumulator_bytes.div_ceil(size_of::<u32>()).max(operator.fields);
        let bytes = self.published_words(problem, words).unwrap_or(0).saturating_mul(8);
        let max = device.tuning.applied.published_bytes.min(MOST_PUBLISHED_BYTES);
        match bytes > max {
            true => Err(Illegal::PublishedPartials { bytes, max }),
            false => Ok(()),
        }
    }

    /// Launches of the plan.
    const fn launches(&self) -> u32 {
        match self.merge {
            SegmentsMerge::LookBack => 1,
            SegmentsMerge::SecondLaunch { .. } => 2,
        }
    }

    /// What the plan should take for `problem` on `device`: the bytes at the bandwidth, and its
    /// launches.
    #[must_use]
    pub fn estimate(&self, problem: &SegmentsProblem, device: &Device) -> Estimate {
        let profile = &device.profile;
        let launches = f64::from(self.launches());
        let bandwidth = profile.bandwidth.max(1) as f64 * 1e-9;
        Estimate::streamed(
            launches * profile.launch_ns as f64,
            launches * profile.gap_ns as f64,
            launches * profile.latency_ns as f64,
            problem.bytes() as f64 / bandwidth,
            1.0,
        )
    }
}

/// Checks that a device has what the problem needs, whatever the plan.
pub(super) fn check_device(problem: &SegmentsProblem, device: &Device) -> Result<(), PlanError> {
    let span = problem.output_span().max(problem.entries());
    limits::check_limits(problem.axis(), device, span as u64)?;
    let indices = problem.indices().map(|indices| indices.element);
    if let Some(element) =
        core::iter::once(problem.offsets()).chain(indices).find(|&element| !device.has(element))
    {
        let device = device.name.clone();
        return Err(PlanError::ElementUnsupported { device, element });
    }
    problem.check_numerics()
}

impl fmt::Display for SegmentsPlan {
    /// One line, such as `segments: 1 launch that looks back, 391 cubes of 256 units in planes of 32,
    /// tiles of 42 steps of 4096 elements, 1 side by side; vectors of 4 along the reduction, 4 loads
    /// in flight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { access, units_per_cube: units, side_by_side, cubes, steps, .. } = self;
        let step = self.step();
        write!(
            f,
            "segments: {launches}, {cubes} cubes of {units} units{lanes}, tiles of {steps} steps of \
             {step} elements, {side_by_side} side by side; {access}",
            launches = match self.merge {
                SegmentsMerge::LookBack => "1 launch that looks back",
                SegmentsMerge::SecondLaunch { .. } => "2 launches",
            },
            lanes = match self.combine {
                Combine::Plane { lanes } => format!(" in planes of {lanes}"),
                Combine::Shared => String::new(),
            },
        )
    }
}
