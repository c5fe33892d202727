//! Tensors in shards on several devices: on one adapter under several names, and on several GPUs.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ArgMax, ElementType, ErrorKind, Max, MeanVar, Sum, Var, cubecl, device_of,
    operator::Arity,
    operators::LogSumExp,
    pairs::ElementwiseProduct,
    partials::{ShardSpec, merge_partials},
    planner::{ProblemError, row_major_strides},
    reduce,
    sharded::{Shard, Sharded, ShardsError},
    top_k::{Selected, largest},
};

use crate::{
    case::Case,
    operators::Checked,
    run::{Element, sample, source, tensor, tensor_of},
    scans_continued::{numbers, part, piece},
    top_k::{Asked, orders},
    top_k_parts::{Slices, by_slice, expected, spread_bytes},
};

/// A tensor of these elements, cut along an axis before each of `starts`. Shard `nth` lies on
/// device `nth`.
pub(crate) fn cut<E: Element>(
    devices: &[cubecl::Device],
    data: &[E],
    shape: &[usize],
    axis: usize,
    starts: &[usize],
) -> Sharded {
    cut_of(devices, E::TYPE, bytemuck::cast_slice(data), shape, axis, starts)
}

/// [`cut`] of bytes that hold elements of a type.
fn cut_of(
    devices: &[cubecl::Device],
    element: ElementType,
    bytes: &[u8],
    shape: &[usize],
    axis: usize,
    starts: &[usize],
) -> Sharded {
    let inner = shape[axis + 1..].iter().product::<usize>() * element.bytes();
    let ends = starts.iter().skip(1).copied().chain([shape[axis]]);
    let shards = starts.iter().zip(ends).zip(devices).map(|((&start, end), device)| {
        let own = part(bytes, shape[axis], inner, start..end);
        let mut shape = shape.to_vec();
        shape[axis] = end - start;
        let strides = row_major_strides(&shape);
        (device.clone(), tensor_of(&device.client(), element, &own, &shape, &strides))
    });
    Sharded::cut(axis, shards.collect::<Vec<_>>()).unwrap()
}

/// The elements of each shard of a row-major result.
fn read(sharded: &Sharded) -> Vec<Vec<f32>> {
    let shards = sharded.shards().iter().map(|shard| {
        let bytes = shard.client().read_one(shard.tensor().handle.clone());
        let len = shard.tensor().shape().iter().product();
        f32::from_bytes(&bytes.expect("the device answers"))[..len].to_vec()
    });
    shards.collect()
}

/// Reductions over axes that are not cut stay in shards, and those of replicas are replicas.
pub(crate) fn without_exchange(devices: &[cubecl::Device]) {
    let shape = [3, 4, 10];
    let data = numbers(&shape);
    let x = cut::<_>(&devices[..3], &data, &shape, 2, &[0, 7, 7]);
    assert_eq!((x.shape(), x.axis(), x.starts()), (&shape[..], Some(2), Some(&[0, 7, 7][..])));
    assert_eq!(reduce(Sum, &x).over(1).output_shape().unwrap(), [3, 1, 10]);

    let kept = reduce(Sum, &x).over(1).run_sharded().unwrap();
    assert_eq!((kept.shape(), kept.axis()), (&[3, 1, 10][..], Some(2)));
    let dropped = reduce(Sum, &x).over([0, 1]).keep_dims(false).run_sharded().unwrap();
    assert_eq!((dropped.shape(), dropped.axis()), (&[10][..], Some(0)));
    assert_eq!(dropped.starts(), Some(&[0, 7, 7][..]));
    let sums: Vec<f32> =
        (0..10).map(|column| (0..12).map(|row| data[row * 10 + column]).sum()).collect();
    assert_eq!(read(&dropped), [sums[..7].to_vec(), vec![], sums[7..].to_vec()]);

    let (mean, _) = reduce(MeanVar { correction: 0.0 }, &x).over(0).run_sharded().unwrap();
    assert_eq!(mean.shape(), [1, 4, 10]);
    assert_eq!(reduce(Sum, &x).over(1).plans().unwrap().len(), 3);

    let replicas = devices[..2].iter().map(|device| {
        (device.clone(), tensor(&device.client(), &data, &shape, &row_major_strides(&shape)))
    });
    let replicas = Sharded::replicated(replicas.collect::<Vec<_>>()).unwrap();
    let highest = reduce(Max, &replicas).run_sharded().unwrap();
    assert_eq!(highest.axis(), None);
    let max = data.iter().copied().fold(f32::MIN, f32::max);
    assert_eq!(read(&highest), [[max], [max]]);

    // One shard is the whole: nobody to exchange with.
    let alone = cut::<_>(&devices[..1], &data, &shape, 2, &[0]);
    let highest = reduce(Max, &alone).run_sharded().unwrap();
    assert_eq!((read(&highest), highest.axis()), (vec![vec![max]], None));
}

