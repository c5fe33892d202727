//! Backward passes of softmax and of normalisations against f64, by every plan.

use cubecl::{prelude::*, std::tensor::TensorHandle};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_kernels::{
    ElementType, Operator, ReduceError, cubecl,
    normalize::{
        AppliedReduction, LayerNormGradient, LogSoftmaxGradient, RmsNormGradient, SoftmaxGradient,
    },
    operator::{Apply, One},
    planner::{AppliedKind, PlanError, force_applied, row_major_strides},
};

use crate::{
    case::Case,
    run::{capable_device, decode, encode, source, tensor_of},
};

#[derive(Clone, Copy, Debug)]
enum Backward {
    Softmax,
    LogSoftmax,
    RmsNorm,
    /// With this mean of the input.
    LayerNorm(f64),
}

use Backward::*;

/// The gradients of a slice in f64, and the size of what they are made of. `x` is the output of a
/// softmax, or the input of a normalisation with these results.
fn naive(backward: Backward, dy: &[f64], x: &[f64], mean: f64, rstd: f64) -> Vec<(f64, f64)> {
    let n = dy.len() as f64;
    let pairs = || dy.iter().zip(x);
    let sum = |term: &dyn Fn(f64, f64) -> f64| -> f64 { pairs().map(|(&d, &x)| term(d, x)).sum() };
    let size =
        |term: &dyn Fn(f64, f64) -> f64| -> f64 { pairs().map(|(&d, &x)| term(d, x).abs()).sum() };
    let (total, dot) = (sum(&|d, _| d), sum(&|d, x| d * x));
    let centred = sum(&|d, x| d * (x - mean));
    // Distances from an element of the slice are as large as those from the mean.
    let spread = size(&|d, x| d * ((x - mean).abs() + 2.0 / rstd));
    let (sizes, products) = (size(&|d, _| d), size(&|d, x| d * x));
    let slope = rstd * rstd / n;
    let one = |(&d, &x): (&f64, &f64)| match backward {
        Softmax => (x * (d - dot), x * (d.abs() + products)),
        LogSoftmax => (d - x.exp() * total, d.abs() + x.exp() * sizes * (1.0 - x)),
        RmsNorm => ((d - x * dot * slope) * rstd, (d.abs() + x.abs() * products * slope) * rstd),
        LayerNorm(_) => {
            let exact = (d - total / n - (x - mean) * centred * slope) * rstd;
            let parts = d.abs() + sizes / n + (x - mean).abs() * spread * slope;
            // The mean is rounded, and so is the distance from it.
            let rounded = mean.abs() * rstd * rstd * spread * slope.sqrt() / n.sqrt();
            (exact, (parts + rounded) * rstd)
        }
    };
    pairs().map(one).collect()
}

