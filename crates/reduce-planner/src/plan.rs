//! A plan: what will be launched, as data.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    Device, Direction, PlanError, Problem,
    schedule::{self, Weight},
    tuning,
};

/// Most loads in flight that a plan may ask for: each holds registers.
const MOST_IN_FLIGHT: usize = 16;

/// How units read the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Access {
    /// Which way the vector lies, and with it neighbouring units.
    pub direction: Direction,
    /// Elements per load, a power of two. 1 where the innermost dimension has gaps.
    pub vector: usize,
    /// Whether runs start or end off a vector's boundary, so that their edges are read one by one.
    pub ragged: bool,
    /// Independent loads of one output that a unit issues before it uses the first.
    pub in_flight: usize,
    /// Outputs (`Across`: vectors of outputs) that a team has in flight together: more than one where
    /// each is short.
    #[serde(default = "one")]
    pub batch: usize,
}

fn one() -> usize {
    1
}

/// How units of one output put their accumulators together inside a cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Combine {
    /// Plane operations over groups of this many lanes first, shared memory for what remains.
    Plane {
        /// Lanes per group: a power of two, at most the smallest plane.
        lanes: u32,
    },
    /// Shared memory alone.
    Shared,
}

/// Who cooperates on one output (`Across`: on one vector of outputs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// One unit.
    Unit {
        /// Units per cube.
        units: u32,
    },
    /// A group of lanes within a plane.
    Plane {
        /// Lanes per output: a power of two from 2 to the smallest plane.
        lanes: u32,
        /// Units per cube.
        units: u32,
    },
    /// Units of one cube.
    Cube {
        /// Units per output, a power of two.
        workers: u32,
        /// Outputs per cube (`Across`: vectors of outputs), a power of two.
        outputs: u32,
        /// How the workers combine.
        combine: Combine,
    },
    /// Units of several cubes, whose partial results are merged in the order of the cubes.
    Split {
        /// Cubes per output, 2 at least.
        cubes: u32,
        /// Units per output in each cube, a power of two.
        workers: u32,
        /// Outputs per cube, a power of two.
        outputs: u32,
        /// How the workers of one cube combine.
        combine: Combine,
        /// Who merges the partial results.
        merge: Merge,
    },
}

/// Who merges the partial results of a split, in an order that depends on nothing but the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Merge {
    /// Whichever cube of an output finishes last, in the same launch. Takes 64-bit atomics.
    LastCube,
    /// A second launch.
    SecondLaunch {
        /// Units per output, a power of two.
        workers: u32,
        /// Outputs per cube, a power of two.
        outputs: u32,
    },
}

/// The schedules by name, cheapest to start first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    /// [`Schedule::Unit`].
    Unit,
    /// [`Schedule::Plane`].
    Plane,
    /// [`Schedule::Cube`].
    Cube,
    /// [`Schedule::Split`].
    Split,
}

impl ScheduleKind {
    /// Every schedule.
    pub const ALL: [ScheduleKind; 4] =
        [ScheduleKind::Unit, ScheduleKind::Plane, ScheduleKind::Cube, ScheduleKind::Split];

    /// The name in plans and messages.
    pub const fn name(self) -> &'static str {
        match self {
            ScheduleKind::Unit => "unit",
            ScheduleKind::Plane => "plane",
            ScheduleKind::Cube => "cube",
            ScheduleKind::Split => "split",
        }
    }
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Schedule {
    /// Which schedule it is.
    pub const fn kind(&self) -> ScheduleKind {
        match self {
            Schedule::Unit { .. } => ScheduleKind::Unit,
            Schedule::Plane { .. } => ScheduleKind::Plane,
            Schedule::Cube { .. } => ScheduleKind::Cube,
            Schedule::Split { .. } => ScheduleKind::Split,
        }
    }

    /// Units of one cube.
    pub const fn units(&self) -> u32 {
        match *self {
            Schedule::Unit { units } | Schedule::Plane { units, .. } => units,
            Schedule::Cube { workers, outputs, .. } | Schedule::Split { workers, outputs, .. } => {
                workers.saturating_mul(outputs)
            }
        }
    }

    /// Units that share one output within a cube.
    pub const fn workers(&self) -> u32 {
        match *self {
            Schedule::Unit { .. } => 1,
            Schedule::Plane { lanes, .. } => lanes,
            Schedule::Cube { workers, .. } | Schedule::Split { workers, .. } => workers,
        }
    }

    /// Outputs (`Across`: vectors of outputs) that one cube works on.
    pub const fn outputs(&self) -> u32 {
        match self.units().checked_div(self.workers()) {
            None | Some(0) => 1,
            Some(outputs) => outputs,
        }
    }

    /// Cubes that share one output.
    pub const fn cubes_per_output(&self) -> u32 {
        match *self {
            Schedule::Split { cubes, .. } => cubes,
            _ => 1,
        }
    }

    /// Launches it takes.
    pub const fn launches(&self) -> u32 {
        match self {
            Schedule::Split { merge: Merge::SecondLaunch { .. }, .. } => 2,
            _ => 1,
        }
    }

    /// How the workers of one cube combine, if there is more than one.
    pub const fn combine(&self) -> Option<Combine> {
        match *self {
            Schedule::Unit { .. } => None,
            Schedule::Plane { lanes, .. } => Some(Combine::Plane { lanes }),
            Schedule::Cube { combine, .. } | Schedule::Split { combine, .. } => Some(combine),
        }
    }
}

