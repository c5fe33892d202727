//! Launches scans.

use cubecl::{prelude::*, server::BufferBinding, std::tensor::TensorHandle};
use reduce_planner::{ElementType, Plan, Role, Schedule};

use super::request::{PreparedScan, ScanLaunches, ScanRequest};
use crate::{
    element::{memory_type, storage_type},
    error::ReduceError,
    host::{
        arguments::{count, geometry, merging_types, parameters, partial_arrays, result_arrays},
        bound::Bound,
        call::Call,
        companion::companion_launch,
        launched::{Kernel, Launches, dimensions},
        reduce::{Inputs, check_layouts},
        scratch::{Stream, Words, partials, words},
    },
    kernels::{
        args::{KernelTypesArg, ResultArraysLaunch, Stores},
        geometry::{CompanionLaunch, GeometryLaunch},
        scan::{CutsLaunch, reduce_parts, scan_looking_back, scan_rows},
    },
    operator::ParametersLaunch,
};

impl<'a> Call<'a, ScanRequest<'a>> {
    /// Launches into new row-major tensors, one for each result.
    pub(crate) fn run(
        self,
        client: &Client,
        input: &TensorHandle,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let prepared = self.prepared(client)?;
        let problem = &prepared.stated.problem;
        let tensor = |&element: &ElementType| {
            // A buffer of 0 bytes cannot be bound.
            let handle = client.empty(problem.elements().max(1) * element.bytes());
            let shape = prepared.stated.shape.clone();
            TensorHandle::new_contiguous(shape, handle, storage_type(element))
        };
        let outputs: Vec<TensorHandle> = problem.problem().results().iter().map(tensor).collect();
        let bindings = outputs.iter().map(|output| output.handle.clone().binding()).collect();
        let stream = outputs.first().map(|output| output.handle.stream.value);
        prepared.launch(client, &self.parameters, input, stream, bindings)?;
        Ok(outputs)
    }

    /// Launches into tensors that the caller supplies.
    pub(crate) fn run_into(
        self,
        client: &Client,
        input: &TensorHandle,
        outputs: &[TensorBinding],
    ) -> Result<(), ReduceError> {
        let prepared = self.prepared(client)?;
        check_layouts(&prepared.stated.shape, outputs)?;
        let bindings = outputs.iter().map(|output| output.handle.clone()).collect();
        prepared.launch(client, &self.parameters, input, None, bindings)
    }
}

impl PreparedScan {
    /// Launches the kernels. `stream` is the client's stream if it is known.
    fn launch(
        &self,
        client: &Client,
        parameters: &[f64],
        input: &TensorHandle,
        stream: Option<Stream>,
        outputs: Vec<BufferBinding>,
    ) -> Result<(), ReduceError> {
        let Some(launches) = &self.launches else { return Ok(()) };
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
        self.noted.launch(client, |each| self.kernels(client, each));
        let launch =
            ScanLaunch { client, prepared: self, launches, parameters, inputs, outputs, partials };
        if launches.plan.launches() > 1 {
            launch.reduce_parts();
        }
        match published {
            Some(published) => launch.scan_looking_back(&published),
            None => launch.scan(),
        }
        Ok(())
    }

    fn types(&self, client: &Client, launches: &ScanLaunches) -> KernelTypesArg {
        KernelTypesArg {
            stored: memory_type(self.stated.problem.problem().input()),
            width: launches.spec.access.vector,
            chains: launches.chains,
            stores: Stores::results(launches.in_vectors),
            ..merging_types(client, &self.stated.signature)
        }
    }
}

impl Launches for PreparedScan {
    fn kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        let Some(launches) = &self.launches else { return };
        let types = self.types(client, launches);
        let dims = dimensions(self.stated.problem.problem());
        let scans = (types, self.operator, launches.address, launches.spec, dims);
        if launches.plan.launches() > 1 {
            each(Kernel::new("reduce_parts", scans));
        }
        match launches.published {
            Some(_) => each(Kernel::new("scan_looking_back", (scans, launches.plan.levels()))),
            None => each(Kernel::new("scan_rows", scans)),
        }
    }
}

