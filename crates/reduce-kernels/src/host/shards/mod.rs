//! Reductions, selections and scans on several devices at once.

use std::{
    rc::Rc,
    sync::{LazyLock, Mutex, PoisonError},
};

use cubecl::{
    device::DeviceId,
    future::block_on,
    ir::{ElemType, UIntKind},
    prelude::*,
    server::{Handle, ReduceOperation, ServerError},
    std::tensor::TensorHandle,
};

use connections::{Connections, LONGEST_CONNECTING, answers_within};

use super::{
    bound::Bound,
    call::{Call, PlanOf, PreparedOf, Task},
    reduce::{
        Inputs, PreparedReduction,
        launch::ReductionLaunch,
        merge::{PartialWords, PreparedMerge},
        new_outputs,
        request::{ReduceRequest, StatedReduction},
    },
    scratch::{self, SlotBuffers, SlotKey, Stream, unwritten},
};
use crate::{
    error::{ReduceError, ShardsError},
    input::buffer_bytes,
    plan_in_use::PlanInUse,
};

mod connections;
pub(crate) mod scan;
pub(crate) mod selection;

/// The call on the device of one shard.
pub(crate) struct ShardCall<'a, T> {
    pub(crate) client: &'a Client,
    pub(crate) device: DeviceId,
    pub(crate) call: Call<'a, T>,
    pub(crate) input: &'a TensorHandle,
    /// The second input of a reduction, or the positions that a selection writes.
    pub(crate) second: Option<&'a TensorHandle>,
}

/// How partial results cross devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The backend's collectives. The host does not wait.
    Collectives,
    /// The host reads and writes them.
    Host,
}

impl<T: Task> ShardCall<'_, T> {
    /// The plan that runs.
    pub(crate) fn plan(&self) -> Result<PlanInUse<PlanOf<T>>, ReduceError> {
        let second = self.second.map(|second| buffer_bytes(&second.handle));
        self.call.plan(self.client, &[Some(buffer_bytes(&self.input.handle)), second])
    }

    /// The buffers that its launch reads.
    fn inputs(&self) -> Vec<Handle> {
        let inputs = [Some(self.input), self.second].into_iter().flatten();
        inputs.map(|input| input.handle.clone()).collect()
    }
}

/// Says which shard an error is of.
fn of_shard<E: Into<ReduceError>>(nth: usize) -> impl FnOnce(E) -> ReduceError {
    move |error| ShardsError::Shard { nth, error: error.into() }.into()
}

/// Runs each call on its device. Gives the results of each.
pub(crate) fn run_each(
    calls: Vec<ShardCall<'_, ReduceRequest<'_>>>,
) -> Result<Vec<Vec<TensorHandle>>, ReduceError> {
    let prepared = prepared(&calls)?;
    let mut results = Vec::new();
    let mut launches = Vec::new();
    for (nth, (shard, prepared)) in calls.iter().zip(&prepared).enumerate() {
        let ShardCall { client, call, input, second, .. } = shard;
        let outputs = new_outputs(client, &prepared.resolved, call.task.operator);
        let bindings = outputs.iter().map(|output| output.handle.clone().binding()).collect();
        let stream = outputs.first().map(|output| output.handle.stream.value);
        let inputs = Inputs::bind(client, &prepared.resolved.problem, input, *second);
        let inputs = inputs.map_err(of_shard(nth))?;
        let launch = prepared.ready(client, &call.parameters, inputs, stream, bindings);
        launches.extend(launch.map_err(of_shard(nth))?);
        results.push(outputs);
    }
    launches.into_iter().for_each(ReductionLaunch::run);
    Ok(results)
}

/// Runs calls for partial results, exchanges these, and merges them on each device in the order of
/// the calls. `whole` is the reduction of all shards together. Gives the results on each device.
pub(crate) fn run_exchanged(
    calls: Vec<ShardCall<'_, ReduceRequest<'_>>>,
    whole: StatedReduction,
    transport: Transport,
) -> Result<Vec<Vec<TensorHandle>>, ReduceError> {
    let outputs = whole.problem.outputs();
    let reductions = Reductions::prepared(calls, outputs, transport)?;
    let (slots, count) = (reductions.calls.len(), whole.problem.reduction_len());
    let results = |nth: usize| {
        let ShardCall { client, call, .. } = &reductions.calls[nth];
        new_outputs(client, &whole, call.task.operator)
    };
    reductions.run(results, |nth, results| {
        let &ShardCall { client, ref call, .. } = &reductions.calls[nth];
        let (operator, signature) =
            (call.task.operator, reductions.prepared[nth].resolved.signature);
        let merge =
            PreparedMerge::new(client, operator, signature, &whole.shape, None, slots, count)?;
        let bindings = results.iter().map(|result| result.handle.clone().binding());
        let bound = merge.bind_results(client, bindings)?;
        let parameters = &call.parameters[..];
        Ok(move |words| {
            merge.finish(client, vec![PartialWords { words, slots }], parameters, &bound)
        })
    })
}

