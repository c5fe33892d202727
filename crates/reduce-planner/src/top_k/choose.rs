//! The choice of a plan for a selection, step by step. Read [`choose_top_k`] from top to bottom.

use super::plan::{TopKMethod, TopKPlan};
use crate::{
    choose::{Candidate, Choice, Explained, cubes_wanted, floor_power_of_two},
    device::Device,
    error::PlanError,
    estimate::Estimate,
    illegal::Illegal,
    limits,
    plan::Access,
    problem::{Direction, Problem, TopKProblem},
    refusal::Refusal,
};

impl Explained for TopKPlan {
    type Refusal = Refusal<TopKMethod, TopKReason>;

    fn is_of_kind(&self, other: &Self) -> bool {
        self.method == other.method
    }
}

/// Why a method was not taken.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum TopKReason {
    /// The registers of a few units do not hold a slice, or these are too few for a threshold.
    #[error(
        "{units} units hold up to {held} elements of a slice each and find a threshold of as many \
         elements, which is too few for {k} of {len}"
    )]
    NotInRegisters {
        /// Most units of a slice.
        units: u32,
        /// Most elements of a unit.
        held: u32,
        /// Elements that are selected.
        k: usize,
        /// Elements of a slice.
        len: usize,
    },
    /// Windows find few elements with given numbers, of long rows.
    #[error(
        "windows serve up to {most} elements with given numbers of at least {least}, and {written} \
         of {len} are written"
    )]
    NotInWindows {
        /// Elements of a slice that are written.
        written: usize,
        /// Most of them.
        most: usize,
        /// Elements of a slice.
        len: usize,
        /// The fewest.
        least: usize,
    },
    /// The method applies, and another one should be faster.
    #[error("slower: {microseconds:.1} us expected against {best_microseconds:.1} us")]
    Slower {
        /// What it should take, in microseconds.
        microseconds: f64,
        /// What the plan that was taken should take, in microseconds.
        best_microseconds: f64,
    },
    /// The plan would break a rule that plans must obey.
    #[error("{limit}")]
    PassesLimits {
        /// The rule, with the numbers.
        limit: Illegal,
    },
}

/// Chooses a plan for a selection on a device.
///
/// # Errors
///
/// The description of the device makes no sense, the device lacks an element type or wide indices,
/// or a grid of as many cubes as there are runs.
pub fn choose_top_k(problem: &TopKProblem, device: &Device) -> Result<Choice<TopKPlan>, PlanError> {
    // 1. No plan can run a type that the device lacks, or indices that are too narrow.
    limits::check_limits(problem.slices(), device, problem.output_span() as u64)?;

    // 2. A few units hold a short slice in registers. Of others, a buffer in shared memory holds
    //    what may be among the first elements. Where that does not hold what `k` needs, it serves
    //    as a run. Few elements with given numbers are found in windows.
    let mut found = Vec::with_capacity(TopKMethod::ALL.len());
    let mut refused = Vec::with_capacity(TopKMethod::ALL.len());
    for (method, planned) in TopKMethod::ALL.into_iter().zip(every_method(problem, device)) {
        match planned {
            Ok(plan) => found.push(Candidate { plan, estimate: plan.estimate(problem, device) }),
            Err(reason) => refused.push(Refusal::new(method, reason)),
        }
    }

    // 3. Of the methods that apply, the fastest as estimated is taken.
    let slower =
        |microseconds, best_microseconds| TopKReason::Slower { microseconds, best_microseconds };
    let method = |plan: &TopKPlan| plan.method;
    Choice::fastest(found, refused, Estimate::alone_ns, method, slower).or_else(|_| {
        // Runs serve every selection: the rule that they break is that of the device.
        let plan = in_runs(problem, device);
        plan.check(problem, device)?;
        Ok(Choice::only(plan, plan.estimate(problem, device)))
    })
}

/// The plan of each method, in the order of [`TopKMethod::ALL`].
pub(super) fn every_method(
    problem: &TopKProblem,
    device: &Device,
) -> impl Iterator<Item = Result<TopKPlan, TopKReason>> {
    TopKMethod::ALL.into_iter().map(|method| {
        let plan = match method {
            TopKMethod::Buffer => buffered(problem, device),
            TopKMethod::Registers => in_registers(problem, device)?,
            TopKMethod::Window => in_windows(problem, device)?,
            TopKMethod::Runs => in_runs(problem, device),
        };
        let obeys = plan.obeys_rules(problem, device);
        obeys.map(|()| plan).map_err(|limit| TopKReason::PassesLimits { limit })
    })
}

