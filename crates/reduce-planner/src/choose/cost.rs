//! What a plan should take: three limits that overlap.
//!
//! Cubes *wait*: each has a place on a multiprocessor for as long as it takes to start, to wait for
//! each round of its loads, and to combine. Memory *moves* the bytes. Multiprocessors *issue* the
//! instructions. The longest of the three counts, and somewhat more where they are close, because
//! they do not overlap entirely. A roofline has the last two (Williams, Waterman and Patterson,
//! "Roofline", 2009); the first is Little's law for whole rounds of loads and whole waves of cubes.

use super::{
    access::widest_vector,
    sizing::{FEW_FIELDS, rows_share_lines, short_run},
};
use crate::{
    device::Device,
    estimate::Estimate,
    numbers::from_percent,
    plan::{
        Access, Combine, Merge, Plan, Schedule,
        check::{accumulator_bytes, shared_bytes},
        div_ceil,
    },
    problem::{Direction, ElementCost, Problem},
    profile::{Profile, RegisterUse},
};

/// Most waves of which the last one counts apart. It is a small part of more of them, whose cubes
/// no longer start and end together.
const MOST_COUNTED_WAVES: f64 = 4.0;

/// What a unit waits for at the end of each round of an operator of many fields, in percent of a
/// round trip to memory: operations that depend on each other, such as the quotients by which two
/// means are merged. More loads in flight are fewer rounds. On one H200, where this is 110 ns, the
/// mean and variance of 46,148,585 f16 took 34.0 us with 4 loads in flight and 30.7 with 8, nanvar of
/// f32 4 × 128 × 121,968 over axes 0 and 1 74.7 in cubes of 8 × 32 units with 8 and 67.4 in cubes of
/// 4 × 32 with 16. With 100 to 200 ns, estimates of the plans of a case are off by 8.03 to 8.06 % in
/// 153 random cases, and by 8.14 without; the choices of the benchmarks stay up to 120.
const CHAIN_PERCENT: u32 = 26;

/// What a cube does and holds.
struct Cubes {
    /// Rounds of loads of a unit.
    rounds: u64,
    /// Cubes that reside on a multiprocessor.
    resident: f64,
    /// How many times as many registers a unit needs as there are, less one.
    spilled: f64,
}

impl Plan {
    /// What the plan should take for a problem on a device, term by term.
    #[must_use]
    pub fn estimate(&self, problem: &Problem, device: &Device) -> Estimate {
        Costs::of(problem, device).estimate(self)
    }
}

/// What all plans for a problem on a device have in common.
#[derive(Clone, Copy)]
pub(super) struct Costs<'a> {
    pub(super) problem: &'a Problem,
    pub(super) device: &'a Device,
    /// Distinct bytes that are read and written.
    bytes: f64,
    /// Picoseconds that a multiprocessor takes for an element, without a power.
    element_ps: f64,
    /// The same in two passes.
    passes_ps: f64,
    /// Picoseconds that a multiprocessor takes for the power of an element.
    power_ps: f64,
}

impl<'a> Costs<'a> {
    pub(super) fn of(problem: &'a Problem, device: &'a Device) -> Self {
        let profile = &device.profile;
        Self {
            problem,
            device,
            bytes: problem.bytes() as f64,
            element_ps: element_ps(problem, profile),
            passes_ps: passes_ps(problem, profile),
            power_ps: power_ps(problem, profile),
        }
    }

    /// Picoseconds that a multiprocessor takes for an element of a plan, without a power.
    fn plain_ps(&self, access: Access) -> f64 {
        if access.in_passes { self.passes_ps } else { self.element_ps }
    }

