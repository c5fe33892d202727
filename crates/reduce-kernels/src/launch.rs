//! From a problem, a plan and tensors to launched kernels.

use cubecl::{
    ir::{AddressType, StorageType},
    prelude::*,
    server::{Binding, Handle},
    stream_id::StreamId,
};
use reduce_planner::{
    Access, Combine, Device, Direction, ElementType, KeptDim, Merge, Plan, PlanError, Problem,
    Schedule, needs_wide_indices,
};

use crate::{
    ReduceError,
    combine::Team,
    element::{memory_type, storage_type},
    kernels::{
        geometry::{Dim, DimLaunch, DivisorLaunch, GeometryLaunch},
        merge::merge_partials,
        one_pass::reduce_one_pass,
        split::reduce_split,
        split_once::reduce_split_once,
    },
    operator::{Fields, Operator, ParametersLaunch, Signature},
    scratch::{self, LaunchWords},
};

/// Bytes of the widest store of one unit.
const WIDEST_STORE: usize = 16;

/// How a plan is launched for a problem, apart from buffers.
pub(crate) struct Dispatch {
    plan: Plan,
    team: Team,
    grid: [u32; 3],
    address: AddressType,
    merging: Merging,
}

/// What a plan does with partial results.
enum Merging {
    /// There are none.
    None,
    /// The last cube merges them, handed over in so many words.
    LastCube { cubes: usize, words: usize },
    /// Another launch merges them.
    SecondLaunch { cubes: usize, team: Team, grid: [u32; 3] },
}

impl Dispatch {
    /// For a plan that has been checked against the problem and the device. `fields` are the types of
    /// the accumulator, `available` the bytes that a buffer may have.
    pub(crate) fn new(
        plan: Plan,
        problem: &Problem,
        device: &Device,
        fields: &[ElementType],
        available: u64,
    ) -> Result<Self, PlanError> {
        let unfit = |reason| PlanError::Unfit {
            plan: plan.to_string(),
            device: device.name.clone(),
            reason,
        };
        let spread = |cubes: u64| {
            let passes = || unfit(format!("{cubes} cubes pass the grid's limits"));
            device.spread(cubes).ok_or_else(passes)
        };
        let merging = match plan.schedule {
            Schedule::Split { cubes, merge: Merge::LastCube, .. } => {
                let words: usize = fields.iter().map(|field| field.bytes().div_ceil(4)).sum();
                let words = plan.hand_over_words(problem, words) as usize;
                Merging::LastCube { cubes: cubes as usize, words }
            }
            Schedule::Split { cubes, merge: Merge::SecondLaunch { workers, outputs }, .. } => {
                let partials = u64::from(cubes) * problem.outputs() as u64;
                let largest = fields.iter().map(|field| partials * field.bytes() as u64).max();
                if let Some(bytes) = largest.filter(|&bytes| bytes > available) {
                    let reason =
                        format!("partial results of {bytes} bytes, a buffer holds {available}");
                    return Err(unfit(reason));
                }
                let team = Team {
                    workers,
                    distance: outputs,
                    units: workers * outputs,
                    combine: Combine::Shared,
                };
                let grid = spread((problem.outputs() as u64).div_ceil(u64::from(outputs)))?;
                Merging::SecondLaunch { cubes: cubes as usize, team, grid }
            }
            _ => Merging::None,
        };
        let wide = needs_wide_indices(problem);
        Ok(Self {
            plan,
            team: team(&plan, device),
            grid: spread(plan.cubes(problem))?,
            address: if wide { AddressType::U64 } else { AddressType::U32 },
            merging,
        })
    }
}

/// The team of a plan's first launch.
fn team(plan: &Plan, device: &Device) -> Team {
    let schedule = plan.schedule;
    let distance = match (plan.access.direction, schedule) {
        (Direction::Along, _) => 1,
        (Direction::Across, Schedule::Plane { lanes, .. }) => device.plane_size_min / lanes,
        (Direction::Across, _) => schedule.outputs(),
    };
    Team {
        workers: schedule.workers(),
        distance,
        units: schedule.units(),
        combine: schedule.combine().unwrap_or(Combine::Shared),
    }
}

