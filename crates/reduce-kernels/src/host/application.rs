//! One call of a reduction whose results are applied to its elements, without the types of its
//! operator and of the function.

use std::{cell::RefCell, rc::Rc, thread::LocalKey};

use cubecl::{ir::AddressType, prelude::*, server::BufferBinding, std::tensor::TensorHandle};
use reduce_planner::{
    Access, AppliedChoice, AppliedPlan, AppliedProblem, AppliedSpec, Companion, Device, Direction,
    ElementType, Illegal, InputSpec, Plan, PlanError, Problem, applied_needs_wide_indices,
    choose_applied, row_major_strides, span,
};

use super::{
    buffers::{buffer_bytes, byte_count, bytes_between, check_input, check_offset},
    cache::{self, Held, Known, Remembered},
    call::Call,
    client::{computes_with, has_hardware_math, has_wide_math},
    companion::{companion_access, companion_launch, lies_alike, second_arrays},
    dispatch::team,
    launch::{WIDEST_STORE, count, geometry, parameters, result_arrays},
    prepared::check_arithmetic,
    request::{Request, Resolved, SecondRequest},
    scratch::{Words, words},
};
use crate::{
    ReduceError,
    element::{memory_type, storage_type},
    kernels::{
        self,
        application::{Hold, How, apply_stored, reduce_and_apply, reduce_and_apply_by_cubes},
        args::{
            ApplicationTypes, AppliedArraysLaunch, InputArraysLaunch, KernelTypesArg,
            OperandArraysLaunch, ResultArraysLaunch,
        },
        companion::CompanionAccess,
        pairwise::needs_chains,
    },
    operator::{ApplyRef, ErasedApply, ParametersLaunch},
};

/// Everything that decides how an applied reduction is launched, apart from its buffers and its
/// device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApplyRequest {
    /// The reduction. Its outputs are the results, row-major.
    pub(crate) reduction: Request<'static>,
    pub(crate) apply: ApplyRef,
    /// The type that the caller asked for.
    pub(crate) output: Option<ElementType>,
    /// Strides and alignment of a supplied output.
    pub(crate) layout: Option<(Vec<usize>, usize)>,
    /// The second input comes first, if there is one.
    pub(crate) operands: Vec<OperandSpec>,
    /// Whether the caller wants the results too.
    pub(crate) wants_results: bool,
    pub(crate) plan: Option<AppliedPlan>,
}

/// An operand: its type, and its strides along the axes of the input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperandSpec {
    pub(crate) element: ElementType,
    pub(crate) strides: Vec<usize>,
    pub(crate) alignment: usize,
}

/// An applied reduction that is ready to launch, except for its buffers.
#[derive(Debug)]
pub(crate) struct PreparedApplication {
    resolved: Resolved,
    applied: AppliedProblem,
    /// Type in which results are applied, which is that of the results.
    real: ElementType,
    /// `None` if there are no elements.
    launch: Option<Prepared>,
}

/// A plan and the numbers of its launch.
#[derive(Debug)]
struct Prepared {
    plan: AppliedPlan,
    how: How,
    /// The access and the schedule of the launch that applies results.
    applying: Plan,
    grid: [u32; 3],
    address: AddressType,
    output_in_vectors: bool,
    chains: bool,
    cubes: usize,
    /// Words in which cubes publish partials.
    published: Option<usize>,
}

thread_local! {
    static KNOWN: RefCell<Known<ApplyRequest>> = RefCell::default();
}

impl Remembered for ApplyRequest {
    type Prepared = PreparedApplication;

    fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
        &KNOWN
    }

    fn held(&self, _: &PreparedApplication) -> Held {
        Held::of_axes::<Self, PreparedApplication>(self.reduction.shape.len())
    }
}

