//! Cross-entropy of logits with classes, and its gradient.

use cubecl::{prelude::*, std::tensor::TensorHandle};

use crate::{
    applied_reduction::AppliedReduction,
    error::ReduceError,
    host::apply::cross_entropy::{Classes, LossTask, Sums},
    operator::builtin::{
        CrossEntropyGradient, ElementwiseProduct, LogSoftmaxSums, RatioOfSums,
        SmoothedCrossEntropyGradient, SoftmaxSums, SoftmaxSumsAndTotal, Sum,
    },
    reduction::{reduce, reduce_pair},
};

pub use crate::host::apply::cross_entropy::LossReduction;

/// A cross-entropy that is being described. It does nothing until [`run`](Self::run),
/// [`run_with_gradient`](Self::run_with_gradient) or
/// [`run_with_gradient_into`](Self::run_with_gradient_into) is called.
///
/// The loss of a slice is minus the logarithm of the softmax of its class's logit. With weights, it
/// is times the weight of that class. With a smoothing `s` over `n` classes, it is `1 - s` of that,
/// and `s / n` of the sum of what each class would give. These are the definitions of PyTorch's
/// `cross_entropy`.
///
/// ```no_run
/// use reduce_kernels::{
///     ReduceError,
///     cubecl::{prelude::*, std::tensor::TensorHandle},
///     normalize::{CrossEntropy, LossReduction},
/// };
///
/// # fn example(
/// #     client: &Client,
/// #     logits: &TensorHandle, // shape [batch, classes]
/// #     classes: &TensorHandle, // shape [batch], integers
/// # ) -> Result<(), ReduceError> {
/// let loss = CrossEntropy::of(logits, classes, 1).ignored(-100).smoothing(0.1);
/// let (loss, gradient) = loss.reduced(LossReduction::Mean).run_with_gradient(client)?;
/// # Ok(()) }
/// ```
///
/// # Numbers
///
/// Losses are f32, or f64 for f64, and are computed in this type. A class that is out of range and
/// not ignored gives NaN: the slice's loss and its gradient. So does a slice with NaN or `inf`, or
/// of `-inf` alone. A slice whose class is ignored has a loss and a gradient of 0, whatever its
/// logits are; so has one whose class has a weight of 0, without smoothing. A gradient is 0 where
/// that of what comes behind is 0. With smoothing, the sum of the logits is in the loss, so a logit
/// of `-inf` makes it infinite.
///
/// # Launches
///
/// Logits are read once, and gradients are written once, by one launch where slices are held. A
/// small launch gives the losses, and three more are for the gradient. A sum or a mean of losses is
/// one more, and a mean with a gradient two. Only weights with smoothing cost another read of the
/// logits.
#[derive(Clone, Copy, Debug)]
#[must_use = "a cross-entropy does nothing until it is run"]
pub struct CrossEntropy<'a> {
    task: LossTask<'a>,
}

impl<'a> CrossEntropy<'a> {
    /// The cross-entropy of each slice of `logits` along `axis` with its class.
    ///
    /// `classes` are integers, one for each slice: their shape is that of the logits without
    /// `axis`, or with size 1 there.
    pub fn of(logits: &'a TensorHandle, classes: &'a TensorHandle, axis: usize) -> Self {
        let (ignored, weights, upstream) = (None, None, None);
        let (smoothing, reduction) = (0.0, LossReduction::Each);
        let task =
            LossTask { logits, classes, axis, smoothing, ignored, weights, reduction, upstream };
        Self { task }
    }

    /// Takes this share, from 0 to 1, from the class that is right, and gives it to all classes
    /// alike.
    pub fn smoothing(self, smoothing: f64) -> Self {
        Self { task: LossTask { smoothing, ..self.task } }
    }

    /// Slices of this class count for nothing, such as padding. It may be out of range.
    pub fn ignored(self, class: i64) -> Self {
        Self { task: LossTask { ignored: Some(class), ..self.task } }
    }

    /// A weight for each class: a tensor of one dimension.
    pub fn weights(self, weights: &'a TensorHandle) -> Self {
        Self { task: LossTask { weights: Some(weights), ..self.task } }
    }

    /// What becomes of the losses of slices.
    pub fn reduced(self, reduction: LossReduction) -> Self {
        Self { task: LossTask { reduction, ..self.task } }
    }

