//! Launches reductions of segments.

use cubecl::{prelude::*, server::BufferBinding, std::tensor::TensorHandle};
use reduce_planner::{ElementType, Plan, Role, Schedule};

use super::{
    integers::{BoundMembers, Members},
    request::{PreparedSegments, SegmentsLaunches, SegmentsRequest, StatedSegments},
};
use crate::{
    element::{memory_type, storage_type},
    error::ReduceError,
    host::{
        arguments::{
            count, dims, geometry, merging_types, parameters, partial_arrays, result_arrays,
        },
        bound::Bound,
        call::Call,
        companion::second_access,
        kept::launch_kept,
        launched::{Kernel, Launches, dimensions},
        reduce::{Inputs, check_layouts},
        scratch::{Stream, Words, partials, words},
    },
    kernels::{
        args::{
            IndexArrayLaunch, InputArrays, KernelTypes, KernelTypesArg, PartialArrays, Stores,
            TargetArrays, TargetArraysLaunch,
        },
        geometry::{Dim, Geometry},
        segments::{
            PublishedArray, PublishedArrayLaunch, SegmentNumbers, SegmentNumbersLaunch,
            merge_segments, reduce_segments,
        },
    },
    operator::{Offset, Parameters, ParametersLaunch},
};

impl<'a> Call<'a, SegmentsRequest<'a>> {
    /// Launches into new row-major tensors, one for each result.
    pub(crate) fn run(
        self,
        client: &Client,
        input: &TensorHandle,
        second: Option<&TensorHandle>,
        members: Members<'_, TensorHandle>,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let prepared = self.prepared(client)?;
        let inputs = Inputs::bind(client, prepared.stated.problem.axis(), input, second)?;
        prepared.run(client, &self.parameters, inputs, members)
    }

    /// Launches into tensors that the caller supplies.
    pub(crate) fn run_into(
        self,
        client: &Client,
        input: &TensorHandle,
        second: Option<&TensorHandle>,
        members: Members<'_, TensorHandle>,
        outputs: &[TensorBinding],
    ) -> Result<(), ReduceError> {
        let prepared = self.prepared(client)?;
        check_layouts(&prepared.stated.shape, outputs)?;
        let bindings = outputs.iter().map(|output| output.handle.clone()).collect();
        let inputs = Inputs::bind(client, prepared.stated.problem.axis(), input, second)?;
        prepared.launch(client, &self.parameters, inputs, members, None, bindings)
    }
}

impl PreparedSegments {
    /// Launches into new row-major tensors, one for each result.
    pub(in crate::host) fn run(
        &self,
        client: &Client,
        parameters: &[f64],
        inputs: Inputs<'_>,
        members: Members<'_, TensorHandle>,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let stated = &self.stated;
        let span = stated.problem.output_span().max(1);
        let tensor = |&element: &ElementType| {
            let handle = client.empty(span * element.bytes());
            TensorHandle::new_contiguous(stated.shape.clone(), handle, storage_type(element))
        };
        let outputs: Vec<TensorHandle> =
            stated.problem.axis().results().iter().map(tensor).collect();
        let bindings = outputs.iter().map(|output| output.handle.clone().binding()).collect();
        let stream = outputs.first().map(|output| output.handle.stream.value);
        self.launch(client, parameters, inputs, members, stream, bindings)?;
        Ok(outputs)
    }

