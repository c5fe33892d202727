//! Backward passes of softmax and of normalisations. Each reads its inputs once where a slice is
//! held, and is one launch where the plan allows.

use cubecl::{prelude::*, std::tensor::TensorHandle};

use crate::{
    applied_reduction::AppliedReduction,
    axes::Axes,
    error::ReduceError,
    input::Input,
    operator::{
        Mapped,
        builtin::{
            ElementwiseProduct, LayerNormGradient, LogSoftmaxGradient, RmsNormGradient,
            SoftmaxGradient, Sum, SumAndShiftedDot,
        },
    },
    reduction::{reduce, reduce_pair},
};

/// The gradient of [`softmax`](fn@crate::normalize::softmax) over `axes`, from that of its output
/// and the output itself.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::softmax_gradient;
///
/// # fn example(
/// #     client: &Client,
/// #     gradient: &TensorHandle,
/// #     output: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// let of_input = softmax_gradient(client, gradient, output, 1)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn softmax_gradient(
    client: &Client,
    gradient: &TensorHandle,
    output: &TensorHandle,
    axes: impl Into<Axes>,
) -> Result<TensorHandle, ReduceError> {
    SoftmaxGradient.of(gradient, output, axes).run(client)
}

/// The gradient of [`log_softmax`](fn@crate::normalize::log_softmax) over `axes`, from that of its
/// output and the output itself.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::log_softmax_gradient;
///
/// # fn example(
/// #     client: &Client,
/// #     gradient: &TensorHandle,
/// #     output: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// let of_input = log_softmax_gradient(client, gradient, output, 1)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn log_softmax_gradient(
    client: &Client,
    gradient: &TensorHandle,
    output: &TensorHandle,
    axes: impl Into<Axes>,
) -> Result<TensorHandle, ReduceError> {
    LogSoftmaxGradient.of(gradient, output, axes).run(client)
}

/// The gradient of [`rms_norm`](fn@crate::normalize::rms_norm) over `axes` without weight and bias:
/// from that of its output, the input, and `rstd`, the reciprocal that
/// [`run_with_results`](AppliedReduction::run_with_results) returns. With a weight, `gradient` is
/// the gradient times the weight.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::{RmsNorm, rms_norm_gradient};
///
/// # fn example(
/// #     client: &Client,
/// #     x: &TensorHandle,
/// #     gradient: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// let (y, rstd) = RmsNorm { eps: 1e-5 }.of(x, 1).run_with_results(client)?;
/// // ... what follows gives `gradient`, that of `y`
/// let of_x = rms_norm_gradient(client, gradient, x, &rstd, 1)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn rms_norm_gradient(
    client: &Client,
    gradient: &TensorHandle,
    input: &TensorHandle,
    rstd: &TensorHandle,
    axes: impl Into<Axes>,
) -> Result<TensorHandle, ReduceError> {
    let axes = axes.into();
    let count = count(gradient.shape(), &axes);
    RmsNormGradient { count }.of(gradient, input, axes).operand(rstd, ..).run(client)
}

/// The gradient of [`layer_norm`](fn@crate::normalize::layer_norm) over `axes` without weight and
/// bias: from that of its output, the input, and `mean` and `rstd`, which
/// [`run_with_results`](AppliedReduction::run_with_results) returns. With a weight, `gradient` is
/// the gradient times the weight.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::{LayerNorm, layer_norm_gradient};
///
/// # fn example(
/// #     client: &Client,
/// #     x: &TensorHandle,
/// #     gradient: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// let (y, (mean, rstd)) = LayerNorm { eps: 1e-5 }.of(x, 1).run_with_results(client)?;
/// // ... what follows gives `gradient`, that of `y`
/// let of_x = layer_norm_gradient(client, gradient, x, &mean, &rstd, 1)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn layer_norm_gradient(
    client: &Client,
    gradient: &TensorHandle,
    input: &TensorHandle,
    mean: &TensorHandle,
    rstd: &TensorHandle,
    axes: impl Into<Axes>,
) -> Result<TensorHandle, ReduceError> {
    let axes = axes.into();
    let count = count(gradient.shape(), &axes);
    let applied = LayerNormGradient { count }.of(gradient, input, axes);
    applied.operand(mean, ..).operand(rstd, ..).run(client)
}

/// Elements of a slice over these axes, at least 1. Axes that do not exist are refused later.
fn count(shape: &[usize], axes: &Axes) -> f64 {
    let extents: usize = match axes.as_slice() {
        None => shape.iter().product(),
        Some(axes) => axes.iter().filter_map(|&axis| shape.get(axis)).product(),
    };
    extents.max(1) as f64
}

impl SoftmaxGradient {
    /// The gradient of softmax over `axes`, from that of its output and the output itself.
    pub fn of<'a, T: Input>(
        self,
        gradient: &'a T,
        output: &'a T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'a, Mapped<ElementwiseProduct, Sum>, Self, T> {
        reduce(Sum, gradient).over(axes).paired(output, ElementwiseProduct).apply(self)
    }
}

impl LogSoftmaxGradient {
    /// The gradient of log-softmax over `axes`, from that of its output and the output itself.
    pub fn of<'a, T: Input>(
        self,
        gradient: &'a T,
        output: &'a T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'a, Sum, Self, T> {
        reduce(Sum, gradient).over(axes).apply(self).operand(output, ..)
    }
}

impl RmsNormGradient {
    /// The gradient of RMS normalisation over `axes`, from that of its output and the input. It
    /// needs the reciprocal of the root mean square as an operand.
    pub fn of<'a, T: Input>(
        self,
        gradient: &'a T,
        input: &'a T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'a, Mapped<ElementwiseProduct, Sum>, Self, T> {
        reduce(Sum, gradient).over(axes).paired(input, ElementwiseProduct).apply(self)
    }
}

impl LayerNormGradient {
    /// The gradient of layer normalisation over `axes`, from that of its output and the input. It
    /// needs the mean and the reciprocal of the deviation as operands.
    pub fn of<'a, T: Input>(
        self,
        gradient: &'a T,
        input: &'a T,
        axes: impl Into<Axes>,
    ) -> AppliedReduction<'a, SumAndShiftedDot, Self, T> {
        reduce_pair(SumAndShiftedDot, gradient, input).over(axes).apply(self)
    }
}