/// Second inputs that are cut as the first, or not at all where they repeat along the cut axis.
pub(crate) fn second_inputs(devices: &[cubecl::Device]) {
    let data = numbers(&[6, 5]);
    let devices = &devices[..2];
    let x = cut::<_>(devices, &data, &[6, 5], 0, &[0, 4]);
    let replicated = |data: &[f32], shape: &[usize]| {
        let each = devices.iter().map(|device| {
            (device.clone(), tensor(&device.client(), data, shape, &row_major_strides(shape)))
        });
        Sharded::replicated(each.collect::<Vec<_>>()).unwrap()
    };
    let dots = |y: &Sharded| reduce(Sum, &x).paired(y, ElementwiseProduct).over(1).run_sharded();

    let of_rows = read(&dots(&x).unwrap()).concat();
    let squares: Vec<f32> =
        data.chunks(5).map(|row| row.iter().map(|value| value * value).sum()).collect();
    assert_eq!(of_rows, squares);
    let row = replicated(&[1.0, 0.0, 2.0, 0.0, 0.0], &[5]);
    let weighted: Vec<f32> = data.chunks(5).map(|row| row[0] + 2.0 * row[2]).collect();
    assert_eq!(read(&dots(&row).unwrap()).concat(), weighted);

    let refused = |y: &Sharded| match dots(y) {
        Err(error) => match source(&error) {
            Some(ShardsError::Second { reason }) => reason.clone(),
            _ => panic!("{error}"),
        },
        Ok(_) => panic!("it ran"),
    };
    refused(&replicated(&data, &[6, 5]));
    refused(&cut::<_>(devices, &data, &[6, 5], 0, &[0, 3]));
    refused(&cut::<_>(devices, &data, &[6, 5], 1, &[0, 4]));
    let swapped = [devices[1].clone(), devices[0].clone()];
    refused(&cut::<_>(&swapped, &data, &[6, 5], 0, &[0, 4]));
}

/// Over the cut axis, through the host: two inputs, maps of pairs, dropped axes, results without
/// elements.
pub(crate) fn through_host(devices: &[cubecl::Device]) {
    let data = numbers(&[6, 5]);
    let x = cut::<_>(&devices[..2], &data, &[6, 5], 0, &[0, 4]);
    let dots = reduce(Sum, &x).paired(&x, ElementwiseProduct).over(0).keep_dims(false);
    let dots = dots.run_sharded_through_host().unwrap();
    assert_eq!((dots.shape(), dots.axis()), (&[5][..], None));
    let expected: Vec<f32> =
        (0..5).map(|column| data.chunks(5).map(|row| row[column] * row[column]).sum()).collect();
    assert_eq!(read(&dots), [expected.clone(), expected]);

    let none = cut::<f32>(&devices[..2], &[], &[6, 0], 0, &[0, 4]);
    let none = reduce(Sum, &none).over(0).run_sharded().unwrap();
    assert_eq!((none.shape(), none.shards().len()), (&[1, 0][..], 2));

    // An error says which shard it is of.
    let [a, b] = [&devices[0], &devices[1]];
    let whole = tensor(&a.client(), &data, &[6, 5], &[5, 1]);
    let short = tensor(&b.client(), &data[..10], &[6, 5], &[5, 1]);
    let cut = Sharded::cut(0, [(a.clone(), whole), (b.clone(), short)]).unwrap();
    let error = reduce(Sum, &cut).over(0).run_sharded_through_host().unwrap_err();
    let of_shard = matches!(source(&error), Some(ShardsError::Shard { nth: 1, .. }));
    assert!(of_shard, "{error}");
}

