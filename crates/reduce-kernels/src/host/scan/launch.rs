//! Launches scans.

use std::ops::Range;

use cubecl::{prelude::*, server::BufferBinding, std::tensor::TensorHandle};
use reduce_planner::{Access, ElementType, Plan, Role, Schedule};

use super::request::{PreparedScan, ScanLaunches, ScanRequest, StatedScan};
use crate::{
    element::{memory_type, storage_type},
    error::ReduceError,
    host::{
        arguments::{
            count, geometry, merging_types, parameters, partial_arrays, result_arrays,
            result_arrays_in_vectors,
        },
        bound::Bound,
        call::Call,
        companion::companion_launch,
        kept::launch_kept,
        launched::{Kernel, Launches, dimensions},
        reduce::{Inputs, check_layouts},
        scratch::{Stream, Words, partials, words},
    },
    kernels::{
        args::{
            InputArrays, KernelTypes, KernelTypesArg, PartialArrays, ResultArrays,
            ResultArraysLaunch, Stores,
        },
        geometry::{Companion, CompanionLaunch, Geometry, GeometryLaunch},
        scan::{
            Cuts, CutsLaunch, Earlier, EarlierLaunch, EarlierWordsLaunch, reduce_parts,
            scan_looking_back, scan_rows,
        },
    },
    operator::{Parameters, ParametersLaunch},
};

impl<'a> Call<'a, ScanRequest<'a>> {
    /// Launches into new row-major tensors, one for each result.
    pub(crate) fn run(
        self,
        client: &Client,
        input: &TensorHandle,
        earlier: Option<EarlierPartials>,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let prepared = self.prepared(client)?;
        let outputs = prepared.new_outputs(client);
        let launch = prepared.ready_into(client, &self.parameters, input, &outputs)?;
        launch.into_iter().for_each(|launch| launch.run(earlier.as_ref()));
        Ok(outputs)
    }

    /// Launches into tensors that the caller supplies.
    pub(crate) fn run_into(
        self,
        client: &Client,
        input: &TensorHandle,
        earlier: Option<EarlierPartials>,
        outputs: &[TensorBinding],
    ) -> Result<(), ReduceError> {
        let prepared = self.prepared(client)?;
        check_layouts(&prepared.stated.shape, outputs)?;
        let bindings = outputs.iter().map(|output| output.handle.clone()).collect();
        let launch = prepared.ready(client, &self.parameters, input, None, bindings)?;
        launch.into_iter().for_each(|launch| launch.run(earlier.as_ref()));
        Ok(())
    }
}

impl PreparedScan {
    /// New row-major tensors, one for each result.
    pub(in crate::host) fn new_outputs(&self, client: &Client) -> Vec<TensorHandle> {
        let problem = &self.stated.problem;
        let tensor = |&element: &ElementType| {
            // A buffer of 0 bytes cannot be bound.
            let handle = client.empty(problem.elements().max(1) * element.bytes());
            let shape = self.stated.shape.clone();
            TensorHandle::new_contiguous(shape, handle, storage_type(element))
        };
        problem.problem().results().iter().map(tensor).collect()
    }

    /// [`ready`](Self::ready) into new tensors.
    pub(in crate::host) fn ready_into<'c>(
        &'c self,
        client: &'c Client,
        parameters: &'c [f64],
        input: &'c TensorHandle,
        outputs: &[TensorHandle],
    ) -> Result<Option<ScanLaunch<'c>>, ReduceError> {
        let bindings = outputs.iter().map(|output| output.handle.clone().binding()).collect();
        let stream = outputs.first().map(|output| output.handle.stream.value);
        self.ready(client, parameters, input, stream, bindings)
    }

    /// A launch of the kernels that cannot be refused any more; `None` if there is nothing to
    /// launch. `stream` is the client's stream if it is known.
    fn ready<'c>(
        &'c self,
        client: &'c Client,
        parameters: &'c [f64],
        input: &'c TensorHandle,
        stream: Option<Stream>,
        outputs: Vec<BufferBinding>,
    ) -> Result<Option<ScanLaunch<'c>>, ReduceError> {
        let Some(launches) = &self.launches else { return Ok(None) };
        let problem = &self.stated.problem;
        let of_row = problem.problem();
        let inputs = Inputs::bind(client, of_row, input, None)?;
        let outputs = outputs.into_iter().zip(of_row.results()).map(|(output, &element)| {
            Bound::check(client, Role::Output, output, of_row.output_span(), element)
        });
        let outputs = outputs.collect::<Result<Vec<Bound<'static>>, ReduceError>>()?;
        // CubeCL does not reveal the stream of a client, but a new buffer does.
        let stream = || stream.unwrap_or_else(|| client.empty(1).stream.value);
        let published = match launches.published {
            Some(count) => Some(words(client, stream(), count)?),
            None => None,
        };
        let partials = match launches.plan.launches() {
            1 => Vec::new(),
            _ => {
                let fields = &self.stated.signature.fields[..self.operator.0.fields];
                let fields = fields.iter().map(|field| field.bytes());
                partials(client, stream(), launches.plan.partials(problem) as usize, fields)?
            }
        };
        Ok(Some(ScanLaunch {
            client,
            prepared: self,
            launches,
            parameters,
            inputs,
            outputs,
            partials,
            published,
        }))
    }
}

