//! The gradient of a cross-entropy by its logits. Nothing but the tensors is saved: the backward
//! pass reads the logits again, and takes their softmax in the launch that writes the gradient.

use core::iter;

use burn_backend::{Backend, tensor::FloatTensor};

use crate::{
    backend::{LossTensors, Operation, ReduceBackend, floats_of},
    cross_entropy::{ClassLoss, GRADIENT_NAME},
    error::ReduceBurnError,
    tensor::{AnyTensor, floats},
};

/// How the gradient of losses reaches the logits.
#[derive(Clone, Debug)]
pub(crate) struct LossGradient<B: Backend> {
    loss: ClassLoss,
    tensors: LossTensors<B>,
}

/// Losses whose logits are tracked, with their gradient.
pub(crate) fn forward<B: ReduceBackend>(
    tensors: LossTensors<B>,
    loss: &ClassLoss,
) -> Result<(FloatTensor<B>, LossGradient<B>), ReduceBurnError> {
    let saved = LossGradient { loss: loss.clone(), tensors: tensors.clone() };
    let operation = Operation::ClassLoss(loss.clone());
    let [losses] = floats(B::run(tensors.into_tensors().collect(), operation)?);
    Ok((losses, saved))
}

impl<B: ReduceBackend> LossGradient<B> {
    /// The gradient of the logits, from that of the losses.
    pub(crate) fn of(self, losses: FloatTensor<B>) -> FloatTensor<B> {
        let upstream = iter::once(AnyTensor::Float(losses));
        let tensors = self.tensors.into_tensors().chain(upstream).collect();
        let results = B::run(tensors, Operation::ClassLossGradient(self.loss));
        let results = results.unwrap_or_else(|error| panic!("`{GRADIENT_NAME}`: {error}"));
        floats_of(results).remove(0)
    }
}
