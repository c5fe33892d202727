//! The cube schedule: units of one cube share an output, or a block of adjacent output tiles.
//!
//! It serves long reductions whose outputs are enough to fill the device. The split schedule uses
//! the same blocks.

use super::{
    cost::sector_share,
    sizing::{
        FEW_FIELDS, floor_power_of_two, most_units_of_run, row, short_run, takes_more_loads,
        units_limit,
    },
};
use crate::{
    device::Device,
    numbers::from_percent,
    plan::{Access, Combine, Schedule},
    problem::{Direction, Problem},
    refusal::Reason,
};

/// The units of one cube.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) units_per_output: u32,
    pub(super) outputs_per_cube: u32,
    pub(super) combine: Combine,
}

impl Block {
    /// Units of the cube.
    pub(super) fn units(&self) -> u32 {
        self.units_per_output * self.outputs_per_cube
    }
}

/// Whether several cubes share an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Each output has one cube.
    No,
    /// Several cubes share an output.
    Several,
    /// Several large cubes share an output, so that there are fewer of them.
    SeveralLarge,
    /// Several cubes share an output, whose tiles are a wide segment of each row.
    SeveralWide,
}

/// Sizes the schedule.
///
/// # Errors
///
/// An output has fewer than two loads.
pub(super) fn size(problem: &Problem, device: &Device, access: Access) -> Result<Schedule, Reason> {
    let loads = access.loads_per_output(problem);
    if loads < 2 {
        return Err(Reason::NothingToShare { loads });
    }
    let Block { units_per_output, outputs_per_cube, combine } =
        block(problem, device, access, Sharing::No);
    Ok(Schedule::Cube { units_per_output, outputs_per_cube, combine })
}

/// Sizes the units of a cube.
pub(super) fn block(problem: &Problem, device: &Device, access: Access, sharing: Sharing) -> Block {
    let cooperating = row(problem, device).accumulator.cooperating_units_per_cube;
    let large = cooperating.saturating_mul(device.tuning.large_cube_factor);
    let wanted = match sharing {
        Sharing::SeveralLarge if access.direction == Direction::Along => {
            large.max(device.tuning.split_units_per_cube_along)
        }
        Sharing::SeveralLarge => large,
        Sharing::Several if access.direction == Direction::Along => {
            cooperating.max(device.tuning.split_units_per_cube_along)
        }
        // With twice the loads in flight (`Access::fitted`). norm_l2 of bf16 8192 × 32,000 along
        // axis 1 took 122.3 us on one H200 in cubes of 256 units with 4 loads, 131.8 with 8, and
        // 118.0 in cubes of 128 with 8; of f32 1024 × 65,536, 62.9, 62.8 and 62.1.
        Sharing::No if access.direction == Direction::Along && takes_more_loads(problem) => {
            cooperating / 2
        }
        // Rows start off a vector's boundary. Wider cubes share fewer memory sectors. Where
        // accumulators have several fields, fewer of them would reside: argmax of f32 513 × 513 ×
        // 151 along axis 1 took 59.6 us on one H200 in cubes of 512 units, and 45.2 in cubes of
        // 256.
        Sharing::No
            if access.direction == Direction::Across
                && access.vector == 1
                && problem.operator().fields == 1 =>
        {
            large
        }
        _ => cooperating,
    };
    let units = units_limit(problem, device, access, wanted);
    match access.direction {
        Direction::Along => block_along(problem, device, access, sharing, units),
        Direction::Across => block_across(problem, device, access, sharing, units),
    }
}

/// Along the reduction, units have several loads each.
fn block_along(
    problem: &Problem,
    device: &Device,
    access: Access,
    sharing: Sharing,
    units: u32,
) -> Block {
    if let Some(run) = short_run(problem, device).filter(|_| !access.peeled) {
        return block_of_runs(problem, device, access, sharing, units, run);
    }
    let loads = access.loads_per_output(problem).max(1);
    let each = row(problem, device).accumulator.loads_per_lane.max(access.loads_in_flight as u64);
    let enough = floor_power_of_two(loads.div_ceil(each).min(u64::from(units))) as u32;
    let lanes = device.plane_size_min.max(1);
    let by_plane = device.plane_operations && loads >= u64::from(lanes);
    let least = if by_plane { lanes } else { 2 };
    // Each unit's accumulator is merged with the others of its row. Where accumulators have many
    // fields and rows are enough to fill the device, a row has few. On one H200, var of bf16 8192 ×
    // 32,000 along axis 1 took 144 us in cubes of 128 units and 135 in planes, that of f32 4096 ×
    // 50,257 took 221 in cubes of 256 and 201 in planes, and nanvar of 603 rows of 36,150 f64 took
    // 63 in cubes of 256, and 56 in cubes of 64.
    let is_long = enough > 2 * least && problem.operator().fields > FEW_FIELDS;
    let enough = match sharing == Sharing::No && is_long {
        true => enough.min(units_to_fill(problem, device, access) as u32),
        false => enough,
    };
    let is_plain = problem.operator().fields == 1 && problem.reduced().len() == 1;
    let fills = access.output_tiles(problem) >= u64::from(device.multiprocessors);
    let alone = is_plain && fills && sharing == Sharing::No;
    let enough = match alone && leaves_fewer_idle(loads, enough, access.loads_in_flight) {
        true => enough / 2,
        false => enough,
    };
    let units_per_output = enough.clamp(least.min(units), units);
    let combine = match by_plane && units_per_output >= lanes {
        true => Combine::Plane { lanes },
        false => Combine::Shared,
    };
    // Several outputs share a cube that would be small.
    let together = device.tuning.small_team_units_per_cube.min(units);
    let outputs_per_cube = (together / units_per_output).max(1);
    Block { units_per_output, outputs_per_cube, combine }
}

