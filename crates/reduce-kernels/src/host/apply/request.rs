//! The request of one applied reduction, as plain data, and what it becomes.

use std::{cell::RefCell, thread::LocalKey};

use cubecl::{ir::AddressType, prelude::*};
use reduce_planner::{
    Access, AppliedKind, AppliedPlan, AppliedProblem, AppliedSpec, Companion, Device, Direction,
    ElementType, Illegal, InputSpec, Plan, PlanError, Problem, Role, applied_needs_wide_indices,
    check_index_span, row_major_strides, span,
};

#[cfg(feature = "serde")]
use crate::recorded::{
    RecordedApplication, RecordedCall, RecordedOperand, RecordedOutput, RecordedReduction,
};
use crate::{
    element::memory_type,
    error::{Reason, ReduceError},
    host::{
        arguments::merging_types,
        bound::{byte_count, check_inputs, check_span},
        cache::{Asked, Held, Known, Models, Remembered, chosen},
        call::{Task, prepare},
        companion::{companion_access, second_access},
        launched::{Kernel, Launches, Noted, dimensions},
        reduce::{
            PreparedReduction,
            dispatch::{sure_loads, team},
            request::{ReduceRequest, SecondRequest, StatedReduction},
        },
        segments::{
            integers::{IntegersSpec, MembersSpec},
            request::{PreparedSegments, SegmentsRequest, StatedSegments},
        },
        types::{applied_type, check_apply_types, check_arithmetic, word_count},
    },
    kernels::{
        application::ApplySpec,
        args::{ApplicationTypes, KernelTypesArg, Stores},
        geometry::CompanionAccess,
        held::Hold,
        pairwise::needs_chains,
        team::Team,
    },
    operator::{ApplyRef, OperatorRef, Signature, rules},
};

/// Everything that decides how an applied reduction is launched, apart from its buffers and its
/// device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApplyRequest<'a> {
    /// The reduction. Its outputs are the results, row-major.
    pub(crate) reduction: ReduceRequest<'a>,
    /// The segments of its axis, if it reduces segments.
    pub(crate) members: Option<MembersSpec>,
    pub(crate) apply: ApplyRef,
    /// Each output, as many as the function gives.
    pub(crate) outputs: Vec<AppliedOutput>,
    /// The second input comes first, if there is one.
    pub(crate) operands: Vec<OperandSpec>,
    /// Whether the caller wants the results too.
    pub(crate) wants_results: bool,
    pub(crate) plan: Option<AppliedPlan>,
}

/// An output of an application.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct AppliedOutput {
    /// The type that the caller asked for.
    pub(crate) element: Option<ElementType>,
    /// Strides and alignment of a supplied tensor.
    pub(crate) layout: Option<(Vec<usize>, usize)>,
}

impl AppliedOutput {
    fn strides(&self) -> Option<&[usize]> {
        self.layout.as_ref().map(|(strides, _)| &strides[..])
    }

    fn alignment(&self) -> usize {
        self.layout.as_ref().map_or(Access::WIDEST_STORE, |&(_, alignment)| alignment)
    }
}

/// An operand: its type, and its strides along the axes of the input.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperandSpec {
    pub(crate) element: ElementType,
    pub(crate) strides: Vec<usize>,
    /// The stride from one segment to the next, of an operand that has segments in place of the
    /// axis.
    pub(crate) segment_stride: Option<usize>,
    pub(crate) alignment: usize,
}

/// An applied reduction whose axes, types and strides have been checked.
#[derive(Debug)]
pub(crate) struct StatedApplication {
    /// The problem of the application, and that of the reduction alone.
    pub(crate) problems: (AppliedProblem, Problem),
    pub(super) signature: Signature,
    /// Shape of the results.
    pub(super) shape: Vec<usize>,
    /// What says to which segment an element belongs: keys, or offsets.
    pub(super) members: Option<IntegersSpec>,
}

impl StatedApplication {
    /// The problem of the application.
    pub(super) fn applied(&self) -> &AppliedProblem {
        &self.problems.0
    }

    /// Types of the outputs' elements.
    pub(super) fn outputs(&self) -> impl Iterator<Item = ElementType> {
        core::iter::once(self.applied().output()).chain(self.applied().further().iter().copied())
    }

