//! Reductions on several devices at once.

use std::{
    rc::Rc,
    sync::{Mutex, PoisonError},
};

use cubecl::{
    device::DeviceId,
    ir::{ElemType, UIntKind},
    prelude::*,
    server::{Handle, ReduceOperation, ServerCommunication},
    std::tensor::TensorHandle,
};

use super::{
    buffers::buffer_bytes,
    call::{Call, new_outputs},
    merge::{PartialWords, PreparedMerge},
    prepared::Prepared,
    request::Resolved,
    scratch::{self, SlotBuffers, SlotKey},
};
use crate::{PlanInUse, ReduceError, ShardsError};

/// The call on the device of one shard.
pub(crate) struct ShardCall<'a, R: Runtime> {
    pub(crate) client: &'a ComputeClient<R>,
    pub(crate) device: DeviceId,
    pub(crate) call: Call<'a>,
    pub(crate) input: &'a TensorHandle<R>,
    pub(crate) second: Option<&'a TensorHandle<R>>,
}

impl<R: Runtime> ShardCall<'_, R> {
    /// The plan that runs.
    pub(crate) fn plan(&self) -> Result<PlanInUse, ReduceError> {
        let second = self.second.map(|second| buffer_bytes(&second.handle));
        self.call.plan(self.client, [Some(buffer_bytes(&self.input.handle)), second])
    }
}

/// Runs each call on its device. Gives the results of each.
pub(crate) fn run_each<R: Runtime>(
    calls: Vec<ShardCall<'_, R>>,
) -> Result<Vec<Vec<TensorHandle<R>>>, ReduceError> {
    let prepared = prepared(&calls)?;
    let mut results = Vec::new();
    let mut launches = Vec::new();
    for (shard, prepared) in calls.into_iter().zip(&prepared) {
        let ShardCall { client, call, input, second, .. } = shard;
        let outputs = new_outputs(client, &prepared.resolved, call.request.operator.0);
        let bindings = outputs.iter().map(|output| output.handle.clone().binding()).collect();
        let stream = outputs.first().map(|output| output.handle.stream);
        launches.extend(call.ready(client, prepared, input, second, stream, bindings)?);
        results.push(outputs);
    }
    for launch in launches {
        launch.run();
    }
    Ok(results)
}

/// Runs calls for partial results, exchanges these, and merges them on each device in the order of
/// the calls. `whole` is the reduction of all shards together. Gives the results on each device.
pub(crate) fn run_exchanged<R: Runtime>(
    calls: Vec<ShardCall<'_, R>>,
    whole: Resolved,
) -> Result<Vec<Vec<TensorHandle<R>>>, ReduceError> {
    check_collectives(calls[0].client)?;
    let prepared = prepared(&calls)?;
    let slots = calls.len();
    let count = whole.problem.reduction_len();
    let mut launches = Vec::new();
    let mut exchanges = Vec::new();
    let mut merges = Vec::new();
    let mut results = Vec::new();
    for (nth, (shard, prepared)) in calls.into_iter().zip(&prepared).enumerate() {
        let ShardCall { client, device, call, input, second } = shard;
        let (operator, parameters) = (call.request.operator, call.parameters.clone());
        let signature = prepared.resolved.signature;
        let merge =
            PreparedMerge::new(client, operator, signature, &whole.shape, None, slots, count)?;
        let outputs = new_outputs(client, &whole, operator.0);
        results.push(outputs.clone());
        if merge.outputs() == 0 {
            continue;
        }
        let stream = outputs[0].handle.stream;
        let bytes = merge.words() * size_of::<u32>();
        let key = SlotKey { slots, own: nth, bytes };
        let SlotBuffers { own, gathered } = scratch::slot_buffers(client, stream, key)?;
        let slot = own.clone().offset_start((nth * bytes) as u64);
        let slot = slot.offset_end(((slots - 1 - nth) * bytes) as u64);
        let stream = Some(stream);
        let launch = call.ready(client, prepared, input, second, stream, vec![slot.binding()])?;
        launches.extend(launch);
        exchanges.push(Exchange { client, device, own, gathered: gathered.clone() });
        merges.push((client, merge, gathered, parameters, outputs));
    }
    for launch in launches {
        launch.run();
    }
    gather(exchanges);
    for (client, merge, gathered, parameters, outputs) in merges {
        let results: Vec<_> =
            outputs.iter().map(|output| output.handle.clone().binding()).collect();
        let words = vec![PartialWords { handle: gathered, slots }];
        merge.finish(client, words, &parameters, &results);
    }
    Ok(results)
}

fn prepared<R: Runtime>(calls: &[ShardCall<'_, R>]) -> Result<Vec<Rc<Prepared>>, ReduceError> {
    calls.iter().map(|shard| shard.call.prepared(shard.client)).collect()
}

/// What one device gives and gets.
struct Exchange<'a, R: Runtime> {
    client: &'a ComputeClient<R>,
    device: DeviceId,
    /// The words of all slots. Those of other devices are 0.
    own: Handle,
    /// Where the words of all devices come together.
    gathered: Handle,
}

/// Enqueues a gather of all slots to all devices. CubeCL 0.10 has no gather: each word is the sum
/// of one word and of zeros.
fn gather<R: Runtime>(exchanges: Vec<Exchange<'_, R>>) {
    /// Collectives of two threads over the same devices must be enqueued in the same order on each
    /// device. Otherwise devices wait for each other without end.
    static IN_ORDER: Mutex<()> = Mutex::new(());

    let mut devices: Vec<DeviceId> = exchanges.iter().map(|exchange| exchange.device).collect();
    devices.sort_unstable();
    let _in_order = IN_ORDER.lock().unwrap_or_else(PoisonError::into_inner);
    for Exchange { client, own, gathered, .. } in &exchanges {
        let word = ElemType::UInt(UIntKind::U32);
        let (own, gathered) = (own.clone(), gathered.clone());
        let mut client = (*client).clone();
        client.all_reduce(own, gathered, word, devices.clone(), ReduceOperation::Sum);
    }
    for Exchange { client, .. } in &exchanges {
        client.sync_collective();
    }
}

/// Checks that the devices of this backend can exchange data. CubeCL's own calls would panic on the
/// devices' threads if they cannot.
fn check_collectives<R: Runtime>(client: &ComputeClient<R>) -> Result<(), ShardsError> {
    if !<R::Server as ServerCommunication>::SERVER_COMM_ENABLED {
        return Err(ShardsError::NoCollectives { backend: R::name(client).to_owned() });
    }
    find_nccl()
}

#[cfg(feature = "nccl")]
fn find_nccl() -> Result<(), ShardsError> {
    use std::sync::OnceLock;

    static IS_PRESENT: OnceLock<bool> = OnceLock::new();

    // SAFETY: it opens the library that CubeCL would open. NCCL's initialisers have no
    // preconditions.
    match IS_PRESENT.get_or_init(|| unsafe { cudarc::nccl::sys::is_culib_present() }) {
        true => Ok(()),
        false => Err(ShardsError::NoNccl {
            reason: "the loader finds no libnccl.so; install NCCL, or name its folder in \
                     LD_LIBRARY_PATH"
                .into(),
        }),
    }
}

#[cfg(not(feature = "nccl"))]
fn find_nccl() -> Result<(), ShardsError> {
    Err(ShardsError::NoNccl {
        reason: "reduce-kernels was built without its feature `nccl`".into(),
    })
}
