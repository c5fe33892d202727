//! The choice of a plan for a scan, step by step. Read [`choose_scan`] from top to bottom.

use super::plan::{ScanParts, ScanPlan, check_device, has_long_functions, may_peel, row_loads};
use crate::{
    choose::{Candidate, Choice, Explained, FEW_FIELDS, floor_power_of_two},
    device::Device,
    error::PlanError,
    estimate::Estimate,
    illegal::Illegal,
    kind::ScheduleKind,
    plan::{Access, Combine, div_ceil},
    problem::{Direction, ScanProblem},
    refusal::Refusal,
};

impl Explained for ScanPlan {
    type Refusal = Refusal<ScheduleKind, ScanReason>;

    fn is_of_kind(&self, other: &Self) -> bool {
        self.kind() == other.kind()
    }
}

/// Why a schedule was not taken for a scan.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum ScanReason {
    /// A row is too long for one unit, or for the lanes of one plane, to hold it.
    #[error("rows of {loads} loads are longer than the {most} that it holds")]
    TooLong {
        /// Loads of a row.
        loads: u64,
        /// The most that the schedule holds.
        most: u64,
    },
    /// A row is too short for as many units.
    #[error("rows of {loads} loads are too short to share among its units")]
    TooShort {
        /// Loads of a row.
        loads: u64,
    },
    /// Planes take rows in several chunks, and cubes would take longer.
    #[error("planes scan rows of {loads} loads in several chunks, which takes less time")]
    LeftToPlanes {
        /// Loads of a row.
        loads: u64,
    },
    /// The outputs keep every multiprocessor busy without a split.
    #[error("no need to split: {cubes} cubes without a split, and {wanted} fill the device")]
    OutputsFillDevice {
        /// Cubes without a split.
        cubes: u64,
        /// Cubes that fill the device.
        wanted: u64,
    },
    /// A row has too few chunks for several cubes.
    #[error("too short to split: {chunks} chunks of a row, and two cubes need {needed}")]
    TooShortToSplit {
        /// Chunks of a row.
        chunks: u64,
        /// The number of chunks from which two cubes have enough to do.
        needed: u64,
    },
    /// Several cubes per row would depend on how many rows there are.
    #[error("batch-invariant scans do not split rows: whether they need to depends on the others")]
    DependsOnBatch,
    /// The schedule applies, and another one should be faster.
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

/// Chooses a plan for a scan on a device.
///
/// ```
/// use reduce_planner::*;
///
/// // Running sums of each column of 8192 × 8192 f32, on an H200.
/// let element = ElementType::F32;
/// let (shape, strides) = (&[8192, 8192], &[8192, 1]);
/// let input = InputSpec { element, shape, strides, alignment: 256 };
/// let elements = &[element];
/// let spec = ScanSpec::new(elements);
/// let problem = ScanProblem::new(OperatorClass::new("sum", 4), &input, Some(&[0]), &spec)?;
///
/// let choice = choose_scan(&problem, &Device::h200())?;
/// assert_eq!(choice.plan.access.direction, Direction::Across);
/// println!("{}", choice.plan);
/// for refusal in &choice.refused {
///     println!("not {refusal}");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// The description of the device makes no sense, the device lacks an element type, wide indices or
/// a grid of as many cubes as there are rows, or the problem asks for numerics that its operator
/// does not have.
pub fn choose_scan(problem: &ScanProblem, device: &Device) -> Result<Choice<ScanPlan>, PlanError> {
    // 1. No plan can mend a type that the device lacks, or indices that are too narrow.
    check_device(problem, device)?;

    // 2. Plans whose bits must not depend on the batch are made for so many rows like these. Of
    //    columns, how wide vectors are is then free again: each component has a row of its own.
    let invariant = problem.problem().numerics().is_batch_invariant();
    let access = widest(problem, device);
    let reference = invariant.then(|| {
        let widest = device.max_vector.max(1);
        let rows = device.multiprocessors.saturating_mul(device.tuning.scan.reference_rows);
        let rows = (rows as usize).next_multiple_of(widest);
        problem.reference(rows, access.vector, widest)
    });
    let sized_for = reference.as_ref().unwrap_or(problem);
    let sized_access = match access.direction {
        Direction::Along => access,
        Direction::Across => widest(sized_for, device),
    };

    // 3. Each schedule has a size, or a reason why it does not apply.
    let mut found = Vec::with_capacity(ScheduleKind::ALL.len());
    let mut refused = Vec::with_capacity(ScheduleKind::ALL.len());
    for kind in ScheduleKind::ALL {
        match sized(kind, sized_for, sized_access, device) {
            Ok(sized) => {
                let estimate = sized.estimate(sized_for, device);
                let access = sized.access.with_vector(access.vector);
                let plan = ScanPlan { access, ..sized };
                match plan.obeys_rules(problem, device) {
                    Ok(()) => found.push(Candidate { plan, estimate }),
                    Err(limit) => {
                        refused.push(Refusal::new(kind, ScanReason::PassesLimits { limit }));
                    }
                }
            }
            Err(reason) => refused.push(Refusal::new(kind, reason)),
        }
    }

    // 4. The fastest as estimated is taken.
    let slower =
        |microseconds, best_microseconds| ScanReason::Slower { microseconds, best_microseconds };
    let choice = Choice::fastest(found, refused, Estimate::alone_ns, ScanPlan::kind, slower);
    let mut choice = match choice {
        Ok(choice) => choice,
        // Single elements by single units serve every scan: the rule that they break is that of the
        // device.
        Err(refused) => {
            let access = Access::new(access.direction);
            let plan = by_units(problem, access, device);
            plan.obeys_rules(problem, device).map_err(|reason| device.unfit(&plan, reason))?;
            Choice { refused, ..Choice::only(plan, plan.estimate(problem, device)) }
        }
    };
    if invariant {
        choice.estimate = choice.plan.estimate(problem, device);
        choice.runners_up.clear();
    }
    Ok(choice)
}

