//! The modules of `reduce_burn::nn` beside those of burn-nn, on burn-flex.

use std::panic::{AssertUnwindSafe, catch_unwind};

use burn_core::{
    config::Config,
    module::{Module, Param},
    store::ModuleRecord,
};
use burn_nn::loss;
use burn_tensor::{DType, Device, Distribution, Int, Tensor, TensorData};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reduce_burn::nn::{
    CrossEntropyLoss, CrossEntropyLossConfig, LayerNorm, LayerNormConfig, RmsNorm, RmsNormConfig,
};

/// Elements of the last axis.
const FEATURES: usize = 6;

fn tracking() -> Device {
    Device::flex().autodiff()
}

fn random<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::random(shape, Distribution::Uniform(-2.0, 2.0), device)
}

fn elements<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.into_data().iter::<f64>().collect()
}

fn assert_close(found: &[f64], expected: &[f64], relative: f64, case: &str) {
    assert_eq!(found.len(), expected.len(), "{case}");
    for (nth, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let close = (found - expected).abs() <= relative * expected.abs().max(1.0)
            || found.is_nan() && expected.is_nan();
        assert!(close, "{case}: element {nth} is {found}, not {expected}");
    }
}

/// Burn's modules with random parameters.
fn burn_rms_norm() -> burn_nn::RmsNorm {
    let mut norm = burn_nn::RmsNormConfig::new(FEATURES).with_epsilon(0.01).init(&tracking());
    norm.gamma = Param::from_tensor(random([FEATURES], &tracking()));
    norm
}

fn burn_layer_norm(bias: bool) -> burn_nn::LayerNorm {
    let config = burn_nn::LayerNormConfig::new(FEATURES).with_epsilon(0.01).with_bias(bias);
    let mut norm = config.init(&tracking());
    norm.gamma = Param::from_tensor(random([FEATURES], &tracking()));
    norm.beta = norm.beta.map(|_| Param::from_tensor(random([FEATURES], &tracking())));
    norm
}

/// A record as it comes back from a file.
fn stored(module: impl Module) -> ModuleRecord {
    let bytes = module.into_record().into_bytes().expect("the record can be written");
    ModuleRecord::from_bytes(bytes).expect("the record can be read")
}

fn rms_norm_of(burn: &burn_nn::RmsNorm) -> RmsNorm {
    let config = RmsNormConfig::new(FEATURES).with_epsilon(0.01);
    config.init(&tracking()).load_record(stored(burn.clone()))
}

fn layer_norm_of(burn: &burn_nn::LayerNorm) -> LayerNorm {
    let bias = burn.beta.is_some();
    let config = LayerNormConfig::new(FEATURES).with_epsilon(0.01).with_bias(bias);
    config.init(&tracking()).load_record(stored(burn.clone()))
}

