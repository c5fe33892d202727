//! Reductions of lists of tensors.

use core::fmt;

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{Device, ElementType, ListChoice, ListPlan, ListProblem};

use crate::{
    Input, Map, Mapped, Operator, Outputs, ReduceError,
    host::list::{ListCall, ListRequest, ListResult},
    operator::{Fields, OperatorRef, ResultArity},
};

/// Starts a reduction of all elements of each of `tensors`, and of all of them together, with one
/// operator. The tensors may have any shapes, strides and types.
///
/// It takes one launch for many tensors, and one that merges: two launches for the gradients of a
/// model whose parameters are all of one type. [`clip_by_global_norm`](crate::clip_by_global_norm)
/// is built on it.
///
/// Tensors of several types are converted to their common type first
/// ([`rules::common`](crate::operator::rules::common)). Operators that give positions are refused.
///
/// ```no_run
/// # use reduce_kernels::{MinMax, NormL2, ReduceError, reduce_list, cubecl::prelude::*, cubecl::std::tensor::TensorHandle};
/// # fn example<R: Runtime>(client: &ComputeClient<R>, gradients: &[TensorHandle<R>]) -> Result<(), ReduceError> {
/// let norms = reduce_list(NormL2, gradients).run(client)?;
/// // norms.each has shape [gradients.len()], norms.all has shape [1].
/// let (lowest, highest) = reduce_list(MinMax, gradients).run(client)?.all;
/// # Ok(()) }
/// ```
pub fn reduce_list<'a, O: Operator, T: Input + 'a>(
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
    }
}

/// A reduction of a list of tensors that is being described; see [`reduce_list`]. It does nothing
/// until it is run.
#[must_use = "a reduction does nothing until it is run"]
pub struct ListReduction<'a, O, T> {
    operator: O,
    tensors: Vec<&'a T>,
    accumulator: Option<ElementType>,
    outputs: [Option<ElementType>; 3],
    /// A result that the caller asked a type for, but that the operator does not have.
    no_such_result: Option<usize>,
    plan: Option<ListPlan>,
    device: Option<&'a Device>,
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

    /// Accumulates in this type; see [`Reduction::accumulate_in`](crate::Reduction::accumulate_in).
    pub fn accumulate_in(mut self, accumulator: ElementType) -> Self {
        self.accumulator = Some(accumulator);
        self
    }

    /// Applies `map` to each element before the operator takes it.
    pub fn mapped<M: Map>(self, map: M) -> ListReduction<'a, Mapped<M, O>, T> {
        let Self { operator, tensors, accumulator, outputs, no_such_result, plan, device } = self;
        let operator = Mapped { map, operator };
        ListReduction { operator, tensors, accumulator, outputs, no_such_result, plan, device }
    }

    /// Runs this plan instead of choosing one. It is checked against the list and the device.
    pub fn with_plan(mut self, plan: ListPlan) -> Self {
        self.plan = Some(plan);
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
        let results = self.call()?.results()?;
        Ok(O::Results::outputs(|nth| results[nth]))
    }

    /// The canonical problem, for planning without a device.
    ///
    /// # Errors
    ///
    /// Tensors or types that cannot be reduced.
    pub fn problem(&self) -> Result<ListProblem, ReduceError> {
        self.call()?.problem()
    }

    /// Chooses a plan without running it, even if [`with_plan`](Self::with_plan) has set one.
    ///
    /// # Errors
    ///
    /// Tensors or types that cannot be reduced, and lists that the device cannot run.
    pub fn choose<R: Runtime>(&self, client: &ComputeClient<R>) -> Result<ListChoice, ReduceError> {
        self.call()?.choose(client)
    }

    fn call(&self) -> Result<ListCall<'_>, ReduceError> {
        let operator = O::DEFINITION.erased();
        if let Some(nth) = self.no_such_result {
            let (operator, results) = (operator.name(), operator.results);
            return Err(ReduceError::NoSuchResult { operator, nth, results });
        }
        let parameters = (O::PARAMETERS)(&self.operator)
            .map_err(|invalid| ReduceError::Parameter { operator: operator.name(), invalid })?;
        let spec = |(nth, tensor): (usize, &&'a T)| {
            let listed = |error| ReduceError::Listed { nth, error: Box::new(error) };
            tensor.spec().map_err(listed)
        };
        let inputs = self.tensors.iter().enumerate().map(spec).collect::<Result<Vec<_>, _>>()?;
        let plan = self.plan.clone();
        let operator = OperatorRef(operator);
        let request = ListRequest::new(operator, &inputs, self.accumulator, self.outputs, plan);
        Ok(ListCall { request, inputs, device: self.device, parameters })
    }
}

impl<O: Operator, R: Runtime> ListReduction<'_, O, TensorHandle<R>> {
    /// Launches the reduction into new tensors. Does not wait for it. Each thread caches the prepared
    /// list, so repeating it plans nothing.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(
        self,
        client: &ComputeClient<R>,
    ) -> Result<ListResults<Outputs<O, TensorHandle<R>>>, ReduceError> {
        let results = self.call()?.run(client, &self.tensors)?;
        let (each, all): (Vec<_>, Vec<_>) =
            results.into_iter().map(|ListResult { each, all }| (each, all)).unzip();
        let outputs = |results: Vec<TensorHandle<R>>| {
            let mut results = results.into_iter();
            O::Results::outputs(|_| results.next().expect("there is a tensor for each result"))
        };
        Ok(ListResults { each: outputs(each), all: outputs(all) })
    }
}