/// The plan of one schedule, sized by the rules of [`choose_scan`].
///
/// # Errors
///
/// Those of `choose_scan`, and a schedule that does not apply:
/// [`PlanError::NoScanSchedule`] with the reason.
pub fn force_scan(
    kind: ScheduleKind,
    problem: &ScanProblem,
    device: &Device,
) -> Result<ScanPlan, PlanError> {
    let choice = choose_scan(problem, device)?;
    let mut plans = choice.runners_up.iter().map(|candidate| candidate.plan);
    if choice.plan.kind() == kind {
        return Ok(choice.plan);
    }
    if let Some(plan) = plans.find(|plan| plan.kind() == kind) {
        return Ok(plan);
    }
    let refusals = choice.refused.into_iter().filter(|refusal| refusal.kind == kind).collect();
    Err(PlanError::NoScanSchedule { device: device.name.clone(), refusals })
}

/// How the input is read: in the widest vectors of which the results fit one store, or in narrower
/// ones where operators take long to merge columns. Long rows that
/// do not begin and end with vectors have parts of one at their ends.
fn widest(problem: &ScanProblem, device: &Device) -> Access {
    let of_row = problem.problem();
    let input = of_row.input().bytes();
    let result = of_row.results().iter().map(|of| of.bytes()).fold(input, usize::max);
    let load_bytes = (device.load_bytes.saturating_mul(input) / result).max(input);
    let vector = (load_bytes / input.max(1)).clamp(1, device.max_vector.max(1));
    let kept = of_row.kept().iter().zip(&problem.output().kept);
    let alike = problem.output().reduced.last() == Some(&1)
        && kept
            .map(|(dim, stride)| (dim.stride, stride))
            .all(|(own, other)| own % vector == other % vector);
    let is_long = problem.len() / vector >= device.tuning.scan.peeled_row_vectors as usize;
    // Results of parts of vectors are stored one by one, so those of the others must be vectors.
    let may_peel = may_peel(problem, of_row.direction()) && alike && is_long;
    let load_bytes = match takes_long_across(problem, device) {
        true => load_bytes.min(bytes_of_long_functions(problem).max(input)),
        false => load_bytes,
    };
    Access::widest_up_to(load_bytes, may_peel, of_row, device)
}

/// Whether columns are scanned by an operator that takes long to merge, on a device whose compiler
/// is fast enough for many loads of it: that of a software adapter, which has no plane operations,
/// is not.
fn takes_long_across(problem: &ScanProblem, device: &Device) -> bool {
    has_long_functions(problem)
        && problem.problem().direction() == Direction::Across
        && device.plane_operations
}

