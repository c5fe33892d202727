//! Softmax and normalisations: reductions whose results go back to their elements.
//!
//! Each is a value, whose `of` gives an [`AppliedReduction`] to add operands to, to plan or to run,
//! and a function for the plain case. All of them work over any axes of any strided tensor, compute
//! in f32 (f64 for f64), and give elements of the input's type.

use core::{fmt, str::FromStr};

use cubecl::{prelude::*, std::tensor::TensorHandle};

use crate::{
    AppliedReduction, Axes, ExponentialShare, Input, LogShare, LogSoftmaxSums, Mapped, MeanRstd,
    NormL2Reciprocal, ReduceError, RmsReciprocal, ScaleBy, Scaled, ScaledThen, SoftmaxSums,
    Standardized, host, reduce,
};

/// Exponentials over their sum, for each slice over the given axes.
///
/// A slice with NaN or `inf` is NaN, and so is a slice of `-inf` alone. Beside finite elements,
/// `-inf` gives 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Softmax;

/// The logarithm of [`Softmax`], without the loss of taking one after the other. NaN where softmax
/// is; beside finite elements, `-inf` stays `-inf`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSoftmax;

/// [`Softmax`] of the elements divided by a temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TemperedSoftmax {
    /// A finite number above 0.
    pub temperature: f64,
}

/// [`LogSoftmax`] of the elements divided by a temperature.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TemperedLogSoftmax {
    /// A finite number above 0.
    pub temperature: f64,
}

/// The difference from the mean over the root of the variance plus `eps`. The variance divides by
/// the count. Operands: a weight, then a bias.
///
/// Over the last axes this is layer normalisation, and over all axes but that of the channels what
/// batch normalisation does in training. A slice with NaN or an infinity is NaN. Equal elements
/// give 0 up to rounding; with an `eps` of 0 they give nothing of meaning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance: a finite number, 0 or more.
    pub eps: f64,
}

/// The elements over the root of their mean square plus `eps`. Operands: a weight, then a bias.
///
/// A slice with NaN is NaN. Zeros give 0, or NaN if `eps` is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean square: a finite number, 0 or more.
    pub eps: f64,
}

/// The elements over their L2 norm, or over `eps` if that is larger.
///
/// A slice with NaN is NaN. Zeros give 0, or NaN if `eps` is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormalizeL2 {
    /// The smallest divisor: a finite number, 0 or more.
    pub eps: f64,
}

/// [`LayerNorm`] with a variance that divides by `count - correction`, and no operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standardize {
    /// 0 for the variance of a population, 1 for that of a sample.
    pub correction: f64,
    /// Added to the variance: a finite number, 0 or more.
    pub eps: f64,
}

impl Softmax {
    /// Softmax of `input` over `axes`.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, SoftmaxSums, ExponentialShare, T> {
        reduce(SoftmaxSums, input).over(axes).apply(ExponentialShare)
    }
}

impl LogSoftmax {
    /// Log-softmax of `input` over `axes`.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, LogSoftmaxSums, LogShare, T> {
        reduce(LogSoftmaxSums, input).over(axes).apply(LogShare)
    }
}

impl TemperedSoftmax {
    /// Softmax of `input` over `axes`.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, Mapped<ScaleBy, SoftmaxSums>, ScaledThen<ExponentialShare>, T> {
        let scale = self.temperature.recip();
        let sums = reduce(SoftmaxSums, input).over(axes).mapped(ScaleBy { scale });
        sums.apply(ScaledThen { scale, apply: ExponentialShare })
    }
}

impl TemperedLogSoftmax {
    /// Log-softmax of `input` over `axes`.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, Mapped<ScaleBy, LogSoftmaxSums>, ScaledThen<LogShare>, T> {
        let scale = self.temperature.recip();
        let sums = reduce(LogSoftmaxSums, input).over(axes).mapped(ScaleBy { scale });
        sums.apply(ScaledThen { scale, apply: LogShare })
    }
}

impl LayerNorm {
    /// The normalised `input`, over `axes`. Its results are the mean and the reciprocal of the
    /// root.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, MeanRstd, Standardized, T> {
        Standardize { correction: 0.0, eps: self.eps }.of(input, axes)
    }
}

