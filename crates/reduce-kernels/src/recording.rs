//! What is recorded while a process runs, and the problems that recorded calls state again.

use std::{borrow::Cow, rc::Rc};

use cubecl::prelude::*;
use reduce_planner::{
    AppliedListProblem, AppliedProblem, InputSpec, ListProblem, Problem, TopKProblem,
};

use crate::{
    axes::Axes,
    error::{Reason, ReduceError},
    host::{
        apply::request::{ApplyRequest, OperandSpec},
        cache,
        call::Task,
        list::{
            apply::{ApplyListRequest, ApplyListTask},
            request::{ListRequest, ListTask},
        },
        reduce::request::{ReduceRequest, SecondRequest, Wanted},
        settings,
        top_k::request::TopKRequest,
    },
    input::{Input, alignment_of},
    operator::{Apply, ApplyRef, One, Operator, OperatorRef},
    recorded::{
        RecordedApplication, RecordedCall, RecordedList, RecordedListApplication,
        RecordedReduction, RecordedTopK,
    },
    reduction::Reduction,
};

/// Records from now on which different calls this process runs or checks on the client's device, in
/// every thread, until [`stop_recording`]. [`recorded`] gives them.
///
/// A call is recorded when a thread sees it for the first time. Repeating one costs what it costs
/// without recording. The calls that are recorded are those that
/// [`use_plans`](crate::plans::use_plans) is for, of all kinds. Left out are calls that were given
/// a plan, a store or a device, and partial results. At most 65536 are recorded, and those that
/// come later are left out.
///
/// Calling it again while it records changes nothing. After [`stop_recording`], it begins anew.
///
/// ```no_run
/// # use reduce_kernels::{
/// #     cubecl::prelude::*,
/// #     plans::{record_calls, recorded, stop_recording},
/// # };
/// # fn step(_: &Client) {}
/// # fn example(client: &Client) -> std::io::Result<()> {
/// record_calls(client);
/// step(client); // everything that the application does
/// stop_recording(client);
/// let lines = recorded(client).into_iter().map(|call| call.to_json() + "\n");
/// std::fs::write("reductions.jsonl", lines.collect::<String>())?;
/// # Ok(()) }
/// ```
pub fn record_calls(client: &Client) {
    settings::set_recording(cache::identity(client), true);
}

/// Records no more calls on the client's device. [`recorded`] still gives those that were.
///
/// ```no_run
/// use reduce_kernels::{cubecl::prelude::*, plans::stop_recording};
///
/// # fn example(client: &Client) {
/// stop_recording(client);
/// # }
/// ```
pub fn stop_recording(client: &Client) {
    settings::set_recording(cache::identity(client), false);
}

/// The calls that were recorded on the client's device since [`record_calls`], in the order in
/// which they were first seen.
///
/// ```no_run
/// use reduce_kernels::{cubecl::prelude::*, plans::recorded};
///
/// # fn example(client: &Client) {
/// for call in recorded(client) {
///     println!("{call}"); // `sum f32 [43, 1031] axis 1`
/// }
/// # }
/// ```
#[must_use]
pub fn recorded(client: &Client) -> Vec<RecordedCall> {
    settings::recorded(cache::identity(client))
}

impl RecordedReduction {
    /// The request of an operator for this reduction.
    fn request<O: Operator>(&self) -> Result<ReduceRequest<'_>, ReduceError> {
        check_name(&self.operator, O::DEFINITION.erased().name())?;
        let output = match &self.output_strides {
            None => None,
            Some(strides) => Some((Cow::Owned(self.kept_shape()?), Cow::Borrowed(&strides[..]))),
        };
        Ok(ReduceRequest {
            operator: OperatorRef(O::DEFINITION.erased()),
            element: self.element,
            shape: Cow::Borrowed(&self.shape),
            strides: Cow::Borrowed(&self.strides),
            second: self.second.as_ref().map(|second| SecondRequest {
                element: second.element,
                strides: second.strides.clone(),
                alignment: alignment_of(second.alignment as u64),
            }),
            // The number may come from a file.
            alignment: alignment_of(self.alignment as u64),
            axes: self.axes.as_deref().map(Cow::Borrowed),
            keep_dims: false,
            accumulator: self.accumulator,
            outputs: self.outputs,
            output,
            plan: None,
            wanted: Wanted::Results,
            numerics: self.numerics,
        })
    }

    /// The canonical problem. `O` is the operator.
    ///
    /// # Errors
    ///
    /// `O` has another name, or axes, types or strides are invalid.
    pub fn problem<O: Operator>(&self) -> Result<Problem, ReduceError> {
        Ok(self.request::<O>()?.resolve()?.problem)
    }

    /// A reduction of `input`, and of `second` if the operator takes two, with the axes and types
    /// of this one. The result does not keep the reduced axes.
    ///
    /// It has the problem of this one if the tensors have the recorded types, shapes, strides and
    /// alignments, and if the output has the recorded strides.
    pub fn reduction<'a, O: Operator, T: Input>(
        &self,
        operator: O,
        input: &'a T,
        second: Option<&'a T>,
    ) -> Reduction<'a, O, T> {
        let axes = self.axes.clone().map_or(Axes::All, Axes::List);
        let mut reduction = Reduction::new(operator, input, second).over(axes).keep_dims(false);
        reduction.options.accumulator = self.accumulator;
        reduction.options.outputs = self.outputs;
        reduction.options.numerics = Some(self.numerics);
        reduction
    }
}

