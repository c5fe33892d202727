//! What is recorded while a process runs, and the problems that recorded calls state again.

use std::{borrow::Cow, rc::Rc};

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::{
    AppliedListProblem, AppliedProblem, ElementType, InputSpec, ListProblem, ListScanProblem,
    Problem, ScanProblem, SegmentsProblem, TopKPlan, TopKProblem, span,
};

use crate::{
    axes::Axes,
    element::storage_type,
    error::{Reason, ReduceError},
    host::{
        apply::request::{AppliedOutput, ApplyRequest, OperandSpec},
        cache,
        call::{Call, Task},
        list::{
            apply::{ApplyListRequest, ApplyListTask},
            request::{ListRequest, ListTask},
            scan::{ListScanRequest, ListScanTask},
        },
        reduce::request::{ReduceRequest, SecondRequest, Wanted},
        scan::request::ScanRequest,
        segments::{
            integers::{IntegersSpec, MembersSpec},
            request::SegmentsRequest,
        },
        settings,
        top_k::{
            launch::Selecting,
            request::{PositionTable, Ranks, TopKRequest},
        },
    },
    input::{Input, alignment_of},
    operator::{Apply, ApplyRef, One, Operator, OperatorRef},
    recorded::{
        RecordedApplication, RecordedCall, RecordedList, RecordedListApplication, RecordedListScan,
        RecordedOutput, RecordedReduction, RecordedScan, RecordedSegments, RecordedTopK,
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
            operator: OperatorRef(O::DEFINITION.erased().with_numerics(self.numerics)),
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
            shard: None,
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

    /// Whether the call would compile a kernel if it ran now; see
    /// [`would_compile`](crate::warm_up::would_compile). `O` is the operator.
    ///
    /// # Errors
    ///
    /// Those of [`problem`](Self::problem), and reductions that the device cannot run.
    pub fn would_compile<O: Operator>(&self, client: &Client) -> Result<bool, ReduceError> {
        would_compile(self.request::<O>()?, client)
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
        Ok(self.request::<O, F>()?.state()?.problems)
    }

    /// Whether the call would compile a kernel if it ran now; see
    /// [`would_compile`](crate::warm_up::would_compile). `O` is the operator and `F` the function.
    ///
    /// # Errors
    ///
    /// Those of [`problems`](Self::problems), and calls that the device cannot run.
    pub fn would_compile<O: Operator, F: Apply<Results = O::Results>>(
        &self,
        client: &Client,
    ) -> Result<bool, ReduceError> {
        would_compile(self.request::<O, F>()?, client)
    }

    /// The request of an operator and a function for this application.
    fn request<O: Operator, F: Apply<Results = O::Results>>(
        &self,
    ) -> Result<ApplyRequest<'_>, ReduceError> {
        check_name(&self.function, F::NAME.to_owned())?;
        let second = self.reduction.second.iter();
        let operands = second.chain(&self.operands).map(|operand| OperandSpec {
            element: operand.element,
            strides: operand.strides.clone(),
            segment_stride: operand.segment_stride,
            alignment: alignment_of(operand.alignment as u64),
        });
        let outputs = self.outputs().map(|RecordedOutput { element, layout }| {
            let aligned = |(strides, alignment)| (strides, alignment_of(alignment as u64));
            AppliedOutput { element, layout: layout.map(aligned) }
        });
        let axis = self.reduction.axes.as_deref().and_then(|axes| axes.first()).copied();
        let len = self.reduction.shape.get(axis.unwrap_or(0)).copied().unwrap_or(0);
        let members = |&(segments, offsets): &(usize, _)| MembersSpec {
            offsets: IntegersSpec::recorded(segments.saturating_add(1), offsets),
            indices: self.grouped.map(|(indices, _)| IntegersSpec::recorded(len, indices)),
            keys: self.grouped.map(|(_, keys)| IntegersSpec::recorded(len, keys)),
        };
        Ok(ApplyRequest {
            reduction: self.reduction.request::<O>()?,
            members: self.segments.as_ref().map(members),
            apply: ApplyRef(F::DEFINITION.erased()),
            outputs: outputs.collect(),
            operands: operands.collect(),
            wants_results: self.with_results,
            plan: None,
        })
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

    /// Whether the call would compile a kernel if it ran now; see
    /// [`would_compile`](crate::warm_up::would_compile). `O` is the operator.
    ///
    /// # Errors
    ///
    /// Those of [`problem`](Self::problem), and lists that the device cannot run.
    pub fn would_compile<O: Operator<Inputs = One>>(
        &self,
        client: &Client,
    ) -> Result<bool, ReduceError> {
        would_compile(self.task::<O>()?, client)
    }
}

impl RecordedListApplication {
    /// The canonical problem. `O` is the operator and `F` the function.
    ///
    /// # Errors
    ///
    /// `O` or `F` has another name, or tensors or types cannot be reduced.
    pub fn problem<O: Operator<Inputs = One>, F: Apply<Results = O::Results, Outputs = One>>(
        &self,
    ) -> Result<AppliedListProblem, ReduceError> {
        Ok(self.task::<O, F>()?.state()?.problem)
    }

    /// Whether the call would compile a kernel if it ran now; see
    /// [`would_compile`](crate::warm_up::would_compile). `O` is the operator and `F` the function.
    ///
    /// # Errors
    ///
    /// Those of [`problem`](Self::problem), and calls that the device cannot run.
    pub fn would_compile<
        O: Operator<Inputs = One>,
        F: Apply<Results = O::Results, Outputs = One>,
    >(
        &self,
        client: &Client,
    ) -> Result<bool, ReduceError> {
        would_compile(self.task::<O, F>()?, client)
    }

    /// The task of an operator and a function for this application.
    fn task<O: Operator<Inputs = One>, F: Apply<Results = O::Results, Outputs = One>>(
        &self,
    ) -> Result<ApplyListTask<'_>, ReduceError> {
        check_name(&self.function, F::NAME.to_owned())?;
        let ListTask { request: list, inputs } = self.list.task::<O>()?;
        let (apply, in_place) = (ApplyRef(F::DEFINITION.erased()), self.in_place);
        let request = ApplyListRequest { list, apply, in_place, plan: None };
        Ok(ApplyListTask { request, inputs })
    }
}

