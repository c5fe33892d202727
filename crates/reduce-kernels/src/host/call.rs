//! One call, without the type of its operator.

use std::rc::Rc;

use cubecl::{prelude::*, server::BufferBinding, std::tensor::TensorHandle};
use reduce_planner::{Choice, Device, ElementType, Plan, Problem, choose};

use super::{
    buffers::{Buffers, buffer_bytes, check_inputs},
    cache,
    launch::Launch,
    prepared::{Prepared, check_arithmetic, plan},
    request::{Request, Resolved, Wanted},
    scratch::{Scratch, Stream},
    settings::{self, PlanStore},
};
use crate::{PlanInUse, ReduceError, element::storage_type, operator::Erased};

/// A request and the device to plan for.
pub(crate) struct Call<'a> {
    pub(crate) request: Request<'a>,
    /// The device to plan for; `None` means that of the client.
    pub(crate) device: Option<&'a Device>,
    /// The store to take the plan from.
    pub(crate) plans: Option<&'a PlanStore>,
    /// The operator's parameters.
    pub(crate) parameters: Vec<f64>,
}

impl Call<'_> {
    /// Chooses a plan for inputs whose buffers have these many bytes; `None` if there is no buffer. A
    /// plan in the request is ignored.
    pub(crate) fn choose(
        self,
        client: &Client,
        bytes: [Option<u64>; 2],
    ) -> Result<Choice, ReduceError> {
        let Resolved { problem, signature, .. } = self.request.resolve()?;
        check_inputs(&problem, bytes)?;
        let of_client = cache::device(client);
        let device = self.device.unwrap_or(&of_client);
        check_arithmetic(client, self.request.operator.0, &signature, device)?;
        Ok(choose(&problem, device)?)
    }

    /// The plan that the call would run, for inputs whose buffers have these many bytes; `None` if
    /// there is no buffer.
    pub(crate) fn plan(
        &self,
        client: &Client,
        bytes: [Option<u64>; 2],
    ) -> Result<PlanInUse, ReduceError> {
        let resolved = self.request.resolve()?;
        check_inputs(&resolved.problem, bytes)?;
        let of_client = cache::device(client);
        let device = self.device.unwrap_or(&of_client);
        let stored = |problem: &Problem| self.stored_plan(client, device, problem);
        Ok(plan(client, device, &self.request, &resolved, stored)?.0)
    }

    /// Prepares the call for inputs whose buffers have these many bytes; `None` if there is no buffer.
    pub(crate) fn check(
        &self,
        client: &Client,
        bytes: [Option<u64>; 2],
    ) -> Result<(), ReduceError> {
        check_inputs(&self.prepared(client)?.resolved.problem, bytes)
    }

    /// Launches into new row-major tensors, one for each result.
    pub(crate) fn run(
        self,
        client: &Client,
        input: &TensorHandle,
        second: Option<&TensorHandle>,
    ) -> Result<Vec<TensorHandle>, ReduceError> {
        let prepared = self.prepared(client)?;
        let outputs = new_outputs(client, &prepared.resolved, self.request.operator.0);
        let bindings = outputs.iter().map(|output| output.handle.clone().binding()).collect();
        let stream = outputs.first().map(|output| output.handle.stream.value);
        self.launch(client, &prepared, input, second, stream, bindings)?;
        Ok(outputs)
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
        self.launch(client, &prepared, input, second, None, bindings)
    }

    pub(crate) fn prepared(&self, client: &Client) -> Result<Rc<Prepared>, ReduceError> {
        let prepare = |device: &Device, request: &Request<'_>| {
            let stored = |problem: &Problem| self.stored_plan(client, device, problem);
            Prepared::new(client, device, request, stored)
        };
        match self.device {
            Some(device) => Ok(Rc::new(prepare(device, &self.request)?)),
            None if self.plans.is_some() => {
                Ok(Rc::new(prepare(&cache::device(client), &self.request)?))
            }
            None => {
                let identity = cache::identity(client);
                cache::prepared(identity, self.request.clone(), |request| {
                    let prepared = prepare(&cache::device(client), request)?;
                    if request.plan.is_none() && request.wanted == Wanted::Results {
                        settings::record(identity, request);
                    }
                    Ok(prepared)
                })
            }
        }
    }

    /// The plan for a problem in the call's store, or else in that of the client's device. For
    /// another device, only the call's own store counts.
    fn stored_plan(&self, client: &Client, device: &Device, problem: &Problem) -> Option<Plan> {
        // Partial results take the plan of the results: only the end of a reduction differs.
        let of_results = match self.request.wanted {
            Wanted::Results => None,
            Wanted::Partials(_) => {
                let request = Request { wanted: Wanted::Results, ..self.request.clone() };
                Some(request.resolve().ok()?.problem)
            }
        };
        let known = of_results.as_ref().unwrap_or(problem);
        let own = self.plans.and_then(|plans| plans.plan_for(known, device));
        let plan = own.or_else(|| match self.device {
            Some(_) => None,
            None => settings::stored_plan(cache::identity(client), known, device),
        });
        plan.filter(|plan| of_results.is_none() || plan.check(problem, device).is_ok())
    }

    /// Launches the kernels. `stream` is the client's stream if it is known.
    fn launch(
        self,
        client: &Client,
        prepared: &Prepared,
        input: &TensorHandle,
        second: Option<&TensorHandle>,
        stream: Option<Stream>,
        outputs: Vec<BufferBinding>,
    ) -> Result<(), ReduceError> {
        let launch = self.ready(client, prepared, input, second, stream, outputs)?;
        if let Some(launch) = launch {
            launch.run();
        }
        Ok(())
    }

    /// A launch of the kernels that cannot be refused any more; `None` if there is nothing to
    /// launch.
    pub(crate) fn ready<'c>(
        self,
        client: &'c Client,
        prepared: &'c Prepared,
        input: &TensorHandle,
        second: Option<&TensorHandle>,
        stream: Option<Stream>,
        outputs: Vec<BufferBinding>,
    ) -> Result<Option<Launch<'c>>, ReduceError> {
        let Prepared { resolved, dispatch } = prepared;
        let Some(dispatch) = dispatch else {
            let bytes = |tensor: &TensorHandle| buffer_bytes(&tensor.handle);
            check_inputs(&resolved.problem, [Some(bytes(input)), second.map(bytes)])?;
            return Ok(None);
        };
        let operator = self.request.operator;
        let buffers = Buffers::check(client, resolved, input, second, outputs)?;
        // CubeCL does not reveal the stream of a client, but a new buffer does.
        let stream = || stream.unwrap_or_else(|| client.empty(1).stream.value);
        let fields = &resolved.signature.fields[..operator.0.fields];
        let fields = fields.iter().map(|field| field.bytes());
        let outputs = resolved.problem.outputs();
        let scratch = Scratch::of(client, stream, dispatch, fields, outputs)?;
        let parameters = self.parameters;
        Ok(Some(Launch { client, operator, dispatch, buffers, scratch, parameters }))
    }
}

/// Checks that supplied outputs have the shape of the result, and the same strides.
pub(crate) fn check_layouts(
    expected: &[usize],
    outputs: &[TensorBinding],
) -> Result<(), ReduceError> {
    for output in outputs {
        if output.shape[..] != *expected {
            let (expected, found) = (expected.to_vec(), output.shape.to_vec());
            return Err(ReduceError::OutputShape { expected, found });
        }
        if output.strides != outputs[0].strides {
            let (first, other) = (outputs[0].strides.to_vec(), output.strides.to_vec());
            return Err(ReduceError::OutputStrides { first, other });
        }
    }
    Ok(())
}

/// New row-major tensors for what a reduction leaves: one for each result, or one for its words.
pub(crate) fn new_outputs(
    client: &Client,
    resolved: &Resolved,
    operator: &Erased,
) -> Vec<TensorHandle> {
    let outputs = resolved.outputs(operator).into_iter();
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
