//! Launches kernels with a dispatch, checked buffers and scratch memory.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction, ElementType, Plan, Problem};

use super::{
    Inputs,
    dispatch::{Dispatch, Merging, Scratch},
    request::StatedReduction,
};
use crate::{
    element::memory_type,
    host::{
        arguments::{
            count, dims, geometry, merging_types, parameters, partial_arrays, words_target,
        },
        bound::Bound,
        companion::{second_access, second_arrays},
        kept::launch_kept,
        launched::{Kernel, Noted, dimensions},
        scratch::Words,
    },
    kernels::{
        args::{
            IndexArrayLaunch, InputArrays, InputArraysLaunch, KernelTypes, KernelTypesArg,
            PartialArrays, ResultArraysLaunch, Stores, TargetArrays, TargetArraysLaunch,
        },
        cache::cache_policy,
        geometry::{Dim, Geometry},
        merge::merge_partials,
        single_pass::reduce_single_pass,
        split_single_pass::reduce_split_single_pass,
        split_two_pass::reduce_split_two_pass,
        team::Team,
    },
    operator::{OperatorRef, Parameters, ParametersLaunch},
};

/// Most bytes of the results that a unit stores as one vector, in two stores.
const WIDEST_RESULTS: usize = 2 * Access::WIDEST_STORE;

/// What the kernels of a reduction are generated for.
#[derive(Clone, Copy)]
pub(super) struct Generated<'a> {
    pub(super) client: &'a Client,
    pub(super) operator: OperatorRef,
    pub(super) dispatch: &'a Dispatch,
    pub(super) resolved: &'a StatedReduction,
}

/// A call whose checks have all passed, ready to launch.
pub(crate) struct ReductionLaunch<'a> {
    pub(super) kernels: Generated<'a>,
    pub(super) noted: &'a [Noted; 2],
    pub(super) inputs: Inputs<'a>,
    /// One for each result, or one for the words of accumulators.
    pub(super) outputs: Vec<Bound<'static>>,
    pub(super) scratch: Scratch,
    /// The operator's parameters.
    pub(super) parameters: &'a [f64],
}

impl Generated<'_> {
    /// Calls `each` with every kernel. `in_vectors` says whether results are stored as vectors.
    pub(super) fn list(&self, in_vectors: bool, each: &mut dyn FnMut(Kernel)) {
        let Self { operator, dispatch, .. } = *self;
        let Dispatch { plan, hold, team, address, ref merging, .. } = *dispatch;
        let access = plan.access;
        let mut reads = |name, in_vectors| {
            let kernel = (self.types(in_vectors), operator, address, hold, access, team);
            let dims = (dimensions(self.problem()), second_access(self.problem(), access));
            each(Kernel::new(name, (kernel, dims)));
        };
        match *merging {
            Merging::None => reads("reduce_single_pass", in_vectors),
            Merging::LastCube { .. } => reads("reduce_split_single_pass", false),
            Merging::SecondLaunch { team, .. } => {
                reads("reduce_split_two_pass", false);
                let kernel = (self.merging_types(), operator, address, team);
                each(Kernel::new("merge_partials", (kernel, self.problem().kept().len())));
            }
        }
    }

    fn problem(&self) -> &Problem {
        &self.resolved.problem
    }

    /// The types of a kernel that reads the input. `in_vectors` says whether it stores vectors.
    fn types(&self, in_vectors: bool) -> KernelTypesArg {
        let merging = self.merging_types();
        KernelTypesArg {
            stored: memory_type(self.problem().input()),
            second: self.problem().second().map(|second| memory_type(second.element())),
            width: self.dispatch.plan.access.vector,
            chains: self.dispatch.chains,
            stores: if in_vectors { Stores::Vectors } else { merging.stores },
            of_shard: self.problem().is_shard(),
            has_policy: self.dispatch.streams.is_some(),
            ..merging
        }
    }

    fn merging_types(&self) -> KernelTypesArg {
        let stores = match self.resolved.words {
            Some(_) => Stores::Words,
            None => Stores::Elements,
        };
        KernelTypesArg {
            same_bits: self.problem().numerics().is_reproducible(),
            stores,
            ..merging_types(self.client, &self.resolved.signature)
        }
    }

    /// Whether the results of a tile can be stored as one vector: they lie side by side, their
    /// vector is aligned in the output, and it is no wider than two stores. `begins_at` says
    /// whether an output begins at a multiple of so many bytes.
    pub(super) fn writes_vectors(&self, begins_at: impl Fn(usize, usize) -> bool) -> bool {
        let Access { direction, vector, peeled, realigned, .. } = self.dispatch.plan.access;
        if direction != Direction::Across || vector == 1 || self.resolved.words.is_some() {
            return false;
        }
        let results = &self.resolved.signature.results[..self.operator.0.results];
        let buffers = 2 + 2 * results.len();
        if realigned || peeled && buffers > self.dispatch.bindings {
            return false;
        }
        let Some((inner, outer)) = self.problem().kept().split_last() else { return false };
        let fits = |(nth, element): (usize, &ElementType)| {
            let bytes = vector * element.bytes();
            bytes <= WIDEST_RESULTS && begins_at(nth, bytes)
        };
        inner.output_stride == 1
            && outer.iter().all(|dim| dim.output_stride.is_multiple_of(vector))
            && results.iter().enumerate().all(fits)
    }
}

