//! One call that applies the results of a list to its elements.

use std::{cell::RefCell, rc::Rc, thread::LocalKey};

use cubecl::{prelude::*, server::Handle, std::tensor::TensorHandle};
use reduce_planner::{
    Device, ElementType, InputSpec, ListApplication, ListProblem, choose_list_application,
    row_major_strides,
};

use super::{
    application::check_apply_types,
    buffers::byte_count,
    cache::{self, Held, Known, Remembered},
    client::has_hardware_math,
    launch::{count, result_arrays},
    list::{
        ListCall, ListRequest, ListResult, PreparedLaunch, TableWords, Tables, check_tensors,
        prepare_launch, problem_bytes,
    },
};
use crate::{
    ReduceError,
    element::{memory_type, storage_type},
    kernels::{
        args::{ApplicationTypes, KernelTypesArg, ListArraysLaunch},
        list::apply_to_list,
    },
    operator::{ApplyRef, ParametersLaunch},
};

/// Everything that decides how the results of a list are applied, apart from its buffers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApplyListRequest {
    /// The reduction, whose results have the type in which they are applied.
    pub(crate) list: Rc<ListRequest>,
    pub(crate) apply: ApplyRef,
    /// Whether the elements are replaced.
    pub(crate) in_place: bool,
}

/// An application that is ready to launch, except for its buffers.
#[derive(Debug)]
pub(crate) struct PreparedListApplication {
    problem: ListProblem,
    /// Strides of the outputs.
    strides: Vec<Vec<usize>>,
    units_per_cube: u32,
    launches: Vec<PreparedLaunch>,
    tables: Tables,
    /// Type in which results are applied, which is that of the results.
    real: ElementType,
    results: usize,
}

/// An application that has been stated.
struct StatedApplication {
    problem: ListProblem,
    /// Strides of the outputs.
    strides: Vec<Vec<usize>>,
    /// Type in which results are applied.
    real: ElementType,
    /// Number of results.
    results: usize,
}

/// New tensors, and the results of a reduction.
pub(crate) type Outcome = (Vec<TensorHandle>, Vec<ListResult>);

impl ApplyListRequest {
    /// States the application. New outputs lie as their inputs do where these have no gaps, and are
    /// row-major otherwise.
    fn state(&self, inputs: &[InputSpec<'_>]) -> Result<StatedApplication, ReduceError> {
        let apply = self.apply.0.name;
        let integers = inputs.iter().find(|input| !input.element.is_float());
        if let Some(input) = integers {
            return Err(ReduceError::AppliedType { apply, output: input.element });
        }
        let resolved = self.list.resolve(inputs)?;
        let strides = |(input, tensor): (&InputSpec<'_>, &reduce_planner::Problem)| {
            let without_gaps = match tensor.reduced() {
                [] => true,
                [dim] => dim.stride == 1,
                _ => false,
            };
            match self.in_place || without_gaps {
                true => input.strides.to_vec(),
                false => row_major_strides(input.shape),
            }
        };
        let strides: Vec<Vec<usize>> =
            inputs.iter().zip(resolved.problem.tensors()).map(strides).collect();
        let slices: Vec<&[usize]> = strides.iter().map(Vec::as_slice).collect();
        let problem = ListProblem::applied(resolved.problem.operator(), inputs, &slices)?;
        let results = resolved.problem.results().len();
        let real = resolved.signature.results[0];
        Ok(StatedApplication { problem, strides, real, results })
    }

    fn prepare(
        &self,
        client: &Client,
        device: &Device,
        inputs: &[InputSpec<'_>],
    ) -> Result<PreparedListApplication, ReduceError> {
        let StatedApplication { problem, strides, real, results } = self.state(inputs)?;
        check_apply_types(client, device, self.apply.0, real)?;
        let chosen = choose_list_application(&problem, results, self.in_place, device)?;
        let units_per_cube = chosen.units_per_cube;
        let no_partials = vec![0; inputs.len() + 1];
        let mut tables = TableWords::new(client);
        let launches = chosen.launches.iter().map(|launch| {
            prepare_launch(&mut tables, launch, units_per_cube, &problem, device, &no_partials)
        });
        let launches = launches.collect::<Result<_, ReduceError>>()?;
        let tables = tables.write(client)?;
        Ok(PreparedListApplication {
            problem,
            strides,
            units_per_cube,
            launches,
            tables,
            real,
            results,
        })
    }
}

thread_local! {
    static KNOWN: RefCell<Known<ApplyListRequest>> = RefCell::default();
}

impl Remembered for ApplyListRequest {
    type Prepared = PreparedListApplication;

    fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
        &KNOWN
    }

    fn held(&self, prepared: &PreparedListApplication) -> Held {
        let PreparedListApplication { problem, strides, launches, tables, .. } = prepared;
        let launches: usize = launches.iter().map(PreparedLaunch::bytes).sum();
        let of_strides = |strides: &Vec<usize>| size_of_val(strides) + size_of_val(&strides[..]);
        let strides: usize = strides.iter().map(of_strides).sum();
        let own = size_of::<PreparedListApplication>();
        let host = own + problem_bytes(problem) + launches + strides;
        Held { host: host + self.list.bytes(), device: tables.bytes() }
    }
}

/// A call that applies the results of a list.
pub(crate) struct ApplyListCall<'a> {
    pub(crate) list: ListCall<'a>,
    pub(crate) apply: ApplyRef,
    pub(crate) apply_parameters: Vec<f64>,
}

