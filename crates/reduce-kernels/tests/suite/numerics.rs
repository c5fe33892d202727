//! The bounds of docs/SEMANTICS.md on rounding, overflow and underflow.

use reduce_kernels::{
    ArgMax, ArgMin, ElementType, Mean, MeanVar, NormL2, Std, Sum, Var,
    cubecl::prelude::*,
    device_of,
    operators::{LogSumExp, NanArgMax, NanMax, NanStd, NanVar, NormP},
    planner::Plan,
    reduce,
    testing::widest_plans,
};

use crate::{
    case::Case,
    operators::Checked,
    run::{Asked, Element, capable_device, problem_of, read, results, results_of, tensor},
};

/// A plan of each schedule for a row-major tensor of f32.
fn every_plan<O: Checked>(client: &Client, shape: &[usize], axes: &[usize]) -> Vec<Plan> {
    let problem =
        problem_of::<O>(client, &Case::contiguous(shape, axes), ElementType::F32, Asked::default())
            .unwrap();
    widest_plans(&problem, &capable_device(client))
}

/// Each of `found` within `bound` of `expected`, relative to it.
fn assert_close(found: &[f32], expected: f64, bound: f64, what: &str) {
    for &found in found {
        let error = (f64::from(found) - expected).abs() / expected.abs();
        assert!(error <= bound, "{what}: {found}, expected {expected}: off by {error:e}");
    }
}

/// A block that holds an element which it cannot take is pushed one by one: NaN, an infinity, an
/// element whose square overflows or vanishes, or zeros before the first other element. The result
/// is right wherever that element stands, in whole blocks and in the last one, along and across.
pub(crate) fn rare_elements_anywhere(client: &Client) {
    const LEN: usize = 1030;
    fn check<O: Checked>(client: &Client, bound: f64) {
        // The naive logarithm of a sum of exponentials is NaN if an element is infinite.
        let is_infinite = |row: &[f64]| O::NAME == "logsumexp" && row.contains(&f64::INFINITY);
        for (shape, axis) in [([2, LEN], 1), ([LEN, 2], 0)] {
            let at = |row: usize, i: usize| if axis == 1 { row * LEN + i } else { i * 2 + row };
            for plan in every_plan::<O>(client, &shape, &[axis]) {
                for rare in [1e30, 1e-30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    for (place, zeros) in [(0, 0), (517, 40), (LEN - 1, 0)] {
                        let element = |i: usize| match i {
                            _ if i == place => rare,
                            _ if i < zeros => 0.0,
                            _ => ((i * 37) % 23) as f32 - 11.0,
                        };
                        let mut data = vec![1.0f32; 2 * LEN];
                        (0..LEN).for_each(|i| data[at(1, i)] = element(i));
                        let found: Vec<f32> =
                            results(client, O::operator(), &data, &shape, &[axis], Some(plan));
                        let row: Vec<f64> = (0..LEN).map(|i| f64::from(element(i))).collect();
                        let expected =
                            if is_infinite(&row) { f64::INFINITY } else { O::naive(&row)[0] };
                        let found = f64::from(found[1]);
                        let same = found == expected || (found.is_nan() && expected.is_nan());
                        let close = (found - expected).abs() <= bound * expected.abs();
                        let what = format!("{} of {rare} at {place}, {plan}", O::NAME);
                        assert!(same || close, "{what}: {found}, expected {expected}");
                    }
                }
            }
        }
    }
    check::<Std>(client, 1e-5);
    check::<NanStd>(client, 1e-5);
    check::<NormL2>(client, 1e-6);
    check::<NormP>(client, 1e-5);
    check::<LogSumExp>(client, 1e-6);
    check::<NanMax>(client, 0.0);
}

