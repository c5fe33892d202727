//! Reductions of lists of tensors: one result for each tensor and one for all of them together, in
//! few launches. The gradients of a model are such a list. [`scan_list`] scans each tensor.
//!
//! ```no_run
//! use reduce_kernels::{
//!     ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     list::{clip_by_global_norm, reduce_list},
//!     operators::AnyNonFinite,
//! };
//!
//! # fn example(client: &Client, gradients: &[TensorHandle]) -> Result<(), ReduceError> {
//! let overflown = reduce_list(AnyNonFinite, gradients).run(client)?.all;
//! let (clipped, norm) = clip_by_global_norm(client, gradients, 1.0)?;
//! # Ok(()) }
//! ```

use core::fmt;
use std::rc::Rc;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{
    AppliedListPlan, AppliedListProblem, Choice, Device, ElementType, InputSpec, ListPlan,
    ListProblem, Numerics,
};

#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedList, RecordedListApplication};
use crate::{
    error::{Reason, ReduceError},
    host::{
        call::Call,
        list::{
            apply::{ApplyListRequest, ApplyListTask},
            launch::ListResult,
            request::{ListRequest, ListTask},
        },
        settings::{self, PlanStore},
        types::applied_type,
    },
    input::Input,
    operator::{
        Apply, ApplyRef, Arity, Fields, Map, Mapped, One, Operator, OperatorRef, builtin::NormL2,
        rules,
    },
    plan_in_use::PlanInUse,
    reduction::Outputs,
};

pub use crate::{
    list_scan::{ListScan, scan_list},
    list_selection::{ListSelections, ListTopK, largest_of_list, smallest_of_list},
    operator::builtin::ClippedToNorm,
};

/// The L2 norm of all elements of all tensors, of shape `[1]`: the global norm of gradients.
/// [`reduce_list`] with [`NormL2`] gives the norm of each tensor too.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::list::global_norm;
///
/// # fn example(client: &Client, gradients: &[TensorHandle]) -> Result<(), ReduceError> {
/// let norm = global_norm(client, gradients)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn global_norm<'a>(
    client: &Client,
    tensors: impl IntoIterator<Item = &'a TensorHandle>,
) -> Result<TensorHandle, ReduceError> {
    Ok(reduce_list(NormL2, tensors).run(client)?.all)
}

/// Scales tensors down so that their global norm is at most `max_norm`, into new tensors. Returns
/// them and the norm that they had. [`ClippedToNorm`] says what becomes of norms that are not
/// finite.
///
/// Nothing waits for the norm: the device scales by what it has computed.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::list::clip_by_global_norm;
///
/// # fn example(client: &Client, gradients: &[TensorHandle]) -> Result<(), ReduceError> {
/// let (clipped, norm) = clip_by_global_norm(client, gradients, 1.0)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched: tensors that are not of floating point, or a
/// `max_norm` that is not finite and above 0.
pub fn clip_by_global_norm<'a>(
    client: &Client,
    tensors: impl IntoIterator<Item = &'a TensorHandle>,
    max_norm: f64,
) -> Result<(Vec<TensorHandle>, TensorHandle), ReduceError> {
    let clipped = reduce_list(NormL2, tensors).apply(ClippedToNorm { max_norm });
    let (tensors, norms) = clipped.run(client)?;
    Ok((tensors, norms.all))
}

/// [`clip_by_global_norm`] in place. Returns the norm that the tensors had. Where it is at most
/// `max_norm`, no element is read again.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::list::clip_by_global_norm_in_place;
///
/// # fn example(client: &Client, gradients: &[TensorHandle]) -> Result<(), ReduceError> {
/// let norm = clip_by_global_norm_in_place(client, gradients, 1.0)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// Those of [`clip_by_global_norm`], and tensors of which two elements lie in one place.
pub fn clip_by_global_norm_in_place<'a>(
    client: &Client,
    tensors: impl IntoIterator<Item = &'a TensorHandle>,
    max_norm: f64,
) -> Result<TensorHandle, ReduceError> {
    let clipped = reduce_list(NormL2, tensors).apply(ClippedToNorm { max_norm });
    Ok(clipped.run_in_place(client)?.all)
}