/// The plan of slices in registers, if they are short and `k` is small.
fn in_registers(problem: &TopKProblem, device: &Device) -> Result<TopKPlan, TopKReason> {
    let tuning = device.tuning.top_k;
    let slices = problem.slices();
    let (len, k) = (slices.reduction_len(), problem.k());
    let adjacent = adjacent_slices(slices.outputs(), widest(slices, device).direction, device);

    // 1. Each unit has about as many elements as registers hold, and there are as many units as
    //    selected elements, so that one of their first elements is a threshold. More units take
    //    more entries that reach it.
    let room = device.max_units_per_cube / adjacent;
    let most = tuning.most_held_units.min(room).max(1);
    let usual = (len.div_ceil(tuning.held_elements as usize) as u64).next_power_of_two();
    let usual = power_of_two_from(usual.min(tuning.held_units.min(most).into()));
    let fewest = usual.max(power_of_two_from(k.min(len) as u64));
    let held = tuning.most_held_elements;
    let teams = (0..u32::BITS).map_while(|doublings| fewest.checked_shl(doublings));
    let fits = |&units: &u32| {
        let each = len.div_ceil(units as usize);
        let reaching = k.min(units as usize).saturating_mul(each).min(len);
        each <= held as usize && reaching <= (TopKPlan::MOST_ENTRIES_PER_UNIT * units) as usize
    };
    let Some(units) = teams.take_while(|&units| units <= most && units > 0).find(fits) else {
        return Err(TopKReason::NotInRegisters { units: most, held, k, len });
    };

    // 2. They are read in vectors if these divide the slices.
    let access = widest(slices, device);
    let access = if access.peeled { Access::new(access.direction) } else { access };
    let plan = TopKPlan { method: TopKMethod::Registers, ..TopKPlan::new(access) };
    let plan = held_by(units, plan, problem);
    let most = u64::from(tuning.together_units.min(device.max_units_per_cube));
    Ok(plan.with_slices(most, together(access.direction, adjacent.into()), problem, device))
}

/// A plan whose so many units hold a slice in registers, with the loads and the buffer for that.
pub(super) fn held_by(units: u32, plan: TopKPlan, problem: &TopKProblem) -> TopKPlan {
    let loads = problem.slices().reduction_len().div_ceil(plan.access.vector * units as usize);
    let access = plan.access.with_loads_in_flight(loads.max(1));
    let plan = TopKPlan { units_per_slice: units, access, ..plan };
    TopKPlan { buffer: power_of_two_from(plan.needed(problem)), ..plan }
}

/// The plan of windows, if few elements with given numbers of long rows are written.
fn in_windows(problem: &TopKProblem, device: &Device) -> Result<TopKPlan, TopKReason> {
    let tuning = device.tuning.top_k;
    let slices = problem.slices();
    let len = slices.reduction_len();
    let (least, most) = (tuning.least_window as usize, TopKPlan::FEW_NUMBERS);
    if len < least || problem.written() > most {
        return Err(TopKReason::NotInWindows { written: problem.written(), most, len, least });
    }

    let (words, _) = TopKPlan::entry_words(problem);
    let access = widest(slices, device);
    let loads = tuning.window_words as usize / words / access.vector;
    // A cube that has a multiprocessor for itself takes more units.
    let is_alone = slices.outputs() <= device.multiprocessors as usize;
    let most = if is_alone { tuning.lone_window_units } else { tuning.units_per_cube };
    let most = floor_power_of_two(most.min(device.max_units_per_cube).into());
    // Less than a plane would leave some of its units idle.
    let units = len.div_ceil(tuning.window_elements.max(1) as usize).next_power_of_two() as u64;
    let units = units.max(floor_power_of_two(device.plane_size_max.into())).min(most) as u32;
    Ok(TopKPlan {
        method: TopKMethod::Window,
        units_per_slice: units,
        buffer: units.max(tuning.window_buffer),
        digit_bits: 8,
        ..TopKPlan::new(access.with_loads_in_flight(loads.max(1)))
    })
}