/// Elements that are the last of all values in an operator's order still have a position: the
/// first, if all elements are alike.
pub(crate) fn last_values_have_positions(client: &Client) {
    const LEN: usize = 530;
    fn check<O: Checked, E: Element>(client: &Client, operator: O, last: E) {
        for (shape, axis) in [([2, LEN], 1), ([LEN, 2], 0)] {
            for plan in every_plan::<O>(client, &shape, &[axis]) {
                let data = vec![last; 2 * LEN];
                let found: Vec<u32> = results(client, operator, &data, &shape, &[axis], Some(plan));
                assert_eq!(found, [0, 0], "{} of {last:?}, {plan}", O::NAME);
            }
        }
    }
    check(client, ArgMax, f32::NEG_INFINITY);
    check(client, ArgMin, f32::INFINITY);
    check(client, NanArgMax, f32::NEG_INFINITY);
    check(client, NanArgMax, f32::NAN);
    check(client, ArgMax, i32::MIN);
    check(client, ArgMax, 0u32);
    check(client, ArgMin, u32::MAX);
}

/// What lies in memory between the rows of a tensor makes no difference to the bits of any result,
/// whatever path an operator would take for it.
pub(crate) fn gaps_make_no_difference(client: &Client) {
    const SHAPE: [usize; 2] = [300, 9];
    const PITCH: usize = 11;
    fn check<O: Checked>(client: &Client) {
        let case = Case::pitched(&SHAPE, PITCH, &[0]);
        let asked = Asked::default();
        let problem = problem_of::<O>(client, &case, ElementType::F32, asked).unwrap();
        let plans = widest_plans(&problem, &capable_device(client));
        assert!(plans.iter().any(|plan| plan.access.realigned));
        for plan in plans {
            let with_gaps_of = |gap: f32| -> Vec<f32> {
                let element = |i: usize| match i % PITCH < SHAPE[1] {
                    true => ((i * 37) % 23) as f32 * 0.37 - 4.0,
                    false => gap,
                };
                let data: Vec<f32> = (0..SHAPE[0] * PITCH).map(element).collect();
                let x = tensor(client, &data, &SHAPE, &[PITCH, 1]);
                results_of(client, O::operator(), &x, &[0], Some(plan))
            };
            let expected = with_gaps_of(1.0);
            for gap in [f32::NAN, f32::INFINITY, 1e30, 0.0] {
                assert_eq!(with_gaps_of(gap), expected, "{} beside {gap}, {plan}", O::NAME);
            }
        }
    }
    check::<Std>(client);
    check::<NormL2>(client);
    check::<LogSumExp>(client);
    check::<NanMax>(client);
}

/// Sums of f32 are off by (512 + 2 log2 n) half-ulps of the sum of magnitudes at most, under every
/// schedule, one unit alone included. A million times 0.1, one after the other, would be off by
/// 900; so many for one unit are too many on Mesa's software adapter, which leaves loops after
/// 65535 steps.
pub(crate) fn long_sums(client: &Client) {
    let software = !device_of(client).plane_operations;
    let n = if software { 1usize << 16 } else { 1 << 20 };
    let bound = (512.0 + 2.0 * (n as f64).log2()) * f64::from(f32::EPSILON) / 2.0;
    let exact = n as f64 * f64::from(0.1f32);
    let data = vec![0.1f32; 4 * n];
    for (shape, axis) in [([1, n], 1), ([n, 4], 0)] {
        let held = shape.iter().product();
        for plan in every_plan::<Sum>(client, &shape, &[axis]) {
            let sums: Vec<f32> = results(client, Sum, &data[..held], &shape, &[axis], Some(plan));
            assert_close(&sums, exact, bound, &plan.to_string());
            let means: Vec<f32> = results(client, Mean, &data[..held], &shape, &[axis], Some(plan));
            assert_close(&means, f64::from(0.1f32), bound, &plan.to_string());
        }
    }
    if software {
        return;
    }
    // A share of 2^22 elements per lane, longer than the tree of chains has room for.
    let data = vec![0.1f32; 1 << 24];
    let unit = every_plan::<Sum>(client, &[data.len()], &[0])
        .into_iter()
        .find(|plan| plan.schedule.units_per_output() == 1)
        .expect("one unit can always do it");
    let sum: Vec<f32> = results(client, Sum, &data, &[data.len()], &[0], Some(unit));
    assert_close(&sum, data.len() as f64 * f64::from(0.1f32), 2e-4, "one unit alone");
}

