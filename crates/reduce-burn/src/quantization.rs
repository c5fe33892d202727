//! The quantisation of a float tensor as data.

use burn_backend::{Backend, DType, TensorMetadata, tensor::FloatTensor};
use burn_tensor::{IntDType, Shape};

use crate::{axes::AxisList, error::ReduceBurnError, operand::wide};

/// Name of the function.
pub(crate) const NAME: &str = "quantize";

/// The type and the axes of integers that stand for the elements of a float tensor, with a scale
/// for each slice. It knows the shapes and the types of its results before it runs.
#[derive(Clone, Debug)]
pub struct Quantization {
    input: DType,
    shape: Shape,
    /// In ascending order.
    axes: Vec<usize>,
    most: f64,
    integers: IntDType,
}

impl Quantization {
    /// The quantisation of `tensor`, where the largest magnitude of each slice over `axes` becomes
    /// `most` in the type `integers`.
    ///
    /// # Errors
    ///
    /// Axes that the tensor does not have or that are named twice, and a `most` that is not above 0
    /// or that the type does not hold.
    pub fn new<B: Backend>(
        tensor: &FloatTensor<B>,
        axes: &AxisList,
        most: f64,
        integers: IntDType,
    ) -> Result<Self, ReduceBurnError> {
        let shape = tensor.shape();
        let axes = axes.resolve(shape.num_dims())?;
        let (_, largest) = limits(integers);
        if !(most > 0.0 && most <= largest) {
            return Err(ReduceBurnError::Most { most, largest, dtype: integers.into() });
        }
        Ok(Self { input: tensor.dtype(), shape, axes, most, integers })
    }

    /// The type of the tensor.
    pub fn dtype(&self) -> DType {
        self.input
    }

    /// The shape of the tensor and of the integers.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The reduced axes, in ascending order.
    pub fn axes(&self) -> &[usize] {
        &self.axes
    }

    /// What the largest magnitude of a slice becomes.
    pub fn most(&self) -> f64 {
        self.most
    }

    /// The type of the integers.
    pub fn integers(&self) -> IntDType {
        self.integers
    }

    /// The type of the scales: f32, or f64 of f64.
    pub fn scale_dtype(&self) -> DType {
        wide(self.input)
    }

    /// The shape of the scales, which keeps the reduced axes with size 1.
    pub fn scale_shape(&self) -> Shape {
        let mut shape = self.shape.to_vec();
        self.axes.iter().for_each(|&axis| shape[axis] = 1);
        Shape::from(shape)
    }
}

/// The least and the largest integer of a type, those of 64 bits rounded.
pub(crate) fn limits(integers: IntDType) -> (f64, f64) {
    match integers {
        IntDType::I64 => (i64::MIN as f64, i64::MAX as f64),
        IntDType::I32 => (i32::MIN.into(), i32::MAX.into()),
        IntDType::I16 => (i16::MIN.into(), i16::MAX.into()),
        IntDType::I8 => (i8::MIN.into(), i8::MAX.into()),
        IntDType::U64 => (0.0, u64::MAX as f64),
        IntDType::U32 => (0.0, u32::MAX.into()),
        IntDType::U16 => (0.0, u16::MAX.into()),
        IntDType::U8 => (0.0, u8::MAX.into()),
    }
}