    /// Launches the kernels. `stream` is the client's stream if it is known.
    fn launch(
        &self,
        client: &Client,
        parameters: &[f64],
        inputs: Inputs<'_>,
        members: Members<'_, TensorHandle>,
        stream: Option<Stream>,
        outputs: Vec<BufferBinding>,
    ) -> Result<(), ReduceError> {
        let Some(launches) = &self.launches else { return Ok(()) };
        let StatedSegments { reduction, problem, members: spec, .. } = &self.stated;
        let axis = problem.axis();
        let members = spec.bind(client, members)?;
        let outputs = outputs.into_iter().zip(axis.results()).map(|(output, &element)| {
            Bound::check(client, Role::Output, output, problem.output_span(), element)
        });
        let outputs = outputs.collect::<Result<Vec<Bound<'static>>, ReduceError>>()?;
        // CubeCL does not reveal the stream of a client, but a new buffer does.
        let stream = stream.unwrap_or_else(|| client.empty(1).stream.value);
        let fields = &reduction.signature.fields[..self.operator.0.fields];
        let fields = fields.iter().map(|field| field.bytes());
        let (published, partials) = match launches.published {
            Some(count) => (Some(words(client, stream, count)?), Vec::new()),
            None => {
                let len = launches.plan.partials(problem).max(1);
                (None, partials(client, stream, len, fields)?)
            }
        };
        let launch = SegmentsLaunch {
            client,
            prepared: self,
            launches,
            parameters,
            inputs,
            members,
            outputs,
            partials,
            published,
        };
        self.noted.launch(client, |each| self.kernels(client, each));
        launch.read();
        launch.merge();
        Ok(())
    }

    /// The types of the kernel that reads.
    fn reading_types(&self, client: &Client, launches: &SegmentsLaunches) -> KernelTypesArg {
        let axis = self.stated.problem.axis();
        let indices = self.stated.problem.indices();
        KernelTypesArg {
            indices: indices.map(|indices| memory_type(indices.element)),
            stored: memory_type(axis.input()),
            second: axis.second().map(|second| memory_type(second.element())),
            width: launches.plan.access.vector,
            stores: match launches.published {
                Some(_) => Stores::Words,
                None => Stores::Elements,
            },
            ..self.merging_types(client)
        }
    }

    /// Those of the kernel that merges.
    fn merging_types(&self, client: &Client) -> KernelTypesArg {
        let offsets = Some(memory_type(self.stated.problem.offsets()));
        KernelTypesArg { offsets, ..merging_types(client, &self.stated.reduction.signature) }
    }
}

impl Launches for PreparedSegments {
    fn kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        let Some(launches) = &self.launches else { return };
        let SegmentsLaunches { plan, address, readers, mergers, .. } = launches;
        let axis = self.stated.problem.axis();
        let types = self.reading_types(client, launches);
        let reading = (types, self.operator, *address, plan.access, *readers);
        let dims = (dimensions(axis), second_access(axis, plan.access));
        each(Kernel::new("reduce_segments", (reading, dims)));
        if let Some((mergers, _)) = *mergers {
            let types = self.merging_types(client);
            let merging = (types, self.operator, *address, plan.access, mergers);
            let members = plan.units_per_output();
            each(Kernel::new("merge_segments", (merging, members, axis.kept().len())));
        }
    }
}

/// A call whose checks have all passed.
struct SegmentsLaunch<'a> {
    client: &'a Client,
    prepared: &'a PreparedSegments,
    launches: &'a SegmentsLaunches,
    parameters: &'a [f64],
    inputs: Inputs<'a>,
    members: BoundMembers<'a>,
    outputs: Vec<Bound<'static>>,
    /// What a second launch merges, or what tiles publish.
    partials: Vec<Bound<'static>>,
    published: Option<Words>,
}

