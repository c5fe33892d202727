//! Results and times of reductions of shards.

use reduce_kernels::{
    ElementType, Operator, ReduceError,
    cubecl::{self, prelude::*, std::tensor::TensorHandle},
    operator::{Arity, One},
    partials::{Partials, ShardSpec, merge_partials},
    reduce,
    sharded::Sharded,
    storage_type,
};
use reduce_programs::{
    MeasureError, microseconds_on_all, microseconds_per_call, rotated_inputs, wait,
};

use super::{CutCase, Mismatch, Part, ReadError, Values, Work, agree, fill, read_values};

/// Bytes of the inputs of one device that calls take in turn: several times its L2 cache.
const ROTATED: usize = 512 << 20;

/// Why shards have no results or no times.
#[derive(Debug, thiserror::Error)]
pub enum ShardsRunError {
    /// What the library refuses and what a device reports.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// A result that cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A result that is wrong.
    #[error(transparent)]
    Mismatch(#[from] Mismatch),
}

impl From<ReduceError> for ShardsRunError {
    fn from(error: ReduceError) -> Self {
        MeasureError::from(error).into()
    }
}

/// The shards of a tensor on one device, and those of the further tensors that calls take in turn.
type Parts = Vec<Vec<TensorHandle>>;

/// How many tensors calls take in turn if a device has `bytes` of each.
fn turns(bytes: u64) -> u32 {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    rotated_inputs(bytes, Some(ROTATED)) as u32
}

/// Tensors that are cut evenly over the devices, as many as calls take in turn. Waits until they
/// are filled.
///
/// # Errors
///
/// What a device reports, such as too little memory.
pub fn cut_over(devices: &[cubecl::Device], case: &CutCase) -> Result<Vec<Sharded>, MeasureError> {
    let clients: Vec<_> = devices.iter().map(cubecl::Device::client).collect();
    let rows = case.shards(devices.len());
    let cut = |nth: u32| {
        let shards = devices.iter().zip(&clients).zip(&rows).map(|((device, client), rows)| {
            let tensor = fill(client, &Part { case, rows: rows.clone(), nth })?;
            Ok((device.clone(), tensor))
        });
        Ok(Sharded::cut(0, shards.collect::<Result<Vec<_>, MeasureError>>()?)?)
    };
    let turns = turns(case.bytes(rows[0].len()));
    let tensors = (0..turns).map(cut).collect::<Result<Vec<_>, MeasureError>>()?;
    clients.iter().try_for_each(wait)?;
    Ok(tensors)
}

/// Tensors on one device, each in `shards` buffers, as many as calls take in turn. Waits until they
/// are filled.
///
/// # Errors
///
/// What the device reports, such as too little memory.
pub fn cut_on_one(client: &Client, case: &CutCase, shards: usize) -> Result<Parts, MeasureError> {
    let cut = |nth: u32| {
        let parts = case.shards(shards).into_iter();
        let parts = parts.map(|rows| Ok(fill(client, &Part { case, rows, nth })?));
        parts.collect::<Result<Vec<_>, MeasureError>>()
    };
    let tensors = (0..turns(case.bytes(case.rows))).map(cut).collect::<Result<Vec<_>, _>>()?;
    wait(client)?;
    Ok(tensors)
}

/// The results of a tensor on each device.
///
/// # Errors
///
/// What the library refuses and what a device reports.
pub fn results_on_all<O: Operator<Inputs = One>>(
    operator: O,
    input: &Sharded,
) -> Result<Vec<Vec<Values>>, ShardsRunError> {
    let results = O::Results::into_list(reduce(operator, input).over(0).run_sharded()?);
    let on_device = |nth: usize| {
        let values = results.iter().map(|result| {
            let shard = &result.shards()[nth];
            Ok(read_values(shard.client(), shard.tensor())?)
        });
        values.collect()
    };
    (0..input.shards().len()).map(on_device).collect()
}

/// The results of a tensor whose partial results travel through the host and are merged on the
/// first device. This is what those of a tensor that fits no single device are compared with.
///
/// # Errors
///
/// What the library refuses and what a device reports.
pub fn results_through_host<O: Operator<Inputs = One>>(
    operator: O,
    input: &Sharded,
) -> Result<Vec<Values>, ShardsRunError> {
    let first = input.shards()[0].client();
    let starts = input.starts().expect("the tensor is cut");
    let partials = input.shards().iter().zip(starts).map(|(shard, &start)| {
        let spec = ShardSpec { axis: 0, start, of: input.shape()[0] };
        let partials = reduce(operator, shard.tensor()).over(0);
        let partials = partials.partials_of_shard(shard.client(), spec)?;
        let words = partials.words();
        let bytes = shard.client().read_one(words.handle.clone()).map_err(ReadError::from)?;
        let shape = words.shape().to_vec();
        let handle = first.create_from_slice(&bytes);
        let words = TensorHandle::new_contiguous(shape, handle, storage_type(ElementType::U32));
        Ok(Partials::from_words(operator, partials.description().clone(), words)?)
    });
    let partials = partials.collect::<Result<Vec<_>, ShardsRunError>>()?;
    let results = O::Results::into_list(merge_partials(&partials).run(first)?);
    Ok(read_all(first, results)?)
}

/// The time of a call on all devices, and for each shard the time of an ordinary reduction of it
/// while the other devices idle. The latter are none if there is one device.
///
/// # Errors
///
/// What the library refuses and what a device reports.
pub fn time_on_all<O: Operator<Inputs = One>>(
    operator: O,
    inputs: &[Sharded],
    sample_seconds: f64,
) -> Result<(f64, Vec<f64>), MeasureError> {
    let shards = inputs[0].shards();
    let clients: Vec<_> = shards.iter().map(|shard| shard.client().clone()).collect();
    let mut turn = inputs.iter().cycle();
    let call = microseconds_on_all(&clients, sample_seconds, || {
        let input = turn.next().expect("there is an input");
        reduce(operator, input).over(0).run_sharded()?;
        Ok(())
    })?;
    if clients.len() == 1 {
        return Ok((call, Vec::new()));
    }
    let local = clients.iter().enumerate().map(|(nth, client)| {
        let mut turn = inputs.iter().cycle();
        microseconds_per_call(client, sample_seconds, || {
            let input = turn.next().expect("there is an input");
            reduce(operator, input.shards()[nth].tensor()).over(0).run(client)?;
            Ok(())
        })
    });
    Ok((call, local.collect::<Result<_, _>>()?))
}

/// The results of a tensor in one piece, and the time of a call. `wholes` are those that calls take
/// in turn, the first of which has the results.
///
/// # Errors
///
/// What the library refuses and what the device reports.
pub fn time_whole<O: Operator<Inputs = One>>(
    client: &Client,
    operator: O,
    wholes: &Parts,
    sample_seconds: f64,
) -> Result<(Vec<Values>, f64), ShardsRunError> {
    let call = |whole: &[TensorHandle]| reduce(operator, &whole[0]).over(0).run(client);
    let results = read_all(client, O::Results::into_list(call(&wholes[0])?))?;
    Ok((results, time_in_turn(client, wholes, sample_seconds, |whole| call(whole).map(drop))?))
}

/// The time of a call that reduces shards on one device to partial results and merges them. Checks
/// the results first.
///
/// # Errors
///
/// What the library refuses and what the device reports, and shards with other results than the
/// whole.
pub fn time_parts<O: Operator<Inputs = One>>(
    client: &Client,
    (work, operator): (Work, O),
    case: &CutCase,
    parts: &Parts,
    expected: &[Values],
    sample_seconds: f64,
) -> Result<f64, ShardsRunError> {
    let starts: Vec<usize> =
        case.shards(parts[0].len()).into_iter().map(|rows| rows.start).collect();
    let call = |parts: &[TensorHandle]| {
        let partials = parts.iter().zip(&starts).map(|(part, &start)| {
            let spec = ShardSpec { axis: 0, start, of: case.rows };
            reduce(operator, part).over(0).partials_of_shard(client, spec)
        });
        merge_partials(&partials.collect::<Result<Vec<_>, _>>()?).run(client)
    };
    agree(work, &read_all(client, O::Results::into_list(call(&parts[0])?))?, expected)?;
    Ok(time_in_turn(client, parts, sample_seconds, |parts| call(parts).map(drop))?)
}

fn read_all(client: &Client, results: Vec<TensorHandle>) -> Result<Vec<Values>, ReadError> {
    results.iter().map(|result| read_values(client, result)).collect()
}

fn time_in_turn(
    client: &Client,
    inputs: &Parts,
    sample_seconds: f64,
    call: impl Fn(&[TensorHandle]) -> Result<(), ReduceError>,
) -> Result<f64, MeasureError> {
    let mut turn = inputs.iter().cycle();
    microseconds_per_call(client, sample_seconds, || {
        Ok(call(turn.next().expect("there is an input"))?)
    })
}

#[cfg(all(test, any(feature = "wgpu", feature = "vulkan")))]
mod tests {
    use reduce_kernels::cubecl::{Device, wgpu::WgpuDevice};