    /// [`Plan::estimate`].
    pub(super) fn estimate(&self, plan: &Plan) -> Estimate {
        let Self { problem, device, .. } = *self;
        let (access, schedule, profile) = (plan.access, plan.schedule, &device.profile);
        let element_ps = self.plain_ps(access);
        let multiprocessors = f64::from(device.multiprocessors.max(1));
        let cubes = plan.cubes(problem).max(1) as f64;
        let Cubes { rounds, resident, spilled } = Cubes::of(plan, problem, device);
        let spilling = 1.0 + spilled * from_percent(profile.spill_percent);

        // Instructions. The busiest multiprocessor counts where there are few cubes.
        let places = resident * multiprocessors;
        let busiest = match cubes <= places {
            true => ceil(cubes / multiprocessors) / cubes,
            false => 1.0 / multiprocessors,
        };
        let issue_ns = self.issued_ps(plan, rounds) * 1e-3 * busiest * spilling;

        // Waiting. The last wave takes as long as a full one.
        let in_flight = access.loads_in_flight as f64 * access.outputs_in_flight as f64;
        let unit_ns = in_flight * access.vector as f64 * element_ps * 1e-3;
        let serial_ns = unit_ns * profile.serial_factor as f64;
        let chain = if problem.operator().fields > FEW_FIELDS { CHAIN_PERCENT } else { 0 };
        let round_ns = profile.latency_ns as f64 * from_percent(100 + chain) + serial_ns;
        let cube_ns = profile.cube_ns as f64
            + rounds as f64 * round_ns
            + combine_ns(problem, schedule, access, profile);
        let waves = cubes / places;
        let wave_ns = cube_ns * spilling;
        let dispatch_ns = cubes * profile.dispatch_ps as f64 * 1e-3;
        let waiting_ns = (ceil(waves) * wave_ns).max(dispatch_ns);

        // Moving: each distinct byte once. Broadcast elements are loaded often and moved once.
        let most_drawn = from_percent(profile.multiprocessor_percent.max(1));
        let drawn = |cubes: f64| (cubes / multiprocessors * most_drawn).min(1.0);
        let bandwidth = profile.bandwidth.max(1) as f64 * 1e-9 * drawn(cubes);
        let transfer_ns = self.bytes / bandwidth;
        let residing = resident.min(cubes / multiprocessors) * f64::from(schedule.units_per_cube());
        let locality = locality(plan, problem, device, rounds, residing);

        // The three overlap within the full waves, and within the last one.
        let exponent = profile.overlap_tenths.max(1) as f64 / 10.0;
        let memory_ns = transfer_ns / locality;
        let whole_waves = floor(waves);
        let rest = waves - whole_waves;
        let (full, last) = (whole_waves / waves, rest / waves);
        let together_ns = if full == 0.0 || last == 0.0 || waves > MOST_COUNTED_WAVES {
            norm([waiting_ns, memory_ns, issue_ns], exponent)
        } else {
            let drawn = drawn(rest * places);
            norm([waiting_ns - wave_ns, memory_ns * full, issue_ns * full], exponent)
                + norm([wave_ns, memory_ns * last / drawn, issue_ns * last / drawn], exponent)
        };
        let launches = f64::from(schedule.launches());
        Estimate {
            launch_ns: launches * profile.launch_ns as f64,
            gap_ns: launches * profile.gap_ns as f64 + unit_ns * profile.first_round_factor as f64,
            waiting_ns,
            transfer_ns,
            issue_ns,
            together_ns,
            merge_ns: merge_ns(schedule, access, profile),
            locality,
            rounds,
            resident_cubes: resident as u32,
            waves,
        }
    }

    /// Picoseconds that one multiprocessor would take for the instructions of all units.
    fn issued_ps(&self, plan: &Plan, rounds: u64) -> f64 {
        let Self { problem, device, .. } = *self;
        let (access, schedule, profile) = (plan.access, plan.schedule, &device.profile);
        let vector = access.vector as f64;
        let units_per_output = schedule.all_units_per_output() as f64;
        let tiles = plan.output_tiles(problem) as f64;

        // The units of a plane issue as many loads as the one that has the most. Norms of i32 over
        // 20 elements, 5 loads, took 69 us on one H200 with one unit, 93 with two lanes (3 loads
        // each) and 170 with four (2 loads each), all with 8 loads in their rounds. Elements of a
        // last round that is not full take longer.
        let per_round = units_per_output * access.loads_in_flight as f64;
        let of_output = access.loads_per_output(problem) as f64;
        let loads = units_per_output * ceil(of_output / units_per_output.max(1.0));
        // Where a plane has all units of an output, they execute the instructions of all loads of
        // such a round, of which some do not exist. any_non_finite of bf16 37,044,099 × 11 along
        // axis 1 took 302 us on one H200 with 4 single elements in flight, 378 with 8 and 423 with
        // 16; norm_l1 of bf16 364 × 256 × 9 × 119 along axis 2 86 with 8 and 101 with 16; var of
        // bf16 158 × 19,082 × 17 along axis 2 59.6 with 8 and 73.7 with 16. Wider elements and
        // vectors wait for memory.
        let narrow = problem.input().bytes() < size_of::<f32>() && access.vector == 1;
        let in_plane = units_per_output <= f64::from(device.plane_size_min);
        let executes_missing = in_plane && narrow && !access.in_passes;
        let loads = if executes_missing { loads.max(rounds as f64 * per_round) } else { loads };
        let full_rounds = floor(of_output / per_round.max(1.0));
        // Of loads that are held, only the last of each unit may be missing.
        let partial = match access.in_passes {
            true => 0.0,
            false => {
                (rounds as f64 - full_rounds) * per_round * from_percent(profile.partial_percent)
            }
        };
        let element_ps = vector * (self.plain_ps(access) + self.power_ps);
        let extra_lines = extra_lines(problem, device, access, schedule);
        let moved_ps = if access.realigns_along() { vector * profile.shift_ps as f64 } else { 0.0 };
        let load_ps =
            profile.load_ps as f64 + extra_lines * profile.line_ps as f64 + element_ps + moved_ps;
        let asked_ps =
            if executes_missing { profile.load_ps as f64 + element_ps } else { element_ps };

        // Half of the units take part in the second step through shared memory, and so on.
        let steps = match schedule.combine() {
            None => 0.0,
            // In two passes, each plane combines what all planes have put down.
            Some(Combine::Plane { .. }) if access.in_passes => {
                f64::from(schedule.units_per_output().max(1).ilog2())
            }
            Some(Combine::Plane { lanes }) => f64::from(lanes.max(1).ilog2()),
            Some(Combine::Shared) => f64::from(schedule.units_per_output().max(1).ilog2()).min(2.0),
        };
        let words = combined_words(problem, access);
        let combine_ps = units_per_output * steps * words * profile.combine_ps as f64;
        // Each unit goes from one pass to the next, and makes the results. Each pass reads the
        // elements at the edges of rows, one by one.
        let edges =
            if access.peeled { PASSES * ceil(2.0 * vector / units_per_output) } else { 0.0 };
        let between_ps = match access.in_passes {
            true => units_per_output * (RESULTS_PS + edges * EDGE_PS),
            false => 0.0,
        };
        let scaled_ps = match is_scaled(problem) && !access.in_passes {
            true => units_per_output * rounds as f64 * SCALED_PS,
            false => 0.0,
        };
        tiles * (loads * load_ps + partial * asked_ps + combine_ps + between_ps + scaled_ps)
    }
}