impl ReductionLaunch<'_> {
    /// Launches the kernels. The dispatch's plan has been checked against the problem.
    pub(crate) fn run(self) {
        let (kernels, in_vectors) = (self.kernels, self.writes_vectors());
        let noted = &self.noted[usize::from(in_vectors)];
        noted.launch(kernels.client, |each| kernels.list(in_vectors, each));
        match self.scratch {
            Scratch::None => self.single_pass(in_vectors, noted),
            Scratch::Words { cubes, ref words } => self.split_single_pass(cubes, words, noted),
            Scratch::Partials { cubes, ref buffers, team, grid } => {
                self.split_two_pass(cubes, buffers, team, count(grid), noted);
            }
        }
    }

    fn single_pass(&self, in_vectors: bool, noted: &Noted) {
        let Generated { client, operator, dispatch, .. } = self.kernels;
        let Dispatch { plan, hold, team, grid, address, .. } = *dispatch;
        // SAFETY: the bound buffers hold every offset of the problem. The plan's check has found
        // that every vector load is aligned and inside its inner dimension. Those of realigned rows
        // start at or before an element of the row; only the last of a tile may reach beyond the
        // input, and kernels ask whether it does. Units without work repeat the loads of others and
        // write nothing.
        unsafe {
            launch_kept!(
                noted.first, client, count(grid), team.units_per_cube, address;
                reduce_single_pass::ReduceSinglePass {
                    ReadOnly types: KernelTypes = self.kernels.types(in_vectors),
                    ReadOnly input: InputArrays = self.input(),
                    ReadWrite target: TargetArrays = self.target(in_vectors),
                    ReadOnly geometry: Geometry = geometry(self.problem(), &plan),
                    ReadOnly parameters: Parameters = self.parameters(),
                }
                hold, plan.access, team, operator
            );
        }
    }

    fn split_single_pass(&self, cubes: usize, words: &Words, noted: &Noted) {
        let Generated { client, operator, dispatch, .. } = self.kernels;
        let Dispatch { plan, team, grid, address, .. } = *dispatch;
        // SAFETY: as in `single_pass`. There are as many words as the dispatch asked for. Only
        // launches of this stream use them, one after the other. Where they are bound a second time,
        // as plain numbers, counters are touched as atomic words alone, and the cubes of a block
        // touch the others in an order that fences keep.
        unsafe {
            launch_kept!(
                noted.first, client, count(grid), team.units_per_cube, address;
                reduce_split_single_pass::ReduceSplitSinglePass {
                    ReadOnly types: KernelTypes = self.kernels.types(false),
                    ReadOnly input: InputArrays = self.input(),
                    ReadWrite published: [Atomic<u64>] = words.words.elements(),
                    ReadWrite plain: ComptimeOption<Box<[u64]>> = words.plain(client).into(),
                    ReadWrite target: TargetArrays = self.target(false),
                    ReadOnly geometry: Geometry = geometry(self.problem(), &plan),
                    ReadOnly parameters: Parameters = self.parameters(),
                    ReadWrite cubes: usize = cubes,
                    ReadWrite mark: u64 = words.mark,
                }
                plan.access, team, operator
            );
        }
    }

    fn split_two_pass(
        &self,
        cubes: usize,
        partials: &[Bound<'_>],
        merging: Team,
        grid: CubeCount,
        noted: &Noted,
    ) {
        let Generated { client, operator, dispatch, .. } = self.kernels;
        let Dispatch { plan, team, grid: first_grid, address, .. } = *dispatch;
        let problem = self.problem();
        // SAFETY: as in `single_pass`. Partial results are stored at indices below `cubes` times
        // the outputs, which each buffer of `partials` holds.
        unsafe {
            launch_kept!(
                noted.first, client, count(first_grid), team.units_per_cube, address;
                reduce_split_two_pass::ReduceSplitTwoPass {
                    ReadOnly types: KernelTypes = self.kernels.types(false),
                    ReadOnly input: InputArrays = self.input(),
                    ReadWrite partials: PartialArrays = partial_arrays(partials),
                    ReadOnly geometry: Geometry = geometry(problem, &plan),
                    ReadOnly parameters: Parameters = self.parameters(),
                    ReadWrite cubes: usize = cubes,
                }
                plan.access, team, operator
            );
        }
        // SAFETY: the kernel reads the partial results that the first launch stored, and writes
        // inside the output's span.
        unsafe {
            launch_kept!(
                noted.second, client, grid, merging.units_per_cube, address;
                merge_partials::MergePartials {
                    ReadOnly types: KernelTypes = self.kernels.merging_types(),
                    ReadWrite partials: PartialArrays = partial_arrays(partials),
                    ReadWrite target: TargetArrays = self.target(false),
                    ReadOnly kept: Sequence<Dim> = dims(problem.kept(), |dim| {
                        (dim.extent, dim.stride, dim.output_stride)
                    }),
                    ReadOnly parameters: Parameters = self.parameters(),
                    ReadWrite cubes: usize = cubes,
                    ReadWrite outputs: usize = problem.outputs(),
                    ReadWrite reduction_len: usize = problem.reduction_len(),
                }
                merging, operator
            );
        }
    }

    fn problem(&self) -> &Problem {
        &self.kernels.resolved.problem
    }

    /// The input as an array of vectors: those that lie entirely inside its span. Peeled and
    /// realigned accesses also get it as an array of elements.
    fn input(&self) -> InputArraysLaunch {
        let Dispatch { plan: Plan { access, .. }, streams, .. } = *self.kernels.dispatch;
        let twice = access.peeled || access.realigned;
        self.inputs.arrays(self.problem(), access, twice, None, streams)
    }

    /// The outputs, or the words of accumulators.
    fn target(&self, in_vectors: bool) -> TargetArraysLaunch {
        match self.kernels.resolved.words {
            None => TargetArraysLaunch::new(self.output(in_vectors), None.into()),
            Some(_) => words_target(&self.outputs[0]),
        }
    }

    /// The outputs as arrays of vectors, of elements, or of both.
    fn output(&self, in_vectors: bool) -> ResultArraysLaunch {
        let Access { vector, peeled, .. } = self.kernels.dispatch.plan.access;
        let array = |nth: usize, wide: bool| {
            let is_bound = if wide { in_vectors } else { !in_vectors || peeled };
            let output = self.outputs.get(nth).filter(|_| is_bound)?;
            Some(if wide { output.vectors(vector) } else { output.elements() })
        };
        ResultArraysLaunch::new(
            array(0, false).into(),
            array(1, false).into(),
            array(2, false).into(),
            array(0, true).into(),
            array(1, true).into(),
            array(2, true).into(),
        )
    }

    /// Whether the results of a tile are stored as one vector.
    fn writes_vectors(&self) -> bool {
        let outputs = &self.outputs;
        self.kernels.writes_vectors(|nth, bytes| outputs[nth].begins_at_multiple_of(bytes))
    }

    fn parameters(&self) -> ParametersLaunch {
        parameters(self.parameters, &self.kernels.resolved.signature)
    }
}

impl Inputs<'_> {
    /// The inputs as arguments of a launch: vectors, and elements where they are wanted too.
    /// `streams` says whether the cache should give up first what is read, if the kernel tells it.
    pub(in crate::host) fn arrays(
        &self,
        problem: &Problem,
        access: Access,
        with_elements: bool,
        indices: Option<IndexArrayLaunch>,
        streams: Option<bool>,
    ) -> InputArraysLaunch {
        let Self { input, second } = self;
        let elements = with_elements.then(|| input.elements()).into();
        let vectors = input.vectors(access.vector);
        let (second, second_wide, how) = second_arrays(problem, access, second.as_ref());
        InputArraysLaunch::new(
            vectors,
            elements,
            second.into(),
            second_wide.into(),
            how,
            indices.into(),
            streams.map(cache_policy).into(),
        )
    }
}
