//! Softmax and normalisations: reductions whose results go back to their elements.
//!
//! Each is a value, whose `of` gives an [`AppliedReduction`] to add operands to, to plan or to run,
//! and a function for the plain case. All of them work over any axes of any strided tensor, compute
//! in f32 (f64 for f64), and give elements of the input's type. Their gradients are here too.
//!
//! ```no_run
//! use reduce_kernels::{
//!     ReduceError,
//!     cubecl::{prelude::*, std::tensor::TensorHandle},
//!     normalize::{LayerNorm, softmax},
//! };
//!
//! # fn example(
//! #     client: &Client,
//! #     x: &TensorHandle, // shape [batch, features]
//! #     weight: &TensorHandle, // shape [features]
//! #     bias: &TensorHandle,
//! # ) -> Result<(), ReduceError> {
//! let probabilities = softmax(client, x, 1)?;
//! let norm = LayerNorm { eps: 1e-5 }.of(x, 1).operand(weight, 1).operand(bias, 1);
//! let (normalized, (mean, rstd)) = norm.run_with_results(client)?;
//! # Ok(()) }
//! ```
//!
//! Any other reduction can be applied as well, with a function of your own:
//! [`Reduction::apply`](crate::Reduction::apply).

use cubecl::{prelude::*, std::tensor::TensorHandle};
use reduce_planner::ProblemError;

use crate::{
    axes::Axes,
    error::{Reason, ReduceError},
    input::Input,
    operator::{
        InvalidParameter, Mapped,
        builtin::{
            ElementwiseSum, ExponentialShare, LogShare, LogSoftmaxSums, MaskedThen, MeanRstd,
            NormL2Reciprocal, RmsReciprocal, ScaledSum, ScaledThen, SoftmaxSums,
        },
    },
    quantize::blocks_of,
    reduction::reduce,
};

pub use crate::{
    applied_reduction::{AppliedOutputs, AppliedReduction, WithResults},
    cross_entropy::{CrossEntropy, LossReduction, cross_entropy},
    gradients::{layer_norm_gradient, log_softmax_gradient, rms_norm_gradient, softmax_gradient},
    masks::{causal_mask, length_mask},
    operator::builtin::{
        AddScaled, AddStandardized, LayerNormGradient, LogSoftmaxGradient, RmsNormGradient,
        ScaleBy, Scaled, SoftmaxGradient, Standardized,
    },
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

/// [`Softmax`] of the elements times a factor, plus a mask: the weights of attention. Where the
/// mask is `-inf`, the result is 0; a slice that is masked everywhere is NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaskedSoftmax {
    /// Factor of the elements, a finite number.
    pub scale: f64,
}

/// [`LogSoftmax`] of the elements times a factor, plus a mask, as [`MaskedSoftmax`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaskedLogSoftmax {
    /// Factor of the elements, a finite number.
    pub scale: f64,
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

/// The sum of two tensors, and [`RmsNorm`] of it: the residual connection of a transformer's layer
/// and the normalisation that follows. Operands: a weight, then a bias.
///
/// The sum is normalised as it is computed, in f32 or f64, before it is rounded to its own type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddRmsNorm {
    /// Added to the mean square: a finite number, 0 or more.
    pub eps: f64,
}

/// The sum of two tensors, and [`LayerNorm`] of it, as [`AddRmsNorm`]. Operands: a weight, then a
/// bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddLayerNorm {
    /// Added to the variance: a finite number, 0 or more.
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

impl MaskedSoftmax {
    /// Over `axes`. The axes of `mask` are the last ones of `input`, and where its extent is 1 or
    /// it has fewer axes, its elements are repeated.
    pub fn of<'a, T: Input>(
        self,
        input: &'a T,
        mask: &'a T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'a, Mapped<ScaledSum, SoftmaxSums>, MaskedThen<ExponentialShare>, T> {
        let scale = self.scale;
        let sums = reduce(SoftmaxSums, input).paired(mask, ScaledSum { scale }).over(axes);
        sums.apply(MaskedThen { scale, apply: ExponentialShare })
    }
}