impl SegmentsLaunch<'_> {
    fn read(&self) {
        let SegmentsLaunches { plan, address, readers, grid, .. } = *self.launches;
        let axis = self.prepared.stated.problem.axis();
        let access = plan.access;
        let schedule = Schedule::Cube {
            units_per_output: readers.units_per_tile,
            outputs_per_cube: plan.side_by_side,
            combine: readers.combine,
        };
        let reading = Plan::new(access, schedule);
        // SAFETY: the bound buffers hold every offset of the problem. The plan's check has found
        // that every vector load is aligned and inside its inner dimension. The kernel reads as many
        // offsets as there are, takes no element from outside of the axis and writes no other
        // results, whatever the offsets are. The buffers of partials hold two for each tile and
        // output, or there are as many words as the plan publishes. Only launches of this stream use
        // them, one after the other.
        unsafe {
            launch_kept!(
                self.prepared.noted.first, self.client, count(grid), readers.units_per_cube,
                address;
                reduce_segments::ReduceSegments {
                    ReadOnly types: KernelTypes =
                        self.prepared.reading_types(self.client, self.launches),
                    ReadOnly input: InputArrays =
                        self.inputs.arrays(axis, access, access.peeled, self.indices(), None),
                    ReadOnly offsets: [Offset] = self.members.offsets.elements(),
                    ReadWrite target: TargetArrays = self.target(),
                    ReadWrite partials: PartialArrays = partial_arrays(&self.partials),
                    ReadOnly published: ComptimeOption<PublishedArray> = self.published().into(),
                    ReadOnly geometry: Geometry = geometry(axis, &reading),
                    ReadOnly numbers: SegmentNumbers = self.numbers(),
                    ReadOnly parameters: Parameters = self.parameters(),
                    ReadWrite cubes: usize = plan.cubes as usize,
                }
                access, readers, self.prepared.operator
            );
        }
    }

    fn merge(&self) {
        let SegmentsLaunches { plan, address, mergers, .. } = *self.launches;
        let Some((mergers, grid)) = mergers else { return };
        let axis = self.prepared.stated.problem.axis();
        // SAFETY: as in `read`. Of the partials, only those are read that tiles have left.
        unsafe {
            launch_kept!(
                self.prepared.noted.second, self.client, count(grid), mergers.units_per_cube,
                address;
                merge_segments::MergeSegments {
                    ReadOnly types: KernelTypes = self.prepared.merging_types(self.client),
                    ReadOnly offsets: [Offset] = self.members.offsets.elements(),
                    ReadWrite partials: PartialArrays = partial_arrays(&self.partials),
                    ReadWrite target: TargetArrays = self.target(),
                    ReadOnly kept: Sequence<Dim> = dims(axis.kept(), |dim| {
                        (dim.extent, dim.stride, dim.output_stride)
                    }),
                    ReadOnly numbers: SegmentNumbers = self.numbers(),
                    ReadOnly parameters: Parameters = self.parameters(),
                    ReadWrite outputs: usize = axis.outputs(),
                }
                plan.access, plan.units_per_output() as usize, mergers, self.prepared.operator
            );
        }
    }

    /// The indices, if segments do not have neighbours.
    fn indices(&self) -> Option<IndexArrayLaunch> {
        let StatedSegments { problem, members, .. } = &self.prepared.stated;
        let (indices, spec) = self.members.indices.as_ref().zip(members.indices)?;
        let len = problem.axis().reduction_len();
        Some(IndexArrayLaunch::new(indices.elements(), spec.stride, spec.count, len))
    }

    /// The words in which tiles publish their parts, if they do.
    fn published(&self) -> Option<PublishedArrayLaunch> {
        let Words { words, mark } = self.published.as_ref()?;
        Some(PublishedArrayLaunch::new(words.elements(), *mark))
    }

    fn numbers(&self) -> SegmentNumbersLaunch {
        let StatedSegments { problem, members, .. } = &self.prepared.stated;
        let plan = &self.launches.plan;
        SegmentNumbersLaunch::new(
            problem.segments(),
            problem.entries(),
            members.offsets.stride,
            problem.segment_stride(),
            plan.steps as usize,
            plan.tiles(problem),
            plan.blocks(problem) as usize,
            0,
        )
    }

    fn target(&self) -> TargetArraysLaunch {
        TargetArraysLaunch::new(result_arrays(&self.outputs), None.into())
    }

    fn parameters(&self) -> ParametersLaunch {
        parameters(self.parameters, &self.prepared.stated.reduction.signature)
    }
}