/// The norm of three times. It is infinite if one is.
pub(crate) fn norm(times: [f64; 3], exponent: f64) -> f64 {
    let longest = times.into_iter().fold(0.0, f64::max);
    if longest == 0.0 || !longest.is_finite() {
        return longest;
    }
    let shares = times.map(|time| match time == longest {
        true => 1.0,
        // A share this small adds less than the estimate is good for.
        false if time < 0.15 * longest => 0.0,
        false => power(time / longest, exponent),
    });
    longest * power(shares.iter().sum(), exponent.recip())
}

/// The largest whole number up to a positive one. It is faster than the function of the standard
/// library, which calls another one where the processor may be old.
fn floor(value: f64) -> f64 {
    if value < WHOLE { value as i64 as f64 } else { value }
}

/// The smallest whole number from a positive one on.
fn ceil(value: f64) -> f64 {
    let floor = floor(value);
    if floor < value { floor + 1.0 } else { floor }
}

/// From here on, numbers in double precision are whole.
const WHOLE: f64 = (1i64 << 53) as f64;

/// A power of a positive number. This is faster than `powf`, which is exact to more digits than
/// an estimate has.
fn power(base: f64, exponent: f64) -> f64 {
    (base.log2() * exponent).exp2()
}

impl Cubes {
    fn of(plan: &Plan, problem: &Problem, device: &Device) -> Self {
        let (access, schedule) = (plan.access, plan.schedule);
        let units_per_output = schedule.all_units_per_output().max(1);
        let in_flight = units_per_output.saturating_mul(access.loads_in_flight as u64);
        let rounds = div_ceil(access.loads_per_output(problem).max(1), in_flight.max(1));

        let units = f64::from(schedule.units_per_cube().max(1));
        let registers = registers(problem, access, &device.profile);
        let RegisterUse { step, most, .. } = device.profile.registers;
        let (step, most) = (step.max(1) as f64, most.max(1) as f64);
        let held = (ceil(registers / step) * step).min(most);
        let available = f64::from(device.registers_per_multiprocessor.max(1));
        let shared = shared_bytes(plan, problem).saturating_add(merging_bytes(problem, schedule));
        let shared_of_all = device.shared_memory_per_multiprocessor as f64;
        let resident = [
            f64::from(device.units_per_multiprocessor) / units,
            available / (held * units),
            shared_of_all / (shared as f64 + device.profile.reserved_shared_bytes as f64),
            f64::from(device.cubes_per_multiprocessor),
        ];
        let resident = floor(resident.into_iter().fold(f64::INFINITY, f64::min)).max(1.0);
        let spilled = (registers / (available / units).min(most) - 1.0).max(0.0);
        Self { rounds, resident, spilled }
    }
}

/// Registers that a unit needs. The numbers of a plan that breaks the rules may be huge.
fn registers(problem: &Problem, access: Access, profile: &Profile) -> f64 {
    let RegisterUse { other, working, peeling, .. } = profile.registers;
    let operator = problem.operator();
    let words = |bytes: usize| bytes.div_ceil(size_of::<u32>()) as f64;
    let vector = access.vector as f64;
    let second = problem.second().map_or(0.0, |second| words(second.element().bytes()));
    // Realigned rows are read in two vectors for each load.
    let vectors = if access.realigns_along() { 2.0 } else { 1.0 };
    let load = vector * (vectors * of_element(problem, access) + second);
    let ends = access.peeled || access.realigns_along();
    let peeling = if ends { peeling as f64 } else { 0.0 };
    if access.in_passes {
        // Narrow elements are converted once, and both passes take what is converted.
        let elements = access.outputs_in_flight as f64 * access.loads_in_flight as f64 * vector;
        let held = words(problem.input().bytes().max(size_of::<f32>())) + second;
        return other as f64 + peeling + combined_words(problem, access) + elements * held;
    }
    let accumulators = match access.direction {
        Direction::Along if operator.blockwise => 1.0,
        _ => vector,
    };
    let accumulator = words(operator.accumulator_bytes);
    let per_output = accumulators * accumulator + access.loads_in_flight as f64 * load;
    let working = working as f64 * accumulator;
    other as f64 + peeling + working + access.outputs_in_flight as f64 * per_output
}

