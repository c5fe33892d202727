//! A reduction that is ready to launch, except for its buffers.

use cubecl::prelude::*;
use reduce_planner::{Device, ElementType, PlanError, choose};

use super::{
    buffers::byte_count,
    client::{computes_with, has_wide_math},
    dispatch::Dispatch,
    request::{Request, Resolved},
};
use crate::{
    ReduceError,
    operator::{Erased, Signature},
};

/// A resolved request and its dispatch.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) resolved: Resolved,
    /// `None` if the result has no elements. Nothing is launched then.
    pub(crate) dispatch: Option<Dispatch>,
}

impl Prepared {
    /// Resolves and plans a request for a device.
    pub(crate) fn new<R: Runtime>(
        client: &ComputeClient<R>,
        device: &Device,
        request: &Request<'_>,
    ) -> Result<Self, ReduceError> {
        let resolved = request.resolve()?;
        let operator = request.operator.0;
        let problem = &resolved.problem;
        let available = client.properties().memory.max_page_size;
        if request.output.is_none() {
            let results = &resolved.signature.results[..operator.results];
            let needed = results.iter().map(|&element| byte_count(problem.outputs(), element));
            if let Some(needed) = needed.max().filter(|&needed| needed > available) {
                return Err(ReduceError::OutputTooLarge { needed, available });
            }
        }
        if problem.outputs() == 0 {
            return Ok(Self { resolved, dispatch: None });
        }
        check_arithmetic(client, operator, &resolved.signature, device)?;
        let plan = match request.plan {
            Some(plan) => {
                plan.check(problem, device)?;
                plan
            }
            None => choose(problem, device)?.plan,
        };
        let fields = &resolved.signature.fields[..operator.fields];
        let dispatch = Dispatch::new(request.operator, plan, problem, device, fields, available)?;
        Ok(Self { resolved, dispatch: Some(dispatch) })
    }
}

/// Checks the types that kernels compute with; the planner checks those of tensors.
pub(crate) fn check_arithmetic<R: Runtime>(
    client: &ComputeClient<R>,
    operator: &Erased,
    signature: &Signature,
    device: &Device,
) -> Result<(), ReduceError> {
    let fields = signature.fields[..operator.fields].iter().copied();
    for element in core::iter::once(signature.value).chain(fields) {
        if !(device.has(element) && computes_with(client, element)) {
            let device = device.name.clone();
            return Err(PlanError::ElementUnsupported { device, element }.into());
        }
        if operator.transcendental
            && element == ElementType::F64
            && !has_wide_math(client, operator.native_math)
        {
            let device = device.name.clone();
            return Err(ReduceError::Transcendental { operator: operator.name(), element, device });
        }
    }
    Ok(())
}
