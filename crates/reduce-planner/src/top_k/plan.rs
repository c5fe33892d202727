//! A plan for a selection as data, its sentence, and the rules that it must obey.

use core::fmt;

use crate::{
    device::Device,
    error::PlanError,
    illegal::{Illegal, Quantity},
    limits,
    plan::{
        Access,
        check::{check_access, fits_bindings, fits_grid, power_of_two},
        div_ceil,
    },
    problem::{Direction, Over, TopKProblem},
};

/// How the first elements of a slice are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TopKMethod {
    /// What may be among them waits in a buffer in shared memory, which is cut when it is full. The
    /// input is read once.
    Buffer,
    /// A few units hold a slice in registers. What reaches the `k`-th of their own first elements
    /// is put in order by counting.
    Registers,
    /// A cube counts the elements of a row in windows of values around each wanted number, and
    /// compares what is left. It reads the row once for each window. It serves any `k`, but writes
    /// few elements.
    Window,
    /// Cubes sort runs as long as a buffer, and further launches merge neighbouring runs until one
    /// is left, in memory. It serves any number of elements.
    Runs,
}

impl TopKMethod {
    /// Every method.
    pub const ALL: [TopKMethod; 4] =
        [TopKMethod::Buffer, TopKMethod::Registers, TopKMethod::Window, TopKMethod::Runs];

    /// The name in messages and in stored plans.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            TopKMethod::Buffer => "buffer",
            TopKMethod::Registers => "registers",
            TopKMethod::Window => "window",
            TopKMethod::Runs => "runs",
        }
    }
}

impl fmt::Display for TopKMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What will be launched for a selection on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct TopKPlan {
    /// Version of the planner that made the plan. See [`TopKPlan::VERSION`].
    pub version: u32,
    /// How the first elements of a slice are found.
    pub method: TopKMethod,
    /// How the input is read.
    pub access: Access,
    /// Units of a cube that share a slice, a power of two.
    pub units_per_slice: u32,
    /// Slices that a cube works on at a time, a power of two.
    pub slices_per_cube: u32,
    /// Cubes that share a slice. If there are several with buffers, a second launch selects among
    /// what they leave, with the units of one cube for each slice. Of runs, there is one for each.
    pub cubes_per_slice: u32,
    /// Entries that the buffer of a slice holds, a power of two, or those of a run. Of a slice in
    /// registers, the buffer holds what is put in order.
    pub buffer: u32,
    /// Bits of the digits by which a full buffer is counted, or a window: 2, 4 or 8. Other methods
    /// count none.
    pub digit_bits: u32,
}

impl TopKPlan {
    /// The version that this planner makes and runs.
    pub const VERSION: u32 = 1;

    /// Most elements that a unit offers to a buffer at a time.
    pub(super) const MOST_OFFERED: usize = 32;

    /// Most entries of a buffer that a unit holds in registers while the buffer is cut.
    pub(super) const MOST_ENTRIES_PER_UNIT: u32 = 16;

    /// Most cells of a slice, for each word of entries, in which its range is found.
    const MOST_CELLS: u32 = 16;

    /// Cells in which the elements above a window are counted.
    const WINDOW_CELLS: usize = 4;

    /// Partial sums of the exponentials of a slice's selected elements. Their number does not depend
    /// on the plan, and so neither do the bits of probabilities.
    pub const EXPONENTIAL_SUMS: u32 = 32;

    /// Most samples of a row whose elements are counted in windows: one of each unit.
    pub const SAMPLES: u32 = 128;

    /// Most elements of a slice that are written by numbers and that are found one by one.
    pub const FEW_NUMBERS: usize = 4;

    /// Whether cubes leave entries for a further launch.
    #[must_use]
    pub const fn leaves_entries(&self) -> bool {
        self.cubes_per_slice > 1 || matches!(self.method, TopKMethod::Runs)
    }

    /// Number of launches of the selection itself; see also
    /// [`whole_launch_count`](Self::whole_launch_count). Runs in the order of positions are sorted a
    /// second time.
    #[must_use]
    pub const fn launch_count(&self) -> u32 {
        match self.method {
            TopKMethod::Buffer if self.cubes_per_slice > 1 => 2,
            TopKMethod::Buffer | TopKMethod::Registers | TopKMethod::Window => 1,
            // The first sorts, the last stores, and the number of runs is halved between them.
            TopKMethod::Runs => {
                2 + u32::BITS - self.cubes_per_slice.saturating_sub(1).leading_zeros()
            }
        }
    }

    /// Cubes of the first launch.
    #[must_use]
    pub fn cubes(&self, problem: &TopKProblem) -> u64 {
        let slices = problem.slices().outputs() as u64;
        let blocks = div_ceil(slices, u64::from(self.slices_per_cube.max(1)));
        blocks.saturating_mul(u64::from(self.cubes_per_slice))
    }

