//! Scans on several devices: each reduces its shard, and scans it behind those before.

use std::ops::Range;

use cubecl::std::tensor::TensorHandle;

use super::{Reductions, ShardCall, Transport, of_shard, prepared};
use crate::{
    error::ReduceError,
    host::{
        reduce::request::ReduceRequest,
        scan::{launch::EarlierPartials, request::ScanRequest},
    },
};

/// Runs each scan on its device. Gives the results of each.
pub(crate) fn run_scans(
    calls: &[ShardCall<'_, ScanRequest<'_>>],
) -> Result<Vec<Vec<TensorHandle>>, ReduceError> {
    let prepared = prepared(calls)?;
    let mut results = Vec::new();
    let mut launches = Vec::new();
    for (nth, (shard, prepared)) in calls.iter().zip(&prepared).enumerate() {
        let outputs = prepared.new_outputs(shard.client);
        let parameters = &shard.call.parameters;
        let launch = prepared.ready_into(shard.client, parameters, shard.input, &outputs);
        launches.extend(launch.map_err(of_shard(nth))?);
        results.push(outputs);
    }
    launches.into_iter().for_each(|launch| launch.run(None));
    Ok(results)
}

/// What comes before a shard: the shards, and the elements of each row that they have.
pub(crate) struct BeforeShard {
    pub(crate) shards: Range<usize>,
    pub(crate) elements: usize,
}

/// Runs `reductions` of all shards to partial results for `outputs` rows, exchanges these, and scans
/// each shard behind those that come before it. Gives the results on each device.
pub(crate) fn scan_exchanged(
    reductions: Vec<ShardCall<'_, ReduceRequest<'_>>>,
    scans: &[ShardCall<'_, ScanRequest<'_>>],
    before: &[BeforeShard],
    outputs: usize,
    transport: Transport,
) -> Result<Vec<Vec<TensorHandle>>, ReduceError> {
    let reductions = Reductions::prepared(reductions, outputs, transport)?;
    let prepared = prepared(scans)?;
    let new_results = |nth: usize| prepared[nth].new_outputs(scans[nth].client);
    reductions.run(new_results, |nth, results| {
        let &ShardCall { client, ref call, input, .. } = &scans[nth];
        let launch = prepared[nth].ready_into(client, &call.parameters, input, results)?;
        let BeforeShard { shards, elements } = &before[nth];
        Ok(move |words| {
            let earlier = EarlierPartials { words, slots: shards.clone(), elements: *elements };
            launch.into_iter().for_each(|launch| launch.run(Some(&earlier)));
            Ok(())
        })
    })
}
