//! Kernels that are compiled before they are needed: nothing runs meanwhile, and what runs
//! afterwards compiles nothing.
//!
//! An executable of its own with one test for each backend: while calls are warmed up, CubeCL drops
//! every launch of the process.
#![cfg(any(feature = "cuda-llvm", feature = "wgpu", feature = "vulkan"))]

#[path = "suite/backend.rs"]
mod backend;

use std::{
    sync::{Mutex, PoisonError},
    thread,
};

use reduce_kernels::{
    ArgMax, ElementType, ErrorKind, Input, Mean, MeanVar, NormL2, ReduceError, Reduction, Std, Sum,
    TensorDescription, Var,
    cubecl::{launched::LaunchedKernels, prelude::*, std::tensor::TensorHandle},
    device_of,
    list::{ClippedToNorm, largest_of_list, reduce_list, scan_list},
    normalize::{AppliedReduction, LayerNorm, Softmax},
    operator::{Apply, One, Operator},
    operators::NormL1,
    pairs::{CosineSimilarity, reduce_pair},
    partials::{ShardSpec, merge_partials},
    planner::SegmentsMerge,
    plans::{Numerics, RecordedCall},
    reduce,
    scan::scan,
    storage_type,
    top_k::{largest, smallest, top_k},
    warm_up::{WarmUp, warm_up, would_compile},
};

const VAR: Var = Var { correction: 1.0 };

fn tensor(client: &Client, data: &[f32], shape: &[usize]) -> TensorHandle {
    let handle = client.create_from_slice(f32::as_bytes(data));
    TensorHandle::new_contiguous(shape.to_vec(), handle, storage_type(ElementType::F32))
}

fn read(client: &Client, tensor: &TensorHandle) -> Vec<f32> {
    let bytes = client.read_one(tensor.handle.clone()).expect("the device answers");
    f32::from_bytes(&bytes).to_vec()
}

/// Calls of every kind, with descriptions: their kernels are the ones that the same calls launch
/// with tensors, and warming up leaves no tensor changed.
fn calls_of_every_kind(client: &Client) {
    let described = TensorDescription::row_major(ElementType::F32, [37, 1000]);
    let row = TensorDescription::row_major(ElementType::F32, [1000]);
    let cosine = CosineSimilarity { eps: 1e-8 };
    let sums = reduce(Sum, &described).over(1);
    let variances = reduce_list(VAR, [&described, &row]);
    let similar = reduce_pair(cosine, &described, &row).over(1);
    let softmax = Softmax.of(&described, 1);
    let best = largest(5, &described).over(1);
    let numbers = TensorDescription::row_major(ElementType::U32, [37, 1000]);
    let numbered = largest(5, &described).over(1).with_positions(&numbers);
    let calls: [&dyn WarmUp; 6] = [&sums, &variances, &similar, &softmax, &best, &numbered];

    let issued = LaunchedKernels::new();
    let mut seen = Vec::new();
    warm_up(client, &calls, |progress| seen.push((progress.done, progress.of))).unwrap();
    let issued = issued.finish();
    assert_eq!(seen, [(1, 6), (2, 6), (3, 6), (4, 6), (5, 6), (6, 6)]);
    assert!(issued.len() >= 6, "{}", issued.len());

    let data: Vec<f32> = (0..37_000).map(|i| (i % 13) as f32 - 6.0).collect();
    let x = tensor(client, &data, &[37, 1000]);
    let y = tensor(client, &data[..1000], &[1000]);
    let launched = LaunchedKernels::new();
    let sums = reduce(Sum, &x).over(1).run(client).unwrap();
    reduce_list(VAR, [&x, &y]).run(client).unwrap();
    reduce_pair(cosine, &x, &y).over(1).run(client).unwrap();
    Softmax.of(&x, 1).run(client).unwrap();
    top_k(client, &x, 1, 5).unwrap();
    let places: Vec<u32> = (0..37_000).collect();
    let handle = client.create_from_slice(u32::as_bytes(&places));
    let places = TensorHandle::new_contiguous([37, 1000], handle, storage_type(ElementType::U32));
    largest(5, &x).over(1).with_positions(&places).run(client).unwrap();
    let launched = launched.finish();
    assert!(
        launched.is_subset(&issued),
        "{} kernels are new",
        launched.difference(&issued).count()
    );

    let expected: Vec<f32> = data.chunks(1000).map(|row| row.iter().sum()).collect();
    assert_eq!(read(client, &sums)[..37], expected);
    // Nothing runs: not even into tensors that exist.
    warm_up(client, &[&reduce(Sum, &x).over(1)], |_| ()).unwrap();
    assert_eq!(read(client, &x)[..37_000], data);
    assert_eq!(read(client, &sums)[..37], expected);
}