/// Reductions to partial results, one on each device.
struct Reductions<'a> {
    calls: Vec<ShardCall<'a, ReduceRequest<'a>>>,
    prepared: Vec<Rc<PreparedReduction>>,
    /// Outputs of each. Nothing is exchanged if there are none.
    outputs: usize,
    transport: Transport,
}

impl<'a> Reductions<'a> {
    fn prepared(
        calls: Vec<ShardCall<'a, ReduceRequest<'a>>>,
        outputs: usize,
        transport: Transport,
    ) -> Result<Self, ReduceError> {
        if outputs > 0 && transport == Transport::Collectives {
            check_collectives(&calls)?;
        }
        let prepared = prepared(&calls)?;
        Ok(Self { calls, prepared, outputs, transport })
    }

    /// Runs them, and gives each device the words of all. `new_results` makes the tensors of results
    /// on a device, and `then` what fills them from the words. Gives the results on each device.
    fn run<F: FnOnce(Bound<'static>) -> Result<(), ReduceError>>(
        &self,
        new_results: impl Fn(usize) -> Vec<TensorHandle>,
        mut then: impl FnMut(usize, &[TensorHandle]) -> Result<F, ReduceError>,
    ) -> Result<Vec<Vec<TensorHandle>>, ReduceError> {
        let Self { calls, prepared, outputs, transport } = self;
        let (transport, slots) = (*transport, calls.len());
        let mut launches = Vec::new();
        let mut exchanges = Vec::new();
        let mut finishes = Vec::new();
        let mut results = Vec::new();
        for (nth, (shard, prepared)) in calls.iter().zip(prepared).enumerate() {
            let own_results = new_results(nth);
            let stream = own_results[0].handle.stream.value;
            results.push(own_results);
            if *outputs == 0 {
                continue;
            }
            let &ShardCall { client, device, ref call, input, second } = shard;
            let words: usize = prepared
                .resolved
                .outputs(call.task.operator.0)
                .iter()
                .map(|&(_, count)| count)
                .sum();
            let bytes = words * size_of::<u32>();
            let given = [(nth * bytes, bytes), (0, 0)];
            let slots_of = slots_of(transport, given);
            let buffers = transport.buffers(client, stream, slots * bytes, given);
            let buffers = buffers.map_err(of_shard(nth))?;
            let own = slots_of[0].handle(&buffers.own).binding();
            let bound = Inputs::bind(client, &prepared.resolved.problem, input, second);
            let bound = bound.map_err(of_shard(nth))?;
            let launch = prepared.ready(client, &call.parameters, bound, Some(stream), vec![own]);
            launches.extend(launch.map_err(of_shard(nth))?);
            exchanges.push(Exchange {
                client,
                device,
                slots: slots_of,
                buffers,
                inputs: shard.inputs(),
            });
            // Launches that publish partial results take their numbers in the order in which they
            // run, so what comes behind the reduction is prepared behind it.
            let finish = then(nth, &results[nth]).map_err(of_shard(nth))?;
            finishes.push(move |gathered: Handle| {
                finish(Bound::own(gathered.binding(), slots * words, size_of::<u32>()))
            });
        }
        // Through the host, no device waits for another, so a launch that fails hangs none of them.
        if transport == Transport::Host {
            check_health(&exchanges, false)?;
        }
        launches.into_iter().for_each(ReductionLaunch::run);
        exchange_and_merge(&exchanges, finishes, transport).map_err(ReduceError::after_launch)?;
        Ok(results)
    }
}

