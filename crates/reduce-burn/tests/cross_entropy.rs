//! Cross-entropies, made of Burn's own operations on burn-flex, against their definition in f64 and
//! finite differences.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_tensor::{DType, Device, Int, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::pairs::CrossEntropy;

/// Logits of `[2, 5, 3]`: the classes are axis 1.
const SHAPE: [usize; 3] = [2, 5, 3];
const SLICES: usize = 6;
const IGNORED: i64 = -100;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Reduced {
    Each,
    Sum,
    Mean,
}

/// The options of a loss, and its tensors as numbers.
#[derive(Clone, Debug)]
struct Case {
    smoothing: f64,
    reduced: Reduced,
    classes: Vec<i64>,
    weights: Option<Vec<f64>>,
    logits: Vec<f64>,
}

/// The place of the logit of a class of a slice.
fn at(slice: usize, class: usize) -> usize {
    (slice / SHAPE[2] * SHAPE[1] + class) * SHAPE[2] + slice % SHAPE[2]
}

fn cases() -> Vec<Case> {
    let mut rng = StdRng::seed_from_u64(5);
    let mut draw = |len: usize, from: f64| -> Vec<f64> {
        (0..len).map(|_| rng.random_range(from..3.0)).collect()
    };
    let mut cases = Vec::new();
    for smoothing in [0.0, 0.2] {
        for reduced in [Reduced::Each, Reduced::Sum, Reduced::Mean] {
            for weighted in [false, true] {
                let weights = weighted.then(|| draw(SHAPE[1], 0.25));
                let logits = draw(SHAPE.iter().product(), -3.0);
                let classes = vec![0, 4, IGNORED, 2, 2, 1];
                cases.push(Case { smoothing, reduced, classes, weights, logits });
            }
        }
    }
    cases
}

impl Case {
    /// The losses by their definition.
    fn expected(&self) -> Vec<f64> {
        let weight = |class: usize| self.weights.as_ref().map_or(1.0, |weights| weights[class]);
        let mut total = 0.0;
        let losses: Vec<f64> = (0..SLICES)
            .map(|slice| {
                if self.classes[slice] == IGNORED {
                    return 0.0;
                }
                let right = self.classes[slice] as usize;
                total += weight(right);
                let logit = |class: usize| self.logits[at(slice, class)];
                let sum: f64 = (0..SHAPE[1]).map(|class| logit(class).exp()).sum();
                let share = |class: usize| {
                    let own = if class == right { 1.0 - self.smoothing } else { 0.0 };
                    weight(class) * (own + self.smoothing / SHAPE[1] as f64)
                };
                (0..SHAPE[1]).map(|class| share(class) * (sum.ln() - logit(class))).sum()
            })
            .collect();
        match self.reduced {
            Reduced::Each => losses,
            Reduced::Sum => vec![losses.iter().sum()],
            Reduced::Mean => vec![losses.iter().sum::<f64>() / total],
        }
    }

    fn run(&self, logits: Tensor<3>, weights: Option<Tensor<1>>, device: &Device) -> Tensor<1> {
        let classes = TensorData::new(self.classes.clone(), [SHAPE[0], SHAPE[2]]);
        let classes = Tensor::<2, Int>::from_data(classes, device);
        let loss = CrossEntropy::new().smoothing(self.smoothing).ignored(IGNORED);
        let loss = weights.into_iter().fold(loss, CrossEntropy::weights);
        match self.reduced {
            Reduced::Each => loss.each(logits, classes, 1).reshape([SLICES]),
            Reduced::Sum => loss.sum(logits, classes, -2),
            Reduced::Mean => loss.mean(logits, classes, 1),
        }
    }

    fn tensors(&self, device: &Device) -> (Tensor<3>, Option<Tensor<1>>) {
        let f64s = (device, DType::F64);
        let logits = Tensor::from_data(TensorData::new(self.logits.clone(), SHAPE), f64s);
        let weights = self.weights.clone().map(|weights| {
            let len = weights.len();
            Tensor::from_data(TensorData::new(weights, [len]), f64s)
        });
        (logits, weights)
    }
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

#[test]
fn losses_are_those_of_the_definition() {
    let device = Device::flex();
    for case in cases() {
        let (logits, weights) = case.tensors(&device);
        let found = numbers(case.run(logits, weights, &device));
        let expected = case.expected();
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-12, "{found} and not {expected}: {case:?}");
        }
    }
}

/// The sum of losses, each times another number.
fn weighted_sum(losses: &[f64]) -> f64 {
    losses.iter().enumerate().map(|(nth, loss)| loss * (0.5 + nth as f64 * 0.25)).sum()
}

