//! What a selection should take. As that of a reduction, the time is that of waiting, of moving bytes
//! and of instructions, which overlap; here `k` decides how much is done beside the reading.
//!
//! Counts of instructions and of barriers begin with those of Nsight Compute on one NVIDIA H200, 18 for
//! each streamed element and 52 to 59 for one of a median, and are fitted to measured times. Nothing
//! should be read into one of them alone.

use super::plan::{TopKMethod, TopKPlan};
use crate::{
    choose::norm,
    device::Device,
    estimate::Estimate,
    numbers::from_percent,
    plan::Access,
    problem::{Direction, TopKProblem},
};

/// Instructions of an element that is compared with a threshold, for each word of its key.
const STREAMED: f64 = 16.0;
/// Instructions of an element that a unit holds in registers, for each word of its key.
const HELD: f64 = 13.0;
/// Instructions of an element in one window, for each word of its key.
const IN_WINDOW: f64 = 12.0;
/// Instructions of a row for each of its windows, beside its elements.
const OF_WINDOW: f64 = 8000.0;
/// Instructions of an entry in one cut, for each word.
const CUT: f64 = 30.0;
/// Instructions that compare two entries in shared memory and move them, for each word.
const COMPARED: f64 = 8.0;
/// Instructions of an element, for each other element that its word has.
const NARROW: f64 = 2.0;
/// Instructions of an element that is loaded alone.
const ALONE: f64 = 8.0;
/// Registers of a unit, beside the entries of a buffer that it holds during a cut.
const REGISTERS: f64 = 56.0;
/// Barriers of a cut beside those of its digits.
const BARRIERS_OF_CUT: f64 = 12.0;
/// Barriers of a digit.
const BARRIERS_OF_DIGIT: f64 = 3.0;
/// Barriers of a window.
const BARRIERS_OF_WINDOW: f64 = 16.0;
/// How often windows usually read a row for each wanted number: to count it, and to append what is
/// left. Far from both ends of the row, they count it twice.
const WINDOWS: f64 = 2.0;
/// The share of the bandwidth that windows of rows draw that no cache holds.
const LONG_WINDOWS: f64 = 0.6;
/// How much nearer than the whole row a number is to an end if one count is enough.
const NEAR_AN_END: f64 = 16.0;
/// Most entries that are put in order by comparing each with each, without a barrier.
const COUNTED: f64 = 256.0;

/// What the cubes of one launch do.
struct Work {
    cubes: f64,
    units: f64,
    registers: f64,
    shared_bytes: f64,
    /// Loads that a unit waits for, one after the other.
    rounds: f64,
    /// Steps with a barrier.
    barriers: f64,
    /// Instructions of all units of a cube.
    instructions: f64,
    /// Bytes that all cubes move.
    bytes: f64,
    locality: f64,
}

impl TopKPlan {
    /// What the launches of the selection should take for `problem` on `device`.
    #[must_use]
    pub fn estimate(&self, problem: &TopKProblem, device: &Device) -> Estimate {
        let bytes = problem.bytes() as f64;
        let len = problem.slices().reduction_len() as f64;
        let slices = f64::from(self.slices_per_cube);
        let words = Words::of(problem);
        let k = problem.k() as f64;
        match self.method {
            TopKMethod::Buffer => {
                let cubes = f64::from(self.cubes_per_slice);
                let first = self.streamed(len / cubes, k, words);
                let reading = self.work(first.times(slices), bytes, problem, device);
                if self.cubes_per_slice <= 1 {
                    return reading.estimate(device);
                }
                let again = self.streamed(cubes * k, k, words).times(slices);
                let left = cubes * k * words.bytes() * problem.slices().outputs() as f64;
                let alone = Self { cubes_per_slice: 1, ..*self };
                let selecting = alone.work(again, 2.0 * left, problem, device);
                reading.estimate(device).then(&selecting.estimate(device))
            }
            TopKMethod::Registers => {
                let held = self.held(len, k, words).times(slices);
                self.work(held, bytes, problem, device).estimate(device)
            }
            TopKMethod::Window => {
                let from_end = k.min(len - k) / len * NEAR_AN_END;
                // Two numbers are usually neighbours, as those of a quantile, and share windows.
                let numbers = problem.written().div_ceil(2) as f64;
                let count = (WINDOWS + from_end.min(1.0)) * numbers;
                let windows = self.windows(len, count, words);
                // A row that was just read comes from the cache, if it is short.
                let is_cached = len * words.key <= f64::from(device.tuning.top_k.cached_words);
                let cache = from_percent(device.profile.cache_percent.max(1));
                let again = if is_cached { cache.recip() } else { 1.0 };
                let reads = 1.0 + (count - 1.0) * again;
                let work = self.work(windows, bytes * reads, problem, device);
                let locality = if is_cached { 1.0 } else { LONG_WINDOWS };
                Work { locality, ..work }.estimate(device)
            }
            TopKMethod::Runs => self.runs(problem, device),
        }
    }