/// Variances far from zero: at 1e8 with a spread of 1 in f64, and with a spread of a few units in
/// the last place in f32, where the mean itself is no f32.
pub(crate) fn variance_far_from_zero(client: &Client) {
    let n = 3000;
    let steps: Vec<f64> = (0..n).map(|i| f64::from((i * 37) % 11 - 5)).collect();
    let exact = Var::naive(&steps)[0];
    // Neighbouring f32 are 8 apart at 1e8.
    let data: Vec<f32> = steps.iter().map(|step| (1e8 + 8.0 * step) as f32).collect();
    for plan in every_plan::<Var>(client, &[n as usize], &[0]) {
        let var = Var { correction: 1.0 };
        let found: Vec<f32> = results(client, var, &data, &[n as usize], &[0], Some(plan));
        assert_close(&found, 64.0 * exact, 1e-5, &plan.to_string());
        let both = MeanVar { correction: 0.0 };
        let found: Vec<f32> = results(client, both, &data, &[n as usize], &[0], Some(plan));
        assert_close(
            &found,
            data.iter().map(|&x| f64::from(x)).sum::<f64>() / f64::from(n),
            1e-7,
            "mean",
        );
    }
    let nan_var = NanVar { correction: 1.0 };
    let found: Vec<f32> = results(client, nan_var, &data, &[n as usize], &[0], None);
    assert_close(&found, 64.0 * exact, 1e-5, "nanvar");
    if device_of(client).has(ElementType::F64) {
        let data: Vec<f64> = steps.iter().map(|step| 1e8 + step / 5.0).collect();
        let found: Vec<f64> =
            results(client, Var { correction: 1.0 }, &data, &[n as usize], &[0], None);
        let error = (found[0] - exact / 25.0).abs() / exact;
        // The elements themselves are rounded to 1.5e-8.
        assert!(error <= 1e-9, "{found:?}, expected {}: off by {error:e}", exact / 25.0);
    }
    let one: Vec<f32> = results(client, Var { correction: 1.0 }, &[3f32], &[1], &[0], None);
    assert!(one[0].is_nan(), "one element less a correction of one leaves nothing: {one:?}");
}

