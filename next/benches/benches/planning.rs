//! What planning costs the host, without a device: `cargo bench -p reduce-benches --bench
//! planning`.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use reduce_kernels::{
    Device, ElementType,
    planner::{
        InputSpec, OperatorClass, OutputSpec, Problem, ProblemError, choose, row_major_strides,
    },
};

const SUM: OperatorClass = OperatorClass::new("sum", 4);

fn problem(shape: &[usize], axes: &[usize]) -> Result<Problem, ProblemError> {
    let strides = row_major_strides(shape);
    let element = ElementType::F32;
    let input = InputSpec { element, shape, strides: &strides, alignment: 256 };
    Problem::new(SUM, &input, Some(axes), &OutputSpec { elements: &[element], strides: None })
}

fn planning(criterion: &mut Criterion) {
    let device = Device::h200();
    let mut group = criterion.benchmark_group("a new shape");
    let cases: [(&str, &[usize], &[usize]); 3] = [
        ("rows", &[65536, 1024], &[1]),
        ("channels", &[64, 256, 56, 56], &[0, 2, 3]),
        ("five axes", &[16, 32, 64, 32, 64], &[0, 2, 4]),
    ];
    for (name, shape, axes) in cases {
        group.bench_function(name, |bencher| {
            let mut shape = shape.to_vec();
            bencher.iter(|| {
                // Another shape each time: nothing that was planned before helps.
                shape[0] += 1;
                let problem = problem(black_box(&shape), axes).expect("a plain reduction");
                choose(&problem, &device).expect("the device can run it")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, planning);
criterion_main!(benches);