/// What will be launched for a problem on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Plan {
    /// Version of the planner that made it; see [`Plan::VERSION`].
    pub version: u32,
    /// How the input is read.
    pub access: Access,
    /// Who cooperates on one output.
    pub schedule: Schedule,
}

impl Plan {
    /// The version that this planner makes and runs. It changes whenever an old plan would run
    /// differently or not at all.
    pub const VERSION: u32 = 2;

    /// A plan of this version.
    pub const fn new(access: Access, schedule: Schedule) -> Self {
        Self { version: Self::VERSION, access, schedule }
    }

    /// Cubes of the first launch, before they are spread over the grid.
    pub fn cubes(&self, problem: &Problem) -> u64 {
        let outputs =
            u64::from(self.schedule.outputs()).saturating_mul(self.access.batch.max(1) as u64);
        let blocks = self.access.groups(problem).div_ceil(outputs);
        blocks.saturating_mul(u64::from(self.schedule.cubes_per_output()))
    }

    /// Words of 64 bits through which the cubes of a split hand their partial results to the last one,
    /// for accumulators of `words` words of 32 bits: a counter for each block of outputs, and a word
    /// for each of the accumulators' words.
    pub fn hand_over_words(&self, problem: &Problem, words: usize) -> u64 {
        let cubes = u64::from(self.schedule.cubes_per_output()).max(1);
        let outputs = u64::from(schedule::split::outputs_per_cube(self.access, self.schedule));
        let per_block = cubes.saturating_mul(outputs).saturating_mul(words as u64);
        (self.cubes(problem) / cubes).saturating_mul(per_block.saturating_add(1))
    }

    /// Checks that the plan computes `problem` rightly on `device`: what it claims of alignment
    /// holds and no limit of the device is passed. Plans from [`choose`](crate::choose) always do.
    ///
    /// # Errors
    ///
    /// [`PlanError`], with what does not fit.
    pub fn check(&self, problem: &Problem, device: &Device) -> Result<(), PlanError> {
        if self.version != Self::VERSION {
            return Err(PlanError::Version { found: self.version, expected: Self::VERSION });
        }
        crate::choice::device_can(problem, device)?;
        let unfit = |reason: String| PlanError::Unfit {
            plan: self.to_string(),
            device: device.name.clone(),
            reason,
        };
        self.access.check(problem, device).map_err(unfit)?;
        self.access.check_batch(problem, self.schedule).map_err(unfit)?;
        schedule::check(self, problem, device).map_err(unfit)
    }
}

impl Access {
    /// The widest access that the problem's layout and the device allow.
    pub fn widest(problem: &Problem, device: &Device) -> Self {
        let direction = problem.direction();
        let bytes = problem.input().bytes();
        let mut vector = (device.load_bytes / bytes).min(device.max_vector).max(1);
        let widest = vector;
        while vector > 1 {
            let in_flight = loads_in_flight(problem, direction, vector * bytes);
            for ragged in [false, true] {
                let access = Self { direction, vector, ragged, in_flight, batch: 1 };
                let worth_it = direction == Direction::Across
                    || !ragged
                    || access.run_len(problem) >= widest * tuning::RAGGED_RUN_MIN;
                if worth_it && access.check(problem, device).is_ok() {
                    return access;
                }
            }
            vector /= 2;
        }
        let in_flight = loads_in_flight(problem, direction, bytes);
        Self { direction, vector: 1, ragged: false, in_flight, batch: 1 }
    }

