//! A cross-entropy of logits with classes, as data.

use burn_backend::{
    Backend, DType, TensorMetadata,
    tensor::{FloatTensor, IntTensor},
};
use burn_tensor::Shape;
use reduce_kernels::{ReduceError, normalize::LossReduction, operator::InvalidParameter};

use crate::{axes::AxisList, error::ReduceBurnError, operand::wide};

/// Name of the function.
pub(crate) const NAME: &str = "cross_entropy";

/// Name of its backward pass.
pub(crate) const GRADIENT_NAME: &str = "cross_entropy_gradient";

/// What to compute of logits and of the class of each slice along an axis; see
/// [`CrossEntropy`](crate::pairs::CrossEntropy).
#[derive(Clone, Debug)]
pub struct ClassLoss {
    dtype: DType,
    shape: Shape,
    classes: (DType, Shape),
    weights: Option<DType>,
    axis: usize,
    smoothing: f64,
    ignored: Option<i64>,
    reduction: LossReduction,
}

/// The settings of a [`ClassLoss`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassLossOptions {
    /// The share that is taken from the class that is right and given to all alike, from 0 to 1.
    pub smoothing: f64,
    /// The class of slices that count for nothing.
    pub ignored: Option<i64>,
    /// What becomes of the losses of slices.
    pub reduction: LossReduction,
}

impl ClassLoss {
    /// The loss of each slice of `logits` along `axis`. `classes` have the shape of the logits
    /// without the axis, or with size 1 there. `weights` have an element for each class.
    ///
    /// # Errors
    ///
    /// An axis that the logits do not have, classes or weights of other shapes, slices of no
    /// elements, and a smoothing that is not from 0 to 1.
    pub fn new<B: Backend>(
        logits: &FloatTensor<B>,
        classes: &IntTensor<B>,
        weights: Option<&FloatTensor<B>>,
        axis: i64,
        options: ClassLossOptions,
    ) -> Result<Self, ReduceBurnError> {
        let shape = logits.shape();
        let axis = AxisList::from(axis).resolve(shape.num_dims())?[0];
        let ClassLossOptions { smoothing, ignored, reduction } = options;
        if !(0.0..=1.0).contains(&smoothing) {
            let (name, expected) = ("smoothing", "from 0 to 1");
            let invalid = InvalidParameter { name, value: smoothing, expected };
            return Err(ReduceError::parameter(NAME, invalid).into());
        }
        let (mut without, mut with_one) = (shape.to_vec(), shape.to_vec());
        without.remove(axis);
        with_one[axis] = 1;
        let found = classes.shape().to_vec();
        if found != without && found != with_one {
            return Err(ReduceBurnError::Classes { found, expected: without });
        }
        if let Some(weights) = weights
            && weights.shape().to_vec() != [shape[axis]]
        {
            let (found, classes) = (weights.shape().to_vec(), shape[axis]);
            return Err(ReduceBurnError::ClassWeights { found, classes });
        }
        if shape[axis] == 0 && without.iter().product::<usize>() > 0 {
            return Err(ReduceBurnError::Empty { operator: NAME });
        }
        Ok(Self {
            dtype: logits.dtype(),
            shape,
            classes: (classes.dtype(), classes.shape()),
            weights: weights.map(|weights| weights.dtype()),
            axis,
            smoothing,
            ignored,
            reduction,
        })
    }

    /// The type of the logits, and of the gradient by them.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The shape of the logits, and of the gradient by them.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The type and the shape of the classes.
    pub fn classes(&self) -> (DType, &Shape) {
        (self.classes.0, &self.classes.1)
    }

    /// The type of the weights, if there are any.
    pub fn weights(&self) -> Option<DType> {
        self.weights
    }

    /// The axis of the classes.
    pub fn axis(&self) -> usize {
        self.axis
    }

    /// The settings.
    pub fn options(&self) -> ClassLossOptions {
        let Self { smoothing, ignored, reduction, .. } = *self;
        ClassLossOptions { smoothing, ignored, reduction }
    }

    /// The type of the losses: f64 of f64, otherwise f32.
    pub fn loss_dtype(&self) -> DType {
        wide(self.dtype)
    }

    /// The shape of the losses: that of the classes, or one element for a sum or a mean.
    pub fn loss_shape(&self) -> Shape {
        match self.reduction {
            LossReduction::Each => self.classes.1.clone(),
            LossReduction::Sum | LossReduction::Mean => Shape::from([1]),
        }
    }

    /// The shape of the logits with size 1 along the axis.
    pub(crate) fn kept_shape(&self) -> Shape {
        let mut shape = self.shape.to_vec();
        shape[self.axis] = 1;
        Shape::from(shape)
    }
}
