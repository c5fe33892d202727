//! One call of any kind of task, without the types of its operator and of its function.
//!
//! A kind of task is a reduction, an application of its results, a list, an application of a list's
//! results, a selection, a reduction of segments, a scan, or a list of scans. It says how it is
//! stated as a problem, and which launches a plan of the problem becomes. Everything else is here,
//! once for all kinds: the device that is planned for, the plan that runs, and what a thread
//! remembers.

use std::rc::Rc;

use cubecl::prelude::*;
use reduce_planner::{Choice, Device, PlanError, Planned};

use super::{
    cache::{self, Asked, Remembered},
    launched::Launches,
    settings::{self, PlanStore},
};
#[cfg(feature = "serde")]
use crate::recorded::RecordedCall;
use crate::{
    error::ReduceError,
    plan_in_use::{PlanInUse, PlanSource},
};

/// A kind of task, as one call asks for it.
pub(crate) trait Task: Asked<Request: Remembered<Prepared: Launches>> {
    /// The task with its axes, types and strides checked.
    type Stated;
    /// The problem that is planned.
    type Problem: Planned;
    /// The numbers of the launches that a plan becomes.
    type Launch;

    /// Checks axes, types and strides.
    fn state(&self) -> Result<Self::Stated, ReduceError>;

    /// The problem of a task that was stated.
    fn problem(stated: &Self::Stated) -> &Self::Problem;

    /// The plan that the caller gave.
    fn given(&self) -> Option<&PlanOf<Self>>;

    /// Checks the types that kernels compute with.
    fn check_types(
        &self,
        client: &Client,
        device: &Device,
        stated: &Self::Stated,
    ) -> Result<(), ReduceError>;

    /// Checks that buffers of these many bytes hold what is read; `None` where there is no buffer.
    /// The buffers have the order in which the kind of task lists its tensors.
    fn check_bytes(&self, stated: &Self::Stated, bytes: &[Option<u64>]) -> Result<(), ReduceError>;

    /// Checks that the device has buffers as large as the outputs that the caller does not supply.
    fn check_outputs(&self, client: &Client, stated: &Self::Stated) -> Result<(), ReduceError>;

    /// Whether there is nothing to launch.
    fn is_empty(stated: &Self::Stated) -> bool;

    /// The launches of a plan, which has been checked.
    ///
    /// # Errors
    ///
    /// A buffer that the launches need is larger than the device's largest.
    fn launch(
        &self,
        client: &Client,
        device: &Device,
        stated: &Self::Stated,
        plan: &PlanOf<Self>,
    ) -> Result<Self::Launch, ReduceError>;

    /// What is remembered for the task. `launch` is `None` if the task is empty.
    fn prepare(
        &self,
        client: &Client,
        device: &Device,
        stated: Self::Stated,
        launch: Option<Self::Launch>,
    ) -> Result<PreparedOf<Self>, ReduceError>;

    /// Chooses a plan for a problem on the device of a client, where this kind of task keeps plans
    /// that serve other problems too.
    fn chosen(
        _client: usize,
        problem: &Self::Problem,
        device: &Device,
    ) -> Result<PlanOf<Self>, PlanError> {
        Ok(problem.choose(device)?.plan)
    }

    /// Looks up the stored plan of the task with `find`.
    fn stored(
        &self,
        stated: &Self::Stated,
        _device: &Device,
        find: impl Fn(&Self::Problem) -> Option<PlanOf<Self>>,
    ) -> Option<PlanOf<Self>> {
        find(Self::problem(stated))
    }

    /// The task as data, if it is one for which the process uses stored plans.
    #[cfg(feature = "serde")]
    fn recorded(&self) -> Option<RecordedCall>;
}

/// The plans of a kind of task.
pub(crate) type PlanOf<T> = <<T as Task>::Problem as Planned>::Plan;

/// The choice of a plan for a kind of task.
pub(crate) type ChoiceOf<T> = Choice<PlanOf<T>>;

/// What is prepared for a kind of task.
pub(crate) type PreparedOf<T> = <<T as Asked>::Request as Remembered>::Prepared;

/// A task and the device to plan for.
pub(crate) struct Call<'a, T> {
    pub(crate) task: T,
    /// The device to plan for; `None` means that of the client.
    pub(crate) device: Option<&'a Device>,
    /// The store to take the plan from.
    pub(crate) plans: Option<&'a PlanStore>,
    /// The operator's parameters.
    pub(crate) parameters: Vec<f64>,
    /// Those of the function that results are applied with; none if they are not applied.
    pub(crate) apply_parameters: Vec<f64>,
}