/// Bytes of a load of such columns. Each component has an accumulator of its own, which units learn
/// for each chunk, so a unit takes more rows of fewer columns.
///
/// Along axis 0 of f32 8192 × 8192, means and variances took 1324 us on one H200 with 2 loads of 8
/// bytes, 592 with 8 of 8, 499 with 8 of 4, and 482 with 16 of 4; logarithms of sums of
/// exponentials 548 with 2 of 16, 290 with 16 of 4, and 260 with 16 of 8. Since runs give the
/// results of four rows, the latter take 145 in vectors of 8 bytes, 173 of 4 and 195 of 16; of
/// bf16, 160 of 4 in cubes whose segments have 128 bytes, and 185 of 8 in those of 64.
fn bytes_of_long_functions(problem: &ScanProblem) -> usize {
    match functions_of(problem) {
        Functions::Exponentials if is_narrow(problem) => 4,
        Functions::Light | Functions::Exponentials => 8,
        Functions::ManyFields => 4,
    }
}

/// The size of one schedule, or why it does not apply.
fn sized(
    kind: ScheduleKind,
    problem: &ScanProblem,
    access: Access,
    device: &Device,
) -> Result<ScanPlan, ScanReason> {
    match (kind, access.direction) {
        (ScheduleKind::Unit, Direction::Along) => {
            let loads = row_loads(access, problem);
            let most = u64::from(loads_of_units(access, device));
            match loads > most {
                true => Err(ScanReason::TooLong { loads, most }),
                false => Ok(by_units(problem, access, device)),
            }
        }
        (ScheduleKind::Unit, Direction::Across) => Ok(by_units(problem, access, device)),
        (ScheduleKind::Plane, Direction::Along) => by_planes(problem, access, device),
        (ScheduleKind::Plane, Direction::Across) => {
            Err(ScanReason::PassesLimits { limit: Illegal::PlaneAcrossOutputs })
        }
        (ScheduleKind::Cube, _) => by_cubes(problem, access, device),
        (ScheduleKind::Split, _) => split(problem, access, device),
    }
}

/// A unit for each row, or for each vector of columns.
fn by_units(problem: &ScanProblem, access: Access, device: &Device) -> ScanPlan {
    let loads = row_loads(access, problem);
    let access = with_loads(access, loads, loads_of_units(access, device));
    let outputs = device.tuning.scan.independent_units_per_cube.min(device.max_units_per_cube);
    ScanPlan::new(problem, access, 1, narrow_power_of_two(outputs.into()), Combine::Shared)
}

/// Loads in flight of a unit that has a row alone, or a vector of columns.
fn loads_of_units(access: Access, device: &Device) -> u32 {
    let tuning = device.tuning.scan;
    match access.direction {
        Direction::Along if device.plane_operations => tuning.unit_loads,
        Direction::Along => tuning.unit_loads_without_planes,
        Direction::Across => tuning.unit_loads_across,
    }
}

/// The lanes of a plane for each row, or some of them.
fn by_planes(
    problem: &ScanProblem,
    access: Access,
    device: &Device,
) -> Result<ScanPlan, ScanReason> {
    let tuning = device.tuning.scan;
    if !device.plane_operations {
        return Err(ScanReason::PassesLimits { limit: Illegal::NoPlaneOperations });
    }
    let loads = row_loads(access, problem);
    let plane = u64::from(device.plane_size_min);
    let each = match functions_of(problem) {
        Functions::Light if has_several_results(problem) => tuning.plane_loads_of_several_results,
        Functions::Light => tuning.plane_loads,
        Functions::Exponentials if !is_narrow(problem) => tuning.plane_loads_of_exponentials,
        Functions::Exponentials | Functions::ManyFields => tuning.plane_loads_of_long_functions,
    };
    let most = plane * u64::from(each);
    if plane < 2 {
        return Err(ScanReason::PassesLimits { limit: Illegal::OneLane });
    }
    if loads < 2 {
        return Err(ScanReason::TooShort { loads });
    }
    if loads > most {
        return Err(ScanReason::TooLong { loads, most });
    }
    let lanes = lanes_wanted(problem, device, loads).max(2).next_power_of_two().min(plane);
    let lanes = narrow_power_of_two(lanes);
    let in_flight = loads_of_planes(problem, device);
    let mut access = with_loads(access, div_ceil(loads, lanes.into()), in_flight);
    let units = match functions_of(problem) {
        Functions::Exponentials if !is_narrow(problem) => device.plane_size_min,
        Functions::Exponentials | Functions::ManyFields => tuning.long_function_units_per_cube,
        Functions::Light => tuning.independent_units_per_cube,
    };
    let units = narrow_power_of_two(units.min(device.max_units_per_cube).into());
    let mut units = units.max(device.plane_size_min);
    // Lanes that exchange elements do so through shared memory, of which a device may have less.
    loop {
        let combine = Combine::Plane { lanes };
        let plan = ScanPlan::new(problem, access, lanes, units / lanes, combine);
        let limit = plan.obeys_rules(problem, device);
        if !matches!(limit, Err(Illegal::SharedMemory { .. })) {
            return Ok(plan);
        }
        if units > device.plane_size_min {
            units /= 2;
        } else if access.loads_in_flight > 1 {
            access = access.with_loads_in_flight(access.loads_in_flight / 2);
        } else {
            return Ok(plan);
        }
    }
}

