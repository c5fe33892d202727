//! Gradients against finite differences in f64, on burn-flex.

use burn_dispatch::Dispatch;
use burn_tensor::{DType, Device, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::{backend::*, *};

const SHAPE: [usize; 3] = [3, 4, 5];

/// A device whose tensors gradients can be asked for.
fn tracking() -> Device {
    Device::flex().autodiff()
}

/// The float results of a reduction.
fn run<const D: usize>(
    tensor: AnyTensor<Dispatch>,
    reduction: Reduction,
) -> impl Iterator<Item = Tensor<D>> {
    let results = Dispatch::run(vec![tensor], Operation::Reduction(reduction));
    results.expect("burn-flex has these types").into_iter().filter_map(|result| match result {
        AnyTensor::Float(result) => Some(Tensor::from_dispatch(result)),
        _ => None,
    })
}

/// The sum of all float results of an operator, each with a weight of its own.
fn weighted(
    operator: OperatorName,
    options: OperatorOptions,
    x: Tensor<3>,
    axes: &[i64],
) -> Tensor<1> {
    // The axes are not those of the memory.
    let x = x.permute([1, 2, 0]);
    let tensor = AnyTensor::<Dispatch>::Float(x.into_dispatch());
    let axes = AxisList::List(axes.to_vec());
    let reduction = Reduction::new(operator, options, &tensor, &axes, true).expect("valid axes");
    let results = run(tensor, reduction);
    results
        .map(|result: Tensor<3>| {
            let count = result.shape().num_elements();
            let weights: Vec<f64> = (0..count).map(|n| 0.3 + (n % 5) as f64 * 0.2).collect();
            let weights = TensorData::new(weights, result.dims());
            (result * Tensor::from_data(weights, (&Device::flex(), DType::F64))).sum()
        })
        .reduce(|total, part| total + part)
        .expect("there is a float result")
}

fn tensor(elements: &[f64]) -> Tensor<3> {
    let data = TensorData::new(elements.to_vec(), SHAPE);
    Tensor::from_data(data, (&tracking(), DType::F64))
}

fn number(x: Tensor<1>) -> f64 {
    x.into_data().iter::<f64>().next().expect("there is one element")
}

fn operators() -> impl Iterator<Item = OperatorName> {
    use OperatorName::*;

    let others = [ArgMin, ArgMax, NanArgMin, NanArgMax, Any, All, AnyNonFinite, CountNonzero];
    OperatorName::ALL.iter().copied().filter(move |operator| !others.contains(operator))
}

#[test]
fn gradients_are_those_of_finite_differences() {
    const STEP: f64 = 1e-5;

    let mut random = StdRng::seed_from_u64(1);
    let count: usize = SHAPE.iter().product();
    for operator in operators() {
        for (axes, p) in [(&[2i64][..], 3.0), (&[-3, 2], 1.5), (&[0, 1, 2], 2.5), (&[], 1.0)] {
            // With few elements, a correction of 0.5 keeps the divisor away from 0.
            let options = OperatorOptions { correction: 0.5, p };
            let mut x: Vec<f64> = (0..count).map(|_| random.random_range(-2.0..2.0)).collect();
            if operator.name().starts_with("nan") && !axes.is_empty() {
                // At most one in a reduction over any of these axes but all.
                x.iter_mut().skip(3).step_by(7).for_each(|x| *x = f64::NAN);
            }
            let leaf = tensor(&x).require_grad();
            let gradients = weighted(operator, options, leaf.clone(), axes).backward();
            let found = leaf.grad(&gradients).expect("the tensor is tracked").into_data();
            for (place, found) in found.iter::<f64>().enumerate() {
                let value_at = |x_n: f64| {
                    let mut x = x.clone();
                    x[place] = x_n;
                    let finite: Tensor<1> = weighted(operator, options, tensor(&x), axes);
                    number(finite)
                };
                let expected =
                    (value_at(x[place] + STEP) - value_at(x[place] - STEP)) / (2.0 * STEP);
                assert!(
                    (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                    "{operator} over {axes:?}, element {place}: {found}, not {expected}"
                );
            }
        }
    }
}

/// A row of a narrow type, and the gradient of its results.
struct Narrow {
    row: Vec<f64>,
    upstream: f64,
}

/// Rows whose gradients are representable, but not every factor of them.
fn narrow_rows() -> [Narrow; 6] {
    let row = |len: usize, element: &dyn Fn(usize) -> f64| (0..len).map(element).collect();
    [
        // Its reciprocal norm times the gradient overflows in f16.
        Narrow { row: vec![0.005, 0.0, 0.0, 0.002], upstream: 1024.0 },
        // Twice the gradient overflows in f16.
        Narrow { row: vec![0.25, 0.0, 0.5], upstream: 40000.0 },
        // The gradient over the number of elements underflows in f16.
        Narrow {
            row: row(1 << 14, &|n| if n % 3 == 0 { -30000.0 } else { 12000.0 + n as f64 }),
            upstream: 2f64.powi(-14),
        },
        // The product overflows in f16, and the mean is not representable.
        Narrow { row: vec![300.0, -500.0, 3.0], upstream: 0.125 },
        // Neighbouring numbers are far apart beside the shares of their exponentials.
        Narrow { row: row(64, &|n| 100.0 + (n % 3) as f64 * 0.5), upstream: 1.0 },
        Narrow { row: row(64, &|n| 1000.0 + (n % 3) as f64 * 4.0), upstream: 1.0 },
    ]
}

/// The gradient of the sum of all float results over a row, as numbers.
fn gradient_of_row(operator: OperatorName, data: TensorData, upstream: f64) -> Vec<f64> {
    let dtype = data.dtype();
    let x = Tensor::<2>::from_data(data, (&tracking(), dtype)).require_grad();
    let tensor = AnyTensor::<Dispatch>::Float(x.clone().into_dispatch());
    let options = OperatorOptions { correction: 1.0, p: 3.0 };
    let axes = AxisList::List(vec![1]);
    let reduction = Reduction::new(operator, options, &tensor, &axes, true).expect("valid axes");
    let results = run(tensor, reduction);
    let total = results
        .map(|result: Tensor<2>| {
            assert_eq!(result.dtype(), dtype, "{operator}");
            result.cast(DType::F64) * upstream
        })
        .reduce(|total, part| total + part)
        .expect("there is a float result");
    let found = x.grad(&total.sum().backward()).expect("the tensor is tracked");
    assert_eq!(found.dtype(), dtype, "gradient of {operator}");
    found.into_data().iter::<f64>().collect()
}

/// Gradients of f16 and bf16 are those of f64, rounded once: no factor, no mean and no saved result
/// is rounded before it is used.
#[test]
fn gradients_of_narrow_types_are_rounded_once() {
    let mut wrong = Vec::new();
    for (dtype, epsilon) in [(DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))] {
        for (nth, Narrow { row, upstream }) in narrow_rows().into_iter().enumerate() {
            let len = row.len();
            let narrow = TensorData::new(row, [1, len]).convert_dtype(dtype);
            let wide = narrow.clone().convert_dtype(DType::F64);
            for operator in operators() {
                let found = gradient_of_row(operator, narrow.clone(), upstream);
                let expected = gradient_of_row(operator, wide.clone(), upstream);
                // What a sum of differences from a mean loses in f32.
                let largest = expected.iter().fold(0f64, |largest, x| largest.max(x.abs()));
                let rounded = TensorData::new(expected, [len]).convert_dtype(dtype);
                let mut pairs = found.iter().copied().zip(rounded.iter::<f64>());
                let fits = |(found, expected): (f64, f64)| {
                    let bound = 2.0 * epsilon * expected.abs() + 1e-5 * largest.min(1.0) + 1e-7;
                    found == expected || (found - expected).abs() <= bound
                };
                if let Some((found, expected)) = pairs.find(|&pair| !fits(pair)) {
                    wrong.push(format!(
                        "{operator} of {dtype:?}, row {nth}: {found}, not {expected}"
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The shares of a `logsumexp` add up to 1, however large the elements are.
#[test]
fn shares_of_narrow_types_add_up_to_one() {
    for dtype in [DType::F16, DType::BF16] {
        for near in [1.0, 100.0, 1000.0] {
            let row = vec![near; 64];
            let data = TensorData::new(row, [1, 64]).convert_dtype(dtype);
            let shares = gradient_of_row(OperatorName::LogSumExp, data, 1.0);
            let sum: f64 = shares.iter().sum();
            assert!((sum - 1.0).abs() < 1e-2, "{dtype:?} near {near}: {sum}");
        }
    }
}

/// The divisor of a variance is never below 0. Where it is 0, results are infinite, or NaN if all
/// elements are equal, and so are gradients.
#[test]
fn gradients_with_a_correction_above_the_number_of_elements() {
    type Function = fn(Tensor<2>, f64) -> Tensor<2>;

    const INF: f64 = f64::INFINITY;
    const NAN: f64 = f64::NAN;
    let functions: [(&str, Function, [f64; 3]); 5] = [
        ("var", |x, correction| var(x, 1, correction), [-INF, NAN, INF]),
        ("mean_var", |x, correction| mean_var(x, 1, correction).1, [-INF, NAN, INF]),
        ("nanvar", |x, correction| nanvar(x, 1, correction), [-INF, NAN, INF]),
        ("std", |x, correction| std(x, 1, correction), [NAN; 3]),
        ("nanstd", |x, correction| nanstd(x, 1, correction), [NAN; 3]),
    ];
    for (name, function, expected) in functions {
        for correction in [3.0, 4.0, 100.0] {
            let data = TensorData::from([[1.0, 2.0, 3.0]]);
            let x = Tensor::<2>::from_data(data, (&tracking(), DType::F64));
            let x = x.require_grad();
            let result = function(x.clone(), correction);
            let gradient = x.grad(&result.clone().backward()).expect("the tensor is tracked");
            let found: Vec<f64> = gradient.into_data().iter::<f64>().collect();
            let result = number(result.reshape([1]));
            assert_eq!(result, INF, "{name} with a correction of {correction}");
            let same = |(found, expected): (&f64, &f64)| {
                found == expected || found.is_nan() && expected.is_nan()
            };
            assert!(
                found.iter().zip(&expected).all(same),
                "gradient of {name} with a correction of {correction}: {found:?}"
            );
        }
    }
}

/// Gradients flow through operations that are computed again in the backward pass.
#[test]
fn checkpointing_changes_no_gradient() {
    fn gradient(device: Device) -> Vec<f64> {
        let data = TensorData::from([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]]);
        let x = Tensor::<2>::from_data(data, (&device, DType::F64)).require_grad();
        let y = var(x.clone().exp(), 1, 1.0) + logsumexp(x.clone() * 3.0, 1) + max(x.clone(), 1);
        let gradients = (y.clone() * y).sum().backward();
        x.grad(&gradients).expect("the tensor is tracked").into_data().iter::<f64>().collect()
    }
    assert_eq!(gradient(tracking()), gradient(tracking().gradient_checkpointing()));
}

/// The gradient of the norm of zeros is 0, also where that of what follows is infinite, as that of
/// a root is.
#[test]
fn a_root_of_the_norm_of_zeros_has_no_gradient() {
    let x = Tensor::<2>::from_data([[0f32, 0.0], [3.0, 4.0]], &tracking()).require_grad();
    let root = norm_l2(x.clone(), 1).sqrt().sum();
    let found = x.grad(&root.backward()).expect("it is tracked").into_data();
    let slope = 0.5 / 5f32.sqrt();
    let expected = TensorData::from([[0.0, 0.0], [0.6 * slope, 0.8 * slope]]);
    found.assert_approx_eq::<f32>(&expected, burn_tensor::Tolerance::relative(1e-6));
}