impl ApplyRequest {
    /// The type in which results are applied: f64 if the caller has or wants f64.
    pub(crate) fn real(
        input: ElementType,
        accumulator: Option<ElementType>,
        output: Option<ElementType>,
    ) -> ElementType {
        match [Some(input), accumulator, output].contains(&Some(ElementType::F64)) {
            true => ElementType::F64,
            false => ElementType::F32,
        }
    }

    /// Type of the output's elements.
    fn output_type(&self) -> Result<ElementType, ReduceError> {
        let element = self.reduction.element;
        let real = Self::real(element, self.reduction.accumulator, self.output);
        let output = self.output.unwrap_or(if element.is_float() { element } else { real });
        match output.is_float() {
            true => Ok(output),
            false => Err(ReduceError::AppliedType { apply: self.apply.0.name, output }),
        }
    }

    /// Resolves the reduction and states the problem.
    fn resolve(&self) -> Result<(Resolved, AppliedProblem), ReduceError> {
        let most = self.apply.0.operands;
        if self.operands.len() > most {
            let found = self.operands.len();
            return Err(ReduceError::TooManyOperands { apply: self.apply.0.name, most, found });
        }
        let reduction = &self.reduction;
        let resolved = reduction.resolve()?;
        let axes = reduction.axes.as_deref();
        let results = result_strides(&reduction.shape, axes);
        let mut companions = vec![&results[..]];
        companions.extend(self.operands.iter().map(|operand| &operand.strides[..]));
        let second = reduction.second.as_ref().map(SecondRequest::spec);
        let applied = AppliedProblem::new(
            resolved.problem.operator(),
            &InputSpec {
                element: reduction.element,
                shape: &reduction.shape,
                strides: &reduction.strides,
                alignment: reduction.alignment,
            },
            axes,
            &AppliedSpec {
                element: self.output_type()?,
                strides: self.layout.as_ref().map(|(strides, _)| &strides[..]),
                second: second.as_ref(),
                companions: &companions,
            },
        )?;
        let applied = if self.wants_results { applied.storing_results() } else { applied };
        Ok((resolved, applied))
    }

    fn prepare(
        &self,
        client: &Client,
        device: &Device,
    ) -> Result<PreparedApplication, ReduceError> {
        let (resolved, applied) = self.resolve()?;
        let real = resolved.signature.results[0];
        let available = client.properties().memory.max_page_size;
        let needed = byte_count(applied.elements(), applied.output());
        if self.layout.is_none() && needed > available {
            return Err(ReduceError::OutputTooLarge { needed, available });
        }
        if applied.elements() == 0 {
            return Ok(PreparedApplication { resolved, applied, real, launch: None });
        }
        self.check_types(client, device, &resolved, real)?;
        let plan = match self.plan {
            Some(plan) => {
                plan.check(&applied, &resolved.problem, device)?;
                plan
            }
            None => choose_applied(&applied, &resolved.problem, device)?.plan,
        };
        let launch = self.prepare_launch(device, &resolved, &applied, plan)?;
        Ok(PreparedApplication { resolved, applied, real, launch: Some(launch) })
    }

    /// Checks the types that kernels compute with and those of operands.
    fn check_types(
        &self,
        client: &Client,
        device: &Device,
        resolved: &Resolved,
        real: ElementType,
    ) -> Result<(), ReduceError> {
        check_arithmetic(client, self.reduction.operator.0, &resolved.signature, device)?;
        let operands = self.operands.iter().map(|operand| operand.element);
        if let Some(element) = operands.into_iter().find(|&element| !device.has(element)) {
            let device = device.name.clone();
            return Err(PlanError::ElementUnsupported { device, element }.into());
        }
        check_apply_types(client, device, self.apply.0, real)
    }