/// What launches keep between calls, such as the words of partial results, is in order after calls
/// of them were warmed up.
fn splits_run_afterwards(client: &Client) {
    const LEN: usize = 1 << 22;
    let described = TensorDescription::row_major(ElementType::F32, [1, LEN]);
    warm_up(client, &[&reduce(Sum, &described).over(1), &reduce(VAR, &described).over(1)], |_| ())
        .unwrap();
    let x = tensor(client, &vec![0.25; LEN], &[1, LEN]);
    for _ in 0..3 {
        let sum = reduce(Sum, &x).over(1).run(client).unwrap();
        assert_eq!(read(client, &sum)[0], (LEN / 4) as f32);
        let var = reduce(VAR, &x).over(1).run(client).unwrap();
        assert_eq!(read(client, &var)[0], 0.0);
    }
}

/// One batch stands for all where bits do not depend on the batch: the kernels of two batches, one
/// of them of a single row, are those of every other.
fn batches_share_kernels(client: &Client) {
    let numerics = Numerics::BatchInvariant;
    let described = [1, 2].map(|rows| TensorDescription::row_major(ElementType::F32, [rows, 1000]));
    let sums = described.each_ref().map(|x| reduce(Sum, x).over(1).numerics(numerics));
    let softmax = described.each_ref().map(|x| Softmax.of(x, 1).numerics(numerics));
    let issued = LaunchedKernels::new();
    warm_up(client, &[&sums[0], &sums[1], &softmax[0], &softmax[1]], |_| ()).unwrap();
    let issued = issued.finish();
    let launched = LaunchedKernels::new();
    for rows in [1usize, 3, 64, 131] {
        let x = tensor(client, &vec![0.5; rows * 1000], &[rows, 1000]);
        reduce(Sum, &x).over(1).numerics(numerics).run(client).unwrap();
        Softmax.of(&x, 1).numerics(numerics).run(client).unwrap();
    }
    let launched = launched.finish();
    assert!(
        launched.is_subset(&issued),
        "{} kernels are new",
        launched.difference(&issued).count()
    );
}

/// Kernels that these calls take together.
fn kernels_of<W: WarmUp>(client: &Client, calls: impl Iterator<Item = W>) -> usize {
    let calls: Vec<W> = calls.collect();
    let calls: Vec<&dyn WarmUp> = calls.iter().map(|call| call as _).collect();
    let issued = LaunchedKernels::new();
    warm_up(client, &calls, |_| ()).unwrap();
    issued.finish().len()
}

/// Rows of one length take at most three kernels over batches of all sizes, and so do columns:
/// those that wide vectors divide, all others, and a matrix of one column. Without 64-bit atomics,
/// a second launch may merge the partials of the first two.
fn few_kernels(client: &Client) {
    let invariant = Numerics::BatchInvariant;
    let counts = [1, 2, 3, 7, 8, 31, 64, 100, 132, 528, 777, 1024, 4095, 4096];
    let described = |shape: [usize; 2]| TensorDescription::row_major(ElementType::F32, shape);
    let largest = client.properties().memory.max_page_size as usize / 4;
    let mut most = Vec::new();
    for len in [1000, 5000, 50_257, 151_936] {
        let fits = counts.iter().filter(|&count| count * len <= largest).count();
        let counts = &counts[..fits];
        let rows: Vec<_> = counts.iter().map(|&rows| described([rows, len])).collect();
        let columns: Vec<_> = counts.iter().map(|&columns| described([len, columns])).collect();
        let mut count = |what: &str, kernels: usize| most.push((kernels, what.to_owned(), len));
        let sums = |x, axis| reduce(Sum, x).over(axis).numerics(invariant);
        let vars = |x, axis| reduce(VAR, x).over(axis).numerics(invariant);
        count("sums of rows", kernels_of(client, rows.iter().map(|x| sums(x, 1))));
        count("sums of columns", kernels_of(client, columns.iter().map(|x| sums(x, 0))));
        count("variances of rows", kernels_of(client, rows.iter().map(|x| vars(x, 1))));
        count("variances of columns", kernels_of(client, columns.iter().map(|x| vars(x, 0))));
        let softmax = rows.iter().map(|x| Softmax.of(x, 1).numerics(invariant));
        count("softmax of rows", kernels_of(client, softmax));
    }
    let limit = if device_of(client).wide_atomics { 3 } else { 4 };
    let many: Vec<_> = most.iter().filter(|&&(kernels, ..)| kernels > limit).collect();
    assert!(many.is_empty(), "{many:?}\n{most:?}");
}