/// What is not a valid sharded tensor is refused.
pub(crate) fn refusals(devices: &[cubecl::Device]) {
    let [a, b] = [&devices[0], &devices[1]];
    let on = |device: &cubecl::Device, shape: &[usize]| -> (cubecl::Device, TensorHandle) {
        let client = device.client();
        (device.clone(), tensor(&client, &numbers(shape), shape, &row_major_strides(shape)))
    };
    let refused = |axis, shards| match Sharded::cut(axis, shards) {
        Err(error) => source::<ShardsError>(&error).unwrap_or_else(|| panic!("{error}")).clone(),
        Ok(_) => panic!("it is a tensor"),
    };
    assert_eq!(refused(0, vec![]), ShardsError::None);
    let twice = refused(0, vec![on(a, &[2, 3]), on(b, &[2, 3]), on(a, &[2, 3])]);
    assert!(matches!(twice, ShardsError::SameDevice { first: 0, second: 2, .. }), "{twice}");
    let shapes = refused(0, vec![on(a, &[2, 3]), on(b, &[2, 4])]);
    assert!(matches!(shapes, ShardsError::Shapes { nth: 1, cut: Some(0), .. }), "{shapes}");
    let rank = refused(0, vec![on(a, &[2, 3]), on(b, &[2])]);
    assert!(matches!(rank, ShardsError::Shapes { nth: 1, .. }), "{rank}");
    let ints = (b.clone(), tensor(&b.client(), &[1i32; 6], &[2, 3], &[3, 1]));
    let types = refused(0, vec![on(a, &[2, 3]), ints]);
    assert!(matches!(types, ShardsError::Types { nth: 1, .. }), "{types}");
    let axis = Sharded::cut(2, vec![on(a, &[2, 3]), on(b, &[2, 3])]).unwrap_err();
    assert!(matches!(source(&axis), Some(ProblemError::AxisOutOfRange { .. })), "{axis}");
    let replicas = Sharded::replicated(vec![on(a, &[2, 3]), on(b, &[1, 3])]).unwrap_err();
    let replicas = replicas.to_string();
    assert!(replicas.ends_with("replicas are equal"), "{replicas}");
}

/// Without collectives, a reduction over the cut axis is refused.
pub(crate) fn no_collectives(devices: &[cubecl::Device]) {
    let data = numbers(&[8]);
    let x = cut::<_>(&devices[..2], &data, &[8], 0, &[0, 5]);
    let error = reduce(Sum, &x).run_sharded().unwrap_err();
    let missing = matches!(source(&error), Some(ShardsError::NoCollectives { .. }));
    assert!(missing, "{error}");
    // An error that has nothing to do with devices comes first.
    let error = reduce(Sum, &x).over(1).run_sharded().unwrap_err();
    assert!(source::<ProblemError>(&error).is_some(), "{error}");
}

/// How partial results cross devices.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "nccl"), allow(dead_code, reason = "collectives need it"))]
pub(crate) enum Transport {
    Collectives,
    Host,
}