impl RecordedApplication {
    /// The canonical problem, and that of the reduction alone. `O` is the operator and `F` the
    /// function.
    ///
    /// # Errors
    ///
    /// `O` or `F` has another name, or axes, operands, types or strides are invalid.
    pub fn problems<O: Operator, F: Apply<Results = O::Results>>(
        &self,
    ) -> Result<(AppliedProblem, Problem), ReduceError> {
        check_name(&self.function, F::NAME.to_owned())?;
        let second = self.reduction.second.iter();
        let operands = second.chain(&self.operands).map(|operand| OperandSpec {
            element: operand.element,
            strides: operand.strides.clone(),
            alignment: alignment_of(operand.alignment as u64),
        });
        let layout = self.output_layout.clone();
        let request = ApplyRequest {
            reduction: self.reduction.request::<O>()?,
            apply: ApplyRef(F::DEFINITION.erased()),
            output: self.output,
            layout: layout.map(|(strides, alignment)| (strides, alignment_of(alignment as u64))),
            operands: operands.collect(),
            wants_results: self.with_results,
            plan: None,
        };
        Ok(request.state()?.problems)
    }
}

impl RecordedList {
    /// The task of an operator for this list.
    fn task<O: Operator<Inputs = One>>(&self) -> Result<ListTask<'_>, ReduceError> {
        check_name(&self.operator, O::DEFINITION.erased().name())?;
        let inputs = self.tensors.iter().map(|tensor| InputSpec {
            element: tensor.element,
            shape: &tensor.shape,
            strides: &tensor.strides,
            alignment: alignment_of(tensor.alignment as u64),
        });
        let inputs: Vec<InputSpec<'_>> = inputs.collect();
        let operator = OperatorRef(O::DEFINITION.erased());
        let request = ListRequest::new(operator, &inputs, self.accumulator, self.outputs, None);
        let request = request.with_numerics(self.numerics);
        Ok(ListTask { request: Rc::new(request), inputs })
    }

    /// The canonical problem. `O` is the operator.
    ///
    /// # Errors
    ///
    /// `O` has another name, or tensors or types cannot be reduced.
    pub fn problem<O: Operator<Inputs = One>>(&self) -> Result<ListProblem, ReduceError> {
        Ok(self.task::<O>()?.state()?.problem)
    }
}

impl RecordedListApplication {
    /// The canonical problem. `O` is the operator and `F` the function.
    ///
    /// # Errors
    ///
    /// `O` or `F` has another name, or tensors or types cannot be reduced.
    pub fn problem<O: Operator<Inputs = One>, F: Apply<Results = O::Results>>(
        &self,
    ) -> Result<AppliedListProblem, ReduceError> {
        check_name(&self.function, F::NAME.to_owned())?;
        let ListTask { request: list, inputs } = self.list.task::<O>()?;
        let (apply, in_place) = (ApplyRef(F::DEFINITION.erased()), self.in_place);
        let request = ApplyListRequest { list, apply, in_place, plan: None };
        Ok(ApplyListTask { request, inputs }.state()?.problem)
    }
}

impl RecordedTopK {
    /// The canonical problem.
    ///
    /// # Errors
    ///
    /// Invalid axes, types or strides, slices that are too short, and output strides of another
    /// number than the selected elements have axes.
    pub fn problem(&self) -> Result<TopKProblem, ReduceError> {
        let input = InputSpec {
            element: self.element,
            shape: &self.shape,
            strides: &self.strides,
            // The number may come from a file.
            alignment: alignment_of(self.alignment as u64),
        };
        let request = TopKRequest {
            keep_dims: false,
            ranks: self.written.map(|written| Cow::Owned(vec![0; written])),
            positions: self.positions,
            ..TopKRequest::new(input, self.axes.as_deref(), self.k)
        };
        let stated = request.state()?;
        let Some(strides) = &self.output_strides else { return Ok(stated.problem) };
        let output = Some((Cow::Owned(stated.shape), Cow::Borrowed(&strides[..])));
        Ok(TopKRequest { output, ..request }.state()?.problem)
    }
}

/// Checks that an operator, or a function, has the recorded name.
fn check_name(recorded: &str, found: String) -> Result<(), ReduceError> {
    match recorded == found {
        true => Ok(()),
        false => Err(Reason::OtherOperator { recorded: recorded.to_owned(), found }.into()),
    }
}