/// The types of the kernels of a scan.
pub(in crate::host) fn types(
    client: &Client,
    stated: &StatedScan,
    launches: &ScanLaunches,
) -> KernelTypesArg {
    KernelTypesArg {
        stored: memory_type(stated.problem.problem().input()),
        width: launches.spec.access.vector,
        chains: launches.chains,
        stores: Stores::results(launches.in_vectors),
        of_shard: stated.problem.problem().is_shard(),
        ..merging_types(client, &stated.signature)
    }
}

/// The outputs: as vectors, as elements, or as both where rows end inside vectors.
pub(in crate::host) fn output_arrays(
    launches: &ScanLaunches,
    outputs: &[Bound<'_>],
) -> ResultArraysLaunch {
    let ScanLaunches { in_vectors, spec, .. } = launches;
    let Access { vector, peeled, .. } = spec.access;
    match (in_vectors, peeled) {
        (false, _) => result_arrays(outputs),
        (true, true) => result_arrays_in_vectors(outputs, vector),
        (true, false) => {
            let mut arrays = outputs.iter().map(|output| output.vectors(vector));
            ResultArraysLaunch::new(
                None.into(),
                None.into(),
                None.into(),
                arrays.next().into(),
                arrays.next().into(),
                arrays.next().into(),
            )
        }
    }
}

impl Launches for PreparedScan {
    fn kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        let Some(launches) = &self.launches else { return };
        let types = types(client, &self.stated, launches);
        let dims = dimensions(self.stated.problem.problem());
        let scans = (types, self.operator, launches.address, launches.spec, dims);
        if launches.plan.launches() > 1 {
            each(Kernel::new("reduce_parts", scans));
        }
        match launches.published {
            Some(_) => each(Kernel::new("scan_looking_back", (scans, launches.groups()))),
            None => each(Kernel::new("scan_rows", scans)),
        }
    }
}

/// Partial results that come before the rows of a scan.
pub(crate) struct EarlierPartials {
    pub(crate) words: Bound<'static>,
    /// The slots of the words that come before the rows.
    pub(crate) slots: Range<usize>,
    /// Elements of each row that went into these slots.
    pub(crate) elements: usize,
}

/// A call whose checks have all passed.
pub(in crate::host) struct ScanLaunch<'a> {
    client: &'a Client,
    prepared: &'a PreparedScan,
    launches: &'a ScanLaunches,
    parameters: &'a [f64],
    inputs: Inputs<'a>,
    outputs: Vec<Bound<'static>>,
    /// The accumulators of parts, where rows have several and an earlier launch leaves them.
    partials: Vec<Bound<'static>>,
    /// The words in which the cubes of a row publish theirs, if they do.
    published: Option<Words>,
}

