//! Losses.

use burn_core as burn;
use burn_core::{
    config::Config,
    module::{Content, DisplaySettings, Module, ModuleDisplay},
};
use burn_tensor::{Bool, Device, Int, Tensor, assert_shape};

use crate::{
    pairs::{CrossEntropy, dot},
    squeeze, sum,
};

/// The configuration of [`CrossEntropyLoss`].
///
/// ```
/// use burn_tensor::{Device, Int, Tensor};
/// use reduce_burn::nn::CrossEntropyLossConfig;
///
/// let device = Device::flex();
/// let loss = CrossEntropyLossConfig::new().with_pad_tokens(Some(vec![0])).init(&device);
/// let logits = Tensor::<2>::from_data([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]], &device);
/// let targets = Tensor::<1, Int>::from_data([2, 0], &device);
/// let found = loss.forward(logits, targets);
/// assert!((found.into_scalar::<f32>() - 4f32.ln()).abs() < 1e-6);
/// ```
#[derive(Config, Debug)]
pub struct CrossEntropyLossConfig {
    /// Targets that count for nothing. If all targets are among them, the loss is NaN.
    pub pad_tokens: Option<Vec<usize>>,
    /// A weight for each class, above 0.
    pub weights: Option<Vec<f32>>,
    /// The share, from 0 to 1, that is taken from the class that is right and given to all classes
    /// alike.
    pub smoothing: Option<f32>,
    /// Whether the loss is of logits, as by default, or of probabilities.
    #[config(default = true)]
    pub logits: bool,
}

impl CrossEntropyLossConfig {
    /// The loss.
    ///
    /// # Panics
    ///
    /// Panics if `smoothing` is not from 0 to 1, and if a weight is not above 0.
    pub fn init(&self, device: &Device) -> CrossEntropyLoss {
        if let Some(smoothing) = self.smoothing {
            let is_share = (0.0..=1.0).contains(&smoothing);
            assert!(is_share, "a smoothing of {smoothing} is not from 0 to 1");
        }
        if let Some(weights) = &self.weights {
            let are_positive = weights.iter().all(|&weight| weight > 0.0);
            assert!(are_positive, "weights of classes must be positive: {weights:?}");
        }
        let weights = self.weights.as_deref();
        CrossEntropyLoss {
            pad_tokens: self.pad_tokens.clone(),
            weights: weights.map(|weights| Tensor::from_floats(weights, device)),
            smoothing: self.smoothing,
            logits: self.logits,
        }
    }
}

/// The mean [`CrossEntropy`] of logits or of probabilities, as `burn::nn::loss::CrossEntropyLoss`.
///
/// It is made by [`CrossEntropyLossConfig`]. A target that is out of range and no pad token gives
/// NaN for logits.
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct CrossEntropyLoss {
    /// Targets that count for nothing.
    pub pad_tokens: Option<Vec<usize>>,
    /// A weight for each class.
    pub weights: Option<Tensor<1>>,
    /// The share that is taken from the class that is right and given to all classes alike.
    pub smoothing: Option<f32>,
    /// Whether the loss is of logits, or of probabilities.
    pub logits: bool,
}

impl CrossEntropyLoss {
    /// A loss of logits without weights and smoothing, and with a pad token if one is given.
    ///
    /// ```
    /// use burn_tensor::Device;
    /// use reduce_burn::nn::CrossEntropyLoss;
    ///
    /// let loss = CrossEntropyLoss::new(Some(0), &Device::flex());
    /// assert_eq!(loss.pad_tokens, Some(vec![0]));
    /// ```
    pub fn new(pad_index: Option<usize>, device: &Device) -> Self {
        let pad_tokens = pad_index.map(|token| vec![token]);
        CrossEntropyLossConfig::new().with_pad_tokens(pad_tokens).init(device)
    }