impl ApplyListCall<'_> {
    fn request(&self, in_place: bool) -> ApplyListRequest {
        ApplyListRequest { list: Rc::clone(&self.list.request), apply: self.apply, in_place }
    }

    /// Chooses the launches of the application.
    pub(crate) fn choose(
        &self,
        client: &Client,
        in_place: bool,
    ) -> Result<ListApplication, ReduceError> {
        let request = self.request(in_place);
        let StatedApplication { problem, real, results, .. } = request.state(&self.list.inputs)?;
        let of_client = cache::device(client);
        let device = self.list.device.unwrap_or(&of_client);
        check_apply_types(client, device, self.apply.0, real)?;
        Ok(choose_list_application(&problem, results, in_place, device)?)
    }

    /// Plans the reduction and the application for tensors whose buffers have these many bytes;
    /// `None` if there is no buffer.
    pub(crate) fn check(
        &self,
        client: &Client,
        bytes: &[Option<u64>],
        in_place: bool,
    ) -> Result<(), ReduceError> {
        self.list.check(client, bytes)?;
        self.choose(client, in_place)?;
        let outputs = if in_place { &[][..] } else { &self.list.inputs[..] };
        outputs.iter().try_for_each(|tensor| output_bytes(client, tensor).map(|_| ()))
    }

    /// Launches the reduction and the application, into new tensors or in place. Returns the new
    /// tensors, of which there are none in place, and the results of the reduction.
    pub(crate) fn run(
        self,
        client: &Client,
        tensors: &[&TensorHandle],
        in_place: bool,
    ) -> Result<Outcome, ReduceError> {
        let request = self.request(in_place);
        let inputs = &self.list.inputs;
        let prepared = match self.list.device {
            Some(device) => Rc::new(request.prepare(client, device, inputs)?),
            None => cache::prepared(cache::identity(client), &request, |request| {
                request.prepare(client, &cache::device(client), inputs)
            })?,
        };
        check_tensors(client, &prepared.problem, tensors)?;
        let mut outputs: Vec<TensorHandle> = Vec::new();
        if !in_place {
            for (tensor, strides) in inputs.iter().zip(&prepared.strides) {
                let handle = client.empty(output_bytes(client, tensor)?);
                let storage = storage_type(tensor.element);
                outputs.push(TensorHandle::new(handle, tensor.shape, &strides[..], storage));
            }
        }
        let apply = self.apply;
        let apply_parameters = self.apply_parameters;
        let results = self.list.run(client, tensors)?;
        let launch = Launch {
            client,
            apply,
            prepared: &prepared,
            parameters: &apply_parameters,
            tensors,
            outputs: &outputs,
            results: &results,
        };
        prepared.launches.iter().for_each(|reading| launch.run(reading));
        Ok((outputs, results))
    }
}

/// Bytes of the memory of a new output that a tensor of the list becomes. A buffer of 0 bytes
/// cannot be bound.
fn output_bytes(client: &Client, tensor: &InputSpec<'_>) -> Result<usize, ReduceError> {
    let available = client.properties().memory.max_page_size;
    let needed = byte_count(tensor.shape.iter().product(), tensor.element);
    match needed > available {
        true => Err(ReduceError::OutputTooLarge { needed, available }),
        false => Ok((needed as usize).max(tensor.element.bytes())),
    }
}

/// A call whose checks have all passed.
struct Launch<'a> {
    client: &'a Client,
    apply: ApplyRef,
    prepared: &'a PreparedListApplication,
    parameters: &'a [f64],
    tensors: &'a [&'a TensorHandle],
    /// None if the elements are replaced.
    outputs: &'a [TensorHandle],
    results: &'a [ListResult],
}

impl Launch<'_> {
    fn run(&self, reading: &PreparedLaunch) {
        let PreparedLaunch { launch, grid, address, .. } = reading;
        let PreparedListApplication { problem, units_per_cube, real, results, .. } = self.prepared;
        let access = launch.access;
        let of_input = |tensor: usize| -> (&Handle, usize) {
            (&self.tensors[tensor].handle, problem.tensors()[tensor].input_span())
        };
        let of_output = |tensor: usize| -> (&Handle, usize) {
            // Without gaps, or row-major: it spans no more than its elements.
            (&self.outputs[tensor].handle, problem.tensors()[tensor].reduction_len())
        };
        let (inputs, outputs) = match self.outputs.is_empty() {
            true => (
                ListArraysLaunch::new(SequenceArg::new(), SequenceArg::new()),
                reading.arrays(of_input),
            ),
            false => (reading.arrays(of_input), reading.arrays(of_output)),
        };
        // The result of all is one element.
        let of_all = self.results.iter().map(|result| result.all.handle.clone().binding());
        let results_of_all = result_arrays(of_all, 1);
        debug_assert_eq!(*results, self.results.len());
        let (stored, real_type) = (memory_type(reading.element), memory_type(*real));
        let types = KernelTypesArg {
            stored,
            second: None,
            value: real_type,
            fields: [real_type; 5],
            results: [real_type; 3],
            width: access.vector,
            hardware_math: has_hardware_math(self.client),
            chains: false,
            application: Some(ApplicationTypes {
                real: real_type,
                output: stored,
                operands: [real_type; 3],
            }),
        };
        // SAFETY: the buffers hold every offset of their problems, inputs and outputs. Vector loads
        // and stores are aligned and inside their inner dimensions. The table names the
        // tensors that are bound.
        unsafe {
            apply_to_list::launch_unchecked(
                self.client,
                count(*grid),
                CubeDim::new_1d(*units_per_cube),
                *address,
                types,
                inputs,
                outputs,
                reading.table(&self.prepared.tables),
                results_of_all,
                ParametersLaunch::of(self.parameters, storage_type(*real)),
                launch.cubes() as usize,
                launch.outer_dims,
                access,
                *units_per_cube,
                self.apply,
            );
        }
    }
}