    /// Multiplies the gradient by that of what comes behind: one element for a sum or a mean, and
    /// one for each slice without either.
    pub fn upstream(self, gradient: &'a TensorHandle) -> Self {
        Self { task: LossTask { upstream: Some(gradient), ..self.task } }
    }

    /// Launches into a new tensor of losses: of the shape of the logits without the axis, or of no
    /// dimensions for a sum or a mean. Does not wait for it.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<TensorHandle, ReduceError> {
        self.losses(client, &Classes::new(client, &self.task, None)?)
    }

    /// Like [`run`](Self::run), and returns the gradient by the logits too, in a new row-major
    /// tensor of their shape and type.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run_with_gradient(
        self,
        client: &Client,
    ) -> Result<(TensorHandle, TensorHandle), ReduceError> {
        let gradient = Classes::new(client, &self.task, None)?.new_gradient(client)?;
        let losses = self.run_with_gradient_into(client, gradient.clone().binding())?;
        Ok((losses, gradient))
    }

    /// Like [`run`](Self::run), and writes the gradient by the logits into `gradient`, a tensor of
    /// their shape and type.
    ///
    /// On CUDA and HIP, it may be that of the logits itself, which are then overwritten. Otherwise
    /// their memory must not overlap.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched or written.
    pub fn run_with_gradient_into(
        self,
        client: &Client,
        gradient: TensorBinding,
    ) -> Result<TensorHandle, ReduceError> {
        let classes = Classes::new(client, &self.task, Some(&gradient))?;
        self.losses_and_gradient(client, &classes, gradient)
    }

    /// The losses.
    fn losses(&self, client: &Client, classes: &Classes<'_>) -> Result<TensorHandle, ReduceError> {
        let LossTask { logits, axis, .. } = self.task;
        let of_reciprocals = self.task.is_smoothed() && self.task.weights.is_none();
        let (sums, class_total) = if of_reciprocals {
            let sums = reduce(SoftmaxSumsAndTotal, logits).over(axis).output_type(classes.real);
            let sums = sums.nth_output_type(1, classes.real).nth_output_type(2, classes.real);
            let (most, sums, totals) = sums.run(client)?;
            (Sums { most, sums, totals: Some(totals) }, None)
        } else {
            let sums = reduce(LogSoftmaxSums, logits).over(axis).output_type(classes.real);
            let (most, sums) = sums.nth_output_type(1, classes.real).run(client)?;
            let totals = self.weighted_totals(client, classes)?;
            (Sums { most, sums, totals }, self.class_total(client, classes)?)
        };
        let losses = classes.losses_of(client, &sums, class_total.as_ref(), None, of_reciprocals);
        self.summed(client, losses)
    }

    /// The losses, after the gradient was written.
    fn losses_and_gradient(
        &self,
        client: &Client,
        classes: &Classes<'_>,
        gradient: TensorBinding,
    ) -> Result<TensorHandle, ReduceError> {
        let (factors, scales) = (classes.slices(client), classes.slices(client));
        let into = core::slice::from_ref(&gradient);
        match self.task.is_smoothed() {
            true => self.smoothed(&factors, &scales).check_into_with_results(client, into)?,
            false => self.plain(&factors).check_into_with_results(client, into)?,
        }
        let class_total = self.class_total(client, classes)?;
        let class_total = class_total.as_ref();
        let (gathered, weights) = (classes.slices(client), classes.slices(client));
        let totals = self.weighted_totals(client, classes)?;
        classes.gather(client, &gathered, &weights);
        let divisor = match self.task.reduction {
            LossReduction::Mean => Some(reduce(Sum, &weights).run(client)?),
            LossReduction::Each | LossReduction::Sum => None,
        };
        classes.factors(client, &factors, &scales, divisor.as_ref(), class_total);
        let sums = if self.task.is_smoothed() {
            let applied = self.smoothed(&factors, &scales);
            let (most, sums, sum) = applied.run_into_with_results(client, gradient)?;
            Sums { most, sums, totals: Some(totals.unwrap_or(sum)) }
        } else {
            let (most, sums) = self.plain(&factors).run_into_with_results(client, gradient)?;
            Sums { most, sums, totals }
        };
        classes.gradients_of_classes(client, &gathered, &sums, &factors, &scales);
        let losses = classes.losses_of(client, &sums, class_total, Some(&gathered), true);
        self.summed(client, losses)
    }

    /// The reduction of the logits whose results are applied for the gradient, without smoothing.
    fn plain<'b>(
        &'b self,
        factors: &'b TensorHandle,
    ) -> AppliedReduction<'b, SoftmaxSums, CrossEntropyGradient, TensorHandle> {
        let LossTask { logits, axis, .. } = self.task;
        let applied = reduce(SoftmaxSums, logits).over(axis).apply(CrossEntropyGradient);
        applied.operand(factors, self.kept_axes())
    }

    /// The same with smoothing.
    fn smoothed<'b>(
        &'b self,
        factors: &'b TensorHandle,
        scales: &'b TensorHandle,
    ) -> AppliedReduction<'b, SoftmaxSumsAndTotal, SmoothedCrossEntropyGradient, TensorHandle> {
        let LossTask { logits, axis, smoothing, weights, .. } = self.task;
        let share = smoothing / logits.shape()[axis] as f64;
        let applied = reduce(SoftmaxSumsAndTotal, logits).over(axis);
        let applied = applied.apply(SmoothedCrossEntropyGradient { share });
        let applied = applied.operand(factors, self.kept_axes()).operand(scales, self.kept_axes());
        match weights {
            Some(weights) => applied.operand(weights, axis),
            None => applied,
        }
    }

    /// The axes of slices.
    fn kept_axes(&self) -> Vec<usize> {
        (0..self.task.logits.shape().len()).filter(|&axis| axis != self.task.axis).collect()
    }

    /// The sum of the weights of all classes, where labels are smoothed with them.
    fn class_total(
        &self,
        client: &Client,
        classes: &Classes<'_>,
    ) -> Result<Option<TensorHandle>, ReduceError> {
        match self.task.weights {
            Some(weights) if self.task.is_smoothed() => {
                Ok(Some(reduce(Sum, weights).over(..).output_type(classes.real).run(client)?))
            }
            _ => Ok(None),
        }
    }

    /// The sums of logits times the weights of their classes, where labels are smoothed with them.
    fn weighted_totals(
        &self,
        client: &Client,
        classes: &Classes<'_>,
    ) -> Result<Option<TensorHandle>, ReduceError> {
        let LossTask { logits, axis, .. } = self.task;
        let Some(weights) = self.task.weights.filter(|_| self.task.is_smoothed()) else {
            return Ok(None);
        };
        let mut strides = vec![0; self.task.logits.shape().len()];
        strides[axis] = weights.strides()[0];
        let (shape, handle) = (logits.shape().to_vec(), weights.handle.clone());
        let weights = TensorHandle::new(handle, shape, strides, weights.dtype);
        let sums = reduce(Sum, logits).paired(&weights, ElementwiseProduct).over(axis);
        Ok(Some(sums.output_type(classes.real).run(client)?))
    }

    /// What becomes of the losses, with the weights of their classes.
    fn summed(
        &self,
        client: &Client,
        (losses, weights): (TensorHandle, TensorHandle),
    ) -> Result<TensorHandle, ReduceError> {
        match self.task.reduction {
            LossReduction::Each => Ok(losses),
            LossReduction::Sum => reduce(Sum, &losses).keep_dims(false).run(client),
            LossReduction::Mean => {
                reduce_pair(RatioOfSums, &losses, &weights).keep_dims(false).run(client)
            }
        }
    }
}

/// The cross-entropy of each slice of `logits` along `axis` with the class that is right for it:
/// [`CrossEntropy`] without options.
///
/// ```no_run
/// # use reduce_kernels::{ReduceError, cubecl::{prelude::*, std::tensor::TensorHandle}};
/// use reduce_kernels::normalize::cross_entropy;
///
/// # fn example(
/// #     client: &Client,
/// #     logits: &TensorHandle,
/// #     classes: &TensorHandle,
/// # ) -> Result<(), ReduceError> {
/// // `logits` has shape [batch, classes], and `classes` shape [batch].
/// let losses = cross_entropy(client, logits, classes, 1)?;
/// # Ok(()) }
/// ```
///
/// # Errors
///
/// A [`ReduceError`] before anything is launched.
pub fn cross_entropy(
    client: &Client,
    logits: &TensorHandle,
    classes: &TensorHandle,
    axis: usize,
) -> Result<TensorHandle, ReduceError> {
    CrossEntropy::of(logits, classes, axis).run(client)
}