    fn prepare_launch(
        &self,
        device: &Device,
        resolved: &Resolved,
        applied: &AppliedProblem,
        plan: AppliedPlan,
    ) -> Result<Prepared, ReduceError> {
        let problem = applied.problem();
        let (applying, cubes) = plan.applying();
        let access = applying.access;
        let total = applying.cubes(problem).saturating_mul(u64::from(cubes));
        let grid = device.spread(total).ok_or_else(|| PlanError::Unfit {
            plan: plan.to_string(),
            device: device.name.clone(),
            reason: Illegal::Grid { cubes: total, merging: false },
        })?;
        let output = Companion {
            kept: problem.kept().iter().map(|dim| dim.output_stride).collect(),
            reduced: problem.reduced().iter().map(|dim| dim.position_stride).collect(),
        };
        let alignment = self.layout.as_ref().map_or(WIDEST_STORE, |&(_, alignment)| alignment);
        let mut operands = [CompanionAccess::None; 3];
        let strides = &applied.companions()[1..];
        for ((slot, operand), strides) in operands.iter_mut().zip(&self.operands).zip(strides) {
            let (element, alignment) = (operand.element, operand.alignment);
            *slot = companion_access(problem, access, strides, element, alignment);
        }
        if problem.second().is_some() {
            operands[0] = CompanionAccess::Second;
        }
        let wide = applied_needs_wide_indices(applied);
        let operator = self.reduction.operator;
        let is_float = resolved.signature.fields[0].is_float();
        Ok(Prepared {
            plan,
            how: How { access, team: team(&applying, device), apply: self.apply, operands },
            applying,
            grid,
            address: if wide { AddressType::U64 } else { AddressType::U32 },
            output_in_vectors: lies_alike(problem, access, &output, applied.output(), alignment),
            chains: is_float && needs_chains(operator, &applying, problem),
            cubes: cubes as usize,
            published: published_words(&plan, resolved, applied, operator.0.fields),
        })
    }
}

/// Checks that kernels can apply results in the type `real`.
pub(super) fn check_apply_types(
    client: &Client,
    device: &Device,
    apply: &ErasedApply,
    real: ElementType,
) -> Result<(), ReduceError> {
    let name = || device.name.clone();
    if !(device.has(real) && computes_with(client, real)) {
        return Err(PlanError::ElementUnsupported { device: name(), element: real }.into());
    }
    if apply.transcendental && real == ElementType::F64 && !has_wide_math(client, apply.native_math)
    {
        let operator = apply.name.to_owned();
        return Err(ReduceError::Transcendental { operator, element: real, device: name() });
    }
    Ok(())
}

/// The words in which the cubes of a plan publish their accumulators of so many fields.
fn published_words(
    plan: &AppliedPlan,
    resolved: &Resolved,
    applied: &AppliedProblem,
    fields: usize,
) -> Option<usize> {
    let fields = &resolved.signature.fields[..fields];
    let words = fields.iter().map(|field| field.bytes().div_ceil(size_of::<u32>())).sum();
    // The plan's check has found that they fit indices of 32 bits.
    plan.published_words(applied, words).map(|words| words as usize)
}

/// Strides of the row-major results along the axes of the input: 0 along those that are reduced.
pub(super) fn result_strides(shape: &[usize], axes: Option<&[usize]>) -> Vec<usize> {
    let reduced = |axis: usize| axes.is_none_or(|axes| axes.contains(&axis));
    let kept: Vec<usize> = (0..shape.len()).filter(|&axis| !reduced(axis)).collect();
    let extents: Vec<usize> = kept.iter().map(|&axis| shape[axis]).collect();
    let mut strides = vec![0; shape.len()];
    for (&axis, stride) in kept.iter().zip(row_major_strides(&extents)) {
        strides[axis] = stride;
    }
    strides
}

/// The tensors of a call.
pub(crate) struct Tensors<'a> {
    pub(crate) input: &'a TensorHandle,
    pub(crate) second: Option<&'a TensorHandle>,
    /// The second input comes first, if there is one.
    pub(crate) operands: Vec<&'a TensorHandle>,
}

