//! Cross-entropies on devices, against burn-flex. Those of burn-flex are compared with their
//! definition and with finite differences in `crates/reduce-burn/tests`.

use burn_tensor::{DType, Device, Int, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::pairs::CrossEntropy;

use crate::values::{assert_close, flex, has};

/// The class of slices that are ignored.
const IGNORED: i64 = -100;

/// What becomes of losses.
#[derive(Clone, Copy, Debug)]
enum Reduced {
    Each,
    Sum,
    Mean,
}

/// Logits of `[outer, classes, inner]`.
#[derive(Debug)]
struct Case {
    logits: TensorData,
    classes: TensorData,
    weights: Option<TensorData>,
    smoothing: f64,
    reduced: Reduced,
}

/// Random cases of logits of a type, in which options meet.
fn cases(dtype: DType) -> Vec<Case> {
    let mut rng = StdRng::seed_from_u64(3);
    let mut cases = Vec::new();
    for shape in [[4usize, 301, 1], [2, 17, 9]] {
        for (smoothing, weighted) in [(0.0, false), (0.1, false), (0.0, true), (0.1, true)] {
            let [outer, count, inner] = shape;
            let logits: Vec<f32> =
                (0..outer * count * inner).map(|_| rng.random_range(-4.0..4.0)).collect();
            let classes: Vec<i32> = (0..outer * inner)
                .map(|slice| match slice % 4 {
                    2 => IGNORED as i32,
                    _ => rng.random_range(0..count as i32),
                })
                .collect();
            let weights: Vec<f32> = (0..count).map(|_| rng.random_range(0.5..2.0)).collect();
            let reduced = [Reduced::Each, Reduced::Sum, Reduced::Mean][cases.len() % 3];
            cases.push(Case {
                logits: TensorData::new(logits, shape).convert_dtype(dtype),
                classes: TensorData::new(classes, [outer, inner]),
                weights: weighted.then(|| TensorData::new(weights, [count])),
                smoothing,
                reduced,
            });
        }
    }
    cases
}

impl Case {
    fn losses(&self, logits: Tensor<3>, device: &Device) -> Tensor<2> {
        let classes = Tensor::<2, Int>::from_data(self.classes.clone(), device);
        let loss = CrossEntropy::new().smoothing(self.smoothing).ignored(IGNORED);
        let weights = self.weights.clone().map(|weights| Tensor::from_data(weights, device));
        let loss = weights.into_iter().fold(loss, CrossEntropy::weights);
        match self.reduced {
            Reduced::Each => loss.each(logits, classes, 1),
            Reduced::Sum => loss.sum(logits, classes, 1).unsqueeze(),
            Reduced::Mean => loss.mean(logits, classes, 1).unsqueeze(),
        }
    }

    fn logits(&self, device: &Device) -> Tensor<3> {
        Tensor::from_data(self.logits.clone(), (device, self.logits.dtype()))
    }

    /// The gradient of a weighted sum of the losses.
    fn gradient(&self, device: &Device) -> TensorData {
        let logits = self.logits(device).require_grad();
        let losses = self.losses(logits.clone(), device);
        let count = losses.shape().num_elements();
        let factors: Vec<f32> = (0..count).map(|n| 0.5 + (n % 7) as f32 * 0.25).collect();
        let factors = TensorData::new(factors, losses.dims()).convert_dtype(losses.dtype());
        let factors = Tensor::from_data(factors, (device, losses.dtype()));
        let gradients = (losses * factors).sum().backward();
        logits.grad(&gradients).expect("logits are tracked").into_data()
    }
}

/// Losses with every option, of each type that the device has.
pub(crate) fn values(device: &Device) {
    let types = [(DType::F32, 2e-5), (DType::F16, 2e-3), (DType::BF16, 1e-2)];
    for (dtype, relative) in types.into_iter().filter(|&(dtype, _)| has(device, dtype)) {
        for case in cases(dtype) {
            let found = case.losses(case.logits(device), device);
            assert_eq!(found.dtype(), dtype);
            let expected = case.losses(case.logits(&flex()), &flex());
            let what = format!("{dtype:?}, smoothing {}, {:?}", case.smoothing, case.reduced);
            assert_close(&found.into_data(), &expected.into_data(), relative, &what);
        }
    }
}

/// Gradients with every option, of each type that the device has.
pub(crate) fn gradients(device: &Device) {
    let types = [(DType::F32, 2e-5), (DType::F16, 2e-3), (DType::BF16, 1e-2)];
    for (dtype, relative) in types.into_iter().filter(|&(dtype, _)| has(device, dtype)) {
        for case in cases(dtype) {
            let found = case.gradient(device);
            assert_eq!(found.dtype(), dtype);
            let expected = case.gradient(&flex().autodiff());
            let what = format!("{dtype:?}, smoothing {}, {:?}", case.smoothing, case.reduced);
            assert_close(&found, &expected, relative, &what);
        }
    }
}