fn count([x, y, z]: [u32; 3]) -> CubeCount {
    CubeCount::Static(x, y, z)
}

/// What a launch binds, beside what was prepared.
pub(crate) struct Launch<'a, R: Runtime> {
    pub(crate) client: &'a ComputeClient<R>,
    pub(crate) problem: &'a Problem,
    pub(crate) signature: Signature,
    pub(crate) dispatch: &'a Dispatch,
    /// The stream that the client launches on, if it is known.
    pub(crate) stream: Option<StreamId>,
    pub(crate) input: Binding,
    /// One for each result.
    pub(crate) outputs: Vec<Binding>,
    /// The operator's numbers.
    pub(crate) parameters: Vec<f64>,
}

impl<R: Runtime> Launch<'_, R> {
    /// Launches. The plan must have been checked against the problem and the device, and the bindings
    /// against the problem's spans.
    ///
    /// # Errors
    ///
    /// [`ReduceError::Scratch`], before anything is launched.
    pub(crate) fn run<O: Operator>(self) -> Result<(), ReduceError> {
        match self.dispatch.merging {
            Merging::None => self.run_one_pass::<O>(),
            Merging::LastCube { cubes, words } => {
                let words = scratch::words(self.client, self.stream(), words)?;
                self.run_split_once::<O>(cubes, words);
            }
            Merging::SecondLaunch { cubes, team, grid } => {
                let fields = &self.signature.fields[..O::Fields::COUNT];
                let partials = cubes * self.problem.outputs();
                let bytes = fields.iter().map(|field| partials * field.bytes());
                let scratch = scratch::partials(self.client, self.stream(), bytes)?;
                self.run_split::<O>(cubes, &scratch, team, count(grid));
            }
        }
        Ok(())
    }

    /// The stream that the client launches on. CubeCL tells no client's stream, but a new buffer is of it.
    fn stream(&self) -> StreamId {
        self.stream.unwrap_or_else(|| self.client.empty(1).stream)
    }

    fn run_one_pass<O: Operator>(self) {
        let Dispatch { plan: Plan { access, .. }, team, grid, address, .. } = *self.dispatch;
        let (x, y, z, xs, ys, zs) = if self.writes_vectors() {
            let vectors = |nth| self.vectors_of_result(nth);
            (
                None.into(),
                None.into(),
                None.into(),
                vectors(0).into(),
                vectors(1).into(),
                vectors(2).into(),
            )
        } else {
            (self.result(0), self.result(1), self.result(2), None.into(), None.into(), None.into())
        };
        // SAFETY: the front door checked that the buffers hold every offset of the problem, and the
        // plan that every vector load is aligned and inside its run; units without work load what
        // others load too, and write nothing.
        unsafe {
            reduce_one_pass::launch_unchecked::<O, R>(
                self.client,
                count(grid),
                CubeDim::new_1d(team.units),
                address,
                access.vector,
                self.vectors(),
                self.elements(),
                x,
                y,
                z,
                xs,
                ys,
                zs,
                geometry(self.problem, access),
                self.parameters(),
                access,
                team,
                self.types(),
            );
        }
    }

    fn run_split_once<O: Operator>(self, cubes: usize, words: LaunchWords) {
        let Dispatch { plan: Plan { access, .. }, team, grid, address, .. } = *self.dispatch;
        // SAFETY: as in `run_one_pass`; the memory holds the words of every block of outputs, and only
        // launches of this stream, one after the other, use it.
        unsafe {
            reduce_split_once::launch_unchecked::<O, R>(
                self.client,
                count(grid),
                CubeDim::new_1d(team.units),
                address,
                access.vector,
                self.vectors(),
                self.elements(),
                ArrayArg::from_raw_parts(words.handle, words.count),
                self.result(0),
                self.result(1),
                self.result(2),
                geometry(self.problem, access),
                self.parameters(),
                cubes,
                words.mark,
                access,
                team,
                self.types(),
            );
        }
    }

    fn run_split<O: Operator>(
        self,
        cubes: usize,
        scratch: &[Handle],
        merging: Team,
        merge_grid: CubeCount,
    ) {
        let Dispatch { plan: Plan { access, .. }, team, grid, address, .. } = *self.dispatch;
        let partials = cubes * self.problem.outputs();
        let column = |field: usize| {
            let buffer = scratch.get(field)?;
            // SAFETY: each buffer has at least this length.
            Some(unsafe { ArrayArg::from_raw_parts(buffer.clone(), partials) })
        };
        // SAFETY: as in `run_one_pass`; partials are stored at indices below `partials`.
        unsafe {
            reduce_split::launch_unchecked::<O, R>(
                self.client,
                count(grid),
                CubeDim::new_1d(team.units),
                address,
                access.vector,
                self.vectors(),
                self.elements(),
                column(0).into(),
                column(1).into(),
                column(2).into(),
                column(3).into(),
                column(4).into(),
                geometry(self.problem, access),
                self.parameters(),
                cubes,
                access,
                team,
                self.types(),
            );
        }
        // SAFETY: reads the partials that the first launch stored, writes inside the output's span.
        unsafe {
            merge_partials::launch_unchecked::<O, R>(
                self.client,
                merge_grid,
                CubeDim::new_1d(merging.units),
                address,
                column(0).into(),
                column(1).into(),
                column(2).into(),
                column(3).into(),
                column(4).into(),
                self.result(0),
                self.result(1),
                self.result(2),
                dims(self.problem.kept(), |dim| (dim.extent, dim.stride, dim.output_stride)),
                self.parameters(),
                cubes,
                self.problem.outputs(),
                self.problem.reduction_len(),
                merging,
                self.types(),
            );
        }
    }

    /// The input as vectors: those that lie inside its span as a whole.
    fn vectors(&self) -> ArrayArg<R> {
        let length = self.problem.input_span() / self.dispatch.plan.access.vector;
        // SAFETY: the front door checked the buffer against the span.
        unsafe { ArrayArg::from_raw_parts_binding(self.input.clone(), length) }
    }

    /// The input as elements, for the edges of ragged runs.
    fn elements<E: CubePrimitive>(&self) -> ComptimeOptionArgs<Array<E>, R> {
        let length = self.problem.input_span();
        let ragged = self.dispatch.plan.access.ragged;
        // SAFETY: the front door checked the buffer against the span.
        let argument = || unsafe { ArrayArg::from_raw_parts_binding(self.input.clone(), length) };
        ragged.then(argument).into()
    }

    /// The output of result number `nth`, if the operator has so many.
    fn result<E: CubePrimitive>(&self, nth: usize) -> ComptimeOptionArgs<Array<E>, R> {
        let argument = |output: &Binding| {
            // SAFETY: the front door checked the buffers against the span.
            unsafe { ArrayArg::from_raw_parts_binding(output.clone(), self.problem.output_span()) }
        };
        self.outputs.get(nth).map(argument).into()
    }

    /// Whether each group's results lie side by side on a boundary of their vector, as wide as one store
    /// may be.
    fn writes_vectors(&self) -> bool {
        let Access { direction, vector, ragged, .. } = self.dispatch.plan.access;
        let Some((inner, outer)) = self.problem.kept().split_last() else { return false };
        let wide = |(output, element): (&Binding, &ElementType)| {
            let bytes = vector * element.bytes();
            bytes <= WIDEST_STORE && output.offset_start.unwrap_or(0).is_multiple_of(bytes as u64)
        };
        direction == Direction::Across
            && vector > 1
            && !ragged
            && inner.output_stride == 1
            && outer.iter().all(|dim| dim.output_stride.is_multiple_of(vector))
            && self.outputs.iter().zip(&self.signature.results).all(wide)
    }

    fn vectors_of_result(&self, nth: usize) -> Option<ArrayArg<R>> {
        let length = self.problem.output_span() / self.dispatch.plan.access.vector;
        let output = self.outputs.get(nth)?.clone();
        // SAFETY: the front door checked the buffers against the span.
        Some(unsafe { ArrayArg::from_raw_parts_binding(output, length) })
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