/// What takes the time of a scan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Functions {
    /// Its bytes.
    Light,
    /// Exponentials or the like of its elements.
    Exponentials,
    /// Merges of accumulators of many fields.
    ManyFields,
}

fn functions_of(problem: &ScanProblem) -> Functions {
    match has_long_functions(problem) {
        true if problem.problem().operator().fields > FEW_FIELDS => Functions::ManyFields,
        true => Functions::Exponentials,
        false => Functions::Light,
    }
}

/// Loads in flight of a lane of a plane that scans rows. Where lanes exchange elements, each result
/// takes shared memory for every load in flight. So where many fields are merged of wide elements,
/// several results have half as many loads.
fn loads_of_planes(problem: &ScanProblem, device: &Device) -> u32 {
    let tuning = device.tuning.scan;
    let several = has_several_results(problem);
    match functions_of(problem) {
        Functions::Light if several => tuning.several_results_loads,
        Functions::Light => tuning.plane_loads,
        _ if is_narrow(problem) => tuning.narrow_long_function_loads,
        Functions::ManyFields if several => (tuning.many_fields_loads / 2).max(1),
        Functions::Exponentials => tuning.exponential_loads,
        Functions::ManyFields => tuning.many_fields_loads,
    }
}

/// Loads in flight of a unit of a cube that scans a row of so many loads. Units of a cube merge
/// more than lanes of a plane do, so the chunks of all long functions are large, as long as they
/// leave a cube two planes.
fn loads_of_cubes(problem: &ScanProblem, device: &Device, loads: u64) -> u32 {
    let tuning = device.tuning.scan;
    let short = u64::from(tuning.short_row_units) * u64::from(tuning.short_row_loads);
    let large = match is_narrow(problem) {
        true => tuning.narrow_long_function_loads,
        false => tuning.many_fields_loads,
    };
    let leaves_planes = loads > u64::from(device.plane_size_min) * u64::from(large);
    match functions_of(problem) {
        _ if !device.plane_operations => tuning.cube_loads,
        Functions::Light if loads <= short && !has_several_results(problem) => {
            tuning.short_row_loads
        }
        Functions::Exponentials | Functions::ManyFields if leaves_planes => large,
        _ => tuning.cube_loads,
    }
}

/// Lanes for a row of so many loads. Where merges take long, each lane takes several loads, as long
/// as all lanes fill the device: variances of f32 4096 × 1024 took 20.2 us on one H200 in 8
/// lanes, and 16.5 in 16, of 1056 × 1024 15.1 in 8, and 9.5 in 32.
fn lanes_wanted(problem: &ScanProblem, device: &Device, loads: u64) -> u64 {
    let tuning = device.tuning.scan;
    let narrow = is_narrow(problem);
    let (each, least) = match functions_of(problem) {
        Functions::Light => return loads,
        Functions::Exponentials if narrow => (tuning.narrow_long_function_loads, 1),
        Functions::Exponentials => (tuning.exponential_loads_per_lane, 1),
        Functions::ManyFields => {
            let each = tuning.many_fields_loads_per_lane;
            let each = if has_several_results(problem) { (each / 2).max(1) } else { each };
            // Of f32 262,144 × 256, 4 lanes took 155 us, and 2 164.
            let least = LEAST_LANES.min(floor_power_of_two(loads / LEAST_LOADS_PER_LANE));
            if narrow { (2 * each, 1) } else { (each, least) }
        }
    };
    let units = u64::from(device.multiprocessors) * LONG_FUNCTION_UNITS_PER_MULTIPROCESSOR;
    let filling = units / (problem.problem().outputs() as u64).max(1);
    div_ceil(loads, each.into()).max(least).max(filling.min(loads))
}