#[test]
fn records_are_those_of_burn() {
    let burn = burn_rms_norm();
    let ours = rms_norm_of(&burn);
    assert_eq!(elements(ours.gamma.val()), elements(burn.gamma.val()));
    let new = burn_nn::RmsNormConfig::new(FEATURES).init(&tracking());
    let back = new.load_record(stored(ours));
    assert_eq!(elements(back.gamma.val()), elements(burn.gamma.val()));
    for bias in [true, false] {
        let burn = burn_layer_norm(bias);
        let ours = layer_norm_of(&burn);
        let config = burn_nn::LayerNormConfig::new(FEATURES).with_bias(bias);
        let back = config.init(&tracking()).load_record(stored(ours.clone()));
        for gamma in [ours.gamma, back.gamma] {
            assert_eq!(elements(gamma.val()), elements(burn.gamma.val()));
        }
        for beta in [ours.beta, back.beta] {
            let [found, expected] =
                [beta, burn.beta.clone()].map(|beta| beta.map(|beta| elements(beta.val())));
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn configurations_and_displays_are_those_of_burn() {
    let device = Device::flex();
    let burn = burn_nn::RmsNormConfig::new(7).with_epsilon(1e-3);
    let ours = RmsNormConfig::load_binary(burn.to_string().as_bytes()).unwrap();
    assert_eq!((ours.d_model, ours.epsilon), (7, 1e-3));
    assert_eq!(ours.init(&device).to_string(), burn.init(&device).to_string());
    let burn = burn_nn::LayerNormConfig::new(7).with_bias(false);
    let ours = LayerNormConfig::load_binary(burn.to_string().as_bytes()).unwrap();
    assert_eq!((ours.d_model, ours.epsilon, ours.bias), (7, 1e-5, false));
    assert_eq!(ours.init(&device).to_string(), burn.init(&device).to_string());
    let burn = loss::CrossEntropyLossConfig::new()
        .with_pad_tokens(Some(vec![0, 3]))
        .with_weights(Some(vec![1.0, 2.0]))
        .with_smoothing(Some(0.5))
        .with_logits(false);
    let ours = CrossEntropyLossConfig::load_binary(burn.to_string().as_bytes()).unwrap();
    assert_eq!(ours.to_string(), burn.to_string());
    assert_eq!(ours.init(&device).to_string(), burn.init(&device).to_string());
}

/// A result, the gradient of its input, and those of parameters, for a weighted sum of the result.
fn with_gradients<const D: usize>(
    result: Tensor<D>,
    x: &Tensor<D>,
    parameters: &[&Param<Tensor<1>>],
) -> Vec<Vec<f64>> {
    let count = result.shape().num_elements() as i64;
    let factors = Tensor::arange(0..count, &Device::flex()).float().reshape(result.dims());
    let gradients = (result.clone() * (factors * 0.1 + 0.3)).sum().backward();
    let own = [elements(result), elements(x.grad(&gradients).expect("the input is tracked"))];
    let of_parameters = parameters.iter().map(|parameter| {
        elements(parameter.val().grad(&gradients).expect("parameters are tracked"))
    });
    own.into_iter().chain(of_parameters).collect()
}

fn assert_all_close(found: &[Vec<f64>], expected: &[Vec<f64>], relative: f64, case: &str) {
    assert_eq!(found.len(), expected.len(), "{case}");
    for (nth, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_close(found, expected, relative, &format!("{nth} of {case}"));
    }
}

/// Results of tensors of each rank, and gradients of the tensors and of the parameters; of sums
/// with a residual too.
#[test]
fn normalisations_are_those_of_burn() {
    fn check<const D: usize>(shape: [usize; D]) {
        let device = tracking();
        let x = random(shape, &device).require_grad();
        let residual = random(shape, &Device::flex());
        let burn = burn_rms_norm();
        let ours = rms_norm_of(&burn);
        let found = with_gradients(ours.forward(x.clone()), &x, &[&ours.gamma]);
        let expected = with_gradients(burn.forward(x.clone()), &x, &[&burn.gamma]);
        assert_all_close(&found, &expected, 1e-5, &format!("RmsNorm of {shape:?}"));
        let (sum, normalized) = ours.forward_add(x.clone(), residual.clone());
        let found = with_gradients(sum + normalized, &x, &[&ours.gamma]);
        let sum = x.clone() + residual.clone();
        let expected = with_gradients(sum.clone() + burn.forward(sum), &x, &[&burn.gamma]);
        assert_all_close(&found, &expected, 1e-5, &format!("RmsNorm of sums of {shape:?}"));
        for bias in [true, false] {
            let burn = burn_layer_norm(bias);
            let ours = layer_norm_of(&burn);
            let of_burn: Vec<_> = [&burn.gamma].into_iter().chain(&burn.beta).collect();
            let of_ours: Vec<_> = [&ours.gamma].into_iter().chain(&ours.beta).collect();
            let found = with_gradients(ours.forward(x.clone()), &x, &of_ours);
            let expected = with_gradients(burn.forward(x.clone()), &x, &of_burn);
            let case = format!("LayerNorm of {shape:?}, bias {bias}");
            assert_all_close(&found, &expected, 1e-5, &case);
            let (sum, normalized) = ours.forward_add(x.clone(), residual.clone());
            let found = with_gradients(sum + normalized, &x, &of_ours);
            let sum = x.clone() + residual.clone();
            let expected = with_gradients(sum.clone() + burn.forward(sum), &x, &of_burn);
            assert_all_close(&found, &expected, 1e-5, &format!("{case}, of sums"));
        }
    }

    check([FEATURES]);
    check([5, FEATURES]);
    check([2, 3, FEATURES]);
}

/// A tensor of halves with parameters of f32 stays one of halves.
#[test]
fn normalisations_of_halves() {
    let device = Device::flex();
    let x: Tensor<2> = random([5, FEATURES], &device) * 300.0;
    let halves = x.clone().cast(DType::F16);
    let norm = RmsNormConfig::new(FEATURES).init(&device);
    let found = norm.forward(halves.clone());
    assert_eq!(found.dtype(), DType::F16);
    assert_close(&elements(found), &elements(norm.forward(x.clone())), 2e-3, "RmsNorm");
    let norm = LayerNormConfig::new(FEATURES).init(&device);
    let found = norm.forward(halves);
    assert_eq!(found.dtype(), DType::F16);
    assert_close(&elements(found), &elements(norm.forward(x)), 2e-3, "LayerNorm");
}

/// Every option with every other: losses, and gradients of logits and of probabilities.
#[test]
fn cross_entropy_is_that_of_burn() {
    const BATCH: usize = 8;
    const CLASSES: usize = 5;

    let device = tracking();
    let mut source = StdRng::seed_from_u64(1);
    let targets: Vec<i64> = (0..BATCH).map(|_| source.random_range(0..CLASSES as i64)).collect();
    let targets =
        || Tensor::<1, Int>::from_data(TensorData::new(targets.clone(), [BATCH]), &device);
    let positive: Tensor<2> = random([BATCH, CLASSES], &device).exp();
    // Rows do not add up to 1, and one probability is 0.
    let probabilities = positive / 9.0;
    let hidden = Tensor::<2>::from_data([[0.0]], &device);
    let probabilities = probabilities.slice_assign([3..4, 2..3], hidden).detach();
    let logits: Tensor<2> = random([BATCH, CLASSES], &device);
    let pad_tokens = [None, Some(vec![]), Some(vec![2]), Some(vec![4, 0])];
    let weights = [None, Some(vec![0.5, 1.0, 2.0, 3.0, 0.25])];
    let smoothings = [None, Some(0.0), Some(0.2)];
    for pad_tokens in &pad_tokens {
        for weights in &weights {
            for smoothing in smoothings {
                for is_logits in [true, false] {
                    let burn = loss::CrossEntropyLossConfig::new()
                        .with_pad_tokens(pad_tokens.clone())
                        .with_weights(weights.clone())
                        .with_smoothing(smoothing)
                        .with_logits(is_logits);
                    let ours = CrossEntropyLossConfig::load_binary(burn.to_string().as_bytes())
                        .expect("the configuration is the same");
                    let (burn, ours) = (burn.init(&device), ours.init(&device));
                    let leaf = if is_logits { &logits } else { &probabilities };
                    let result = |loss: &dyn Fn(Tensor<2>, Tensor<1, Int>) -> Tensor<1>| {
                        let leaf = leaf.clone().require_grad();
                        let value = loss(leaf.clone(), targets());
                        let gradients = value.backward();
                        vec![elements(value), elements(leaf.grad(&gradients).unwrap())]
                    };
                    let found = result(&|x, targets| ours.forward(x, targets));
                    let expected = result(&|x, targets| burn.forward(x, targets));
                    assert_all_close(&found, &expected, 2e-5, &format!("{ours}"));
                }
            }
        }
    }
}

/// A batch of padding alone, pad tokens that are no classes, and the constructor.
#[test]
fn padding() {
    let device = Device::flex();
    let logits: Tensor<2> = random([3, 4], &device);
    let targets = |targets: [i64; 3]| Tensor::<1, Int>::from_data(targets, &device);
    let loss = CrossEntropyLoss::new(Some(1), &device);
    let all_padded = loss.forward(logits.clone(), targets([1; 3]));
    assert!(all_padded.into_scalar::<f32>().is_nan());
    for is_logits in [true, false] {
        let config = CrossEntropyLossConfig::new().with_logits(is_logits);
        let x = logits.clone().exp();
        let padded = config.clone().with_pad_tokens(Some(vec![9, 200])).init(&device);
        let found = padded.forward(x.clone(), targets([2, 9, 200]));
        let expected =
            config.init(&device).forward(x.slice([0..1, 0..4]), targets([2; 3]).narrow(0, 0, 1));
        assert_close(&elements(found), &elements(expected), 1e-6, "pad tokens that are no classes");
    }
}

fn message<T>(call: impl FnOnce() -> T) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(call)) else { panic!("expected a panic") };
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(panic) => panic.downcast::<&str>().expect("the message is text").to_string(),
    }
}