/// Starts a reduction of all elements of each of `tensors`, and of all of them together, with one
/// operator. The tensors may have any shapes, strides and types.
///
/// It takes one launch for many tensors, and one that merges: two launches for the gradients of a
/// model whose parameters are all of one type. [`clip_by_global_norm`] is built on it.
///
/// Tensors of several types are converted to their common type first
/// ([`rules::common`]). Operators that give positions are refused.
///
/// ```no_run
/// # use reduce_kernels::{
/// #     NormL2, ReduceError,
/// #     cubecl::{prelude::*, std::tensor::TensorHandle},
/// #     list::reduce_list,
/// #     operators::MinMax,
/// # };
/// # fn example(client: &Client, gradients: &[TensorHandle]) -> Result<(), ReduceError> {
/// let norms = reduce_list(NormL2, gradients).run(client)?;
/// // norms.each has shape [gradients.len()], norms.all has shape [1].
/// let (lowest, highest) = reduce_list(MinMax, gradients).run(client)?.all;
/// # Ok(()) }
/// ```
pub fn reduce_list<'a, O: Operator<Inputs = One>, T: Input + 'a>(
    operator: O,
    tensors: impl IntoIterator<Item = &'a T>,
) -> ListReduction<'a, O, T> {
    ListReduction {
        operator,
        tensors: tensors.into_iter().collect(),
        accumulator: None,
        outputs: [None; 3],
        no_such_result: None,
        plan: None,
        device: None,
        plans: None,
        numerics: None,
    }
}

/// A reduction of a list of tensors that is being described; see [`reduce_list`]. It does nothing
/// until it is run.
#[must_use = "a reduction does nothing until it is run"]
pub struct ListReduction<'a, O, T> {
    operator: O,
    pub(crate) tensors: Vec<&'a T>,
    accumulator: Option<ElementType>,
    pub(crate) outputs: [Option<ElementType>; 3],
    /// A result that the caller asked a type for, but that the operator does not have.
    no_such_result: Option<usize>,
    plan: Option<ListPlan>,
    device: Option<&'a Device>,
    plans: Option<&'a PlanStore>,
    /// `None` means those of the process.
    numerics: Option<Numerics>,
}

/// The results of a list: an `X` for each result of the operator, or a tuple of them.
#[derive(Clone, Debug)]
pub struct ListResults<X> {
    /// Those of each tensor, in the order of the list, of shape `[tensors]`.
    pub each: X,
    /// That of all tensors together, of shape `[1]`.
    pub all: X,
}