/// Exchanges what has been launched, and merges what each device got.
fn exchange_and_merge(
    exchanges: &[Exchange<'_>],
    merges: Vec<impl FnOnce(Handle) -> Result<(), ReduceError>>,
    transport: Transport,
) -> Result<(), ReduceError> {
    let gathered: Vec<Handle> = match transport {
        Transport::Collectives => {
            check_health(exchanges, true)?;
            gather(exchanges);
            exchanges.iter().map(|exchange| exchange.buffers.gathered.clone()).collect()
        }
        Transport::Host => gather_through_host(exchanges)?,
    };
    let mut each = merges.into_iter().zip(gathered).enumerate();
    each.try_for_each(|(nth, (merge, gathered))| merge(gathered).map_err(of_shard(nth)))
}

fn prepared<T: Task>(calls: &[ShardCall<'_, T>]) -> Result<Vec<Rc<PreparedOf<T>>>, ReduceError> {
    let each = calls.iter().enumerate();
    each.map(|(nth, shard)| shard.call.prepared(shard.client).map_err(of_shard(nth))).collect()
}

/// What one device gives and gets.
struct Exchange<'a> {
    client: &'a Client,
    device: DeviceId,
    slots: [Slot; 2],
    buffers: SlotBuffers,
    /// The inputs of its launch.
    inputs: Vec<Handle>,
}

impl Exchange<'_> {
    /// Checks that the inputs of its launch exist, and once it is `launched`, that the device has
    /// not refused the launch. That is one round trip to the device's thread, which does not wait
    /// for the device.
    ///
    /// CubeCL keeps such a failure with the words that the launch should have written. It would
    /// refuse to exchange them, and the other devices would wait for them for ever.
    fn check_health(&self, launched: bool) -> Result<(), ReduceError> {
        let words = launched.then_some(&self.buffers.own);
        let asked: Vec<Handle> = self.inputs.iter().chain(words).cloned().collect();
        match scratch::first_lost(self.client, &asked) {
            None => Ok(()),
            Some((nth, error)) => Err(match self.inputs.get(nth) {
                Some(input) => unwritten(nth, input, &error),
                None => ReduceError::device(error),
            }),
        }
    }
}