    /// Type in which results are applied, which is that of the results.
    pub(super) fn real(&self) -> ElementType {
        self.signature.results[0]
    }
}

/// An applied reduction that is ready to launch, except for its buffers.
#[derive(Debug)]
pub(crate) struct PreparedApplication {
    pub(super) stated: StatedApplication,
    /// `None` if there are no elements.
    pub(super) launch: Option<ApplyingLaunch>,
    /// The reduction, where it is launched alone: its results are stored before they are applied,
    /// or there is nothing that they are applied to.
    pub(super) reduction: Option<Alone>,
    pub(super) noted: Noted,
}

/// A reduction that is launched alone.
#[derive(Debug)]
pub(crate) enum Alone {
    Whole(Box<PreparedReduction>),
    Segments(Box<PreparedSegments>),
}

/// A plan and the numbers of the launch that applies results.
#[derive(Debug)]
pub(crate) struct ApplyingLaunch {
    pub(super) plan: AppliedPlan,
    pub(super) operator: OperatorRef,
    pub(super) types: KernelTypesArg,
    pub(super) spec: ApplySpec,
    pub(super) hold: Hold,
    /// The access and the schedule.
    pub(super) applying: Plan,
    pub(super) grid: [u32; 3],
    pub(super) address: AddressType,
    pub(super) output_in_vectors: bool,
    pub(super) cubes: usize,
    /// Words in which cubes publish partials.
    pub(super) published: Option<usize>,
}

thread_local! {
    static KNOWN: RefCell<Known<ApplyRequest<'static>>> = RefCell::default();
    static MODELS: RefCell<Models<(AppliedProblem, Problem)>> = RefCell::default();
}

impl Remembered for ApplyRequest<'static> {
    type Prepared = PreparedApplication;

    fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
        &KNOWN
    }

    fn held(&self, _: &PreparedApplication) -> Held {
        Held::of_axes::<Self, PreparedApplication>(self.reduction.shape.len())
    }
}

impl Asked for ApplyRequest<'_> {
    type Request = ApplyRequest<'static>;

    fn is(&self, known: &ApplyRequest<'static>) -> bool {
        self == known
    }

    fn to_request(&self) -> ApplyRequest<'static> {
        let copy = self.clone();
        ApplyRequest { reduction: copy.reduction.into_owned(), ..copy }
    }
}

