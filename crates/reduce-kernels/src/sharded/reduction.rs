//! Reductions of sharded tensors.

use reduce_planner::{ShardSpec, reduced_axes};

use super::{Cut, Shard, Sharded};
use crate::{
    error::{Reason, ReduceError, ShardsError},
    host::{
        call::Call,
        reduce::request::{ReduceRequest, Wanted},
        shards::{ShardCall, Transport, run_each, run_exchanged},
    },
    input::sealed::Layout,
    operator::{Arity, Operator},
    plan_in_use::PlanInUse,
    reduction::{Outputs, Reduction, request},
};

impl<O: Operator> Reduction<'_, O, Sharded> {
    /// Launches the reduction on all devices, into new row-major tensors, and does not wait for
    /// them. The results are cut as the input is, or the same on all devices if the cut axis is
    /// reduced.
    ///
    /// A plan of [`with_plan`](Self::with_plan) is that of every shard.
    /// [`choose`](Self::choose) and [`plan`](Self::plan) answer for the whole tensor on the device
    /// of one client; [`plans`](Self::plans) gives the plans that run.
    ///
    /// The first reduction over the cut axis of a set of devices connects them and waits for a word
    /// of each, which takes some seconds. Threads that reduce over the same devices enqueue their
    /// exchanges one after the other. Other collectives over the same devices, such as CubeCL's
    /// copies between GPUs, must not be enqueued by other threads meanwhile: the devices would wait
    /// for each other for ever.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched on any device: all shards are checked first.
    /// If a device has failed, also in earlier work of this thread, or has no memory for an input,
    /// its error is returned before anything is exchanged. Partial results have been launched by
    /// then, which [`ReduceError::launched`] says. An error of a device stays until the caller
    /// waits for it, with `client.sync()` or [`confirm`](crate::confirm).
    ///
    /// Devices that do not connect within a minute are an error. No later call of the process
    /// exchanges over them: it returns an error at once.
    pub fn run_sharded(self) -> Result<Outputs<O, Sharded>, ReduceError> {
        self.run_over(Transport::Collectives)
    }

    /// Like [`run_sharded`](Self::run_sharded), for backends without collectives: the host reads
    /// partial results from each device and writes them to the others. It waits for all devices if
    /// the cut axis is reduced.
    ///
    /// # Errors
    ///
    /// Those of `run_sharded`, apart from those about collectives. A device that has failed or has
    /// no memory for an input is found before anything is launched. A device that refuses a launch,
    /// fails during the exchange, or has no memory for the partial results of all devices, is found
    /// after launches ([`ReduceError::launched`]). Waiting consumes the errors of all devices.
    pub fn run_sharded_through_host(self) -> Result<Outputs<O, Sharded>, ReduceError> {
        self.run_over(Transport::Host)
    }

    fn run_over(self, transport: Transport) -> Result<Outputs<O, Sharded>, ReduceError> {
        let whole = self.resolve()?;
        let is_reduced = self.is_reduced()?;
        let exchanges = self.exchanges(&is_reduced);
        let calls = self.calls(exchanges)?;
        let results = match exchanges {
            true => run_exchanged(calls, whole, transport)?,
            false => run_each(calls)?,
        };
        // The cut axis of the results: axes before it may be dropped.
        let cut = self.input.cut.as_ref().filter(|cut| !is_reduced[cut.axis]);
        let axis = cut.map(|cut| match self.options.keep_dims {
            true => cut.axis,
            false => is_reduced[..cut.axis].iter().filter(|&&reduced| !reduced).count(),
        });
        let mut results = self.input.joined(axis, results)?;
        Ok(O::Results::each(|_| results.next().expect("there is an output for each result")))
    }

    /// The plan of each shard, as [`plan`](Self::plan) gives it for one tensor.
    ///
    /// # Errors
    ///
    /// The errors of [`run_sharded`](Self::run_sharded), apart from those about collectives.
    pub fn plans(&self) -> Result<Vec<PlanInUse>, ReduceError> {
        let calls = self.calls(self.exchanges(&self.is_reduced()?))?;
        calls.iter().map(ShardCall::plan).collect()
    }

    fn is_reduced(&self) -> Result<Vec<bool>, ReduceError> {
        Ok(reduced_axes(self.input.shape.len(), self.options.axes.as_slice())?)
    }

    /// Whether partial results cross devices.
    fn exchanges(&self, is_reduced: &[bool]) -> bool {
        let is_cut = self.input.cut.as_ref().is_some_and(|cut| is_reduced[cut.axis]);
        is_cut && self.input.shards.len() > 1
    }

    /// The call on each device: for results, or for partial results to exchange.
    pub(super) fn calls(
        &self,
        exchanges: bool,
    ) -> Result<Vec<ShardCall<'_, ReduceRequest<'_>>>, ReduceError> {
        let Self { operator, input, second, ref options } = *self;
        let erased = O::DEFINITION.erased();
        let parameters = (O::PARAMETERS)(&operator)
            .map_err(|invalid| ReduceError::parameter(erased.name(), invalid))?;
        if let Some(second) = second {
            check_second(input, second)?;
        }
        let calls = input.shards.iter().enumerate().map(|(nth, shard)| {
            let second = second.map(|second| &second.shards[nth].tensor);
            let second_spec = second.map(Layout::spec).transpose()?;
            let spec = shard.tensor.spec()?;
            let mut request = request(erased, spec, second_spec, options, None)?;
            if let (true, Some(Cut { axis, starts })) = (exchanges, &input.cut) {
                let (axis, start) = (*axis, starts[nth]);
                let of = input.shape[axis];
                request.wanted = Wanted::Partials;
                request.become_shard(ShardSpec { axis, start, of });
            }
            let Shard { client, device, tensor } = shard;
            let parameters = parameters.clone();
            let (device_of_plan, apply_parameters) = (options.device, Vec::new());
            let call = Call {
                task: request,
                device: device_of_plan,
                plans: options.plans,
                parameters,
                apply_parameters,
            };
            Ok(ShardCall { client, device: device.to_id(), call, input: tensor, second })
        });
        calls.collect()
    }
}

