//! Cross-entropy of logits with classes, and its gradient.

use cubecl::{prelude::*, std::tensor::TensorHandle};

use crate::{error::ReduceError, host::apply::cross_entropy::Classes};

/// What becomes of the losses of slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LossReduction {
    /// Nothing: there is a loss for each slice.
    #[default]
    Each,
    /// Their sum.
    Sum,
    /// Their sum over the weights of the slices' classes. Without weights, that is the mean over
    /// slices that are not ignored. NaN if all are.
    Mean,
}

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
    pub(crate) logits: &'a TensorHandle,
    pub(crate) classes: &'a TensorHandle,
    pub(crate) axis: usize,
    pub(crate) smoothing: f64,
    pub(crate) ignored: Option<i64>,
    pub(crate) weights: Option<&'a TensorHandle>,
    pub(crate) reduction: LossReduction,
    pub(crate) upstream: Option<&'a TensorHandle>,
}

impl<'a> CrossEntropy<'a> {
    /// The cross-entropy of each slice of `logits` along `axis` with its class.
    ///
    /// `classes` are integers, one for each slice: their shape is that of the logits without
    /// `axis`, or with size 1 there.
    pub fn of(logits: &'a TensorHandle, classes: &'a TensorHandle, axis: usize) -> Self {
        Self {
            logits,
            classes,
            axis,
            smoothing: 0.0,
            ignored: None,
            weights: None,
            reduction: LossReduction::Each,
            upstream: None,
        }
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

    /// A weight for each class: a tensor of one dimension.
    pub fn weights(self, weights: &'a TensorHandle) -> Self {
        Self { weights: Some(weights), ..self }
    }

    /// What becomes of the losses of slices.
    pub fn reduced(self, reduction: LossReduction) -> Self {
        Self { reduction, ..self }
    }

    /// Multiplies the gradient by that of what comes behind: one element for a sum or a mean, and
    /// one for each slice without either.
    pub fn upstream(self, gradient: &'a TensorHandle) -> Self {
        Self { upstream: Some(gradient), ..self }
    }

    /// Launches into a new tensor of losses: of the shape of the logits without the axis, or of no
    /// dimensions for a sum or a mean. Does not wait for it.
    ///
    /// # Errors
    ///
    /// A [`ReduceError`] before anything is launched.
    pub fn run(self, client: &Client) -> Result<TensorHandle, ReduceError> {
        Classes::new(client, &self, None)?.losses(client)
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
        let gradient = Classes::new(client, &self, None)?.new_gradient(client)?;
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
        Classes::new(client, &self, Some(&gradient))?.losses_and_gradient(client, gradient)
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