/// Lists of equal tensors take at most three kernels over all numbers of tensors: two that read,
/// for few and for many, and one that merges.
fn few_kernels_for_lists(client: &Client) {
    for len in [1000, 5001] {
        let tensor = TensorDescription::row_major(ElementType::F32, [len]);
        let lists = [1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 65, 100, 162];
        let lists = lists.map(|tensors| vec![&tensor; tensors]);
        let calls = lists
            .iter()
            .map(|list| reduce_list(VAR, list.iter().copied()).numerics(Numerics::BatchInvariant));
        let kernels = kernels_of(client, calls);
        assert!(kernels <= 3, "{kernels} kernels for tensors of {len}");
    }
}

/// One kernel merges partial results of any number of shards into results, and one into partial
/// results, which also serves where several launches merge them in turn.
fn few_kernels_for_shards(client: &Client) {
    let shards = 9;
    let data: Vec<f32> = (0..shards * 100).map(|i| (i % 7) as f32).collect();
    let mut partials = Vec::new();
    for shard in data.chunks(100) {
        let x = tensor(client, shard, &[1, 100]);
        let spec = ShardSpec { axis: 1, start: partials.len() * 100, of: shards * 100 };
        partials.push(reduce(VAR, &x).over(1).partials_of_shard(client, spec).unwrap());
    }
    let launched = LaunchedKernels::new();
    for shards in 1..=shards {
        merge_partials(&partials[..shards]).partials(client).unwrap();
    }
    merge_partials(&partials).run(client).unwrap();
    let launched = launched.finish();
    assert!(launched.len() <= 2, "{} kernels merge", launched.len());
}

/// Selections of any number of elements share a kernel as long as their buffers are as large, and
/// largest and smallest elements do.
fn few_kernels_for_selections(client: &Client) {
    let rows = TensorDescription::row_major(ElementType::F32, [64, 5000]);
    let largest = [1, 2, 7, 30, 100, 250].map(|k| largest(k, &rows).over(1));
    let smallest = [3, 99].map(|k| smallest(k, &rows).over(1).nan_last());
    let kernels = kernels_of(client, largest.into_iter().chain(smallest));
    assert!(kernels <= 2, "{kernels} kernels select");
}

/// A call that cannot run is refused as its run would be, after those before it.
fn refusals(client: &Client) {
    let x = TensorDescription::row_major(ElementType::F32, [4, 8]);
    let (good, bad) = (reduce(Sum, &x).over(1), reduce(Sum, &x).over(2));
    let mut done = 0;
    let error = warm_up(client, &[&good, &bad], |progress| done = progress.done).unwrap_err();
    assert_eq!((error.kind(), done), (ErrorKind::Shape, 1), "{error}");
}

