//! One call over a list of tensors, without the type of its operator.

use core::ops::Range;
use std::{cell::RefCell, rc::Rc, thread::LocalKey};

use cubecl::{ir::AddressType, prelude::*, server::Handle, std::tensor::TensorHandle};
use reduce_planner::{
    Device, ElementType, Illegal, InputSpec, ListChoice, ListLaunch, ListPlan, ListProblem,
    PlanError, Problem, choose_list, needs_wide_indices,
};

use super::{
    buffers::{buffer_bytes, check_input, check_offset},
    cache::{self, Held, Known, Remembered},
    client::has_hardware_math,
    launch::{count, parameters, partial_arrays, result_arrays},
    prepared::check_arithmetic,
    request::class_of,
    scratch::{partials, table},
};
use crate::{
    ReduceError,
    element::{memory_type, storage_type},
    kernels::{
        args::{KernelTypesArg, ListArraysLaunch, PartialArraysLaunch},
        list::{NO_ELEMENTS, WORDS_OF_DIM, WORDS_OF_TENSOR, merge_list, reduce_list},
        load::edge_slots,
        pairwise::CHAIN,
        team::Team,
    },
    operator::{OperatorRef, ParametersLaunch, Signature, TypeRequest, rules},
};

/// Everything that decides how a list is reduced, apart from its buffers and its device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ListRequest {
    operator: OperatorRef,
    /// Type, alignment and rank of each tensor, then its shape and its strides. A list of words is
    /// hashed and compared as a whole.
    tensors: Vec<usize>,
    accumulator: Option<ElementType>,
    outputs: [Option<ElementType>; 3],
    plan: Option<ListPlan>,
}

/// A list whose types have been resolved.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) problem: ListProblem,
    pub(super) signature: Signature,
}

/// A list that is ready to launch, except for its buffers.
#[derive(Debug)]
pub(crate) struct PreparedList {
    resolved: Resolved,
    launches: Vec<PreparedLaunch>,
    reading: Team,
    merging: Team,
    grid: [u32; 3],
    address: AddressType,
    tables: Tables,
    /// The words of the table of the merge.
    words: Range<usize>,
    partials: usize,
    /// The element of each output at which the results of the tensors begin: a multiple of the
    /// alignment at which the device binds buffers.
    each: usize,
}

/// A launch that reads tensors.
#[derive(Debug)]
pub(super) struct PreparedLaunch {
    pub(super) launch: ListLaunch,
    pub(super) element: ElementType,
    pub(super) grid: [u32; 3],
    pub(super) address: AddressType,
    /// The words of its table among all tables.
    words: Range<usize>,
    /// The tensor in each slot. Slots beyond the last tensor repeat the first.
    slots: Vec<usize>,
    /// The tensors that are also bound as elements.
    tails: Vec<usize>,
    /// The most elements of a unit.
    longest: u64,
}

/// The words of the tables of a list. They share a buffer: the device allocates it once, and is
/// asked once whether it exists.
pub(super) struct TableWords {
    words: Vec<u32>,
    /// A table begins at a multiple of this number of words.
    alignment: usize,
}

impl TableWords {
    pub(super) fn new(client: &Client) -> Self {
        // wgpu binds buffers at multiples of an alignment.
        let alignment = client.properties().memory.alignment.max(1) as usize;
        Self { words: Vec::new(), alignment: alignment.div_ceil(size_of::<u32>()) }
    }

    /// Adds a table. Gives its words.
    fn add(&mut self, table: impl IntoIterator<Item = u32>) -> Range<usize> {
        let start = self.words.len().next_multiple_of(self.alignment);
        self.words.resize(start, 0);
        self.words.extend(table);
        start..self.words.len()
    }

    /// Writes the tables.
    ///
    /// # Errors
    ///
    /// [`ReduceError::Scratch`] if the device has no memory for them.
    pub(super) fn write(mut self, client: &Client) -> Result<Tables, ReduceError> {
        // A list of empty tensors has no table, and a buffer of 0 bytes cannot be made.
        self.words.resize(self.words.len().max(1), 0);
        Ok(Tables(table(client, &self.words)?))
    }
}

/// The tables of a list on the device.
#[derive(Debug)]
pub(super) struct Tables(Handle);

impl Tables {
    fn array(&self, words: &Range<usize>) -> BufferArg {
        let table = self.0.clone().offset_start((words.start * size_of::<u32>()) as u64);
        // SAFETY: the buffer was made with these words.
        unsafe { BufferArg::from_raw_parts(table, words.len()) }
    }