/// The tensors are the input, the operands, of which a second input is the first, and those of
/// [`MembersSpec`] if there are segments.
impl Task for ApplyRequest<'_> {
    type Stated = StatedApplication;
    type Problem = (AppliedProblem, Problem);
    type Launch = ApplyingLaunch;

    fn state(&self) -> Result<StatedApplication, ReduceError> {
        let most = self.apply.0.operands;
        if self.operands.len() > most {
            let found = self.operands.len();
            return Err(Reason::TooManyOperands { apply: self.apply.0.name, most, found }.into());
        }
        if self.outputs.len() != self.apply.0.outputs {
            let (expected, found) = (self.apply.0.outputs, self.outputs.len());
            return Err(Reason::AppliedOutputs { apply: self.apply.0.name, expected, found }.into());
        }
        let reduction = &self.reduction;
        let axes = reduction.axes.as_deref();
        let segments = self.segments()?;
        let stated = segments.as_ref().map(SegmentsRequest::state).transpose()?;
        let (StatedReduction { problem, signature, shape, .. }, of_segments) = match stated {
            None => (reduction.resolve()?, None),
            Some(StatedSegments { reduction, problem, shape, members }) => {
                let reduction = StatedReduction { shape, ..reduction };
                // An element may have several indices.
                if members.indices.is_some() && members.keys.is_none() {
                    return Err(Reason::AppliedIndices { apply: self.apply.0.name }.into());
                }
                (reduction, Some((problem, members.keys.unwrap_or(members.offsets))))
            }
        };
        let results = match &of_segments {
            None => result_strides(&reduction.shape, axes),
            Some(_) => {
                let mut strides = row_major_strides(&shape);
                axes.unwrap_or(&[0]).iter().for_each(|&axis| strides[axis] = 0);
                strides
            }
        };
        let mut companions = vec![&results[..]];
        companions.extend(self.operands.iter().map(|operand| &operand.strides[..]));
        let second = reduction.second.as_ref().map(SecondRequest::spec);
        let further = (1..self.outputs.len())
            .map(|nth| Ok((self.output_type(nth)?, self.outputs[nth].strides())))
            .collect::<Result<Vec<_>, ReduceError>>()?;
        let applied = AppliedProblem::new(
            problem.operator(),
            &InputSpec {
                element: reduction.element,
                shape: &reduction.shape,
                strides: &reduction.strides,
                alignment: reduction.alignment,
            },
            axes,
            &AppliedSpec {
                element: self.output_type(0)?,
                strides: self.outputs[0].strides(),
                second: second.as_ref(),
                companions: &companions,
                further: &further,
            },
        )?;
        let applied = applied.with_numerics(reduction.numerics);
        let applied = if self.wants_results { applied.storing_results() } else { applied };
        let (applied, members) = match of_segments {
            None => (applied, None),
            Some((segments, members)) => {
                let of_operands = self.operands.iter().map(|operand| operand.segment_stride);
                let strides: Vec<usize> = core::iter::once(Some(segments.segment_stride()))
                    .chain(of_operands)
                    .chain(further.iter().map(|_| None))
                    .map(Option::unwrap_or_default)
                    .collect();
                (applied.of_segments(segments, &strides)?, Some(members))
            }
        };
        Ok(StatedApplication { problems: (applied, problem), signature, shape, members })
    }

    fn problem(stated: &StatedApplication) -> &(AppliedProblem, Problem) {
        &stated.problems
    }

    fn given(&self) -> Option<&AppliedPlan> {
        self.plan.as_ref()
    }

    fn check_types(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedApplication,
    ) -> Result<(), ReduceError> {
        check_arithmetic(client, self.reduction.operator.0, &stated.signature, device)?;
        let keys = self.members.and_then(|members| members.keys).map(|keys| keys.element);
        let mut others = self.operands.iter().map(|operand| operand.element).chain(keys);
        if let Some(element) = others.find(|&element| !device.has(element)) {
            let device = device.name.clone();
            return Err(PlanError::ElementUnsupported { device, element }.into());
        }
        check_apply_types(client, device, self.apply.0, stated.real())
    }

    fn check_bytes(
        &self,
        stated: &StatedApplication,
        bytes: &[Option<u64>],
    ) -> Result<(), ReduceError> {
        check_inputs(stated.applied().problem(), bytes)?;
        let inputs = 1 + usize::from(self.reduction.second.is_some());
        for (operand, &bytes) in self.own_operands().iter().zip(bytes.iter().skip(inputs)) {
            let Some(bytes) = bytes else { continue };
            check_span(Role::Operand, self.span_of(operand), operand.element, bytes)?;
        }
        self.members.map_or(Ok(()), |members| members.check_bytes(bytes))
    }

    fn check_outputs(
        &self,
        client: &Client,
        stated: &StatedApplication,
    ) -> Result<(), ReduceError> {
        let available = client.properties().memory.max_page_size;
        let applied = stated.applied();
        let types = core::iter::once(applied.output()).chain(applied.further().iter().copied());
        let needed = self.outputs.iter().zip(types).filter(|(output, _)| output.layout.is_none());
        let needed = needed.map(|(_, element)| byte_count(applied.elements(), element)).max();
        match needed.filter(|&needed| needed > available) {
            Some(needed) => Err(Reason::OutputTooLarge { needed, available }.into()),
            None => Ok(()),
        }
    }

    fn is_empty(stated: &StatedApplication) -> bool {
        stated.applied().elements() == 0
    }

    fn launch(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedApplication,
        plan: &AppliedPlan,
    ) -> Result<ApplyingLaunch, ReduceError> {
        let applied = stated.applied();
        let problem = applied.problem();
        let (applying, cubes) = plan.applying();
        let access = applying.access;
        let total = applying.cubes(problem).saturating_mul(u64::from(cubes));
        let grid = device.grid(total).ok_or_else(|| PlanError::Unfit {
            plan: plan.to_string(),
            device: device.name.clone(),
            reason: Illegal::Grid { cubes: total, merging: false },
        })?;
        let output = Companion {
            kept: problem.kept().iter().map(|dim| dim.output_stride).collect(),
            reduced: problem.reduced().iter().map(|dim| dim.position_stride).collect(),
        };
        let alignment = self.outputs[0].alignment();
        let mut operands = [CompanionAccess::None; 3];
        let strides = &applied.companions()[1..];
        for ((slot, operand), strides) in operands.iter_mut().zip(&self.operands).zip(strides) {
            let (element, alignment) = (operand.element, operand.alignment);
            *slot = companion_access(problem, access, strides, element, alignment);
            // Vectors of a segment may begin anywhere.
            let begins = operand.segment_stride.unwrap_or(0).is_multiple_of(access.vector);
            if *slot == CompanionAccess::Vector && !begins {
                *slot = CompanionAccess::Elements;
            }
            let of_tile = access.direction == Direction::Along
                && operand.segment_stride.is_none()
                && strides.reduced.iter().all(|&stride| stride == 0);
            if of_tile {
                *slot = CompanionAccess::OfTile;
            }
        }
        let mut further = [CompanionAccess::None; 2];
        let companions = applied.companions();
        let strides = &companions[companions.len() - applied.further().len()..];
        let others = applied.further().iter().zip(&self.outputs[1..]).zip(strides);
        for (slot, ((&element, output), strides)) in further.iter_mut().zip(others) {
            let alignment = output.alignment();
            *slot = match companion_access(problem, access, strides, element, alignment) {
                CompanionAccess::Vector => CompanionAccess::Vector,
                _ => CompanionAccess::Elements,
            };
        }
        let mut of_segments = [false; 3];
        for (slot, operand) in of_segments.iter_mut().zip(&self.operands) {
            *slot = operand.segment_stride.is_some();
        }
        if problem.second().is_some() {
            operands[0] = match plan {
                AppliedPlan::Held { .. } if applied.second_is_shared() => {
                    CompanionAccess::SecondAgain
                }
                _ => CompanionAccess::Second,
            };
        }
        // Results that an earlier launch has stored, in rows of whole vectors.
        let results = &applied.companions()[0];
        let alike = access.suits(problem, results, stated.real(), Access::WIDEST_STORE);
        let of_segment = applied.segment_strides().first().copied().unwrap_or(0);
        let bindings =
            plan.bindings(applied, &stated.problems.1) + self.reduction.operator.0.results;
        let results_in_vectors = plan.kind() == AppliedKind::Separately
            && access.direction == Direction::Across
            && !access.peeled
            && alike
            && of_segment.is_multiple_of(access.vector)
            && !stated.shape.contains(&0)
            && bindings <= device.max_bindings as usize;
        let span = self.members.map_or(Ok(0), MembersSpec::span)?;
        let wide = applied_needs_wide_indices(applied) || check_index_span(span as u64, device)?;
        let operator = self.reduction.operator;
        let is_float = stated.signature.fields[0].is_float();
        let team = Team { merging_units: plan.merging_units(), ..team(&applying, device) };
        let chains = is_float && needs_chains(operator, &applying, problem);
        let output_in_vectors = access.suits(problem, &output, applied.output(), alignment);
        let held = matches!(plan, AppliedPlan::Held { .. });
        let bytes = access.vector * applied.output().bytes();
        let moves_back = held
            && access.realigns_along()
            && !output_in_vectors
            && output.reduced.last() == Some(&1)
            && bytes <= Access::WIDEST_STORE
            && alignment.is_multiple_of(bytes)
            && team.lanes() > 1;
        let types = KernelTypesArg {
            width: access.vector,
            chains,
            stores: Stores::results(output_in_vectors || moves_back),
            ..self.types(client, stated)
        };
        Ok(ApplyingLaunch {
            plan: *plan,
            operator,
            types,
            hold: hold(plan, applied),
            spec: ApplySpec {
                access,
                team,
                apply: self.apply,
                operands,
                further,
                of_segments,
                by_keys: self.members.is_some_and(|members| members.keys.is_some()),
                results_in_vectors,
                moves_back,
            },
            applying,
            grid,
            address: if wide { AddressType::U64 } else { AddressType::U32 },
            output_in_vectors,
            cubes: cubes as usize,
            published: published_words(plan, stated, operator.0.fields),
        })
    }

    /// The reduction that is launched alone is prepared like any other, by the plan that it has in
    /// this one.
    fn prepare(
        &self,
        client: &Client,
        device: &Device,
        stated: StatedApplication,
        launch: Option<ApplyingLaunch>,
    ) -> Result<PreparedApplication, ReduceError> {
        let plan = launch.as_ref().map(|launch| launch.plan);
        let whole = |plan| -> Result<Option<Alone>, ReduceError> {
            let request = ReduceRequest { plan, ..self.reduction.clone() };
            let prepared = prepare(&request, client, device, false, |_| None)?;
            Ok(Some(Alone::Whole(Box::new(prepared))))
        };
        let segments = |plan, request| -> Result<Option<Alone>, ReduceError> {
            let request = SegmentsRequest { plan, ..request };
            let prepared = prepare(&request, client, device, false, |_| None)?;
            Ok(Some(Alone::Segments(Box::new(prepared))))
        };
        let reduction = match (plan, self.segments()?) {
            (Some(AppliedPlan::Separately { reduce, .. }), _) => whole(Some(reduce))?,
            (Some(AppliedPlan::Segments { reduce, .. }), Some(of)) => segments(Some(reduce), of)?,
            (None, Some(of)) if self.wants_results => segments(None, of)?,
            (None, None) if self.wants_results => whole(None)?,
            _ => None,
        };
        let noted = Noted::default();
        Ok(PreparedApplication { stated, launch, reduction, noted })
    }

    fn chosen(
        client: usize,
        problem: &(AppliedProblem, Problem),
        device: &Device,
    ) -> Result<AppliedPlan, PlanError> {
        chosen(&MODELS, client, problem, device)
    }

    #[cfg(feature = "serde")]
    fn recorded(&self) -> Option<RecordedCall> {
        let is_recorded = self.plan.is_none();
        is_recorded.then(|| RecordedCall::Application(RecordedApplication::of(self)))
    }
}