#[test]
fn gradients_are_finite_differences() {
    const STEP: f64 = 1e-6;

    let device = Device::flex().autodiff();
    for case in cases() {
        for tracked_weights in [false, case.weights.is_some()] {
            let (logits, weights) = case.tensors(&device);
            let logits = logits.require_grad();
            let weights = match tracked_weights {
                true => weights.map(Tensor::require_grad),
                false => weights,
            };
            let losses = case.run(logits.clone(), weights.clone(), &device);
            let factors = losses.clone().into_data().iter::<f64>().count();
            let factors: Vec<f64> = (0..factors).map(|nth| 0.5 + nth as f64 * 0.25).collect();
            let len = factors.len();
            let factors = TensorData::new(factors, [len]);
            let factors = Tensor::<1>::from_data(factors, (&device, DType::F64));
            let gradients = (losses * factors).sum().backward();
            let found = numbers(logits.grad(&gradients).expect("logits are tracked"));
            for (nth, found) in found.into_iter().enumerate() {
                let at = |step: f64| {
                    let mut other = case.clone();
                    other.logits[nth] += step;
                    weighted_sum(&other.expected())
                };
                let expected = (at(STEP) - at(-STEP)) / (2.0 * STEP);
                assert!((found - expected).abs() < 1e-7, "{found}, not {expected}: {case:?}");
            }
            let Some(weights) = weights.filter(|_| tracked_weights) else { continue };
            let found = numbers(weights.grad(&gradients).expect("weights are tracked"));
            for (nth, found) in found.into_iter().enumerate() {
                let at = |step: f64| {
                    let mut other = case.clone();
                    other.weights.as_mut().expect("there are weights")[nth] += step;
                    weighted_sum(&other.expected())
                };
                let expected = (at(STEP) - at(-STEP)) / (2.0 * STEP);
                assert!((found - expected).abs() < 1e-7, "{found}, not {expected}: {case:?}");
            }
        }
    }
}

/// Ignored slices have no part in anything, whatever their logits are, and unknown classes are NaN.
#[test]
fn ignored_and_unknown_classes() {
    let device = Device::flex().autodiff();
    let rows = [[0.0f32, 0.0], [f32::NAN, 1.0], [1.0, 2.0], [0.0, 0.0]];
    let logits = Tensor::<2>::from_data(rows, &device).require_grad();
    let classes = Tensor::<1, Int>::from_data([1, 7, 2, -1], &device);
    let losses = CrossEntropy::new().ignored(7).each(logits.clone(), classes.clone(), 1);
    let found = numbers(losses.clone());
    assert!((found[0] - 2f64.ln()).abs() < 1e-6 && found[1] == 0.0, "{found:?}");
    assert!(found[2].is_nan() && found[3].is_nan(), "{found:?}");
    let gradients = losses.sum().backward();
    let found = numbers(logits.grad(&gradients).expect("logits are tracked"));
    assert_eq!(found[..4], [0.5, -0.5, 0.0, 0.0]);
    assert!(found[4..].iter().all(|gradient| gradient.is_nan()), "{found:?}");
    let none = Tensor::<1, Int>::from_data([7, 7, 7, 7], &device);
    let mean = CrossEntropy::new().ignored(7).mean(logits.clone(), none, 1);
    assert!(numbers(mean.clone())[0].is_nan());
    let found = numbers(logits.grad(&mean.backward()).expect("logits are tracked"));
    assert_eq!(found, [0.0; 8]);
}

/// Classes of a type that does not have their number.
#[test]
fn classes_of_narrow_types() {
    let device = Device::flex();
    let logits: Vec<f32> = (0..2 * 300).map(|n| (n % 11) as f32 * 0.25).collect();
    let logits = Tensor::<2>::from_data(TensorData::new(logits, [2, 300]), &device);
    let losses = |dtype: DType| {
        let classes = TensorData::new(vec![3i64, 200], [2]).convert_dtype(dtype);
        let classes = Tensor::<1, Int>::from_data(classes, (&device, dtype));
        let loss = CrossEntropy::new().ignored(-56).smoothing(0.1);
        numbers(loss.each(logits.clone(), classes, 1))
    };
    assert_eq!(losses(DType::U8), losses(DType::I64));
}

#[test]
fn mistakes_are_named() {
    let device = Device::flex();
    let logits = || Tensor::<2>::ones([2, 3], &device);
    let classes = || Tensor::<1, Int>::zeros([2], &device);
    let message = |call: &dyn Fn()| -> String {
        let error = catch_unwind(AssertUnwindSafe(call)).expect_err("the call is a mistake");
        *error.downcast::<String>().expect("panics have a message")
    };
    let call =
        |loss: CrossEntropy, axis: i64| message(&|| drop(loss.mean(logits(), classes(), axis)));
    let of = "`cross_entropy` of a tensor of shape [2, 3]: ";
    assert_eq!(
        call(CrossEntropy::new(), 0),
        format!("{of}classes of shape [3] are needed, one for each slice, and not [2]")
    );
    assert_eq!(
        call(CrossEntropy::new(), 2),
        format!("{of}axis 2 is out of range for a tensor of rank 2")
    );
    assert_eq!(
        call(CrossEntropy::new().smoothing(-0.5), 1),
        format!("{of}`cross_entropy`: smoothing is -0.5, but must be from 0 to 1")
    );
    assert_eq!(
        call(CrossEntropy::new().weights(Tensor::ones([4], &device)), 1),
        format!("{of}3 weights of classes are needed, and not the shape [4]")
    );
}