/// Over the cut axis: the same bits on all devices as one device gets of the same shards, run after
/// run.
pub(crate) fn with_exchange<O: Checked>(devices: &[cubecl::Device], transport: Transport) {
    let mut rng = StdRng::seed_from_u64(7);
    let bytes = |client: &Client, tensor: TensorHandle| {
        let element = reduce_kernels::element_type(tensor.dtype).unwrap();
        let len: usize = tensor.shape().iter().product();
        let bytes = client.read_one(tensor.handle).expect("the device answers");
        bytes[..len * element.bytes()].to_vec()
    };
    for (shape, axes) in [
        (vec![50_021], vec![0]),
        (vec![300, 40], vec![0]),
        (vec![24, 301], vec![0, 1]),
        (vec![24, 301], vec![1]),
        (vec![5, 40, 33], vec![0, 2]),
    ] {
        let case = Case::contiguous(&shape, &axes);
        let data: Vec<f32> =
            sample::<O>(&case, ElementType::F32, 3).into_iter().map(|value| value as f32).collect();
        for &axis in &axes {
            // Sometimes the first shard is empty, sometimes the last one.
            let mut starts: Vec<usize> = match axis {
                0 => devices.iter().map(|_| rng.random_range(0..=shape[axis])).collect(),
                1 => vec![0; devices.len()],
                _ => vec![shape[axis]; devices.len()],
            };
            starts[0] = 0;
            starts.sort_unstable();
            let x = cut::<_>(devices, &data, &shape, axis, &starts);
            // The same shards on the first device alone.
            let client = devices[0].client();
            let partials: Vec<_> = (0..devices.len())
                .map(|nth| {
                    let end = starts.get(nth + 1).copied().unwrap_or(shape[axis]);
                    let one = shard_alone(&client, &data, &shape, axis, starts[nth], end);
                    let spec = ShardSpec { axis, start: starts[nth], of: shape[axis] };
                    let reduction = reduce(O::operator(), &one).over(axes.as_slice());
                    reduction.partials_of_shard(&client, spec).unwrap()
                })
                .collect();
            let expected: Vec<Vec<u8>> =
                O::Results::into_list(merge_partials(&partials).run(&client).unwrap())
                    .into_iter()
                    .map(|result| bytes(&client, result))
                    .collect();
            for run in 0..3 {
                let reduction = reduce(O::operator(), &x).over(axes.as_slice());
                let results = match transport {
                    Transport::Collectives => reduction.run_sharded(),
                    Transport::Host => reduction.run_sharded_through_host(),
                }
                .unwrap();
                for (nth, result) in O::Results::into_list(results).into_iter().enumerate() {
                    assert_eq!(result.axis(), None);
                    for shard in result.shards() {
                        let found = bytes(shard.client(), shard.tensor().clone());
                        assert_eq!(
                            found,
                            expected[nth],
                            "{}: result {nth} on {:?}, run {run}, {shape:?} cut along {axis} at \
                             {starts:?}",
                            O::NAME,
                            shard.device()
                        );
                    }
                }
            }
        }
    }
}

