//! Selections on several devices: each selects from its shard, and each gets the candidates of all.

use cubecl::{server::Handle, std::tensor::TensorHandle};

use super::{
    Exchange, OFFSETS, ShardCall, Transport, check_collectives, check_health, exchange_and_merge,
    of_shard, prepared, slots_of,
};
use crate::{
    error::ReduceError,
    host::top_k::{
        launch::{ReadyTopK, Selecting},
        parts::{Candidates, Each, Finish, InParts, select_each},
        request::TopKRequest,
    },
};

/// A selection on the device of a shard.
type Selection<'a> = ShardCall<'a, TopKRequest<'a>>;

/// Runs each selection on its device. Gives the values and the positions of each.
pub(crate) fn run_selections(
    calls: &[Selection<'_>],
) -> Result<Vec<[TensorHandle; 2]>, ReduceError> {
    let each = calls.iter().map(|shard| {
        let &ShardCall { client, ref call, input, second: table, .. } = shard;
        Each { client, call, input, table }
    });
    select_each(&each.collect::<Vec<_>>(), |nth, error| of_shard(nth)(error))
}

/// Runs selections from parts of slices of `len` elements, exchanges what they give, and selects
/// from that on each device. `firsts` has the position of the first element of each part. Gives the
/// values and the positions on each device.
pub(crate) fn select_exchanged(
    mut calls: Vec<Selection<'_>>,
    whole: &InParts,
    firsts: &[u64],
    len: usize,
    transport: Transport,
) -> Result<Vec<[TensorHandle; 2]>, ReduceError> {
    let slices = whole.slices();
    let mut counts = Vec::new();
    for (nth, shard) in calls.iter().enumerate() {
        let (len, _) = shard.call.task.slices().map_err(of_shard(nth))?;
        counts.push(whole.k.min(len));
    }
    let count: usize = counts.iter().sum();
    let places = slices.saturating_mul(count);
    let exchanges_words = places > 0;
    if exchanges_words && transport == Transport::Collectives {
        check_collectives(&calls)?;
    }
    calls.iter_mut().for_each(|shard| shard.call.task.places = places);
    let prepared = prepared(&calls)?;

    // The values of all devices, and behind them their positions.
    let (element, position) = (whole.element.bytes(), whole.positions.bytes());
    let positions_at = places.saturating_mul(element).next_multiple_of(OFFSETS);
    let bytes = (positions_at + places * position).next_multiple_of(size_of::<u32>());
    let candidates = |gathered: Handle| Candidates {
        positions: gathered.clone().offset_start(positions_at as u64),
        values: gathered,
        count,
    };

    let mut launches = Vec::new();
    let mut exchanges = Vec::new();
    let mut merges = Vec::new();
    let mut results: Vec<Option<[TensorHandle; 2]>> = vec![None; calls.len()];
    let mut before = 0;
    for (nth, (((shard, prepared), &own), result)) in
        calls.iter().zip(&prepared).zip(&counts).zip(&mut results).enumerate()
    {
        let &ShardCall { client, device, input, second, .. } = shard;
        let merge = whole.merge(client, count, len, &Finish::Results).map_err(of_shard(nth))?;
        let outputs = merge.new_outputs(client);
        let stream = outputs[0].handle.stream.value;
        if !exchanges_words {
            *result = Some(outputs);
            continue;
        }
        let (start, own) = (before * slices, own * slices);
        let given =
            [(start * element, own * element), (positions_at + start * position, own * position)];
        let slots = slots_of(transport, given);
        let buffers = transport.buffers(client, stream, bytes, given).map_err(of_shard(nth))?;
        // By addition, the buffer of a device has a place for the candidates of all.
        let (start, behind) = match transport {
            Transport::Collectives => (start, positions_at),
            Transport::Host => (0, slots[1].own),
        };
        let bindings = [0, behind].map(|at| buffers.own.clone().offset_start(at as u64).binding());
        let selecting = Selecting { input, table: second, start, first: firsts[nth], tables: None };
        let launch = prepared.ready(client, selecting, bindings, Some(stream));
        launches.extend(launch.map_err(of_shard(nth))?);
        exchanges.push(Exchange { client, device, slots, buffers, inputs: shard.inputs() });
        merges.push(move |gathered: Handle| {
            *result =
                whole.finish(client, &merge, &candidates(gathered), Finish::Results, Vec::new())?;
            Ok(())
        });
        before += counts[nth];
    }
    // Through the host, no device waits for another, so a launch that fails hangs none of them.
    if transport == Transport::Host {
        check_health(&exchanges, false)?;
    }
    launches.into_iter().for_each(ReadyTopK::run);
    exchange_and_merge(&exchanges, merges, transport).map_err(ReduceError::after_launch)?;
    Ok(results.into_iter().map(|result| result.expect("each device has results")).collect())
}