impl RmsNorm {
    /// The normalised `input`, over `axes`. Its result is the reciprocal of the root.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, RmsReciprocal, Scaled, T> {
        reduce(RmsReciprocal { eps: self.eps }, input).over(axes).apply(Scaled)
    }
}

impl NormalizeL2 {
    /// The normalised `input`, over `axes`. Its result is the reciprocal of the divisor.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, NormL2Reciprocal, Scaled, T> {
        reduce(NormL2Reciprocal { eps: self.eps }, input).over(axes).apply(Scaled)
    }
}

impl Standardize {
    /// The standardised `input`, over `axes`. Its results are the mean and the reciprocal of the
    /// root.
    pub fn of<T: Input>(
        self,
        input: &T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'_, MeanRstd, Standardized, T> {
        let Self { correction, eps } = self;
        reduce(MeanRstd { correction, eps }, input).over(axes).apply(Standardized)
    }
}

/// [`Softmax`] over `axes`.
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn softmax(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
) -> Result<TensorHandle, ReduceError> {
    Softmax.of(input, axes).run(client)
}

/// [`LogSoftmax`] over `axes`.
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn log_softmax(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
) -> Result<TensorHandle, ReduceError> {
    LogSoftmax.of(input, axes).run(client)
}

/// [`LayerNorm`] over `axes`, without weight and bias.
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn layer_norm(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
    eps: f64,
) -> Result<TensorHandle, ReduceError> {
    LayerNorm { eps }.of(input, axes).run(client)
}

/// [`RmsNorm`] over `axes`, without weight and bias.
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn rms_norm(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
    eps: f64,
) -> Result<TensorHandle, ReduceError> {
    RmsNorm { eps }.of(input, axes).run(client)
}

/// [`NormalizeL2`] over `axes`.
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn l2_normalize(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
    eps: f64,
) -> Result<TensorHandle, ReduceError> {
    NormalizeL2 { eps }.of(input, axes).run(client)
}

/// [`Standardize`] over `axes`.
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn standardize(
    client: &Client,
    input: &TensorHandle,
    axes: impl Into<Axes>,
    correction: f64,
    eps: f64,
) -> Result<TensorHandle, ReduceError> {
    Standardize { correction, eps }.of(input, axes).run(client)
}

/// The normalised elements of [`batch_norm`], the mean and the reciprocal of the deviation of each
/// channel.
pub type BatchNormalized = (TensorHandle, (TensorHandle, TensorHandle));

/// What batch normalisation does in training: [`LayerNorm`] of each channel, over all axes but
/// axis 1, times `weight` and plus `bias`, which have an element for each channel.
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn batch_norm(
    client: &Client,
    input: &TensorHandle,
    weight: &TensorHandle,
    bias: &TensorHandle,
    eps: f64,
) -> Result<BatchNormalized, ReduceError> {
    let axes: Vec<usize> = (0..input.shape().len()).filter(|&axis| axis != 1).collect();
    let normalized = LayerNorm { eps }.of(input, axes);
    normalized.operand(weight, 1).operand(bias, 1).run_with_results(client)
}

/// The cross-entropy of each slice of `logits` along `axis` with the class that is right for it:
/// minus the logarithm of the softmax of the class's element.
///
/// `classes` are integers, one for each slice: their shape is that of the logits without `axis`, or
/// with size 1 there. Losses have that shape without `axis`. They are f32, or f64 for f64, because
/// they are mostly summed next. A class out of range gives NaN, and so does a slice with NaN or
/// `inf`, or of `-inf` alone.
///
/// The logits are read once, by the launches of a reduction. One more small launch reads the
/// elements of the classes.
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn cross_entropy(
    client: &Client,
    logits: &TensorHandle,
    classes: &TensorHandle,
    axis: usize,
) -> Result<TensorHandle, ReduceError> {
    host::apply::cross_entropy::cross_entropy(client, logits, classes, axis, |real| {
        let sums = reduce(LogSoftmaxSums, logits).over(axis).keep_dims(false);
        sums.output_type(real).nth_output_type(1, real).run(client)
    })
}