    /// With no more loads in flight than a unit of `schedule` has for one output, and several outputs at
    /// a time where that leaves room.
    pub(crate) fn fitting(self, problem: &Problem, schedule: Schedule, device: &Device) -> Self {
        let units = u64::from(schedule.workers()) * u64::from(schedule.cubes_per_output());
        let loads = self.steps(problem).div_ceil(units.max(1)).max(1).next_power_of_two();
        let most = match schedule.kind() {
            ScheduleKind::Plane if problem.operator().transcendental => {
                tuning::BYTES_IN_FLIGHT_TRANSCENDENTAL / (self.vector * problem.input().bytes())
            }
            _ => self.in_flight,
        };
        let in_flight = (self.in_flight.min(most.max(1)) as u64).min(loads) as usize;
        let mut fitting = Self { in_flight, ..self };
        let wanted = schedule::cubes_wanted(device, tuning::CUBES_PER_MULTIPROCESSOR);
        let most = match schedule::weight(problem) {
            Weight::Light => tuning::OUTPUTS_IN_FLIGHT,
            _ => tuning::OUTPUTS_IN_FLIGHT_HEAVY,
        };
        let each_alone = self.direction == Direction::Across
            && self.vector > 1
            && schedule.kind() == ScheduleKind::Unit;
        while !each_alone
            && 2 * fitting.batch <= most
            && 2 * fitting.batch * in_flight <= self.in_flight
            && (Self { batch: 2 * fitting.batch, ..fitting }).check_batch(problem, schedule).is_ok()
            && Plan::new(fitting, schedule).cubes(problem) >= 2 * wanted
        {
            fitting.batch *= 2;
        }
        fitting
    }

    /// Checks that what a team has in flight is all that its outputs have.
    fn check_batch(&self, problem: &Problem, schedule: Schedule) -> Result<(), String> {
        if self.batch == 1 {
            return Ok(());
        }
        let (batch, loads) = (self.batch, self.in_flight);
        if !batch.checked_mul(loads).is_some_and(|all| (1..=MOST_IN_FLIGHT).contains(&all)) {
            return Err(format!(
                "{batch} outputs of {loads} loads pass {MOST_IN_FLIGHT} in flight"
            ));
        }
        if self.ragged {
            return Err("outputs with ragged edges are read one at a time".into());
        }
        if !matches!(schedule.kind(), ScheduleKind::Unit | ScheduleKind::Plane) {
            return Err("only units and planes have several outputs in flight".into());
        }
        let steps = self.steps(problem);
        if steps == 0 {
            return Err("several outputs are in flight by their loads, and there are none".into());
        }
        let loads = u64::from(schedule.workers()).saturating_mul(self.in_flight as u64);
        if steps > loads {
            return Err(format!("{steps} loads per output, of which {loads} are in flight"));
        }
        Ok(())
    }

    /// Loads that cover the innermost run across outputs.
    pub(crate) fn run_loads(&self, problem: &Problem) -> u64 {
        self.run_len(problem).div_ceil(self.vector.max(1)) as u64
    }

    /// Length of the innermost run that vectors cover, in elements.
    pub(crate) fn run_len(&self, problem: &Problem) -> usize {
        match self.direction {
            Direction::Along => problem.reduced().last().map_or(1, |dim| dim.extent),
            Direction::Across => problem.kept().last().map_or(1, |dim| dim.extent),
        }
    }

    /// Outputs, or vectors of outputs, that are worked on independently.
    pub fn groups(&self, problem: &Problem) -> u64 {
        match self.direction {
            Direction::Along => problem.outputs() as u64,
            Direction::Across => {
                let run = self.run_len(problem).max(1);
                (problem.outputs() / run * run.div_ceil(self.vector.max(1))) as u64
            }
        }
    }

    /// Loads per group, edges aside.
    pub fn steps(&self, problem: &Problem) -> u64 {
        match self.direction {
            Direction::Along => {
                let run = self.run_len(problem).max(1);
                (problem.reduction_len() / run * (run / self.vector.max(1))) as u64
            }
            Direction::Across => problem.reduction_len() as u64,
        }
    }