/// The plan of buffers, if shared memory holds what `k` needs.
fn buffered(problem: &TopKProblem, device: &Device) -> TopKPlan {
    let tuning = device.tuning.top_k;
    let slices = problem.slices();
    let (len, k) = (slices.reduction_len() as u64, problem.k() as u64);

    // 1. Slices are read in vectors along themselves, or element by element side by side. A unit
    //    offers only so many elements at a time.
    let access = widest(slices, device);
    let loads = (tuning.bytes_in_flight / (access.vector * slices.input().bytes())).max(1);
    let offered = tuning.offered.min(TopKPlan::MOST_OFFERED);
    let most_loads = (offered / access.vector).min(Access::MOST_LOADS_IN_FLIGHT);
    let loads = match access.direction {
        Direction::Along => loads,
        Direction::Across => tuning.adjacent_loads as usize,
    };
    let access = access.with_loads_in_flight(loads.min(most_loads).max(1));

    // 2. A buffer holds a short slice as a whole. Of a long one, it holds `k` entries and as many
    //    as pass the threshold before the next cut, or more if there are few. Four units of a slice
    //    count by digits of 4 bits.
    let most = u64::from(tuning.units_per_cube.min(device.max_units_per_cube));
    let adjacent = adjacent_slices(slices.outputs(), access.direction, device);
    let adjacent = u64::from(adjacent).min(most / 4).max(1);
    let mut plan = TopKPlan::new(access);
    let needed = plan.needed(problem);
    let several = if k < u64::from(tuning.buffer) { 4 * k } else { 2 * k };
    let wanted = several.max(u64::from(tuning.buffer) / adjacent);
    let held = wanted.min(len).max(needed).next_power_of_two();

    // 3. Each unit of a slice has a few loads of it, and its entries fit registers. So many units
    //    that one cube takes all registers are halved if a unit would have several entries. Many
    //    are counted by digits of 8 bits, which take half as many turns, and 1 KiB of shared memory
    //    for each slice.
    let offered = (access.vector * access.loads_in_flight) as u64;
    let wanted = (len / offered).max(held / u64::from(tuning.entries_per_unit));
    let multiprocessors = u64::from(device.multiprocessors.max(1));
    let of_slice = multiprocessors * u64::from(tuning.units_per_multiprocessor)
        / slices.outputs().max(1) as u64;
    let wide = of_slice.max(tuning.usual_units.into()).min(most);
    let widest = match access.direction {
        Direction::Along => wide,
        Direction::Across => u64::from(tuning.adjacent_units).min(most / adjacent).max(1),
    };
    let least = u64::from(tuning.least_units).min(most);
    let units = floor_power_of_two(wanted.clamp(least.min(widest), widest));
    let entries = |units: u64| held / units.max(1);
    let several = u64::from(tuning.several_entries);
    let halves = units == most
        && entries(units) >= several
        && entries(units / 2) <= u64::from(TopKPlan::MOST_ENTRIES_PER_UNIT);
    let whole = units;
    let units = if halves { units / 2 } else { units };
    let many = entries(units) > several && adjacent == 1 && units >= 16;
    plan.units_per_slice = power_of_two_from(units);
    plan.buffer = power_of_two_from(held.max(units));
    plan.digit_bits = if many { 8 } else { 4 };

    // 4. Few units with few entries have registers for more loads, if the slice is long. Elements
    //    of less than a word take more registers.
    let is_long = len >= 2 * units * TopKPlan::MOST_OFFERED as u64;
    let is_small = units <= tuning.most_loading_units.into() && entries(units) <= several;
    let fills_words = slices.input().bytes() >= size_of::<u32>();
    if access.direction == Direction::Along && is_long && is_small && fills_words {
        let most = (TopKPlan::MOST_OFFERED / access.vector).min(Access::MOST_LOADS_IN_FLIGHT);
        plan.access = access.with_loads_in_flight((2 * access.loads_in_flight).min(most));
    }

    // 5. Where shared memory is short, the buffer is as small as `k` and the units allow.
    while !plan.fits(problem, device) && u64::from(plan.buffer) / 2 >= needed.max(units) {
        plan.buffer /= 2;
    }
    while !plan.fits(problem, device) && 2 * u64::from(plan.units_per_slice) <= most {
        plan.units_per_slice *= 2;
    }
    if !plan.fits(problem, device) {
        // The rule that it breaks says what is too small.
        return plan;
    }

    // 6. A cube takes several slices if they are short, or read side by side.
    let most_together = match access.direction {
        Direction::Along => most.min(tuning.together_units.into()),
        Direction::Across => most,
    };
    let slices = together(access.direction, adjacent);
    plan = plan.with_slices(most_together, slices, problem, device);

    // 7. Few long slices are shared by several cubes, each of which leaves its first `k` elements.
    let of_cube = whole.max(plan.units_per_slice.into()) * u64::from(plan.slices_per_cube);
    let wanted = cubes_wanted(device, tuning.cubes_per_multiprocessor) * most / of_cube.max(1);
    let rounds = u64::from(tuning.least_rounds).saturating_mul(offered);
    let each = rounds.saturating_mul(plan.units_per_slice.into()).max(16 * k);
    let cubes = (wanted / plan.cubes(problem).max(1)).min(len / each.max(1)).max(1);
    plan.cubes_per_slice = u32::try_from(cubes).unwrap_or(u32::MAX);
    if cubes > 1 && access.direction == Direction::Along {
        let larger = TopKPlan { buffer: plan.buffer.max(tuning.shared_buffer), ..plan };
        plan = if larger.fits(problem, device) { larger } else { plan };
    }
    // A device may not bind the entries that cubes leave beside everything else.
    let alone = TopKPlan { cubes_per_slice: 1, ..plan };
    if plan.check(problem, device).is_ok() { plan } else { alone }
}

