//! A reduction that is ready to launch, except for its buffers.

use std::{cell::RefCell, thread::LocalKey};

use cubecl::prelude::*;
use reduce_planner::{Device, ElementType, Plan, PlanError, Problem, choose};

use super::{
    buffers::byte_count,
    cache::{Asked, Held, Known, Remembered},
    client::{computes_with, has_wide_math, is_software_with_spirv},
    dispatch::Dispatch,
    request::{Request, Resolved},
};
use crate::{
    PlanInUse, PlanSource, ReduceError,
    operator::{Erased, Signature},
};

/// A resolved request and its dispatch.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) resolved: Resolved,
    /// `None` if the result has no elements. Nothing is launched then.
    pub(crate) dispatch: Option<Dispatch>,
}

thread_local! {
    static KNOWN: RefCell<Known<Request<'static>>> = RefCell::default();
}

impl Remembered for Request<'static> {
    type Prepared = Prepared;

    fn known() -> &'static LocalKey<RefCell<Known<Self>>> {
        &KNOWN
    }

    fn held(&self, _: &Prepared) -> Held {
        Held::of_axes::<Self, Prepared>(self.shape.len())
    }
}

impl Asked for Request<'_> {
    type Request = Request<'static>;

    fn is(&self, known: &Request<'static>) -> bool {
        self == known
    }

    fn into_request(self) -> Request<'static> {
        self.into_owned()
    }
}

impl Prepared {
    /// Resolves and plans a request for a device. `stored` looks up the plan of a problem that was
    /// measured and may run on the device.
    pub(crate) fn new(
        client: &Client,
        device: &Device,
        request: &Request<'_>,
        stored: impl FnOnce(&Problem) -> Option<Plan>,
    ) -> Result<Self, ReduceError> {
        let resolved = request.resolve()?;
        let operator = request.operator.0;
        let problem = &resolved.problem;
        let available = client.properties().memory.max_page_size;
        if request.output.is_none() {
            let outputs = resolved.outputs(operator).into_iter();
            let needed = outputs.map(|(element, count)| byte_count(count, element));
            if let Some(needed) = needed.max().filter(|&needed| needed > available) {
                return Err(ReduceError::OutputTooLarge { needed, available });
            }
        }
        if problem.outputs() == 0 {
            return Ok(Self { resolved, dispatch: None });
        }
        let (_, dispatch) = plan(client, device, request, &resolved, stored)?;
        Ok(Self { resolved, dispatch: Some(dispatch) })
    }
}

/// The plan that a request runs: its own, or else the stored one if it can be launched, or else the
/// planner's choice.
pub(crate) fn plan(
    client: &Client,
    device: &Device,
    request: &Request<'_>,
    resolved: &Resolved,
    stored: impl FnOnce(&Problem) -> Option<Plan>,
) -> Result<(PlanInUse, Dispatch), ReduceError> {
    let Resolved { problem, signature, words, .. } = resolved;
    let operator = request.operator;
    check_arithmetic(client, operator.0, signature, device)?;
    let fields = &signature.fields[..operator.0.fields];
    let available = client.properties().memory.max_page_size;
    let dispatch = |plan| Dispatch::new(operator, plan, problem, device, fields, *words, available);
    if let Some(plan) = request.plan {
        plan.check(problem, device)?;
        return Ok((PlanInUse::new(plan, PlanSource::Given), dispatch(plan)?));
    }
    if let Some(plan) = stored(problem) {
        // Partial results may take more memory than one buffer has.
        if let Ok(dispatch) = dispatch(plan) {
            return Ok((PlanInUse::new(plan, PlanSource::Stored), dispatch));
        }
    }
    let plan = choose(problem, device)?.plan;
    Ok((PlanInUse::new(plan, PlanSource::Chosen), dispatch(plan)?))
}

/// Checks that CubeCL writes kernels for the client's device, and the types that they compute with;
/// the planner checks those of tensors.
pub(crate) fn check_arithmetic(
    client: &Client,
    operator: &Erased,
    signature: &Signature,
    device: &Device,
) -> Result<(), ReduceError> {
    if is_software_with_spirv(client) {
        return Err(ReduceError::SoftwareSpirv {
            device: client.properties().identity.name.clone(),
        });
    }
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