    /// Words of 32 bits of an entry's key, and of its position.
    #[must_use]
    pub fn entry_words(problem: &TopKProblem) -> (usize, usize) {
        let key = problem.slices().input().bytes().div_ceil(size_of::<u32>());
        let wide = limits::needs_wide_indices(problem.slices());
        (key, if wide { 2 } else { 1 })
    }

    /// The fewest entries of a buffer.
    pub(super) fn needed(&self, problem: &TopKProblem) -> u64 {
        let (len, k) = (problem.slices().reduction_len() as u64, problem.k() as u64);
        match self.method {
            // A cut leaves `k` entries, and there is as much room for others.
            TopKMethod::Buffer => (2 * k).min(len).max(2),
            TopKMethod::Registers => {
                let units = u64::from(self.units_per_slice);
                let each = (self.access.vector * self.access.loads_in_flight) as u64;
                // As many units have entries that reach the threshold, or all that have elements.
                k.min(units).saturating_mul(each).min(len).max(units)
            }
            TopKMethod::Window | TopKMethod::Runs => 1,
        }
    }

    /// Shared memory of a cube in bytes.
    pub(super) fn shared_bytes(&self, problem: &TopKProblem) -> usize {
        let (key, position) = Self::entry_words(problem);
        let words = key + position;
        let entries = (self.buffer as usize).saturating_mul(words);
        let cells = 2 * Self::MOST_CELLS.min(self.units_per_slice) as usize * words;
        // The counts of two digits, and those of groups; the range of each word; five numbers, and
        // the last entry of an exact cut. Slices in registers have two entries and one number.
        let counts = (2usize << self.digit_bits.min(16)) + self.digit_groups() as usize;
        let of_slice = entries.saturating_add(counts + cells + 5 + words);
        // Samples, the same in order, elements above windows of two turns, NaN that spreads, and any.
        let of_windows = match self.method {
            TopKMethod::Window => 2 * Self::SAMPLES as usize + 2 * Self::WINDOW_CELLS + 2,
            _ => 0,
        };
        let of_slice = of_slice.saturating_add(of_windows);
        let of_slice = of_slice.saturating_add(self.probability_words(problem));
        let of_cube = of_slice.saturating_mul(self.slices_per_cube as usize);
        of_cube.saturating_add(4 + words).saturating_mul(size_of::<u32>())
    }

    /// Words of shared memory for the probabilities of a slice: the sums of exponentials, and an
    /// entry of each unit if units hold the slice.
    fn probability_words(&self, problem: &TopKProblem) -> usize {
        if problem.probabilities().is_none() {
            return 0;
        }
        let (key, position) = Self::entry_words(problem);
        match self.method {
            TopKMethod::Registers => {
                let units = self.units_per_slice as usize;
                units * (key + position) + units.max(Self::EXPONENTIAL_SUMS as usize) * key
            }
            TopKMethod::Buffer | TopKMethod::Window | TopKMethod::Runs => {
                Self::EXPONENTIAL_SUMS as usize * key
            }
        }
    }

    /// Groups of the values of a digit, which as many units add up.
    fn digit_groups(&self) -> u32 {
        1 << (self.digit_bits.min(16) / 2)
    }

    /// Checks that the plan computes `problem` correctly on `device`. Plans from
    /// [`choose_top_k`](super::choose_top_k) always do.
    ///
    /// # Errors
    ///
    /// The plan is of another version, the device lacks what the problem needs, or the plan breaks
    /// a rule.
    pub fn check(&self, problem: &TopKProblem, device: &Device) -> Result<(), PlanError> {
        if self.version != Self::VERSION {
            return Err(PlanError::Version { found: self.version, expected: Self::VERSION });
        }
        limits::check_limits(problem.slices(), device, problem.output_span() as u64)?;
        self.obeys_rules(problem, device).map_err(|reason| device.unfit(self, reason))
    }

