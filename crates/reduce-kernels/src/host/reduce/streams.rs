//! Whether the cache of a device should give up first what a reduction reads (`kernels/cache.rs`).

use reduce_planner::{Device, Direction, ElementType, Plan, Problem, Schedule};

/// Whether the cache should give up first what a plan reads. None if its kernels say nothing of it.
///
/// That they do follows from the plan and, along several dimensions, from the innermost. So kernels
/// are the same whether a tensor is large or small.
pub(super) fn streams(plan: &Plan, problem: &Problem, device: &Device) -> Option<bool> {
    reads_lines(plan, problem, device).then(|| is_streamed(problem, device))
}

/// Bytes of a line of the L2 cache of NVIDIA's GPUs.
const LINE_BYTES: usize = 128;

/// Whether units read whole lines together: those that share an output along the reduction, those
/// of neighbouring tiles across outputs.
///
/// If several loads share a line that the cache gives up first, it may be gone before the last of
/// them: a sum of f32 rows of 8, in one unit each, took 148 us in place of 139 on one H200, and a
/// variance of 4096 rows of 50,257, which planes peel, 214 in place of 190. A sum of 100 × 1000 ×
/// 1000 over axis 0, whose units have a tile each and all of its rows, took 97.3 us in place of
/// 95.8.
///
/// Of several dimensions, short runs gain: sums of 31 × 257 × 63 × 129 and 8 × 128 × 64 × 512 over
/// axes 1 and 3 took 68.1 and 32.9 us in place of 71.6 and 33.4. One of 64 × 256 × 56 × 56 over
/// axes 0, 2 and 3, whose runs have 12.5 KB, took 52.9 in place of 49.1, so long runs are read as
/// usual. Across outputs, three sums of 16 × 32 × 64 × 32 × 64 over two axes took 0.1 % longer to
/// 1.5 % less.
fn reads_lines(plan: &Plan, problem: &Problem, device: &Device) -> bool {
    let along = plan.access.direction == Direction::Along;
    let units = match along {
        true => plan.schedule.units_per_output(),
        false => plan.schedule.outputs_per_cube(),
    };
    let bytes = units as usize * plan.access.vector * problem.input().bytes();
    let alone = matches!(plan.schedule, Schedule::Unit { .. });
    let peeled_by_planes = along && plan.access.peeled && units <= device.plane_size_max;
    bytes >= LINE_BYTES && !alone && !peeled_by_planes && (!along || has_short_runs(problem))
}

/// Whether a reduction along several dimensions has runs of a line to 2 KiB, or has one dimension.
/// Shorter runs were not timed.
fn has_short_runs(problem: &Problem) -> bool {
    match problem.reduced() {
        [_, .., inner] => {
            let bytes = inner.extent.saturating_mul(problem.input().bytes());
            inner.stride == 1 && (LINE_BYTES..=MOST_RUN_BYTES).contains(&bytes)
        }
        _ => true,
    }
}

/// The longest runs of several dimensions that gained.
const MOST_RUN_BYTES: usize = 2048;

/// Whether the cache should give up first what a reduction reads, because it does not hold it until
/// a later kernel could find it there, and the reduction reads each element once.
fn is_streamed(problem: &Problem, device: &Device) -> bool {
    let elements = problem.outputs().saturating_mul(problem.reduction_len());
    let inputs = [(problem.input(), problem.input_span())];
    let second = problem.second().map(|second| (second.element(), second.span()));
    let inputs = inputs.into_iter().chain(second);
    // A span of fewer elements holds some that are read several times.
    let once = inputs.clone().all(|(_, span)| span >= elements);
    let bytes = |(element, span): (ElementType, usize)| {
        span.min(elements).saturating_mul(element.bytes()) as u64
    };
    let read = inputs.map(bytes).fold(0, u64::saturating_add);
    let least = STREAMED_CACHES.saturating_mul(device.cache_bytes);
    once && least > 0 && read >= least
}