/// Checks that each element of the second input lies on the device of the elements of the first
/// that it belongs to.
pub(super) fn check_second(first: &Sharded, second: &Sharded) -> Result<(), ReduceError> {
    let refuse = |reason: String| Err(ShardsError::Second { reason }.into());
    let devices = |tensor: &Sharded| -> Vec<_> {
        tensor.shards.iter().map(|shard| shard.device.to_id()).collect()
    };
    if devices(first) != devices(second) {
        let devices = |tensor: &Sharded| -> Vec<_> {
            tensor.shards.iter().map(|shard| shard.device.clone()).collect()
        };
        return refuse(format!("on {:?} and on {:?}", devices(first), devices(second)));
    }
    // The axes of the second input are the last ones of the first.
    let Some(before) = first.shape.len().checked_sub(second.shape.len()) else {
        let (first, second) = (first.shape.clone(), second.shape.clone());
        return Err(Reason::SecondShape { first, second }.into());
    };
    let own = |axis: usize| axis.checked_sub(before).filter(|&own| second.shape[own] != 1);
    match (&first.cut, &second.cut) {
        (None, None) => Ok(()),
        (None, Some(cut)) => refuse(format!("it is cut along axis {}, the first is not", cut.axis)),
        (Some(cut), None) => match own(cut.axis) {
            None => Ok(()),
            Some(own) => refuse(format!(
                "it is not cut along axis {own}, and the first is along axis {}",
                cut.axis
            )),
        },
        (Some(cut), Some(other)) => {
            if own(cut.axis) != Some(other.axis) || cut.starts != other.starts {
                return refuse(format!(
                    "it is cut along axis {} at {:?}, and the first along axis {} at {:?}",
                    other.axis, other.starts, cut.axis, cut.starts
                ));
            }
            Ok(())
        }
    }
}