impl<O: Operator, T: Input> fmt::Debug for ListReduction<'_, O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListReduction")
            .field("operator", &O::NAME)
            .field("tensors", &self.tensors)
            .field("accumulator", &self.accumulator)
            .field("outputs", &self.outputs)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl<'a, O: Operator, T: Input> ListReduction<'a, O, T> {
    /// Asks for this type of the results, or of the first ones if the operator has several.
    pub fn output_type(self, output: ElementType) -> Self {
        self.nth_output_type(0, output)
    }

    /// Asks for this type of result number `nth` of the operator, counted from 0.
    pub fn nth_output_type(mut self, nth: usize, output: ElementType) -> Self {
        match self.outputs[..O::Results::COUNT].get_mut(nth) {
            Some(slot) => *slot = Some(output),
            None => self.no_such_result = self.no_such_result.or(Some(nth)),
        }
        self
    }

    /// Promises that the bits of the results depend on no more than this; see
    /// [`Reduction::numerics`](crate::Reduction::numerics). In a batch-invariant list, those of one
    /// tensor do not depend on the others. Those of all tensors together do.
    pub fn numerics(mut self, numerics: Numerics) -> Self {
        self.numerics = Some(numerics);
        self
    }

    /// Accumulates in this type; see [`Reduction::accumulate_in`](crate::Reduction::accumulate_in).
    pub fn accumulate_in(mut self, accumulator: ElementType) -> Self {
        self.accumulator = Some(accumulator);
        self
    }

    /// Applies `map` to each element before the operator takes it.
    pub fn mapped<M: Map<Inputs = One>>(self, map: M) -> ListReduction<'a, Mapped<M, O>, T>
    where
        O: Operator<Inputs = One>,
    {
        let Self {
            operator,
            tensors,
            accumulator,
            outputs,
            no_such_result,
            plan,
            device,
            plans,
            numerics,
        } = self;
        ListReduction {
            operator: Mapped { map, operator },
            tensors,
            accumulator,
            outputs,
            no_such_result,
            plan,
            device,
            plans,
            numerics,
        }
    }

    /// Applies the results of all tensors together to each element of every tensor, in one launch
    /// more for many tensors. `apply` takes no operands.
    ///
    /// Results are of f32 then, or of f64 if that is the common type or the accumulator's. Types
    /// that were asked for with [`output_type`](Self::output_type) and a plan are dropped.
    ///
    /// ```no_run
    /// # use reduce_kernels::{
    /// #     ReduceError,
    /// #     cubecl::{prelude::*, std::tensor::TensorHandle},
    /// #     list::reduce_list,
    /// #     normalize::Scaled,
    /// #     operators::NormL2Reciprocal,
    /// # };
    /// # fn example(client: &Client, parts: &[TensorHandle]) -> Result<(), ReduceError> {
    /// // The parts of a vector of length 1.
    /// let (unit, _) = reduce_list(NormL2Reciprocal { eps: 1e-12 }, parts).apply(Scaled).run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn apply<F: Apply<Results = O::Results, Outputs = One>>(
        self,
        apply: F,
    ) -> AppliedList<'a, O, F, T> {
        AppliedList { list: ListReduction { plan: None, ..self }, apply, plan: None }
    }

    /// Runs this plan instead of choosing one. It is checked against the list and the device.
    pub fn with_plan(mut self, plan: ListPlan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Takes the plan from `plans`, if it has one for the list; see
    /// [`Reduction::with_plans`](crate::Reduction::with_plans).
    #[cfg(feature = "serde")]
    pub fn with_plans(mut self, plans: &'a PlanStore) -> Self {
        self.plans = Some(plans);
        self
    }

    /// Plans for `device`; see [`Reduction::plan_for`](crate::Reduction::plan_for).
    pub fn plan_for(mut self, device: &'a Device) -> Self {
        self.device = Some(device);
        self
    }

    /// The types of the results.
    ///
    /// # Errors
    ///
    /// Tensors or types that cannot be reduced.
    pub fn output_types(&self) -> Result<Outputs<O, ElementType>, ReduceError> {
        let results = self.call()?.stated()?.signature.results;
        Ok(O::Results::each(|nth| results[nth]))
    }

    /// The canonical problem, for planning without a device.
    ///
    /// # Errors
    ///
    /// Tensors or types that cannot be reduced.
    pub fn problem(&self) -> Result<ListProblem, ReduceError> {
        Ok(self.call()?.stated()?.problem)
    }

    /// Chooses a plan without running it, even if [`with_plan`](Self::with_plan) has set one.
    ///
    /// # Errors
    ///
    /// Tensors or types that cannot be reduced, and lists that the device cannot run.
    pub fn choose(&self, client: &Client) -> Result<Choice<ListPlan>, ReduceError> {
        self.call()?.choose(client, &self.buffer_bytes())
    }

    /// The plan that [`run`](Self::run) would run now, and where it comes from; see
    /// [`Reduction::plan`](crate::Reduction::plan).
    ///
    /// # Errors
    ///
    /// The errors of `choose`, and a plan of `with_plan` that may not run.
    pub fn plan(&self, client: &Client) -> Result<PlanInUse<ListPlan>, ReduceError> {
        self.call()?.plan(client, &self.buffer_bytes())
    }

    /// Whether [`run`](Self::run) would launch. It checks and plans the list, and caches both, but
    /// launches nothing. The memory of tensors is not checked if these are
    /// [`TensorDescription`](crate::TensorDescription)s.
    ///
    /// # Errors
    ///
    /// The error that `run` would return.
    pub fn check(&self, client: &Client) -> Result<(), ReduceError> {
        self.call()?.check(client, &self.buffer_bytes())
    }

    /// The list as data, as [`record_calls`](crate::plans::record_calls) would record it.
    ///
    /// # Errors
    ///
    /// A parameter out of range, or a tensor that cannot be reduced.
    #[cfg(feature = "serde")]
    pub fn record(&self) -> Result<RecordedCall, ReduceError> {
        let ListTask { request, inputs } = self.call()?.task;
        Ok(RecordedCall::List(RecordedList::of(&request, &inputs)))
    }

    /// Bytes of the buffers of the tensors, where they exist.
    pub(crate) fn buffer_bytes(&self) -> Vec<Option<u64>> {
        self.tensors.iter().map(|tensor| tensor.buffer_bytes()).collect()
    }

    pub(crate) fn call(&self) -> Result<Call<'_, ListTask<'_>>, ReduceError> {
        self.call_with(self.specs()?, self.outputs)
    }

    /// Where the tensors lie.
    pub(crate) fn specs(&self) -> Result<Vec<InputSpec<'_>>, ReduceError> {
        let spec = |(nth, tensor): (usize, &&'a T)| {
            let listed = |error| Reason::Listed { nth, error }.into();
            tensor.spec().map_err(listed)
        };
        self.tensors.iter().enumerate().map(spec).collect()
    }

    /// The call for tensors that lie so, with results of these types.
    pub(crate) fn call_with<'s>(
        &'s self,
        inputs: Vec<InputSpec<'s>>,
        outputs: [Option<ElementType>; 3],
    ) -> Result<Call<'s, ListTask<'s>>, ReduceError> {
        let operator = O::DEFINITION.erased();
        if let Some(nth) = self.no_such_result {
            let (operator, results) = (operator.name(), operator.results);
            return Err(Reason::NoSuchResult { operator, nth, results }.into());
        }
        let parameters = (O::PARAMETERS)(&self.operator)
            .map_err(|invalid| ReduceError::parameter(operator.name(), invalid))?;
        let plan = self.plan.clone();
        let operator = OperatorRef(operator);
        let request = ListRequest::new(operator, &inputs, self.accumulator, outputs, plan);
        let numerics = self.numerics.unwrap_or_else(settings::numerics);
        let request = request.with_numerics(numerics);
        let task = ListTask { request: Rc::new(request), inputs };
        let Self { device, plans, .. } = *self;
        Ok(Call { task, device, plans, parameters, apply_parameters: Vec::new() })
    }
}