/// The plan of runs as long as the device's shared memory and the units of a cube allow.
fn in_runs(problem: &TopKProblem, device: &Device) -> TopKPlan {
    let tuning = device.tuning.top_k;
    let access = Access::new(widest(problem.slices(), device).direction);
    let units =
        tuning.units_per_cube.min(floor_power_of_two(device.max_units_per_cube.into()) as u32);
    let len = problem.slices().reduction_len();
    let mut plan = TopKPlan {
        method: TopKMethod::Runs,
        units_per_slice: units,
        buffer: units.saturating_mul(tuning.entries_of_run),
        ..TopKPlan::new(access)
    };
    while plan.shared_bytes(problem) > device.shared_memory_bytes && plan.buffer > 1 {
        plan.buffer /= 2;
        plan.units_per_slice = plan.units_per_slice.min(plan.buffer);
    }
    plan.cubes_per_slice = u32::try_from(len.div_ceil(plan.buffer as usize)).unwrap_or(u32::MAX);
    plan
}

/// The least power of two from a number on that a plan can have.
fn power_of_two_from(number: u64) -> u32 {
    u32::try_from(number.next_power_of_two()).unwrap_or(1 << 31)
}

/// How the slices are read, one load after the other. Neighbouring slices are read by units side by
/// side, because a unit has the entries of one slice.
fn widest(slices: &Problem, device: &Device) -> Access {
    let widest = Access::widest(slices, device);
    match widest.direction {
        Direction::Along => widest,
        Direction::Across => Access::new(Direction::Across),
    }
}

/// Slices of a cube that units read side by side, a power of two.
fn adjacent_slices(outputs: usize, direction: Direction, device: &Device) -> u32 {
    match direction {
        Direction::Along => 1,
        Direction::Across => {
            let slices = u32::try_from(outputs.max(1)).unwrap_or(u32::MAX);
            let most = device.tuning.top_k.adjacent_slices;
            slices.min(most).next_power_of_two()
        }
    }
}

/// Most slices of a cube.
fn together(direction: Direction, adjacent: u64) -> u64 {
    match direction {
        Direction::Along => u64::MAX,
        Direction::Across => adjacent,
    }
}

impl TopKPlan {
    /// A plan without units.
    fn new(access: Access) -> Self {
        Self {
            version: Self::VERSION,
            method: TopKMethod::Buffer,
            access,
            units_per_slice: 1,
            slices_per_cube: 1,
            cubes_per_slice: 1,
            buffer: 1,
            digit_bits: 2,
        }
    }

    /// Whether units take the entries of the buffer, and shared memory holds them.
    fn fits(&self, problem: &TopKProblem, device: &Device) -> bool {
        self.buffer <= Self::MOST_ENTRIES_PER_UNIT.saturating_mul(self.units_per_slice)
            && self.shared_bytes(problem) <= device.requestable_shared_bytes()
    }

    /// The plan with as many slices of a cube as there are, as `most` units take, and as shared
    /// memory holds without a request, but no more than `together`.
    fn with_slices(
        mut self,
        most: u64,
        together: u64,
        problem: &TopKProblem,
        device: &Device,
    ) -> Self {
        let outputs = problem.slices().outputs().max(1) as u64;
        while u64::from(self.slices_per_cube) < together.min(outputs) {
            let doubled = Self { slices_per_cube: 2 * self.slices_per_cube, ..self };
            let units = u64::from(doubled.units_per_slice) * u64::from(doubled.slices_per_cube);
            if units > most || doubled.shared_bytes(problem) > device.shared_memory_bytes {
                break;
            }
            self = doubled;
        }
        self
    }
}
