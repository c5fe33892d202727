//! Random shapes, strides, axes and plans, shrunk by proptest where one fails.

use proptest::{
    prelude::*,
    test_runner::{Config, FileFailurePersistence, RngSeed, TestRunner},
};
use reduce_kernels::{
    ArgMax, ElementType, Sum, cubecl::prelude::*, planner::span, testing::every_plan,
};

use crate::{
    case::Case,
    run::{Asked, capable_device, check, problem_of},
};

/// Most elements of a buffer: enough for every schedule, little enough for a software adapter.
const MOST_ELEMENTS: usize = 40_000;

/// A tensor of rank 0 to 6 whose axes lie in memory in any order, with gaps or broadcast, and any
/// subset of its axes.
fn any_case() -> impl Strategy<Value = Case> {
    let extent = prop_oneof![Just(1usize), 2usize..6, 2usize..40, 60usize..70, 250usize..1100];
    let gap = prop_oneof![4 => Just(1usize), 1 => Just(0usize), 1 => 2usize..4];
    let pad = prop_oneof![4 => Just(0usize), 1 => 1usize..5];
    let axis = (extent, gap, pad, any::<bool>());
    (0usize..=6)
        .prop_flat_map(move |rank| {
            let axes = prop::collection::vec(axis.clone(), rank);
            (axes, Just((0..rank).collect::<Vec<_>>()).prop_shuffle())
        })
        .prop_map(|(axes, order)| {
            let mut strides = vec![0; axes.len()];
            let mut next = 1;
            for &axis in &order {
                let (extent, gap, pad, _) = axes[axis];
                strides[axis] = next * gap;
                next = next * extent * gap.max(1) + pad;
            }
            Case {
                shape: axes.iter().map(|axis| axis.0).collect(),
                strides,
                axes: (0..axes.len()).filter(|&axis| axes[axis].3).collect(),
            }
        })
        .prop_filter("fits", |case| {
            let elements: usize = case.shape.iter().product();
            elements <= 4 * MOST_ELEMENTS
                && span(&case.shape, &case.strides).is_some_and(|span| span <= MOST_ELEMENTS)
        })
}

/// Random problems, each as chosen and with one plan picked from all that apply.
pub(crate) fn problems(client: &Client) {
    let device = capable_device(client);
    let config = Config {
        cases: 200,
        // The same problems every time: a failure here must fail in CI too.
        rng_seed: RngSeed::Fixed(20_261_121),
        failure_persistence: None::<Box<FileFailurePersistence>>.map(|file| file as _),
        max_global_rejects: 100_000,
        ..Config::default()
    };
    let strategy = (any_case(), any::<prop::sample::Index>(), any::<u64>());
    TestRunner::new(config)
        .run(&strategy, |(case, pick, seed)| {
            check::<Sum>(client, &case, ElementType::F32, None, seed).unwrap();
            let problem =
                problem_of::<ArgMax>(client, &case, ElementType::F32, Asked::default()).unwrap();
            let plans = every_plan(&problem, &device);
            let plan = plans[pick.index(plans.len())];
            check::<ArgMax>(client, &case, ElementType::F32, Some(plan), seed).unwrap();
            Ok(())
        })
        .unwrap();
}