/// Whether a call would compile is what CubeCL shows when the call is warmed up: a kernel that was
/// never issued before. Both ways, over calls of every kind whose kernels differ in one thing or in
/// none. Nothing else may have launched on the client's device before.
fn answers_are_those_of_cubecl(client: &Client) {
    let row_major = |element, shape: &[usize]| TensorDescription::row_major(element, shape);
    let f32_of = |shape: &[usize]| row_major(ElementType::F32, shape);
    let (long, wide) = (f32_of(&[37, 1000]), f32_of(&[5, 20_000]));
    let (odd, cube) = (f32_of(&[37, 1003]), f32_of(&[6, 50, 40]));
    let (row, cell) = (f32_of(&[1000]), f32_of(&[37, 1]));
    let offsets = row_major(ElementType::I32, &[12]);
    let wide_offsets = row_major(ElementType::U32, &[12]);
    let (one, others) = (f32_of(&[1, 1 << 20]), f32_of(&[1, 3 << 20]));
    let (integers, numbers) =
        (row_major(ElementType::I32, &[37, 1000]), row_major(ElementType::U32, &[37, 1000]));
    let padded = TensorDescription::strided(ElementType::F32, [37, 1000], [1008, 1]);
    let turned = TensorDescription::strided(ElementType::F32, [37, 1000], [1, 37]);
    let cosine = CosineSimilarity { eps: 1e-8 };
    let (norm, var) = (LayerNorm { eps: 1e-5 }, VAR);
    let (invariant, reproducible) = (Numerics::BatchInvariant, Numerics::Reproducible);
    let list = |count: usize| vec![&row; count];
    let mixed = vec![&row, &long, &odd, &cell];
    let calls: Vec<Box<dyn WarmUp + '_>> = vec![
        Box::new(reduce(Sum, &long).over(1)),
        Box::new(reduce(Sum, &long).over(1).keep_dims(false)),
        Box::new(reduce(Sum, &padded).over(1)),
        Box::new(reduce(Sum, &turned).over(1)),
        Box::new(reduce(Sum, &odd).over(1)),
        Box::new(reduce(Sum, &wide).over(1)),
        Box::new(reduce(Sum, &long).over(0)),
        Box::new(reduce(Sum, &odd).over(0)),
        Box::new(reduce(Sum, &cell).over(0)),
        Box::new(reduce(Sum, &cube).over(1)),
        Box::new(reduce(Sum, &cube).over([0, 2])),
        Box::new(reduce(Sum, &cube).over(..)),
        Box::new(reduce(Sum, &cube).over([])),
        Box::new(reduce(Sum, &one).over(1)),
        Box::new(reduce(Sum, &others).over(1)),
        Box::new(reduce(var, &others).over(1)),
        Box::new(reduce(var, &one).over(1)),
        Box::new(reduce(Sum, &integers).over(1)),
        Box::new(reduce(Mean, &integers).over(1)),
        Box::new(reduce(Sum, &long).over(1).numerics(invariant)),
        Box::new(reduce(Sum, &wide).over(1).numerics(invariant)),
        Box::new(reduce(Sum, &long).over(1).numerics(reproducible)),
        Box::new(reduce(ArgMax, &long).over(1)),
        Box::new(reduce(ArgMax, &long).over(..)),
        Box::new(reduce(MeanVar { correction: 0.0 }, &long).over(0)),
        Box::new(reduce(Var { correction: 0.0 }, &long).over(0)),
        Box::new(reduce(var, &long).over(0)),
        Box::new(reduce_pair(cosine, &long, &long).over(1)),
        Box::new(reduce_pair(cosine, &long, &padded).over(1)),
        Box::new(reduce_pair(cosine, &long, &row).over(1)),
        Box::new(reduce_pair(cosine, &long, &turned).over(1)),
        Box::new(reduce_pair(cosine, &long, &cell).over(1)),
        Box::new(reduce_pair(cosine, &long, &integers).over(1)),
        Box::new(Softmax.of(&long, 1)),
        Box::new(Softmax.of(&padded, 1)),
        Box::new(Softmax.of(&odd, 1)),
        Box::new(Softmax.of(&wide, 1)),
        Box::new(Softmax.of(&wide, 1).numerics(invariant)),
        Box::new(Softmax.of(&long, 0)),
        Box::new(Softmax.of(&cube, 1)),
        Box::new(Softmax.of(&one, 1)),
        Box::new(Softmax.of(&others, 1)),
        Box::new(norm.of(&long, 1)),
        Box::new(norm.of(&long, 1).operand(&row, 1)),
        Box::new(norm.of(&long, 1).operand(&row, 1).operand(&row, 1)),
        Box::new(norm.of(&wide, 1)),
        Box::new(reduce_list(var, list(1))),
        Box::new(reduce_list(var, list(3))),
        Box::new(reduce_list(var, list(20))),
        Box::new(reduce_list(var, list(130))),
        Box::new(reduce_list(var, mixed.clone())),
        Box::new(reduce_list(Sum, list(3))),
        Box::new(reduce_list(NormL2, list(3)).apply(ClippedToNorm { max_norm: 1.0 })),
        Box::new(reduce_list(NormL2, mixed).apply(ClippedToNorm { max_norm: 1.0 })),
        Box::new(reduce(Sum, &long).over(1).segments(&offsets)),
        Box::new(reduce(Sum, &wide).over(1).segments(&offsets)),
        Box::new(reduce(Sum, &long).over(0).segments(&offsets)),
        Box::new(reduce(Sum, &long).over(0).segments(&wide_offsets)),
        Box::new(reduce(var, &cube).over(1).segments(&offsets)),
        Box::new(reduce_pair(cosine, &long, &row).over(1).segments(&offsets)),
        Box::new(scan(Sum, &long).over(1)),
        Box::new(scan(Sum, &long).over(0)),
        Box::new(scan(Sum, &long).over(1).exclusive()),
        Box::new(scan(Sum, &long).over(1).reverse()),
        Box::new(scan(Sum, &wide).over(1)),
        Box::new(scan(var, &cube).over(1)),
        Box::new(scan(ArgMax, &cube).over([2, 0])),
        Box::new(scan_list(Sum, list(3)).over(0)),
        Box::new(scan_list(Sum, list(20)).over(0)),
        Box::new(scan_list(var, [&long, &long, &cube]).over(1)),
        Box::new(scan_list(ArgMax, [&cube, &long, &cube]).over(1).exclusive()),
        Box::new(largest(5, &long).over(1)),
        Box::new(smallest(7, &long).over(1)),
        Box::new(largest(300, &long).over(1)),
        Box::new(largest(300, &long).over(1).only_last()),
        Box::new(largest(5, &wide).over(1)),
        Box::new(largest(5, &one).over(1)),
        Box::new(largest(9, &others).over(1)),
        Box::new(largest(5, &long).over(0)),
        Box::new(largest(20_000, &wide).over(1)),
        Box::new(largest(19_999, &wide).over(1).in_order_of_positions()),
        Box::new(largest(5, &integers).over(1)),
        Box::new(largest(5, &long).over(1).position_type(ElementType::I32)),
        Box::new(largest(5, &long).over(1).with_positions(&numbers)),
        Box::new(smallest(4, &long).over(1).with_positions(&numbers)),
        Box::new(largest(5, &long).over(1).with_positions(&integers)),
        Box::new(largest(5, &long).over(0).with_positions(&numbers)),
        Box::new(largest(5, &long).over(1).masked(0.0)),
        Box::new(smallest(9, &long).over(1).masked(f32::INFINITY)),
        Box::new(largest(5, &padded).over(1).masked(0.0)),
        Box::new(largest(5, &cube).over([0, 2]).masked(0.0)),
        Box::new(largest(300, &wide).over(1).masked(0.0)),
        Box::new(largest(5, &integers).over(1).masked(0.0)),
        Box::new(largest_of_list(5, list(2)).each()),
        Box::new(largest_of_list(5, list(2)).all()),
        Box::new(largest_of_list(7, [&row, &long]).all()),
        Box::new(largest_of_list(600, list(3)).in_order_of_positions().all()),
    ];
    let mut known = LaunchedKernels::new().finish();
    let (mut new_ones, mut wrong) = (0, Vec::new());
    for (nth, call) in calls.iter().enumerate() {
        let call = &**call;
        let answer = would_compile(client, call).unwrap_or_else(|error| panic!("{nth}: {error}"));
        let issued = LaunchedKernels::new();
        warm_up(client, &[call], |_| ()).unwrap();
        let issued = issued.finish();
        let is_new = !issued.is_subset(&known);
        if answer != is_new {
            wrong.push((nth, answer));
        }
        assert!(!would_compile(client, call).unwrap(), "call {nth}, which is warm");
        known.extend(issued);
        new_ones += usize::from(is_new);
    }
    assert!(wrong.is_empty(), "calls and what they answered: {wrong:?}");
    // Either answer is right for many of the calls.
    assert!((20..calls.len() - 10).contains(&new_ones), "{new_ones} of {}", calls.len());
}