    pub(super) fn obeys_rules(
        &self,
        problem: &TopKProblem,
        device: &Device,
    ) -> Result<(), Illegal> {
        let slices = problem.slices();
        let Access { direction, vector, loads_in_flight: loads, .. } = self.access;
        check_access(self.access, slices, device)?;
        let plain = Access::new(direction)
            .with_vector(vector)
            .with_peeled(self.access.peeled)
            .with_loads_in_flight(loads);
        let across = direction == Direction::Across;
        if self.access != plain || across && vector > 1 {
            return Err(Illegal::TopKAccess);
        }
        let offered = vector.saturating_mul(loads);
        if offered > Self::MOST_OFFERED {
            return Err(Illegal::Offered { elements: offered, max: Self::MOST_OFFERED });
        }
        let most = device.max_units_per_cube;
        power_of_two(Quantity::UnitsPerOutput, self.units_per_slice, most)?;
        let units = self.units_per_slice.saturating_mul(self.slices_per_cube);
        power_of_two(Quantity::UnitsPerCube, units, most)?;
        let runs = self.method == TopKMethod::Runs;
        let counts = matches!(self.method, TopKMethod::Buffer | TopKMethod::Window);
        let digits = matches!(self.digit_bits, 2 | 4 | 8)
            && (!counts || self.digit_groups() <= self.units_per_slice);
        if !digits {
            let (bits, units) = (self.digit_bits, self.units_per_slice);
            return Err(Illegal::Digits { bits, units });
        }
        let most = self.units_per_slice.saturating_mul(Self::MOST_ENTRIES_PER_UNIT);
        let holds = u64::from(self.buffer) >= self.needed(problem);
        let fits = self.buffer >= self.units_per_slice && self.buffer <= most;
        if !self.buffer.is_power_of_two() || !holds || !fits {
            let (k, units) = (problem.k(), self.units_per_slice);
            return Err(Illegal::Buffer { entries: self.buffer, k, units });
        }
        let elements = u64::from(self.units_per_slice) * offered as u64;
        let is_held = elements >= slices.reduction_len() as u64 && !self.access.peeled;
        if self.method == TopKMethod::Registers && (!is_held || self.cubes_per_slice != 1) {
            return Err(Illegal::NotInRegisters { elements, len: slices.reduction_len() });
        }
        let writes_probabilities = problem.probabilities().is_some();
        let of_a_cube = self.slices_per_cube == 1 && self.cubes_per_slice == 1;
        let in_windows = of_a_cube && problem.is_by_numbers() && !across && !writes_probabilities;
        if self.method == TopKMethod::Window && !in_windows {
            let (cubes, slices) = (self.cubes_per_slice, self.slices_per_cube);
            let (written, k) = (problem.written(), problem.k());
            return Err(Illegal::Windows { written, k, cubes, slices });
        }
        let in_registers = self.method == TopKMethod::Registers;
        if writes_probabilities && in_registers && problem.k() as u64 > self.units_per_slice.into()
        {
            let (k, units) = (problem.k(), self.units_per_slice);
            return Err(Illegal::Probabilities { k, units });
        }
        let (bytes, available) = (self.shared_bytes(problem), device.requestable_shared_bytes());
        if bytes > available {
            return Err(Illegal::SharedMemory { bytes, available });
        }
        let whole_runs = slices.reduction_len().div_ceil(self.buffer as usize);
        let of_runs = vector == 1 && self.slices_per_cube == 1;
        let cubes = self.cubes_per_slice;
        if runs && !(of_runs && cubes as usize == whole_runs) || cubes == 0 {
            return Err(Illegal::Runs { cubes, runs: whole_runs });
        }
        let stride = u64::from(self.cubes_per_slice)
            .saturating_mul(u64::from(self.units_per_slice))
            .saturating_mul(loads as u64);
        if !runs && stride > limits::INDEX_SLACK {
            return Err(Illegal::SplitStride { cubes, max: limits::INDEX_SLACK });
        }
        let (key, position) = Self::entry_words(problem);
        // The input as vectors and as elements, positions to read, values, positions, ranks,
        // sums of exponentials and entries; or entries that are read and others that are written.
        let words = key + position;
        let sums =
            problem.probabilities().is_some_and(|of| of.over == Over::Slice) && !in_registers;
        let arrays = 5 + usize::from(slices.second().is_some()) + if sums { 2 } else { 0 };
        let bindings = if self.leaves_entries() { (arrays + words).max(2 * words) } else { arrays };
        fits_bindings(bindings, device)?;
        fits_grid(self.cubes(problem), false, device)
    }
}

impl fmt::Display for TopKPlan {
    /// One line, such as `top_k: 1 launch, 512 units and a buffer of 2048 entries for each of 1
    /// slices of a cube, counted by digits of 8 bits; vectors of 4 along the reduction, 4 loads in
    /// flight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { units_per_slice: units, buffer, slices_per_cube: slices, access, .. } = self;
        let (launches, cubes) = (self.launch_count(), self.cubes_per_slice);
        let plural = if launches == 1 { "" } else { "es" };
        write!(f, "top_k: {launches} launch{plural}, ")?;
        match self.method {
            TopKMethod::Buffer => {
                if cubes > 1 {
                    write!(f, "{cubes} cubes per slice, ")?;
                }
                let bits = self.digit_bits;
                write!(
                    f,
                    "{units} units and a buffer of {buffer} entries for each of {slices} slices of \
                     a cube, counted by digits of {bits} bits; {access}"
                )
            }
            TopKMethod::Registers => write!(
                f,
                "{units} units hold each of {slices} slices of a cube in registers, and a buffer of \
                 {buffer} entries; {access}"
            ),
            TopKMethod::Window => {
                let bits = self.digit_bits;
                write!(
                    f,
                    "{units} units count a row in windows by digits of {bits} bits until a buffer \
                     holds {buffer} entries; {access}"
                )
            }
            TopKMethod::Runs => {
                write!(
                    f,
                    "{cubes} runs of {buffer} entries per slice, sorted by {units} units; {access}"
                )
            }
        }
    }
}
