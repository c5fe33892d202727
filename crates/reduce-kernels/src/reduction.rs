//! The `Reduction` builder.

use core::fmt;
use std::borrow::Cow;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Choice, Device, ElementType, InputSpec, Numerics, Plan, Problem};

#[cfg(feature = "serde")]
use crate::recorded::RecordedReduction;
use crate::{
    axes::Axes,
    error::{Reason, ReduceError},
    host::{
        call::Call,
        reduce::request::{ReduceRequest, SecondRequest, StatedReduction, Wanted},
        settings::{self, PlanStore},
    },
    input::Input,
    operator::{Arity, Erased, Fields, Map, Mapped, One, Operator, OperatorRef, Two},
    plan_in_use::PlanInUse,
};

/// An `X` for each result of `O`: `X` itself for one result, otherwise a tuple.
pub type Outputs<O, X> = <<O as Operator>::Results as Arity>::Each<X>;

/// Starts a reduction of `input` with `operator`: over all axes, keeping them as axes of size 1,
/// unless told otherwise.
///
/// ```no_run
/// # use reduce_kernels::{
/// #     ReduceError, Var,
/// #     cubecl::{prelude::*, std::tensor::TensorHandle},
/// #     operators::MinMax,
/// #     reduce,
/// # };
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let per_channel =
///     reduce(Var { correction: 1.0 }, x).over([0, 2, 3]).keep_dims(false).run(client)?;
/// let (lowest, highest) = reduce(MinMax, x).over(1).run(client)?;
/// # Ok(()) }
/// ```
pub fn reduce<O: Operator<Inputs = One>, T: Input>(operator: O, input: &T) -> Reduction<'_, O, T> {
    Reduction::new(operator, input, None)
}

/// Starts a reduction of two inputs: `operator` takes the elements of both that belong together.
///
/// The axes of `second` are the last ones of `first`. Where `second` has an extent of 1, or fewer
/// axes, its elements are repeated: a row for all rows, a mean for each row, a scalar. It may have
/// another type and any strides. See [`rules::common`](crate::operator::rules::common) for the type
/// that both are converted to.
///
/// ```no_run
/// # use reduce_kernels::{
/// #     ReduceError,
/// #     cubecl::{prelude::*, std::tensor::TensorHandle},
/// #     pairs::{CosineSimilarity, reduce_pair},
/// # };
/// # fn example(client: &Client, x: &TensorHandle, y: &TensorHandle) -> Result<(), ReduceError> {
/// let of_rows = reduce_pair(CosineSimilarity { eps: 1e-8 }, x, y).over(1).run(client)?;
/// # Ok(()) }
/// ```
///
/// The compiler refuses an operator of one input here, and [`reduce`] with an operator of two:
///
/// ```compile_fail,E0271
/// # use reduce_kernels::{
/// #     ReduceError,
/// #     cubecl::{prelude::*, std::tensor::TensorHandle},
/// #     pairs::CosineSimilarity,
/// #     reduce,
/// # };
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let of_rows = reduce(CosineSimilarity { eps: 1e-8 }, x).over(1).run(client)?;
/// # Ok(()) }
/// ```
pub fn reduce_pair<'a, O: Operator<Inputs = Two>, T: Input>(
    operator: O,
    first: &'a T,
    second: &'a T,
) -> Reduction<'a, O, T> {
    Reduction::new(operator, first, Some(second))
}

/// A reduction that is being described; see [`reduce`]. It does nothing until [`run`](Self::run) or
/// [`run_into`](Self::run_into) is called. If the input is a
/// [`TensorDescription`](crate::TensorDescription), it cannot run, but answers everything else.
#[must_use = "a reduction does nothing until it is run"]
pub struct Reduction<'a, O, T> {
    pub(crate) operator: O,
    pub(crate) input: &'a T,
    pub(crate) second: Option<&'a T>,
    pub(crate) options: Options<'a>,
}

/// The options that a caller has set.
#[derive(Clone, Debug)]
pub(crate) struct Options<'a> {
    pub(crate) axes: Axes,
    pub(crate) keep_dims: bool,
    pub(crate) accumulator: Option<ElementType>,
    pub(crate) outputs: [Option<ElementType>; 3],
    /// A result that the caller asked a type for, but that the operator does not have.
    no_such_result: Option<usize>,
    pub(crate) plan: Option<Plan>,
    pub(crate) device: Option<&'a Device>,
    pub(crate) plans: Option<&'a PlanStore>,
    /// `None` means those of the process.
    pub(crate) numerics: Option<Numerics>,
}

