//! The network. Batch normalisation is written here because Burn's own has fixed reductions.

// The derive macro names the crate so.
use burn_core as burn;
use burn_core::module::{Module, Param, RunningState};
use burn_nn::{
    Linear, LinearConfig, PaddingConfig2d,
    conv::{Conv2d, Conv2dConfig},
};
use burn_tensor::{Device, Tensor, TensorData, activation::relu};
use rand::{Rng, rngs::StdRng};
use reduce_burn_examples::Reductions;

use crate::data::{CLASSES, SIDE};

/// Two convolutions of 3 × 3, each with batch normalisation and a rectifier, and a linear layer.
#[derive(Module, Debug)]
pub(crate) struct Network {
    first: Conv2d,
    first_norm: BatchNorm,
    second: Conv2d,
    second_norm: BatchNorm,
    linear: Linear,
}

impl Network {
    /// A network whose first convolution has so many channels and whose second has twice as many.
    /// The weights depend on `random` alone: the backend's own random numbers are not used.
    pub(crate) fn new(channels: usize, random: &mut StdRng, device: &Device) -> Self {
        let convolution = |inputs, outputs, stride, random: &mut StdRng| {
            let config = Conv2dConfig::new([inputs, outputs], [3, 3])
                .with_stride([stride, stride])
                .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                .with_bias(false);
            let weight = weights([outputs, inputs, 3, 3], inputs * 9, random, device);
            Conv2d { weight, ..config.init(device) }
        };
        let features = 2 * channels * (SIDE / 2).pow(2);
        Self {
            first: convolution(1, channels, 1, random),
            first_norm: BatchNorm::new(channels, device),
            second: convolution(channels, 2 * channels, 2, random),
            second_norm: BatchNorm::new(2 * channels, device),
            linear: Linear {
                weight: weights([features, CLASSES], features, random, device),
                ..LinearConfig::new(features, CLASSES).with_bias(false).init(device)
            },
        }
    }
}

/// Random weights: uniform, with a variance of 2 / `inputs`, which suits rectifiers (He et al.,
/// "Delving Deep into Rectifiers", 2015).
fn weights<const D: usize>(
    shape: [usize; D],
    inputs: usize,
    random: &mut StdRng,
    device: &Device,
) -> Param<Tensor<D>> {
    let bound = (6.0 / inputs as f32).sqrt();
    let len = shape.iter().product();
    let weights: Vec<f32> = (0..len).map(|_| random.random_range(-bound..bound)).collect();
    Param::from_data(TensorData::new(weights, shape), device)
}

impl Network {
    /// The logits of images, `[batch, classes]`.
    pub(crate) fn forward(&self, images: Tensor<4>, reductions: Reductions) -> Tensor<2> {
        let x = relu(self.first_norm.forward(self.first.forward(images), reductions));
        let x = relu(self.second_norm.forward(self.second.forward(x), reductions));
        self.linear.forward(x.flatten(1, 3))
    }
}

/// Batch normalisation over the batch and the image, as in `burn-nn`, with a choice of reductions.
#[derive(Module, Debug)]
struct BatchNorm {
    scale: Param<Tensor<1>>,
    shift: Param<Tensor<1>>,
    running_mean: RunningState<Tensor<1>>,
    running_var: RunningState<Tensor<1>>,
}

impl BatchNorm {
    /// What is added to a variance before its root divides.
    const EPSILON: f64 = 1e-5;

    /// The share of a step in the running mean and variance.
    const MOMENTUM: f64 = 0.1;

    fn new(channels: usize, device: &Device) -> Self {
        Self {
            scale: Param::from_tensor(Tensor::ones([channels], device)),
            shift: Param::from_tensor(Tensor::zeros([channels], device)),
            running_mean: RunningState::new(Tensor::zeros([channels], device)),
            running_var: RunningState::new(Tensor::ones([channels], device)),
        }
    }
}

impl BatchNorm {
    /// With autodiff, the statistics are those of this batch. Without, they are the running ones.
    fn forward(&self, x: Tensor<4>, reductions: Reductions) -> Tensor<4> {
        let channels = x.dims()[1];
        let per_channel = |values: Tensor<1>| values.reshape([1, channels, 1, 1]);
        let (mean, var) = if x.is_autodiff() {
            let (mean, var) = reductions.channel_moments(x.clone());
            update(&self.running_mean, mean.clone(), Self::MOMENTUM);
            update(&self.running_var, var.clone(), Self::MOMENTUM);
            (mean, var)
        } else {
            (per_channel(self.running_mean.value()), per_channel(self.running_var.value()))
        };
        let normalised = (x - mean) / (var + Self::EPSILON).sqrt();
        normalised * per_channel(self.scale.val()) + per_channel(self.shift.val())
    }
}

/// Moves a running statistic towards that of a batch.
fn update(running: &RunningState<Tensor<1>>, batch: Tensor<4>, momentum: f64) {
    let before = running.value_sync();
    let batch = batch.detach().reshape(before.dims());
    running.update((before * (1.0 - momentum) + batch * momentum).detach());
}