/// Registers of an element that is loaded. Narrow elements are converted when they are taken.
/// Compilers convert those of a block together, except across outputs for operators of two fields:
/// extrema with their positions and sums of exponentials took 54 to 64 registers in all with 8 loads
/// of 4 (ptxas 13.0).
fn of_element(problem: &Problem, access: Access) -> f64 {
    let bytes = problem.input().bytes() as f64 / size_of::<u32>() as f64;
    let fields = problem.operator().fields;
    let stays_packed = access.direction == Direction::Across && fields == 2 && access.vector > 1;
    if stays_packed { bytes } else { ceil(bytes) }
}

/// Shared memory in which the last cube of a split merges.
fn merging_bytes(problem: &Problem, schedule: Schedule) -> usize {
    match schedule {
        Schedule::Split { merge: Merge::LastCube, .. } => {
            let bytes = problem.operator().accumulator_bytes;
            (schedule.units_per_cube() as usize).saturating_mul(bytes)
        }
        _ => 0,
    }
}

/// Picoseconds that a multiprocessor takes for an element.
fn element_ps(problem: &Problem, profile: &Profile) -> f64 {
    let operator = problem.operator();
    let plain_ps = match operator.fields {
        _ if operator.element_cost.is_transcendental() => profile.transcendental_ps,
        0..=1 => profile.light_ps,
        2..=FEW_FIELDS => profile.medium_ps,
        _ => profile.heavy_ps,
    };
    let input = problem.input();
    let converted = !input.is_float() && problem.results().iter().any(|result| result.is_float());
    let beside = [
        (operator.positional, profile.position_ps),
        (converted, profile.convert_ps),
        (input.bytes() > size_of::<u32>(), profile.wide_ps),
    ];
    let beside = beside.into_iter().filter(|(applies, _)| *applies).map(|(_, ps)| ps as f64);
    plain_ps as f64 + beside.sum::<f64>()
}

/// Picoseconds that a multiprocessor takes for an element in two passes: as for a light operator,
/// then as for one of a few fields, or for an exponential of which nothing is asked.
fn passes_ps(problem: &Problem, profile: &Profile) -> f64 {
    let second_ps = match problem.operator().element_cost.is_transcendental() {
        true => profile.transcendental_ps as f64 * from_percent(EXPONENTIAL_PERCENT),
        false => profile.medium_ps as f64,
    };
    let wide_ps = if problem.input().bytes() > size_of::<u32>() { profile.wide_ps } else { 0 };
    profile.light_ps as f64 + second_ps + wide_ps as f64
}

/// The share of an exponential in what a transcendental operator takes for an element. On one H200,
/// logsumexp of bf16 500,001 × 100 along axis 1 took 32.5 us in two passes and 40.5 in one.
const EXPONENTIAL_PERCENT: u32 = 40;

/// Picoseconds that a multiprocessor takes for the power of an element. The powers of a unit do not
/// depend on each other, so no unit waits for them one by one.
fn power_ps(problem: &Problem, profile: &Profile) -> f64 {
    match problem.operator().element_cost {
        ElementCost::Power => profile.power_ps as f64,
        ElementCost::Plain | ElementCost::Exponential => 0.0,
    }
}

/// Cache lines that a plane touches with one load of each unit, beyond those that its bytes fill,
/// for each of its units.
fn extra_lines(problem: &Problem, device: &Device, access: Access, schedule: Schedule) -> f64 {
    let plane = f64::from(device.plane_size_min.max(1));
    let line = device.tuning.line_bytes.max(1) as f64;
    let element = problem.input().bytes() as f64;
    let load = access.vector as f64 * element;
    let inner = access.inner_len(problem).max(1) as f64 * element;
    let filled = (plane * load / line).max(1.0);
    let touched = match access.direction {
        Direction::Along => {
            let units = f64::from(schedule.units_per_output()).min(plane);
            let outputs = plane / units;
            // The units of an output read a part of one inner dimension, or several of them.
            let per_output = if units * load <= inner {
                (units * load / line).max(1.0)
            } else {
                let next = problem.reduced().iter().rev().nth(1);
                let stride = next.map_or(inner, |dim| dim.stride as f64 * element);
                let each = (stride / line).min((inner / line).max(1.0));
                (units * load / inner * each).max(1.0)
            };
            // Outputs share lines if they lie next to each other.
            let kept = problem.kept().last();
            let (stride, extent) =
                kept.map_or((0.0, 1.0), |dim| (dim.stride as f64 * element, dim.extent as f64));
            let runs = (outputs / extent).max(1.0);
            per_output * (outputs * stride / line).max(runs).min(outputs)
        }
        Direction::Across => {
            let tiles = f64::from(adjacent_tiles(device, schedule).max(1));
            let adjacent = tiles.min(plane) * load;
            let segment = adjacent.min(inner);
            match adjacent >= inner && rows_are_dense(problem) {
                true => filled,
                false => plane * load / segment * (segment / line).max(1.0),
            }
        }
    };
    (touched - filled).max(0.0) / plane
}

