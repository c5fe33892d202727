//! Recorded graphs: every kind of call gives the bits of a call that is not recorded in each
//! replay, with other data in the same buffers and with other calls of the stream in between.

use std::sync::LazyLock;

use cubecl::{bytes::Bytes, prelude::*, server::Handle, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ArgMax, MeanVar, Operator, ReduceError, Sum, cubecl,
    list::{reduce_list, scan_list},
    normalize::{LayerNorm, Softmax},
    operator::{Arity, One},
    pairs::{SumAndDot, reduce_pair},
    planner::{AppliedKind, PlanError, ScheduleKind, force_applied, row_major_strides},
    quantiles::median,
    reduce,
    scan::{cummax, cumsum},
    testing::widest_plans,
    top_k::{Selected, top_k},
};

use crate::run::{POISON, capable_device, tensor};

/// Replays of a graph: as many as the software adapter takes seconds for.
fn replays(client: &Client) -> u64 {
    if client.name() == "cuda" { 1000 } else { 12 }
}

/// Elements of a tensor, other ones for each seed below [`SEEDS`].
fn data(len: usize, seed: u64) -> &'static [f32] {
    static DRAWN: LazyLock<Vec<f32>> = LazyLock::new(|| {
        let mut rng = StdRng::seed_from_u64(7);
        (0..LONGEST + SEEDS).map(|_| rng.random_range(-3.0..5.0)).collect()
    });
    &DRAWN[seed as usize..][..len]
}

/// Elements of the longest tensor.
const LONGEST: usize = 1_000_003;

/// Seeds of [`data`].
const SEEDS: usize = 4096;

/// A row-major tensor of this shape.
fn input(client: &Client, shape: &[usize]) -> TensorHandle {
    tensor(client, data(shape.iter().product(), 0), shape, &row_major_strides(shape))
}

fn bytes(client: &Client, results: &[Handle]) -> Vec<Vec<u8>> {
    let read = |handle: &Handle| client.read_one(handle.clone()).expect("the device answers");
    results.iter().map(|handle| read(handle).to_vec()).collect()
}

/// Records a call on `inputs` and replays it. `call` enqueues the call and returns its results.
/// Returns whether the client records graphs.
fn check(
    client: &Client,
    inputs: &[TensorHandle],
    words: &str,
    mut call: impl FnMut() -> Vec<TensorHandle>,
) -> bool {
    let mut call = || -> Vec<Handle> { call().into_iter().map(|result| result.handle).collect() };
    if let Err(error) = client.graph_prepare() {
        println!("{}: not run, {error}", client.name());
        return false;
    }
    // Compiles, and leaves memory for the results of the recorded call.
    drop(call());
    client.start_capture().expect("a capture begins");
    let results = call();
    let graph = client.stop_capture().unwrap_or_else(|error| panic!("{words}: {error}"));
    for replay in 0..replays(client) {
        for (nth, input) in inputs.iter().enumerate() {
            let len = input.shape().iter().product();
            let values = data(len, 2 * replay + nth as u64 + 1);
            client.write(&input.handle, Bytes::from_elems(values.to_vec()));
        }
        for result in &results {
            let poison = vec![POISON; result.size_in_used() as usize];
            client.write(result, Bytes::from_elems(poison));
        }
        // SAFETY: all buffers live on, and only this thread's stream uses them.
        unsafe { graph.replay() }.expect("a replay starts");
        let found = bytes(client, &results);
        assert!(found == bytes(client, &call()), "replay {replay} of {words}");
    }
    true
}

/// Every schedule, over rows, over columns, and of a whole tensor.
pub(crate) fn schedules(client: &Client) {
    fn of<O: Operator<Inputs = One>>(client: &Client, operator: O) -> Vec<ScheduleKind> {
        let mut kinds = Vec::new();
        for (shape, axis) in [(&[3usize, 5000][..], 1usize), (&[700, 40], 0), (&[40_000], 0)] {
            let input = input(client, shape);
            let reduction = || reduce(operator, &input).over([axis]);
            let device = capable_device(client);
            for plan in widest_plans(&reduction().problem().unwrap(), &device) {
                let ran = check(client, std::slice::from_ref(&input), &plan.to_string(), || {
                    let results = reduction().with_plan(plan).plan_for(&device).run(client);
                    O::Results::into_list(results.unwrap())
                });
                kinds.extend(ran.then_some(plan.schedule.kind()));
            }
        }
        kinds
    }
    for kinds in [of(client, Sum), of(client, MeanVar::default()), of(client, ArgMax)] {
        let every = ScheduleKind::ALL.iter().all(|kind| kinds.contains(kind));
        assert!(every || kinds.is_empty(), "{kinds:?}");
    }
}