impl ApplyRequest<'_> {
    /// The operands without the second input.
    pub(crate) fn own_operands(&self) -> &[OperandSpec] {
        &self.operands[usize::from(self.reduction.second.is_some())..]
    }

    /// The request for the segments of the reduction, if it reduces segments.
    fn segments(&self) -> Result<Option<SegmentsRequest<'_>>, ReduceError> {
        let request = |members| SegmentsRequest::new(self.reduction.clone(), members);
        self.members.map(request).transpose()
    }

    /// Elements from the first to the last of output number `nth`, of which the first is that of
    /// the problem.
    pub(super) fn output_span(&self, nth: usize, problem: &Problem) -> usize {
        match (nth, self.outputs[nth].strides()) {
            (0, _) => problem.output_span(),
            (_, Some(strides)) => span(&self.reduction.shape, strides).unwrap_or(usize::MAX),
            (_, None) => self.reduction.shape.iter().product(),
        }
    }

    /// Elements from the first to the last of an operand.
    pub(super) fn span_of(&self, operand: &OperandSpec) -> usize {
        let (mut shape, mut strides) = (self.reduction.shape.to_vec(), operand.strides.clone());
        // Segments are in place of the axis, along which the stride is 0.
        shape.push(self.members.map_or(1, MembersSpec::segments));
        strides.push(operand.segment_stride.unwrap_or(0));
        span(&shape, &strides).unwrap_or(usize::MAX)
    }

    /// The types of the tensors.
    fn types(&self, client: &Client, stated: &StatedApplication) -> KernelTypesArg {
        let (applied, real) = (stated.applied(), stated.real());
        let operand = |nth: usize| {
            let operand = self.operands.get(nth);
            memory_type(operand.map_or(real, |operand| operand.element))
        };
        let output = |nth: usize| {
            let further = nth.checked_sub(1).and_then(|nth| applied.further().get(nth));
            memory_type(further.copied().unwrap_or(applied.output()))
        };
        KernelTypesArg {
            stored: memory_type(applied.problem().input()),
            second: applied.problem().second().map(|second| memory_type(second.element())),
            offsets: stated.members.map(|members| memory_type(members.element)),
            application: Some(ApplicationTypes {
                real: memory_type(real),
                outputs: [output(0), output(1), output(2)],
                operands: [operand(0), operand(1), operand(2)],
            }),
            ..merging_types(client, &stated.signature)
        }
    }

    /// Type of the elements of output number `nth`.
    fn output_type(&self, nth: usize) -> Result<ElementType, ReduceError> {
        let element = self.reduction.element;
        let asked = |output: &AppliedOutput| output.element;
        let wide = self.outputs.iter().filter_map(asked).find(|&of| of == ElementType::F64);
        let real = applied_type(element, self.reduction.accumulator, wide);
        let output = self.outputs[nth].element.unwrap_or(rules::computed(element, real));
        match output != ElementType::Bool {
            true => Ok(output),
            false => Err(Reason::AppliedType { apply: self.apply.0.name, output }.into()),
        }
    }
}

