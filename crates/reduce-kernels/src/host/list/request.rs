//! The request of one call over a list, as plain data, and what it becomes.

use core::{
    hash::{Hash, Hasher},
    ops::Range,
};
use std::{cell::RefCell, rc::Rc, thread::LocalKey};

use cubecl::{ir::AddressType, prelude::*, std::tensor::TensorHandle};
use reduce_planner::{
    Device, ElementType, InputSpec, ListPlan, ListProblem, Numerics, Problem, Role,
};

use super::reading::{
    PreparedLaunch, TableWords, Tables, address, launch_bytes, prepare_launch, spread,
};
#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedList, RecordedTensor};
use crate::{
    error::{Reason, ReduceError},
    host::{
        bound::{Bound, check_input},
        cache::{Asked, Held, Known, Remembered},
        call::Task,
        launched::Noted,
        scratch::in_words,
        types::{check_arithmetic, class_of},
    },
    kernels::team::Team,
    operator::{OperatorRef, Signature, TypeRequest, rules},
};

/// Everything that decides how a list is reduced, apart from its buffers and its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListRequest {
    pub(crate) operator: OperatorRef,
    /// Type, alignment and rank of each tensor, then its shape and its strides. A list of words is
    /// hashed and compared as a whole.
    pub(super) tensors: Vec<usize>,
    pub(crate) accumulator: Option<ElementType>,
    pub(crate) outputs: [Option<ElementType>; 3],
    pub(super) plan: Option<ListPlan>,
    pub(crate) numerics: Numerics,
}

/// A request, and where its tensors lie.
pub(crate) struct ListTask<'a> {
    pub(crate) request: Rc<ListRequest>,
    pub(crate) inputs: Vec<InputSpec<'a>>,
}

/// A list whose types have been resolved.
#[derive(Debug)]
pub(crate) struct StatedList {
    pub(crate) problem: ListProblem,
    pub(crate) signature: Signature,
}

/// A list that is ready to launch, except for its buffers.
#[derive(Debug)]
pub(crate) struct PreparedList {
    pub(super) operator: OperatorRef,
    pub(super) stated: StatedList,
    pub(super) launch: ListLaunches,
    pub(super) tables: Tables,
    /// The element of each output at which the results of the tensors begin: a multiple of the
    /// alignment at which the device binds buffers.
    pub(super) each: usize,
    pub(super) noted: Noted,
}

/// The launches of a plan.
#[derive(Debug)]
pub(crate) struct ListLaunches {
    pub(super) reading: Vec<PreparedLaunch>,
    /// The units that read.
    pub(super) readers: Team,
    /// The units that merge.
    pub(super) mergers: Team,
    pub(super) grid: [u32; 3],
    pub(super) address: AddressType,
    /// The words of the table of the merge.
    pub(super) words: Range<usize>,
    pub(super) partials: usize,
}

impl ListRequest {
    /// Bytes on the host.
    pub(super) fn bytes(&self) -> usize {
        let launches = self.plan.iter().flat_map(|plan| &plan.launches);
        let plan: usize = launches.map(launch_bytes).sum();
        size_of::<Self>() + size_of_val(&self.tensors[..]) + plan
    }

    /// The request for tensors at these places.
    pub(crate) fn new(
        operator: OperatorRef,
        inputs: &[InputSpec<'_>],
        accumulator: Option<ElementType>,
        outputs: [Option<ElementType>; 3],
        plan: Option<ListPlan>,
    ) -> Self {
        let mut tensors = Vec::with_capacity(inputs.len() * 8);
        for input in inputs {
            tensors.extend([input.element as usize, input.alignment, input.shape.len()]);
            tensors.extend(input.shape);
            tensors.extend(input.strides);
        }
        Self { operator, tensors, accumulator, outputs, plan, numerics: Numerics::default() }
    }

    /// The same request with bits that depend on no more than this.
    pub(crate) fn with_numerics(self, numerics: Numerics) -> Self {
        Self { numerics, ..self }
    }
}

impl Hash for ListTask<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.request.hash(state);
    }
}