/// Fewest lanes of a row of wide elements, if each has the loads below.
const LEAST_LANES: u64 = 4;

/// Fewest loads of each of those lanes.
const LEAST_LOADS_PER_LANE: u64 = 8;

/// Units of planes that fill a multiprocessor where merges take long.
const LONG_FUNCTION_UNITS_PER_MULTIPROCESSOR: u64 = 512;

/// The units of a cube for each row, or for neighbouring vectors of columns.
fn by_cubes(
    problem: &ScanProblem,
    access: Access,
    device: &Device,
) -> Result<ScanPlan, ScanReason> {
    let tuning = device.tuning.scan;
    let loads = row_loads(access, problem);
    let too_short = ScanReason::TooShort { loads };
    let mut plan = match access.direction {
        Direction::Along => {
            let access = with_loads(access, loads, loads_of_cubes(problem, device, loads));
            let wanted = div_ceil(loads, access.loads_in_flight as u64).next_power_of_two();
            let most = match device.plane_operations {
                true => tuning.units_per_cube,
                false => tuning.units_per_cube_without_planes,
            };
            let most = most.min(device.max_units_per_cube);
            let units = narrow_power_of_two(wanted.min(most.into()));
            let lanes = device.plane_size_min;
            let in_planes = device.plane_operations && units > lanes;
            if units < 2 || (device.plane_operations && !in_planes) {
                return Err(too_short);
            }
            if is_left_to_planes(problem, device, loads) {
                return Err(ScanReason::LeftToPlanes { loads });
            }
            let combine = if in_planes { Combine::Plane { lanes } } else { Combine::Shared };
            let outputs = narrow_power_of_two((tuning.least_units_per_cube / units).max(1).into());
            ScanPlan::new(problem, access, units, outputs, combine)
        }
        Direction::Across => by_cubes_across(problem, access, device),
    };
    fit_shared(&mut plan, problem, device)?;
    if plan.units_per_output < 2 {
        return Err(too_short);
    }
    Ok(plan)
}

/// The units of a cube for neighbouring vectors of columns.
fn by_cubes_across(problem: &ScanProblem, access: Access, device: &Device) -> ScanPlan {
    let tuning = device.tuning.scan;
    let loads = row_loads(access, problem);
    let tiles = access.output_tiles(problem.problem()).max(1);
    let multiprocessors = u64::from(device.multiprocessors);
    let bytes = bytes_side_by_side(problem, access, device);
    let side_by_side = side_by_side(problem, access, bytes);
    let many = tiles / side_by_side >= multiprocessors * u64::from(tuning.many_cubes_across);
    // Columns that fill the device have fewer units each, which learn less from each other.
    let device_units =
        multiprocessors.saturating_mul(tuning.units_per_multiprocessor_across.into());
    let large = u64::from(tuning.many_units_per_cube_across) / side_by_side;
    let several_fields = problem.problem().operator().fields > 1;
    let (most, wanted) = if takes_long_across(problem, device) {
        // Variances of f32 64 × 1024 × 1024 along axis 1 took 445 us in 2 units for each column, 64
        // in a cube, and 350 in 8.
        (Access::MOST_LOADS_IN_FLIGHT as u32, large.max(device_units / tiles))
    } else if has_long_functions(problem) {
        (most_loads(problem, tuning.cube_loads_across), device_units / tiles)
    } else if is_narrow(problem) {
        (most_loads(problem, tuning.cube_narrow_loads_across), device_units / 2 / tiles)
    } else if many {
        (most_loads(problem, tuning.many_loads_across), large)
    } else if several_fields {
        // The largest elements of f32 8192 × 8192 so far, with their positions, took 261 us with 4
        // loads in 32 units for each column, 252 with 8, and 240 with 8 in 16.
        (most_loads(problem, tuning.many_loads_across), device_units / 2 / tiles)
    } else {
        (most_loads(problem, tuning.cube_loads_across), device_units / tiles)
    };
    let access = with_loads(access, loads, most);
    across(problem, access, bytes, wanted, tuning.units_per_cube_across, device)
}

