//! What the schedules share when they are sized.

use crate::{
    device::Device,
    kind::ScheduleKind,
    numbers::{AccumulatorTuning, Row, Tuning, Weight},
    plan::{Access, check::accumulator_bytes},
    problem::{Direction, ElementCost, OperatorClass, Problem},
};

/// Most fields of an accumulator that merges as fast as a light one, and of which a unit can hold
/// one for each component of a usual load.
pub(crate) const FEW_FIELDS: usize = 3;

/// The row of the device's tuning for the problem's operator.
pub(super) fn row(problem: &Problem, device: &Device) -> Row {
    let operator = problem.operator();
    let transcendental = operator.element_cost.is_transcendental();
    if operator.blockwise && problem.direction() == Direction::Along {
        return Row {
            accumulator: blockwise(operator, problem.input().bytes(), &device.tuning),
            plane_bytes_in_flight: None,
        };
    }
    let weight = Weight::of(operator.accumulator_bytes, problem.input().bytes());
    let row = device.tuning.row(weight, transcendental, operator.blockwise);
    match (problem.second(), problem.direction()) {
        (Some(_), Direction::Along) if !transcendental => pairs(operator, row, &device.tuning),
        (Some(_), Direction::Across) => pairs_across(row, &device.tuning),
        _ => row,
    }
}

/// The numbers for pairs along the reduction, which take few operations beside the bytes that they
/// move. Two sums are as light as one. Others have no more lanes than one sum: cosine similarity of
/// f32 65536 × 1024 took 126 us in whole planes, and 133 in 8 lanes. The weighted variance of 2²⁶
/// took 131 us with its own other numbers, and 141 with those of one sum.
fn pairs(operator: OperatorClass, row: Row, tuning: &Tuning) -> Row {
    let light = tuning.light;
    let accumulator = match operator.fields {
        0..=2 => light,
        _ => AccumulatorTuning { loads_per_lane: light.loads_per_lane, ..row.accumulator },
    };
    Row { accumulator, ..row }
}

/// The numbers for pairs across outputs, whose cubes are those of one sum. On one H200,
/// `sum_and_dot` of f32 8192 × 8192 along axis 0 took 122.5 us with 64 units for each of 8 tiles,
/// and 126.9 to 140.6 with 32; of 262,144 × 256, 123.5 and 129.2. A weighted variance of the former
/// took 128.2 and 132.5, cosine similarity 128.2 and 127.0.
fn pairs_across(row: Row, tuning: &Tuning) -> Row {
    let cooperating_units_per_cube = tuning.light.cooperating_units_per_cube;
    Row { accumulator: AccumulatorTuning { cooperating_units_per_cube, ..row.accumulator }, ..row }
}

/// The numbers for an operator whose units have one accumulator each, because they take blocks.
fn blockwise(operator: OperatorClass, element_bytes: usize, tuning: &Tuning) -> AccumulatorTuning {
    let Tuning { light, blockwise, .. } = *tuning;
    let transcendental = operator.element_cost.is_transcendental();
    if transcendental && element_bytes < size_of::<f32>() {
        let most = tuning.transcendental.blockwise_narrow_elements_in_flight_along;
        AccumulatorTuning { elements_in_flight_along: most, ..blockwise }
    } else if transcendental || operator.fields > FEW_FIELDS {
        blockwise
    } else if operator.positional {
        let elements_in_flight_along = light.elements_in_flight_along;
        AccumulatorTuning { elements_in_flight_along, ..blockwise }
    } else if operator.fields > 1 {
        let cooperating_units_per_cube = blockwise.cooperating_units_per_cube;
        AccumulatorTuning { cooperating_units_per_cube, ..light }
    } else {
        light
    }
}

/// Whether half of the usual units have twice the usual loads in flight in cubes along the
/// reduction: those whose accumulators have as many fields as light ones may, of sums alone.
pub(super) fn takes_more_loads(problem: &Problem) -> bool {
    let operator = problem.operator();
    let is_plain = !operator.positional && operator.element_cost == ElementCost::Plain;
    operator.blockwise && is_plain && operator.fields == FEW_FIELDS && problem.second().is_none()
}

/// Whether blocks of twice the usual loads take more than they save, because fewer cubes reside
/// with their registers: those of narrow elements for accumulators of many fields in whole rows,
/// and across outputs for exponentials. Cubes of a split reside anyway, and have few rounds so.
///
/// Of bf16 8192 × 32,000 along axis 1, means and variances took 130.2 us on one H200 with 8 loads
/// in planes, and 120.4 with 4; variances of 16,384 × 16,384 124.8 and 121.7, of 4096 × 50,256
/// 104.0 and 98.1. logsumexp of bf16 64 × 2048 × 2048 along axis 1 took 149.8 with 16, and 130.1
/// with 8, of 8192 × 16,384 along axis 0 84.6 and 68.4.
pub(super) fn has_costly_blocks(problem: &Problem, kind: ScheduleKind) -> bool {
    let operator = problem.operator();
    let is_narrow = problem.input().bytes() < size_of::<f32>();
    let in_blocks = match problem.direction() {
        Direction::Along => {
            let many_fields = operator.blockwise && operator.fields > FEW_FIELDS;
            many_fields && kind != ScheduleKind::Split
        }
        Direction::Across => operator.element_cost.is_transcendental(),
    };
    is_narrow && in_blocks
}