    /// Bytes on the device.
    pub(super) fn bytes(&self) -> usize {
        self.0.size() as usize
    }
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
        Self { operator, tensors, accumulator, outputs, plan }
    }

    /// Resolves the types of the results, and states the problem.
    pub(super) fn resolve(&self, inputs: &[InputSpec<'_>]) -> Result<Resolved, ReduceError> {
        let operator = self.operator.0;
        if operator.pairs.is_some() {
            let (operator, expected) = (operator.name(), 2);
            return Err(ReduceError::Inputs { operator, expected, found: 1 });
        }
        let elements = |input: &InputSpec<'_>| {
            input.shape.iter().fold(1usize, |count, &extent| count.saturating_mul(extent))
        };
        let types = inputs.iter().map(|input| input.element).reduce(rules::common);
        let request = TypeRequest {
            input: types.unwrap_or(ElementType::F32),
            accumulator: self.accumulator,
            outputs: self.outputs,
            reduction_len: inputs.iter().map(elements).fold(0, usize::saturating_add),
        };
        let signature = (operator.types)(&request)
            .ok_or_else(|| ReduceError::Types { operator: operator.name(), request })?;
        let class = class_of(operator, &signature);
        let results = &signature.results[..operator.results];
        Ok(Resolved { problem: ListProblem::new(class, inputs, results)?, signature })
    }

    /// Resolves the request, and takes its plan or chooses one.
    fn plan(
        &self,
        client: &Client,
        device: &Device,
        inputs: &[InputSpec<'_>],
    ) -> Result<(Resolved, ListPlan), ReduceError> {
        let resolved = self.resolve(inputs)?;
        let Resolved { problem, signature } = &resolved;
        check_arithmetic(client, self.operator.0, signature, device)?;
        let plan = match &self.plan {
            Some(plan) => {
                plan.check(problem, device)?;
                plan.clone()
            }
            None => choose_list(problem, device)?.plan,
        };
        Ok((resolved, plan))
    }

    fn prepare(
        &self,
        client: &Client,
        device: &Device,
        inputs: &[InputSpec<'_>],
    ) -> Result<PreparedList, ReduceError> {
        let (resolved, plan) = self.plan(client, device, inputs)?;
        let problem = &resolved.problem;
        let first_partials = first_partials(&plan, problem);
        let mut tables = TableWords::new(client);
        let launches = plan.launches.iter().map(|launch| {
            let units = plan.units_per_cube;
            prepare_launch(&mut tables, launch, units, problem, device, &first_partials)
        });
        let launches = launches.collect::<Result<_, ReduceError>>()?;
        let tensors = problem.tensors().len();
        let elements = problem.tensors().iter().map(|tensor| tensor.reduction_len() as u64);
        let mut words = first_partials.clone();
        words.extend(elements.chain([problem.elements()]).flat_map(in_words));
        let grid = spread(device, tensors as u64 + 1)?;
        Ok(PreparedList {
            launches,
            reading: team(&plan, plan.units_per_cube),
            merging: team(&plan, plan.merging_units),
            grid,
            address: address(problem.elements() > NARROW_ELEMENTS),
            words: tables.add(words),
            tables: tables.write(client)?,
            partials: plan.partials() as usize,
            each: client.properties().memory.alignment.max(1) as usize,
            resolved,
        })
    }
}

/// The most elements that indices of 32 bits count.
const NARROW_ELEMENTS: u64 = i32::MAX as u64;

fn address(wide: bool) -> AddressType {
    if wide { AddressType::U64 } else { AddressType::U32 }
}

/// The two words of a number in a table.
fn in_words(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

/// The units of a cube, all of which work together.
fn team(plan: &ListPlan, units: u32) -> Team {
    Team { units_per_tile: units, unit_stride: 1, units_per_cube: units, combine: plan.combine }
}

/// The grid of so many cubes. The plan's check has found that there is one.
fn spread(device: &Device, cubes: u64) -> Result<[u32; 3], PlanError> {
    device.spread(cubes).ok_or_else(|| PlanError::Unfit {
        plan: "list".into(),
        device: device.name.clone(),
        reason: Illegal::Grid { cubes, merging: false },
    })
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

/// Prepares a launch of cubes of so many units, and adds its table to `tables`.
pub(super) fn prepare_launch(
    tables: &mut TableWords,
    launch: &ListLaunch,
    units_per_cube: u32,
    problem: &ListProblem,
    device: &Device,
    first_partials: &[u32],
) -> Result<PreparedLaunch, ReduceError> {
    let access = launch.access;
    let mut of_cubes: Vec<u32> = Vec::new();
    let mut of_tensors: Vec<u32> = Vec::new();
    let mut tails = Vec::new();
    let mut longest = 0;
    for (slot, share) in launch.tensors.iter().enumerate() {
        let tensor = &problem.tensors()[share.tensor];
        let inner_len = access.inner_len(tensor);
        let loads_per_inner = inner_len / access.vector;
        let inner_count = tensor.reduction_len() / inner_len;
        let (inner, inner_output, outer) = match tensor.reduced().split_last() {
            Some((inner, outer)) => (inner.stride, inner.position_stride, outer),
            None => (1, 1, &[][..]),
        };
        let nth_of_elements = if inner_len.is_multiple_of(access.vector) {
            NO_ELEMENTS
        } else {
            tails.push(share.tensor);
            tails.len() as u32 - 1
        };
        let units = u64::from(share.cubes) * u64::from(units_per_cube);
        // The elements of refused blocks are pushed one by one.
        let loads = (loads_per_inner * access.vector) as u64 * inner_count as u64;
        let edges = match nth_of_elements {
            NO_ELEMENTS => 0,
            _ => inner_count as u64 * edge_slots(access.vector) as u64,
        };
        longest = longest.max(loads.max(edges).div_ceil(units));
        let first_cube = of_cubes.len() as u32;
        of_cubes.extend(core::iter::repeat_n(slot as u32, share.cubes as usize));
        of_tensors.extend([first_cube, share.cubes, first_partials[share.tensor], nth_of_elements]);
        let numbers = [inner_len, inner, inner_count, loads_per_inner, inner_output];
        of_tensors.extend(numbers.iter().flat_map(|&number| in_words(number as u64)));
        let missing = launch.outer_dims - outer.len();
        let dims = core::iter::repeat_n([1, 0, 0], missing)
            .chain(outer.iter().map(|dim| [dim.extent, dim.stride, dim.position_stride]));
        of_tensors.extend(dims.flatten().flat_map(|number| in_words(number as u64)));
    }
    debug_assert_eq!(
        of_tensors.len(),
        launch.tensors.len() * (WORDS_OF_TENSOR + WORDS_OF_DIM * launch.outer_dims)
    );
    let mut slots: Vec<usize> = launch.tensors.iter().map(|share| share.tensor).collect();
    let first = launch.tensors[0].tensor;
    slots.resize(launch.slots(), first);
    tails.resize(launch.tail_slots(problem), first);
    let wide = slots.iter().any(|&tensor| needs_wide_indices(&problem.tensors()[tensor]));
    Ok(PreparedLaunch {
        launch: launch.clone(),
        element: problem.tensors()[first].input(),
        grid: spread(device, launch.cubes())?,
        address: address(wide),
        words: tables.add(of_cubes.into_iter().chain(of_tensors)),
        slots,
        tails,
        longest,
    })
}

impl PreparedLaunch {
    /// The tensors as arrays. `of` gives the buffer of a tensor and the elements that it spans,
    /// against which the buffer has been checked.
    pub(super) fn arrays<'a>(&self, of: impl Fn(usize) -> (&'a Handle, usize)) -> ListArraysLaunch {
        let array = |tensor: usize, vector: usize| {
            let (handle, span) = of(tensor);
            // SAFETY: the buffer has been checked against the span.
            unsafe { BufferArg::from_raw_parts(handle.clone(), span / vector) }
        };
        let vector = self.launch.access.vector;
        ListArraysLaunch::new(
            self.slots.iter().map(|&tensor| array(tensor, vector)).collect(),
            self.tails.iter().map(|&tensor| array(tensor, 1)).collect(),
        )
    }

    /// The table of the launch.
    pub(super) fn table(&self, tables: &Tables) -> BufferArg {
        tables.array(&self.words)
    }

    /// Bytes on the host.
    pub(super) fn bytes(&self) -> usize {
        let lists = size_of_val(&self.slots[..]) + size_of_val(&self.tails[..]);
        size_of::<Self>() + lists + launch_bytes(&self.launch)
    }
}

/// Bytes of a planned launch on the host.
fn launch_bytes(launch: &ListLaunch) -> usize {
    size_of::<ListLaunch>() + size_of_val(&launch.tensors[..])
}

/// Bytes of a problem on the host.
pub(super) fn problem_bytes(problem: &ListProblem) -> usize {
    let of_tensor = |tensor: &Problem| {
        let dims = size_of_val(tensor.kept()) + size_of_val(tensor.reduced());
        size_of::<Problem>() + dims + size_of_val(tensor.results())
    };
    problem.tensors().iter().map(of_tensor).sum()
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
        let PreparedList { resolved, launches, tables, .. } = prepared;
        let launches: usize = launches.iter().map(PreparedLaunch::bytes).sum();
        let host = size_of::<PreparedList>() + problem_bytes(&resolved.problem) + launches;
        Held { host: host + self.bytes(), device: tables.bytes() }
    }
}

