//! The `AppliedReduction` builder.

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
#[cfg(feature = "serde")]
use reduce_planner::PlanStore;
use reduce_planner::{AppliedPlan, AppliedProblem, Choice, Device, ElementType, Numerics, Problem};

#[cfg(feature = "serde")]
use crate::recorded::{RecordedApplication, RecordedCall};
use crate::{
    axes::Axes,
    error::{Reason, ReduceError},
    groups::Groups,
    host::{
        apply::{
            launch::Tensors,
            request::{AppliedOutput, ApplyRequest, OperandSpec},
        },
        call::Call,
        segments::integers::Members,
        types::applied_type,
    },
    input::{Input, alignment_of},
    operator::{Apply, ApplyRef, Arity, Fields, Operator, rules},
    plan_in_use::PlanInUse,
    reduction::{Options, Outputs, Reduction, request},
};

impl<'a, O: Operator, T: Input> Reduction<'a, O, T> {
    /// Applies the results to each element of the input, in the same launch where the plan allows:
    /// `apply` gets the element and the results of its reduction, and gives an element of the
    /// output.
    ///
    /// Results are of f32 then, or of f64 if that is the type of the input, of the accumulator or
    /// of the output. Types that were asked for with [`output_type`](Self::output_type) and a plan
    /// are dropped.
    ///
    /// ```no_run
    /// # use reduce_kernels::{
    /// #     ReduceError,
    /// #     cubecl::{prelude::*, std::tensor::TensorHandle},
    /// #     normalize::Scaled,
    /// #     operators::NormL2Reciprocal,
    /// #     reduce,
    /// # };
    /// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
    /// let unit_rows = reduce(NormL2Reciprocal { eps: 1e-12 }, x).over(1).apply(Scaled).run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn apply<F: Apply<Results = O::Results>>(self, apply: F) -> AppliedReduction<'a, O, F, T> {
        AppliedReduction::new(self, apply)
    }
}

/// A reduction whose results are applied to each element of its input; see [`Reduction::apply`]. It
/// does nothing until it is run. If the input is a [`TensorDescription`](crate::TensorDescription),
/// it cannot run, but answers everything else.
#[must_use = "an applied reduction does nothing until it is run"]
pub struct AppliedReduction<'a, O, F, T> {
    pub(crate) reduction: Reduction<'a, O, T>,
    apply: F,
    pub(crate) operands: Vec<Beside<'a, T>>,
    pub(crate) members: Option<Members<'a, T>>,
    /// The type of each output that was asked for.
    outputs: [Option<ElementType>; 3],
    plan: Option<AppliedPlan>,
}

/// An operand, and the axes of the input that are its own.
pub(crate) struct Beside<'a, T> {
    pub(crate) operand: &'a T,
    axes: Axes,
    /// Whether it has segments in place of the axis.
    of_segments: bool,
}

impl<O: Operator, F: Apply, T: Input> fmt::Debug for AppliedReduction<'_, O, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppliedReduction")
            .field("reduction", &self.reduction)
            .field("apply", &F::NAME)
            .field("operands", &self.operands.len())
            .field("segments", &self.members)
            .field("outputs", &&self.outputs[..F::Outputs::COUNT])
            .field("plan", &self.plan)
            .finish()
    }
}

/// The outputs of a function, and the results that were applied.
pub type WithResults<O, F> = (AppliedOutputs<F, TensorHandle>, Outputs<O, TensorHandle>);

/// An `X` for each output of the function `F`: `X` itself for one, otherwise a tuple.
pub type AppliedOutputs<F, X> = <<F as Apply>::Outputs as Arity>::Each<X>;

impl<'a, O: Operator, F: Apply<Results = O::Results>, T: Input> AppliedReduction<'a, O, F, T> {
    pub(crate) fn new(reduction: Reduction<'a, O, T>, apply: F) -> Self {
        let (operands, members) = (Vec::new(), None);
        Self { reduction, apply, operands, members, outputs: [None; 3], plan: None }
    }