/// Along short runs of so many bytes, few units share an output, so that a plane has the runs of
/// several neighbouring ones, which follow each other.
///
/// On one H200, a sum of f32 100,000 × 64 × 8 over axes 0 and 2 took 54 us in 66 cubes of 16 units
/// for each of 32 outputs, 55 in 132, and 66 in 66 cubes of 32 units for each.
fn block_of_runs(
    problem: &Problem,
    device: &Device,
    access: Access,
    sharing: Sharing,
    units: u32,
    run: usize,
) -> Block {
    let tiles = access.output_tiles(problem).next_power_of_two();
    let plane = floor_power_of_two(u64::from(device.plane_size_min));
    let outputs = plane.min(tiles).min(u64::from(units)).max(1) as u32;
    let loads = floor_power_of_two(access.loads_per_output(problem).max(1));
    let most = u64::from(units / outputs).min(loads).min(most_units_of_run(run, device)).max(1);
    let units_per_output = match sharing {
        Sharing::No => units_to_fill(problem, device, access).clamp(1, most).max(2.min(most)),
        Sharing::Several | Sharing::SeveralLarge | Sharing::SeveralWide => most,
    } as u32;
    let together = device.tuning.across_units_per_cube.min(units) / 2;
    let outputs_per_cube = outputs.max(together / units_per_output.max(1));
    Block { units_per_output, outputs_per_cube, combine: Combine::Shared }
}

/// Whether half of so many units have clearly fewer loads in their rounds that do not exist. A sum
/// of f32 10,000 × 10,000 along axis 1 took 92.3 us on one H200 in cubes of 512 units, whose two
/// rounds have 4096 loads for 2500, and 88.5 in cubes of 256, whose three have 3072. Of rows of
/// 8400, it took 69.2 and 61.9 us, of 4400 in cubes of 256 and 128 units 64.7 and 62.7.
fn leaves_fewer_idle(loads: u64, units: u32, loads_in_flight: usize) -> bool {
    let in_rounds = |units: u32| {
        let round = (u64::from(units) * loads_in_flight as u64).max(1);
        loads.div_ceil(round).saturating_mul(round)
    };
    // More than a tenth fewer.
    units > 1 && in_rounds(units).saturating_mul(10) > in_rounds(units / 2).saturating_mul(11)
}