/// Words that the units of an output tile combine.
fn combined_words(problem: &Problem, access: Access) -> f64 {
    let bytes = match problem.operator().passes_bytes.filter(|_| access.in_passes) {
        Some(bytes) => bytes,
        None => accumulator_bytes(problem, access),
    };
    bytes.div_ceil(size_of::<u32>()) as f64
}

/// Combining within a cube.
fn combine_ns(problem: &Problem, schedule: Schedule, access: Access, profile: &Profile) -> f64 {
    let units = schedule.units_per_output().max(1);
    let fields = problem.operator().fields as f64;
    let step_ns = profile.shared_step_ns as f64;
    // Planes put down what their lanes have combined, and each plane combines that once more.
    if access.in_passes {
        let words = combined_words(problem, access);
        let in_plane = match (schedule, schedule.combine()) {
            (_, None) => 0.0,
            (Schedule::Plane { .. }, _) => PASSES,
            (_, Some(Combine::Plane { .. })) => 2.0 * PASSES,
            (_, Some(Combine::Shared)) => (f64::from(units.ilog2()) + 1.0) * words,
        };
        return in_plane * step_ns;
    }
    let steps = match (schedule, schedule.combine()) {
        (_, None) => 0.0,
        (Schedule::Plane { .. }, _) => 1.0,
        (_, Some(Combine::Shared)) => f64::from(units.ilog2()) * fields,
        (_, Some(Combine::Plane { lanes })) => 1.0 + if units > lanes { fields } else { 0.0 },
    };
    let realigned = if access.realigns_across() { profile.realign_ns as f64 * fields } else { 0.0 };
    steps * step_ns + realigned
}

/// Passes over elements that are held.
const PASSES: f64 = 2.0;

/// Picoseconds that a multiprocessor takes for what each unit does between two passes and after
/// them. On one H200, var of f16 65,536 × 2048 along axis 1 took 72 us in planes of 8 loads, 80 in
/// cubes of 64 units, 98 of 128 and 148 of 256, which have one load each.
const RESULTS_PS: f64 = 40.0;

/// Whether an operator of few fields scales what it adds up by the largest magnitude so far, as a
/// norm does: it could take two passes, of which the first finds that magnitude.
fn is_scaled(problem: &Problem) -> bool {
    let operator = problem.operator();
    operator.passes_bytes.is_some()
        && operator.fields <= FEW_FIELDS
        && !operator.element_cost.is_transcendental()
        && problem.direction() == Direction::Along
}

/// Picoseconds that a multiprocessor takes in one pass for each block of loads of such an operator:
/// it finds the largest magnitude of the block, and scales what it has. On one H200, norm_l2 of bf16
/// 360,168 × 256 along axis 1 took 63.7 us in 16 lanes of 2 loads, 51.5 in 8 of 4, and 43.8 in two
/// passes; that of f16 4,456,500 × 16 44.3 in units of 2 loads, and 37.6 in two passes; that of
/// 53,473,587 f32 54.8 with 4 loads in flight and 51.3 with 8.
const SCALED_PS: f64 = 800.0;

/// Picoseconds that a multiprocessor takes for an element at the edge of a row in one of two
/// passes. On one H200, logsumexp of bf16 500,001 × 100 along axis 1 took 42.0 us in peeled vectors
/// of 8, and 32.5 in vectors of 4, which divide rows.
const EDGE_PS: f64 = 100.0;

/// Publishing and merging the partials of a split.
///
/// A unit that merges reads all fields of an accumulator together, so it waits once for each
/// accumulator. Where each word was counted alone, there were too few cubes of many fields. On one
/// H200, covariances of f16 178,097 × 4 × 32 over axes 0 and 1 (four fields) took 36.9 us in 132
/// cubes of 64 × 8 units and 39.9 in 66 of 128 × 4, weighted variances of f16 256 × 236 × 299 over
/// axes 0 and 1 65.9 in 66 cubes of 1024 units and 82.6 in 33 of 512, and norm_l2 of bf16 248,007 ×
/// 751 along axis 0 116 in 44 cubes and 151 in 29.
fn merge_ns(schedule: Schedule, access: Access, profile: &Profile) -> f64 {
    let Schedule::Split { cubes_per_output, outputs_per_cube, merge, .. } = schedule else {
        return 0.0;
    };
    let each_tile = access.outputs_per_tile() as f64;
    let partials = f64::from(cubes_per_output) * f64::from(outputs_per_cube) * each_tile;
    match merge {
        Merge::LastCube => {
            let each = partials / f64::from(schedule.units_per_cube().max(1));
            let arriving_ns = f64::from(cubes_per_output) * profile.arrive_ps as f64 * 1e-3;
            profile.publish_ns as f64 + arriving_ns + each * profile.merge_ns as f64
        }
        Merge::SecondLaunch { units_per_output, .. } => {
            let each = f64::from(cubes_per_output) / f64::from(units_per_output.max(1));
            each * each_tile * profile.merge_ns as f64
        }
    }
}