/// Bytes of the buffers of a call; `None` where there is no buffer.
pub(crate) struct BufferBytes {
    pub(crate) input: Option<u64>,
    /// The second input comes first, if there is one.
    pub(crate) operands: Vec<Option<u64>>,
}

/// A request and the device to plan for, with its parameters.
pub(crate) struct ApplyCall<'a> {
    pub(crate) request: ApplyRequest,
    /// The device to plan for; `None` means that of the client.
    pub(crate) device: Option<&'a Device>,
    pub(crate) parameters: Vec<f64>,
    pub(crate) apply_parameters: Vec<f64>,
}

impl ApplyCall<'_> {
    /// The problem of the application, and that of the reduction alone.
    pub(crate) fn problems(&self) -> Result<(AppliedProblem, Problem), ReduceError> {
        let (resolved, applied) = self.request.resolve()?;
        Ok((applied, resolved.problem))
    }

    pub(crate) fn choose(&self, client: &Client) -> Result<AppliedChoice, ReduceError> {
        let (resolved, applied) = self.request.resolve()?;
        let of_client = cache::device(client);
        let device = self.device.unwrap_or(&of_client);
        let real = resolved.signature.results[0];
        self.request.check_types(client, device, &resolved, real)?;
        Ok(choose_applied(&applied, &resolved.problem, device)?)
    }

    /// Prepares the call, and the reduction that it launches on its own.
    pub(crate) fn check(&self, client: &Client, bytes: &BufferBytes) -> Result<(), ReduceError> {
        let prepared = self.prepared(client)?;
        self.check_buffers(&prepared, bytes.input, bytes.operands.iter().copied())?;
        let plan = match &prepared.launch {
            Some(Prepared { plan: AppliedPlan::Separately { reduce, .. }, .. }) => Some(*reduce),
            None if self.request.wants_results => None,
            _ => return Ok(()),
        };
        let second = self.request.reduction.second.as_ref().and(bytes.operands.first());
        self.reducing(plan).check(client, [bytes.input, second.copied().flatten()])
    }

    /// The reduction alone, by this plan.
    fn reducing(&self, plan: Option<Plan>) -> Call<'_> {
        let request = Request { plan, ..self.request.reduction.clone() };
        Call { request, device: self.device, plans: None, parameters: self.parameters.clone() }
    }

    /// Checks that the inputs and the operands have the elements that they claim. Their buffers
    /// have these many bytes; `None` where there is no buffer.
    fn check_buffers(
        &self,
        prepared: &PreparedApplication,
        input: Option<u64>,
        operands: impl Iterator<Item = Option<u64>>,
    ) -> Result<(), ReduceError> {
        if let Some(bytes) = input {
            check_input(prepared.applied.problem(), bytes)?;
        }
        let shape = &self.request.reduction.shape;
        for (operand, bytes) in self.request.operands.iter().zip(operands) {
            let Some(bytes) = bytes else { continue };
            let spanned = span(shape, &operand.strides).unwrap_or(usize::MAX);
            check_buffer("operand", spanned, operand.element, bytes)?;
        }
        Ok(())
    }

    fn prepared(&self, client: &Client) -> Result<Rc<PreparedApplication>, ReduceError> {
        if let Some(device) = self.device {
            return Ok(Rc::new(self.request.prepare(client, device)?));
        }
        cache::prepared(cache::identity(client), &self.request, |request| {
            request.prepare(client, &cache::device(client))
        })
    }

    /// Launches into a new row-major tensor. Returns it with the results, if these are wanted.
    pub(crate) fn run(
        self,
        client: &Client,
        tensors: &Tensors<'_>,
    ) -> Result<(TensorHandle, Vec<TensorHandle>), ReduceError> {
        let prepared = self.prepared(client)?;
        let element = prepared.applied.output();
        // A buffer of 0 bytes cannot be bound.
        let handle = client.empty(prepared.applied.elements().max(1) * element.bytes());
        let shape = self.request.reduction.shape.to_vec();
        let output = TensorHandle::new_contiguous(shape, handle, storage_type(element));
        let binding = output.handle.clone().binding();
        let results = self.launch(client, &prepared, tensors, binding)?;
        Ok((output, results))
    }

    /// Launches into a tensor that the caller supplies.
    pub(crate) fn run_into(
        self,
        client: &Client,
        tensors: &Tensors<'_>,
        output: &TensorBinding,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let expected = &self.request.reduction.shape;
        if output.shape[..] != expected[..] {
            let (expected, found) = (expected.to_vec(), output.shape.to_vec());
            return Err(ReduceError::OutputShape { expected, found });
        }
        let prepared = self.prepared(client)?;
        self.launch(client, &prepared, tensors, output.handle.clone())
    }

    fn launch(
        self,
        client: &Client,
        prepared: &PreparedApplication,
        tensors: &Tensors<'_>,
        output: BufferBinding,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let request = &self.request;
        let problem = prepared.applied.problem();
        let bytes = |tensor: &TensorHandle| Some(buffer_bytes(&tensor.handle));
        let of_operands = tensors.operands.iter().map(|&operand| bytes(operand));
        self.check_buffers(prepared, bytes(tensors.input), of_operands)?;
        check_offset(client, "input", tensors.input.handle.offset_start, problem.input())?;
        check_buffer(
            "output",
            problem.output_span(),
            prepared.applied.output(),
            bytes_between(output.size(), output.offset_start, output.offset_end),
        )?;
        check_offset(client, "output", output.offset_start, prepared.applied.output())?;
        for (operand, tensor) in request.operands.iter().zip(&tensors.operands) {
            check_offset(client, "operand", tensor.handle.offset_start, operand.element)?;
        }
        let reduce = |plan| self.reducing(plan).run(client, tensors.input, tensors.second);
        let Some(launch) = &prepared.launch else {
            return if request.wants_results { reduce(None) } else { Ok(Vec::new()) };
        };
        let results = match launch.plan {
            AppliedPlan::Separately { reduce: plan, .. } => reduce(Some(plan))?,
            _ if request.wants_results => prepared.empty_results(client, request),
            _ => Vec::new(),
        };
        let words = match launch.published {
            // CubeCL does not reveal the stream of a client, but a new buffer does.
            Some(count) => Some(words(client, client.empty(1).stream.value, count)?),
            None => None,
        };
        Launch {
            client,
            request,
            prepared,
            launch,
            input: tensors.input.handle.clone().binding(),
            second: tensors.second.map(|second| second.handle.clone().binding()),
            operands: tensors.operands.iter().map(|tensor| tensor.handle.clone()).collect(),
            results: &results,
            output,
            words,
            parameters: &self.parameters,
            apply_parameters: &self.apply_parameters,
        }
        .run();
        Ok(if request.wants_results { results } else { Vec::new() })
    }
}

