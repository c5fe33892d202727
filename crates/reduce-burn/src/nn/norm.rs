//! Normalisations of the last axis.

use burn_core as burn;
use burn_core::{
    config::Config,
    module::{Content, DisplaySettings, Module, ModuleDisplay, Param, ParamId},
};
use burn_tensor::{Device, Shape, Tensor, assert_shape};

use crate::{
    layer_norm,
    pairs::{add_layer_norm, add_rms_norm},
    rms_norm,
};

/// The configuration of [`RmsNorm`].
///
/// ```
/// use burn_tensor::{Device, Tensor};
/// use reduce_burn::nn::RmsNormConfig;
///
/// let device = Device::flex();
/// let norm = RmsNormConfig::new(2).with_epsilon(1e-6).init(&device);
/// let normalized = norm.forward(Tensor::<2>::from_data([[3.0, 4.0]], &device));
/// assert!((normalized.sum().into_scalar::<f32>() - 7.0 / 12.5f32.sqrt()).abs() < 1e-6);
/// ```
#[derive(Config, Debug)]
pub struct RmsNormConfig {
    /// Elements of the last axis.
    pub d_model: usize,
    /// Added to the mean square, above 0. By default it is 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

impl RmsNormConfig {
    /// The module, with a weight of ones.
    ///
    /// # Panics
    ///
    /// Panics if `epsilon` is not above 0.
    pub fn init(&self, device: &Device) -> RmsNorm {
        assert!(self.epsilon > 0.0, "epsilon must be positive.");
        RmsNorm { gamma: parameter(self.d_model, 1.0, device), epsilon: self.epsilon }
    }
}

/// [`rms_norm`] of the last axis with a weight, as `burn::nn::RmsNorm`.
///
/// It is made by [`RmsNormConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct RmsNorm {
    /// The weight, of `[d_model]`.
    pub gamma: Param<Tensor<1>>,
    /// Added to the mean square.
    pub epsilon: f64,
}

impl RmsNorm {
    /// The normalised tensor, of `[..., d_model]` as `x`.
    ///
    /// # Panics
    ///
    /// Panics if the last axis of `x` does not have `d_model` elements, and as
    /// [all functions](crate#errors).
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let [d_model] = self.gamma.shape().dims();
        assert_shape!(x, [.., d_model]);
        rms_norm(x, -1, Some(self.gamma.val().unsqueeze()), self.epsilon)
    }

    /// The sum of `x` and of `residual`, and the sum normalised, as [`add_rms_norm`].
    ///
    /// ```
    /// use burn_tensor::Tensor;
    /// use reduce_burn::nn::RmsNorm;
    ///
    /// /// The hidden states behind a block, and what the next block takes.
    /// fn connect(norm: &RmsNorm, block: Tensor<3>, hidden: Tensor<3>) -> (Tensor<3>, Tensor<3>) {
    ///     norm.forward_add(block, hidden) // hidden + block, norm.forward(hidden + block)
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward), and for a residual that does not broadcast to `x`.
    #[track_caller]
    pub fn forward_add<const D: usize>(
        &self,
        x: Tensor<D>,
        residual: Tensor<D>,
    ) -> (Tensor<D>, Tensor<D>) {
        let [d_model] = self.gamma.shape().dims();
        assert_shape!(x, [.., d_model]);
        add_rms_norm(x, residual, -1, Some(self.gamma.val().unsqueeze()), self.epsilon)
    }
}

impl ModuleDisplay for RmsNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_model] = self.gamma.shape().dims();
        content.add("d_model", &d_model).add("epsilon", &self.epsilon).optional()
    }
}

/// The configuration of [`LayerNorm`].
///
/// ```
/// use burn_tensor::{Device, Tensor};
/// use reduce_burn::nn::LayerNormConfig;
///
/// let device = Device::flex();
/// let norm = LayerNormConfig::new(2).with_bias(false).init(&device);
/// let normalized = norm.forward(Tensor::<2>::from_data([[-10.0, 10.0]], &device));
/// # let found = normalized.into_data().to_vec::<f32>().unwrap();
/// # assert!((found[0] + 1.0).abs() < 1e-6 && (found[1] - 1.0).abs() < 1e-6);
/// ```
#[derive(Config, Debug)]
pub struct LayerNormConfig {
    /// Elements of the last axis.
    pub d_model: usize,
    /// Added to the variance. By default it is 1e-5.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether there is a bias. By default there is one.
    #[config(default = true)]
    pub bias: bool,
}