    /// Adds the next operand: a tensor whose axes are these axes of the input, in this order. Along
    /// the other axes, and where its extent is 1, its elements are repeated. A second input of the
    /// reduction is the first operand already.
    ///
    /// The weight of a layer normalisation over the last axis of a matrix is an operand over axis
    /// 1, a residual is one over `..`. The operand is read once for each element of the input,
    /// mostly from the cache if it is repeated.
    pub fn operand(mut self, operand: &'a T, axes: impl Into<Axes>) -> Self {
        self.operands.push(Beside { operand, axes: axes.into(), of_segments: false });
        self
    }

    /// Adds the next operand like [`operand`](Self::operand). It has [segments](Self::segments) in
    /// place of the axis: each element of the input gets the operand's element of its segment. The
    /// axis is among its axes.
    ///
    /// The results of an earlier reduction of the same segments are such an operand.
    pub fn operand_of_segments(mut self, operand: &'a T, axes: impl Into<Axes>) -> Self {
        self.operands.push(Beside { operand, axes: axes.into(), of_segments: true });
        self
    }

    /// Reduces segments of the one axis of the reduction, and applies the results of each to its
    /// own elements: the softmax of each sentence of a batch whose sentences follow each other, or
    /// the attention of each node of a graph to its neighbours.
    ///
    /// `offsets` are those of [`Reduction::segments`]. Elements that no segment has become 0. A
    /// plan that was set before is dropped.
    ///
    /// ```no_run
    /// use reduce_kernels::{ReduceError, cubecl, normalize::Softmax};
    ///
    /// # use cubecl::{prelude::*, std::tensor::TensorHandle};
    /// // `scores` has an element for each edge of a graph, sorted by the node that it leads to, and
    /// // node number `v` has the edges from `offsets[v]` up to `offsets[v + 1]`.
    /// # fn example(
    /// #     client: &Client,
    /// #     scores: &TensorHandle,
    /// #     offsets: &TensorHandle,
    /// # ) -> Result<(), ReduceError> {
    /// let attention = Softmax.of(scores, 0).segments(offsets).run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn segments(self, offsets: &'a T) -> Self {
        self.of_members(Members::new(offsets))
    }

    /// Reduces [groups](Groups) of elements of the one axis of the reduction, and applies the
    /// results of each to its own elements, in place of neighbouring [segments](Self::segments).
    /// Elements of no group become 0. A plan that was set before is dropped.
    ///
    /// ```no_run
    /// use reduce_kernels::{ReduceError, cubecl, normalize::Softmax, segments::group_by_keys};
    ///
    /// # use cubecl::{prelude::*, std::tensor::TensorHandle};
    /// // Attention of each of 1000 nodes over its edges, which are in any order.
    /// # fn example(
    /// #     client: &Client,
    /// #     scores: &TensorHandle,
    /// #     targets: &TensorHandle,
    /// # ) -> Result<(), ReduceError> {
    /// let nodes = group_by_keys(client, targets, 1000)?;
    /// let attention = Softmax.of(scores, 0).grouped(&nodes).run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn grouped(self, groups: &'a Groups<T>) -> Self {
        self.of_members(groups.members())
    }

    pub(crate) fn of_members(mut self, members: Members<'a, T>) -> Self {
        self.members = Some(members);
        self.plan = None;
        self
    }

    /// Asks for this type of all outputs, of floating point or of integers. By default they have
    /// the type of the input, or that of the results if the input is of fp8, integers or bools.
    ///
    /// An output of integers has the nearest one, the even one of two that are as near, and the
    /// least or the largest of its type where that is nearest. NaN becomes 0.
    pub fn output_type(mut self, output: ElementType) -> Self {
        self.outputs[..F::Outputs::COUNT].fill(Some(output));
        self
    }

    /// Asks for a type of each output, as [`output_type`](Self::output_type).
    pub fn output_types(mut self, outputs: AppliedOutputs<F, Option<ElementType>>) -> Self {
        let outputs = F::Outputs::into_list(outputs);
        self.outputs[..outputs.len()].copy_from_slice(&outputs);
        self
    }

    /// Promises that the bits of the output depend on no more than this; see
    /// [`Reduction::numerics`].
    pub fn numerics(mut self, numerics: Numerics) -> Self {
        self.reduction = self.reduction.numerics(numerics);
        self
    }

    /// Runs this plan instead of choosing one. It is checked against the problem and the device.
    pub fn with_plan(mut self, plan: AppliedPlan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Takes the plan from `plans`, if it has one for the problem; see [`Reduction::with_plans`].
    #[cfg(feature = "serde")]
    pub fn with_plans(mut self, plans: &'a PlanStore) -> Self {
        self.reduction = self.reduction.with_plans(plans);
        self
    }

    /// Plans for `device`; see [`Reduction::plan_for`].
    pub fn plan_for(mut self, device: &'a Device) -> Self {
        self.reduction = self.reduction.plan_for(device);
        self
    }

    /// The problem of the application, and that of the reduction alone, for planning without a
    /// device.
    ///
    /// # Errors
    ///
    /// Invalid axes, operands, types or strides.
    pub fn problems(&self) -> Result<(AppliedProblem, Problem), ReduceError> {
        Ok(self.call(None, false)?.stated()?.problems)
    }

    /// Chooses a plan without running it, even if [`with_plan`](Self::with_plan) has set one.
    ///
    /// # Errors
    ///
    /// Invalid axes, operands, types or strides, and reductions that the device cannot run.
    pub fn choose(&self, client: &Client) -> Result<Choice<AppliedPlan>, ReduceError> {
        self.call(None, false)?.choose(client, &self.buffer_bytes())
    }

    /// The plan that [`run`](Self::run) would run now, and where it comes from; see
    /// [`Reduction::plan`].
    ///
    /// # Errors
    ///
    /// The errors of `choose`, and a plan of `with_plan` that may not run.
    pub fn plan(&self, client: &Client) -> Result<PlanInUse<AppliedPlan>, ReduceError> {
        self.call(None, false)?.plan(client, &self.buffer_bytes())
    }

    /// Whether [`run`](Self::run) would launch. It checks and plans the call, and caches both, but
    /// launches nothing. The memory of tensors is not checked if these are a
    /// [`TensorDescription`](crate::TensorDescription).
    ///
    /// # Errors
    ///
    /// The error that `run` would return, but for those that only memory shows: scratch memory that
    /// the device lacks, and a tensor at an offset that the device cannot bind.
    pub fn check(&self, client: &Client) -> Result<(), ReduceError> {
        self.call(None, false)?.check(client, &self.buffer_bytes())
    }

    /// Whether [`run_with_results`](Self::run_with_results) would launch, like
    /// [`check`](Self::check). The results take buffers too, which the device may not be able to
    /// bind.
    ///
    /// # Errors
    ///
    /// The error that `run_with_results` would return, but for those that [`check`](Self::check)
    /// leaves out.
    pub fn check_with_results(&self, client: &Client) -> Result<(), ReduceError> {
        self.call(None, true)?.check(client, &self.buffer_bytes())
    }

    /// The application into a new tensor as data, as
    /// [`record_calls`](crate::plans::record_calls) would record it.
    ///
    /// # Errors
    ///
    /// A parameter out of range, or a tensor that cannot be reduced.
    #[cfg(feature = "serde")]
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        Ok(RecordedCall::Application(RecordedApplication::of(&self.call(None, false)?.task)))
    }

    /// Bytes of the buffers of all tensors, where they exist.
    fn buffer_bytes(&self) -> Vec<Option<u64>> {
        let Reduction { input, second, .. } = self.reduction;
        let operands = self.operands.iter().map(|beside| beside.operand);
        let all = core::iter::once(input).chain(second).chain(operands);
        let members = self.members.iter().flat_map(Members::buffer_bytes);
        all.map(|tensor| tensor.buffer_bytes()).chain(members).collect()
    }

    /// The call. `layouts` are the strides and the alignment of each supplied output.
    pub(crate) fn call(
        &self,
        layouts: Option<Vec<(Vec<usize>, usize)>>,
        wants_results: bool,
    ) -> Result<Call<'_, ApplyRequest<'_>>, ReduceError> {
        let invalid = |operator, invalid| ReduceError::parameter(operator, invalid);
        let operator = O::DEFINITION.erased();
        let parameters = (O::PARAMETERS)(&self.reduction.operator)
            .map_err(|found| invalid(operator.name(), found))?;
        let apply_parameters =
            (F::PARAMETERS)(&self.apply).map_err(|found| invalid(F::NAME.to_owned(), found))?;
        let input = self.reduction.input.spec()?;
        let second = self.reduction.second.map(|second| second.spec()).transpose()?;
        let common =
            second.map_or(input.element, |second| rules::common(input.element, second.element));
        let wide = self.outputs.iter().flatten().find(|&&output| output == ElementType::F64);
        let real = applied_type(common, self.reduction.options.accumulator, wide.copied());
        let mut reduction = request(operator, input, second, &self.reduction.options, None)?;
        reduction.outputs = [None; 3];
        reduction.outputs[..O::Results::COUNT].fill(Some(real));
        reduction.plan = None;
        let members = self.members.as_ref().map(Members::spec).transpose()?;
        let mut operands = Vec::with_capacity(1 + self.operands.len());
        operands.extend(reduction.second.clone().map(|second| OperandSpec {
            element: second.element,
            strides: second.strides,
            segment_stride: None,
            alignment: second.alignment,
        }));
        let axis = reduction.axes.as_deref().and_then(|axes| axes.first()).copied().unwrap_or(0);
        for (nth, beside) in self.operands.iter().enumerate() {
            let segments = match (beside.of_segments, members) {
                (true, Some(members)) => Some((axis, members.segments())),
                (true, None) => return Err(Reason::OperandOfNoSegments { nth }.into()),
                (false, _) => None,
            };
            operands.push(operand_spec(nth, input.shape, beside, segments)?);
        }
        let mut layouts = layouts.into_iter().flatten();
        let outputs = self.outputs[..F::Outputs::COUNT].iter();
        let outputs = outputs.map(|&element| AppliedOutput { element, layout: layouts.next() });
        let task = ApplyRequest {
            reduction,
            members,
            apply: ApplyRef(F::DEFINITION.erased()),
            outputs: outputs.collect(),
            operands,
            wants_results,
            plan: self.plan,
        };
        let Options { device, plans, .. } = self.reduction.options;
        Ok(Call { task, device, plans, parameters, apply_parameters })
    }
}