pub(super) fn check_buffer(
    tensor: &'static str,
    spanned: usize,
    element: ElementType,
    available: u64,
) -> Result<(), ReduceError> {
    let needed = byte_count(spanned, element);
    match needed > available {
        true => Err(ReduceError::BufferTooSmall { tensor, needed, available }),
        false => Ok(()),
    }
}

impl PreparedApplication {
    /// Row-major tensors for the results.
    fn empty_results(&self, client: &Client, request: &ApplyRequest) -> Vec<TensorHandle> {
        let Resolved { problem, signature, shape, .. } = &self.resolved;
        let elements = &signature.results[..request.reduction.operator.0.results];
        elements
            .iter()
            .map(|&element| {
                let handle = client.empty(problem.outputs().max(1) * element.bytes());
                TensorHandle::new_contiguous(shape.clone(), handle, storage_type(element))
            })
            .collect()
    }
}

/// A call whose checks have all passed.
struct Launch<'a> {
    client: &'a Client,
    request: &'a ApplyRequest,
    prepared: &'a PreparedApplication,
    launch: &'a Prepared,
    input: BufferBinding,
    second: Option<BufferBinding>,
    operands: Vec<cubecl::server::Handle>,
    results: &'a [TensorHandle],
    output: BufferBinding,
    words: Option<Words>,
    parameters: &'a [f64],
    apply_parameters: &'a [f64],
}

