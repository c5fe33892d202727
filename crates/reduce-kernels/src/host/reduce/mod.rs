//! A reduction of one input, or of two: the kind of task that all others are made of.
//!
//! [`request`] holds what the caller asked for as plain data, and resolves it to a problem.
//! [`dispatch`] decides how a plan is launched. A call binds its buffers and passes them to
//! [`launch`]. [`merge`] merges partial results.

use std::{cell::RefCell, thread::LocalKey};

use cubecl::{prelude::*, server::BufferBinding, std::tensor::TensorHandle};
use reduce_planner::{Device, ElementType, Plan, PlanError, Problem, Role};

use super::{
    bound::{Bound, byte_count, check_inputs},
    cache::{Asked, Held, Known, Models, Remembered, chosen},
    call::{Call, Task},
    client::has_cache_policies,
    launched::{Kernel, Launches, Noted},
    scratch::Stream,
    types::check_arithmetic,
};
#[cfg(feature = "serde")]
use crate::recorded::{RecordedCall, RecordedReduction};
use crate::{
    element::storage_type,
    error::{Reason, ReduceError},
    operator::OperatorRef,
};

pub(crate) mod dispatch;
pub(crate) mod launch;
pub(crate) mod merge;
pub(crate) mod request;
mod streams;

use dispatch::{Dispatch, Scratch};
use launch::{Generated, ReductionLaunch};
use request::{ReduceRequest, StatedReduction, Wanted};

/// A resolved request and its dispatch.
#[derive(Debug)]
pub(crate) struct PreparedReduction {
    operator: OperatorRef,
    pub(crate) resolved: StatedReduction,
    /// `None` if the result has no elements. Nothing is launched then.
    dispatch: Option<Dispatch>,
    /// For launches whose results are stored one by one, and for those that store vectors.
    noted: [Noted; 2],
}

thread_local! {
    static KNOWN: RefCell<Known<ReduceRequest<'static>>> = RefCell::default();
    static MODELS: RefCell<Models<Problem>> = RefCell::default();
}

impl Remembered for ReduceRequest<'static> {
    type Prepared = PreparedReduction;

    fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
        &KNOWN
    }

    fn held(&self, _: &PreparedReduction) -> Held {
        Held::of_axes::<Self, PreparedReduction>(self.shape.len())
    }
}

impl Asked for ReduceRequest<'_> {
    type Request = ReduceRequest<'static>;

    fn is(&self, known: &ReduceRequest<'static>) -> bool {
        self == known
    }

    fn to_request(&self) -> ReduceRequest<'static> {
        self.clone().into_owned()
    }
}