/// Results applied to the elements by every kind of plan, waiting cubes among them.
pub(crate) fn applied(client: &Client) {
    let mut kinds = Vec::new();
    let device = capable_device(client);
    for (shape, axis) in [([3usize, 20_000], 1usize), ([900, 24], 0)] {
        let input = input(client, &shape);
        for kind in AppliedKind::ALL {
            let softmax = || Softmax.of(&input, axis);
            let (problem, reduction) = softmax().problems().unwrap();
            let plan = match force_applied(kind, &problem, &reduction, &device) {
                Ok(plan) => plan,
                Err(PlanError::NoAppliedPlan { .. }) => continue,
                Err(other) => panic!("{other}"),
            };
            let ran = check(client, std::slice::from_ref(&input), &plan.to_string(), || {
                vec![softmax().with_plan(plan).plan_for(&device).run(client).unwrap()]
            });
            kinds.extend(ran.then_some(kind));
        }
    }
    assert!(kinds.is_empty() || kinds.contains(&AppliedKind::Separately), "{kinds:?}");
    let waits = kinds.contains(&AppliedKind::HeldByCubes) || !device.forward_progress;
    assert!(kinds.is_empty() || waits, "{kinds:?}");
}

/// Lists, two inputs, and calls that reduce and apply as chosen.
pub(crate) fn every_other_call(client: &Client) {
    let list = [input(client, &[20_001]), input(client, &[60, 50]), input(client, &[7])];
    check(client, &list, "a list", || {
        let results = reduce_list(Sum, &list).run(client).unwrap();
        vec![results.each, results.all]
    });
    check(client, &list, "scans of a list", || scan_list(Sum, &list).over(0).run(client).unwrap());
    let pair = [input(client, &[3, 20_000]), input(client, &[3, 20_000])];
    check(client, &pair, "two inputs", || {
        let sums = reduce_pair(SumAndDot, &pair[0], &pair[1]).over([1]).run(client).unwrap();
        <SumAndDot as Operator>::Results::into_list(sums)
    });
    let norm = input(client, &[5, 3000]);
    check(client, std::slice::from_ref(&norm), "layer_norm as chosen", || {
        vec![LayerNorm { eps: 1e-5 }.of(&norm, 1).run(client).unwrap()]
    });
    let rows = input(client, &[2, 60_000]);
    check(client, std::slice::from_ref(&rows), "a scan by several cubes", || {
        vec![cumsum(client, &rows, 1).unwrap(), cummax(client, &rows, 0).unwrap()]
    });
    let long = input(client, &[2, 300_000]);
    check(client, std::slice::from_ref(&long), "a selection by several cubes", || {
        let Selected { values, positions } = top_k(client, &long, 1, 10).unwrap();
        vec![values, positions]
    });
    check(client, std::slice::from_ref(&norm), "a selection by merged runs", || {
        let Selected { values, positions } = top_k(client, &norm, 1, 3000).unwrap();
        vec![values, positions, median(client, &norm, 1).unwrap()]
    });
}

/// A call that was not made before a capture is recorded nevertheless, or the capture fails by
/// name: no graph comes into being that gives other results.
pub(crate) fn without_a_first_call(client: &Client) {
    let input = input(client, &[1_000_003]);
    if client.graph_prepare().is_err() {
        return;
    }
    client.start_capture().expect("a capture begins");
    let result: Result<TensorHandle, ReduceError> = reduce(Sum, &input).run(client);
    match (result, client.stop_capture()) {
        (Ok(sum), Ok(graph)) => {
            // SAFETY: all buffers live on, and only this thread's stream uses them.
            unsafe { graph.replay() }.expect("a replay starts");
            let again = reduce(Sum, &input).run(client).unwrap();
            assert!(bytes(client, &[sum.handle]) == bytes(client, &[again.handle]));
        }
        (Err(error), _) => assert!(error.is_out_of_memory(), "{error}"),
        (Ok(_), Err(error)) => println!("{}: {error}", client.name()),
    }
}