/// Bytes of neighbouring columns that a cube has.
fn bytes_side_by_side(problem: &ScanProblem, access: Access, device: &Device) -> usize {
    let (of_row, line) = (problem.problem(), device.tuning.line_bytes);
    let (element, multiprocessors) = (of_row.input().bytes(), device.multiprocessors as usize);
    let tiles = access.output_tiles(of_row) as usize;
    let bytes = tiles.saturating_mul(access.vector * element);
    let is_light = of_row.operator().fields == 1 && !has_long_functions(problem);
    let fills_device = |width: usize| bytes / width * 100 >= multiprocessors * MOSTLY_BUSY;
    let row_bytes = access.inner_len(of_row) * element;
    // While columns were pushed element by element, exponentials of f32 8192 × 8192 took 243 us on
    // one H200 in cubes of 256 bytes, and 259 of 128; variances of bf16 329 of 128, and 434 of 64.
    // Since then, exponentials of bf16 took 185 of 64, and 160 of 128.
    if takes_long_across(problem, device) {
        let many_fields = functions_of(problem) == Functions::ManyFields;
        let wide = if many_fields || is_narrow(problem) { line } else { 2 * line };
        if row_bytes.is_multiple_of(wide) && fills_device(wide) {
            return wide;
        }
    }
    if is_narrow(problem) || !is_light {
        // Narrower cubes are more, and half a line of the cache still is a whole transfer.
        return if bytes <= multiprocessors.saturating_mul(line) { line / 2 } else { line };
    }
    let wide = 2 * line;
    // Shorter loads would leave a plane one lane for each column, and smaller cubes fewer units.
    let has_units = access.vector * element == device.load_bytes
        && device.max_units_per_cube >= device.tuning.scan.units_per_cube_across;
    if has_units && fills_device(wide) && row_bytes.is_multiple_of(wide) {
        wide
    } else if fills_device(line) {
        line
    } else {
        line / 2
    }
}

/// Percent of the multiprocessors for which there are cubes of columns. On one H200, a running sum
/// of f32 32,768 × 4096 along axis 0 took 289 us in 128 cubes whose segments have 128 bytes, and
/// 340 in 256 of 64 bytes; of 8192 × 8192, 139 in 128 of 256 bytes, and 141 in 256 of 128; of 4096
/// × 16,384, 136 and 153; of 64 × 1024 × 1024 along axis 1, 138 and 140. A trial in CUDA C++ that
/// copies 8192 × 8192 in these segments took 134.5 and 141 at best.
const MOSTLY_BUSY: usize = 90;

/// Vectors of columns that have so many bytes side by side, a power of two.
fn side_by_side(problem: &ScanProblem, access: Access, bytes: usize) -> u64 {
    let inner = access.inner_len(problem.problem()).div_ceil(access.vector).max(1) as u64;
    let load_bytes = access.vector * problem.problem().input().bytes();
    let vectors = (bytes / load_bytes.max(1)).max(1) as u64;
    floor_power_of_two(vectors).min(inner.next_power_of_two())
}

/// Whether planes scan rows of so many loads in several chunks, where cubes take longer than their
/// estimates say, and rows are enough for planes to fill the device: through Vulkan for several
/// results, and where many fields are merged. Means and variances of f32 65,536 × 1024 took 443 us
/// on one H200 through Vulkan in cubes of 64 units, and 293 in 16 lanes.
fn is_left_to_planes(problem: &ScanProblem, device: &Device, loads: u64) -> bool {
    let tuning = device.tuning.scan;
    let most = match functions_of(problem) {
        Functions::Exponentials => return false,
        Functions::ManyFields => tuning.plane_loads_of_long_functions,
        Functions::Light if has_several_results(problem) => {
            match tuning.plane_loads_of_several_results {
                most if most > tuning.several_results_loads => most,
                _ => return false,
            }
        }
        Functions::Light => return false,
    };
    let plane = u64::from(device.plane_size_min);
    let units = u64::from(device.multiprocessors) * LONG_FUNCTION_UNITS_PER_MULTIPROCESSOR;
    let lanes = (problem.problem().outputs() as u64).saturating_mul(plane);
    device.plane_operations && plane >= 2 && loads <= plane * u64::from(most) && lanes >= units
}

fn has_several_results(problem: &ScanProblem) -> bool {
    problem.problem().results().len() > 1
}

/// Whether elements take half a word or less.
fn is_narrow(problem: &ScanProblem) -> bool {
    problem.problem().input().bytes() < size_of::<f32>()
}