impl<'a, O: Operator, F: Apply<Results = O::Results>> AppliedReduction<'a, O, F, TensorHandle> {
    /// Launches into a new row-major tensor of the input's shape, or one for each output. Does not
    /// wait for them.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<AppliedOutputs<F, TensorHandle>, ReduceError> {
        let (outputs, _) = self.call(None, false)?.run(client, &self.tensors())?;
        Ok(in_turn::<F::Outputs>(outputs))
    }

    /// Like [`run`](Self::run), and returns the results of the reduction too, such as the mean and
    /// the reciprocal of the deviation. They are row-major.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run_with_results(self, client: &Client) -> Result<WithResults<O, F>, ReduceError> {
        let (outputs, results) = self.call(None, true)?.run(client, &self.tensors())?;
        Ok((in_turn::<F::Outputs>(outputs), in_turn::<O::Results>(results)))
    }

    /// Launches into `output`, a tensor of the input's shape whose elements are of the output's
    /// type, or one for each output. Does not wait for them.
    ///
    /// On CUDA and HIP, one output may be the input itself, with the same strides and the same
    /// type. Otherwise their memory must not overlap. wgpu binds no buffer for reading and writing
    /// at once, and reports it when it launches.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched or written.
    pub fn run_into(
        self,
        client: &Client,
        output: AppliedOutputs<F, TensorBinding>,
    ) -> Result<(), ReduceError> {
        let outputs = F::Outputs::into_list(output);
        let call = self.call(Some(outputs.iter().map(layout_of).collect()), false)?;
        call.run_into(client, &self.tensors(), &outputs)?;
        Ok(())
    }

    /// [`run_into`](Self::run_into), and returns the results of the reduction.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched or written.
    pub fn run_into_with_results(
        self,
        client: &Client,
        output: AppliedOutputs<F, TensorBinding>,
    ) -> Result<Outputs<O, TensorHandle>, ReduceError> {
        let outputs = F::Outputs::into_list(output);
        let call = self.call(Some(outputs.iter().map(layout_of).collect()), true)?;
        Ok(in_turn::<O::Results>(call.run_into(client, &self.tensors(), &outputs)?))
    }

    /// Whether [`run_into_with_results`](Self::run_into_with_results) would be refused, but for the
    /// buffers of the outputs.
    pub(crate) fn check_into_with_results(
        &self,
        client: &Client,
        outputs: &[TensorBinding],
    ) -> Result<(), ReduceError> {
        let layouts = outputs.iter().map(layout_of).collect();
        self.call(Some(layouts), true)?.prepared(client).map(|_| ())
    }

    fn tensors(&self) -> Tensors<'a> {
        let second = self.reduction.second;
        let operands = self.operands.iter().map(|beside| beside.operand).collect();
        Tensors { input: self.reduction.input, second, operands, members: self.members }
    }
}