impl Options<'_> {
    /// What the bits of the results may depend on.
    pub(crate) fn numerics(&self) -> Numerics {
        self.numerics.unwrap_or_else(settings::numerics)
    }
}

impl<O: Operator, T: Input> fmt::Debug for Reduction<'_, O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reduction")
            .field("operator", &O::NAME)
            .field("input", self.input)
            .field("second", &self.second)
            .field("options", &self.options)
            .finish()
    }
}

impl<O: Copy, T> Clone for Reduction<'_, O, T> {
    fn clone(&self) -> Self {
        Self { options: self.options.clone(), ..*self }
    }
}

impl<'a, O: Operator<Inputs = One>, T: Input> Reduction<'a, O, T> {
    /// Applies `map` to each element before the operator takes it.
    pub fn mapped<M: Map<Inputs = One>>(self, map: M) -> Reduction<'a, Mapped<M, O>, T> {
        let Self { operator, input, second, options } = self;
        Reduction { operator: Mapped { map, operator }, input, second, options }
    }

    /// Takes `map` of each element and of the element of `second` that belongs to it; see
    /// [`reduce_pair`] for shapes and types.
    ///
    /// ```no_run
    /// # use reduce_kernels::{
    /// #     ReduceError, Sum,
    /// #     cubecl::{prelude::*, std::tensor::TensorHandle},
    /// #     pairs::ElementwiseProduct,
    /// #     reduce,
    /// # };
    /// # fn example(client: &Client, x: &TensorHandle, w: &TensorHandle) -> Result<(), ReduceError> {
    /// let weighted = reduce(Sum, x).paired(w, ElementwiseProduct).over(0).run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn paired<M: Map<Inputs = Two>>(
        self,
        second: &'a T,
        map: M,
    ) -> Reduction<'a, Mapped<M, O>, T> {
        let Self { operator, input, options, .. } = self;
        Reduction { operator: Mapped { map, operator }, input, second: Some(second), options }
    }
}

impl<'a, O: Operator, T: Input> Reduction<'a, O, T> {
    /// A reduction over all axes, which keeps them. Only a recorded reduction may lack a second
    /// input that its operator takes, or have one that it does not take.
    pub(crate) fn new(operator: O, input: &'a T, second: Option<&'a T>) -> Self {
        let options = Options {
            axes: Axes::All,
            keep_dims: true,
            accumulator: None,
            outputs: [None; 3],
            no_such_result: None,
            plan: None,
            device: None,
            plans: None,
            numerics: None,
        };
        Self { operator, input, second, options }
    }

    /// Sets the axes to reduce: `..` for all, an axis, or a list of axes in any order. With an
    /// empty list, every element is a reduction of its own.
    pub fn over(mut self, axes: impl Into<Axes>) -> Self {
        self.options.axes = axes.into();
        self
    }

    /// Chooses whether the result keeps the reduced axes with size 1 (the default) or drops them.
    pub fn keep_dims(mut self, keep: bool) -> Self {
        self.options.keep_dims = keep;
        self
    }

    /// Asks for this type of the result, or of the first result if there are several. The
    /// accumulator follows: a result of f64 accumulates in f64.
    pub fn output_type(self, output: ElementType) -> Self {
        self.nth_output_type(0, output)
    }

    /// Asks for this type of result number `nth`, counted from 0: the index of
    /// [`MaxWithIndex`](crate::operators::MaxWithIndex) is result 1. Running with a result that the
    /// operator does not have is an error.
    pub fn nth_output_type(mut self, nth: usize, output: ElementType) -> Self {
        match self.options.outputs[..O::Results::COUNT].get_mut(nth) {
            Some(slot) => *slot = Some(output),
            None => self.options.no_such_result = self.options.no_such_result.or(Some(nth)),
        }
        self
    }

    /// Accumulates in this type instead of the one that follows from the input and the output: f32
    /// data in f64, for example, or i32 in i64.
    pub fn accumulate_in(mut self, accumulator: ElementType) -> Self {
        self.options.accumulator = Some(accumulator);
        self
    }

