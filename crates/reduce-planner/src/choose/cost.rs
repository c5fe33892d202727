//! What a plan should take: a roofline with the parallelism that the plan leaves unused.
//!
//! By Little's law, loads in flight sustain a bandwidth of their bytes over the latency. The
//! device's own bandwidth caps it. Launches, starting cubes and combining come on top.

use super::access::widest_vector;
use crate::{
    Access, Combine, Device, Direction, Estimate, Merge, Plan, Problem, Schedule, tuning::share,
};

impl Plan {
    /// What the plan should take for a problem on a device, term by term.
    #[must_use]
    pub fn estimate(&self, problem: &Problem, device: &Device) -> Estimate {
        let (access, schedule) = (self.access, self.schedule);
        let tuning = &device.tuning;
        let tiles = self.output_tiles(problem).max(1) as f64;
        let loads_per_output = access.loads_per_output(problem).max(1) as f64;
        let outputs_in_flight = access.outputs_in_flight.max(1) as f64;
        let cubes_per_output = f64::from(schedule.cubes_per_output());
        let units_per_output = f64::from(schedule.units_per_output().max(1)) * cubes_per_output;
        let multiprocessors = f64::from(device.multiprocessors.max(1));
        let resident = f64::from(device.units_per_multiprocessor.max(1)) * multiprocessors;
        let latency_ns = device.latency_ns.max(1) as f64;

        // Loads: the bytes that all resident units have in flight, over the latency.
        let units = (tiles / outputs_in_flight * units_per_output).min(resident);
        let in_flight = (loads_per_output / units_per_output).min(access.loads_in_flight as f64);
        let load_bytes = access.vector as f64 * problem.input().bytes() as f64;
        let sustained = units * (in_flight * outputs_in_flight) * load_bytes / latency_ns;
        let loads_ns = tiles * loads_per_output * load_bytes / sustained;

        // Transfer: each distinct byte once. Broadcast elements are loaded often and moved once.
        // One multiprocessor draws more than its share while others idle, but cubes do not divide
        // evenly.
        let outputs_per_cube = outputs_in_flight * f64::from(schedule.outputs_per_cube());
        let cubes = (tiles / outputs_per_cube).ceil() * cubes_per_output;
        let enough_cubes = f64::from(tuning.cubes_for_bandwidth) * multiprocessors;
        let occupied = (cubes / enough_cubes).min(1.0);
        let bandwidth = device.bandwidth.max(1) as f64 * 1e-9 * occupied;
        let transfer_ns = problem.bytes() as f64 / bandwidth;

        let cube_ns = match access.realigned {
            true => tuning.realigned_cube_ns,
            false => tuning.cube_ns,
        };
        let slots = (resident / f64::from(schedule.units_per_cube())).max(1.0);
        Estimate {
            launch_ns: f64::from(schedule.launches()) * device.launch_ns as f64,
            loads_ns,
            transfer_ns,
            locality: locality(problem, device, access, schedule),
            start_ns: cubes * f64::from(cube_ns) / slots,
            latency_ns,
            combine_ns: combine_ns(device, problem, schedule, cubes / slots),
        }
    }
}

/// Combining within a cube through shared memory, and publishing partials between cubes. A slot on
/// a multiprocessor takes `cubes_per_slot` cubes, one after the other.
fn combine_ns(device: &Device, problem: &Problem, schedule: Schedule, cubes_per_slot: f64) -> f64 {
    let tuning = &device.tuning;
    let units = schedule.units_per_output();
    let step_ns = f64::from(tuning.shared_step_ns);
    let shared_ns = match schedule.combine() {
        // All units take part in most steps, and no loads are in flight meanwhile. Where planes
        // combine first, few units take part in few steps, beside the loads of other cubes.
        Some(Combine::Shared) => {
            let steps = f64::from(units.max(1).ilog2());
            steps * step_ns * problem.operator().fields as f64 * cubes_per_slot.max(1.0)
        }
        Some(Combine::Plane { lanes }) => {
            f64::from((units / lanes.max(1)).max(1).ilog2()) * step_ns
        }
        None => 0.0,
    };
    let publishing_ns = match schedule {
        Schedule::Split { merge: Merge::LastCube, .. } => f64::from(tuning.publish_ns),
        _ => 0.0,
    };
    shared_ns + publishing_ns
}