/// The strides of an operand along the axes of an input of this shape. `segments` is the axis that
/// the operand has segments of, and their number.
fn operand_spec<T: Input>(
    nth: usize,
    shape: &[usize],
    beside: &Beside<'_, T>,
    segments: Option<(usize, usize)>,
) -> Result<OperandSpec, ReduceError> {
    let mut shape = shape.to_vec();
    if let Some((axis, segments)) = segments
        && let Some(extent) = shape.get_mut(axis)
    {
        *extent = segments;
    }
    let spec = beside.operand.spec()?;
    let axes = beside.axes.as_slice().map_or_else(|| (0..shape.len()).collect(), <[usize]>::to_vec);
    reduce_planner::reduced_axes(shape.len(), Some(&axes))?;
    let fits = axes.len() == spec.shape.len()
        && spec.strides.len() == spec.shape.len()
        && axes.iter().zip(spec.shape).all(|(&axis, &extent)| [1, shape[axis]].contains(&extent));
    if !fits {
        let found = spec.shape.to_vec();
        return Err(Reason::OperandShape { nth, found, axes, shape }.into());
    }
    let mut strides = vec![0; shape.len()];
    for (nth, &axis) in axes.iter().enumerate() {
        if spec.shape[nth] != 1 {
            strides[axis] = spec.strides[nth];
        }
    }
    let segment_stride = segments.map(|(axis, _)| core::mem::take(&mut strides[axis]));
    Ok(OperandSpec { element: spec.element, strides, segment_stride, alignment: spec.alignment })
}

/// The strides and the alignment of a supplied output.
fn layout_of(output: &TensorBinding) -> (Vec<usize>, usize) {
    let offset = output.handle.offset_start.unwrap_or(0);
    (output.strides.to_vec(), alignment_of(offset))
}

fn in_turn<C: Arity>(tensors: Vec<TensorHandle>) -> C::Each<TensorHandle> {
    let mut tensors = tensors.into_iter();
    C::each(|_| tensors.next().expect("there is a tensor for each"))
}