fn invariant_std<T: Input>(x: &T) -> Reduction<'_, Std, T> {
    reduce(Std { correction: 1.0 }, x).over(1).numerics(Numerics::BatchInvariant)
}

/// A kernel counts once it was launched, warmed up or not: in every thread, for the call as it was
/// recorded, and for each call that shares it. Asking and planning change nothing.
fn launches_are_remembered(client: &Client) {
    let described = |rows| TensorDescription::row_major(ElementType::F32, [rows, 777]);
    let (few, many) = (described(3), described(40));
    let (few, many) = (invariant_std(&few), invariant_std(&many));
    few.check(client).unwrap();
    for _ in 0..2 {
        assert!(would_compile(client, &few).unwrap());
        assert!(would_compile(client, &many).unwrap());
    }
    let x = tensor(client, &[0.5; 3 * 777], &[3, 777]);
    invariant_std(&x).run(client).unwrap();
    let x = tensor(client, &[0.5; 6 * 50 * 44], &[6, 50, 44]);
    let columns = || reduce(VAR, &x).over(1).keep_dims(false);
    let apart = TensorHandle::new(client.empty(6 * 45 * 4), [6, 44], [45, 1], x.dtype);
    let launched = LaunchedKernels::new();
    columns().run_into(client, apart.binding()).unwrap();
    let launched = launched.finish();
    let answer = would_compile(client, &columns()).unwrap();
    let issued = LaunchedKernels::new();
    warm_up(client, &[&columns()], |_| ()).unwrap();
    assert_eq!(answer, !issued.finish().is_subset(&launched));
    assert!(!would_compile(client, &columns()).unwrap());
    thread::scope(|scope| {
        let ask = || assert!(!would_compile(client, &many).unwrap());
        scope.spawn(ask).join().unwrap();
    });
}

