//! The application of a list's results to its elements.

use core::hash::{Hash, Hasher};
use std::{cell::RefCell, rc::Rc, thread::LocalKey};

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{
    AppliedListPlan, AppliedListProblem, Device, ElementType, InputSpec, ListPlan, Problem,
    row_major_strides,
};

use super::{
    launch::ListResult,
    reading::{PreparedLaunch, TableWords, Tables, prepare_launch},
    request::{
        ListRequest, ListTask, PreparedList, StatedList, bind_tensors, check_tensor_bytes,
        problem_bytes,
    },
};
#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedList, RecordedListApplication};
use crate::{
    element::{memory_type, storage_type},
    error::{Reason, ReduceError},
    host::{
        arguments::{count, result_arrays},
        bound::{Bound, output_bytes},
        cache::{Asked, Held, Known, Remembered},
        call::{Call, Task, prepare},
        client::has_hardware_math,
        kept::launch_kept,
        launched::{Kernel, Launches, Noted},
        types::{check_apply_types, check_arithmetic},
    },
    kernels::{
        args::{
            ApplicationTypes, KernelTypes, KernelTypesArg, ListArrays, ListArraysLaunch,
            ResultArrays, Stores,
        },
        list::apply_to_list,
    },
    operator::{ApplyRef, Parameters, ParametersLaunch, Signature},
};

/// Everything that decides how the results of a list are applied, apart from its buffers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApplyListRequest {
    /// The reduction, whose results have the type in which they are applied.
    pub(crate) list: Rc<ListRequest>,
    pub(crate) apply: ApplyRef,
    /// Whether the elements are replaced.
    pub(crate) in_place: bool,
    pub(crate) plan: Option<AppliedListPlan>,
}

/// A request, and where its tensors lie.
pub(crate) struct ApplyListTask<'a> {
    pub(crate) request: ApplyListRequest,
    pub(crate) inputs: Vec<InputSpec<'a>>,
}

/// An application that has been stated.
#[derive(Debug)]
pub(crate) struct StatedListApplication {
    pub(crate) problem: AppliedListProblem,
    /// The types of the reduction.
    signature: Signature,
    /// Strides of the outputs.
    strides: Vec<Vec<usize>>,
}

impl StatedListApplication {
    /// Type in which results are applied, which is that of the results.
    fn real(&self) -> ElementType {
        self.signature.results[0]
    }
}

/// An application that is ready to launch, except for its buffers.
#[derive(Debug)]
pub(crate) struct PreparedListApplication {
    apply: ApplyRef,
    stated: StatedListApplication,
    reduction: PreparedList,
    units_per_cube: u32,
    launches: Vec<PreparedLaunch>,
    tables: Tables,
    /// Whether the elements are replaced.
    in_place: bool,
    noted: Noted,
}

/// The launches of a plan.
pub(crate) struct ApplyingLaunches {
    /// The plan of the reduction, which is launched first.
    reduce: ListPlan,
    units_per_cube: u32,
    launches: Vec<PreparedLaunch>,
    tables: TableWords,
}

/// New tensors, and the results of a reduction.
pub(crate) type Outcome = (Vec<TensorHandle>, Vec<ListResult>);

impl ApplyListTask<'_> {
    /// The reduction, by this plan if there is one.
    fn reduction(&self, plan: Option<ListPlan>) -> ListTask<'_> {
        let request = match plan {
            None => Rc::clone(&self.request.list),
            plan => Rc::new(ListRequest { plan, ..ListRequest::clone(&self.request.list) }),
        };
        ListTask { request, inputs: self.inputs.clone() }
    }
}

impl Hash for ApplyListTask<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.request.hash(state);
    }
}

impl Asked for ApplyListTask<'_> {
    type Request = ApplyListRequest;

    fn is(&self, known: &ApplyListRequest) -> bool {
        self.request == *known
    }

    fn to_request(&self) -> ApplyListRequest {
        self.request.clone()
    }
}