impl LayerNormConfig {
    /// The module, with a weight of ones and a bias of zeros.
    pub fn init(&self, device: &Device) -> LayerNorm {
        LayerNorm {
            gamma: parameter(self.d_model, 1.0, device),
            beta: self.bias.then(|| parameter(self.d_model, 0.0, device)),
            epsilon: self.epsilon,
        }
    }
}

/// [`layer_norm`] of the last axis with a weight, and a bias if it has one, as
/// `burn::nn::LayerNorm`.
///
/// It is made by [`LayerNormConfig`].
#[derive(Module, Debug)]
#[module(custom_display)]
pub struct LayerNorm {
    /// The weight, of `[d_model]`.
    pub gamma: Param<Tensor<1>>,
    /// The bias, of `[d_model]`.
    pub beta: Option<Param<Tensor<1>>>,
    /// Added to the variance.
    epsilon: f64,
}

impl LayerNorm {
    /// The normalised tensor, of `[..., d_model]` as `input`.
    ///
    /// # Panics
    ///
    /// Panics if the last axis of `input` does not have `d_model` elements, and as
    /// [all functions](crate#errors).
    #[track_caller]
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let [d_model] = self.gamma.shape().dims();
        assert_shape!(input, [.., d_model]);
        let (gamma, beta) = self.operands();
        layer_norm(input, -1, Some(gamma), beta, self.epsilon)
    }

    /// The sum of `input` and of `residual`, and the sum normalised, as [`add_layer_norm`].
    ///
    /// ```
    /// use burn_tensor::Tensor;
    /// use reduce_burn::nn::LayerNorm;
    ///
    /// type Both = (Tensor<3>, Tensor<3>);
    ///
    /// /// The hidden states behind a block, and what the next block takes.
    /// fn connect(norm: &LayerNorm, block: Tensor<3>, hidden: Tensor<3>) -> Both {
    ///     norm.forward_add(block, hidden) // hidden + block, norm.forward(hidden + block)
    /// }
    /// ```
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward), and for a residual that does not broadcast to `input`.
    #[track_caller]
    pub fn forward_add<const D: usize>(
        &self,
        input: Tensor<D>,
        residual: Tensor<D>,
    ) -> (Tensor<D>, Tensor<D>) {
        let [d_model] = self.gamma.shape().dims();
        assert_shape!(input, [.., d_model]);
        let (gamma, beta) = self.operands();
        add_layer_norm(input, residual, -1, Some(gamma), beta, self.epsilon)
    }

    /// The weight and the bias with the rank of a tensor.
    fn operands<const D: usize>(&self) -> (Tensor<D>, Option<Tensor<D>>) {
        let beta = self.beta.as_ref().map(|beta| beta.val().unsqueeze());
        (self.gamma.val().unsqueeze(), beta)
    }
}

impl ModuleDisplay for LayerNorm {
    fn custom_settings(&self) -> Option<DisplaySettings> {
        DisplaySettings::new().with_new_line_after_attribute(false).optional()
    }

    fn custom_content(&self, content: Content) -> Option<Content> {
        let [d_model] = self.gamma.shape().dims();
        content
            .add("d_model", &d_model)
            .add("epsilon", &self.epsilon)
            .add("bias", &self.beta.is_some())
            .optional()
    }
}

/// A parameter of equal elements. It is made when it is first read, as those of Burn's modules are,
/// so a record that is loaded before takes its place.
fn parameter(count: usize, value: f64, device: &Device) -> Param<Tensor<1>> {
    let made = move |device: &Device, is_tracked: bool| {
        // Parameters live as long as their module, and not in the memory of results.
        device.memory_persistent_allocations((), |()| {
            Tensor::full([count], value, device).set_require_grad(is_tracked)
        })
    };
    Param::uninitialized(ParamId::new(), made, device.clone(), true, Shape::from([count]))
}