/// Checks that buffers hold their tensors, at offsets where the device can bind them.
pub(super) fn check_tensors(
    client: &Client,
    problem: &ListProblem,
    tensors: &[&TensorHandle],
) -> Result<(), ReduceError> {
    check_buffers(problem, tensors.iter().map(|tensor| Some(buffer_bytes(&tensor.handle))))?;
    for (nth, (tensor, problem)) in tensors.iter().zip(problem.tensors()).enumerate() {
        let offset = tensor.handle.offset_start;
        check_offset(client, "input", offset, problem.input()).map_err(listed(nth))?;
    }
    Ok(())
}

/// Checks that buffers of these many bytes hold the tensors; `None` if there is no buffer.
fn check_buffers(
    problem: &ListProblem,
    bytes: impl Iterator<Item = Option<u64>>,
) -> Result<(), ReduceError> {
    for (nth, (bytes, problem)) in bytes.zip(problem.tensors()).enumerate() {
        if let Some(bytes) = bytes {
            check_input(problem, bytes).map_err(listed(nth))?;
        }
    }
    Ok(())
}

/// The error of tensor number `nth` of a list.
fn listed(nth: usize) -> impl Fn(ReduceError) -> ReduceError {
    move |error| ReduceError::Listed { nth, error: Box::new(error) }
}

