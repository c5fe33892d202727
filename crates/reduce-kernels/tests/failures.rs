//! What happens when memory runs out, and after launches that went wrong: never a wrong value that
//! nothing tells, and afterwards everything works again.
//!
//! An executable of its own, because a failure on a device's thread must not meet other tests.
#![cfg(any(feature = "cuda-llvm", feature = "wgpu", feature = "vulkan"))]

use reduce_kernels::{
    Device, ElementType, ErrorKind, ReduceError, Sum, confirm,
    cubecl::{self, MemoryScope, prelude::*, std::tensor::TensorHandle},
    device_of,
    list::reduce_list,
    planner::{Access, Combine, Direction, Merge, Plan, Schedule, row_major_strides},
    reduce, storage_type, sum,
};

/// A row-major tensor of f32.
fn tensor(client: &Client, data: &[f32], shape: &[usize]) -> TensorHandle {
    let handle = client.create_from_slice(f32::as_bytes(data));
    TensorHandle::new(handle, shape, row_major_strides(shape), storage_type(ElementType::F32))
}

fn read(client: &Client, tensor: &TensorHandle) -> Vec<f32> {
    let bytes = client.read_one(tensor.handle.clone()).expect("the device answers");
    f32::from_bytes(&bytes).to_vec()
}

/// Rows of small whole numbers, whose sums are exact, and their sums.
fn rows(count: usize, len: usize) -> (Vec<f32>, Vec<f32>) {
    let data: Vec<f32> = (0..count * len).map(|i| ((i * 7) % 23) as f32 - 9.0).collect();
    let sums = data.chunks(len).map(|row| row.iter().sum()).collect();
    (data, sums)
}

/// A split of single elements, by `cubes` cubes of `units` units an output.
fn split(cubes: u32, units: u32, merge: Merge) -> Plan {
    let access = Access::new(Direction::Along);
    let combine = Combine::Shared;
    Plan::new(
        access,
        Schedule::Split {
            cubes_per_output: cubes,
            units_per_output: units,
            outputs_per_cube: 1,
            combine,
            merge,
        },
    )
}

/// The sums of rows with a plan, into an output that was poisoned.
fn sums(
    client: &Client,
    device: &Device,
    shape: [usize; 2],
    plan: Plan,
) -> Result<(Vec<f32>, Vec<f32>), ReduceError> {
    let (data, expected) = rows(shape[0], shape[1]);
    let input = tensor(client, &data, &shape);
    let output = tensor(client, &vec![-1e30; shape[0]], &[shape[0], 1]);
    let reduction = reduce(Sum, &input).over([1]).with_plan(plan).plan_for(device);
    reduction.run_into(client, output.clone().binding())?;
    Ok((read(client, &output), expected))
}

/// Launches that left words behind, as an aborted one would, spoil no later launch: here cubes of
/// one unit, which Mesa's adapter does not run rightly, by a device that claims planes of one unit.
fn leftovers(client: &Client) {
    let device = device_of(client);
    if !device.wide_atomics {
        return;
    }
    let mut tiny = device.clone();
    (tiny.plane_size_min, tiny.plane_size_max) = (1, 1);
    for _ in 0..4 {
        // Its own result is not trusted.
        sums(client, &tiny, [1, 3000], split(33, 1, Merge::LastCube)).unwrap();
        let sound = split(9, device.plane_size_max, Merge::LastCube);
        let (found, expected) = sums(client, &device, [4, 6144], sound).unwrap();
        assert_eq!(found, expected, "after words that were not all taken");
    }
}

/// Launches of many sizes share their words, so that each finds those of others in its places.
fn shared_words(client: &Client) {
    let device = device_of(client);
    if !device.wide_atomics {
        return;
    }
    for round in 0..30 {
        let (rows, cubes) = (1 + round % 7, 2 + (round * 5) % 31);
        let plan = split(cubes as u32, device.plane_size_max, Merge::LastCube);
        let (found, expected) = sums(client, &device, [rows, 5000 + round], plan).unwrap();
        assert_eq!(found, expected, "round {round}: {rows} rows, {cubes} cubes");
    }
}