impl ScanLaunch<'_> {
    /// Launches the kernels. `earlier` comes before the rows.
    pub(in crate::host) fn run(self, earlier: Option<&EarlierPartials>) {
        let prepared = self.prepared;
        prepared.noted.launch(self.client, |each| prepared.kernels(self.client, each));
        if self.launches.plan.launches() > 1 {
            self.reduce_parts();
        }
        match &self.published {
            Some(published) => self.scan_looking_back(published, earlier),
            None => self.scan(earlier),
        }
    }

    fn reduce_parts(&self) {
        let ScanLaunches { spec, grid, address, .. } = *self.launches;
        let of_row = self.prepared.stated.problem.problem();
        // SAFETY: the bound buffers hold every offset of the problem, and an accumulator of each
        // output and cube. The plan's check has found that every vector load is aligned and inside
        // its inner dimension; loads past the end of a row repeat its last. Only launches of this
        // stream use the accumulators, one after the other.
        unsafe {
            launch_kept!(
                self.prepared.noted.first, self.client, count(grid), spec.team.units_per_cube,
                address;
                reduce_parts::ReduceParts {
                    ReadOnly types: KernelTypes = self.types(),
                    ReadOnly input: InputArrays =
                        self.inputs.arrays(of_row, spec.access, spec.access.peeled, None, None),
                    ReadWrite partials: PartialArrays = partial_arrays(&self.partials),
                    ReadOnly geometry: Geometry = self.geometry(),
                    ReadOnly cuts: Cuts = self.cuts(),
                    ReadOnly parameters: Parameters = self.parameters(),
                }
                spec, self.prepared.operator
            );
        }
    }

    fn scan(&self, earlier: Option<&EarlierPartials>) {
        let ScanLaunches { spec, grid, address, .. } = *self.launches;
        let of_row = self.prepared.stated.problem.problem();
        // SAFETY: as in `reduce_parts`. Results are stored as vectors only where these lie in the
        // outputs as those of the input do, at multiples of their bytes. An output in place of the
        // input is safe: a unit writes an element after it has read it for the last time, and what
        // others read of it has no use. The words of what comes before the rows hold the slots that
        // are named beside them.
        unsafe {
            launch_kept!(
                self.prepared.noted.second, self.client, count(grid), spec.team.units_per_cube,
                address;
                scan_rows::ScanRows {
                    ReadOnly types: KernelTypes = self.types(),
                    ReadOnly input: InputArrays =
                        self.inputs.arrays(of_row, spec.access, spec.access.peeled, None, None),
                    ReadWrite results: ResultArrays = output_arrays(self.launches, &self.outputs),
                    ReadWrite partials: PartialArrays = partial_arrays(&self.partials),
                    ReadOnly geometry: Geometry = self.geometry(),
                    ReadOnly output: Companion = self.output(),
                    ReadOnly cuts: Cuts = self.cuts(),
                    ReadOnly earlier: Earlier = self.earlier(earlier),
                    ReadOnly parameters: Parameters = self.parameters(),
                }
                spec, self.prepared.operator
            );
        }
    }

    fn scan_looking_back(&self, published: &Words, earlier: Option<&EarlierPartials>) {
        let ScanLaunches { spec, grid, address, .. } = *self.launches;
        let of_row = self.prepared.stated.problem.problem();
        // SAFETY: as in `scan`. There are as many words as all cubes of the grid publish, and only
        // launches of this stream use them, one after the other.
        unsafe {
            launch_kept!(
                self.prepared.noted.second, self.client, count(grid), spec.team.units_per_cube,
                address;
                scan_looking_back::ScanLookingBack {
                    ReadOnly types: KernelTypes = self.types(),
                    ReadOnly input: InputArrays =
                        self.inputs.arrays(of_row, spec.access, spec.access.peeled, None, None),
                    ReadWrite results: ResultArrays = output_arrays(self.launches, &self.outputs),
                    ReadWrite words: [Atomic<u64>] = published.words.elements(),
                    ReadOnly geometry: Geometry = self.geometry(),
                    ReadOnly output: Companion = self.output(),
                    ReadOnly cuts: Cuts = self.cuts(),
                    ReadOnly earlier: Earlier = self.earlier(earlier),
                    ReadOnly parameters: Parameters = self.parameters(),
                    ReadWrite mark: u64 = published.mark,
                }
                self.launches.groups(), spec, self.prepared.operator
            );
        }
    }

    fn types(&self) -> KernelTypesArg {
        types(self.client, &self.prepared.stated, self.launches)
    }

    fn geometry(&self) -> GeometryLaunch {
        let plan = &self.launches.plan;
        let schedule = Schedule::Cube {
            units_per_output: plan.units_per_output,
            outputs_per_cube: plan.outputs_per_cube,
            combine: plan.combine,
        };
        geometry(self.prepared.stated.problem.problem(), &Plan::new(plan.access, schedule))
    }

    fn output(&self) -> CompanionLaunch {
        let direction = self.launches.spec.access.direction;
        companion_launch(self.prepared.stated.problem.output(), direction, 0)
    }

    fn cuts(&self) -> CutsLaunch {
        let (plan, problem) = (&self.launches.plan, &self.prepared.stated.problem);
        let (chunks, each) = (plan.chunks(problem), plan.chunks_per_cube(problem));
        CutsLaunch::new(plan.cubes_per_output as usize, chunks as usize, each as usize)
    }

    fn earlier(&self, earlier: Option<&EarlierPartials>) -> EarlierLaunch {
        let problem = &self.prepared.stated.problem;
        let words = earlier.zip(problem.earlier()).map(|(earlier, strides)| {
            let EarlierPartials { words, slots, elements } = earlier;
            let rows = companion_launch(strides, self.launches.spec.access.direction, 0);
            EarlierWordsLaunch::new(words.elements(), slots.start, slots.len(), *elements, rows)
        });
        EarlierLaunch::new(words.into())
    }

    fn parameters(&self) -> ParametersLaunch {
        parameters(self.parameters, &self.prepared.stated.signature)
    }
}