fn check(
    client: &Client,
    backward: Backward,
    case: &Case,
    element: ElementType,
    kind: Option<AppliedKind>,
) -> Result<(), ReduceError> {
    let elements: usize = case.shape.iter().product();
    let (axis, count) = (case.axes[0], case.shape[case.axes[0]]);
    let mut rng = StdRng::seed_from_u64(elements as u64);
    let shift = if let LayerNorm(mean) = backward { mean } else { 0.0 };
    let range = if matches!(backward, LogSoftmax) { -6.0..-0.1 } else { 0.1..1.0 };
    let hold = |element, values: Vec<f64>| decode(element, &encode(element, &values));
    let dy = hold(element, (0..elements).map(|_| rng.random_range(-1.0..1.0)).collect());
    let x = (0..elements).map(|_| shift + rng.random_range(range.clone())).collect();
    let x = hold(element, x);

    // Elements of a slice lie `inner` apart.
    let inner: usize = case.shape[axis + 1..].iter().product();
    let slices: Vec<Vec<usize>> = (0..elements / count)
        .map(|slice| {
            let first = slice / inner * inner * count + slice % inner;
            (0..count).map(|nth| first + nth * inner).collect()
        })
        .collect();
    let real = if element == ElementType::F64 { ElementType::F64 } else { ElementType::F32 };
    let of = |slice: &Vec<usize>| -> (f64, f64) {
        let n = count as f64;
        let mean = slice.iter().map(|&at| x[at]).sum::<f64>() / n;
        let from = if matches!(backward, LayerNorm(_)) { mean } else { 0.0 };
        let square = slice.iter().map(|&at| (x[at] - from).powi(2)).sum::<f64>() / n;
        (mean, (square + 1e-5).sqrt().recip())
    };
    let (means, rstds): (Vec<f64>, Vec<f64>) = slices.iter().map(of).unzip();
    let (means, rstds) = (hold(real, means), hold(real, rstds));

    let tensor = |element, values: &[f64], shape: &[usize]| {
        tensor_of(client, element, &encode(element, values), shape, &row_major_strides(shape))
    };
    let mut kept = case.shape.clone();
    kept[axis] = 1;
    let (gradient, other) = (tensor(element, &dy, &case.shape), tensor(element, &x, &case.shape));
    let (mean, rstd) = (tensor(real, &means, &kept), tensor(real, &rstds, &kept));
    let n = count as f64;
    let (output, words) = match backward {
        Softmax => launch(client, SoftmaxGradient.of(&gradient, &other, axis), kind)?,
        LogSoftmax => launch(client, LogSoftmaxGradient.of(&gradient, &other, axis), kind)?,
        RmsNorm => {
            let applied = RmsNormGradient { count: n }.of(&gradient, &other, axis);
            launch(client, applied.operand(&rstd, ..), kind)?
        }
        LayerNorm(_) => {
            let applied = LayerNormGradient { count: n }.of(&gradient, &other, axis);
            launch(client, applied.operand(&mean, ..).operand(&rstd, ..), kind)?
        }
    };
    let bytes = client.read_one(output.handle.clone()).expect("the device answers");
    let found = decode(element, &bytes[..elements * element.bytes()]);
    let epsilon = if element == ElementType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
    let (rounding, least) = match element {
        ElementType::F16 => (2f64.powi(-10), 2f64.powi(-24)),
        ElementType::BF16 => (2f64.powi(-7), 0.0),
        _ => (epsilon, 2f64.powi(-126)),
    };
    for (nth, slice) in slices.iter().enumerate() {
        let of_slice = |values: &[f64]| slice.iter().map(|&at| values[at]).collect::<Vec<_>>();
        let expected = naive(backward, &of_slice(&dy), &of_slice(&x), means[nth], rstds[nth]);
        for (&at, (expected, size)) in slice.iter().zip(expected) {
            let bound = 32.0 * size * epsilon + expected.abs() * rounding + least;
            assert!(
                (found[at] - expected).abs() <= bound,
                "{backward:?} of {element}: {} in slice {nth}, expected {expected} within {bound}\n\
                 {case:?}\n{words}",
                found[at],
            );
        }
    }
    Ok(())
}

fn launch<O: Operator, F: Apply<Results = O::Results, Outputs = One>>(
    client: &Client,
    applied: AppliedReduction<'_, O, F, TensorHandle>,
    kind: Option<AppliedKind>,
) -> Result<(TensorHandle, String), ReduceError> {
    let device = capable_device(client);
    let applied = applied.plan_for(&device);
    let Some(kind) = kind else { return Ok((applied.run(client)?, "as chosen".into())) };
    let (problem, reduction) = applied.problems()?;
    let plan = force_applied(kind, &problem, &reduction, &device)?;
    Ok((applied.with_plan(plan).run(client)?, plan.to_string()))
}

/// Each by every plan, along and across.
pub(crate) fn every_plan(client: &Client) {
    let cases = [Case::contiguous(&[5, 1001], &[1]), Case::contiguous(&[3, 300, 24], &[1])];
    for backward in [Softmax, LogSoftmax, RmsNorm, LayerNorm(0.0)] {
        for case in &cases {
            let mut runs = 0;
            for kind in AppliedKind::ALL {
                match check(client, backward, case, ElementType::F32, Some(kind)) {
                    Ok(()) => runs += 1,
                    Err(error)
                        if matches!(source(&error), Some(PlanError::NoAppliedPlan { .. })) => {}
                    Err(other) => panic!("{backward:?} {case:?} {kind}: {other}"),
                }
            }
            assert!(runs >= 3, "{backward:?} {case:?}: {runs} plans");
        }
    }
}

/// Every floating point type, slices that are not held, and slices far from 0.
pub(crate) fn every_type(client: &Client) {
    let device = capable_device(client);
    let small = Case::contiguous(&[7, 512], &[1]);
    let long = Case::contiguous(&[2, 40_004], &[1]);
    for element in [ElementType::F16, ElementType::BF16, ElementType::F64] {
        if !device.has(element) {
            println!("{}: not run, the device has no {element}", client.name());
            continue;
        }
        for backward in [Softmax, LogSoftmax, RmsNorm, LayerNorm(0.0)] {
            check(client, backward, &small, element, None).unwrap();
        }
    }
    for backward in [Softmax, RmsNorm, LayerNorm(0.0), LayerNorm(1000.0)] {
        check(client, backward, &long, ElementType::F32, None).unwrap();
    }
}