    /// Checks that every vector load is aligned and inside its run.
    fn check(&self, problem: &Problem, device: &Device) -> Result<(), String> {
        let vector = self.vector;
        if !(1..=MOST_IN_FLIGHT).contains(&self.in_flight) {
            return Err(format!(
                "{} loads in flight are not in 1..={MOST_IN_FLIGHT}",
                self.in_flight
            ));
        }
        if !vector.is_power_of_two() || vector > device.max_vector.max(1) {
            return Err(format!(
                "a vector of {vector} elements is no power of two up to {}",
                device.max_vector
            ));
        }
        if vector == 1 {
            return if self.ragged {
                Err("scalar loads have no ragged edges".into())
            } else {
                Ok(())
            };
        }
        if problem.input_span() < vector {
            return Err(format!("no vector of {vector} in {} elements", problem.input_span()));
        }
        let bytes = vector.saturating_mul(problem.input().bytes());
        if bytes > device.load_bytes {
            return Err(format!(
                "a load of {bytes} bytes passes the device's {}",
                device.load_bytes
            ));
        }
        if !problem.alignment().is_multiple_of(bytes) {
            return Err(format!(
                "loads of {bytes} bytes from an address aligned to {}",
                problem.alignment()
            ));
        }
        let kept = problem.kept().iter().map(|dim| dim.stride);
        let reduced = problem.reduced().iter().map(|dim| dim.stride);
        let (inner, others): (Option<usize>, Vec<usize>) = match self.direction {
            Direction::Along => {
                let mut reduced: Vec<usize> = reduced.collect();
                (reduced.pop(), kept.chain(reduced).collect())
            }
            Direction::Across => {
                let mut kept: Vec<usize> = kept.collect();
                (kept.pop(), reduced.chain(kept).collect())
            }
        };
        if inner != Some(1) {
            return Err(format!("vectors of {vector} need a contiguous innermost dimension"));
        }
        let run = self.run_len(problem);
        let aligned_rows = others.iter().all(|stride| stride.is_multiple_of(vector));
        let whole_run = run.is_multiple_of(vector);
        match (self.direction, self.ragged) {
            (Direction::Along, false) if !(aligned_rows && whole_run) => {
                Err(format!("runs of {run} elements do not divide into vectors of {vector}"))
            }
            // A run this long holds one whole vector wherever it starts.
            (Direction::Along, true) if run < 2 * vector - 1 => {
                Err(format!("a run of {run} elements may hold no whole vector of {vector}"))
            }
            (Direction::Across, _) if !aligned_rows => {
                Err(format!("rows do not start on a boundary of {vector} elements"))
            }
            (Direction::Across, false) if !whole_run => {
                Err(format!("rows of {run} elements do not divide into vectors of {vector}"))
            }
            (Direction::Across, true) if run < vector => {
                Err(format!("rows of {run} elements are shorter than a vector of {vector}"))
            }
            _ => Ok(()),
        }
    }
}

/// Loads of `bytes` bytes that keep enough bytes in flight, and leave registers for accumulators.
fn loads_in_flight(problem: &Problem, direction: Direction, bytes: usize) -> usize {
    let elements = bytes / problem.input().bytes();
    let (wanted, most) = match (schedule::weight(problem), direction) {
        (_, Direction::Across) if problem.operator().transcendental => {
            (tuning::BYTES_IN_FLIGHT_TRANSCENDENTAL, MOST_IN_FLIGHT)
        }
        (Weight::Light, Direction::Across) => (tuning::BYTES_IN_FLIGHT_ACROSS, MOST_IN_FLIGHT),
        (Weight::Heavy, Direction::Along) => {
            (tuning::BYTES_IN_FLIGHT_HEAVY, (tuning::ELEMENTS_IN_FLIGHT_HEAVY / elements).max(2))
        }
        _ => (tuning::BYTES_IN_FLIGHT_ALONG, MOST_IN_FLIGHT),
    };
    (wanted / bytes.max(1)).clamp(2, most.min(MOST_IN_FLIGHT))
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.direction {
            Direction::Along => "along the reduction",
            Direction::Across => "across outputs",
        };
        match self.vector {
            1 => write!(f, "single elements {way}")?,
            vector => write!(f, "vectors of {vector} {way}")?,
        }
        if self.ragged {
            f.write_str(" with ragged edges")?;
        }
        write!(f, ", {} loads in flight", self.in_flight)?;
        if self.batch != 1 {
            write!(f, " for each of {} outputs", self.batch)?;
        }
        Ok(())
    }
}

impl fmt::Display for Combine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Combine::Plane { lanes } => write!(f, "plane operations over {lanes} lanes"),
            Combine::Shared => f.write_str("shared memory"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Across outputs, what a team works on is a vector of them.
        let output = match (self.access.direction, self.access.vector) {
            (Direction::Across, 2..) => "vector of outputs",
            _ => "output",
        };
        match self.schedule {
            Schedule::Unit { units } => {
                write!(f, "unit: one unit per {output}, {units} units per cube")?;
            }
            Schedule::Plane { lanes, units } => {
                write!(f, "plane: {lanes} lanes per {output}, {units} units per cube")?;
            }
            Schedule::Cube { workers, outputs, combine } => write!(
                f,
                "cube: {workers} units per {output}, {outputs} at a time per cube, {combine}"
            )?,
            Schedule::Split { cubes, workers, outputs, combine, merge } => {
                write!(
                    f,
                    "split: {cubes} cubes per {output} with {workers} units each, {outputs} at a \
                     time per cube, {combine}; "
                )?;
                match merge {
                    Merge::LastCube => f.write_str("the last cube merges")?,
                    Merge::SecondLaunch { workers, outputs } => write!(
                        f,
                        "then a second launch with {workers} units per output, {outputs} at a time \
                         per cube"
                    )?,
                }
            }
        }
        write!(f, "; {}", self.access)
    }
}