/// The tensors are those of the list, in its order.
impl Task for ApplyListTask<'_> {
    type Stated = StatedListApplication;
    type Problem = AppliedListProblem;
    type Launch = ApplyingLaunches;

    /// New outputs lie as their inputs do where these have no gaps, and are row-major otherwise.
    fn state(&self) -> Result<StatedListApplication, ReduceError> {
        let ApplyListRequest { apply, in_place, .. } = self.request;
        let integers = self.inputs.iter().find(|input| !input.element.is_float());
        if let Some(input) = integers {
            return Err(Reason::AppliedType { apply: apply.0.name, output: input.element }.into());
        }
        let StatedList { problem, signature } = self.reduction(None).state()?;
        let strides = |(input, tensor): (&InputSpec<'_>, &Problem)| {
            let without_gaps = match tensor.reduced() {
                [] => true,
                [dim] => dim.stride == 1,
                _ => false,
            };
            match in_place || without_gaps {
                true => input.strides.to_vec(),
                false => row_major_strides(input.shape),
            }
        };
        let strides: Vec<Vec<usize>> =
            self.inputs.iter().zip(problem.tensors()).map(strides).collect();
        let slices: Vec<&[usize]> = strides.iter().map(Vec::as_slice).collect();
        let problem = AppliedListProblem::new(problem, &self.inputs, &slices, in_place)?;
        Ok(StatedListApplication { problem, signature, strides })
    }

    fn problem(stated: &StatedListApplication) -> &AppliedListProblem {
        &stated.problem
    }

    fn given(&self) -> Option<&AppliedListPlan> {
        self.request.plan.as_ref()
    }

    fn check_types(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedListApplication,
    ) -> Result<(), ReduceError> {
        check_arithmetic(client, self.request.list.operator.0, &stated.signature, device)?;
        check_apply_types(client, device, self.request.apply.0, stated.real())
    }

    fn check_bytes(
        &self,
        stated: &StatedListApplication,
        bytes: &[Option<u64>],
    ) -> Result<(), ReduceError> {
        check_tensor_bytes(stated.problem.elements().tensors(), bytes.iter().copied())
    }

    fn check_outputs(&self, client: &Client, _: &StatedListApplication) -> Result<(), ReduceError> {
        let outputs = if self.request.in_place { &[][..] } else { &self.inputs[..] };
        outputs.iter().try_for_each(|tensor| output_bytes(client, tensor).map(|_| ()))
    }

    /// The results of an empty list, or of empty tensors, are launched too.
    fn is_empty(_: &StatedListApplication) -> bool {
        false
    }

    fn launch(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedListApplication,
        plan: &AppliedListPlan,
    ) -> Result<ApplyingLaunches, ReduceError> {
        let units_per_cube = plan.apply.units_per_cube;
        let elements = stated.problem.elements();
        let no_partials = vec![0; self.inputs.len() + 1];
        let mut tables = TableWords::new(client);
        let launches = plan.apply.launches.iter().map(|launch| {
            prepare_launch(&mut tables, launch, units_per_cube, elements, device, &no_partials)
        });
        let launches = launches.collect::<Result<_, ReduceError>>()?;
        Ok(ApplyingLaunches { reduce: plan.reduce.clone(), units_per_cube, launches, tables })
    }

    /// The reduction is prepared like any other, by the plan that it has in this one.
    fn prepare(
        &self,
        client: &Client,
        device: &Device,
        stated: StatedListApplication,
        launch: Option<ApplyingLaunches>,
    ) -> Result<PreparedListApplication, ReduceError> {
        let ApplyingLaunches { reduce, units_per_cube, launches, tables } =
            launch.expect("no list is empty");
        let reduction = prepare(&self.reduction(Some(reduce)), client, device, false, |_| None)?;
        let tables = tables.write(client)?;
        Ok(PreparedListApplication {
            apply: self.request.apply,
            stated,
            reduction,
            units_per_cube,
            launches,
            tables,
            in_place: self.request.in_place,
            noted: Noted::default(),
        })
    }

    #[cfg(feature = "serde")]
    fn recorded(&self) -> Option<RecordedCall> {
        let recorded = || RecordedListApplication::of(&self.request, &self.inputs);
        self.request.plan.is_none().then(|| RecordedCall::ListApplication(recorded()))
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
        let PreparedListApplication { stated, reduction, launches, tables, .. } = prepared;
        let launches: usize = launches.iter().map(PreparedLaunch::bytes).sum();
        let of_strides = |strides: &Vec<usize>| size_of_val(strides) + size_of_val(&strides[..]);
        let strides: usize = stated.strides.iter().map(of_strides).sum();
        let problem = &stated.problem;
        let problems = problem_bytes(problem.reduction()) + problem_bytes(problem.elements());
        let own = size_of::<PreparedListApplication>();
        let host = own + problems + launches + strides + self.list.bytes();
        reduction.held().plus(Held { host, device: tables.bytes() })
    }
}

