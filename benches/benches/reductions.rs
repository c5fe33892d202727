//! Criterion benches for one's own machine: `cargo bench -p reduce-benches --features vulkan`.
#![cfg_attr(
    not(any(feature = "cuda", feature = "wgpu", feature = "vulkan")),
    allow(unused, reason = "without a backend there is no device")
)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use reduce_benches::{Case, inputs, run};
use reduce_kernels::cubecl::{future, prelude::*};

/// One case per way that units can share the work; small enough for a software adapter.
const CASES: [&str; 6] = [
    "sum f32 [1048576] axis all",
    "sum f32 [1024, 1024] axis 1",
    "sum f32 [1024, 1024] axis 0",
    "max f32 [65536, 16] axis 1",
    "mean f16 [1024, 1024] axis 1",
    "sum f32 [8, 32, 56, 56] axis (0, 2, 3)",
];

fn on<R: Runtime>(criterion: &mut Criterion) {
    let client = R::client(&R::Device::default());
    let mut group = criterion.benchmark_group(R::name(&client));
    for line in CASES {
        let case: Case = line.parse().expect("the cases are written as they should be");
        let bytes = case.input_bytes();
        let inputs = inputs(&client, &case, Some(64 << 20));
        let mut rotation = inputs.iter().cycle();
        group.throughput(Throughput::Bytes(bytes));
        group.bench_function(line, |bencher| {
            bencher.iter(|| {
                let input = rotation.next().expect("there is an input");
                run(&client, &case, input, None).expect("the device has these types");
                future::block_on(client.sync()).expect("the device answers");
            });
        });
    }
    group.finish();
}

fn benches(criterion: &mut Criterion) {
    #[cfg(feature = "cuda")]
    on::<reduce_kernels::cubecl::cuda::CudaRuntime>(criterion);
    #[cfg(any(feature = "wgpu", feature = "vulkan"))]
    on::<reduce_kernels::cubecl::wgpu::WgpuRuntime>(criterion);
    #[cfg(not(any(feature = "cuda", feature = "wgpu", feature = "vulkan")))]
    {
        let _ = criterion;
        eprintln!("no backend is compiled in: add --features cuda, wgpu or vulkan");
    }
}

criterion_group!(reductions, benches);
criterion_main!(reductions);