/// The tensors are the input, and the second input if there is one.
impl Task for ReduceRequest<'_> {
    type Stated = StatedReduction;
    type Problem = Problem;
    type Launch = Dispatch;

    fn state(&self) -> Result<StatedReduction, ReduceError> {
        self.resolve()
    }

    fn problem(stated: &StatedReduction) -> &Problem {
        &stated.problem
    }

    fn given(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    fn check_types(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedReduction,
    ) -> Result<(), ReduceError> {
        check_arithmetic(client, self.operator.0, &stated.signature, device)
    }

    fn check_bytes(
        &self,
        stated: &StatedReduction,
        bytes: &[Option<u64>],
    ) -> Result<(), ReduceError> {
        check_inputs(&stated.problem, bytes)
    }

    fn check_outputs(&self, client: &Client, stated: &StatedReduction) -> Result<(), ReduceError> {
        let available = client.properties().memory.max_page_size;
        if self.output.is_none() {
            let outputs = stated.outputs(self.operator.0).into_iter();
            let needed = outputs.map(|(element, count)| byte_count(count, element));
            if let Some(needed) = needed.max().filter(|&needed| needed > available) {
                return Err(Reason::OutputTooLarge { needed, available }.into());
            }
        }
        Ok(())
    }

    fn is_empty(stated: &StatedReduction) -> bool {
        stated.problem.outputs() == 0
    }

    fn launch(
        &self,
        client: &Client,
        device: &Device,
        stated: &StatedReduction,
        plan: &Plan,
    ) -> Result<Dispatch, ReduceError> {
        let StatedReduction { problem, signature, words, .. } = stated;
        let operator = self.operator;
        let fields = &signature.fields[..operator.0.fields];
        let available = client.properties().memory.max_page_size;
        let dispatch = Dispatch::new(operator, *plan, problem, device, fields, *words, available)?;
        let streams = dispatch.streams.filter(|_| has_cache_policies(client));
        Ok(Dispatch { streams, ..dispatch })
    }

    fn prepare(
        &self,
        _: &Client,
        _: &Device,
        resolved: StatedReduction,
        dispatch: Option<Dispatch>,
    ) -> Result<PreparedReduction, ReduceError> {
        let noted = Default::default();
        Ok(PreparedReduction { operator: self.operator, resolved, dispatch, noted })
    }

    fn chosen(client: usize, problem: &Problem, device: &Device) -> Result<Plan, PlanError> {
        chosen(&MODELS, client, problem, device)
    }

    /// Partial results take the plan of the results: only the end of a reduction differs.
    fn stored(
        &self,
        stated: &StatedReduction,
        device: &Device,
        find: impl Fn(&Problem) -> Option<Plan>,
    ) -> Option<Plan> {
        match self.wanted {
            Wanted::Results => find(&stated.problem),
            Wanted::Partials => {
                let request =
                    ReduceRequest { wanted: Wanted::Results, shard: None, ..self.clone() };
                let plan = find(&request.resolve().ok()?.problem)?;
                plan.check(&stated.problem, device).is_ok().then_some(plan)
            }
        }
    }

    #[cfg(feature = "serde")]
    fn recorded(&self) -> Option<RecordedCall> {
        let is_recorded = self.plan.is_none() && self.wanted == Wanted::Results;
        is_recorded.then(|| RecordedCall::Reduction(RecordedReduction::of(self)))
    }
}

impl<'a> Call<'a, ReduceRequest<'a>> {
    /// Launches into new row-major tensors, one for each result.
    pub(crate) fn run(
        self,
        client: &Client,
        input: &TensorHandle,
        second: Option<&TensorHandle>,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let prepared = self.prepared(client)?;
        let inputs = Inputs::bind(client, &prepared.resolved.problem, input, second)?;
        prepared.run(client, &self.parameters, inputs)
    }

    /// Launches into tensors that the caller supplies.
    pub(crate) fn run_into(
        self,
        client: &Client,
        input: &TensorHandle,
        second: Option<&TensorHandle>,
        outputs: &[TensorBinding],
    ) -> Result<(), ReduceError> {
        let prepared = self.prepared(client)?;
        check_layouts(&prepared.resolved.shape, outputs)?;
        let bindings = outputs.iter().map(|output| output.handle.clone()).collect();
        let inputs = Inputs::bind(client, &prepared.resolved.problem, input, second)?;
        let launch = prepared.ready(client, &self.parameters, inputs, None, bindings)?;
        launch.into_iter().for_each(ReductionLaunch::run);
        Ok(())
    }
}

impl PreparedReduction {
    /// Launches into new row-major tensors, one for each result.
    pub(super) fn run(
        &self,
        client: &Client,
        parameters: &[f64],
        inputs: Inputs<'_>,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let outputs = new_outputs(client, &self.resolved, self.operator);
        let bindings = outputs.iter().map(|output| output.handle.clone().binding()).collect();
        let stream = outputs.first().map(|output| output.handle.stream.value);
        let launch = self.ready(client, parameters, inputs, stream, bindings)?;
        launch.into_iter().for_each(ReductionLaunch::run);
        Ok(outputs)
    }

    /// A launch of the kernels that cannot be refused any more; `None` if there is nothing to
    /// launch. `stream` is the client's stream if it is known.
    pub(in crate::host) fn ready<'c>(
        &'c self,
        client: &'c Client,
        parameters: &'c [f64],
        inputs: Inputs<'c>,
        stream: Option<Stream>,
        outputs: Vec<BufferBinding>,
    ) -> Result<Option<ReductionLaunch<'c>>, ReduceError> {
        let Self { operator, ref resolved, ref dispatch, ref noted } = *self;
        let Some(dispatch) = dispatch else { return Ok(None) };
        let outputs = resolved.bind_outputs(client, outputs)?;
        // CubeCL does not reveal the stream of a client, but a new buffer does.
        let stream = || stream.unwrap_or_else(|| client.empty(1).stream.value);
        let fields = &resolved.signature.fields[..operator.0.fields];
        let fields = fields.iter().map(|field| field.bytes());
        let scratch = Scratch::of(client, stream, dispatch, fields, resolved.problem.outputs())?;
        let kernels = Generated { client, operator, dispatch, resolved };
        Ok(Some(ReductionLaunch { kernels, noted, inputs, outputs, scratch, parameters }))
    }
}