    /// Promises that the bits of the result depend on no more than this, whatever
    /// [`use_numerics`](crate::plans::use_numerics) says.
    ///
    /// ```no_run
    /// # use reduce_kernels::{
    /// #     ReduceError, Sum,
    /// #     cubecl::{prelude::*, std::tensor::TensorHandle},
    /// #     plans::Numerics,
    /// #     reduce,
    /// # };
    /// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
    /// // A row has these bits however many rows `x` has.
    /// let rows = reduce(Sum, x).over(1).numerics(Numerics::BatchInvariant).run(client)?;
    /// # Ok(()) }
    /// ```
    pub fn numerics(mut self, numerics: Numerics) -> Self {
        self.options.numerics = Some(numerics);
        self
    }

    /// Runs this plan instead of choosing one. It is checked against the problem and the device.
    pub fn with_plan(mut self, plan: Plan) -> Self {
        self.options.plan = Some(plan);
        self
    }

    /// Takes the plan from `plans`, if it has one for the problem that may run on the device.
    /// Otherwise everything is as without it. [`with_plan`](Self::with_plan) comes first.
    ///
    /// The call looks the plan up each time. A program that repeats its reductions gives the store
    /// to [`use_plans`](crate::plans::use_plans) once.
    #[cfg(feature = "serde")]
    pub fn with_plans(mut self, plans: &'a PlanStore) -> Self {
        self.options.plans = Some(plans);
        self
    }

    /// Plans for `device` instead of the one that the client reports. Use it to plan for other
    /// limits or another tuning, or to use plane operations that a driver does not report.
    ///
    /// The description is trusted. If it claims what the real device lacks, kernels may fail to
    /// compile or give wrong results.
    pub fn plan_for(mut self, device: &'a Device) -> Self {
        self.options.device = Some(device);
        self
    }

    /// The shape of the result.
    ///
    /// # Errors
    ///
    /// Invalid axes, types or strides.
    pub fn output_shape(&self) -> Result<Vec<usize>, ReduceError> {
        Ok(self.resolve()?.shape)
    }

    /// The type of the result, or of each result if there are several.
    ///
    /// # Errors
    ///
    /// Invalid axes, types or strides.
    pub fn output_types(&self) -> Result<Outputs<O, ElementType>, ReduceError> {
        let signature = self.resolve()?.signature;
        Ok(O::Results::each(|nth| signature.results[nth]))
    }

    /// The canonical problem, for planning without a device.
    ///
    /// # Errors
    ///
    /// Invalid axes, types or strides.
    pub fn problem(&self) -> Result<Problem, ReduceError> {
        Ok(self.resolve()?.problem)
    }

    /// Chooses a plan without running it and without stored plans, even if
    /// [`with_plan`](Self::with_plan) has set one. The choice says why other schedules were
    /// refused. [`plan`](Self::plan) gives the plan that would run.
    ///
    /// # Errors
    ///
    /// Invalid axes, types or strides, and reductions that the device cannot run. Only
    /// [`run`](Self::run) checks where buffers start and how much memory a result takes. A result
    /// without elements gets a plan too, although running it launches nothing.
    pub fn choose(&self, client: &Client) -> Result<Choice, ReduceError> {
        self.call(None)?.choose(client, &self.buffer_bytes())
    }

    /// The plan that [`run`](Self::run) would run now, and where it comes from: from
    /// [`with_plan`](Self::with_plan), from a store of measured plans, or from the planner, as
    /// [`choose`](Self::choose) gives it.
    ///
    /// # Errors
    ///
    /// The errors of `choose`, and a plan of `with_plan` that may not run.
    pub fn plan(&self, client: &Client) -> Result<PlanInUse, ReduceError> {
        self.call(None)?.plan(client, &self.buffer_bytes())
    }

    /// The reduction as data, as [`record_calls`](crate::plans::record_calls) would record it.
    /// [`RecordedReduction::problem`] checks axes, types and strides.
    ///
    /// # Errors
    ///
    /// A parameter out of range, or a tensor that cannot be reduced.
    #[cfg(feature = "serde")]
    pub fn record(&self) -> Result<RecordedReduction, ReduceError> {
        Ok(RecordedReduction::of(&self.call(None)?.task))
    }

