//! A reduction whose results are applied to the elements of its input, as data: softmax and
//! normalisations.

use core::fmt;

use burn_backend::{Backend, DType, TensorMetadata, tensor::FloatTensor};
use burn_tensor::Shape;
use reduce_kernels::{ReduceError, operator::InvalidParameter};

use crate::{
    axes::{AxisList, kept_axes},
    error::ReduceBurnError,
    geometry::broadcasts,
    operand::wide,
    segmented::{Members, Segments, axis_of},
};

/// What is computed of each element and of the results of its slice. A slice is the elements that
/// differ only in their indices along the given axes.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum AppliedFunction {
    /// [`softmax`](crate::softmax).
    Softmax,
    /// [`log_softmax`](crate::log_softmax).
    LogSoftmax,
    /// [`masked_softmax`](crate::pairs::masked_softmax). Its operand is a mask.
    MaskedSoftmax {
        /// Factor of the elements, a finite number.
        scale: f64,
    },
    /// [`masked_log_softmax`](crate::pairs::masked_log_softmax). Its operand is a mask.
    MaskedLogSoftmax {
        /// Factor of the elements, a finite number.
        scale: f64,
    },
    /// [`layer_norm`](crate::layer_norm). Its operands are a weight and a bias.
    LayerNorm {
        /// Added to the variance: a finite number, 0 or more.
        eps: f64,
    },
    /// [`rms_norm`](crate::rms_norm). Its operand is a weight.
    RmsNorm {
        /// Added to the mean square: a finite number, 0 or more.
        eps: f64,
    },
    /// [`add_layer_norm`](crate::pairs::add_layer_norm). Its operands are a residual, a weight and
    /// a bias.
    AddLayerNorm {
        /// Added to the variance: a finite number, 0 or more.
        eps: f64,
    },
    /// [`add_rms_norm`](crate::pairs::add_rms_norm). Its operands are a residual and a weight.
    AddRmsNorm {
        /// Added to the mean square: a finite number, 0 or more.
        eps: f64,
    },
    /// The backward pass of [`softmax`](crate::softmax), of the gradient of its output. Its operand
    /// is the output.
    SoftmaxGradient,
    /// The backward pass of [`log_softmax`](crate::log_softmax), of the gradient of its output. Its
    /// operand is the output.
    LogSoftmaxGradient,
    /// The backward pass of [`layer_norm`](crate::layer_norm) without weight and bias, of the
    /// gradient of its output. Its operands are the input, its mean, and the reciprocal of its
    /// deviation.
    LayerNormGradient,
    /// The backward pass of [`rms_norm`](crate::rms_norm) without weight, of the gradient of its
    /// output. Its operands are the input and the reciprocal of its root mean square.
    RmsNormGradient,
}

