//! Tensors of any kind, without the rank and the kind in their type.

use burn_backend::{
    Backend, BackendTypes, DType, TensorMetadata, get_device_settings,
    ops::QTensorOps,
    tensor::{BoolTensor, Device, FloatTensor, IntTensor},
};
use burn_dispatch::Dispatch;
use burn_tensor::{
    Shape, Tensor,
    kind::{Basic, Kind},
};

/// A backend's tensor of any kind.
#[derive(Clone, Debug)]
pub enum AnyTensor<B: BackendTypes> {
    /// Floating point numbers.
    Float(FloatTensor<B>),
    /// Integers.
    Int(IntTensor<B>),
    /// Truth values.
    Bool(BoolTensor<B>),
}

impl<B: Backend> AnyTensor<B> {
    /// The tensor's kind.
    pub fn kind(&self) -> Kind {
        match self {
            AnyTensor::Float(_) => Kind::Float,
            AnyTensor::Int(_) => Kind::Int,
            AnyTensor::Bool(_) => Kind::Bool,
        }
    }

    /// The type of the elements in memory.
    pub fn dtype(&self) -> DType {
        match self {
            AnyTensor::Float(tensor) => tensor.dtype(),
            AnyTensor::Int(tensor) => tensor.dtype(),
            AnyTensor::Bool(tensor) => tensor.dtype(),
        }
    }

    /// The shape.
    pub fn shape(&self) -> Shape {
        match self {
            AnyTensor::Float(tensor) => tensor.shape(),
            AnyTensor::Int(tensor) => tensor.shape(),
            AnyTensor::Bool(tensor) => tensor.shape(),
        }
    }

    /// The tensor with its axes in another order.
    pub(crate) fn permute(self, order: &[usize]) -> Self {
        match self {
            AnyTensor::Float(tensor) => AnyTensor::Float(B::float_permute(tensor, order)),
            AnyTensor::Int(tensor) => AnyTensor::Int(B::int_permute(tensor, order)),
            AnyTensor::Bool(tensor) => AnyTensor::Bool(B::bool_permute(tensor, order)),
        }
    }

    /// The elements in another shape.
    pub(crate) fn reshape(self, shape: Shape) -> Self {
        match self {
            AnyTensor::Float(tensor) => AnyTensor::Float(B::float_reshape(tensor, shape)),
            AnyTensor::Int(tensor) => AnyTensor::Int(B::int_reshape(tensor, shape)),
            AnyTensor::Bool(tensor) => AnyTensor::Bool(B::bool_reshape(tensor, shape)),
        }
    }

    /// The elements in another order along an axis: from the last one to the first.
    pub(crate) fn flip(self, axis: usize) -> Self {
        match self {
            AnyTensor::Float(tensor) => AnyTensor::Float(B::float_flip(tensor, &[axis])),
            AnyTensor::Int(tensor) => AnyTensor::Int(B::int_flip(tensor, &[axis])),
            AnyTensor::Bool(tensor) => AnyTensor::Bool(B::bool_flip(tensor, &[axis])),
        }
    }

    /// The elements in another type of the same kind. Truth values stay as they are.
    pub(crate) fn cast(self, dtype: DType) -> Self {
        match self {
            tensor if tensor.dtype() == dtype => tensor,
            AnyTensor::Float(tensor) => AnyTensor::Float(B::float_cast(tensor, dtype.into())),
            AnyTensor::Int(tensor) => AnyTensor::Int(B::int_cast(tensor, dtype.into())),
            AnyTensor::Bool(tensor) => AnyTensor::Bool(tensor),
        }
    }

    /// The device that the tensor is on.
    pub fn device(&self) -> Device<B> {
        match self {
            AnyTensor::Float(tensor) => tensor.device(),
            AnyTensor::Int(tensor) => tensor.device(),
            AnyTensor::Bool(tensor) => tensor.device(),
        }
    }
}

/// CubeCL's backends, fused or not, and `Dispatch` have one type for tensors of every kind.
impl<B, T> AnyTensor<B>
where
    B: BackendTypes<FloatTensorPrimitive = T, IntTensorPrimitive = T, BoolTensorPrimitive = T>,
{
    pub(crate) fn of_kind(kind: Kind, tensor: T) -> Self {
        match kind {
            Kind::Float => AnyTensor::Float(tensor),
            Kind::Int => AnyTensor::Int(tensor),
            Kind::Bool => AnyTensor::Bool(tensor),
        }
    }

    pub(crate) fn inner(&self) -> &T {
        let (AnyTensor::Float(tensor) | AnyTensor::Int(tensor) | AnyTensor::Bool(tensor)) = self;
        tensor
    }

    pub(crate) fn into_inner(self) -> T {
        let (AnyTensor::Float(tensor) | AnyTensor::Int(tensor) | AnyTensor::Bool(tensor)) = self;
        tensor
    }
}

/// A tensor without its rank and kind. A quantised tensor is dequantised.
pub(crate) fn into_any<const D: usize, K: Basic>(tensor: Tensor<D, K>) -> AnyTensor<Dispatch> {
    let mut tensor = tensor.into_dispatch();
    if let DType::QFloat(_) = tensor.dtype() {
        let dtype = get_device_settings::<Dispatch>(&tensor.device()).float_dtype;
        tensor = Dispatch::dequantize(tensor, dtype);
    }
    AnyTensor::of_kind(K::KIND, tensor)
}

/// A tensor with its rank and kind.
///
/// # Panics
///
/// The tensor is of another kind.
pub(crate) fn from_any<const D: usize, K: Basic>(tensor: AnyTensor<Dispatch>) -> Tensor<D, K> {
    Tensor::from_dispatch(tensor.into_inner())
}

/// The float results, of which there are `N`.
pub(crate) fn floats<B: Backend, const N: usize>(
    results: Vec<AnyTensor<B>>,
) -> [FloatTensor<B>; N] {
    let results: Vec<_> = results
        .into_iter()
        .filter_map(|result| match result {
            AnyTensor::Float(result) => Some(result),
            _ => None,
        })
        .collect();
    results.try_into().expect("the operator has this many float results")
}