/// A thread keeps the memory of a few streams, however many it uses.
fn many_streams(client: &Client) {
    const STREAMS: u64 = 64;
    let device = device_of(client);
    let merge = match device.wide_atomics {
        true => Merge::LastCube,
        false => Merge::SecondLaunch { units_per_output: 1, outputs_per_cube: 1 },
    };
    let plan = split(5, device.plane_size_max, merge);
    let on_stream = |stream: u64| {
        let mut id = client.empty(1).stream;
        id.value = 1_000_000 + stream;
        let mut client = client.clone();
        // SAFETY: every tensor of the stream is made, used and read through this client.
        unsafe { client.set_stream(id) };
        client
    };
    for stream in 0..STREAMS {
        let (found, expected) = sums(&on_stream(stream), &device, [2, 4000], plan).unwrap();
        assert_eq!(found, expected, "stream {stream}");
    }
    // The first again, whose memory is gone by now.
    let (found, expected) = sums(&on_stream(0), &device, [2, 4000], plan).unwrap();
    assert_eq!(found, expected);
    let holds = |stream: &u64| {
        let client = on_stream(*stream);
        client.memory_cleanup().unwrap();
        client.memory_report(MemoryScope::CurrentStream).usage().bytes_in_use > 0
    };
    let holding = (0..STREAMS).filter(holds).count();
    assert!((1..=8).contains(&holding), "{holding} of {STREAMS} streams hold memory");
}

/// A thread keeps the tables of lists up to a number of bytes, however many different lists it
/// reduces, and a list that is used all the time stays right.
fn many_lists(client: &Client) {
    const TENSORS: usize = 500;
    const LISTS: usize = 300;
    /// What the cache keeps on the device, and as much again for pages that are partly used.
    const MOST_BYTES: u64 = 8 << 20;
    let (data, _) = rows(1, 2 * LISTS);
    let input = tensor(client, &data, &[data.len()]);
    let list = |len: usize| -> Vec<TensorHandle> {
        let lens = core::iter::once(len).chain(core::iter::repeat_n(3, TENSORS - 1));
        let view = |len| {
            TensorHandle::new_contiguous(
                [len],
                input.handle.clone(),
                storage_type(ElementType::F32),
            )
        };
        lens.map(view).collect()
    };
    let sum_of = |len: usize| {
        let tensors = list(len);
        read(client, &reduce_list(Sum, &tensors).run(client).unwrap().all)[0]
    };
    let expected = |len: usize| -> f32 {
        let first: f32 = data[..len].iter().sum();
        first + (TENSORS - 1) as f32 * data[..3].iter().sum::<f32>()
    };
    let in_use = || {
        client.memory_cleanup().unwrap();
        client.memory_report(MemoryScope::CurrentStream).usage().bytes_in_use
    };
    let before = in_use();
    for len in 1..=LISTS {
        assert_eq!(sum_of(len), expected(len), "the list of {len}");
        if len % 10 == 0 {
            assert_eq!(sum_of(1), expected(1), "the first list again, after {len}");
        }
    }
    let kept = in_use() - before;
    assert!(kept <= MOST_BYTES, "{kept} bytes are kept after {LISTS} lists");
}

/// Takes the device's memory, down to pieces of a page, and gives what it took.
fn fill(client: &Client) -> Vec<TensorHandle> {
    let mut taken = Vec::new();
    let mut bytes = client.properties().memory.max_page_size.min(8 << 30) as usize;
    while bytes >= 4096 {
        let handle = client.empty(bytes);
        let piece =
            TensorHandle::new_contiguous([bytes / 4], handle, storage_type(ElementType::F32));
        match confirm(client, [&piece]) {
            Ok(()) if taken.len() < 20_000 => taken.push(piece),
            _ => bytes /= 2,
        }
    }
    taken
}