    use super::*;
    use crate::with_work;

    /// One device has no exchange, but takes both other ways to the same results: through the host,
    /// and in parts.
    #[test]
    fn all_ways_give_the_same_results() {
        let client = Device::from(WgpuDevice::default()).client();
        for outputs in [None, Some(64)] {
            let case = CutCase { rows: 1000, outputs };
            let whole = cut_over(&[Default::default()], &case).unwrap();
            let parts = cut_on_one(&client, &case, 3).unwrap();
            for work in Work::ALL {
                let found = with_work!(work, operator => {
                    let found = results_on_all(operator, &whole[0]).unwrap();
                    let merged = results_through_host(operator, &whole[0]).unwrap();
                    agree(work, &merged, &found[0]).unwrap();
                    time_parts(&client, (work, operator), &case, &parts, &merged, 1e-6).unwrap();
                    found
                });
                let mut others = found[0].clone();
                others.iter_mut().for_each(|values| match values {
                    Values::Floats(floats) => floats[0] *= 1.01,
                    Values::Positions(positions) => positions[0] += 1,
                });
                assert!(agree(work, &found[0], &others).is_err(), "{work}");
                let peak = case.peak();
                if let (Work::Argmax, Values::Positions(positions)) = (work, &found[0][0]) {
                    assert!(positions.iter().all(|&at| peak.contains(&(at as usize))));
                }
            }
        }
    }
}
