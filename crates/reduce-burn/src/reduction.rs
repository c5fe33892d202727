//! A reduction as data.

use burn_backend::{Backend, DType, DeviceSettings, get_device_settings};
use burn_tensor::{Shape, kind::Kind};
use reduce_kernels::by_name::{OperatorName, OperatorOptions};

use crate::{
    axes::AxisList,
    error::ReduceBurnError,
    geometry::Geometry,
    segmented::{Members, Segments, axis_of},
    tensor::AnyTensor,
};

/// What to compute of a tensor: an operator, its parameters and the axes. It knows the shape and
/// the types of its results before it runs.
#[derive(Clone, Debug)]
pub struct Reduction {
    operator: OperatorName,
    options: OperatorOptions,
    input: (Kind, DType),
    /// The type of results that are values.
    value: DType,
    geometry: Geometry,
    /// The segments of the one reduced axis, if each of them is reduced.
    segments: Option<Segments>,
    settings: DeviceSettings,
}

impl Reduction {
    /// A reduction of `tensor`. Its results have the types that Burn gives its own: the input's
    /// type for values, the device's integer type for positions and counts, and the device's bool
    /// type for truth values.
    ///
    /// # Errors
    ///
    /// A kind of tensor that the operator does not take, axes that the tensor does not have or that
    /// are named twice, and a reduction of no elements with an operator that has no value for that.
    pub fn new<B: Backend>(
        operator: OperatorName,
        options: OperatorOptions,
        tensor: &AnyTensor<B>,
        axes: &AxisList,
        keep_dims: bool,
    ) -> Result<Self, ReduceBurnError> {
        let reduction = Self::described(operator, options, tensor, axes, keep_dims)?;
        if reduction.geometry.reduces_nothing() && value_of_nothing(operator).is_none() {
            return Err(ReduceBurnError::Empty { operator: operator.name() });
        }
        Ok(reduction)
    }

    /// A reduction of `tensor`, which may be one of no elements with any operator.
    pub(crate) fn described<B: Backend>(
        operator: OperatorName,
        options: OperatorOptions,
        tensor: &AnyTensor<B>,
        axes: &AxisList,
        keep_dims: bool,
    ) -> Result<Self, ReduceBurnError> {
        if !takes(operator, tensor.kind()) {
            return Err(ReduceBurnError::Kind { operator: operator.name(), kind: tensor.kind() });
        }
        let input_shape = tensor.shape();
        let axes = axes.resolve(input_shape.num_dims())?;
        Ok(Self {
            operator,
            options,
            input: (tensor.kind(), tensor.dtype()),
            value: tensor.dtype(),
            geometry: Geometry { input_shape, axes, keep_dims },
            segments: None,
            settings: get_device_settings::<B>(&tensor.device()),
        })
    }

    /// The reduction of each segment of the axis, in place of the whole axis. The results have the
    /// shape of the tensor with the number of segments in place of the axis. A segment without elements
    /// has the value with which the operator starts, such as 0 of a sum and `-inf` of a maximum.
    ///
    /// # Errors
    ///
    /// Several axes or none, offsets that are not of one dimension, and groups of another number of
    /// elements.
    pub fn of_segments<B: Backend>(self, members: &Members<B>) -> Result<Self, ReduceBurnError> {
        let len = self.geometry.input_shape[axis_of(&self.geometry.axes)?];
        Ok(Self { segments: Some(Segments::new::<B>(members, len)?), ..self })
    }

    /// The reduction of one segment of `len` elements, which keeps the axis with size 1.
    pub(crate) fn of_segment(&self, len: usize) -> Self {
        let mut reduction = Self { segments: None, ..self.keeping_dims() };
        for &axis in &self.geometry.axes {
            reduction.geometry.input_shape[axis] = len;
        }
        reduction
    }

    /// The segments, if each segment of the axis is reduced.
    pub fn segments(&self) -> Option<Segments> {
        self.segments
    }

    /// Another operator over the same axes of the same tensor.
    pub(crate) fn with(&self, operator: OperatorName) -> Self {
        Self { operator, ..self.clone() }
    }

    /// The same reduction of a tensor of the same shape and another kind.
    pub(crate) fn of(&self, kind: Kind, dtype: DType) -> Self {
        Self { input: (kind, dtype), value: dtype, ..self.clone() }
    }