/// Real exhaustion. While the memory is full, every reduction is an error, or right, or found by
/// `confirm`; when it is free again, everything works on the thread that it failed on.
fn exhaustion(client: &Client) {
    let device = device_of(client);
    if !device.plane_operations {
        // A software adapter's memory is the machine's own.
        return;
    }
    let (data, expected) = rows(64, 1 << 16);
    let input = tensor(client, &data, &[64, 1 << 16]);
    let outputs: Vec<TensorHandle> =
        (0..3).map(|_| tensor(client, &[-1e30; 64], &[64, 1])).collect();
    confirm(client, outputs.iter().chain([&input])).unwrap();
    let merges =
        [Merge::LastCube, Merge::SecondLaunch { units_per_output: 1, outputs_per_cube: 1 }];
    let plans = merges.map(|merge| split(300, device.plane_size_max, merge));
    let problem = reduce(Sum, &input).over([1]).problem().unwrap();
    let chosen = reduce(Sum, &input).over([1]).choose(client).unwrap().plan;
    let plans: Vec<Plan> = plans
        .into_iter()
        .filter(|plan| plan.check(&problem, &device).is_ok())
        .chain([chosen])
        .collect();

    let taken = fill(client);
    println!("{} pieces taken", taken.len());
    for (&plan, output) in plans.iter().zip(&outputs) {
        let reduction = reduce(Sum, &input).over([1]).with_plan(plan);
        let said = reduction
            .run_into(client, output.clone().binding())
            .and_then(|()| confirm(client, [&input, output]));
        println!("{plan}: {said:?}");
        if said.is_ok() {
            assert_eq!(read(client, output), expected, "called right while memory is full: {plan}");
        }
    }
    // As many results as elements, in memory that is not there.
    let copy = reduce(Sum, &input).over(Vec::new()).run(client).unwrap();
    match confirm(client, [&input, &copy]) {
        Ok(()) => assert_eq!(read(client, &copy), data),
        Err(error) => println!("copy: {error}"),
    }

    drop((taken, copy));
    client.memory_cleanup().unwrap();
    // What failed while memory was full is told once.
    let _ = confirm(client, [&input]);
    for plan in plans {
        let output = tensor(client, &[-1e30; 64], &[64, 1]);
        let reduction = reduce(Sum, &input).over([1]).with_plan(plan);
        reduction.run_into(client, output.clone().binding()).unwrap();
        confirm(client, [&input, &output]).unwrap();
        assert_eq!(read(client, &output), expected, "when memory is free again: {plan}");
    }
    let copy = reduce(Sum, &input).over(Vec::new()).run(client).unwrap();
    confirm(client, [&input, &copy]).unwrap();
    assert_eq!(read(client, &copy), data);
}

/// More bytes than any device has.
const NEVER_ALLOCATED: usize = 1 << 50;

/// A row-major tensor in a buffer that no device has memory for. CubeCL finds that out after it has
/// given the handle away.
fn absent(client: &Client, shape: &[usize]) -> TensorHandle {
    let handle = client.empty(NEVER_ALLOCATED);
    TensorHandle::new(handle, shape, row_major_strides(shape), storage_type(ElementType::F32))
}

/// An input that was never allocated, and a result that was never written because of it: `confirm`
/// tells, although the call has returned `Ok`.
fn dead_tensors(client: &Client) {
    let (data, expected) = rows(4, 1000);
    let input = tensor(client, &data, &[4, 1000]);
    let absent = absent(client, &[4, 1000]);
    let results = sum(client, &absent, [1]).unwrap();
    let bytes_of = |tensors: [&TensorHandle; 2]| -> u64 {
        let error = confirm(client, tensors).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
        let message = error.to_string();
        let bytes = message.strip_prefix("tensor 0, ").unwrap_or_else(|| panic!("{error}"));
        let bytes = bytes.split_once(" bytes, was never written: ");
        bytes.unwrap_or_else(|| panic!("{error}")).0.parse().expect("it is a number of bytes")
    };
    assert_eq!(bytes_of([&absent, &results]), NEVER_ALLOCATED as u64);
    assert!(bytes_of([&results, &input]) >= 16);
    // Nothing of it stays.
    let results = sum(client, &input, [1]).unwrap();
    confirm(client, [&input, &results]).unwrap();
    assert_eq!(read(client, &results), expected);
}

/// The tests that every backend has, on the client that `client` gives.
macro_rules! on_every_backend {
    () => {
        #[test]
        fn launches_that_left_words_spoil_no_later_one() {
            leftovers(&client());
        }

        #[test]
        fn launches_share_their_words() {
            shared_words(&client());
        }

        #[test]
        fn a_thread_keeps_the_memory_of_a_few_streams() {
            many_streams(&client());
        }

        #[test]
        fn a_thread_keeps_the_tables_of_a_few_lists() {
            many_lists(&client());
        }

        #[test]
        fn full_memory() {
            exhaustion(&client());
        }

        #[test]
        fn tensors_that_were_not_allocated_are_found_by_confirm() {
            dead_tensors(&client());
        }
    };
}

#[cfg(feature = "cuda-llvm")]
mod cuda {
    use super::*;

    fn client() -> Client {
        cubecl::Device::cuda(0).expect("a GPU").client()
    }

    on_every_backend!();
}

#[cfg(feature = "vulkan")]
mod spirv {
    use super::*;

    fn client() -> Client {
        cubecl::Device::from(cubecl::wgpu::WgpuDevice::default()).client()
    }

    on_every_backend!();
}

#[cfg(all(feature = "wgpu", not(feature = "vulkan")))]
mod wgsl {
    use std::{error::Error, sync::LazyLock};

