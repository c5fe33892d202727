//! The corpus: layouts and lengths around every boundary that a schedule has.

use reduce_kernels::{
    Device, ElementType, MeanVar, Sum,
    cubecl::prelude::*,
    operators::MaxWithIndex,
    planner::{Plan, Problem},
    testing::{every_plan, widest_plans},
};

use crate::{
    case::Case,
    operators::Checked,
    run::{Asked, capable_device, check, problem_of},
};

/// Every case, with lengths at and beside the boundaries of vectors, planes, cubes and splits.
pub(crate) fn corpus() -> Vec<Case> {
    let mut cases = vec![
        // Full reductions.
        Case::contiguous(&[], &[]),
        Case::contiguous(&[1], &[0]),
        Case::contiguous(&[4096], &[0]),
        Case::contiguous(&[70_001], &[0]),
        // A contiguous reduced axis.
        Case::contiguous(&[33, 128], &[1]),
        Case::contiguous(&[5, 4097], &[1]),
        Case::contiguous(&[300, 7], &[1]),
        Case::contiguous(&[3, 20_000], &[1]),
        // A contiguous kept axis.
        Case::contiguous(&[128, 36], &[0]),
        Case::contiguous(&[1023, 5], &[0]),
        Case::contiguous(&[4097, 3], &[0]),
        Case::contiguous(&[20_000, 4], &[0]),
        Case::contiguous(&[7, 1000], &[0]),
        Case::contiguous(&[9, 70, 16], &[1]),
        Case::contiguous(&[11, 64, 7], &[1]),
        // Several groups of reduced axes around kept ones.
        Case::contiguous(&[4, 6, 10, 12], &[0, 2, 3]),
        Case::contiguous(&[3, 5, 7, 9], &[1, 3]),
        Case::contiguous(&[4, 6, 5, 8, 4], &[0, 2, 4]),
        Case::contiguous(&[4, 6, 5, 8, 4], &[1, 3]),
        Case::contiguous(&[2, 3, 2, 3, 2, 3, 2, 3], &[0, 3, 4, 7]),
        // Axes of one element, and none to reduce.
        Case::contiguous(&[1, 40, 1, 9, 1], &[1, 2]),
        Case::contiguous(&[17, 1], &[1]),
        Case::contiguous(&[6, 10], &[]),
        // Padded rows: aligned with a peeled end, and not aligned.
        Case::pitched(&[37, 50], 64, &[1]),
        Case::pitched(&[37, 50], 64, &[0]),
        Case::pitched(&[90, 33], 36, &[0]),
        Case::pitched(&[9, 101], 103, &[1]),
        Case::pitched(&[9, 101], 103, &[0]),
        Case::pitched(&[3, 8, 29], 32, &[0, 2]),
        // Rows that start off a vector's boundary across outputs: several cubes to a row, several
        // reduced axes, a row that ends inside the last vector, padding, and broadcasts.
        Case::contiguous(&[70, 1001], &[0]),
        Case::contiguous(&[333, 29], &[0]),
        Case::contiguous(&[8, 3, 12, 21], &[0, 2]),
        Case::contiguous(&[9, 3, 5, 21], &[0, 2]),
        Case::contiguous(&[5, 40, 22], &[1]),
        Case::pitched(&[65, 255], 257, &[0]),
        Case::broadcast(&[6, 40, 33], &[0], &[0, 1]),
        Case::broadcast(&[6, 40, 33], &[0], &[1]),
        // Permuted, sliced and broadcast.
        Case::permuted(&[40, 96], &[1, 0], &[0]),
        Case::permuted(&[40, 96], &[1, 0], &[1]),
        Case::permuted(&[6, 8, 10, 12], &[3, 1, 0, 2], &[0, 2]),
        // Peeled runs along an axis that is not the innermost of the reduction's order.
        Case::permuted(&[5, 7, 101], &[2, 1, 0], &[0, 1]),
        Case::sliced(&[60, 64], &[1, 2], &[1]),
        Case::sliced(&[60, 64], &[1, 2], &[0]),
        Case::sliced(&[200, 33, 6], &[3, 2, 2], &[0, 2]),
        Case::broadcast(&[50, 30], &[0], &[1]),
        Case::broadcast(&[50, 30], &[0], &[0]),
        Case::broadcast(&[50, 30], &[1], &[1]),
        Case::broadcast(&[8, 300, 5], &[1], &[0, 1]),
        Case::broadcast(&[40, 50], &[0, 1], &[0, 1]),
    ];
    for length in [2, 3, 7, 8, 15, 31, 32, 63, 255, 257, 1023, 2049] {
        cases.push(Case::contiguous(&[3, length], &[1]));
        cases.push(Case::contiguous(&[length, 12], &[0]));
    }
    cases
}

/// Runs a case through each schedule, plane kernels forced where need be. Returns how many plans
/// ran.
fn run<O: Checked>(
    client: &Client,
    case: &Case,
    plans: fn(&Problem, &Device) -> Vec<Plan>,
    seed: u64,
) -> u64 {
    let problem = problem_of::<O>(client, case, ElementType::F32, Asked::default()).unwrap();
    let plans = plans(&problem, &capable_device(client));
    assert!(!plans.is_empty(), "no plan for {case:?}");
    for &plan in &plans {
        check::<O>(client, case, ElementType::F32, Some(plan), seed).unwrap();
    }
    plans.len() as u64
}

/// Every case whose place is `nth` of each `of`, through each schedule.
fn run_cases<O: Checked>(
    client: &Client,
    plans: fn(&Problem, &Device) -> Vec<Plan>,
    (nth, of): (usize, usize),
) {
    let cases: Vec<Case> = corpus().into_iter().skip(nth).step_by(of).collect();
    let mut runs = 0;
    for case in &cases {
        runs += run::<O>(client, case, plans, runs);
    }
    println!("{}: {} cases, {runs} runs", client.name(), cases.len());
}

/// Sums through each schedule: every third case in every width.
pub(crate) fn sum_in_every_width(client: &Client) {
    run_cases::<Sum>(client, every_plan, (0, 3));
}

/// Sums through each schedule: the other cases in the widest vectors. Kernels take longer to
/// compile than to run.
pub(crate) fn sum_in_the_widest(client: &Client) {
    run_cases::<Sum>(client, widest_plans, (1, 3));
    run_cases::<Sum>(client, widest_plans, (2, 3));
}

/// An operator that carries positions, on a quarter of the cases.
pub(crate) fn max_with_index(client: &Client) {
    run_cases::<MaxWithIndex>(client, widest_plans, (0, 4));
}

/// An operator of five fields, on a quarter of the cases.
pub(crate) fn mean_var(client: &Client) {
    run_cases::<MeanVar>(client, widest_plans, (1, 4));
}

/// Each case with the plan that the planner chooses.
pub(crate) fn as_chosen(client: &Client) {
    for (seed, case) in corpus().iter().enumerate() {
        check::<Sum>(client, case, ElementType::F32, None, seed as u64).unwrap();
    }
}