impl AppliedFunction {
    /// The name: that of the function in this crate.
    pub fn name(self) -> &'static str {
        match self {
            AppliedFunction::Softmax => "softmax",
            AppliedFunction::LogSoftmax => "log_softmax",
            AppliedFunction::MaskedSoftmax { .. } => "masked_softmax",
            AppliedFunction::MaskedLogSoftmax { .. } => "masked_log_softmax",
            AppliedFunction::LayerNorm { .. } => "layer_norm",
            AppliedFunction::RmsNorm { .. } => "rms_norm",
            AppliedFunction::AddLayerNorm { .. } => "add_layer_norm",
            AppliedFunction::AddRmsNorm { .. } => "add_rms_norm",
            AppliedFunction::SoftmaxGradient => "softmax_gradient",
            AppliedFunction::LogSoftmaxGradient => "log_softmax_gradient",
            AppliedFunction::LayerNormGradient => "layer_norm_gradient",
            AppliedFunction::RmsNormGradient => "rms_norm_gradient",
        }
    }

    /// The operands that it takes, in order. Weights and biases may be left out, others not.
    pub fn operands(self) -> &'static [&'static str] {
        match self {
            AppliedFunction::Softmax | AppliedFunction::LogSoftmax => &[],
            AppliedFunction::MaskedSoftmax { .. } | AppliedFunction::MaskedLogSoftmax { .. } => {
                &["mask"]
            }
            AppliedFunction::LayerNorm { .. } => &["weight", "bias"],
            AppliedFunction::RmsNorm { .. } => &["weight"],
            AppliedFunction::AddLayerNorm { .. } => &["residual", "weight", "bias"],
            AppliedFunction::AddRmsNorm { .. } => &["residual", "weight"],
            AppliedFunction::SoftmaxGradient | AppliedFunction::LogSoftmaxGradient => &["output"],
            AppliedFunction::LayerNormGradient => &["input", "mean", "rstd"],
            AppliedFunction::RmsNormGradient => &["input", "rstd"],
        }
    }

    /// Whether it is the backward pass of another.
    pub(crate) fn is_backward(self) -> bool {
        use AppliedFunction::{
            LayerNormGradient, LogSoftmaxGradient, RmsNormGradient, SoftmaxGradient,
        };
        matches!(self, SoftmaxGradient | LogSoftmaxGradient | LayerNormGradient | RmsNormGradient)
    }

    /// The normalisation of the sum, of a function that adds a residual first.
    pub(crate) fn of_sum(self) -> Option<AppliedFunction> {
        match self {
            AppliedFunction::AddLayerNorm { eps } => Some(AppliedFunction::LayerNorm { eps }),
            AppliedFunction::AddRmsNorm { eps } => Some(AppliedFunction::RmsNorm { eps }),
            _ => None,
        }
    }

    /// The factor of the elements, of a function that adds a mask to them.
    pub(crate) fn scale(self) -> Option<f64> {
        match self {
            AppliedFunction::MaskedSoftmax { scale }
            | AppliedFunction::MaskedLogSoftmax { scale } => Some(scale),
            _ => None,
        }
    }

    /// Whether it reduces the tensor and its first operand, which is a residual or a mask.
    pub(crate) fn reduces_two(self) -> bool {
        self.of_sum().is_some() || self.scale().is_some()
    }

    /// The number of operands that may not be left out.
    fn needed_operands(self) -> usize {
        match self {
            _ if self.is_backward() => self.operands().len(),
            _ if self.reduces_two() => 1,
            _ => 0,
        }
    }

    /// The parameter, if it is out of its range.
    fn invalid_parameter(self) -> Option<InvalidParameter> {
        match self {
            AppliedFunction::LayerNorm { eps }
            | AppliedFunction::RmsNorm { eps }
            | AppliedFunction::AddLayerNorm { eps }
            | AppliedFunction::AddRmsNorm { eps } => {
                let (name, expected) = ("eps", "a finite number, 0 or more");
                let is_valid = eps.is_finite() && eps >= 0.0;
                (!is_valid).then_some(InvalidParameter { name, value: eps, expected })
            }
            AppliedFunction::MaskedSoftmax { scale }
            | AppliedFunction::MaskedLogSoftmax { scale } => {
                let (name, expected) = ("scale", "a finite number");
                (!scale.is_finite()).then_some(InvalidParameter { name, value: scale, expected })
            }
            _ => None,
        }
    }
}

impl fmt::Display for AppliedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What to compute of a float tensor and of operands: a function and the axes of its reduction.
/// Each result has the shape and the type of the tensor.
#[derive(Clone, Debug)]
pub struct Application {
    function: AppliedFunction,
    dtype: DType,
    shape: Shape,
    /// In ascending order.
    axes: Vec<usize>,
    operands: Vec<(DType, Shape)>,
    /// The segments of the one axis, if the results are those of segments.
    segments: Option<Segments>,
}