    use reduce_kernels::{
        cubecl::wgpu::{
            AutoGraphicsApi, RuntimeOptions, WgpuDevice, WgpuSetup, init_device, init_setup,
        },
        sharded::{Sharded, ShardsError},
    };

    use super::*;

    static SETUP: LazyLock<WgpuSetup> = LazyLock::new(|| {
        init_setup::<AutoGraphicsApi>(&WgpuDevice::default(), RuntimeOptions::default())
    });

    /// The error of the planner, of shards or of a call within that a call failed with.
    fn source<E: Error + 'static>(error: &ReduceError) -> Option<&E> {
        error.source()?.downcast_ref()
    }

    /// A name of its own for the default adapter.
    fn device() -> cubecl::Device {
        init_device(SETUP.clone(), RuntimeOptions::default()).into()
    }

    fn client() -> Client {
        device().client()
    }

    on_every_backend!();

    /// A tensor of rows, one on each device, and the sums of its columns.
    fn rows_on(devices: &[cubecl::Device], len: usize) -> (Sharded, Vec<f32>) {
        let (data, _) = rows(devices.len(), len);
        let sums = (0..len).map(|at| data.iter().skip(at).step_by(len).sum()).collect();
        let shards = devices.iter().zip(data.chunks(len));
        let shards =
            shards.map(|(device, row)| (device.clone(), tensor(&device.client(), row, &[1, len])));
        (Sharded::cut(0, shards.collect::<Vec<_>>()).unwrap(), sums)
    }

    /// An input that is not there is found before an exchange, and says that nothing was launched.
    fn dead_exchanges(devices: &[cubecl::Device]) {
        let works = || {
            let (x, expected) = rows_on(devices, 500);
            let sums = reduce(Sum, &x).over(0).run_sharded_through_host().unwrap();
            for shard in sums.shards() {
                assert_eq!(read(shard.client(), shard.tensor())[..500], expected);
            }
        };
        for _ in 0..2 {
            works();
            let shards = devices.iter().enumerate().map(|(nth, device)| {
                let shape = [1, 500];
                let shard = match nth {
                    1 => absent(&device.client(), &shape),
                    _ => tensor(&device.client(), &[1.0; 500], &shape),
                };
                (device.clone(), shard)
            });
            let x = Sharded::cut(0, shards.collect::<Vec<_>>()).unwrap();
            let error = reduce(Sum, &x).over(0).run_sharded_through_host().unwrap_err();
            assert!(!error.launched(), "{error}");
            let Some(ShardsError::Shard { nth: 1, error }) = source(&error) else {
                panic!("{error}")
            };
            assert_eq!(error.kind(), ErrorKind::Device, "{error}");
            assert!(error.to_string().starts_with("tensor 0, "), "{error}");
            assert!(error.to_string().contains(" bytes, was never written: "), "{error}");
        }
        works();
    }

    /// A launch that a device refuses is an error, and not an exchange of whatever the words held
    /// before: here cubes of more units than the device has, by a device that claims them.
    fn refused_launches(devices: &[cubecl::Device]) {
        let client = devices[0].client();
        let mut large = device_of(&client);
        large.max_units_per_cube *= 4;
        let plan = Plan::new(
            Access::new(Direction::Along),
            Schedule::Unit { units_per_cube: large.max_units_per_cube },
        );
        let (x, expected) = rows_on(devices, 500);
        let sums = || reduce(Sum, &x).over(0);
        for _ in 0..2 {
            let refused = sums().with_plan(plan).plan_for(&large).run_sharded_through_host();
            let error = refused.unwrap_err();
            assert!(error.launched(), "{error}");
            let before: &ReduceError = source(&error).expect("it says what failed");
            let Some(ShardsError::Shard { nth: 0, error }) = source(before) else {
                panic!("{error}")
            };
            assert_eq!(error.kind(), ErrorKind::Device, "{error}");
            assert!(error.to_string().starts_with("the device failed: "), "{error}");
            // The errors of all devices have been told.
            let found = sums().run_sharded_through_host().unwrap();
            for shard in found.shards() {
                assert_eq!(read(shard.client(), shard.tensor())[..500], expected);
            }
        }
    }

    #[test]
    fn exchanges_say_whether_something_was_launched() {
        dead_exchanges(&[(); 3].map(|()| device()));
    }

    #[test]
    fn a_refused_launch_is_an_error_of_the_exchange() {
        refused_launches(&[(); 3].map(|()| device()));
    }
}