/// Those of a launch into new tensors.
impl Launches for PreparedReduction {
    fn kernels(&self, client: &Client, each: &mut dyn FnMut(Kernel)) {
        let Self { operator, ref resolved, ref dispatch, .. } = *self;
        let Some(dispatch) = dispatch else { return };
        let generated = Generated { client, operator, dispatch, resolved };
        generated.list(generated.writes_vectors(|_, _| true), each);
    }
}

/// New row-major tensors for what a reduction leaves: one for each result, or one for its words.
pub(super) fn new_outputs(
    client: &Client,
    resolved: &StatedReduction,
    operator: OperatorRef,
) -> Vec<TensorHandle> {
    let outputs = resolved.outputs(operator.0).into_iter();
    let tensor = |(element, count): (ElementType, usize)| {
        // A buffer of 0 bytes cannot be bound, so an empty result gets the memory of one element.
        let handle = client.empty(count.max(1) * element.bytes());
        let shape = match resolved.words {
            Some(words) => vec![1, words, resolved.problem.outputs()],
            None => resolved.shape.clone(),
        };
        TensorHandle::new_contiguous(shape, handle, storage_type(element))
    };
    outputs.map(tensor).collect()
}

/// Checks that supplied outputs have the shape of the result, and the same strides.
pub(crate) fn check_layouts(
    expected: &[usize],
    outputs: &[TensorBinding],
) -> Result<(), ReduceError> {
    for output in outputs {
        if output.shape[..] != *expected {
            let (expected, found) = (expected.to_vec(), output.shape.to_vec());
            return Err(Reason::OutputShape { expected, found }.into());
        }
        if output.strides != outputs[0].strides {
            let (first, other) = (outputs[0].strides.to_vec(), output.strides.to_vec());
            return Err(Reason::OutputStrides { first, other }.into());
        }
    }
    Ok(())
}

/// The inputs of a reduction, or of a call that contains one.
#[derive(Clone)]
pub(crate) struct Inputs<'a> {
    input: Bound<'a>,
    pub(in crate::host) second: Option<Bound<'a>>,
}

impl<'a> Inputs<'a> {
    /// Binds what `problem` reads.
    ///
    /// # Errors
    ///
    /// A buffer that is too small, or begins where the device cannot bind it.
    pub(in crate::host) fn bind(
        client: &Client,
        problem: &Problem,
        input: &'a TensorHandle,
        second: Option<&'a TensorHandle>,
    ) -> Result<Self, ReduceError> {
        let (span, element) = (problem.input_span(), problem.input());
        let input = Bound::check_input(client, Role::Input, &input.handle, span, element)?;
        let second = second.zip(problem.second()).map(|(tensor, second)| {
            let (span, element) = (second.span(), second.element());
            Bound::check_input(client, Role::SecondInput, &tensor.handle, span, element)
        });
        Ok(Self { input, second: second.transpose()? })
    }
}

impl StatedReduction {
    /// Binds the outputs: one for each result, or one for the words of accumulators.
    ///
    /// # Errors
    ///
    /// A buffer that is too small, or begins where the device cannot bind it.
    fn bind_outputs(
        &self,
        client: &Client,
        outputs: Vec<BufferBinding>,
    ) -> Result<Vec<Bound<'static>>, ReduceError> {
        let Self { problem, signature, words, .. } = self;
        let of_words =
            words.map(|words| (problem.outputs().saturating_mul(words), ElementType::U32));
        let outputs = outputs.into_iter().zip(&signature.results).map(|(output, &element)| {
            let (len, element) = of_words.unwrap_or((problem.output_span(), element));
            Bound::check(client, Role::Output, output, len, element)
        });
        outputs.collect()
    }
}
