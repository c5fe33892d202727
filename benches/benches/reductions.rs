//! Criterion benches for one's own machine: `cargo bench -p reduce-benches --features vulkan`. The
//! environment variable `REDUCE_BACKEND` names the backend, because criterion reads the command
//! line.

use std::process::ExitCode;

use criterion::{Criterion, Throughput};
use reduce_benches::{Case, inputs, run};
use reduce_kernels::cubecl::prelude::*;
use reduce_programs::{Backend, OnDevice, command_line::fail, on_device, wait};

/// One case per way that units can share the work; small enough for a software adapter.
const CASES: [&str; 6] = [
    "sum f32 [1048576] axis all",
    "sum f32 [1024, 1024] axis 1",
    "sum f32 [1024, 1024] axis 0",
    "max f32 [65536, 16] axis 1",
    "mean f16 [1024, 1024] axis 1",
    "sum f32 [8, 32, 56, 56] axis (0, 2, 3)",
];

struct Reductions<'a>(&'a mut Criterion);

impl OnDevice for Reductions<'_> {
    type Output = ();

    fn on(self, client: &Client, _: Backend, _: &str) {
        let mut group = self.0.benchmark_group(client.name());
        for line in CASES {
            let case: Case = line.parse().expect("the cases are written as they should be");
            let bytes = case.input_bytes();
            let inputs = inputs(client, &case, Some(64 << 20));
            let mut rotation = inputs.iter().cycle();
            group.throughput(Throughput::Bytes(bytes));
            group.bench_function(line, |bencher| {
                bencher.iter(|| {
                    let input = rotation.next().expect("there is an input");
                    run(client, &case, input, None).expect("the device has these types");
                    wait(client).expect("the device answers");
                });
            });
        }
        group.finish();
    }
}

fn main() -> ExitCode {
    let mut criterion = Criterion::default().configure_from_args();
    match on_device(None, Reductions(&mut criterion)) {
        Ok(()) => {
            criterion.final_summary();
            ExitCode::SUCCESS
        }
        Err(error) => fail("reductions", error),
    }
}