/// Norms, variances and deviations of elements whose squares no f32 holds, small and large, and of
/// both together.
pub(crate) fn extreme_magnitudes(client: &Client) {
    let n = 5000usize;
    let steps: Vec<f64> = (0..n).map(|i| ((i * 37) % 23) as f64 - 11.0).collect();
    let has_wide = device_of(client).has(ElementType::F64);
    // 1e8 and 1e-10 are on both sides of where scales change, as 1e-11 is for norms.
    for size in [1e20, 1e-30, 1e34, 1e-34, 1.0, 1e8, 1e-10, 1e-11] {
        let data: Vec<f32> = steps.iter().map(|step| (step * size) as f32).collect();
        let exact: Vec<f64> = data.iter().map(|&value| f64::from(value)).collect();
        for plan in every_plan::<NormL2>(client, &[n], &[0]) {
            let found: Vec<f32> = results(client, NormL2, &data, &[n], &[0], Some(plan));
            assert_close(&found, NormL2::naive(&exact)[0], 1e-6, &format!("norm at {size}"));
        }
        for plan in every_plan::<Std>(client, &[n], &[0]) {
            let std = Std { correction: 0.0 };
            let found: Vec<f32> = results(client, std, &data, &[n], &[0], Some(plan));
            assert_close(&found, Std::naive(&exact)[0], 1e-5, &format!("std at {size}, {plan}"));
        }
        let found: Vec<f32> = results(client, NormP { p: 3.0 }, &data, &[n], &[0], None);
        let scaled: Vec<f64> = exact.iter().map(|value| value / size).collect();
        assert_close(&found, NormP::naive(&scaled)[0] * size, 1e-4, &format!("norm_p at {size}"));
        if has_wide {
            let var = Var { correction: 0.0 };
            let found: Vec<f64> = results(client, var, &data, &[n], &[0], None);
            let expected = Std::naive(&exact)[0].powi(2);
            assert!((found[0] - expected).abs() <= 1e-12 * expected, "{found:?}, {expected}");
        }
    }
    // A variance that f32 holds, of elements whose sum of squares it does not.
    let data: Vec<f32> = steps.iter().map(|step| (step * 1e18) as f32).collect();
    let exact: Vec<f64> = data.iter().map(|&value| f64::from(value)).collect();
    let var: Vec<f32> = results(client, Var { correction: 0.0 }, &data, &[n], &[0], None);
    assert_close(&var, Std::naive(&exact)[0].powi(2), 1e-5, "variance near the end of the range");
    let equal: Vec<f32> = results(client, Var { correction: 0.0 }, &[1e34; 50], &[50], &[0], None);
    assert_eq!(equal, [0.0], "equal elements do not vary, whatever their size");
    for n in [164, 188, 776] {
        for plan in every_plan::<Var>(client, &[n], &[0]) {
            let of = |correction: f64| -> f32 {
                let data = vec![1.501_561_5f32; n];
                results(client, Var { correction }, &data, &[n], &[0], Some(plan))[0]
            };
            assert_eq!(of(0.0), 0.0, "{n} equal elements, {plan}");
            assert!(of(n as f64).is_nan(), "nothing divided by nothing, {plan}");
        }
    }
    // Large among small.
    let mut data = vec![1e-30f32; n];
    data[n / 2] = 1e25;
    let norm: Vec<f32> = results(client, NormL2, &data, &[n], &[0], None);
    assert_close(&norm, 1e25, 1e-6, "one large element");
    let exact: Vec<f64> = data.iter().map(|&value| f64::from(value)).collect();
    let std: Vec<f32> = results(client, Std { correction: 0.0 }, &data, &[n], &[0], None);
    assert_close(&std, Std::naive(&exact)[0], 1e-5, "one large element");
    // All magnitudes together, and the ends of the range.
    let data: Vec<f32> =
        (0..n).map(|i| (steps[i] * 10f64.powi((i % 61) as i32 - 31)) as f32).collect();
    let exact: Vec<f64> = data.iter().map(|&value| f64::from(value)).collect();
    for plan in every_plan::<NormL2>(client, &[n], &[0]) {
        let found: Vec<f32> = results(client, NormL2, &data, &[n], &[0], Some(plan));
        assert_close(&found, NormL2::naive(&exact)[0], 1e-6, &format!("all magnitudes, {plan}"));
    }
    // A maximum whose reciprocal is denormal.
    let norm: Vec<f32> = results(client, NormP { p: 3.0 }, &[1e38; 20], &[20], &[0], None);
    assert_close(&norm, 1e38 * 20f64.cbrt(), 1e-5, "norm_p of large elements");
    for end in [3e38f32, 2e-38] {
        let norm: Vec<f32> = results(client, NormL2, &[0.0, end], &[2], &[0], None);
        assert_close(&norm, f64::from(end), 1e-6, "an end of the range");
    }
    // An element far from the others, wherever it stands, and elements that start equal.
    for (place, others) in [(0, 1.0), (1, 1.0), (n / 2, 1.0), (n - 1, 1.0), (0, 1e-20), (7, 0.0)] {
        let mut data: Vec<f32> = steps.iter().map(|step| (step * others) as f32).collect();
        data[place] = (1e6 * others.max(1e-20)) as f32;
        let exact: Vec<f64> = data.iter().map(|&value| f64::from(value)).collect();
        for plan in every_plan::<Std>(client, &[n], &[0]) {
            let std = Std { correction: 0.0 };
            let found: Vec<f32> = results(client, std, &data, &[n], &[0], Some(plan));
            let what = format!("element {place} far from others of {others}, {plan}");
            assert_close(&found, Std::naive(&exact)[0], 1e-5, &what);
        }
        let std = NanStd { correction: 0.0 };
        let found: Vec<f32> = results(client, std, &data, &[n], &[0], None);
        assert_close(&found, Std::naive(&exact)[0], 1e-5, "nanstd of one far element");
    }
    let infinite: Vec<f32> = results(client, NormL2, &[1.0, f32::NEG_INFINITY], &[2], &[0], None);
    assert_eq!(infinite, [f32::INFINITY]);
    if has_wide {
        let data: Vec<f64> = steps.iter().map(|step| step * 1e200).collect();
        let scaled = NormL2::naive(&steps)[0] * 1e200;
        let found: Vec<f64> = results(client, NormL2, &data, &[n], &[0], None);
        assert!((found[0] - scaled).abs() <= 1e-13 * scaled, "{found:?}, {scaled}");
        let found: Vec<f64> = results(client, Std { correction: 0.0 }, &data, &[n], &[0], None);
        let scaled = Std::naive(&steps)[0] * 1e200;
        assert!((found[0] - scaled).abs() <= 1e-13 * scaled, "{found:?}, {scaled}");
    }
}