/// Whether a recorded application would compile.
fn of_application<O: Operator, F: Apply<Results = O::Results, Outputs = One>, T: Input>(
    call: &AppliedReduction<'_, O, F, T>,
    client: &Client,
) -> Result<bool, ReduceError> {
    let RecordedCall::Application(recorded) = call.record()? else { panic!("no application") };
    recorded.would_compile::<O, F>(client)
}

/// A recorded call answers as the call does, before it runs and afterwards.
fn recorded_calls_answer(client: &Client) {
    let x = TensorDescription::row_major(ElementType::F32, [3, 555]);
    let rows = reduce(NormL2, &x).over(1).numerics(Numerics::Reproducible);
    let softmax = Softmax.of(&x, 1);
    let norms = reduce_list(NormL1, [&x]);
    let clip = ClippedToNorm { max_norm: 1.0 };
    let clipped = reduce_list(NormL1, [&x]).apply(clip);
    let best = largest(3, &x).over(0);
    let offsets = TensorDescription::row_major(ElementType::I32, [7]);
    let segments = reduce(NormL1, &x).over(1).segments(&offsets);
    let RecordedCall::Segments(recorded_segments) = segments.record().unwrap() else {
        panic!("another kind")
    };
    let sums = scan(NormL1, &x).over(1);
    let RecordedCall::Scan(recorded_sums) = sums.record().unwrap() else { panic!("another kind") };
    let mask = largest(3, &x).over(0).masked(0.0);
    let RecordedCall::List(recorded_norms) = norms.record().unwrap() else {
        panic!("another kind")
    };
    let RecordedCall::ListApplication(recorded_clipped) = clipped.record(false).unwrap() else {
        panic!("another kind")
    };
    let RecordedCall::TopK(recorded_best) = best.record().unwrap() else { panic!("another kind") };
    let RecordedCall::TopK(recorded_mask) = mask.record().unwrap() else { panic!("another kind") };
    let recorded_rows = rows.record().unwrap();
    assert_eq!(recorded_rows.problem::<NormL2>().unwrap(), rows.problem().unwrap());
    let answers = || {
        [
            recorded_rows.would_compile::<NormL2>(client),
            of_application(&softmax, client),
            recorded_norms.would_compile::<NormL1>(client),
            recorded_clipped.would_compile::<NormL1, ClippedToNorm>(client),
            recorded_best.would_compile(client),
            recorded_segments.would_compile::<NormL1>(client),
            recorded_sums.would_compile::<NormL1>(client),
            recorded_mask.would_compile(client),
        ]
        .map(Result::unwrap)
    };
    assert_eq!(answers(), [true; 8]);
    let calls: [&dyn WarmUp; 7] = [&rows, &softmax, &norms, &clipped, &best, &segments, &sums];
    warm_up(client, &calls, |_| ()).unwrap();
    // The launch after the selection of a mask has a kernel of its own.
    assert_eq!(answers(), [false, false, false, false, false, false, false, true]);
    warm_up(client, &[&mask], |_| ()).unwrap();
    assert_eq!(answers(), [false; 8]);
    let other = recorded_rows.would_compile::<Sum>(client).unwrap_err();
    assert_eq!(other.kind(), ErrorKind::Arguments, "{other}");
}