impl Asked for ListTask<'_> {
    type Request = Rc<ListRequest>;

    fn is(&self, known: &Rc<ListRequest>) -> bool {
        self.request == *known
    }

    fn to_request(&self) -> Rc<ListRequest> {
        Rc::clone(&self.request)
    }
}

/// The tensors are those of the list, in its order.
impl Task for ListTask<'_> {
    type Stated = StatedList;
    type Problem = ListProblem;
    type Launch = (ListLaunches, TableWords);

    fn state(&self) -> Result<StatedList, ReduceError> {
        let ListRequest { operator, accumulator, outputs, .. } = *self.request;
        let (operator, inputs) = (operator.0, &self.inputs[..]);
        let elements = |input: &InputSpec<'_>| {
            input.shape.iter().fold(1usize, |count, &extent| count.saturating_mul(extent))
        };
        let types = inputs.iter().map(|input| input.element).reduce(rules::common);
        let request = TypeRequest {
            input: types.unwrap_or(ElementType::F32),
            accumulator,
            outputs,
            reduction_len: inputs.iter().map(elements).fold(0, usize::saturating_add),
        };
        let signature = (operator.types)(&request)
            .ok_or_else(|| Reason::Types { operator: operator.name(), request })?;
        let class = class_of(operator, &signature);
        let results = &signature.results[..operator.results];
        let problem = ListProblem::new(class, inputs, results)?;
        Ok(StatedList { problem: problem.with_numerics(self.request.numerics), signature })
    }

    fn problem(stated: &StatedList) -> &ListProblem {
        &stated.problem
    }

    fn given(&self) -> Option<&ListPlan> {
        self.request.plan.as_ref()
    }

    fn check_types(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedList,
    ) -> Result<(), ReduceError> {
        check_arithmetic(client, self.request.operator.0, &stated.signature, device)
    }

    fn check_bytes(&self, stated: &StatedList, bytes: &[Option<u64>]) -> Result<(), ReduceError> {
        check_tensor_bytes(stated.problem.tensors(), bytes.iter().copied())
    }

    /// A result of a list is one element for each tensor.
    fn check_outputs(&self, _: &Client, _: &StatedList) -> Result<(), ReduceError> {
        Ok(())
    }

    /// The results of an empty list, or of empty tensors, are launched too.
    fn is_empty(_: &StatedList) -> bool {
        false
    }

    fn launch(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedList,
        plan: &ListPlan,
    ) -> Result<Self::Launch, ReduceError> {
        let problem = &stated.problem;
        let first_partials = first_partials(plan, problem);
        let mut tables = TableWords::new(client);
        let reading = plan.launches.iter().map(|launch| {
            let units = plan.units_per_cube;
            prepare_launch(&mut tables, launch, units, problem, device, &first_partials)
        });
        let reading = reading.collect::<Result<_, ReduceError>>()?;
        let tensors = problem.tensors().len();
        let elements = problem.tensors().iter().map(|tensor| tensor.reduction_len() as u64);
        let mut words = first_partials.clone();
        words.extend(elements.chain([problem.elements()]).flat_map(in_words));
        let launches = ListLaunches {
            reading,
            readers: team(plan, plan.units_per_cube),
            mergers: team(plan, plan.merging_units),
            grid: spread(device, tensors as u64 + 1)?,
            address: address(problem.elements() > NARROW_ELEMENTS),
            words: tables.add(words),
            partials: plan.partials() as usize,
        };
        Ok((launches, tables))
    }

    fn prepare(
        &self,
        client: &Client,
        _: &Device,
        stated: StatedList,
        launch: Option<Self::Launch>,
    ) -> Result<PreparedList, ReduceError> {
        let (launch, tables) = launch.expect("no list is empty");
        Ok(PreparedList {
            operator: self.request.operator,
            stated,
            launch,
            tables: tables.write(client)?,
            each: client.properties().memory.alignment.max(1) as usize,
            noted: Noted::default(),
        })
    }

    #[cfg(feature = "serde")]
    fn recorded(&self) -> Option<RecordedCall> {
        let is_recorded = self.request.plan.is_none();
        is_recorded.then(|| RecordedCall::List(RecordedList::of(&self.request, &self.inputs)))
    }
}