impl MaskedLogSoftmax {
    /// Over `axes`, as [`MaskedSoftmax::of`].
    pub fn of<'a, T: Input>(
        self,
        input: &'a T,
        mask: &'a T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'a, Mapped<ScaledSum, LogSoftmaxSums>, MaskedThen<LogShare>, T> {
        let scale = self.scale;
        let sums = reduce(LogSoftmaxSums, input).paired(mask, ScaledSum { scale }).over(axes);
        sums.apply(MaskedThen { scale, apply: LogShare })
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

impl AddRmsNorm {
    /// The sum of `input` and `residual`, and that normalised over `axes`. `residual` has the shape
    /// of `input`, or repeats its elements along axes of one. The result is the reciprocal of the
    /// root.
    pub fn of<'a, T: Input>(
        self,
        input: &'a T,
        residual: &'a T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'a, Mapped<ElementwiseSum, RmsReciprocal>, AddScaled, T> {
        let operator = RmsReciprocal { eps: self.eps };
        reduce(operator, input).over(axes).paired(residual, ElementwiseSum).apply(AddScaled)
    }
}

impl AddLayerNorm {
    /// The sum of `input` and `residual`, and that normalised over `axes`, as [`AddRmsNorm::of`].
    /// The results are the mean of the sum and the reciprocal of the root.
    pub fn of<'a, T: Input>(
        self,
        input: &'a T,
        residual: &'a T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'a, Mapped<ElementwiseSum, MeanRstd>, AddStandardized, T> {
        let operator = MeanRstd { correction: 0.0, eps: self.eps };
        reduce(operator, input).over(axes).paired(residual, ElementwiseSum).apply(AddStandardized)
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
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::softmax;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let shares = softmax(client, x, 1)?;
/// # Ok(()) }
/// ```
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
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::log_softmax;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let logarithms = log_softmax(client, x, 1)?;
/// # Ok(()) }
/// ```
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
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::layer_norm;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let normalized = layer_norm(client, x, 1, 1e-5)?;
/// # Ok(()) }
/// ```
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
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::rms_norm;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let normalized = rms_norm(client, x, 1, 1e-5)?;
/// # Ok(()) }
/// ```
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

/// [`AddRmsNorm`] over `axes`, without weight and bias: the sum, and the sum normalised.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::add_rms_norm;
///
/// # fn example(client: &Client, x: &TensorHandle, r: &TensorHandle) -> Result<(), ReduceError> {
/// let (sum, normalized) = add_rms_norm(client, x, r, 1, 1e-5)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn add_rms_norm(
    client: &Client,
    input: &TensorHandle,
    residual: &TensorHandle,
    axes: impl Into<Axes>,
    eps: f64,
) -> Result<(TensorHandle, TensorHandle), ReduceError> {
    AddRmsNorm { eps }.of(input, residual, axes).run(client)
}

/// [`AddLayerNorm`] over `axes`, without weight and bias: the sum, and the sum normalised.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::add_layer_norm;
///
/// # fn example(client: &Client, x: &TensorHandle, r: &TensorHandle) -> Result<(), ReduceError> {
/// let (sum, normalized) = add_layer_norm(client, x, r, 1, 1e-5)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn add_layer_norm(
    client: &Client,
    input: &TensorHandle,
    residual: &TensorHandle,
    axes: impl Into<Axes>,
    eps: f64,
) -> Result<(TensorHandle, TensorHandle), ReduceError> {
    AddLayerNorm { eps }.of(input, residual, axes).run(client)
}

/// [`NormalizeL2`] over `axes`.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::l2_normalize;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let unit_rows = l2_normalize(client, x, 1, 1e-12)?;
/// # Ok(()) }
/// ```
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
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::standardize;
///
/// # fn example(client: &Client, x: &TensorHandle) -> Result<(), ReduceError> {
/// let standardized = standardize(client, x, 1, 1.0, 1e-5)?;
/// # Ok(()) }
/// ```
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
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::batch_norm;
///
/// # fn example(
/// #     client: &Client,
/// #     x: &TensorHandle,
/// #     weight: &TensorHandle,
/// #     bias: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// // `x` has shape [batch, channels, height, width].
/// let (normalized, (mean, rstd)) = batch_norm(client, x, weight, bias, 1e-5)?;
/// # Ok(()) }
/// ```
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

/// [`LayerNorm`] of groups of channels, which are axis 1: each of the `groups` is normalised over
/// its channels and all axes behind them. `weight` and `bias` have an element for each channel.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::group_norm;
///
/// # fn example(
/// #     client: &Client,
/// #     x: &TensorHandle,
/// #     weight: &TensorHandle,
/// #     bias: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// // `x` has shape [batch, channels, height, width], in 32 groups of channels.
/// let normalized = group_norm(client, x, 32, weight, bias, 1e-5)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched: also for a tensor without axis 1, and for
/// channels that are not a multiple of `groups`.
pub fn group_norm(
    client: &Client,
    input: &TensorHandle,
    groups: usize,
    weight: &TensorHandle,
    bias: &TensorHandle,
    eps: f64,
) -> Result<TensorHandle, ReduceError> {
    let shape = input.shape().to_vec();
    let Some(&channels) = shape.get(1) else {
        return Err(ProblemError::AxisOutOfRange { axis: 1, rank: shape.len() }.into());
    };
    if groups == 0 || !channels.is_multiple_of(groups) {
        let expected = "above 0 and divide the channels";
        let invalid = InvalidParameter { name: "groups", value: groups as f64, expected };
        return Err(ReduceError::parameter("group_norm", invalid));
    }
    let of_group = (channels / groups).max(1);
    let grouped = blocks_of(input, 1, of_group)?;
    let of_channels = |nth: usize, operand: &TensorHandle| match operand.shape()[..] {
        [extent] if extent == channels => blocks_of(operand, 0, of_group),
        [1] => blocks_of(operand, 0, 1),
        _ => {
            let (found, axes, shape) = (operand.shape().to_vec(), vec![1], shape.clone());
            Err(Reason::OperandShape { nth, found, axes, shape }.into())
        }
    };
    let (weight, bias) = (of_channels(0, weight)?, of_channels(1, bias)?);
    let axes: Vec<usize> = (2..=shape.len()).collect();
    let normalized = LayerNorm { eps }.of(&grouped, axes);
    let normalized = normalized.operand(&weight, [1, 2]).operand(&bias, [1, 2]).run(client)?;
    let (handle, element) = (normalized.handle, normalized.dtype);
    Ok(TensorHandle::new_contiguous(shape, handle, element))
}

/// [`LayerNorm`] of each channel of each instance, over all axes behind axis 1. `weight` and `bias`
/// have an element for each channel.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::instance_norm;
///
/// # fn example(
/// #     client: &Client,
/// #     x: &TensorHandle,
/// #     weight: &TensorHandle,
/// #     bias: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// // `x` has shape [batch, channels, height, width].
/// let normalized = instance_norm(client, x, weight, bias, 1e-5)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched: also for a tensor of fewer than 3 axes.
pub fn instance_norm(
    client: &Client,
    input: &TensorHandle,
    weight: &TensorHandle,
    bias: &TensorHandle,
    eps: f64,
) -> Result<TensorHandle, ReduceError> {
    let rank = input.shape().len();
    if rank < 3 {
        return Err(ProblemError::AxisOutOfRange { axis: 2, rank }.into());
    }
    let normalized = LayerNorm { eps }.of(input, (2..rank).collect::<Vec<_>>());
    normalized.operand(weight, 1).operand(bias, 1).run(client)
}