impl<T: Task> Call<'_, T> {
    /// The task as it was stated.
    pub(crate) fn stated(&self) -> Result<T::Stated, ReduceError> {
        self.task.state()
    }

    /// Chooses a plan for tensors whose buffers have these many bytes; `None` where there is no
    /// buffer. A plan that the caller gave is ignored.
    pub(crate) fn choose(
        &self,
        client: &Client,
        bytes: &[Option<u64>],
    ) -> Result<ChoiceOf<T>, ReduceError> {
        let stated = self.task.state()?;
        self.task.check_bytes(&stated, bytes)?;
        let of_client = cache::device(client);
        let device = self.device.unwrap_or(&of_client);
        self.task.check_types(client, device, &stated)?;
        Ok(T::problem(&stated).choose(device)?)
    }

    /// The plan that the call would run, for tensors whose buffers have these many bytes; `None`
    /// where there is no buffer.
    pub(crate) fn plan(
        &self,
        client: &Client,
        bytes: &[Option<u64>],
    ) -> Result<PlanInUse<PlanOf<T>>, ReduceError> {
        let stated = self.task.state()?;
        self.task.check_bytes(&stated, bytes)?;
        let of_client = cache::device(client);
        let device = self.device.unwrap_or(&of_client);
        let stored = |problem: &T::Problem| self.stored(client, device, problem);
        Ok(planned(&self.task, client, device, self.device.is_none(), &stated, stored)?.0)
    }

    /// Prepares the call for tensors whose buffers have these many bytes; `None` where there is no
    /// buffer.
    pub(crate) fn check(&self, client: &Client, bytes: &[Option<u64>]) -> Result<(), ReduceError> {
        self.prepared(client)?;
        self.task.check_bytes(&self.task.state()?, bytes)
    }

    /// Whether the call has a kernel that was not launched before.
    pub(crate) fn has_new_kernels(&self, client: &Client) -> Result<bool, ReduceError> {
        Ok(self.prepared(client)?.has_new_kernels(client))
    }

    /// What is prepared for the task. The thread remembers it, unless the call has a device or a
    /// store of its own.
    pub(crate) fn prepared(&self, client: &Client) -> Result<Rc<PreparedOf<T>>, ReduceError> {
        let new = |device: &Device| {
            let stored = |problem: &T::Problem| self.stored(client, device, problem);
            prepare(&self.task, client, device, self.device.is_none(), stored)
        };
        match (self.device, self.plans) {
            (Some(device), _) => Ok(Rc::new(new(device)?)),
            (None, Some(_)) => Ok(Rc::new(new(&cache::device(client))?)),
            (None, None) => {
                let identity = cache::identity(client);
                cache::prepared(identity, &self.task, || {
                    let prepared = new(&cache::device(client))?;
                    #[cfg(feature = "serde")]
                    settings::record(identity, || self.task.recorded());
                    Ok(prepared)
                })
            }
        }
    }

    /// The plan for a problem in the call's store, or else in that of the client's device. For
    /// another device, only the call's own store counts.
    fn stored(&self, client: &Client, device: &Device, problem: &T::Problem) -> Option<PlanOf<T>> {
        let own = self.plans.and_then(|plans| plans.plan_for(problem, device));
        own.or_else(|| match self.device {
            Some(_) => None,
            None => settings::stored_plan(cache::identity(client), problem, device),
        })
    }
}

/// States, plans and prepares a task. `stored` looks up the plan of a problem that was measured and
/// may run on the device, which may be that `of_client`.
pub(super) fn prepare<T: Task>(
    task: &T,
    client: &Client,
    device: &Device,
    of_client: bool,
    stored: impl Fn(&T::Problem) -> Option<PlanOf<T>>,
) -> Result<PreparedOf<T>, ReduceError> {
    let stated = task.state()?;
    task.check_outputs(client, &stated)?;
    let launch = match T::is_empty(&stated) {
        true => None,
        false => Some(planned(task, client, device, of_client, &stated, stored)?.1),
    };
    task.prepare(client, device, stated, launch)
}

/// The plan that a task runs, and its launches: the plan that the caller gave, or else the stored
/// one if it can be launched, or else the planner's choice.
fn planned<T: Task>(
    task: &T,
    client: &Client,
    device: &Device,
    of_client: bool,
    stated: &T::Stated,
    stored: impl Fn(&T::Problem) -> Option<PlanOf<T>>,
) -> Result<(PlanInUse<PlanOf<T>>, T::Launch), ReduceError> {
    task.check_types(client, device, stated)?;
    let problem = T::problem(stated);
    let launch = |plan: &PlanOf<T>| task.launch(client, device, stated, plan);
    if let Some(plan) = task.given() {
        problem.check(plan, device)?;
        let launch = launch(plan)?;
        return Ok((PlanInUse::new(plan.clone(), PlanSource::Given), launch));
    }
    if let Some(plan) = task.stored(stated, device, stored) {
        // Partial results may take more memory than one buffer has.
        if let Ok(launch) = launch(&plan) {
            return Ok((PlanInUse::new(plan, PlanSource::Stored), launch));
        }
    }
    let plan = match of_client {
        true => T::chosen(cache::identity(client), problem, device)?,
        false => problem.choose(device)?.plan,
    };
    let launch = launch(&plan)?;
    Ok((PlanInUse::new(plan, PlanSource::Chosen), launch))
}