/// Across outputs, adjacent units read whole memory segments.
fn block_across(
    problem: &Problem,
    device: &Device,
    access: Access,
    sharing: Sharing,
    units: u32,
) -> Block {
    let tuning = &device.tuning;
    let loads = access.loads_per_output(problem).max(1);
    let units = u64::from(units);
    let load_bytes = access.vector.saturating_mul(problem.input().bytes()).max(1);
    if access.realigned {
        return block_realigned(problem, device, access, sharing, units);
    }
    let segment_bytes = match access.vector {
        1 => tuning.across_segment_bytes_unaligned,
        _ => tuning.across_segment_bytes,
    };
    // Rows of several reduced dimensions lie in many places, and cubes read more of each. On one
    // H200, a sum of f32 16 × 32 × 64 × 32 × 64 over axes 1 and 3 took 63.9 to 65.5 us in cubes of 8
    // units for each of 32 tiles, and 62.4 to 62.7 with 16 for each of 16; of 64 × 64 × 64 × 128 over
    // axes 0 and 2 34.0 with 64 for each of 8, and 32.8 with 32 for each of 16.
    let wide = sharing == Sharing::No && access.vector > 1 && lies_apart(problem);
    let times = if wide { 2 } else { 1 };
    let segment = times * (segment_bytes / load_bytes).max(1) as u64;
    let inner = access.loads_per_inner(problem).next_power_of_two();
    // An inner dimension a little longer than a segment is one row of units too.
    let one_row = tuning.across_segments_per_row.saturating_mul(segment);
    let one_row = inner <= segment || (access.vector > 1 && inner <= one_row);
    let adjacent = (if one_row { inner } else { segment }).min(units);
    let adjacent = match sharing {
        Sharing::SeveralWide => {
            let of_fields = if problem.operator().fields == 1 { 1 } else { 2 };
            (adjacent * WIDE_SEGMENTS / of_fields).min(inner).min(units)
        }
        _ if access.is_doubled(problem, device) => (2 * adjacent).min(inner).min(units),
        _ => adjacent,
    };
    let (per_output, outputs) = if sharing != Sharing::No {
        (units / adjacent, adjacent)
    } else {
        let fill = units_to_fill(problem, device, access);
        let most = units / adjacent;
        let least = tuning.across_least_units_per_output.saturating_mul(times).min(most);
        let per_output = fill.clamp(least, most);
        let together = match access.vector {
            1 => units,
            _ => u64::from(tuning.across_units_per_cube).min(units),
        };
        (per_output, (together / per_output).max(adjacent))
    };
    Block {
        units_per_output: per_output.min(floor_power_of_two(loads)).max(1) as u32,
        outputs_per_cube: outputs as u32,
        combine: Combine::Shared,
    }
}

/// Whether there are gaps between the rows of neighbouring reduced dimensions. The slices that
/// batch-invariant plans are made for have none, whatever lies between the slices of a batch.
fn lies_apart(problem: &Problem) -> bool {
    let joins = |outer: usize, inner: usize, extent: usize| outer == inner.saturating_mul(extent);
    let mut neighbours = problem.reduced().windows(2);
    neighbours.any(|dims| !joins(dims[0].stride, dims[1].stride, dims[1].extent))
}

/// How many times as wide as others the segments of [`Sharing::SeveralWide`] are. Those of several
/// fields are half as wide.
const WIDE_SEGMENTS: u64 = 8;

/// Units per output tile that fill part of the device in one wave.
fn units_to_fill(problem: &Problem, device: &Device, access: Access) -> u64 {
    let resident = device.units_per_multiprocessor / device.tuning.across_resident_divisor;
    let wave = u64::from(resident) * u64::from(device.multiprocessors);
    floor_power_of_two(wave / access.output_tiles(problem).max(1))
}

/// Across outputs with rows realigned, as many units read one row as share the fewest memory
/// sectors with others.
fn block_realigned(
    problem: &Problem,
    device: &Device,
    access: Access,
    sharing: Sharing,
    units: u64,
) -> Block {
    let tuning = &device.tuning;
    // A unit's rows lie alike if as many units as a vector has elements share them.
    let least = access.vector.max(1) as u64;
    let widest = (units / least).max(2) as u32;
    let whole_row = access.loads_per_inner(problem).next_power_of_two().min(u64::from(widest));
    let idle_exponent = from_percent(tuning.realigned_idle_exponent_percent);
    let score = |tiles: u32| {
        let blocks = access.realigned_blocks(problem, tiles);
        let idle = blocks.per_row as f64 * f64::from(tiles) * access.vector as f64
            / access.inner_len(problem) as f64;
        sector_share(problem, device, access, tiles, 2) / idle.powf(idle_exponent)
    };
    // Of those that are almost as good, one that reads whole rows needs no second block for their
    // last columns, and the narrowest makes the most cubes.
    let widths = (1..=whole_row.max(2).ilog2()).map(|log| 1u32 << log);
    let best = widths.clone().map(score).fold(0.0, f64::max);
    let good =
        widths.filter(|&tiles| score(tiles) >= from_percent(tuning.realigned_width_percent) * best);
    let narrowest = good.min_by_key(|&tiles| {
        let whole_rows = access.realigned_blocks(problem, tiles).per_row == 1;
        (!whole_rows, tiles)
    });
    let adjacent = u64::from(narrowest.unwrap_or(2));
    let most = (units / adjacent).max(1);
    let per_output = match sharing {
        Sharing::No => {
            let together = u64::from(tuning.across_units_per_cube) / adjacent;
            let least = tuning.across_least_units_per_output.max(least).max(together);
            units_to_fill(problem, device, access).max(least).min(most)
        }
        Sharing::Several | Sharing::SeveralLarge | Sharing::SeveralWide => most,
    };
    let loads = floor_power_of_two(access.loads_per_output(problem).max(1));
    Block {
        units_per_output: per_output.min(loads.max(least)) as u32,
        outputs_per_cube: adjacent as u32,
        combine: Combine::Shared,
    }
}