impl Launch<'_> {
    fn run(self) {
        let Prepared { plan, how, grid, address, cubes, .. } = *self.launch;
        let hold = match plan {
            AppliedPlan::Held { plan, in_shared, cubes_per_output } => {
                self.hold(&plan, in_shared, cubes_per_output > 1)
            }
            _ => Hold::Nothing,
        };
        let units = CubeDim::new_1d(how.team.units_per_cube);
        let problem = self.prepared.applied.problem();
        let geometry = geometry(problem, &self.launch.applying);
        // SAFETY: the buffers hold every offset of the problem and of its companions. The plan's
        // check has found that every vector load is aligned and inside its inner dimension; vectors
        // of the output and of operands are bound where they lie as those of the input do. Units
        // without work repeat the loads of others and write nothing. An output in place of the
        // input is safe: a unit writes an element after it has read it for the last time,
        // and no other unit reads it after the barrier before, nor any unit of another cube
        // at all. There are as many words as the plan asked for, and only launches of this
        // stream use them, one after the other.
        unsafe {
            match plan {
                AppliedPlan::Separately { .. } => apply_stored::launch_unchecked(
                    self.client,
                    count(grid),
                    units,
                    address,
                    self.types(),
                    self.input_arrays(),
                    self.operand_arrays(),
                    self.result_arrays(),
                    self.output_arrays(),
                    geometry,
                    self.companions(),
                    self.apply_parameters(),
                    cubes,
                    how,
                ),
                AppliedPlan::Held { cubes_per_output: 2.., .. } => {
                    let words = self.words.as_ref().expect("the call has asked for words");
                    reduce_and_apply_by_cubes::launch_unchecked(
                        self.client,
                        count(grid),
                        units,
                        address,
                        self.types(),
                        self.input_arrays(),
                        self.operand_arrays(),
                        BufferArg::from_raw_parts(words.handle.clone(), words.count),
                        self.result_arrays(),
                        self.output_arrays(),
                        geometry,
                        self.companions(),
                        self.parameters(),
                        self.apply_parameters(),
                        cubes,
                        words.mark,
                        hold,
                        how,
                        self.request.reduction.operator,
                    );
                }
                _ => reduce_and_apply::launch_unchecked(
                    self.client,
                    count(grid),
                    units,
                    address,
                    self.types(),
                    self.input_arrays(),
                    self.operand_arrays(),
                    self.result_arrays(),
                    self.output_arrays(),
                    geometry,
                    self.companions(),
                    self.parameters(),
                    self.apply_parameters(),
                    hold,
                    how,
                    self.request.reduction.operator,
                ),
            }
        }
    }

    /// How units hold the elements of their tile.
    fn hold(&self, plan: &Plan, in_shared: usize, by_cubes: bool) -> Hold {
        let units = u64::from(plan.schedule.units_per_output()) * self.launch.cubes as u64;
        let held = units * (plan.access.loads_in_flight + in_shared) as u64;
        let all = plan.access.loads_per_output(self.prepared.applied.problem()) == held;
        let along = plan.access.direction == Direction::Along;
        Hold::Elements { in_shared, whole: all && !(plan.access.peeled && along), by_cubes }
    }

    fn types(&self) -> KernelTypesArg {
        let PreparedApplication { resolved, applied, real, .. } = self.prepared;
        let operand = |nth: usize| {
            let operand = self.request.operands.get(nth);
            memory_type(operand.map_or(*real, |operand| operand.element))
        };
        KernelTypesArg {
            stored: memory_type(applied.problem().input()),
            second: applied.problem().second().map(|second| memory_type(second.element())),
            value: memory_type(resolved.signature.value),
            fields: resolved.signature.fields.map(memory_type),
            results: resolved.signature.results.map(memory_type),
            width: self.launch.how.access.vector,
            hardware_math: has_hardware_math(self.client),
            chains: self.launch.chains,
            application: Some(ApplicationTypes {
                real: memory_type(*real),
                output: memory_type(applied.output()),
                operands: [operand(0), operand(1), operand(2)],
            }),
        }
    }

    fn input_arrays(&self) -> InputArraysLaunch {
        let access = self.launch.how.access;
        let problem = self.prepared.applied.problem();
        let span = problem.input_span();
        let array = |len: usize| {
            // SAFETY: the buffer was checked against the span.
            unsafe { BufferArg::from_raw_parts_binding(self.input.clone(), len) }
        };
        let elements = access.peeled.then(|| array(span)).into();
        let (second, second_wide, how) = second_arrays(problem, access, self.second.as_ref());
        let vectors = array(span / access.vector);
        InputArraysLaunch::new(vectors, elements, second.into(), second_wide.into(), how)
    }

    fn output_arrays(&self) -> AppliedArraysLaunch {
        let Access { vector, peeled, .. } = self.launch.how.access;
        let span = self.prepared.applied.problem().output_span();
        let in_vectors = self.launch.output_in_vectors;
        let array = |len: usize| {
            // SAFETY: the buffer was checked against the span.
            unsafe { BufferArg::from_raw_parts_binding(self.output.clone(), len) }
        };
        AppliedArraysLaunch::new(
            in_vectors.then(|| array(span / vector)).into(),
            (!in_vectors || peeled).then(|| array(span)).into(),
        )
    }

    fn operand_arrays(&self) -> OperandArraysLaunch {
        let Access { vector, peeled, direction, .. } = self.launch.how.access;
        let edges = peeled && direction == Direction::Along;
        let array = |nth: usize, wide: bool| {
            let access = self.launch.how.operands[nth];
            let handle = self.operands.get(nth)?;
            let bound = match (wide, access) {
                (true, access) => access == CompanionAccess::Vector,
                (false, CompanionAccess::Vector) => edges,
                (false, CompanionAccess::Second) => false,
                (false, _) => true,
            };
            let operand = &self.request.operands[nth];
            let span = span(&self.request.reduction.shape, &operand.strides)?;
            let len = if wide { span / vector } else { span };
            // SAFETY: the buffer was checked against the span.
            bound.then(|| unsafe { BufferArg::from_raw_parts(handle.clone(), len) })
        };
        OperandArraysLaunch::new(
            array(0, false).into(),
            array(1, false).into(),
            array(2, false).into(),
            array(0, true).into(),
            array(1, true).into(),
            array(2, true).into(),
        )
    }

    fn result_arrays(&self) -> ResultArraysLaunch {
        // Each buffer was allocated with this length.
        let len = self.prepared.resolved.problem.outputs();
        result_arrays(self.results.iter().map(|result| result.handle.clone().binding()), len)
    }

    /// The strides of the results and of the operands.
    fn companions(&self) -> SequenceArg<kernels::companion::Companion> {
        let direction = self.launch.how.access.direction;
        let mut sequence = SequenceArg::new();
        for companion in self.prepared.applied.companions() {
            sequence.push(companion_launch(companion, direction));
        }
        sequence
    }

    /// The operator's parameters, as in a reduction alone.
    fn parameters(&self) -> ParametersLaunch {
        parameters(self.parameters, &self.prepared.resolved.signature)
    }

    fn apply_parameters(&self) -> ParametersLaunch {
        ParametersLaunch::of(self.apply_parameters, storage_type(self.prepared.real))
    }
}