/// The parameters of functions that are chosen by name, for programs that take both from their
/// user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppliedOptions {
    /// What keeps normalisations from dividing by 0; 1e-5 by default.
    pub eps: f64,
    /// The correction of the variance in `standardize`; 0 by default.
    pub correction: f64,
    /// The temperature of softmax and log-softmax; 1 by default.
    pub temperature: f64,
}

impl Default for AppliedOptions {
    fn default() -> Self {
        Self { eps: 1e-5, correction: 0.0, temperature: 1.0 }
    }
}

/// The functions of this module by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AppliedName {
    /// [`Softmax`], or [`TemperedSoftmax`].
    Softmax,
    /// [`LogSoftmax`], or [`TemperedLogSoftmax`].
    LogSoftmax,
    /// [`LayerNorm`].
    LayerNorm,
    /// [`RmsNorm`].
    RmsNorm,
    /// [`NormalizeL2`].
    NormalizeL2,
    /// [`Standardize`].
    Standardize,
}

impl AppliedName {
    /// Every function.
    pub const ALL: [AppliedName; 6] = [
        AppliedName::Softmax,
        AppliedName::LogSoftmax,
        AppliedName::LayerNorm,
        AppliedName::RmsNorm,
        AppliedName::NormalizeL2,
        AppliedName::Standardize,
    ];

    /// The name: that of the function in this crate.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AppliedName::Softmax => "softmax",
            AppliedName::LogSoftmax => "log_softmax",
            AppliedName::LayerNorm => "layer_norm",
            AppliedName::RmsNorm => "rms_norm",
            AppliedName::NormalizeL2 => "l2_normalize",
            AppliedName::Standardize => "standardize",
        }
    }

    /// The names of all functions, separated by commas.
    #[must_use]
    pub fn names() -> String {
        AppliedName::ALL.map(AppliedName::name).join(", ")
    }
}

impl fmt::Display for AppliedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a name that no function of this module has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown function `{0}`: expected one of {names}", names = AppliedName::names())]
pub struct UnknownFunction(String);

impl FromStr for AppliedName {
    type Err = UnknownFunction;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = AppliedName::ALL.into_iter().find(|function| function.name() == name);
        known.ok_or_else(|| UnknownFunction(name.to_owned()))
    }
}

/// Evaluates an expression with the applied reduction of a function that is known by its
/// [`AppliedName`]: `with_applied!(name, options, input, axes, applied => applied.run(client))`.
#[macro_export]
macro_rules! with_applied {
    ($name:expr, $options:expr, $input:expr, $axes:expr, $applied:ident => $body:expr) => {{
        let options: $crate::AppliedOptions = $options;
        let temperature = options.temperature;
        #[allow(unreachable_patterns, reason = "inside this crate all names are known")]
        match $name {
            $crate::AppliedName::Softmax if temperature == 1.0 => {
                let $applied = $crate::Softmax.of($input, $axes);
                $body
            }
            $crate::AppliedName::Softmax => {
                let $applied = $crate::TemperedSoftmax { temperature }.of($input, $axes);
                $body
            }
            $crate::AppliedName::LogSoftmax if temperature == 1.0 => {
                let $applied = $crate::LogSoftmax.of($input, $axes);
                $body
            }
            $crate::AppliedName::LogSoftmax => {
                let $applied = $crate::TemperedLogSoftmax { temperature }.of($input, $axes);
                $body
            }
            $crate::AppliedName::LayerNorm => {
                let $applied = $crate::LayerNorm { eps: options.eps }.of($input, $axes);
                $body
            }
            $crate::AppliedName::RmsNorm => {
                let $applied = $crate::RmsNorm { eps: options.eps }.of($input, $axes);
                $body
            }
            $crate::AppliedName::NormalizeL2 => {
                let $applied = $crate::NormalizeL2 { eps: options.eps }.of($input, $axes);
                $body
            }
            $crate::AppliedName::Standardize => {
                let (correction, eps) = (options.correction, options.eps);
                let $applied = $crate::Standardize { correction, eps }.of($input, $axes);
                $body
            }
            _ => unreachable!("the macro has the names of its own crate"),
        }
    }};
}