impl Launches for PreparedApplication {
    fn kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        match &self.reduction {
            Some(Alone::Whole(reduction)) => reduction.kernels(client, each),
            Some(Alone::Segments(reduction)) => reduction.kernels(client, each),
            None => {}
        }
        if let Some(launch) = &self.launch {
            each(launch.kernel(self.stated.applied()));
        }
    }
}

impl ApplyingLaunch {
    /// The kernel of the launch.
    pub(super) fn kernel(&self, applied: &AppliedProblem) -> Kernel {
        let problem = applied.problem();
        let applies = (
            (self.types, self.spec, self.address),
            (dimensions(problem), second_access(problem, self.spec.access)),
        );
        let name = match self.plan {
            AppliedPlan::Separately { .. } => return Kernel::new("apply_stored", applies),
            AppliedPlan::Segments { .. } => return Kernel::new("apply_to_segments", applies),
            AppliedPlan::Held { cubes_per_output: 2.., .. } => "reduce_and_apply_by_cubes",
            _ => "reduce_and_apply",
        };
        // Results are bound where the caller wants them.
        Kernel::new(name, (applies, self.operator, self.hold, applied.stores_results()))
    }
}

/// How units hold the elements of their tile.
fn hold(plan: &AppliedPlan, applied: &AppliedProblem) -> Hold {
    let problem = applied.problem();
    let &AppliedPlan::Held { plan, in_shared, cubes_per_output } = plan else {
        return Hold::Nothing;
    };
    Hold::Elements {
        in_shared,
        sure: sure_loads(&plan, cubes_per_output, problem),
        by_cubes: cubes_per_output > 1,
        second_again: applied.second_is_shared(),
    }
}

