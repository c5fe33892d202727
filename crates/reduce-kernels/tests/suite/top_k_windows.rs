//! Elements with given numbers, found in windows: beside a stable sort on the host.

use std::cmp::Ordering;

use cubecl::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, TensorDescription, cubecl, device_of,
    planner::{TopKMethod, TopKPlan},
    quantiles::quantiles,
};

use crate::{
    case::Case,
    run::{capable_device, encode, read, tensor, tensor_of},
    top_k::{Asked, Ordered, orders, random_bytes},
};

/// Plans in windows for rows of a case: units that hold the row and units that do not, and buffers
/// of as many entries as possible and of few.
fn plans(client: &Client, case: &Case, element: ElementType) -> Vec<TopKPlan> {
    let device = &capable_device(client);
    let described = TensorDescription::strided(element, case.shape.clone(), case.strides.clone());
    let k = case.reduction_len();
    let asked = Asked { k, ..orders(k).next().unwrap() }.of_input(&described);
    let asked = asked.over(case.axes.as_slice()).only_last();
    let (problem, chosen) = (asked.problem().unwrap(), asked.choose(client).unwrap().plan);
    let mut plans = Vec::new();
    for (units, loads, buffer) in [(128, 16, 256), (64, 2, 64), (256, 1, 1024)] {
        let mut plan = chosen;
        plan.method = TopKMethod::Window;
        plan.access = plan.access.with_loads_in_flight(loads.min(32 / plan.access.vector));
        (plan.units_per_slice, plan.slices_per_cube, plan.cubes_per_slice) = (units, 1, 1);
        (plan.buffer, plan.digit_bits) = (buffer, 8);
        if plan.check(&problem, device).is_ok() {
            plans.push(plan);
        }
    }
    plans
}

/// Compares the `k`-th of each row, its position and its bits, with those of a stable sort.
fn check(client: &Client, case: &Case, element: ElementType, bytes: &[u8], asked: Asked) {
    let told = format!("{element} {case:?} {asked:?}");
    let device = capable_device(client);
    let input = tensor_of(client, element, bytes, &case.shape, &case.strides);
    let found = asked.of(&input, &device).over(case.axes.as_slice()).only_last().run(client);
    let found = found.unwrap_or_else(|error| panic!("{told}: {error}"));
    let (rows, len, size) = (case.shape[0], case.shape[1], element.bytes());
    let values = read::<u8>(client, &found.values, rows * size);
    let positions = read::<u32>(client, &found.positions, rows);
    // The last by value is asked for, in whichever order elements would be put.
    let by_value = Asked { by_position: false, ..asked };
    for row in 0..rows {
        let place = |at: usize| (row * case.strides[0] + at * case.strides[1]) * size;
        let own = |at: usize| &bytes[place(at)..][..size];
        let elements: Vec<_> = (0..len).map(|at| Ordered::of(element, own(at))).collect();
        let expected = *by_value.select(&elements).last().unwrap();
        assert_eq!(positions[row] as usize, expected, "{told} row {row}");
        assert_eq!(values[row * size..][..size], *own(expected), "{told} row {row}");
    }
}

/// Elements of every type, in every order, of rows that a cube holds and that it reads again, with
/// edges that no vector takes and without.
pub(crate) fn every_type(client: &Client) {
    let mut tried = 0;
    for element in ElementType::ALL.into_iter().filter(|&element| device_of(client).has(element)) {
        for (nth, case) in [Case::contiguous(&[3, 1504], &[1]), Case::contiguous(&[3, 1301], &[1])]
            .into_iter()
            .enumerate()
        {
            // Peeled rows differ in how they are read, not in what is done with elements.
            if nth == 1 && !matches!(element, ElementType::F32 | ElementType::BF16) {
                continue;
            }
            let mut rng = StdRng::seed_from_u64(nth as u64);
            // NaN among the elements leads from windows in fixed point to those of words.
            let mut data = vec![random_bytes(element, case.span(), &mut rng)];
            if element.is_float() {
                let numbers: Vec<f64> =
                    (0..case.span()).map(|_| rng.random_range(-4.0..1.0)).collect();
                data.push(encode(element, &numbers));
            }
            for plan in plans(client, &case, element) {
                tried += 1;
                for (turn, k) in [2, 40, 652, 1300].into_iter().enumerate() {
                    for asked in orders(k).skip(turn % 2).step_by(2) {
                        let asked = Asked { plan: Some(plan), ..asked };
                        data.iter().for_each(|bytes| check(client, &case, element, bytes, asked));
                    }
                }
            }
        }
    }
    assert!(tried > 20, "{tried} plans");
}

/// Rows of which the samples tell nothing, or of which many elements are equal, and those whose
/// sampled elements are unlike all others.
pub(crate) fn rows_that_hurt(client: &Client) {
    let case = Case::contiguous(&[1, 4096], &[1]);
    let len = case.reduction_len();
    let mut rng = StdRng::seed_from_u64(5);
    let data: [(&str, Vec<f32>); 7] = [
        ("ascending", (0..len).map(|i| i as f32).collect()),
        ("equal", vec![1.5; len]),
        ("half equal", (0..len).map(|i| if i % 2 == 0 { 0.0 } else { i as f32 }).collect()),
        ("NaN", vec![f32::NAN; len]),
        ("periodic", (0..len).map(|i| if i % 16 == 0 { 1e9 } else { i as f32 }).collect()),
        ("denormal", (0..len).map(|i| f32::from_bits((i * 7919 % 100_000) as u32)).collect()),
        ("exponents", (0..len).map(|_| 2f32.powi(rng.random_range(-120..120))).collect()),
    ];
    for plan in plans(client, &case, ElementType::F32) {
        for (_, data) in &data {
            for k in [2, 100, 2048, 4000] {
                for asked in orders(k).take(2) {
                    let asked = Asked { plan: Some(plan), ..asked };
                    check(client, &case, ElementType::F32, bytemuck::cast_slice(data), asked);
                }
            }
        }
    }
}

/// Several numbers of a row, neighbours and others, and NaN that is written in their place.
pub(crate) fn several_numbers(client: &Client) {
    let device = capable_device(client);
    let (rows, len) = (4, 1504);
    let case = Case::contiguous(&[rows, len], &[1]);
    let mut rng = StdRng::seed_from_u64(9);
    let mut data: Vec<f32> = (0..rows * len).map(|_| rng.random_range(-1.0..1.0)).collect();
    // The samples of the second row have no NaN.
    data[len + 1001] = f32::NAN;
    data[3 * len..].fill(f32::NAN);
    let x = tensor(client, &data, &case.shape, &case.strides);
    for plan in plans(client, &case, ElementType::F32) {
        for q in [&[0.5][..], &[0.25, 0.75], &[0.0, 1.0]] {
            let asked = quantiles(q, &x).over(1).with_plan(plan).plan_for(&device);
            let found = read::<f32>(client, &asked.run(client).unwrap(), rows * q.len());
            for (nth, &found) in found.iter().enumerate() {
                let (q, row) = (q[nth / rows], nth % rows);
                if row % 2 == 1 {
                    assert!(found.is_nan(), "{plan} {q} row {row}: {found}");
                    continue;
                }
                let mut sorted = data[row * len..][..len].to_vec();
                sorted.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
                let at = (len - 1) as f64 * q;
                let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
                let expected = f64::from(below) + f64::from(above - below) * at.fract();
                assert!((f64::from(found) - expected).abs() < 1e-6, "{plan} {q} row {row}");
            }
        }
    }
}
