//! Clipping of lists of tensors by their global norm.

use burn_backend::{Backend, DType, TensorMetadata, tensor::FloatTensor};
use burn_tensor::Shape;
use reduce_kernels::{ReduceError, list::ClippedToNorm, operator::Apply};

use crate::error::ReduceBurnError;

/// Name of the function.
pub(crate) const NAME: &str = "clip_by_global_norm";

/// Clipped tensors, and the norm that they had.
pub(crate) type Clipped<B> = (Vec<FloatTensor<B>>, FloatTensor<B>);

/// Float tensors to scale down together, and the largest global norm that leaves them as they are.
/// The global norm is the L2 norm of all elements of all tensors.
#[derive(Clone, Debug)]
pub struct Clipping {
    tensors: Vec<(DType, Shape)>,
    max_norm: f64,
}

impl Clipping {
    /// A clipping of `tensors`, of any shapes and float types.
    ///
    /// # Errors
    ///
    /// No tensors, tensors on several devices, and a `max_norm` that is not finite and above 0.
    pub fn new<B: Backend>(
        tensors: &[FloatTensor<B>],
        max_norm: f64,
    ) -> Result<Self, ReduceBurnError> {
        (ClippedToNorm::PARAMETERS)(&ClippedToNorm { max_norm })
            .map_err(|invalid| ReduceError::parameter(NAME, invalid))?;
        let [first, others @ ..] = tensors else {
            return Err(ReduceBurnError::NoTensors { function: NAME });
        };
        let device = first.device();
        if others.iter().any(|tensor| tensor.device() != device) {
            return Err(ReduceBurnError::Devices { function: NAME });
        }
        let tensors = tensors.iter().map(|tensor| (tensor.dtype(), tensor.shape())).collect();
        Ok(Self { tensors, max_norm })
    }

    /// The types and the shapes of the tensors, before and after.
    pub fn tensors(&self) -> &[(DType, Shape)] {
        &self.tensors
    }

    /// The largest norm that leaves the tensors as they are.
    pub fn max_norm(&self) -> f64 {
        self.max_norm
    }

    /// The type of the norm: f32, or f64 if a tensor has it.
    pub fn norm_dtype(&self) -> DType {
        let is_wide = self.tensors.iter().any(|&(dtype, _)| dtype == DType::F64);
        if is_wide { DType::F64 } else { DType::F32 }
    }

    /// The shape of the norm.
    pub(crate) fn norm_shape(&self) -> Shape {
        Shape::from([1])
    }
}
