//! Gradients against finite differences in f64, on burn-flex.

use burn_autodiff::{Autodiff, checkpoint::strategy::BalancedCheckpointing};
use burn_backend::{AutodiffBackend, DType};
use burn_flex::Flex;
use burn_tensor::{Float, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::*;

type B = Autodiff<Flex>;

const SHAPE: [usize; 3] = [3, 4, 5];

/// The sum of all float results of an operator, each with a weight of its own.
fn weighted(
    operator: OperatorName,
    options: OperatorOptions,
    x: Tensor<B, 3>,
    axes: &[i64],
) -> Tensor<B, 1> {
    // The axes are not those of the memory.
    let x = x.permute([1, 2, 0]);
    let tensor = <Float as Reducible<B>>::into_any(x.into_primitive());
    let axes = AxisList::List(axes.to_vec());
    let reduction = Reduction::new(operator, options, &tensor, &axes, true).expect("valid axes");
    let results = B::reduce(tensor, &reduction).expect("burn-flex has f64");
    let floats = results.into_iter().filter(|result| result.kind() == Kind::Float);
    floats
        .map(|result| {
            let result: Tensor<B, 3> =
                Tensor::from_primitive(<Float as Reducible<B>>::from_any(result));
            let count = result.shape().num_elements();
            let weights: Vec<f64> = (0..count).map(|n| 0.3 + (n % 5) as f64 * 0.2).collect();
            let weights = TensorData::new(weights, result.dims());
            (result * Tensor::from_data(weights, (&Default::default(), DType::F64))).sum()
        })
        .reduce(|total, part| total + part)
        .expect("there is a float result")
}

fn tensor(elements: &[f64]) -> Tensor<B, 3> {
    let data = TensorData::new(elements.to_vec(), SHAPE);
    Tensor::from_data(data, (&Default::default(), DType::F64))
}

fn number(x: Tensor<B, 1>) -> f64 {
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
                    let finite: Tensor<B, 1> = weighted(operator, options, tensor(&x), axes);
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

/// Gradients flow through operations that are computed again in the backward pass.
#[test]
fn checkpointing_changes_no_gradient() {
    fn gradient<B: ReduceBackend + AutodiffBackend>() -> Vec<f64> {
        let data = TensorData::from([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]]);
        let x = Tensor::<B, 2>::from_data(data, (&Default::default(), DType::F64)).require_grad();
        let y = var(x.clone().exp(), 1, 1.0) + logsumexp(x.clone() * 3.0, 1) + max(x.clone(), 1);
        let gradients = (y.clone() * y).sum().backward();
        x.grad(&gradients).expect("the tensor is tracked").into_data().iter::<f64>().collect()
    }
    assert_eq!(gradient::<Autodiff<Flex>>(), gradient::<Autodiff<Flex, BalancedCheckpointing>>());
}

/// Formulas are made of operations that have gradients themselves.
#[test]
fn gradients_have_gradients() {
    type Twice = Autodiff<B>;

    let second = |function: &dyn Fn(Tensor<Twice, 1>) -> Tensor<Twice, 1>| -> Vec<f64> {
        let data = TensorData::from([1.0, 2.0, 4.0]);
        let inner =
            Tensor::<B, 1>::from_data(data, (&Default::default(), DType::F64)).require_grad();
        let x = Tensor::<Twice, 1>::from_inner(inner.clone()).require_grad();
        let first = x.grad(&function(x.clone()).backward()).expect("the tensor is tracked");
        // The squares make the second gradient depend on every entry of the second derivative.
        let gradients = (first.clone() * first).sum().backward();
        inner.grad(&gradients).expect("the tensor is tracked").into_data().iter::<f64>().collect()
    };
    // The gradient 2 x; its squares 4 x²; their gradient 8 x.
    assert_eq!(second(&|x| sum_squares(x, 0)), [8.0, 16.0, 32.0]);
    // The gradient of the product a b c is (b c, a c, a b) = (8, 4, 2).
    assert_eq!(
        second(&|x| prod(x, 0)),
        [
            2.0 * (4.0 * 4.0 + 2.0 * 2.0),
            2.0 * (8.0 * 4.0 + 2.0 * 1.0),
            2.0 * (8.0 * 2.0 + 4.0 * 1.0),
        ]
    );
}