/// Whether rows begin inside lines of the cache, so that segments of neighbouring rows do.
pub(super) fn rows_share_lines(problem: &Problem, device: &Device) -> bool {
    let kept = problem.kept().iter().map(|dim| dim.stride);
    let strides = kept.chain(problem.reduced().iter().map(|dim| dim.stride));
    let (bytes, line) = (problem.input().bytes(), device.tuning.line_bytes);
    let whole = |stride: usize| stride.saturating_mul(bytes).is_multiple_of(line);
    !strides.filter(|&stride| stride > 1).all(whole)
}

/// Bytes of the runs of a reduction along short ones: its innermost dimension is short and not the
/// only one, and the runs of neighbouring outputs follow each other.
///
/// The lanes that share an output read its runs, of which each is a part of a line. A plane reads
/// whole lines only if it has the runs of several neighbouring outputs.
pub(super) fn short_run(problem: &Problem, device: &Device) -> Option<usize> {
    let [.., inner] = problem.reduced() else { return None };
    let bytes = inner.extent.saturating_mul(problem.input().bytes());
    let follow = problem.kept().last().is_some_and(|dim| {
        dim.stride == inner.extent && dim.extent.saturating_mul(bytes) >= device.tuning.line_bytes
    });
    let is_short = problem.direction() == Direction::Along
        && inner.stride == 1
        && problem.reduced().len() > 1
        && bytes < device.tuning.cached_inner_bytes
        && follow;
    is_short.then_some(bytes)
}

/// Most units that share an output along such runs: those of a plane read two sectors of
/// neighbouring outputs at a time.
pub(super) fn most_units_of_run(run: usize, device: &Device) -> u64 {
    let plane = u64::from(device.plane_size_min);
    floor_power_of_two(plane.saturating_mul(run as u64) / (2 * device.tuning.sector_bytes as u64))
}

/// The largest power of two that is at most `value`, and 1 for 0.
pub(crate) fn floor_power_of_two(value: u64) -> u64 {
    1 << value.max(1).ilog2()
}

/// The largest power of two up to `wanted` that the device allows as the units of a cube, if all of
/// them combine in shared memory.
pub(super) fn units_limit(problem: &Problem, device: &Device, access: Access, wanted: u32) -> u32 {
    let by_memory = device.shared_memory_bytes / accumulator_bytes(problem, access).max(1);
    let limit = (by_memory as u64).min(u64::from(wanted)).min(u64::from(device.max_units_per_cube));
    floor_power_of_two(limit) as u32
}

/// Units of a cube in which each unit or plane works for itself.
pub(super) fn independent_units(problem: &Problem, device: &Device) -> u32 {
    let usual = row(problem, device).accumulator.independent_units_per_cube;
    let has_many = problem.operator().fields > FEW_FIELDS;
    let wanted = match problem.direction() == Direction::Along && has_many {
        true => usual.max(device.tuning.many_fields_units_per_cube_along),
        false => usual,
    };
    floor_power_of_two(u64::from(device.max_units_per_cube.min(wanted))) as u32
}

/// Cubes that give every multiprocessor `each` of them.
pub(crate) fn cubes_wanted(device: &Device, each: u32) -> u64 {
    u64::from(device.multiprocessors) * u64::from(each)
}

/// Waves of the cubes of very long rows. With 4 waves and 4 loads in flight, and with 8 of both
/// (`Access::fitted`), sums of 2³⁰ i32 took 1056 and 963 us on one H200, and 983 and 960 on
/// another; of f32 975 and 968, and 960 on both; of 2²⁸ f64 507 and 503, 495 and 502, and 490 and
/// 501.
pub(super) fn long_waves(problem: &Problem) -> u64 {
    if is_wide(problem) { LONG_WAVES / 2 } else { LONG_WAVES }
}

/// Whether so many cubes for each output are those of very long rows, which have more loads in
/// flight.
pub(super) fn is_long(problem: &Problem, device: &Device, cubes: u32) -> bool {
    let residing = cubes_wanted(device, device.tuning.split_cubes_per_multiprocessor);
    // Of several outputs, the cubes of each are rounded down.
    let all = (problem.outputs() as u64).saturating_mul(u64::from(cubes) + 1);
    !is_wide(problem) && all >= LONG_WAVES * residing
}

const LONG_WAVES: u64 = 8;

fn is_wide(problem: &Problem) -> bool {
    problem.input().bytes() > size_of::<f32>()
}