    /// Whether [`run`](Self::run) would launch. It checks and plans the reduction, and caches both,
    /// but launches nothing. The input's memory is not checked if the input is a
    /// [`TensorDescription`](crate::TensorDescription).
    ///
    /// # Errors
    ///
    /// The error that `run` would return.
    pub fn check(&self, client: &Client) -> Result<(), ReduceError> {
        self.call(None)?.check(client, &self.buffer_bytes())
    }

    /// Bytes of the buffers of both inputs, where they exist.
    fn buffer_bytes(&self) -> [Option<u64>; 2] {
        [self.input.buffer_bytes(), self.second.and_then(|second| second.buffer_bytes())]
    }

    /// The call: the request and the operator's parameters. `output` is the shape and the strides
    /// of a supplied output.
    pub(crate) fn call<'s>(
        &'s self,
        output: Option<(&'s [usize], &'s [usize])>,
    ) -> Result<Call<'s, ReduceRequest<'s>>, ReduceError>
    where
        'a: 's,
    {
        let parameters = (O::PARAMETERS)(&self.operator).map_err(|invalid| Reason::Parameter {
            operator: O::DEFINITION.erased().name(),
            invalid,
        })?;
        let input = self.input.spec()?;
        let second = self.second.map(|second| second.spec()).transpose()?;
        let task = request(O::DEFINITION.erased(), input, second, &self.options, output)?;
        let Options { device, plans, .. } = self.options;
        Ok(Call { task, device, plans, parameters, apply_parameters: Vec::new() })
    }

    pub(crate) fn resolve(&self) -> Result<StatedReduction, ReduceError> {
        let second = self.second.map(|second| second.spec()).transpose()?;
        let input = self.input.spec()?;
        request(O::DEFINITION.erased(), input, second, &self.options, None)?.resolve()
    }
}

impl<'a, O: Operator> Reduction<'a, O, TensorHandle> {
    /// Launches the reduction into a new row-major tensor, or one for each result. Does not wait
    /// for it. Each thread caches the prepared reduction, so repeating it costs a look-up.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<Outputs<O, TensorHandle>, ReduceError> {
        let mut outputs = self.call(None)?.run(client, self.input, self.second)?.into_iter();
        Ok(O::Results::each(|_| outputs.next().expect("there is an output for each result")))
    }

    /// Launches the reduction into `output`. Does not wait for it.
    ///
    /// `output` is a tensor of the result's shape, or a tuple of tensors, one for each result, that
    /// have the same strides. Strides are arbitrary, but no two results may share a place. A
    /// binding does not carry an element type: its elements must be of
    /// [`output_types`](Self::output_types). Its memory must not overlap that of the input or of
    /// another output.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched or written.
    pub fn run_into(
        self,
        client: &Client,
        output: Outputs<O, TensorBinding>,
    ) -> Result<(), ReduceError> {
        let outputs = O::Results::into_list(output);
        let layout = (&outputs[0].shape[..], &outputs[0].strides[..]);
        self.call(Some(layout))?.run_into(client, self.input, self.second, &outputs)
    }
}

/// The request for an operator. This function is not generic over the operator, and neither is
/// anything that it leads to.
pub(crate) fn request<'a>(
    operator: &'static Erased,
    input: InputSpec<'a>,
    second: Option<InputSpec<'_>>,
    options: &'a Options<'_>,
    output: Option<(&'a [usize], &'a [usize])>,
) -> Result<ReduceRequest<'a>, ReduceError> {
    if let Some(nth) = options.no_such_result {
        let results = operator.results;
        return Err(Reason::NoSuchResult { operator: operator.name(), nth, results }.into());
    }
    // Read once: another thread may change the numerics of the process meanwhile, and the operator's
    // definition must be that of the request's numerics.
    let numerics = options.numerics();
    Ok(ReduceRequest {
        operator: OperatorRef(operator.with_numerics(numerics)),
        element: input.element,
        shape: Cow::Borrowed(input.shape),
        strides: Cow::Borrowed(input.strides),
        second: second.map(|second| SecondRequest::of(&input, &second)).transpose()?,
        alignment: input.alignment,
        axes: options.axes.as_slice().map(Cow::Borrowed),
        keep_dims: options.keep_dims,
        accumulator: options.accumulator,
        outputs: options.outputs,
        output: output.map(|(shape, strides)| (Cow::Borrowed(shape), Cow::Borrowed(strides))),
        plan: options.plan,
        wanted: Wanted::Results,
        shard: None,
        numerics,
    })
}
