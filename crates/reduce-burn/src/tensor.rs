//! Tensors of any kind, without the rank and the kind in their type.

use burn_backend::{
    Backend, BackendTypes, DType, TensorMetadata,
    tensor::{BasicOps, Bool, BoolTensor, Device, Float, FloatTensor, Int, IntTensor},
};
use burn_tensor::{Shape, TensorPrimitive};

/// What the elements of a tensor are to Burn: the kind of a `Tensor<B, D, K>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Floating point numbers.
    Float,
    /// Integers.
    Int,
    /// Truth values.
    Bool,
}

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

    /// The device that the tensor is on.
    pub fn device(&self) -> Device<B> {
        match self {
            AnyTensor::Float(tensor) => B::float_device(tensor),
            AnyTensor::Int(tensor) => B::int_device(tensor),
            AnyTensor::Bool(tensor) => B::bool_device(tensor),
        }
    }
}

/// CubeCL's backends, fused or not, have one type for tensors of every kind.
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

    pub(crate) fn into_inner(self) -> T {
        let (AnyTensor::Float(tensor) | AnyTensor::Int(tensor) | AnyTensor::Bool(tensor)) = self;
        tensor
    }
}

/// The kinds of tensors that can be reduced: `Float`, `Int` and `Bool`.
pub trait Reducible<B: Backend>: BasicOps<B> + sealed::Sealed {
    /// The kind.
    const KIND: Kind;

    /// The tensor without its kind. A quantised tensor is dequantised.
    fn into_any(tensor: Self::Primitive) -> AnyTensor<B>;

    /// The tensor with its kind.
    ///
    /// # Panics
    ///
    /// The tensor is of another kind.
    fn from_any(tensor: AnyTensor<B>) -> Self::Primitive;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for super::Float {}
    impl Sealed for super::Int {}
    impl Sealed for super::Bool {}
}

impl<B: Backend> Reducible<B> for Float {
    const KIND: Kind = Kind::Float;

    fn into_any(tensor: TensorPrimitive<B>) -> AnyTensor<B> {
        AnyTensor::Float(tensor.tensor())
    }

    fn from_any(tensor: AnyTensor<B>) -> TensorPrimitive<B> {
        match tensor {
            AnyTensor::Float(tensor) => TensorPrimitive::Float(tensor),
            other => panic!("expected a float tensor, found {:?}", other.kind()),
        }
    }
}

impl<B: Backend> Reducible<B> for Int {
    const KIND: Kind = Kind::Int;

    fn into_any(tensor: IntTensor<B>) -> AnyTensor<B> {
        AnyTensor::Int(tensor)
    }

    fn from_any(tensor: AnyTensor<B>) -> IntTensor<B> {
        match tensor {
            AnyTensor::Int(tensor) => tensor,
            other => panic!("expected an int tensor, found {:?}", other.kind()),
        }
    }
}

impl<B: Backend> Reducible<B> for Bool {
    const KIND: Kind = Kind::Bool;

    fn into_any(tensor: BoolTensor<B>) -> AnyTensor<B> {
        AnyTensor::Bool(tensor)
    }

    fn from_any(tensor: AnyTensor<B>) -> BoolTensor<B> {
        match tensor {
            AnyTensor::Bool(tensor) => tensor,
            other => panic!("expected a bool tensor, found {:?}", other.kind()),
        }
    }
}