/// The share of the memory's rate that the access pattern leaves.
fn locality(plan: &Plan, problem: &Problem, device: &Device, rounds: u64, residing: f64) -> f64 {
    let (access, schedule) = (plan.access, plan.schedule);
    match access.direction {
        Direction::Along => locality_along(problem, device, access, schedule, residing),
        Direction::Across => locality_across(problem, device, access, schedule, rounds),
    }
}

/// The units of one output read next to each other. `residing` units reside on a multiprocessor.
fn locality_along(
    problem: &Problem,
    device: &Device,
    access: Access,
    schedule: Schedule,
    residing: f64,
) -> f64 {
    let (tuning, profile) = (&device.tuning, &device.profile);
    let element = problem.input().bytes();
    let inner_len = access.inner_len(problem);
    let inner_bytes = inner_len.saturating_mul(element);
    if inner_bytes <= tuning.cached_inner_bytes {
        let runs = rate_of_runs(problem, device, schedule);
        return shared_sectors(problem, device, access, schedule).min(runs);
    }
    let units = schedule.units_per_output() as usize;
    let adjacent = units.saturating_mul(access.vector);
    let adjacent_bytes = adjacent.saturating_mul(element);
    if units == 1 {
        // A unit finds its line again if it has few loads of it, or if the lines of all units fill
        // no more than half of the cache, which is one memory with the shared one. Long rows leave
        // each unit a page of the memory of its own.
        let short = inner_bytes <= 2 * tuning.cached_inner_bytes;
        let half_of_cache = device.shared_memory_per_multiprocessor as f64 / 2.0;
        let few = inner_bytes <= tuning.page_bytes
            && residing * tuning.line_bytes as f64 <= half_of_cache;
        return match short || few {
            true => from_percent(profile.lone_unit_percent),
            false => profile.efficiency_of_segment(adjacent_bytes),
        };
    }
    // If the team's loads in flight cover enough of the row, neighbouring teams' reads are
    // effectively contiguous.
    let in_flight = adjacent.saturating_mul(access.loads_in_flight);
    let covered = in_flight.saturating_mul(tuning.contiguous_row_divisor) >= inner_len;
    let least = if covered { tuning.contiguous_row_bytes } else { 0 };
    // Where a team has all of its row in flight, and rows follow each other, so do the reads of all
    // teams. var of f32 4,000,000 × 48 along axis 1 took 193 us on one H200 with 4 lanes a row, and
    // 235 with one unit a row, which reads its row in three rounds.
    let whole = in_flight >= inner_len && !access.peeled && rows_follow(problem, inner_len);
    let segment = match whole {
        true => inner_bytes,
        false => adjacent_bytes.max(least),
    };
    let small_team = matches!(schedule, Schedule::Cube { .. })
        && schedule.units_per_output() <= device.plane_size_min;
    let narrow_team = access.in_passes
        && access.loads_in_flight >= NARROW_LOADS
        && access.vector.saturating_mul(element) == Access::WIDEST_STORE
        && adjacent_bytes <= NARROW_BYTES;
    let second_bytes = problem.second().map_or(0, |second| second.element().bytes());
    let row_bytes = inner_len.saturating_mul(element + second_bytes);
    let long_plane = problem.operator().fields == 1
        && matches!(schedule, Schedule::Plane { .. })
        && row_bytes > LONG_PLANE_BYTES;
    let team = match (small_team, narrow_team, long_plane) {
        (true, ..) => from_percent(profile.small_team_percent),
        (_, true, _) => from_percent(NARROW_TEAM_PERCENT),
        (.., true) => from_percent(LONG_PLANE_PERCENT),
        _ => 1.0,
    };
    profile.efficiency_of_segment(segment.min(inner_bytes)) * team
}

/// The rate of lanes that hold their row in several wide loads of few neighbouring bytes: each load
/// of a plane then touches a line of every second lane. On one H200, var of f32 5,079,670 × 32
/// along axis 1 took 168 us in two passes of 4 lanes, and 187 of 2; of 4,000,000 × 48, 194 and 223.
const NARROW_TEAM_PERCENT: u32 = 88;
const NARROW_LOADS: usize = 4;
const NARROW_BYTES: usize = 32;

/// The rate of planes with long rows of their own, of all inputs. On one H200, sums of bf16 took
/// 62.6 us in planes and 61.2 in cubes for rows of 11,200, 65.3 and 61.2 for 14,336, and 66.5 and
/// 61.6 for 40,000. A mean squared error of bf16 8192 × 8192 took 67.6 in planes, and 65.5 in cubes
/// of 128 units with twice the loads in flight.
const LONG_PLANE_PERCENT: u32 = 97;
const LONG_PLANE_BYTES: usize = 16 << 10;

/// Whether the inner dimensions of neighbouring outputs follow each other without a gap.
fn rows_follow(problem: &Problem, inner_len: usize) -> bool {
    problem.kept().last().is_some_and(|dim| dim.stride == inner_len)
}

