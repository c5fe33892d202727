//! Gradients of reductions of two inputs against finite differences in f64, on burn-flex.

use burn_tensor::{DType, Device, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::pairs::*;

/// The shape of the first tensor in memory, and that after its axes are put in another order.
const STORED: [usize; 3] = [5, 3, 4];
const SHAPE: [usize; 3] = [3, 4, 5];

/// A device whose tensors gradients can be asked for.
fn tracking() -> Device {
    Device::flex().autodiff()
}

/// A function of two inputs. Of two results, the second counts twice.
type Function = fn(Tensor<3>, Tensor<3>, &[i64]) -> Tensor<3>;

/// Every function that has gradients, by name.
fn functions() -> [(&'static str, Function); 14] {
    [
        ("dot", |x, y, axes| dot(x, y, axes)),
        ("mean_squared_error", |x, y, axes| mean_squared_error(x, y, axes)),
        ("mean_absolute_error", |x, y, axes| mean_absolute_error(x, y, axes)),
        ("huber", |x, y, axes| huber(x, y, axes, 0.4)),
        ("kl_divergence", |x, y, axes| kl_divergence(x, y, axes)),
        ("cosine_similarity", |x, y, axes| cosine_similarity(x, y, axes, 1e-8)),
        ("cosine_similarity of short vectors", |x, y, axes| {
            cosine_similarity(x, y * 2.0, axes, 3.5)
        }),
        ("max_difference", |x, y, axes| max_difference(x, y, axes)),
        ("weighted_mean", |x, y, axes| weighted_mean(x, y, axes)),
        ("weighted_mean_var", |x, y, axes| {
            let (mean, var) = weighted_mean_var(x, y, axes);
            mean + var * 2.0
        }),
        ("covariance", |x, y, axes| covariance(x, y, axes, 0.5)),
        ("sum_and_dot", |x, y, axes| {
            let (sum, dot) = sum_and_dot(x, y, axes);
            sum + dot * 2.0
        }),
        ("sum of sum_and_dot", |x, y, axes| sum_and_dot(x, y.exp(), axes).0),
        ("variance of weighted_mean_var", |x, y, axes| weighted_mean_var(x, y, axes).1),
    ]
}

fn tensor(elements: &[f64], shape: [usize; 3]) -> Tensor<3> {
    let data = TensorData::new(elements.to_vec(), shape);
    Tensor::from_data(data, (&tracking(), DType::F64))
}

/// Positive elements, which are weights and probabilities too.
fn random(random: &mut StdRng, shape: [usize; 3]) -> Vec<f64> {
    (0..shape.iter().product()).map(|_| random.random_range(0.2..2.0)).collect()
}

/// The sum of the elements of a result, each with a weight of its own.
fn weighted(result: Tensor<3>) -> Tensor<1> {
    let count = result.shape().num_elements();
    let weights: Vec<f64> = (0..count).map(|n| 0.3 + (n % 7) as f64 * 0.2).collect();
    let weights = TensorData::new(weights, result.dims());
    (result * Tensor::from_data(weights, (&Device::flex(), DType::F64))).sum()
}

fn elements<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

#[test]
fn gradients_are_those_of_finite_differences() {
    const STEP: f64 = 1e-5;

    let mut source = StdRng::seed_from_u64(1);
    let second_shapes = [SHAPE, [1, 1, 5], [3, 4, 1], [1, 1, 1]];
    let cases = [&[2i64][..], &[-3, 2], &[0, 1, 2], &[1], &[]];
    for (name, function) in functions() {
        for (axes, second) in
            cases.into_iter().flat_map(|axes| second_shapes.map(|second| (axes, second)))
        {
            let inputs = [STORED, second].map(|shape| (random(&mut source, shape), shape));
            let run = |[x, y]: [Tensor<3>; 2]| weighted(function(x.permute([1, 2, 0]), y, axes));
            let leaves = || inputs.each_ref().map(|(elements, shape)| tensor(elements, *shape));
            let tracked = leaves().map(Tensor::require_grad);
            let gradients = run(tracked.clone()).backward();
            for (nth, leaf) in tracked.into_iter().enumerate() {
                let found = leaf.grad(&gradients);
                let is_used = !(name.starts_with("sum of") && nth == 1);
                assert_eq!(found.is_some(), is_used, "input {nth} of {name}");
                let Some(found) = found else { continue };
                assert_eq!(found.dims(), inputs[nth].1, "input {nth} of {name}");
                for (place, found) in elements(found).into_iter().enumerate() {
                    let value_at = |step: f64| {
                        let mut changed = leaves();
                        let mut own = inputs[nth].0.clone();
                        own[place] += step;
                        changed[nth] = tensor(&own, inputs[nth].1);
                        elements(run(changed))[0]
                    };
                    let expected = (value_at(STEP) - value_at(-STEP)) / (2.0 * STEP);
                    assert!(
                        (found - expected).abs() <= 1e-6 * expected.abs().max(1.0),
                        "{name} over {axes:?}, second of {second:?}, element {place} of input \
                         {nth}: {found}, not {expected}"
                    );
                }
            }
        }
    }
}

/// Gradients of f16 and bf16 are those of f64, rounded once: no saved result is rounded before it
/// is used.
#[test]
fn gradients_of_narrow_types_are_rounded_once() {
    fn gradients(function: Function, inputs: &[TensorData; 2], dtype: DType) -> [TensorData; 2] {
        let leaves = inputs.each_ref().map(|data| {
            let data = data.clone().convert_dtype(dtype);
            Tensor::<3>::from_data(data, (&tracking(), dtype)).require_grad()
        });
        let [x, y] = leaves.clone();
        // Gradients of the results are representable in every type.
        let upstream = tensor(&(1..13).map(f64::from).collect::<Vec<_>>(), [3, 4, 1]);
        let gradients = (function(x, y, &[2]).cast(DType::F64) * upstream).sum().backward();
        leaves.map(|leaf| leaf.grad(&gradients).expect("both are tracked").into_data())
    }

    let mut wrong = Vec::new();
    let shape = [3, 4, 5];
    let x = random(&mut StdRng::seed_from_u64(6), shape);
    let cases = [
        // Vectors that are almost parallel.
        (x.clone(), x.iter().map(|x| x * 1.03).collect::<Vec<_>>()),
        // Elements far from 0, beside which their differences are small.
        (x.iter().map(|x| 40.0 + x).collect(), x.clone()),
    ];
    for (dtype, epsilon) in [(DType::F16, 2f64.powi(-11)), (DType::BF16, 2f64.powi(-8))] {
        for (nth, (x, y)) in cases.iter().enumerate() {
            let inputs = [x, y].map(|row| TensorData::new(row.clone(), shape).convert_dtype(dtype));
            let functions = functions();
            // A sum of two gradients is rounded again.
            let others = ["sum of sum_and_dot", "weighted_mean_var"];
            let of_both = functions.into_iter().filter(|(name, _)| !others.contains(name));
            for (name, function) in of_both {
                let found = gradients(function, &inputs, dtype);
                let expected = gradients(function, &inputs, DType::F64);
                for (input, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    let mut pairs = found.iter::<f64>().zip(expected.iter::<f64>());
                    let differs = |(found, expected): &(f64, f64)| {
                        (found - expected).abs() > 2.0 * epsilon * expected.abs() + 2e-5
                    };
                    if let Some((found, expected)) = pairs.find(differs) {
                        let what = format!("{name} of {dtype:?}, case {nth}, input {input}");
                        wrong.push(format!("{what}: {found}, not {expected}"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The divisor of a covariance is never below 0. Where it is 0, results and gradients are infinite,
/// or NaN where an element is the mean.
#[test]
fn covariance_with_a_correction_above_the_number_of_pairs() {
    for correction in [3.0, 4.0, 100.0] {
        let [x, y] = [[[[1.0, 2.0, 3.0]]], [[[5.0, 4.0, 3.0]]]]
            .map(|data| Tensor::<3>::from_data(data, (&tracking(), DType::F64)).require_grad());
        let result = covariance(x.clone(), y.clone(), 2, correction);
        assert_eq!(elements(result.clone()), [f64::NEG_INFINITY]);
        let gradients = result.backward();
        for (leaf, first) in [(x, f64::INFINITY), (y, f64::NEG_INFINITY)] {
            let found = elements(leaf.grad(&gradients).expect("both are tracked"));
            assert_eq!([found[0], found[2]], [first, -first], "{found:?}");
            assert!(found[1].is_nan(), "{found:?}");
        }
    }
}

/// Only tensors that are tracked have gradients, and these do not depend on the other.
#[test]
fn either_tensor_may_be_tracked() {
    let mut source = StdRng::seed_from_u64(2);
    let leaves = [SHAPE, [3, 1, 5]].map(|shape| (random(&mut source, shape), shape));
    for (name, function) in functions() {
        let gradients = |is_tracked: [bool; 2]| -> [Option<Vec<f64>>; 2] {
            let leaves = leaves.each_ref().map(|(elements, shape)| tensor(elements, *shape));
            let mut tracked = is_tracked.into_iter();
            let leaves = leaves.map(|leaf| leaf.set_require_grad(tracked.next() == Some(true)));
            let [x, y] = leaves.clone();
            // The other tensor has gradients of its own, so that there always is a graph.
            let result = weighted(function(x.clone(), y.clone(), &[0, 1]));
            let gradients = (result + (x.sum() + y.sum()) * 0.0).backward();
            leaves.map(|leaf| leaf.grad(&gradients).map(elements))
        };
        let [of_first, of_second] = gradients([true; 2]);
        assert_eq!(gradients([true, false]), [of_first, None], "{name}");
        assert_eq!(gradients([false, true]), [None, of_second], "{name}");
    }
}

/// Counts and truth values are tracked by nothing.
#[test]
fn comparisons_have_no_gradient() {
    let x = tensor(&[0.5; 60], SHAPE).require_grad();
    let shares = accuracy(x.clone(), x.clone(), ..);
    let gradients =
        (shares.clone().cast(DType::F64) + x.clone().sum().reshape([1, 1, 1])).backward();
    assert_eq!(elements(shares), [1.0]);
    assert_eq!(elements(x.grad(&gradients).expect("the sum is tracked")), [1.0; 60]);
    assert_eq!(count_equal(x.clone(), x.clone(), ..).into_data().iter::<i64>().next(), Some(60));
    assert!(all_close(x.clone(), x, .., 0.0, 0.0).into_data().iter::<bool>().all(|close| close));
}

/// Where a derivative does not exist, the gradient is the convention of docs/BURN.md.
#[test]
fn conventions() {
    fn of(
        function: impl Fn(Tensor<1>, Tensor<1>) -> Tensor<1>,
        x: &[f64],
        y: &[f64],
    ) -> [Vec<f64>; 2] {
        let [x, y] = [x, y].map(|elements| {
            let data = TensorData::new(elements.to_vec(), [elements.len()]);
            Tensor::<1>::from_data(data, (&tracking(), DType::F64)).require_grad()
        });
        let gradients = function(x.clone(), y.clone()).backward();
        [x, y].map(|leaf| elements(leaf.grad(&gradients).expect("both are tracked")))
    }
    let absolute = of(|x, y| mean_absolute_error(x, y, 0), &[1.0, 2.0], &[1.0, 0.0]);
    assert_eq!(absolute, [vec![0.0, 0.5], vec![0.0, -0.5]]);
    let divergence = of(|x, y| kl_divergence(x, y, 0), &[0.0, 1.0], &[0.0, 1.0]);
    assert_eq!(divergence, [vec![0.0, 1.0], vec![0.0, -1.0]]);
    // Vectors of zeros are as long as eps.
    let cosine = of(|x, y| cosine_similarity(x, y, 0, 0.2), &[0.0, 0.0], &[3.0, 4.0]);
    assert_eq!(cosine, [vec![3.0, 4.0], vec![0.0, 0.0]]);
    // The first of the largest differences takes the gradient.
    let largest = of(|x, y| max_difference(x, y, 0), &[2.0, 1.0, -2.0], &[0.0; 3]);
    assert_eq!(largest, [vec![1.0, 0.0, 0.0], vec![-1.0, 0.0, 0.0]]);
    // The same tensor twice.
    let squares = of(|x, y| dot(x.clone(), x, 0) + y.sum(), &[1.0, 2.0], &[0.0; 2]);
    assert_eq!(squares[0], [2.0, 4.0]);
}

/// Gradients of f16 are computed in f32 and rounded once, and have the types of the tensors.
#[test]
fn gradients_of_narrow_types() {
    let device = tracking();
    let row: Vec<f64> = (0..1000).map(|n| f64::from(n % 10)).collect();
    let data = TensorData::new(row, [1, 1000]).convert_dtype(DType::F16);
    let x = Tensor::<2>::from_data(data, (&device, DType::F16)).require_grad();
    let y = Tensor::<2>::ones([1, 1], (&device, DType::F32)).require_grad();
    // Twice the gradient of the result is more than f16 holds, its share of an element is not.
    let result = mean_squared_error(x.clone(), y.clone(), 1) * 60000.0;
    let gradients = result.sum().backward();
    let of_x = x.grad(&gradients).expect("the first tensor is tracked");
    let of_y = y.grad(&gradients).expect("the second tensor is tracked");
    assert_eq!((of_x.dtype(), of_y.dtype()), (DType::F16, DType::F32));
    assert!(elements(of_x).iter().all(|found| found.is_finite()));
    assert_eq!(of_y.dims(), [1, 1]);
}

/// Tensors without elements give gradients of zeros to a second one that has some.
#[test]
fn gradients_of_nothing() {
    let device = tracking();
    let x = Tensor::<2>::empty([0, 3], &device).require_grad();
    let y = Tensor::<2>::ones([1, 3], &device).require_grad();
    let gradients = dot(x.clone(), y.clone(), 1).sum().backward();
    assert_eq!(x.grad(&gradients).expect("the first tensor is tracked").dims(), [0, 3]);
    assert_eq!(elements(y.grad(&gradients).expect("the second tensor is tracked")), [0.0; 3]);
}

/// Gradients flow through operations that are computed again in the backward pass.
#[test]
fn checkpointing_changes_no_gradient() {
    fn gradients(device: Device) -> Vec<Vec<f64>> {
        let of = |(_, function): (&'static str, Function)| {
            let x = random(&mut StdRng::seed_from_u64(3), SHAPE);
            let data = TensorData::new(x, SHAPE);
            let x = Tensor::<3>::from_data(data, (&device, DType::F64)).require_grad();
            let result = function(x.clone().exp(), x.clone() * 0.5, &[1]);
            let gradients = weighted(result).backward();
            let found = x.grad(&gradients).expect("the tensor is tracked").into_data();
            found.iter::<f64>().collect()
        };
        functions().into_iter().map(of).collect()
    }
    assert_eq!(gradients(tracking()), gradients(tracking().gradient_checkpointing()));
}