/// Infinities, values whose exponentials no f32 holds, and values that vanish beside others.
pub(crate) fn log_sum_exp_at_the_edges(client: &Client) {
    let inf = f32::INFINITY;
    for plan in every_plan::<LogSumExp>(client, &[2000], &[0]) {
        let of = |data: Vec<f32>| -> f32 {
            results::<_, f32, f32>(client, LogSumExp, &data, &[2000], &[0], Some(plan))[0]
        };
        assert_close(&[of(vec![1e4; 2000])], 1e4 + 2000f64.ln(), 1e-6, "values of 1e4");
        assert_close(&[of(vec![-1e4; 2000])], -1e4 + 2000f64.ln(), 1e-6, "values of -1e4");
        assert_eq!(of(vec![-inf; 2000]), -inf);
        assert_eq!(of(vec![inf; 2000]), inf);
        let mut data = vec![-inf; 2000];
        data[1500] = 3.0;
        assert_eq!(of(data.clone()), 3.0);
        data[3] = inf;
        assert_eq!(of(data.clone()), inf);
        for place in [2, 4, 5, 1998] {
            data[place] = inf;
        }
        assert_eq!(of(data.clone()), inf);
        data[1999] = f32::NAN;
        assert!(of(data.clone()).is_nan());
        data[1999] = 0.0;
        data[0] = f32::NAN;
        assert!(of(data).is_nan());
        let mut data = vec![-inf; 2000];
        data[7] = f32::MIN;
        assert_eq!(of(data), f32::MIN);
        let mut steps: Vec<f32> = (0..2000).map(|i| (i % 100) as f32).collect();
        let exact: Vec<f64> = steps.iter().map(|&value| f64::from(value)).collect();
        assert_close(&[of(steps.clone())], LogSumExp::naive(&exact)[0], 1e-6, "rising values");
        steps.reverse();
        assert_close(&[of(steps)], LogSumExp::naive(&exact)[0], 1e-6, "falling values");
    }
}

/// Elements of f32 that are lost beside each other in f32 are not in f64, and i32 that wrap in 32
/// bits do not in 64.
pub(crate) fn wide_accumulators(client: &Client) {
    let device = device_of(client);
    if device.has(ElementType::F64) {
        let mut data = vec![1e-3f32; 1000];
        data[500] = 1e9;
        data[501] = -1e9;
        let input = tensor(client, &data, &[1000], &[1]);
        let wide = reduce(Sum, &input).accumulate_in(ElementType::F64).run(client).unwrap();
        assert_close(&read::<f32>(client, &wide, 1), 0.998, 1e-6, "1e9 less itself");
    }
    if device.has(ElementType::I64) {
        let input = tensor(client, &[i32::MAX; 7], &[7], &[1]);
        let wide = reduce(Sum, &input).accumulate_in(ElementType::I64).run(client).unwrap();
        assert_eq!(read::<i64>(client, &wide, 1), [7 * i64::from(i32::MAX)]);
    }
}