/// The rate at which planes read short runs. A plane that has several outputs reads as many runs at
/// a time that follow each other.
///
/// On one H200, minima of f32 334 × 4096 × 23 × 8 over axes 0 and 3, with runs of 32 bytes, took
/// 423 us where a plane has one output, 250 where it has two, and 231 with a unit for each. Maxima
/// of bf16 2097152 × 22 × 8 over axes 0 and 2, with runs of 16, took 439 us where it has one, 230
/// where it has two, and 216 where it has four.
fn rate_of_runs(problem: &Problem, device: &Device, schedule: Schedule) -> f64 {
    let Some(run) = short_run(problem, device) else { return 1.0 };
    let outputs = (device.plane_size_min / schedule.units_per_output().max(1)).max(1);
    match run.saturating_mul(outputs as usize) {
        ..=16 => 0.41,
        17..=32 => 0.55,
        33..=64 => 0.9,
        _ => 1.0,
    }
}

/// Where an inner dimension is a part of a sector, each cube fetches the whole sector for its
/// outputs. The rate of the shared cache then limits that of the memory.
fn shared_sectors(problem: &Problem, device: &Device, access: Access, schedule: Schedule) -> f64 {
    let element = problem.input().bytes();
    let inner_len = access.inner_len(problem);
    let inner_bytes = inner_len.saturating_mul(element).max(1);
    // Outputs of one cube may lie next to each other.
    let outputs = match problem.kept().last() {
        Some(dim) if dim.stride == inner_len => {
            let per_cube = schedule.outputs_per_cube() as usize;
            per_cube.saturating_mul(access.outputs_in_flight).clamp(1, dim.extent.max(1))
        }
        _ => 1,
    };
    let read = outputs.saturating_mul(inner_bytes);
    // Rows that follow each other share sectors, and the cube reads all of them.
    let next = problem.reduced().iter().rev().nth(1);
    let stride = next.map_or(read, |dim| dim.stride.saturating_mul(element));
    let fetched = device.tuning.sector_bytes.min(stride).max(read) as f64 / read as f64;
    (from_percent(device.profile.cache_percent.max(1)) / fetched).min(1.0)
}

/// Units of adjacent output tiles read next to each other.
fn locality_across(
    problem: &Problem,
    device: &Device,
    access: Access,
    schedule: Schedule,
    rounds: u64,
) -> f64 {
    let element = problem.input().bytes();
    let inner_len = access.inner_len(problem);
    let tiles = adjacent_tiles(device, schedule);
    let adjacent = (tiles as usize).saturating_mul(access.vector);
    let inner_bytes = inner_len.saturating_mul(element);
    let mut segment = adjacent.saturating_mul(element).min(inner_bytes);
    if reads_on(problem, device, tiles, adjacent / inner_len.max(1)) {
        segment = segment.saturating_mul(schedule.units_per_output() as usize);
    }
    // Teams that have all rows of their block in flight read neighbouring blocks as a whole.
    let rows = access.loads_in_flight.saturating_mul(schedule.units_per_output() as usize);
    if let Some(block) = short_block(problem, device)
        && rows.saturating_mul(inner_len) >= block
    {
        let blocks = (adjacent / inner_len.max(1)).max(1);
        segment = segment.max(blocks.saturating_mul(block).saturating_mul(element));
    }
    let sectors = sector_share(problem, device, access, tiles, schedule.units_per_output());
    let first_round = from_percent(device.profile.first_round_percent) / rounds.max(1) as f64;
    let twice = (1.0 - sectors) * from_percent(device.profile.sector_percent) * (1.0 - first_round);
    device.profile.efficiency_of_segment(segment) * (1.0 - twice)
        / (1.0 + time_of_shared_lines(problem, device, segment, rounds))
}

/// Elements of a block of rows of the innermost reduced dimension that follow each other without a
/// gap, as do the blocks, of which each line of the cache has several: all of a line is read,
/// whatever part of it a plane reads at a time.
///
/// On one H200, norm_l2 of f16 4 × 524,288 × 6 × 2 over axes 0 and 2, in blocks of 24 bytes, took
/// 26.4 us with a unit for each pair of columns, 35.0 with 2 lanes and 48.8 with 4; means and
/// variances of f32 16,287 × 528 × 3 × 4 along axis 2, in blocks of 48 bytes, 271 with a unit and
/// 417 with 2 lanes. In larger blocks a load of a plane touches a line for each: `sum_and_dot` of f16
/// 8 × 249,759 × 16 × 4 over axes 0 and 2 took 122 in planes and 266 in cubes.
fn short_block(problem: &Problem, device: &Device) -> Option<usize> {
    let inner = problem.kept().last()?;
    let outer = problem.kept().iter().rev().nth(1)?;
    let block = problem.reduced().last()?.extent.checked_mul(inner.extent)?;
    let bytes = block.checked_mul(problem.input().bytes())?;
    let follow = rows_are_dense(problem) && outer.stride == block;
    (follow && 2 * bytes <= device.tuning.line_bytes).then_some(block)
}