/// A cube for neighbouring vectors of columns, as many as have so many bytes side by side, with
/// about as many units for each of them as wanted, up to so many of the cube.
fn across(
    problem: &ScanProblem,
    access: Access,
    bytes: usize,
    wanted: u64,
    most_units: u32,
    device: &Device,
) -> ScanPlan {
    let loads = row_loads(access, problem);
    let side_by_side = side_by_side(problem, access, bytes);
    let most = most_units.min(device.max_units_per_cube);
    let room = (floor_power_of_two(most.into()) / side_by_side).max(1);
    let busy = div_ceil(loads, access.loads_in_flight as u64).next_power_of_two();
    // Columns side by side share each plane, of whose lanes some have the same column.
    let plane = u64::from(device.plane_size_min);
    let lanes = plane / side_by_side;
    let of_one_size = device.plane_size_min == device.plane_size_max;
    let in_planes = device.plane_operations && of_one_size && lanes >= 2;
    let least = if in_planes { 2 * lanes } else { 2 };
    let units = floor_power_of_two(wanted.max(least)).min(busy).min(room);
    let combine = match in_planes && units > lanes {
        true => Combine::Plane { lanes: narrow_power_of_two(lanes) },
        false => Combine::Shared,
    };
    let (units, outputs) = (narrow_power_of_two(units), narrow_power_of_two(side_by_side));
    ScanPlan::new(problem, access, units, outputs, combine)
}

/// Has fewer units until what they tell each other fits shared memory.
fn fit_shared(
    plan: &mut ScanPlan,
    problem: &ScanProblem,
    device: &Device,
) -> Result<(), ScanReason> {
    while let Err(limit) = plan.obeys_rules(problem, device) {
        if !matches!(limit, Illegal::SharedMemory { .. }) || plan.units_per_output <= 2 {
            return Err(ScanReason::PassesLimits { limit });
        }
        plan.units_per_output /= 2;
        if let Combine::Plane { lanes } = plan.combine
            && plan.units_per_output <= lanes
        {
            plan.combine = Combine::Shared;
        }
        if plan.looks_back() {
            plan.cubes_per_output = each_chunk_a_cube(plan, problem);
        }
    }
    Ok(())
}

/// Several cubes for each row, or for neighbouring vectors of columns.
fn split(problem: &ScanProblem, access: Access, device: &Device) -> Result<ScanPlan, ScanReason> {
    let tuning = device.tuning.scan;
    if problem.problem().numerics().is_batch_invariant() {
        return Err(ScanReason::DependsOnBatch);
    }
    let plan = by_cubes(problem, access, device)?;
    let cubes = plan.cubes(problem).max(1);
    let resident = (tuning.split_units_per_multiprocessor / plan.units_per_cube().max(1)).max(1);
    let resident = match access.direction {
        Direction::Along => resident,
        // Cubes of a split merge for each of their columns, and one for most multiprocessors is
        // better: sums of bf16 8192 × 8192 along axis 0 took 130 us on one H200 in 128 cubes, and
        // 174 in a split.
        Direction::Across => 1,
    };
    let wanted = u64::from(device.multiprocessors) * u64::from(resident);
    if cubes.saturating_mul(2) > wanted {
        return Err(ScanReason::OutputsFillDevice { cubes, wanted });
    }
    let (chunks, least) = (plan.chunks(problem), u64::from(tuning.chunks_per_part));
    if chunks < 2 * least {
        return Err(ScanReason::TooShortToSplit { chunks, needed: 2 * least });
    }
    // One launch reads each element once.
    if let Some(looking_back) = looking_back(problem, access, device) {
        return Ok(looking_back);
    }
    // Equal parts, of which none is empty.
    let parts = (wanted / cubes).min(chunks / least).max(2);
    let each = div_ceil(chunks, parts);
    let parts = u32::try_from(div_ceil(chunks, each)).unwrap_or(u32::MAX);
    Ok(ScanPlan { cubes_per_output: parts, ..plan })
}