impl Application {
    /// A function of `tensor` over `axes`. Operands broadcast: they have the rank of the tensor,
    /// and along each axis its extent or 1.
    ///
    /// # Errors
    ///
    /// Axes that the tensor does not have or that are named twice, more operands than the function
    /// takes or fewer than it needs, an operand of a shape that does not broadcast to that of the
    /// tensor, an `eps` that is negative or not finite, and a `scale` that is not finite.
    pub fn new<B: Backend>(
        function: AppliedFunction,
        tensor: &FloatTensor<B>,
        axes: &AxisList,
        operands: &[FloatTensor<B>],
    ) -> Result<Self, ReduceBurnError> {
        let shape = tensor.shape();
        let axes = axes.resolve(shape.num_dims())?;
        if let Some(invalid) = function.invalid_parameter() {
            return Err(ReduceError::parameter(function.name(), invalid).into());
        }
        let names = function.operands();
        let least = function.needed_operands();
        if !(least..=names.len()).contains(&operands.len()) {
            let (function, most, found) = (function.name(), names.len(), operands.len());
            return Err(ReduceBurnError::OperandCount { function, least, most, found });
        }
        let operands: Vec<_> = operands.iter().map(|x| (x.dtype(), x.shape())).collect();
        if let Some(nth) = operands.iter().position(|(_, operand)| !broadcasts(operand, &shape)) {
            let found = operands[nth].1.to_vec();
            return Err(ReduceBurnError::OperandShape {
                operand: names[nth],
                found,
                shape: shape.to_vec(),
            });
        }
        Ok(Self { function, dtype: tensor.dtype(), shape, axes, operands, segments: None })
    }

    /// The same for each segment of the axis, in place of the whole axis. Elements that no segment
    /// has become 0.
    ///
    /// # Errors
    ///
    /// Several axes or none, offsets that are not of one dimension, groups of another number of
    /// elements, and another function than softmax, log-softmax and their backward passes.
    pub fn of_segments<B: Backend>(self, members: &Members<B>) -> Result<Self, ReduceBurnError> {
        use AppliedFunction::{LogSoftmax, LogSoftmaxGradient, Softmax, SoftmaxGradient};

        let function = self.function;
        if !matches!(function, Softmax | LogSoftmax | SoftmaxGradient | LogSoftmaxGradient) {
            return Err(ReduceBurnError::NoSegments { function: function.name() });
        }
        let len = self.shape[axis_of(&self.axes)?];
        Ok(Self { segments: Some(Segments::new::<B>(members, len)?), ..self })
    }

    /// The segments, if results are those of the segments of the axis.
    pub fn segments(&self) -> Option<Segments> {
        self.segments
    }

    /// The function.
    pub fn function(&self) -> AppliedFunction {
        self.function
    }

    /// The type of the tensor and of each result.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of the tensor and of each result.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The reduced axes, in ascending order.
    pub fn axes(&self) -> &[usize] {
        &self.axes
    }

    /// The types and the shapes of the operands.
    pub fn operands(&self) -> &[(DType, Shape)] {
        &self.operands
    }

    /// The type and the shape of each result: of the sum and of the sum normalised for
    /// [`add_layer_norm`](crate::pairs::add_layer_norm) and
    /// [`add_rms_norm`](crate::pairs::add_rms_norm), and of one tensor otherwise.
    pub fn outputs(&self) -> Vec<(DType, Shape)> {
        let count = if self.function.of_sum().is_some() { 2 } else { 1 };
        vec![(self.dtype, self.shape.clone()); count]
    }

    /// The number, the type and the shape of the statistics that a backward pass needs: the mean
    /// and the reciprocal of the deviation of [`layer_norm`](crate::layer_norm), the reciprocal of
    /// the root mean square of [`rms_norm`](crate::rms_norm), those of the sum if a residual is
    /// added, and none otherwise. They keep the reduced axes with size 1, and are of f64 if the
    /// tensor or the residual is, otherwise of f32.
    pub fn statistics(&self) -> (usize, DType, Shape) {
        let count = match self.function.of_sum().unwrap_or(self.function) {
            AppliedFunction::LayerNorm { .. } => 2,
            AppliedFunction::RmsNorm { .. } => 1,
            _ => 0,
        };
        let mut shape = self.shape.to_vec();
        self.axes.iter().for_each(|&axis| shape[axis] = 1);
        (count, self.wide(), Shape::from(shape))
    }

    /// The type in which the results are computed before they are rounded.
    pub(crate) fn wide(&self) -> DType {
        match self.operands.first() {
            Some((DType::F64, _)) if self.function.reduces_two() => DType::F64,
            _ => wide(self.dtype),
        }
    }

    /// Number of elements of a slice.
    pub(crate) fn len(&self) -> usize {
        self.axes.iter().map(|&axis| self.shape[axis]).product()
    }

    /// The axes that are not reduced, in ascending order.
    pub(crate) fn kept_axes(&self) -> Vec<usize> {
        kept_axes(&self.axes, self.shape.num_dims())
    }
}
