//! The cross-entropy that users call.

use burn_backend::tensor::{FloatTensor, IntTensor};
use burn_dispatch::Dispatch;
use burn_tensor::{Float, Int, Tensor};
use reduce_kernels::normalize::LossReduction;

use crate::{
    backend::{Operation, ReduceBackend},
    cross_entropy::{ClassLoss, ClassLossOptions, NAME},
    error::ReduceBurnError,
    tensor::{AnyTensor, from_any, into_any},
};

/// The cross-entropy of logits with the class that is right for each slice: minus the logarithm of
/// the softmax of that class's logit. Its definitions of weights, smoothing, ignored classes and
/// the mean are those of PyTorch's `cross_entropy`.
///
/// Where there are kernels, logits are read once for the loss, and once more for the gradient,
/// which is written once. Losses have the type of the logits, and are computed in f32 at least.
///
/// ```
/// use burn_tensor::{Device, Int, Tensor};
/// use reduce_burn::pairs::CrossEntropy;
///
/// let device = Device::flex();
/// let logits = Tensor::<2>::from_data([[0.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]], &device);
/// let classes = Tensor::<1, Int>::from_data([2, -100], &device);
/// let loss = CrossEntropy::new().ignored(-100).mean(logits, classes, 1);
/// assert!((loss.into_scalar::<f32>() - 4f32.ln()).abs() < 1e-6);
/// ```
///
/// A class that is out of range and not ignored gives NaN. A slice of an ignored class has a loss
/// and a gradient of 0, whatever its logits are.
#[derive(Clone, Debug, Default)]
#[must_use = "a loss is computed by `each`, `sum` or `mean`"]
pub struct CrossEntropy {
    smoothing: f64,
    ignored: Option<i64>,
    weights: Option<Tensor<1>>,
}

impl CrossEntropy {
    /// Without smoothing, weights or ignored classes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes this share, from 0 to 1, from the class that is right, and gives it to all classes
    /// alike.
    pub fn smoothing(self, smoothing: f64) -> Self {
        Self { smoothing, ..self }
    }

    /// Slices of this class count for nothing, such as padding. It may be out of range.
    pub fn ignored(self, class: i64) -> Self {
        Self { ignored: Some(class), ..self }
    }

    /// A weight for each class. A tensor of weights that is tracked gets a gradient too.
    pub fn weights(self, weights: Tensor<1>) -> Self {
        Self { weights: Some(weights), ..self }
    }

    /// The loss of each slice along `axis`. The classes have the shape of the logits without the
    /// axis, or with size 1 there, and the losses have the shape of the classes.
    ///
    /// # Panics
    ///
    /// As [all functions](crate#errors): for classes or weights of another shape, slices of no
    /// elements, and a smoothing that is not from 0 to 1.
    #[track_caller]
    pub fn each<const D: usize, const R: usize>(
        &self,
        logits: Tensor<D>,
        classes: Tensor<R, Int>,
        axis: i64,
    ) -> Tensor<R> {
        self.losses(logits, classes, axis, LossReduction::Each)
    }

    /// The sum of the losses of [`each`](Self::each).
    ///
    /// # Panics
    ///
    /// As [`each`](Self::each).
    #[track_caller]
    pub fn sum<const D: usize, const R: usize>(
        &self,
        logits: Tensor<D>,
        classes: Tensor<R, Int>,
        axis: i64,
    ) -> Tensor<1> {
        self.losses(logits, classes, axis, LossReduction::Sum)
    }

    /// The mean of the losses of [`each`](Self::each) over the slices that are not ignored. With
    /// weights, it is their sum over that of the weights of the slices' classes. NaN if all are
    /// ignored.
    ///
    /// # Panics
    ///
    /// As [`each`](Self::each).
    #[track_caller]
    pub fn mean<const D: usize, const R: usize>(
        &self,
        logits: Tensor<D>,
        classes: Tensor<R, Int>,
        axis: i64,
    ) -> Tensor<1> {
        self.losses(logits, classes, axis, LossReduction::Mean)
    }

    #[track_caller]
    fn losses<const D: usize, const R: usize, const L: usize>(
        &self,
        logits: Tensor<D>,
        classes: Tensor<R, Int>,
        axis: i64,
        reduction: LossReduction,
    ) -> Tensor<L> {
        let (shape, dtype) = (logits.dims(), logits.dtype());
        let options =
            ClassLossOptions { smoothing: self.smoothing, ignored: self.ignored, reduction };
        let weights = self.weights.clone().map(|weights| into_any(weights).into_inner());
        let logits = into_any(logits).into_inner();
        let classes = into_any(classes).into_inner();
        match run(logits, classes, weights, axis, options) {
            Ok(losses) => from_any::<L, Float>(AnyTensor::Float(losses)).cast(dtype),
            Err(error) => panic!("`{NAME}` of a tensor of shape {shape:?}: {error}"),
        }
    }
}

fn run(
    logits: FloatTensor<Dispatch>,
    classes: IntTensor<Dispatch>,
    weights: Option<FloatTensor<Dispatch>>,
    axis: i64,
    options: ClassLossOptions,
) -> Result<FloatTensor<Dispatch>, ReduceBurnError> {
    let loss = ClassLoss::new::<Dispatch>(&logits, &classes, weights.as_ref(), axis, options)?;
    let tensors = [AnyTensor::Float(logits), AnyTensor::Int(classes)].into_iter();
    let tensors = tensors.chain(weights.map(AnyTensor::Float)).collect();
    let mut results = Dispatch::run(tensors, Operation::ClassLoss(loss))?;
    Ok(results.remove(0).into_inner())
}