/// A call over a list.
pub(crate) struct ListCall<'a> {
    pub(crate) request: Rc<ListRequest>,
    pub(crate) inputs: Vec<InputSpec<'a>>,
    /// The device to plan for; `None` means that of the client.
    pub(crate) device: Option<&'a Device>,
    pub(crate) parameters: Vec<f64>,
}

impl ListCall<'_> {
    /// The types of the results.
    pub(crate) fn results(&self) -> Result<[ElementType; 3], ReduceError> {
        Ok(self.request.resolve(&self.inputs)?.signature.results)
    }

    /// The problem of the list.
    pub(crate) fn problem(&self) -> Result<ListProblem, ReduceError> {
        Ok(self.request.resolve(&self.inputs)?.problem)
    }

    /// Chooses a plan. A plan in the request is ignored.
    pub(crate) fn choose(&self, client: &Client) -> Result<ListChoice, ReduceError> {
        let Resolved { problem, signature } = self.request.resolve(&self.inputs)?;
        let of_client = cache::device(client);
        let device = self.device.unwrap_or(&of_client);
        check_arithmetic(client, self.request.operator.0, &signature, device)?;
        Ok(choose_list(&problem, device)?)
    }

    /// Plans the call for tensors whose buffers have these many bytes; `None` if there is no
    /// buffer.
    pub(crate) fn check(&self, client: &Client, bytes: &[Option<u64>]) -> Result<(), ReduceError> {
        let of_client = cache::device(client);
        let device = self.device.unwrap_or(&of_client);
        let (resolved, _) = self.request.plan(client, device, &self.inputs)?;
        check_buffers(&resolved.problem, bytes.iter().copied())
    }

    /// Launches into new tensors. Returns the result of each tensor and that of all, for each
    /// result of the operator.
    pub(crate) fn run(
        self,
        client: &Client,
        tensors: &[&TensorHandle],
    ) -> Result<Vec<ListResult>, ReduceError> {
        let prepared = match self.device {
            Some(device) => Rc::new(self.request.prepare(client, device, &self.inputs)?),
            None => cache::prepared(cache::identity(client), &self.request, |request| {
                request.prepare(client, &cache::device(client), &self.inputs)
            })?,
        };
        let Resolved { problem, signature } = &prepared.resolved;
        check_tensors(client, problem, tensors)?;
        let operator = self.request.operator.0;
        let results = &signature.results[..operator.results];
        let outputs: Vec<Handle> = results
            .iter()
            .map(|&result| {
                let elements = prepared.each + tensors.len().max(1);
                client.empty(elements * result.bytes())
            })
            .collect();
        let stream = outputs
            .first()
            .map_or_else(|| client.empty(1).stream.value, |output| output.stream.value);
        let fields = &signature.fields[..operator.fields];
        let bytes = fields.iter().map(|field| prepared.partials.max(1) * field.bytes());
        let partials = partials(client, stream, bytes)?;
        let launch = Launch {
            client,
            operator: self.request.operator,
            prepared: &prepared,
            parameters: &self.parameters,
            partials: &partials,
        };
        for reading in &prepared.launches {
            launch.read(reading, tensors);
        }
        launch.merge(&outputs, tensors.len());
        let of_list = |(output, &result): (Handle, &ElementType)| {
            let (bytes, storage) = (result.bytes() as u64, storage_type(result));
            let beyond = output.size_in_used() - bytes;
            let all = output.clone().offset_end(beyond);
            let each = output.offset_start(prepared.each as u64 * bytes);
            ListResult {
                each: TensorHandle::new_contiguous([tensors.len()], each, storage),
                all: TensorHandle::new_contiguous([1], all, storage),
            }
        };
        Ok(outputs.into_iter().zip(results).map(of_list).collect())
    }
}