/// What is added to the time of reading segments whose first and last line neighbouring segments
/// read too. Cubes that take many rounds drift apart, and a line has left the cache when the second
/// of them reads it.
///
/// On one H200, sums of f32 10,000 × 10,000 along axis 0 took 106 to 115 us in segments of 128
/// bytes, 104 in segments of 512 and 102 in segments of 1024. Sums of f32 1000 × 1000 × 500 along
/// axis 1 took 472 us in 4 rounds, 476 in 8, 484 in 16, 495 in 63, and 510 in 125.
fn time_of_shared_lines(problem: &Problem, device: &Device, segment: usize, rounds: u64) -> f64 {
    if !rows_share_lines(problem, device) {
        return 0.0;
    }
    let line = device.tuning.line_bytes;
    let of_ends = from_percent(SHARED_LINE_PERCENT) * line as f64 / segment.max(line) as f64;
    let doublings = (rounds.max(ROUNDS_TOGETHER) as f64 / ROUNDS_TOGETHER as f64).log2();
    of_ends + from_percent(DRIFT_PERMILLE) / 10.0 * doublings
}

/// What two lines that neighbours read too add to the time of a segment of one line.
///
/// This number and the next two were fitted to cases with 10 to 370 timed plans each. In the
/// geometric mean, the choice took 3.30 % longer than the best plan in 273 random cases, 1.65 in
/// 110 others, 1.75 in 89 of the benchmarks and 1.40 in 7 whose rows share lines. Without these
/// numbers it took 3.40, 1.64, 1.87 and 6.47 %.
const SHARED_LINE_PERCENT: u32 = 10;

/// Rounds in which neighbouring cubes stay together.
const ROUNDS_TOGETHER: u64 = 8;

/// What each doubling of the rounds adds, in thousandths.
const DRIFT_PERMILLE: u32 = 16;

/// Output tiles whose units read next to each other.
fn adjacent_tiles(device: &Device, schedule: Schedule) -> u32 {
    match schedule {
        Schedule::Plane { lanes_per_output, .. } => device.plane_size_min / lanes_per_output.max(1),
        _ => schedule.outputs_per_cube(),
    }
}

/// Whether the rows of the innermost reduced dimension follow each other without a gap.
fn rows_are_dense(problem: &Problem) -> bool {
    let row = problem.kept().last().map_or(1, |dim| dim.extent);
    problem.reduced().last().is_some_and(|dim| dim.stride == row)
}

/// Whether the units of an output read on in the next rows: rows follow each other without a gap,
/// and the `tiles` of adjacent outputs cover one of them, or several within a plane.
fn reads_on(problem: &Problem, device: &Device, tiles: u32, whole_rows: usize) -> bool {
    rows_are_dense(problem) && (whole_rows == 1 || whole_rows > 1 && tiles <= device.plane_size_min)
}

/// Whether reads of whole sectors that follow each other in a reduction start at a sector.
fn starts_at_sectors(problem: &Problem, sector: usize) -> bool {
    let strides = problem.kept().iter().rev().skip(1).map(|dim| dim.stride);
    let mut strides = strides.chain(problem.reduced().iter().rev().skip(1).map(|dim| dim.stride));
    let bytes = problem.input().bytes();
    problem.alignment().is_multiple_of(sector)
        && strides.all(|stride| stride.saturating_mul(bytes).is_multiple_of(sector))
}

/// The share of the moved bytes that planes need, where vectors are narrow because rows start off
/// their boundaries, and where rows are realigned. `tiles_per_cube` units read one after the other
/// in a row. Memory moves whole sectors, and the planes at both sides of a boundary move the same
/// one (`Tuning::sector_bytes`).
pub(super) fn sector_share(
    problem: &Problem,
    device: &Device,
    access: Access,
    tiles_per_cube: u32,
    units_per_output: u32,
) -> f64 {
    if !access.realigns_across() && access.vector >= widest_vector(problem, device) {
        return 1.0;
    }
    let inner_len = access.inner_len(problem).max(1);
    let tiles = u64::from(tiles_per_cube.max(1));
    let (outputs, whole_rows) = match access.realigns_across() {
        true => {
            let blocks = access.realigned_blocks(problem, tiles_per_cube);
            (blocks.outputs, usize::from(blocks.per_row == 1))
        }
        false => {
            let outputs = (tiles as usize).saturating_mul(access.vector);
            (outputs.min(inner_len), outputs / inner_len)
        }
    };
    let bytes = outputs.saturating_mul(problem.input().bytes()) as f64;
    let plane = f64::from(device.plane_size_min.max(1));
    let sector = device.tuning.sector_bytes;
    let read_on = units_per_output > 1 && reads_on(problem, device, tiles_per_cube, whole_rows);
    let per_plane = if read_on {
        // A plane reads on in the next rows.
        let per_plane = bytes * plane / tiles as f64;
        if per_plane % sector as f64 == 0.0 && starts_at_sectors(problem, sector) {
            return 1.0;
        }
        per_plane
    } else {
        let units = tiles.min(access.loads_per_inner(problem));
        bytes / (units as f64 / plane).max(1.0)
    };
    per_plane / (per_plane + sector as f64)
}
