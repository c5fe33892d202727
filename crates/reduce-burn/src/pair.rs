//! A reduction of two inputs as data.

use burn_backend::{Backend, DType, DeviceSettings, get_device_settings};
use burn_tensor::{Shape, kind::Kind};
use reduce_kernels::{
    Operator, ReduceError,
    by_name::{PairName, PairOptions, with_pair},
};

use crate::{
    axes::AxisList,
    error::ReduceBurnError,
    geometry::{Geometry, broadcasts, repeated_axes},
    tensor::AnyTensor,
};

/// What to compute of the elements of two tensors that belong together: a function, its parameters
/// and the axes of the first tensor. The second one broadcasts to the first.
#[derive(Clone, Debug)]
pub struct PairReduction {
    function: PairName,
    options: PairOptions,
    inputs: [(Kind, DType); 2],
    /// The type of results that are values.
    value: DType,
    geometry: Geometry,
    second_shape: Shape,
    pub(crate) settings: DeviceSettings,
}

impl PairReduction {
    /// A reduction of `first` and `second`. Its results have the type of `first`; counts have the
    /// device's integer type, truth values its bool type, and the accuracy its float type.
    ///
    /// # Errors
    ///
    /// Kinds of tensors that the function does not take, a shape of `second` that does not
    /// broadcast to that of `first`, axes that `first` does not have or that are named twice, a
    /// parameter that the function cannot work with, and a reduction of no elements with a function
    /// that has no value for that.
    pub fn new<B: Backend>(
        function: PairName,
        options: PairOptions,
        first: &AnyTensor<B>,
        second: &AnyTensor<B>,
        axes: &AxisList,
        keep_dims: bool,
    ) -> Result<Self, ReduceBurnError> {
        let kinds = [first.kind(), second.kind()];
        if let Some(kind) = kinds.into_iter().find(|&kind| !takes(function, kind)) {
            return Err(ReduceBurnError::Kind { operator: function.name(), kind });
        }
        if kinds[0] != kinds[1] {
            return Err(ReduceBurnError::Kinds { function: function.name(), kinds });
        }
        let (input_shape, second_shape) = (first.shape(), second.shape());
        if !broadcasts(&second_shape, &input_shape) {
            return Err(ReduceBurnError::OperandShape {
                operand: "second tensor",
                found: second_shape.to_vec(),
                shape: input_shape.to_vec(),
            });
        }
        let axes = axes.resolve(input_shape.num_dims())?;
        with_pair!(function, options, operator => check_parameters(function, &operator))?;
        let geometry = Geometry { input_shape, axes, keep_dims };
        if geometry.reduces_nothing() && value_of_nothing(function, options).is_none() {
            return Err(ReduceBurnError::Empty { operator: function.name() });
        }
        Ok(Self {
            function,
            options,
            inputs: [first, second].map(|tensor| (tensor.kind(), tensor.dtype())),
            value: first.dtype(),
            geometry,
            second_shape,
            settings: get_device_settings::<B>(&first.device()),
        })
    }

    /// The same reduction, whose values are of the type that they are computed in.
    pub(crate) fn with_wide_values(&self) -> Self {
        Self { value: self.real(), ..self.clone() }
    }

    /// The function.
    pub fn function(&self) -> PairName {
        self.function
    }

    /// The parameters of the function.
    pub fn options(&self) -> PairOptions {
        self.options
    }

    /// The kinds and the types of both tensors.
    pub fn inputs(&self) -> [(Kind, DType); 2] {
        self.inputs
    }

    /// The shapes of both tensors.
    pub fn input_shapes(&self) -> [&Shape; 2] {
        [&self.geometry.input_shape, &self.second_shape]
    }

    /// The reduced axes, in ascending order.
    pub fn axes(&self) -> &[usize] {
        &self.geometry.axes
    }

    /// Whether results keep the reduced axes with size 1.
    pub fn keep_dims(&self) -> bool {
        self.geometry.keep_dims
    }

    /// Number of pairs that go into one output.
    pub(crate) fn len(&self) -> usize {
        self.geometry.len()
    }

    /// What a covariance is divided by: never less than 0.
    pub(crate) fn divisor(&self) -> f64 {
        (self.len() as f64 - self.options.correction).max(0.0)
    }

    /// The shape of the results with the reduced axes as axes of size 1.
    pub(crate) fn kept_shape(&self) -> Shape {
        self.geometry.kept_shape()
    }

    /// The shape of each result. Burn has no tensors of rank 0; a result of one element that keeps
    /// no axis has shape `[1]`.
    pub fn output_shape(&self) -> Shape {
        self.geometry.output_shape()
    }

    /// The kind and the type of each result. Where a backward pass needs a result, values of f16
    /// and bf16 are asked for in f32.
    pub fn outputs(&self) -> Vec<(Kind, DType)> {
        let value = (Kind::Float, self.value);
        match self.function {
            PairName::CountEqual => vec![(Kind::Int, self.settings.int_dtype.into())],
            PairName::AllClose => vec![(Kind::Bool, self.settings.bool_dtype.into())],
            PairName::Accuracy => vec![(Kind::Float, self.settings.float_dtype.into())],
            PairName::WeightedMeanVar | PairName::SumAndDot => vec![value, value],
            _ => vec![value],
        }
    }

    /// The type that float tensors are computed in.
    pub(crate) fn real(&self) -> DType {
        let is_wide = self.inputs.iter().any(|&(_, dtype)| dtype == DType::F64);
        if is_wide { DType::F64 } else { DType::F32 }
    }

    /// The axes along which the second tensor is repeated, in ascending order.
    pub(crate) fn repeated_axes(&self) -> Vec<usize> {
        repeated_axes(&self.second_shape, &self.geometry.input_shape)
    }
}

fn check_parameters<O: Operator>(function: PairName, operator: &O) -> Result<(), ReduceError> {
    let parameters = (O::PARAMETERS)(operator);
    parameters.map(drop).map_err(|invalid| ReduceError::parameter(function.name(), invalid))
}

/// Whether a function takes tensors of a kind.
fn takes(function: PairName, kind: Kind) -> bool {
    match kind {
        Kind::Float => true,
        Kind::Int => matches!(function, PairName::CountEqual | PairName::Accuracy),
        Kind::Bool => false,
    }
}

/// What a function gives for a reduction of no elements, if it has a value for that.
pub(crate) fn value_of_nothing(function: PairName, options: PairOptions) -> Option<f64> {
    match function {
        PairName::MaxDifference => None,
        PairName::AllClose => Some(1.0),
        PairName::Dot | PairName::KlDivergence | PairName::CountEqual | PairName::SumAndDot => {
            Some(0.0)
        }
        PairName::CosineSimilarity if options.eps > 0.0 => Some(0.0),
        _ => Some(f64::NAN),
    }
}