/// Selections: from slices on one device, and from slices in shards, some of which are shorter than
/// `k` or empty. All devices have what one has of the whole.
pub(crate) fn selections(devices: &[cubecl::Device], transport: Transport) {
    let mut rng = StdRng::seed_from_u64(9);
    for (element, shape, axes) in [
        (ElementType::F32, vec![3001], vec![0]),
        (ElementType::F32, vec![60, 9], vec![0]),
        (ElementType::F16, vec![41, 7], vec![0]),
        (ElementType::I8, vec![5, 70], vec![1]),
        (ElementType::F32, vec![5, 20, 11], vec![1, 2]),
        (ElementType::F32, vec![1, 20, 11], vec![0, 1]),
    ] {
        if !devices.iter().all(|device| device_of(&device.client()).has(element)) {
            continue;
        }
        let len: usize = shape.iter().product();
        let of_slice: usize = axes.iter().map(|&axis| shape[axis]).product();
        let bytes = spread_bytes(element, len, [6, of_slice], &mut rng);
        let numbers: Vec<u32> = (0..len).map(|_| rng.random()).collect();
        for axis in 0..shape.len() {
            if shape[axis] < 2 || axes.contains(&axis) && axis > axes[0] && shape[axes[0]] > 1 {
                continue;
            }
            let mut starts: Vec<usize> =
                devices.iter().map(|_| rng.random_range(0..=shape[axis])).collect();
            starts[0] = 0;
            starts.sort_unstable();
            let x = cut_of(devices, element, &bytes, &shape, axis, &starts);
            let table = cut(devices, &numbers, &shape, axis, &starts);
            for (nth, asked) in orders(6).enumerate() {
                // Every order once, and a few of them for the other layouts and types.
                if shape.len() > 1 && nth % 3 != 2 {
                    continue;
                }
                let told = format!(
                    "{element} {shape:?} {axes:?} cut along {axis} at {starts:?} {asked:?}"
                );
                // The last is the last by value, also where the order is that of positions.
                let only_last = nth == 5;
                let by_position = asked.by_position && !only_last;
                let order = Asked { by_position, ..asked };
                let mut expected = expected(element, &bytes, &shape, &axes, order);
                // In the order of their positions, the numbers are those of a table.
                let mut selection = asked.of_input(&x).over(axes.as_slice());
                if nth % 4 == 2 {
                    let places = asked.select_each(element, &bytes, &shape, &axes);
                    for ((_, positions), places) in expected.iter_mut().zip(places) {
                        *positions = places.iter().map(|&(place, _)| numbers[place]).collect();
                    }
                    selection = selection.with_positions(&table);
                }
                if only_last {
                    for (values, positions) in &mut expected {
                        (*values, *positions) = (values.split_off(5), positions.split_off(5));
                    }
                    selection = selection.only_last();
                }
                let keep_dims = nth < 4;
                let selection = selection.keep_dims(keep_dims);
                let found = match transport {
                    Transport::Collectives => selection.run_sharded(),
                    Transport::Host => selection.run_sharded_through_host(),
                };
                let Selected { values, positions } = found.expect(&told);
                let is_cut = axes.contains(&axis);
                assert_eq!(values.axis().is_none(), is_cut, "{told}");
                let dropped = if keep_dims { 0 } else { axes.len() - 1 };
                let ranked = axes.last().unwrap() - dropped;
                let on_device = |(values, positions): (&Shard, &Shard)| -> Slices {
                    let shape = values.tensor().shape().to_vec();
                    let read = |shard: &Shard, size: usize| {
                        let held = shard.client().read_one(shard.tensor().handle.clone());
                        let held = held.expect("the device answers");
                        let held = &held[..shape.iter().product::<usize>() * size];
                        let elements: Vec<Vec<u8>> =
                            held.chunks(size).map(<[u8]>::to_vec).collect();
                        by_slice(&elements, &shape, &row_major_strides(&shape), ranked)
                    };
                    let number = |bytes: Vec<u8>| u32::from_le_bytes(bytes.try_into().unwrap());
                    let numbers = read(positions, 4)
                        .into_iter()
                        .map(|slice| slice.into_iter().map(number).collect());
                    read(values, element.bytes()).into_iter().zip(numbers).collect()
                };
                let each = values.shards().iter().zip(positions.shards()).map(on_device);
                let mut each: Vec<Slices> = each.collect();
                if is_cut {
                    assert!(each.iter().all(|found| *found == expected), "{told}");
                } else {
                    // Slices that are cut along an inner axis are not in the order of the shards.
                    let mut found = each.drain(..).flatten().collect::<Slices>();
                    if axis > 0 {
                        found.sort();
                        expected.sort();
                    }
                    assert!(found == expected, "{told}");
                }
            }
        }
    }
}