/// The share of the memory's rate that the access pattern leaves.
fn locality(problem: &Problem, device: &Device, access: Access, schedule: Schedule) -> f64 {
    match access.direction {
        Direction::Along => locality_along(problem, device, access, schedule),
        Direction::Across => locality_across(problem, device, access, schedule),
    }
}

/// The units of one output read next to each other.
fn locality_along(problem: &Problem, device: &Device, access: Access, schedule: Schedule) -> f64 {
    let tuning = &device.tuning;
    let element = problem.input().bytes();
    let inner_len = access.inner_len(problem);
    let inner_bytes = inner_len.saturating_mul(element);
    if inner_bytes <= tuning.cached_inner_bytes {
        return 1.0;
    }
    let units = schedule.units_per_output();
    if matches!(schedule, Schedule::Cube { .. }) {
        let plane = device.plane_size_min;
        if units <= plane {
            return share(tuning.one_plane_cube_percent);
        } else if units <= plane.saturating_mul(2) {
            return share(tuning.two_plane_cube_percent);
        }
    }
    // If the team's loads in flight cover enough of the row, neighbouring teams' reads are
    // effectively contiguous.
    let adjacent = (units as usize).saturating_mul(access.vector);
    let in_flight = adjacent.saturating_mul(access.loads_in_flight);
    if units > 1 && in_flight.saturating_mul(tuning.contiguous_row_divisor) >= inner_len {
        return 1.0;
    }
    if units == 1 && inner_bytes <= tuning.lone_unit_inner_bytes {
        return share(tuning.lone_unit_percent);
    }
    tuning.efficiency_of_segment(adjacent.saturating_mul(element).min(inner_bytes))
}

/// Units of adjacent output tiles read next to each other.
fn locality_across(problem: &Problem, device: &Device, access: Access, schedule: Schedule) -> f64 {
    let element = problem.input().bytes();
    let inner_len = access.inner_len(problem);
    let tiles = match schedule {
        Schedule::Plane { lanes_per_output, .. } => device.plane_size_min / lanes_per_output.max(1),
        _ => schedule.outputs_per_cube(),
    };
    let adjacent = (tiles as usize).saturating_mul(access.vector);
    let inner_bytes = inner_len.saturating_mul(element);
    let mut segment = adjacent.saturating_mul(element).min(inner_bytes);
    if reads_on(problem, device, tiles, adjacent / inner_len.max(1)) {
        segment = segment.saturating_mul(schedule.units_per_output() as usize);
    }
    device.tuning.efficiency_of_segment(segment)
        * sector_share(problem, device, access, tiles, schedule.units_per_output())
}

/// Whether the units of an output read on in the next rows: rows follow each other without a gap,
/// and the `tiles` of adjacent outputs cover one of them, or several within a plane.
fn reads_on(problem: &Problem, device: &Device, tiles: u32, whole_rows: usize) -> bool {
    let row = problem.kept().last().map_or(1, |dim| dim.extent);
    let dense = problem.reduced().last().is_some_and(|dim| dim.stride == row);
    dense && (whole_rows == 1 || whole_rows > 1 && tiles <= device.plane_size_min)
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
    if !access.realigned && access.vector == widest_vector(problem, device) {
        return 1.0;
    }
    let inner_len = access.inner_len(problem).max(1);
    let tiles = u64::from(tiles_per_cube.max(1));
    let (outputs, whole_rows) = match access.realigned {
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
    let of_plane = if read_on {
        // A plane reads on in the next rows.
        let of_plane = bytes * plane / tiles as f64;
        if of_plane % sector as f64 == 0.0 && starts_at_sectors(problem, sector) {
            return 1.0;
        }
        of_plane
    } else {
        let units = tiles.min(access.loads_per_inner(problem));
        bytes / (units as f64 / plane).max(1.0)
    };
    of_plane / (of_plane + sector as f64)
}