    /// The mean loss over the targets, of shape `[1]`: `logits` are of `[batch, classes]` and
    /// `targets` of `[batch]`. With weights, it is the sum of losses over that of the weights of
    /// the targets.
    ///
    /// Probabilities below the root of the smallest normal number of their type count as this root.
    ///
    /// # Panics
    ///
    /// Panics if there is not one target for each row of the logits, or not one weight for each
    /// class, and as [all functions](crate#errors).
    #[track_caller]
    pub fn forward(&self, logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
        let [batch, _] = logits.dims();
        assert_shape!(targets, [batch]);
        match self.logits {
            true => self.of_logits(logits, targets),
            false => self.of_probabilities(logits, targets),
        }
    }

    #[track_caller]
    fn of_logits(&self, logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
        let smoothing = self.smoothing.unwrap_or_default().into();
        let loss = CrossEntropy::new().smoothing(smoothing);
        let loss = self.weights.iter().cloned().fold(loss, CrossEntropy::weights);
        let mut pad_tokens = self.pad_tokens();
        let Some(ignored) = pad_tokens.next() else { return loss.mean(logits, targets, 1) };
        // A loss ignores one class: the first pad token stands for all of them.
        let targets = pad_tokens.fold(targets, |targets, token| {
            let is_token = targets.clone().equal_scalar(token);
            targets.mask_fill(is_token, ignored)
        });
        loss.ignored(ignored).mean(logits, targets, 1)
    }

    /// The loss of probabilities, whose logarithms need not be those of a softmax.
    #[track_caller]
    fn of_probabilities(&self, probabilities: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
        let least = probabilities.dtype().finfo().expect("probabilities are floats").min_positive;
        let logarithms = probabilities.clamp_min(least.sqrt()).log();
        let [batch, classes] = logarithms.dims();
        let padding = self.padding(&targets);
        let hide = |x: Tensor<1>| match &padding {
            Some(padding) => x.mask_fill(padding.clone(), 0),
            None => x,
        };
        // A pad token may be no class.
        let targets = match &padding {
            Some(padding) => targets.mask_fill(padding.clone(), 0),
            None => targets,
        };
        let own = logarithms.clone().gather(1, targets.clone().reshape([batch, 1]));
        let own: Tensor<1> = own.reshape([batch]);
        let of_targets = self.weights.clone().map(|weights| weights.gather(0, targets));
        let own = match &of_targets {
            Some(weights) => own * weights.clone(),
            None => own,
        };
        let losses = match self.smoothing {
            Some(smoothing) => {
                let all: Tensor<1> = match self.weights.clone() {
                    Some(weights) => dot(logarithms, weights.unsqueeze(), squeeze(1)),
                    None => sum(logarithms, squeeze(1)),
                };
                own * (1.0 - smoothing) + all * (smoothing / classes as f32)
            }
            None => own,
        };
        let divisor = of_targets.unwrap_or_else(|| losses.ones_like());
        let [total, divisor] = [losses, divisor].map(|x| sum(hide(x), squeeze(..)));
        total.neg() / divisor
    }

    /// The pad tokens as targets.
    fn pad_tokens(&self) -> impl Iterator<Item = i64> {
        self.pad_tokens.iter().flatten().map(|&token| token as i64)
    }

    /// Where targets are pad tokens, if there are any such tokens.
    fn padding(&self, targets: &Tensor<1, Int>) -> Option<Tensor<1, Bool>> {
        let each = self.pad_tokens().map(|token| targets.clone().equal_scalar(token));
        each.reduce(|padding, other| padding.bool_or(other))
    }
}

impl ModuleDisplay for CrossEntropyLoss {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let pad_tokens = match &self.pad_tokens {
            Some(tokens) => format!("Vec<0..{}>", tokens.len()),
            None => "None".to_string(),
        };
        content
            .add("pad_tokens", &pad_tokens)
            .add("weights", &self.weights)
            .add("smoothing", &self.smoothing)
            .add("logits", &self.logits)
            .optional()
    }
}