#[test]
fn errors() {
    let device = Device::flex();
    let x = || Tensor::<2>::zeros([2, 4], &device);
    let targets = || Tensor::<1, Int>::zeros([3], &device);
    let of_shape = "axis 1 expected 3, got 4";
    let rms = RmsNormConfig::new(3);
    let layer = LayerNormConfig::new(3);
    let loss = CrossEntropyLossConfig::new();
    let cases = [
        (message(|| rms.init(&device).forward(x())), of_shape),
        (message(|| rms.init(&device).forward_add(x(), x())), of_shape),
        (message(|| layer.init(&device).forward(x())), of_shape),
        (message(|| layer.init(&device).forward_add(x(), x())), of_shape),
        (message(|| loss.init(&device).forward(x(), targets())), "axis 0 expected 2, got 3"),
        (message(|| rms.clone().with_epsilon(0.0).init(&device)), "epsilon must be positive"),
        (
            message(|| loss.clone().with_smoothing(Some(1.5)).init(&device)),
            "a smoothing of 1.5 is not from 0 to 1",
        ),
        (
            message(|| loss.clone().with_weights(Some(vec![1.0, 0.0])).init(&device)),
            "weights of classes must be positive: [1.0, 0.0]",
        ),
    ];
    for (found, expected) in cases {
        assert!(found.contains(expected), "{found:?} has no {expected:?}");
    }
}
