use reduce_planner::*;
#[test]
fn dump() {
    let sum = OperatorClass {
        name: "sum",
        accumulator_bytes: 4,
        positional: false,
        defined_on_empty: true,
    };
    let cases: Vec<(ElementType, Vec<usize>, Vec<usize>)> = vec![
        (ElementType::F32, vec![1024], vec![0]),
        (ElementType::F32, vec![1 << 28], vec![0]),
        (ElementType::F32, vec![16, 1 << 22], vec![1]),
        (ElementType::F32, vec![128, 32768], vec![1]),
        (ElementType::F32, vec![512, 8192], vec![1]),
        (ElementType::F32, vec![4096, 50257], vec![1]),
        (ElementType::F32, vec![8192, 8192], vec![1]),
        (ElementType::F32, vec![65536, 1024], vec![1]),
        (ElementType::F32, vec![1 << 18, 256], vec![1]),
        (ElementType::F32, vec![1 << 20, 32], vec![1]),
        (ElementType::F32, vec![1 << 24, 8], vec![1]),
        (ElementType::F32, vec![1 << 20, 31], vec![1]),
        (ElementType::F32, vec![1 << 22, 7], vec![1]),
        (ElementType::F32, vec![1 << 19, 127], vec![1]),
        (ElementType::F32, vec![256, 1 << 18], vec![0]),
        (ElementType::F32, vec![512, 8192], vec![0]),
        (ElementType::F32, vec![8192, 8192], vec![0]),
        (ElementType::F32, vec![65536, 1024], vec![0]),
        (ElementType::F32, vec![1 << 18, 256], vec![0]),
        (ElementType::F32, vec![1 << 22, 16], vec![0]),
        (ElementType::F32, vec![1 << 20, 3], vec![0]),
        (ElementType::F32, vec![16, 65536, 32], vec![1]),
        (ElementType::F32, vec![64, 512, 1024], vec![1]),
        (ElementType::F32, vec![65536, 64, 7], vec![1]),
        (ElementType::F32, vec![131072, 64, 8], vec![1]),
        (ElementType::F32, vec![64, 256, 56, 56], vec![0, 2, 3]),
        (ElementType::F32, vec![32, 3, 224, 224], vec![0, 2, 3]),
        (ElementType::F32, vec![8, 128, 64, 512], vec![1, 3]),
        (ElementType::F32, vec![16, 32, 64, 32, 64], vec![0, 1]),
        (ElementType::F32, vec![16, 32, 64, 32, 64], vec![1, 3]),
        (ElementType::F32, vec![16, 32, 64, 32, 64], vec![2, 3]),
        (ElementType::F32, vec![16, 32, 64, 32, 64], vec![0, 2, 4]),
        (ElementType::F32, vec![16, 32, 64, 32, 64], vec![2, 3, 4]),
        (ElementType::BF16, vec![8192, 8192], vec![1]),
        (ElementType::BF16, vec![8192, 8192], vec![0]),
        (ElementType::U8, vec![1 << 30], vec![0]),
    ];
    for (e, shape, axes) in cases {
        let st = row_major_strides(&shape);
        let p = Problem::new(
            sum,
            &InputSpec { element: e, shape: &shape, strides: &st, alignment: 256 },
            Some(&axes),
            &OutputSpec { elements: &[e], strides: None },
        )
        .unwrap();
        let c = choose(&p, &Device::h200()).unwrap();
        println!(
            "{e} {shape:?} {axes:?}: {:.1} {} {:?}",
            c.expected_microseconds, c.plan.access, c.plan.schedule
        );
    }
}