/// Checks each device; see [`Exchange::check_health`]. Before collectives, this comes after the
/// launches, because a device may refuse one. A second question before the launches would double
/// the round trips of a call.
fn check_health(exchanges: &[Exchange<'_>], launched: bool) -> Result<(), ReduceError> {
    let mut each = exchanges.iter().enumerate();
    each.try_for_each(|(nth, exchange)| exchange.check_health(launched).map_err(of_shard(nth)))
}

/// Bytes that a device gives.
#[derive(Clone, Copy)]
struct Slot {
    /// Where they begin in its own buffer.
    own: usize,
    /// Where they begin among those of all devices.
    all: usize,
    bytes: usize,
}

impl Slot {
    /// The slot in its device's buffer.
    fn handle(self, own: &Handle) -> Handle {
        own.clone().offset_start(self.own as u64)
    }
}

/// Bytes between offsets at which every device binds a buffer: WebGPU's limit of the alignment of
/// storage buffers is 256 bytes, and no backend of CubeCL asks for more.
const OFFSETS: usize = 256;

/// The slots of a device that gives so many bytes, which begin there among those of all.
fn slots_of(transport: Transport, given: [(usize, usize); 2]) -> [Slot; 2] {
    let second = given[0].1.next_multiple_of(OFFSETS);
    let own = match transport {
        Transport::Collectives => given.map(|(start, _)| start),
        Transport::Host => [0, second],
    };
    core::array::from_fn(|nth| {
        let (all, bytes) = given[nth];
        Slot { own: own[nth], all, bytes }
    })
}

impl Transport {
    /// The buffers of an exchange of `bytes` in all, of which the device gives these.
    fn buffers(
        self,
        client: &Client,
        stream: Stream,
        bytes: usize,
        given: [(usize, usize); 2],
    ) -> Result<SlotBuffers, ReduceError> {
        match self {
            Self::Collectives => {
                scratch::slot_buffers(client, stream, SlotKey { bytes, own: given })
            }
            // The words of this device alone.
            Self::Host => {
                let [_, last] = slots_of(self, given);
                let own = scratch::allocated(client, (last.own + last.bytes).max(1))?;
                Ok(SlotBuffers { gathered: own.clone(), own })
            }
        }
    }
}

/// Enqueues a gather of all slots to all devices. CubeCL 0.11 has no gather: each word is the sum
/// of one word and of zeros.
fn gather(exchanges: &[Exchange<'_>]) {
    /// Collectives of two threads over the same devices must be enqueued in the same order on each
    /// device. Otherwise devices wait for each other for ever.
    static IN_ORDER: Mutex<()> = Mutex::new(());

    let devices = sorted(exchanges.iter().map(|exchange| exchange.device));
    let _in_order = IN_ORDER.lock().unwrap_or_else(PoisonError::into_inner);
    for Exchange { client, buffers: SlotBuffers { own, gathered }, .. } in exchanges {
        let word = ElemType::UInt(UIntKind::U32);
        let (own, gathered) = (own.clone(), gathered.clone());
        let mut client = (*client).clone();
        client.all_reduce(own, gathered, word, devices.clone(), ReduceOperation::Sum);
    }
    for Exchange { client, .. } in exchanges {
        client.sync_collective();
    }
}

/// A gather by the host, which waits for all devices. Gives the words of all slots on each device.
///
/// Reading the words of a launch that a device refused is an error, and a fault of a device shows
/// where it is waited for. All devices are waited for before the first error is returned: an error
/// that stays would be told to a later call.
fn gather_through_host(exchanges: &[Exchange<'_>]) -> Result<Vec<Handle>, ReduceError> {
    let wait = |exchange: &Exchange<'_>| block_on(exchange.client.sync());
    let waited: Vec<Result<(), ServerError>> = exchanges.iter().map(wait).collect();
    for (nth, waited) in waited.into_iter().enumerate() {
        waited.map_err(ReduceError::device).map_err(of_shard(nth))?;
    }
    let ends = exchanges.iter().flat_map(|exchange| exchange.slots);
    let end = ends.map(|slot| slot.all + slot.bytes).max().unwrap_or(0);
    let mut words = vec![0; end.next_multiple_of(size_of::<u32>())];
    for (nth, Exchange { client, slots, buffers, .. }) in exchanges.iter().enumerate() {
        let own = client.read_one(buffers.own.clone());
        let own = own.map_err(ReduceError::device).map_err(of_shard(nth))?;
        for Slot { own: from, all: to, bytes } in *slots {
            words[to..to + bytes].copy_from_slice(&own[from..from + bytes]);
        }
    }
    let each = exchanges.iter().enumerate();
    each.map(|(nth, exchange)| scratch::written(exchange.client, &words).map_err(of_shard(nth)))
        .collect()
}

fn sorted(devices: impl Iterator<Item = DeviceId>) -> Vec<DeviceId> {
    let mut devices: Vec<DeviceId> = devices.collect();
    devices.sort_unstable();
    devices
}

/// Checks that these devices can exchange data. CubeCL's own calls would panic on the devices'
/// threads if they cannot.
fn check_collectives<T>(calls: &[ShardCall<'_, T>]) -> Result<(), ReduceError> {
    static CONNECTIONS: LazyLock<Mutex<Connections>> = LazyLock::new(Mutex::default);

    if !calls[0].client.has_device_transport() {
        let backend = calls[0].client.name().to_owned();
        return Err(ShardsError::NoCollectives { backend }.into());
    }
    find_nccl()?;
    let devices = sorted(calls.iter().map(|shard| shard.device));
    let mut connections = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    connections.ensure(devices, || connect(calls))
}

/// Exchanges a known word of each device, and reads what arrived. CubeCL reports no error of NCCL's
/// initialisation, and a device that fails there leaves the others waiting for ever.
fn connect<T>(calls: &[ShardCall<'_, T>]) -> Result<(), ReduceError> {
    let slots = calls.len();
    let mut exchanges = Vec::new();
    for (nth, ShardCall { client, device, .. }) in calls.iter().enumerate() {
        let mut words = vec![0u32; slots];
        words[nth] = nth as u32 + 1;
        let given = [(nth * size_of::<u32>(), size_of::<u32>()), (0, 0)];
        let own = scratch::table(client, &words).map_err(of_shard(nth))?;
        let gathered = scratch::table(client, &vec![0; slots]).map_err(of_shard(nth))?;
        let buffers = SlotBuffers { own, gathered };
        let (device, slots) = (*device, slots_of(Transport::Collectives, given));
        exchanges.push(Exchange { client, device, slots, buffers, inputs: Vec::new() });
    }
    gather(&exchanges);
    let expected: Vec<u32> = (1..=slots as u32).collect();
    let found = answers_within(LONGEST_CONNECTING, exchanges.iter().map(gathered_words));
    let arrived = |found: &Option<Vec<u32>>| {
        found.as_ref().is_some_and(|words| words.get(..slots) == Some(&expected[..]))
    };
    let Some(nth) = found.iter().position(|found| !arrived(found)) else { return Ok(()) };
    let seconds = LONGEST_CONNECTING.as_secs();
    let reason = format!(
        "it did not connect the devices: nothing arrived at that of shard {nth} in {seconds} s"
    );
    Err(ReduceError::from(ShardsError::NoNccl { reason }).after_launch())
}

/// A question for the words that arrived at a device, which any thread can ask. They are empty if
/// the device fails.
fn gathered_words(exchange: &Exchange<'_>) -> impl FnOnce() -> Vec<u32> + use<> {
    let (mut client, gathered) = (exchange.client.clone(), exchange.buffers.gathered.clone());
    // SAFETY: it is the stream that the exchange was enqueued in. Another thread would otherwise
    // read in a stream of its own.
    unsafe { client.set_stream(gathered.stream) };
    move || client.read_one(gathered).map_or(Vec::new(), |bytes| u32::from_bytes(&bytes).to_vec())
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