/// The results of `O` over a list.
pub type ResultsOfList<O> = ListResults<Outputs<O, TensorHandle>>;

impl<'a, O: Operator> ListReduction<'a, O, TensorHandle> {
    /// Launches the reduction into new tensors. Does not wait for it. Each thread caches the
    /// prepared list, so repeating it plans nothing.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<ResultsOfList<O>, ReduceError> {
        Ok(of_list::<O>(self.call()?.run(client, &self.tensors)?))
    }
}

/// The tensors that results were applied to, and the results.
pub type AppliedWithResults<O> = (Vec<TensorHandle>, ResultsOfList<O>);

/// A list whose results are applied to each element; see [`ListReduction::apply`]. It does nothing
/// until it is run. If the tensors are [`TensorDescription`](crate::TensorDescription)s, it cannot
/// run, but answers everything else.
#[must_use = "an applied reduction does nothing until it is run"]
pub struct AppliedList<'a, O, F, T> {
    pub(crate) list: ListReduction<'a, O, T>,
    apply: F,
    plan: Option<AppliedListPlan>,
}

impl<O: Operator, F: Apply, T: Input> fmt::Debug for AppliedList<'_, O, F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppliedList").field("list", &self.list).field("apply", &F::NAME).finish()
    }
}

impl<O: Operator, F: Apply<Results = O::Results, Outputs = One>, T: Input>
    AppliedList<'_, O, F, T>
{
    /// Runs this plan instead of choosing one. It is checked against the list and the device.
    pub fn with_plan(mut self, plan: AppliedListPlan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// The canonical problem of an application into new tensors or in place, for planning without a
    /// device.
    ///
    /// # Errors
    ///
    /// Tensors or types that cannot be reduced.
    pub fn problem(&self, in_place: bool) -> Result<AppliedListProblem, ReduceError> {
        Ok(self.call(in_place)?.stated()?.problem)
    }

    /// Chooses a plan of an application into new tensors or in place, even if
    /// [`with_plan`](Self::with_plan) has set one.
    ///
    /// # Errors
    ///
    /// Tensors or types that cannot be reduced, and lists that the device cannot run.
    pub fn choose(
        &self,
        client: &Client,
        in_place: bool,
    ) -> Result<Choice<AppliedListPlan>, ReduceError> {
        self.call(in_place)?.choose(client, &self.list.buffer_bytes())
    }

    /// The plan that [`run`](Self::run), or [`run_in_place`](Self::run_in_place), would run now,
    /// and where it comes from; see [`Reduction::plan`](crate::Reduction::plan).
    ///
    /// # Errors
    ///
    /// The errors of `choose`, and a plan of `with_plan` that may not run.
    pub fn plan(
        &self,
        client: &Client,
        in_place: bool,
    ) -> Result<PlanInUse<AppliedListPlan>, ReduceError> {
        self.call(in_place)?.plan(client, &self.list.buffer_bytes())
    }

    /// Whether [`run`](Self::run), or [`run_in_place`](Self::run_in_place), would launch. It checks
    /// and plans the reduction and the application, and caches both, but launches nothing. The
    /// memory of tensors is not checked if these are
    /// [`TensorDescription`](crate::TensorDescription)s.
    ///
    /// # Errors
    ///
    /// The error that the run would return.
    pub fn check(&self, client: &Client, in_place: bool) -> Result<(), ReduceError> {
        self.call(in_place)?.check(client, &self.list.buffer_bytes())
    }

    /// The application into new tensors or in place as data, as
    /// [`record_calls`](crate::plans::record_calls) would record it.
    ///
    /// # Errors
    ///
    /// A parameter out of range, or a tensor that cannot be reduced.
    #[cfg(feature = "serde")]
    pub fn record(&self, in_place: bool) -> Result<RecordedCall, ReduceError> {
        let ApplyListTask { request, inputs } = self.call(in_place)?.task;
        let recorded = RecordedListApplication::of(&request, &inputs);
        Ok(RecordedCall::ListApplication(recorded))
    }

    pub(crate) fn call(&self, in_place: bool) -> Result<Call<'_, ApplyListTask<'_>>, ReduceError> {
        let apply_parameters = (F::PARAMETERS)(&self.apply)
            .map_err(|invalid| ReduceError::parameter(F::NAME.to_owned(), invalid))?;
        let specs = self.list.specs()?;
        let common = specs.iter().map(|spec| spec.element).reduce(rules::common);
        let common = common.unwrap_or(ElementType::F32);
        let real = applied_type(common, self.list.accumulator, None);
        let mut outputs = [None; 3];
        outputs[..O::Results::COUNT].fill(Some(real));
        let Call { task, device, plans, parameters, .. } = self.list.call_with(specs, outputs)?;
        let ListTask { request: list, inputs } = task;
        let apply = ApplyRef(F::DEFINITION.erased());
        let request = ApplyListRequest { list, apply, in_place, plan: self.plan.clone() };
        let task = ApplyListTask { request, inputs };
        Ok(Call { task, device, plans, parameters, apply_parameters })
    }
}

impl<O: Operator, F: Apply<Results = O::Results, Outputs = One>>
    AppliedList<'_, O, F, TensorHandle>
{
    /// Launches into new tensors of the types and shapes of the list. They lie as their inputs do
    /// where these have no gaps, and are row-major otherwise. Returns them and the results.
    /// Does not wait.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<AppliedWithResults<O>, ReduceError> {
        let (tensors, results) = self.call(false)?.run(client, &self.list.tensors)?;
        Ok((tensors, of_list::<O>(results)))
    }

    /// Replaces the elements of the list, and returns the results. Does not wait. No two tensors of
    /// the list may share memory.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched or written, such as for a tensor of which two
    /// elements lie in one place.
    pub fn run_in_place(self, client: &Client) -> Result<ResultsOfList<O>, ReduceError> {
        let (_, results) = self.call(true)?.run(client, &self.list.tensors)?;
        Ok(of_list::<O>(results))
    }
}

fn of_list<O: Operator>(results: Vec<ListResult>) -> ResultsOfList<O> {
    let (each, all): (Vec<_>, Vec<_>) =
        results.into_iter().map(|ListResult { each, all }| (each, all)).unzip();
    let outputs = |results: Vec<TensorHandle>| {
        let mut results = results.into_iter();
        O::Results::each(|_| results.next().expect("there is a tensor for each result"))
    };
    ListResults { each: outputs(each), all: outputs(all) }
}