impl RecordedSegments {
    /// The canonical problem. `O` is the operator.
    ///
    /// # Errors
    ///
    /// `O` has another name, or the axis, types or strides are invalid.
    pub fn problem<O: Operator>(&self) -> Result<SegmentsProblem, ReduceError> {
        Ok(self.request::<O>()?.state()?.problem)
    }

    /// Whether the call would compile a kernel if it ran now; see
    /// [`would_compile`](crate::warm_up::would_compile). `O` is the operator.
    ///
    /// # Errors
    ///
    /// Those of [`problem`](Self::problem), and reductions that the device cannot run.
    pub fn would_compile<O: Operator>(&self, client: &Client) -> Result<bool, ReduceError> {
        would_compile(self.request::<O>()?, client)
    }

    /// The request of an operator. The strides of offsets and indices are left out of recordings: they
    /// change no plan.
    fn request<O: Operator>(&self) -> Result<SegmentsRequest<'_>, ReduceError> {
        let reduce = self.axis.request::<O>()?;
        let indices = self.indices.map(|(len, element)| IntegersSpec::recorded(len, element));
        let offsets = IntegersSpec::recorded(self.segments.saturating_add(1), self.offsets);
        let members = MembersSpec { offsets, indices, keys: None };
        let request = SegmentsRequest::new(reduce, members)?;
        let output = self.output_strides.as_deref().map(Cow::Borrowed);
        let shape = request.shape();
        Ok(SegmentsRequest {
            output: output.map(|strides| (Cow::Owned(shape), strides)),
            ..request
        })
    }
}

impl RecordedScan {
    /// The canonical problem. `O` is the operator.
    ///
    /// # Errors
    ///
    /// `O` has another name, or the axes, types or strides are invalid.
    pub fn problem<O: Operator<Inputs = One>>(&self) -> Result<ScanProblem, ReduceError> {
        Ok(self.request::<O>()?.state()?.problem)
    }

    /// Whether the call would compile a kernel if it ran now; see
    /// [`would_compile`](crate::warm_up::would_compile). `O` is the operator.
    ///
    /// # Errors
    ///
    /// Those of [`problem`](Self::problem), and scans that the device cannot run.
    pub fn would_compile<O: Operator<Inputs = One>>(
        &self,
        client: &Client,
    ) -> Result<bool, ReduceError> {
        would_compile(self.request::<O>()?, client)
    }

    /// The request of an operator.
    fn request<O: Operator<Inputs = One>>(&self) -> Result<ScanRequest<'_>, ReduceError> {
        let (exclusive, reverse) = (self.exclusive, self.reverse);
        // The alignment may come from a file.
        let layout = self.output_layout.clone();
        let output = layout.map(|(strides, bytes)| (strides, alignment_of(bytes as u64)));
        Ok(ScanRequest {
            reduce: self.scanned.request::<O>()?,
            exclusive,
            reverse,
            earlier: None,
            output,
            plan: None,
        })
    }
}