/// Kernels that differ only in which of their arrays are bound have different names, by which CubeCL
/// finds them on the disk: those that store results as vectors and one by one, results and
/// accumulators, accumulators of a whole and of a shard.
fn names_say_which_arrays_are_bound(client: &Client) {
    let launched = |run: &dyn Fn()| {
        let launched = LaunchedKernels::new();
        run();
        launched.finish()
    };
    let x = tensor(client, &[0.5; 6 * 50 * 44], &[6, 50, 44]);
    let columns = || reduce(ArgMax, &x).over(1).keep_dims(false);
    let apart = || TensorHandle::new(client.empty(6 * 45 * 4), [6, 44], [45, 1], x.dtype);
    let spec = ShardSpec { axis: 1, start: 0, of: 100 };
    let names = [
        launched(&|| drop(columns().run(client).unwrap())),
        launched(&|| columns().run_into(client, apart().binding()).unwrap()),
        launched(&|| drop(columns().partials(client).unwrap())),
        launched(&|| drop(columns().partials_of_shard(client, spec).unwrap())),
    ];
    for (nth, some) in names.iter().enumerate() {
        for (other, others) in names.iter().enumerate().skip(nth + 1) {
            assert!(some.is_disjoint(others), "launches {nth} and {other} share a name");
        }
    }
    let normed = || Softmax.of(&x, 1);
    let apart =
        TensorHandle::new(client.empty(6 * 50 * 45 * 4), [6, 50, 44], [2250, 45, 1], x.dtype);
    let dense = launched(&|| drop(normed().run(client).unwrap()));
    let apart = launched(&|| normed().run_into(client, apart.clone().binding()).unwrap());
    assert!(!apart.is_subset(&dense), "outputs that lie apart and side by side share a name");
    let row = tensor(client, &[0.5; 3000], &[3000]);
    let words = [0u32, 1000, 3000].map(u32::to_le_bytes).concat();
    let handle = client.create_from_slice(&words);
    let offsets = TensorHandle::new_contiguous(vec![3], handle, storage_type(ElementType::U32));
    let segmented = || reduce(Sum, &row).segments(&offsets);
    let mut plan = segmented().choose(client).unwrap().plan;
    if plan.merge == SegmentsMerge::LookBack {
        let looks_back = launched(&|| drop(segmented().run(client).unwrap()));
        plan.merge = SegmentsMerge::SecondLaunch { units_per_cube: 64 };
        let twice = launched(&|| drop(segmented().with_plan(plan).run(client).unwrap()));
        assert!(looks_back.is_disjoint(&twice), "a launch that looks back and one of two");
    }
}

/// Backends are tested one after the other.
static ALONE: Mutex<()> = Mutex::new(());

macro_rules! on {
    ($backend:ident) => {
        #[test]
        fn $backend() {
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            let client = backend::$backend();
            answers_are_those_of_cubecl(&client);
            launches_are_remembered(&client);
            recorded_calls_answer(&client);
            names_say_which_arrays_are_bound(&client);
            splits_run_afterwards(&client);
            calls_of_every_kind(&client);
            batches_share_kernels(&client);
            few_kernels(&client);
            few_kernels_for_lists(&client);
            few_kernels_for_shards(&client);
            few_kernels_for_selections(&client);
            refusals(&client);
        }
    };
}

#[cfg(feature = "cuda-llvm")]
on!(cuda);

#[cfg(feature = "vulkan")]
on!(spirv);

#[cfg(any(feature = "wgpu", feature = "vulkan"))]
on!(wgsl);