/// The words in which the cubes of a plan publish their accumulators of so many fields.
fn published_words(plan: &AppliedPlan, stated: &StatedApplication, fields: usize) -> Option<usize> {
    let words = word_count(&stated.signature.fields[..fields]);
    // The plan's check has found that they fit indices of 32 bits.
    plan.published_words(stated.applied(), words).map(|words| words as usize)
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

#[cfg(feature = "serde")]
impl RecordedApplication {
    /// The application of a request.
    pub(crate) fn of(request: &ApplyRequest<'_>) -> Self {
        let operands = request.own_operands().iter().map(|operand| RecordedOperand {
            segment_stride: operand.segment_stride,
            ..RecordedOperand::new(operand.element, &operand.strides, operand.alignment)
        });
        Self {
            function: request.apply.0.name.to_owned(),
            reduction: RecordedReduction::of(&request.reduction),
            output: request.outputs[0].element,
            output_layout: request.outputs[0].layout.clone(),
            further: request.outputs[1..]
                .iter()
                .map(|of| RecordedOutput { element: of.element, layout: of.layout.clone() })
                .collect(),
            segments: request.members.map(|of| (of.segments(), of.offsets.element)),
            grouped: request.members.and_then(|of| Some((of.indices?.element, of.keys?.element))),
            operands: operands.collect(),
            with_results: request.wants_results,
        }
    }
}