thread_local! {
    static KNOWN: RefCell<Known<Rc<ListRequest>>> = RefCell::default();
}

impl Remembered for Rc<ListRequest> {
    type Prepared = PreparedList;

    fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
        &KNOWN
    }

    fn held(&self, prepared: &PreparedList) -> Held {
        prepared.held().plus(Held { host: self.bytes(), device: 0 })
    }
}

impl PreparedList {
    /// The memory that it holds.
    pub(super) fn held(&self) -> Held {
        let launches: usize = self.launch.reading.iter().map(PreparedLaunch::bytes).sum();
        let host = size_of::<Self>() + problem_bytes(&self.stated.problem) + launches;
        Held { host, device: self.tables.bytes() }
    }
}

/// The most elements that indices of 32 bits count.
const NARROW_ELEMENTS: u64 = i32::MAX as u64;

/// The units of a cube, all of which work together.
fn team(plan: &ListPlan, units: u32) -> Team {
    Team {
        units_per_tile: units,
        unit_stride: 1,
        units_per_cube: units,
        combine: plan.combine,
        merging_units: 0,
    }
}

/// The number of the first partial of each tensor, in the order of the list, and the number of
/// partials.
fn first_partials(plan: &ListPlan, problem: &ListProblem) -> Vec<u32> {
    let mut cubes = vec![0; problem.tensors().len() + 1];
    for share in plan.launches.iter().flat_map(|launch| &launch.tensors) {
        cubes[share.tensor] = share.cubes;
    }
    // The check has found that indices count the partials.
    let mut next = 0;
    for first in &mut cubes {
        next += core::mem::replace(first, next);
    }
    cubes
}

/// Bytes of a problem on the host.
pub(super) fn problem_bytes(problem: &ListProblem) -> usize {
    let of_tensor = |tensor: &Problem| {
        let dims = size_of_val(tensor.kept()) + size_of_val(tensor.reduced());
        size_of::<Problem>() + dims + size_of_val(tensor.results())
    };
    problem.tensors().iter().map(of_tensor).sum()
}

/// Binds the buffers of tensors.
///
/// # Errors
///
/// A buffer that is too small, or begins where the device cannot bind it.
pub(super) fn bind_tensors<'a, 'p>(
    client: &Client,
    problems: impl IntoIterator<Item = &'p Problem>,
    tensors: &[&'a TensorHandle],
) -> Result<Vec<Bound<'a>>, ReduceError> {
    let each = tensors.iter().zip(problems).enumerate();
    let bound = each.map(|(nth, (tensor, problem))| {
        let (span, element) = (problem.input_span(), problem.input());
        let bound = Bound::check_input(client, Role::Input, &tensor.handle, span, element);
        bound.map_err(listed(nth))
    });
    bound.collect()
}

/// Checks that buffers of these many bytes hold the tensors; `None` where there is no buffer.
pub(super) fn check_tensor_bytes<'p>(
    problems: impl IntoIterator<Item = &'p Problem>,
    bytes: impl Iterator<Item = Option<u64>>,
) -> Result<(), ReduceError> {
    for (nth, (bytes, problem)) in bytes.zip(problems).enumerate() {
        if let Some(bytes) = bytes {
            check_input(problem, bytes).map_err(listed(nth))?;
        }
    }
    Ok(())
}

/// The error of tensor number `nth` of a list.
pub(super) fn listed(nth: usize) -> impl Fn(ReduceError) -> ReduceError {
    move |error| Reason::Listed { nth, error }.into()
}

#[cfg(feature = "serde")]
impl RecordedList {
    /// The list of a task.
    pub(crate) fn of(request: &ListRequest, inputs: &[InputSpec<'_>]) -> Self {
        let tensors = inputs.iter().map(|input| RecordedTensor {
            element: input.element,
            shape: input.shape.to_vec(),
            strides: input.strides.to_vec(),
            alignment: input.alignment,
        });
        Self {
            operator: request.operator.0.name(),
            tensors: tensors.collect(),
            accumulator: request.accumulator,
            outputs: request.outputs,
            numerics: request.numerics,
        }
    }
}