    /// What a buffer takes of a slice of `len` elements.
    fn streamed(&self, len: f64, k: f64, words: Words) -> PerSlice {
        let (units, buffer) = (f64::from(self.units_per_slice), f64::from(self.buffer));
        let Access { vector, loads_in_flight, .. } = self.access;
        let rounds = (len / (units * (vector * loads_in_flight) as f64)).ceil().max(1.0);
        // Of random elements, the number `n` is among the first `k` so far with the probability
        // `k / n`: a buffer with room for others is full when there are e^(room / k) times as many.
        let room = (buffer - k).max(1.0);
        let cuts = if len > buffer { 2.0 + k / room * (len / buffer).ln() } else { 1.0 };
        let digits = 32.0 / f64::from(self.digit_bits.max(1));
        let order = in_order(k, units, words);
        PerSlice {
            rounds,
            barriers: rounds
                + cuts * words.key * (BARRIERS_OF_CUT + digits * BARRIERS_OF_DIGIT)
                + order.barriers,
            instructions: len * (STREAMED * words.key + self.loading(words))
                + cuts * buffer.min(len) * CUT * words.all()
                + order.instructions,
        }
    }

    /// What units take that hold a slice of `len` elements in registers.
    fn held(&self, len: f64, k: f64, words: Words) -> PerSlice {
        let units = f64::from(self.units_per_slice);
        // Of random elements, the first ones of `k` units of `units` are above the threshold. Each
        // other element is with the same probability, so that all together are about as many.
        let share = (k / units).min(1.0 - 0.5 / units);
        let reaching = (-units * (1.0 - share).ln()).clamp(k, len);
        PerSlice {
            rounds: 1.0,
            barriers: 6.0,
            instructions: len * (HELD * words.key + self.loading(words))
                + units * units * COMPARED / 2.0
                + reaching * reaching * COMPARED * words.all() / 2.0,
        }
    }

    /// What a row of `len` elements takes in so many windows.
    fn windows(&self, len: f64, windows: f64, words: Words) -> PerSlice {
        let units = f64::from(self.units_per_slice);
        let Access { vector, loads_in_flight, .. } = self.access;
        let rounds = (len / (units * (vector * loads_in_flight) as f64)).ceil().max(1.0) * windows;
        PerSlice {
            rounds,
            barriers: windows * BARRIERS_OF_WINDOW,
            instructions: windows
                * (len * (IN_WINDOW * words.key * words.key + self.loading(words)) + OF_WINDOW),
        }
    }

    /// What runs and their merges take.
    fn runs(&self, problem: &TopKProblem, device: &Device) -> Estimate {
        let words = Words::of(problem);
        let (units, run) = (f64::from(self.units_per_slice), f64::from(self.buffer));
        let sorted = steps(run);
        let of_run = PerSlice {
            rounds: (run / units).ceil(),
            barriers: sorted,
            instructions: run * (STREAMED + sorted * COMPARED * words.all() / 2.0),
        };
        let entries =
            problem.slices().outputs() as f64 * f64::from(self.cubes_per_slice.max(1)) * run;
        let moved = entries * words.bytes();
        let sort = self.work(of_run, problem.bytes() as f64 + moved, problem, device);
        let merges = self.launch_count() - 1;
        // A unit looks for the places of its entries together, by bisection.
        let found = PerSlice {
            rounds: run.log2(),
            barriers: 1.0,
            instructions: run * run.log2() * COMPARED * words.key,
        };
        let merged = || self.work(found, 2.0 * moved, problem, device).estimate(device);
        (0..merges).fold(sort.estimate(device), |so_far, _| so_far.then(&merged()))
    }

    /// Instructions that an element takes beside those of its key.
    fn loading(&self, words: Words) -> f64 {
        match self.access.vector {
            1 => ALONE,
            _ => NARROW * (words.elements - 1.0),
        }
    }

    fn entries_per_unit(&self) -> f64 {
        f64::from(self.buffer) / f64::from(self.units_per_slice.max(1))
    }