/// Inputs of so many times the cache's bytes leave nothing there for a later kernel. In between, a
/// tensor of 24 MB that was read again and again on an H200, with 8 MB of others between, took 11.4
/// us as one to give up first, and 8.5 as usual.
///
/// CubeCL 0.11 does not tell the cache's size. A device through CUDA is taken to have that of the
/// H200 ([`Device::h200`]), unless a caller describes it.
const STREAMED_CACHES: u64 = 2;

#[cfg(test)]
mod tests {
    use reduce_planner::{
        Access, InputSpec, OperatorClass, OutputSpec, ScheduleKind, SecondSpec, choose,
    };

    use super::*;

    const F32: ElementType = ElementType::F32;

    fn row_major(shape: &[usize]) -> Vec<usize> {
        (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect()
    }

    fn problem(shape: &[usize], axes: &[usize], second: Option<&[usize]>) -> Problem {
        let strides = row_major(shape);
        let input = InputSpec { element: F32, shape, strides: &strides, alignment: 16 };
        let second = second.map(|strides| SecondSpec { element: F32, strides, alignment: 16 });
        let output = OutputSpec { elements: &[F32], strides: None };
        let sum = OperatorClass::new("sum", 4).blockwise();
        Problem::with_inputs(sum, &input, second.as_ref(), None, Some(axes), &output).unwrap()
    }

    fn of(shape: &[usize], axes: &[usize], device: &Device) -> Option<bool> {
        let problem = problem(shape, axes, None);
        streams(&choose(&problem, device).unwrap().plan, &problem, device)
    }

    /// Only tensors that the cache cannot hold are given up first, and a device whose cache is not
    /// known holds all. Kernels are the same for both.
    #[test]
    fn large_tensors_are_given_up_first() {
        let mut device = Device::h200();
        assert_eq!(of(&[8192, 8192], &[1], &device), Some(true));
        assert_eq!(of(&[1 << 28], &[0], &device), Some(true));
        assert_eq!(of(&[8192, 8192], &[0], &device), Some(true));
        assert_eq!(of(&[10_000, 10_000], &[0], &device), Some(true));
        assert_eq!(of(&[1024, 8192], &[1], &device), Some(false));
        device.cache_bytes = 0;
        assert_eq!(of(&[8192, 8192], &[1], &device), Some(false));
    }

    /// Lines that several loads share stay in the cache until the last of them, and long runs of
    /// several dimensions are read as usual.
    #[test]
    fn shared_lines_are_kept() {
        let device = Device::h200();
        // A unit has two loads of each row, and four rows share a line.
        assert_eq!(of(&[1 << 24, 8], &[1], &device), None);
        assert_eq!(of(&[100, 1000, 1000], &[0], &device), None);
        assert_eq!(of(&[8, 128, 64, 512], &[1, 3], &device), Some(true));
        // Runs of 2 KiB and of 12.5.
        assert_eq!(of(&[64, 256, 56, 56], &[0, 2, 3], &device), None);
    }

    /// Peeled rows share lines between the loads of a plane, and hardly any between those of a
    /// cube.
    #[test]
    fn planes_do_not_give_up_what_they_peel() {
        let device = Device::h200();
        let rows = problem(&[4096, 50_257], &[1], None);
        let access = Access::new(Direction::Along).with_vector(4).with_peeled(true);
        let plane = Schedule::Plane { lanes_per_output: 32, units_per_cube: 128 };
        let cube = Schedule::sized(ScheduleKind::Cube, &rows, &device, access);
        assert_eq!(streams(&Plan::new(access, plane), &rows, &device), None);
        assert_eq!(streams(&Plan::new(access, cube.unwrap()), &rows, &device), Some(true));
    }

    /// Both inputs count, and one whose elements are read again in each row is kept.
    #[test]
    fn two_inputs_are_given_up_together() {
        let device = Device::h200();
        let shape = [4096, 4096];
        let of_two = |second: &[usize]| {
            let pair = problem(&shape, &[1], Some(second));
            streams(&choose(&pair, &device).unwrap().plan, &pair, &device)
        };
        assert_eq!(of(&shape, &[1], &device), Some(false));
        assert_eq!(of_two(&row_major(&shape)), Some(true));
        assert_eq!(of_two(&[0, 1]), Some(false));
    }
}