/// One result of an operator over a list.
pub(crate) struct ListResult {
    /// Those of each tensor, in the order of the list.
    pub(crate) each: TensorHandle,
    /// That of all tensors together.
    pub(crate) all: TensorHandle,
}

/// A call whose checks have all passed.
struct Launch<'a> {
    client: &'a Client,
    operator: OperatorRef,
    prepared: &'a PreparedList,
    parameters: &'a [f64],
    partials: &'a [Handle],
}

impl Launch<'_> {
    /// The partials of the tensors of one launch.
    fn read(&self, reading: &PreparedLaunch, tensors: &[&TensorHandle]) {
        let PreparedLaunch { launch, grid, address, .. } = reading;
        let access = launch.access;
        let problem = &self.prepared.resolved.problem;
        let spans = |tensor: usize| problem.tensors()[tensor].input_span();
        let arrays = reading.arrays(|tensor| (&tensors[tensor].handle, spans(tensor)));
        let team = &self.prepared.reading;
        let pairwise = self.operator.0.pairwise;
        let types = KernelTypesArg {
            stored: memory_type(reading.element),
            width: access.vector,
            chains: pairwise && reading.longest > CHAIN as u64,
            ..self.types()
        };
        // SAFETY: the buffers hold every offset of their problems. The plan's check has found that
        // vector loads are aligned and inside their inner dimensions. The table names the tensors
        // that are bound, and partials that the buffers hold.
        unsafe {
            reduce_list::launch_unchecked(
                self.client,
                count(*grid),
                CubeDim::new_1d(team.units_per_cube),
                *address,
                types,
                arrays,
                reading.table(&self.prepared.tables),
                self.partials(),
                self.parameters(),
                launch.cubes() as usize,
                launch.outer_dims,
                access,
                *team,
                self.operator,
            );
        }
    }

    /// The results, from the partials.
    fn merge(&self, outputs: &[Handle], tensors: usize) {
        let PreparedList { merging, grid, address, tables, words, each, .. } = self.prepared;
        // The outputs were asked for with this length.
        let len = each + tensors.max(1);
        let results = result_arrays(outputs.iter().map(|output| output.clone().binding()), len);
        // SAFETY: the table has the partials of each tensor, which the buffers hold, and the
        // outputs have an element for each tensor.
        unsafe {
            merge_list::launch_unchecked(
                self.client,
                count(*grid),
                CubeDim::new_1d(merging.units_per_cube),
                *address,
                self.types(),
                self.partials(),
                tables.array(words),
                results,
                self.parameters(),
                tensors,
                *each,
                *merging,
                self.operator,
            );
        }
    }

    /// The types of the merge, which reads no tensors.
    fn types(&self) -> KernelTypesArg {
        let signature = &self.prepared.resolved.signature;
        KernelTypesArg {
            stored: memory_type(signature.value),
            second: None,
            value: memory_type(signature.value),
            fields: signature.fields.map(memory_type),
            results: signature.results.map(memory_type),
            width: 1,
            hardware_math: has_hardware_math(self.client),
            chains: false,
            application: None,
        }
    }

    fn partials(&self) -> PartialArraysLaunch {
        partial_arrays(self.partials, self.prepared.partials.max(1))
    }

    fn parameters(&self) -> ParametersLaunch {
        parameters(self.parameters, &self.prepared.resolved.signature)
    }
}