    fn work(&self, of_cube: PerSlice, bytes: f64, problem: &TopKProblem, device: &Device) -> Work {
        let PerSlice { rounds, barriers, instructions } = of_cube;
        let adjacent = self.slices_per_cube as usize * problem.slices().input().bytes();
        Work {
            cubes: self.cubes(problem) as f64,
            units: f64::from(self.units_per_slice) * f64::from(self.slices_per_cube),
            registers: match self.method {
                TopKMethod::Buffer => {
                    REGISTERS + Words::of(problem).all() * self.entries_per_unit()
                }
                TopKMethod::Registers | TopKMethod::Window | TopKMethod::Runs => REGISTERS,
            },
            shared_bytes: self.shared_bytes(problem) as f64,
            rounds,
            barriers,
            instructions,
            bytes,
            locality: match self.access.direction {
                Direction::Along => 1.0,
                Direction::Across => device.profile.efficiency_of_segment(adjacent),
            },
        }
    }
}

/// Words of 32 bits of an entry.
#[derive(Clone, Copy)]
struct Words {
    key: f64,
    position: f64,
    /// Elements of the input that one word has.
    elements: f64,
}

impl Words {
    fn of(problem: &TopKProblem) -> Self {
        let (key, position) = TopKPlan::entry_words(problem);
        let elements = size_of::<u32>() as f64 / problem.slices().input().bytes() as f64;
        Self { key: key as f64, position: position as f64, elements: elements.max(1.0) }
    }

    fn all(self) -> f64 {
        self.key + self.position
    }

    fn bytes(self) -> f64 {
        self.all() * size_of::<u32>() as f64
    }
}

/// What a cube does for one slice.
#[derive(Clone, Copy)]
struct PerSlice {
    rounds: f64,
    barriers: f64,
    instructions: f64,
}

impl PerSlice {
    /// The same for several slices, which have their own units.
    fn times(self, slices: f64) -> Self {
        Self { instructions: slices * self.instructions, ..self }
    }
}

/// What putting `k` entries in order takes.
fn in_order(k: f64, units: f64, words: Words) -> PerSlice {
    if k <= COUNTED {
        let instructions = k * k * COMPARED * words.all() / 2.0;
        // No unit has less than the entries that it compares its own with.
        return PerSlice { rounds: 0.0, barriers: 1.0, instructions: instructions.max(k * units) };
    }
    let steps = steps(k);
    let instructions = steps * k * COMPARED * words.all() / 2.0;
    PerSlice { rounds: 0.0, barriers: steps, instructions }
}

/// Steps of bitonic sorting.
fn steps(entries: f64) -> f64 {
    let sizes = entries.max(2.0).log2().ceil();
    sizes * (sizes + 1.0) / 2.0
}

impl Work {
    fn estimate(&self, device: &Device) -> Estimate {
        let profile = &device.profile;
        let multiprocessors = f64::from(device.multiprocessors.max(1));
        let cubes = self.cubes.max(1.0);
        let resident = [
            f64::from(device.units_per_multiprocessor) / self.units,
            f64::from(device.registers_per_multiprocessor) / (self.registers * self.units),
            device.shared_memory_per_multiprocessor as f64
                / (self.shared_bytes + profile.reserved_shared_bytes as f64),
            f64::from(device.cubes_per_multiprocessor),
        ];
        let resident = resident.into_iter().fold(f64::INFINITY, f64::min).floor().max(1.0);
        let waves = cubes / (resident * multiprocessors);

        // An element of an accumulator of one field takes two instructions.
        let instruction_ns = profile.light_ps as f64 * 1e-3 / 2.0;
        let all_ns = self.instructions * instruction_ns;
        let busiest = (cubes / multiprocessors).ceil().max(1.0);
        let spread = if busiest <= resident { busiest } else { cubes / multiprocessors };
        let issue_ns = all_ns * spread;

        let serial_ns = all_ns / self.units * profile.serial_factor as f64;
        let cube_ns = profile.cube_ns as f64
            + self.rounds * profile.latency_ns as f64
            + self.barriers * profile.shared_step_ns as f64
            + serial_ns;
        let dispatch_ns = cubes * profile.dispatch_ps as f64 * 1e-3;
        let waiting_ns = (waves.max(1.0) * cube_ns).max(dispatch_ns);

        let most_drawn = from_percent(profile.multiprocessor_percent.max(1));
        let drawn = (cubes / multiprocessors * most_drawn).min(1.0);
        let transfer_ns = self.bytes / (profile.bandwidth.max(1) as f64 * 1e-9 * drawn);
        let exponent = profile.overlap_tenths.max(1) as f64 / 10.0;
        let times = [waiting_ns, transfer_ns / self.locality, issue_ns];
        Estimate {
            launch_ns: profile.launch_ns as f64,
            gap_ns: profile.gap_ns as f64,
            waiting_ns,
            transfer_ns,
            issue_ns,
            together_ns: norm(times, exponent),
            merge_ns: 0.0,
            locality: self.locality,
            rounds: self.rounds as u64,
            resident_cubes: resident as u32,
            waves,
        }
    }
}
