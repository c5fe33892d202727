//! From a problem, a plan and tensors to launched kernels.

use cubecl::{
    ir::{AddressType, StorageType},
    prelude::*,
    server::{Binding, Handle},
};
use reduce_planner::{
    Access, Combine, Device, Direction, ElementType, KeptDim, Merge, Plan, PlanError, Problem,
    Schedule, needs_wide_indices,
};

use crate::{
    combine::Team,
    element::{memory_type, storage_type},
    kernels::{
        geometry::{Dim, DimLaunch, DivisorLaunch, GeometryLaunch},
        merge::merge_partials,
        one_pass::reduce_one_pass,
        split::reduce_split,
    },
    operator::{Fields, Operator, ParametersLaunch, Signature},
};

/// Everything a launch needs that is not in the plan.
pub(crate) struct Launch<'a, R: Runtime> {
    pub(crate) client: &'a ComputeClient<R>,
    pub(crate) device: &'a Device,
    pub(crate) problem: &'a Problem,
    pub(crate) signature: Signature,
    pub(crate) input: Binding,
    /// One for each result.
    pub(crate) outputs: Vec<Binding>,
    /// The operator's numbers.
    pub(crate) parameters: Vec<f64>,
}

impl<R: Runtime> Launch<'_, R> {
    /// Launches the kernels of `plan`. The plan must have been checked against the problem and the
    /// device, and the bindings against the problem's spans.
    pub(crate) fn run<O: Operator>(self, plan: &Plan) -> Result<(), PlanError> {
        let team = self.team(plan);
        let grid = self.grid(plan, plan.cubes(self.problem))?;
        match plan.schedule {
            Schedule::Split { cubes, merge, .. } => {
                // Found before the first launch, so that nothing is launched in vain.
                let merge_grid = self.grid(
                    plan,
                    (self.problem.outputs() as u64).div_ceil(u64::from(merge.outputs)),
                )?;
                self.check_scratch::<O>(plan, cubes)?;
                self.run_split::<O>(plan, team, cubes as usize, grid, merge, merge_grid);
            }
            _ => self.run_one_pass::<O>(plan, team, grid),
        }
        Ok(())
    }

    fn run_one_pass<O: Operator>(self, plan: &Plan, team: Team, grid: CubeCount) {
        let access = plan.access;
        // SAFETY: the front door checked that the buffers hold every offset of the problem, and the
        // plan that every vector load is aligned and inside its run; units without work load what
        // others load too, and write nothing.
        unsafe {
            reduce_one_pass::launch_unchecked::<O, R>(
                self.client,
                grid,
                CubeDim::new_1d(team.units),
                self.address_type(),
                access.vector,
                self.vectors(access),
                self.elements(),
                self.result(0),
                self.result(1),
                self.result(2),
                geometry(self.problem, access),
                self.parameters(),
                access,
                team,
                self.types(),
            );
        }
    }

    fn run_split<O: Operator>(
        self,
        plan: &Plan,
        team: Team,
        cubes: usize,
        grid: CubeCount,
        merge: Merge,
        merge_grid: CubeCount,
    ) {
        let access = plan.access;
        let partials = cubes * self.problem.outputs();
        let scratch = self.scratch::<O>(partials);
        let scratch_arg = |field: usize| {
            // Kernels take five arrays; those that the accumulator has no field for stay untouched.
            let (buffer, length) = match scratch.get(field) {
                Some(buffer) => (buffer, partials),
                None => (&scratch[0], 0),
            };
            // SAFETY: `scratch` made each buffer of this length.
            unsafe { ArrayArg::from_raw_parts(buffer.clone(), length) }
        };
        // SAFETY: as in `run_one_pass`; partials are stored at indices below `partials`.
        unsafe {
            reduce_split::launch_unchecked::<O, R>(
                self.client,
                grid,
                CubeDim::new_1d(team.units),
                self.address_type(),
                access.vector,
                self.vectors(access),
                self.elements(),
                scratch_arg(0),
                scratch_arg(1),
                scratch_arg(2),
                scratch_arg(3),
                scratch_arg(4),
                geometry(self.problem, access),
                self.parameters(),
                cubes,
                access,
                team,
                self.types(),
            );
        }
        let team = merge_team(merge);
        // SAFETY: reads the partials that the first launch stored, writes inside the output's span.
        unsafe {
            merge_partials::launch_unchecked::<O, R>(
                self.client,
                merge_grid,
                CubeDim::new_1d(team.units),
                self.address_type(),
                scratch_arg(0),
                scratch_arg(1),
                scratch_arg(2),
                scratch_arg(3),
                scratch_arg(4),
                self.result(0),
                self.result(1),
                self.result(2),
                dims(self.problem.kept(), |dim| (dim.extent, dim.stride, dim.output_stride)),
                self.parameters(),
                cubes,
                self.problem.outputs(),
                self.problem.reduction_len(),
                team,
                self.types(),
            );
        }
    }

    /// The team of a plan's first launch.
    fn team(&self, plan: &Plan) -> Team {
        let schedule = plan.schedule;
        let distance = match (plan.access.direction, schedule) {
            (Direction::Along, _) => 1,
            (Direction::Across, Schedule::Plane { lanes, .. }) => {
                self.device.plane_size_min / lanes
            }
            (Direction::Across, _) => schedule.outputs(),
        };
        Team {
            workers: schedule.workers(),
            distance,
            units: schedule.units(),
            combine: schedule.combine().unwrap_or(Combine::Shared),
        }
    }

    fn check_scratch<O: Operator>(&self, plan: &Plan, cubes: u32) -> Result<(), PlanError> {
        let partials = u64::from(cubes) * self.problem.outputs() as u64;
        let available = self.client.properties().memory.max_page_size;
        let fields = &self.signature.fields[..O::Fields::COUNT];
        let largest = fields.iter().map(|field| partials * field.bytes() as u64).max();
        match largest.filter(|&bytes| bytes > available) {
            None => Ok(()),
            Some(bytes) => Err(PlanError::Unfit {
                plan: plan.to_string(),
                device: self.device.name.clone(),
                reason: format!("partial results of {bytes} bytes, a buffer holds {available}"),
            }),
        }
    }

    fn grid(&self, plan: &Plan, cubes: u64) -> Result<CubeCount, PlanError> {
        let [x, y, z] = self.device.spread(cubes).ok_or_else(|| PlanError::Unfit {
            plan: plan.to_string(),
            device: self.device.name.clone(),
            reason: format!("{cubes} cubes pass the grid's limits"),
        })?;
        Ok(CubeCount::Static(x, y, z))
    }

    fn address_type(&self) -> AddressType {
        if needs_wide_indices(self.problem) { AddressType::U64 } else { AddressType::U32 }
    }

    /// The input as vectors: those that lie inside its span as a whole.
    fn vectors(&self, access: Access) -> ArrayArg<R> {
        let length = self.problem.input_span() / access.vector;
        // SAFETY: the front door checked the buffer against the span.
        unsafe { ArrayArg::from_raw_parts_binding(self.input.clone(), length) }
    }

    fn elements(&self) -> ArrayArg<R> {
        // SAFETY: the front door checked the buffer against the span.
        unsafe { ArrayArg::from_raw_parts_binding(self.input.clone(), self.problem.input_span()) }
    }

    /// The output of result number `nth`. Kernels take three; those that the operator has no result
    /// for stay untouched.
    fn result(&self, nth: usize) -> ArrayArg<R> {
        let (output, length) = match self.outputs.get(nth) {
            Some(output) => (output, self.problem.output_span()),
            None => (&self.outputs[0], 0),
        };
        // SAFETY: the front door checked the buffers against the span.
        unsafe { ArrayArg::from_raw_parts_binding(output.clone(), length) }
    }

    fn types(&self) -> [StorageType; 10] {
        let Signature { value, fields: [a, b, c, d, e], results: [x, y, z] } = self.signature;
        [self.problem.input(), value, a, b, c, d, e, x, y, z].map(memory_type)
    }

    /// In the accumulator's type, or in f32 where that is an integer type.
    fn parameters(&self) -> ParametersLaunch<R> {
        let accumulator = self.signature.fields[0];
        let element = if accumulator.is_float() { accumulator } else { ElementType::F32 };
        ParametersLaunch::of(&self.parameters, storage_type(element))
    }

    /// One buffer per field of the accumulator.
    fn scratch<O: Operator>(&self, partials: usize) -> Vec<Handle> {
        let fields = &self.signature.fields[..O::Fields::COUNT];
        fields.iter().map(|field| self.client.empty(partials * field.bytes())).collect()
    }
}