impl Call<'_, ApplyListTask<'_>> {
    /// Launches the reduction and the application, into new tensors or in place. Returns the new
    /// tensors, of which there are none in place, and the results of the reduction.
    pub(crate) fn run(
        self,
        client: &Client,
        tensors: &[&TensorHandle],
    ) -> Result<Outcome, ReduceError> {
        let prepared = self.prepared(client)?;
        let inputs = &self.task.inputs;
        let problem = prepared.stated.problem.elements();
        let tensors = bind_tensors(client, problem.tensors(), tensors)?;
        let mut outputs: Vec<TensorHandle> = Vec::new();
        if !self.task.request.in_place {
            for (tensor, strides) in inputs.iter().zip(&prepared.stated.strides) {
                let handle = client.empty(output_bytes(client, tensor)?);
                let storage = storage_type(tensor.element);
                outputs.push(TensorHandle::new(handle, tensor.shape, &strides[..], storage));
            }
        }
        // Without gaps, or row-major: an output spans no more than its elements.
        let bound = |(output, tensor): (&TensorHandle, &Problem)| {
            let (binding, bytes) = (output.handle.clone().binding(), tensor.input().bytes());
            Bound::own(binding, tensor.reduction_len(), bytes)
        };
        let bound_outputs: Vec<Bound<'static>> =
            outputs.iter().zip(problem.tensors()).map(bound).collect();
        let results = prepared.reduction.run(client, &self.parameters, &tensors)?;
        let launch = ListApplicationLaunch {
            client,
            prepared: &prepared,
            parameters: &self.apply_parameters,
            tensors: &tensors,
            outputs: &bound_outputs,
            results: &results,
        };
        prepared.noted.launch(client, |each| prepared.applying(client, each));
        prepared.launches.iter().for_each(|reading| launch.run(reading));
        Ok((outputs, results))
    }
}

impl PreparedListApplication {
    /// The types of a kernel that applies results.
    fn types(&self, client: &Client, reading: &PreparedLaunch) -> KernelTypesArg {
        let (stored, real) = (memory_type(reading.element), memory_type(self.stated.real()));
        KernelTypesArg {
            stored,
            second: None,
            value: real,
            fields: [real; 5],
            results: [real; 3],
            width: reading.launch.access.vector,
            hardware_math: has_hardware_math(client),
            chains: false,
            same_bits: false,
            offsets: None,
            indices: None,
            application: Some(ApplicationTypes { real, outputs: [stored; 3], operands: [real; 3] }),
            stores: Stores::Vectors,
            of_shard: false,
            has_policy: false,
        }
    }

    /// Calls `each` with every kernel that applies results.
    fn applying(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        let Self { apply, units_per_cube, in_place, .. } = *self;
        let results = self.reduction.operator.0.results;
        for reading in &self.launches {
            let types = self.types(client, reading);
            let kernel = (types, apply, results, units_per_cube, in_place, reading.generated_for());
            each(Kernel::new("apply_to_list", kernel));
        }
    }
}

impl Launches for PreparedListApplication {
    fn kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        self.reduction.kernels(client, each);
        self.applying(client, each);
    }
}

/// A call whose checks have all passed.
struct ListApplicationLaunch<'a> {
    client: &'a Client,
    prepared: &'a PreparedListApplication,
    parameters: &'a [f64],
    tensors: &'a [Bound<'a>],
    /// None if the elements are replaced.
    outputs: &'a [Bound<'a>],
    results: &'a [ListResult],
}

impl ListApplicationLaunch<'_> {
    fn run(&self, reading: &PreparedLaunch) {
        let PreparedLaunch { launch, grid, address, .. } = reading;
        let PreparedListApplication { apply, stated, units_per_cube, .. } = self.prepared;
        let access = launch.access;
        let (inputs, outputs) = match self.prepared.in_place {
            true => (
                ListArraysLaunch::new(SequenceArg::new(), SequenceArg::new()),
                reading.arrays(self.tensors),
            ),
            false => (reading.arrays(self.tensors), reading.arrays(self.outputs)),
        };
        let real = stated.real();
        let of_all = self
            .results
            .iter()
            .map(|result| Bound::own(result.all.handle.clone().binding(), 1, real.bytes()));
        let of_all: Vec<Bound<'static>> = of_all.collect();
        // SAFETY: the buffers hold every offset of their problems, inputs and outputs. Vector loads
        // and stores are aligned and inside their inner dimensions. The table names the
        // tensors that are bound.
        unsafe {
            launch_kept!(
                reading.kept, self.client, count(*grid), *units_per_cube, *address;
                apply_to_list::ApplyToList {
                    ReadOnly types: KernelTypes = self.prepared.types(self.client, reading),
                    ReadOnly inputs: ListArrays = inputs,
                    ReadWrite outputs: ListArrays = outputs,
                    ReadOnly table: [u32] = reading.table(&self.prepared.tables),
                    ReadWrite results: ResultArrays = result_arrays(&of_all),
                    ReadOnly parameters: Parameters =
                        ParametersLaunch::of(self.parameters, storage_type(real)),
                    ReadWrite cubes: usize = launch.cubes() as usize,
                }
                launch.outer_dims, access, *units_per_cube, *apply
            );
        }
    }
}

#[cfg(feature = "serde")]
impl RecordedListApplication {
    /// The application of a task.
    pub(crate) fn of(request: &ApplyListRequest, inputs: &[InputSpec<'_>]) -> Self {
        let list = RecordedList::of(&request.list, inputs);
        let (function, in_place) = (request.apply.0.name.to_owned(), request.in_place);
        Self { function, list, in_place }
    }
}