impl RecordedListScan {
    /// The task of an operator for this list.
    fn task<O: Operator<Inputs = One>>(&self) -> Result<ListScanTask<'_>, ReduceError> {
        let ListTask { request: list, inputs } = self.list.task::<O>()?;
        let Self { ref axes, exclusive, reverse, .. } = *self;
        let request = ListScanRequest { list, axes: axes.clone(), exclusive, reverse, plan: None };
        Ok(ListScanTask { request, inputs })
    }

    /// The canonical problem. `O` is the operator.
    ///
    /// # Errors
    ///
    /// `O` has another name, or the axes, types or strides of a tensor are invalid.
    pub fn problem<O: Operator<Inputs = One>>(&self) -> Result<ListScanProblem, ReduceError> {
        Ok(self.task::<O>()?.state()?.problem)
    }

    /// Whether the call would compile a kernel if it ran now; see
    /// [`would_compile`](crate::warm_up::would_compile). `O` is the operator.
    ///
    /// # Errors
    ///
    /// Those of [`problem`](Self::problem), and scans that the device cannot run.
    pub fn would_compile<O: Operator<Inputs = One>>(
        &self,
        client: &Client,
    ) -> Result<bool, ReduceError> {
        would_compile(self.task::<O>()?, client)
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
        Ok(self.request()?.state()?.problem)
    }

    /// Whether the call would compile a kernel if it ran now; see
    /// [`would_compile`](crate::warm_up::would_compile). A recording does not say whether the
    /// selected elements are put in the order of their positions, which may take another kernel.
    ///
    /// # Errors
    ///
    /// Those of [`problem`](Self::problem), and selections that the device cannot run.
    pub fn would_compile(&self, client: &Client) -> Result<bool, ReduceError> {
        would_compile(self.request()?, client)
    }

    /// Launches the selection with a plan over tensors of the recorded types, shapes, strides and
    /// alignments, and drops what it gives. Does not wait for it.
    ///
    /// This serves measuring: a recording does not say which elements come first, and the largest
    /// do. Of elements with given numbers, they are the last. A mask writes zeros.
    ///
    /// ```no_run
    /// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
    /// # use reduce_kernels::{planner::TopKPlan, plans::RecordedTopK};
    /// # fn example(
    /// #     client: &Client,
    /// #     recorded: &RecordedTopK,
    /// #     x: &TensorHandle,
    /// #     plans: &[TopKPlan],
    /// # ) -> Result<(), ReduceError> {
    /// for &plan in plans {
    ///     recorded.launch(client, x, None, plan)?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn launch(
        &self,
        client: &Client,
        input: &TensorHandle,
        positions: Option<&TensorHandle>,
        plan: TopKPlan,
    ) -> Result<(), ReduceError> {
        let request = TopKRequest { plan: Some(plan), ..self.request()? };
        let empty = |shape: &[usize], strides: &[usize], element: ElementType| {
            let span = span(shape, strides).unwrap_or(0).max(1);
            let handle = client.empty(span * element.bytes());
            TensorHandle::new(handle, shape, strides, storage_type(element)).binding()
        };
        if let Some(strides) = &self.mask_strides {
            let masked = empty(&self.shape, strides, self.element);
            return call_of(request).keep_only(client, input, 0.0, masked.handle);
        }
        let selecting = Selecting::from(input, positions);
        let Some((shape, strides)) = request.output.clone() else {
            return call_of(request).run(client, selecting).map(drop);
        };
        let [values, positions, _] = request.state()?.signature.results;
        let outputs = [values, positions].map(|element| empty(&shape, &strides, element));
        call_of(request).run_into(client, selecting, outputs)
    }

    /// The request for this selection. Ranks are left out of recordings: these are the last ones.
    fn request(&self) -> Result<TopKRequest<'_>, ReduceError> {
        let input = InputSpec {
            element: self.element,
            shape: &self.shape,
            strides: &self.strides,
            // The number may come from a file.
            alignment: alignment_of(self.alignment as u64),
        };
        let request = TopKRequest {
            // The launch of a mask finds the selected elements along the axes of the input.
            keep_dims: self.mask_strides.is_some(),
            ranks: self.written.map(|written| self.last_ranks(written)),
            positions: self.positions,
            probabilities: self.probabilities.map(|of| of.over),
            values: self.probabilities.map(|of| of.element),
            table: self.table.as_ref().map(|table| PositionTable {
                element: table.element,
                strides: Cow::Borrowed(&table.strides),
            }),
            mask: self.mask_strides.as_deref().map(Cow::Borrowed),
            ..TopKRequest::new(input, self.axes.as_deref(), self.k)
        };
        let Some(strides) = &self.output_strides else { return Ok(request) };
        let output = Some((Cow::Owned(request.state()?.shape), Cow::Borrowed(&strides[..])));
        Ok(TopKRequest { output, ..request })
    }

    /// The ranks of the last so many elements that are selected.
    fn last_ranks(&self, written: usize) -> Ranks<'static> {
        let rank = |nth: usize| u32::try_from(nth).unwrap_or(u32::MAX);
        Ranks::of_all((self.k.saturating_sub(written)..self.k).rev().map(rank).collect())
    }
}

/// Whether a task has a kernel that was not launched before.
fn would_compile<T: Task>(task: T, client: &Client) -> Result<bool, ReduceError> {
    call_of(task).has_new_kernels(client)
}

/// The call of a task. Kernels do not depend on the values of parameters, which recordings leave out.
fn call_of<T: Task>(task: T) -> Call<'static, T> {
    Call { task, device: None, plans: None, parameters: Vec::new(), apply_parameters: Vec::new() }
}

/// Checks that an operator, or a function, has the recorded name.
fn check_name(recorded: &str, found: String) -> Result<(), ReduceError> {
    match recorded == found {
        true => Ok(()),
        false => Err(Reason::OtherOperator { recorded: recorded.to_owned(), found }.into()),
    }
}