/// A call whose checks have all passed.
struct ScanLaunch<'a> {
    client: &'a Client,
    prepared: &'a PreparedScan,
    launches: &'a ScanLaunches,
    parameters: &'a [f64],
    inputs: Inputs<'a>,
    outputs: Vec<Bound<'static>>,
    /// The accumulators of parts, where rows have several.
    partials: Vec<Bound<'static>>,
}

impl ScanLaunch<'_> {
    fn reduce_parts(&self) {
        let ScanLaunches { spec, grid, address, .. } = *self.launches;
        let of_row = self.prepared.stated.problem.problem();
        // SAFETY: the bound buffers hold every offset of the problem, and an accumulator of each
        // output and cube. The plan's check has found that every vector load is aligned and inside
        // its inner dimension; loads past the end of a row repeat its last. Only launches of this
        // stream use the accumulators, one after the other.
        unsafe {
            reduce_parts::launch_unchecked(
                self.client,
                count(grid),
                CubeDim::new_1d(spec.team.units_per_cube),
                address,
                self.prepared.types(self.client, self.launches),
                self.inputs.arrays(of_row, spec.access, false, None),
                partial_arrays(&self.partials),
                self.geometry(),
                self.cuts(),
                self.parameters(),
                spec,
                self.prepared.operator,
            );
        }
    }

    fn scan(&self) {
        let ScanLaunches { spec, grid, address, .. } = *self.launches;
        let of_row = self.prepared.stated.problem.problem();
        // SAFETY: as in `reduce_parts`. Results are stored as vectors only where these lie in the
        // outputs as those of the input do, at multiples of their bytes. An output in place of the
        // input is safe: a unit writes an element after it has read it for the last time, and what
        // others read of it has no use.
        unsafe {
            scan_rows::launch_unchecked(
                self.client,
                count(grid),
                CubeDim::new_1d(spec.team.units_per_cube),
                address,
                self.prepared.types(self.client, self.launches),
                self.inputs.arrays(of_row, spec.access, false, None),
                self.results(),
                partial_arrays(&self.partials),
                self.geometry(),
                self.output(),
                self.cuts(),
                self.parameters(),
                spec,
                self.prepared.operator,
            );
        }
    }

    fn scan_looking_back(&self, published: &Words) {
        let ScanLaunches { plan, spec, grid, address, .. } = *self.launches;
        let of_row = self.prepared.stated.problem.problem();
        // SAFETY: as in `scan`. There are as many words as all cubes of the grid publish, and only
        // launches of this stream use them, one after the other.
        unsafe {
            scan_looking_back::launch_unchecked(
                self.client,
                count(grid),
                CubeDim::new_1d(spec.team.units_per_cube),
                address,
                self.prepared.types(self.client, self.launches),
                self.inputs.arrays(of_row, spec.access, false, None),
                self.results(),
                published.words.elements(),
                self.geometry(),
                self.output(),
                self.cuts(),
                self.parameters(),
                published.mark,
                plan.levels(),
                spec,
                self.prepared.operator,
            );
        }
    }

    /// The outputs, as vectors or as elements.
    fn results(&self) -> ResultArraysLaunch {
        if !self.launches.in_vectors {
            return result_arrays(&self.outputs);
        }
        let vector = self.launches.spec.access.vector;
        let mut arrays = self.outputs.iter().map(|output| output.vectors(vector));
        ResultArraysLaunch::new(
            None.into(),
            None.into(),
            None.into(),
            arrays.next().into(),
            arrays.next().into(),
            arrays.next().into(),
        )
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

    fn parameters(&self) -> ParametersLaunch {
        parameters(self.parameters, &self.prepared.stated.signature)
    }
}