    /// The same reduction, whose values are of another type than the input.
    pub(crate) fn with_value_type(&self, value: DType) -> Self {
        Self { value, ..self.clone() }
    }

    /// The same reduction, whose result keeps the reduced axes with size 1.
    pub(crate) fn keeping_dims(&self) -> Self {
        let geometry = Geometry { keep_dims: true, ..self.geometry.clone() };
        Self { geometry, ..self.clone() }
    }

    /// The operator.
    pub fn operator(&self) -> OperatorName {
        self.operator
    }

    /// The parameters of the operator.
    pub fn options(&self) -> OperatorOptions {
        self.options
    }

    /// The kind and the type of the input.
    pub fn input(&self) -> (Kind, DType) {
        self.input
    }

    /// The shape of the input.
    pub fn input_shape(&self) -> &Shape {
        &self.geometry.input_shape
    }

    /// The reduced axes, in ascending order.
    pub fn axes(&self) -> &[usize] {
        &self.geometry.axes
    }

    /// Whether results keep the reduced axes with size 1.
    pub fn keep_dims(&self) -> bool {
        self.geometry.keep_dims
    }

    /// Number of elements that go into one output.
    pub(crate) fn len(&self) -> usize {
        self.geometry.len()
    }

    /// What a variance of all elements is divided by: never less than 0.
    pub(crate) fn divisor(&self) -> f64 {
        (self.len() as f64 - self.options.correction).max(0.0)
    }

    /// The axes that stay, in ascending order.
    pub(crate) fn kept_axes(&self) -> Vec<usize> {
        self.geometry.kept_axes()
    }

    /// The axes that stay, and then the others.
    pub(crate) fn kept_first(&self) -> Vec<usize> {
        [self.kept_axes(), self.axes().to_vec()].concat()
    }

    /// Number of elements of each result.
    pub(crate) fn outputs_len(&self) -> usize {
        self.geometry.outputs_len()
    }

    /// The shape of the results with the reduced axes as axes of size 1.
    pub(crate) fn kept_shape(&self) -> Shape {
        self.geometry.kept_shape()
    }

    /// The shape of each result. Burn has no tensors of rank 0; a result of one element that keeps
    /// no axis has shape `[1]`.
    pub fn output_shape(&self) -> Shape {
        let Some(segments) = self.segments else { return self.geometry.output_shape() };
        let mut shape = self.geometry.input_shape.clone();
        self.geometry.axes.iter().for_each(|&axis| shape[axis] = segments.count());
        shape
    }

    /// The kind and the type of each result. Where a backward pass needs a result, values of f16
    /// and bf16 are asked for in f32.
    pub fn outputs(&self) -> Vec<(Kind, DType)> {
        use OperatorName::*;

        let value = (self.input.0, self.value);
        let index = (Kind::Int, DType::from(self.settings.int_dtype));
        let truth = (Kind::Bool, DType::from(self.settings.bool_dtype));
        match self.operator {
            ArgMin | ArgMax | NanArgMin | NanArgMax | CountNonzero => vec![index],
            Any | All | AnyNonFinite => vec![truth],
            MinWithIndex | MaxWithIndex => vec![value, index],
            MinMax | MeanVar => vec![value, value],
            _ => vec![value],
        }
    }
}

/// What an operator gives for a reduction of no elements, if it has a value for that.
pub(crate) fn value_of_nothing(operator: OperatorName) -> Option<f64> {
    use OperatorName::*;

    match operator {
        Min | Max | MinMax | ArgMin | ArgMax | MinWithIndex | MaxWithIndex | NanMin | NanMax
        | NanArgMin | NanArgMax => None,
        Prod | NanProd | All => Some(1.0),
        Mean | Var | Std | MeanVar | NanMean | NanVar | NanStd => Some(f64::NAN),
        LogSumExp => Some(f64::NEG_INFINITY),
        _ => Some(0.0),
    }
}

/// Whether an operator reduces tensors of a kind.
fn takes(operator: OperatorName, kind: Kind) -> bool {
    use OperatorName::*;

    match kind {
        Kind::Float => true,
        Kind::Int => matches!(
            operator,
            Sum | Prod
                | Min
                | Max
                | MinMax
                | ArgMin
                | ArgMax
                | MinWithIndex
                | MaxWithIndex
                | Any
                | All
                | CountNonzero
                | SumAbs
                | SumSquares
        ),
        Kind::Bool => matches!(operator, Any | All | CountNonzero),
    }
}