/// Cubes that look back, if they may: each has a chunk, which it keeps while it waits. The more all
/// cubes together keep, the more is on its way meanwhile, so units keep as many elements as their
/// registers hold, and others in shared memory.
fn looking_back(problem: &ScanProblem, access: Access, device: &Device) -> Option<ScanPlan> {
    let tuning = device.tuning.scan;
    let loads = row_loads(access, problem);
    let plan = match access.direction {
        Direction::Along => {
            let usual = match is_narrow(problem) {
                true => tuning.look_back_narrow_loads,
                false => tuning.look_back_loads,
            };
            let access = with_loads(access, loads, most_loads(problem, usual));
            let planes = u64::from(device.plane_size_min);
            let most = tuning.look_back_units.min(device.max_units_per_cube);
            let units = div_ceil(loads, access.loads_in_flight as u64).next_power_of_two();
            let units = narrow_power_of_two(units.min(most.into()));
            let in_planes = device.plane_operations && u64::from(units) > planes;
            let combine = match in_planes {
                true => Combine::Plane { lanes: device.plane_size_min },
                false => Combine::Shared,
            };
            ScanPlan::new(problem, access, units, 1, combine)
        }
        Direction::Across => {
            let held = (tuning.look_back_elements_across as usize / access.vector.max(1)).max(1);
            let most = most_loads(problem, u32::try_from(held).unwrap_or(u32::MAX));
            let access = with_loads(access, loads, most);
            let bytes = device.tuning.line_bytes;
            across(problem, access, bytes, u64::MAX, tuning.look_back_units_across, device)
        }
    };
    let mut plan = ScanPlan {
        cubes_per_output: each_chunk_a_cube(&plan, problem),
        parts: ScanParts::LookBack,
        ..plan
    };
    keep_in_shared(&mut plan, problem, device);
    // A few large chunks would leave multiprocessors idle.
    let wanted = u64::from(device.multiprocessors) * u64::from(tuning.look_back_cubes);
    while plan.access.loads_in_flight > 1 && plan.cubes(problem) < wanted {
        plan.access = plan.access.with_loads_in_flight(plan.access.loads_in_flight / 2);
        plan.cubes_per_output = each_chunk_a_cube(&plan, problem);
    }
    fit_shared(&mut plan, problem, device).ok()?;
    plan.looks_back().then_some(plan)
}

/// Has the units of cubes that look back keep loads in shared memory, where there are so many
/// chunks that multiprocessors have several cubes all the time, and where the cubes of a
/// multiprocessor then keep more together. Shorter loads than the device's would take more rounds.
fn keep_in_shared(plan: &mut ScanPlan, problem: &ScanProblem, device: &Device) {
    let tuning = device.tuning.scan;
    // Each turn has its elements converted again, and the ends of its rows taken one by one again,
    // which takes longer than waiting does.
    let load_bytes = plan.access.vector * problem.problem().input().bytes();
    if is_narrow(problem)
        || has_long_functions(problem)
        || plan.access.peeled
        || load_bytes != device.load_bytes
    {
        return;
    }
    let in_flight =
        (tuning.look_back_loads_beside_shared as usize).min(plan.access.loads_in_flight);
    let kept = tuning.look_back_shared_bytes as usize / load_bytes.max(1);
    let access = plan.access.with_loads_in_flight(in_flight);
    let mut larger = ScanPlan { access, in_shared: kept / in_flight * in_flight, ..*plan };
    larger.cubes_per_output = each_chunk_a_cube(&larger, problem);
    let wanted = u64::from(device.multiprocessors) * u64::from(tuning.look_back_shared_cubes);
    let kept_by = |plan: &ScanPlan| {
        let resident = plan.resident_cubes(problem, device);
        u64::from(resident).saturating_mul(plan.loads_per_chunk())
    };
    if larger.cubes(problem) >= wanted
        && kept_by(&larger) > kept_by(plan)
        && larger.obeys_rules(problem, device).is_ok()
    {
        *plan = larger;
    }
}

/// Cubes for an output of which each has one chunk.
fn each_chunk_a_cube(plan: &ScanPlan, problem: &ScanProblem) -> u32 {
    u32::try_from(plan.chunks(problem)).unwrap_or(u32::MAX)
}

/// Most loads of a unit, of as many for usual operators: half of them where accumulators have many
/// fields, or elements take long. Their kernels have longer code for each load.
fn most_loads(problem: &ScanProblem, usual: u32) -> u32 {
    if has_long_functions(problem) { (usual / 2).max(1) } else { usual }
}

/// The access with as many loads in flight as there are, up to `most`.
fn with_loads(access: Access, loads: u64, most: u32) -> Access {
    let loads = loads.clamp(1, u64::from(most.max(1))).next_power_of_two();
    access.with_loads_in_flight((loads as usize).min(Access::MOST_LOADS_IN_FLIGHT))
}

/// The largest power of two that is at most `value`, and 1 for 0.
fn narrow_power_of_two(value: u64) -> u32 {
    u32::try_from(floor_power_of_two(value)).unwrap_or(1 << 31)
}