fn merge_team(merge: Merge) -> Team {
    Team {
        workers: merge.workers,
        distance: merge.outputs,
        units: merge.workers * merge.outputs,
        combine: Combine::Shared,
    }
}

/// The problem as kernels see it; the innermost dimension of the access's direction stands apart.
fn geometry<R: Runtime>(problem: &Problem, access: Access) -> GeometryLaunch<R> {
    let (mut kept, mut reduced) = (problem.kept(), problem.reduced());
    let (run, run_stride, run_target) = match access.direction {
        Direction::Along => match reduced.split_last() {
            None => (1, 1, 0),
            Some((inner, outer)) => {
                reduced = outer;
                (inner.extent, inner.stride, inner.position_stride)
            }
        },
        Direction::Across => match kept.split_last() {
            None => (1, 1, 1),
            Some((inner, outer)) => {
                kept = outer;
                (inner.extent, inner.stride, inner.output_stride)
            }
        },
    };
    let loads = match access.direction {
        Direction::Along => run / access.vector,
        Direction::Across => run.div_ceil(access.vector),
    };
    GeometryLaunch::new(
        dims(kept, |dim: &KeptDim| (dim.extent, dim.stride, dim.output_stride)),
        dims(reduced, |dim| (dim.extent, dim.stride, dim.position_stride)),
        run,
        run_stride,
        run_target,
        DivisorLaunch::of(loads.max(1)),
        problem.reduction_len() / run.max(1),
        access.groups(problem) as usize,
        access.steps(problem) as usize,
        problem.outputs(),
        problem.reduction_len(),
    )
}

fn dims<D, R: Runtime>(
    dims: &[D],
    parts: impl Fn(&D) -> (usize, usize, usize),
) -> SequenceArg<R, Dim> {
    let mut sequence = SequenceArg::new();
    for dim in dims {
        let (extent, stride, target) = parts(dim);
        sequence.push(DimLaunch::new(DivisorLaunch::of(extent.max(1)), stride, target));
    }
    sequence
}