/// What no selection of shards does, which is refused before anything is launched.
pub(crate) fn selections_refused(devices: &[cubecl::Device]) {
    let data = numbers(&[6, 5]);
    let x = cut::<_>(&devices[..2], &data, &[6, 5], 1, &[0, 2]);
    let inside = largest(3, &x).run_sharded_through_host().unwrap_err();
    let expected = Some(&ShardsError::CutInside { axis: 1, outer: 0 });
    assert_eq!(source::<ShardsError>(&inside), expected, "{inside}");
    assert!(inside.kind() == ErrorKind::Shards && !inside.launched(), "{inside}");
    // The plans of such a selection are refused as its run is.
    let inside = largest(3, &x).plans().unwrap_err();
    assert_eq!(source::<ShardsError>(&inside), expected, "{inside}");
    // Axes that are not of a slice, or that have one index, do not count.
    let deep = |shape: [usize; 4]| cut::<_>(&devices[..2], &data, &shape, 2, &[0, 1]);
    let selected = |x: &Sharded| largest(3, x).over([1, 2, 3]).run_sharded_through_host();
    let inside = selected(&deep([1, 3, 2, 5])).unwrap_err();
    let expected = Some(&ShardsError::CutInside { axis: 2, outer: 1 });
    assert_eq!(source::<ShardsError>(&inside), expected, "{inside}");
    assert_eq!(selected(&deep([3, 1, 2, 5])).unwrap().values.shape(), [3, 1, 1, 3]);
    let missing = largest(3, &x).over(1).run_sharded().unwrap_err();
    let missing_of = matches!(source(&missing), Some(ShardsError::NoCollectives { .. }));
    assert!(missing_of, "{missing}");
    let few = largest(7, &x).over(0).run_sharded_through_host().unwrap_err();
    let expected = Some(&ProblemError::TooFewElements { k: 7, len: 6 });
    assert_eq!(source::<ProblemError>(&few), expected, "{few}");
    // Together they have enough, and alone they do not.
    let few = largest(6, &x).over(1).run_sharded_through_host().unwrap_err();
    let expected = Some(&ProblemError::TooFewElements { k: 6, len: 5 });
    assert_eq!(source::<ProblemError>(&few), expected, "{few}");
    let all = largest(6, &x).over(1).or_fewer().run_sharded_through_host().unwrap();
    assert_eq!(all.values.shape(), [6, 5]);
    let table = cut::<u32>(&devices[..2], &[0; 30], &[6, 5], 1, &[0, 3]);
    let other = largest(2, &x).over(1).with_positions(&table).run_sharded_through_host();
    let other = other.unwrap_err();
    assert!(matches!(source(&other), Some(ShardsError::Second { .. })), "{other}");
    let [a, b] = [&devices[0], &devices[1]];
    let whole = tensor(&a.client(), &data, &[6, 5], &[5, 1]);
    let short = tensor(&b.client(), &data[..10], &[6, 5], &[5, 1]);
    let short = Sharded::cut(0, [(a.clone(), whole), (b.clone(), short)]).unwrap();
    for axis in [0, 1] {
        let error = largest(2, &short).over(axis).run_sharded_through_host().unwrap_err();
        let of_shard = matches!(source(&error), Some(ShardsError::Shard { nth: 1, .. }));
        assert!(of_shard && !error.launched(), "{error}");
    }
    assert_eq!(largest(2, &x).over(1).plans().unwrap().len(), 2);
    // Nothing to exchange.
    let none = largest(0, &x).over(1).run_sharded_through_host().unwrap();
    assert_eq!((none.values.shape(), none.values.axis()), (&[6, 0][..], None));
}

fn shard_alone(
    client: &Client,
    data: &[f32],
    shape: &[usize],
    axis: usize,
    start: usize,
    end: usize,
) -> TensorHandle {
    let own = piece(data, shape, axis, start..end);
    let mut shape = shape.to_vec();
    shape[axis] = end - start;
    tensor(client, &own, &shape, &row_major_strides(&shape))
}

/// A thousand runs on all devices: the same bits each time, on each device, also when two threads
/// reduce at once.
#[cfg_attr(not(feature = "nccl"), allow(dead_code, reason = "they need collectives"))]
pub(crate) fn a_thousand_runs(devices: &[cubecl::Device]) {
    let shape = [1_000_003];
    let work = |turned: usize| {
        // Other data in each thread: exchanges that were swapped would show.
        let mut data = numbers(&shape);
        data.rotate_left(turned);
        data[turned] = 1e3;
        let starts: Vec<usize> =
            (0..devices.len()).map(|nth| nth * shape[0] / devices.len() + nth % 2).collect();
        let x = cut::<_>(devices, &data, &shape, 0, &starts);
        let run = || {
            let sum = reduce(Sum, &x).run_sharded().unwrap();
            let var = reduce(Var { correction: 1.0 }, &x).run_sharded().unwrap();
            let log = reduce(LogSumExp, &x).run_sharded().unwrap();
            let position = reduce(ArgMax, &x).run_sharded().unwrap();
            let bits = |sharded: &Sharded| -> Vec<u32> {
                read(sharded).concat().into_iter().map(f32::to_bits).collect()
            };
            [bits(&sum), bits(&var), bits(&log), bits(&position)]
        };
        let first = run();
        for of_devices in &first {
            assert!(of_devices.iter().all(|bits| *bits == of_devices[0]), "{first:?}");
        }
        for nth in 1..1000 {
            assert_eq!(run(), first, "run {nth}");
        }
        assert_eq!(first[3], vec![turned as u32; devices.len()]);
        first
    };
    let (one, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| work(999_999));
        (work(3), other.join().unwrap())
    });
    assert_ne!(one, other);
}
