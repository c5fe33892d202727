//! Training steps and their times.

use std::time::Instant;

use burn_backend::ExecutionError;
use burn_core::module::Module;
use burn_optim::{GradientsParams, ModuleOptimizer, SgdConfig, momentum::MomentumConfig};
use burn_tensor::{Device, Tensor};
use indicatif::ProgressBar;
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use reduce_burn_examples::Reductions;
use reduce_programs::median;

use crate::{
    data::{Batch, Digits},
    network::Network,
    report::{EpochReport, Run},
};

const LEARNING_RATE: f64 = 0.05;

/// Steps at the start that do not count for the time per step: they compile kernels, and the fused
/// backend finds out there what it can fuse.
pub(crate) const WARM_UP_STEPS: usize = 3;

/// What both choices of reductions have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub seed: u64,
    pub batch: usize,
    pub channels: usize,
}

/// A network in training.
pub(crate) struct Training<'a> {
    reductions: Reductions,
    settings: Settings,
    learnt: &'a Digits,
    test: &'a Digits,
    device: Device,
    network: Network,
    optimizer: ModuleOptimizer,
    /// Weights, and then the order of images, come from it.
    random: StdRng,
    first_step_seconds: Option<f64>,
    /// Of each epoch that has steps after those of the warm-up.
    step_seconds: Vec<f64>,
    losses: Vec<f32>,
    epochs: Vec<EpochReport>,
}

impl<'a> Training<'a> {
    pub(crate) fn new(
        reductions: Reductions,
        settings: Settings,
        (learnt, test): (&'a Digits, &'a Digits),
        device: Device,
    ) -> Self {
        let mut random = StdRng::seed_from_u64(settings.seed);
        let momentum = MomentumConfig::new().with_dampening(0.0);
        Self {
            reductions,
            settings,
            learnt,
            test,
            network: Network::new(settings.channels, &mut random, &device.clone().autodiff()),
            optimizer: SgdConfig::new().with_momentum(Some(momentum)).init(),
            device,
            random,
            first_step_seconds: None,
            step_seconds: Vec::new(),
            losses: Vec::new(),
            epochs: Vec::new(),
        }
    }

    pub(crate) fn reductions(&self) -> Reductions {
        self.reductions
    }

    /// Takes every image once, in an order of its own. Images that do not fill a batch are left
    /// out.
    ///
    /// The device is waited for when the clock starts and when it stops, not in each step.
    pub(crate) fn epoch(&mut self, progress: &ProgressBar) -> Result<(), ExecutionError> {
        let tracked = self.device.clone().autodiff();
        let mut order: Vec<usize> = (0..self.learnt.len()).collect();
        order.shuffle(&mut self.random);
        let mut losses = Vec::new();
        let mut untimed = WARM_UP_STEPS.saturating_sub(self.losses.len());
        self.device.sync()?;
        let mut start = Instant::now();
        for which in order.chunks_exact(self.settings.batch) {
            let batch = self.learnt.upload(which, &tracked);
            losses.push(self.step(batch));
            progress.inc(1);
            if self.first_step_seconds.is_none() {
                self.device.sync()?;
                self.first_step_seconds = Some(start.elapsed().as_secs_f64());
            }
            if losses.len() == untimed {
                self.device.sync()?;
                start = Instant::now();
            }
        }
        self.device.sync()?;
        untimed = untimed.min(losses.len());
        if losses.len() > untimed {
            let steps = (losses.len() - untimed) as f64;
            self.step_seconds.push(start.elapsed().as_secs_f64() / steps);
        }
        let losses: Vec<f32> = Tensor::cat(losses, 0).into_data().iter::<f32>().collect();
        let mean_loss =
            losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / losses.len() as f64;
        self.losses.extend(losses);
        let test_accuracy = self.test_accuracy();
        self.epochs.push(EpochReport { mean_loss, test_accuracy });
        Ok(())
    }

    /// One step of gradient descent. Returns the loss without waiting for it.
    fn step(&mut self, batch: Batch) -> Tensor<1> {
        let logits = self.network.forward(batch.images, self.reductions);
        let loss = self.reductions.cross_entropy(logits, batch.digits);
        let gradients = GradientsParams::from_grads(loss.backward(), &self.network);
        self.network = self.optimizer.step(LEARNING_RATE, self.network.clone(), gradients);
        loss.inner()
    }

    /// The share of test images whose digit the network names.
    fn test_accuracy(&self) -> f64 {
        let Batch { images, digits } = self.test.upload_all(&self.device);
        let logits = self.network.valid().forward(images, self.reductions);
        let hits: i64 = self.reductions.hits(logits, digits).into_scalar();
        hits as f64 / self.test.len() as f64
    }

    pub(crate) fn into_run(self) -> Run {
        Run {
            reductions: self.reductions,
            first_step_seconds: self.first_step_seconds.unwrap_or(f64::NAN),
            step_seconds: (!self.step_seconds.is_empty()).then(|| median(self.step_seconds)),
            losses: self.losses,
            epochs: self.epochs,
        }
    }
}
