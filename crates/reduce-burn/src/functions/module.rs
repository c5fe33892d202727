//! Gradients of a module's parameters.

use core::iter::Peekable;

use burn_backend::tensor::FloatTensor;
use burn_core::module::{Module, ModuleVisitor, Param, ParamId};
use burn_dispatch::Dispatch;
use burn_optim::GradientsParams;
use burn_tensor::Tensor;

use super::clip::clip;
use crate::tensor::{AnyTensor, from_any, into_any};

/// Scales the gradients of a module's parameters down together where their global norm is above
/// `max_norm`, as [`clip_by_global_norm`](crate::clip_by_global_norm) scales tensors. Returns the
/// gradients and the norm that they had.
///
/// Parameters without a gradient are skipped. Gradients of other parameters than the module's stay
/// as they are. Without any gradient, the norm is 0.
///
/// ```
/// use burn_core::module::Module;
/// use burn_optim::{GradientsParams, ModuleOptimizer};
/// use burn_tensor::Tensor;
/// use reduce_burn::clip_gradients;
///
/// /// A step of an optimiser.
/// fn step<M: Module>(module: M, optimizer: &mut ModuleOptimizer, loss: Tensor<1>) -> M {
///     let gradients = GradientsParams::from_grads(loss.backward(), &module);
///     let (gradients, _norm) = clip_gradients(&module, gradients, 1.0);
///     optimizer.step(1e-3, module, gradients)
/// }
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors): for gradients on several devices, and a `max_norm` that is not
/// finite and above 0.
#[track_caller]
pub fn clip_gradients<M: Module>(
    module: &M,
    gradients: GradientsParams,
    max_norm: f64,
) -> (GradientsParams, Tensor<1>) {
    let mut removing = Removing { gradients, ids: Vec::new(), tensors: Vec::new() };
    module.visit(&mut removing);
    let Removing { gradients, ids, tensors } = removing;
    if tensors.is_empty() {
        let device = module.devices().into_iter().next().unwrap_or_default().inner();
        return (gradients, Tensor::zeros([1], &device));
    }
    let (tensors, norm) = clip("clip_gradients", tensors, max_norm);
    let clipped = ids.into_iter().zip(tensors).peekable();
    let mut registering = Registering { gradients, clipped };
    module.visit(&mut registering);
    (registering.gradients, from_any(AnyTensor::Float(norm)))
}

/// Takes the gradient of each parameter, in the order of the module.
struct Removing {
    gradients: GradientsParams,
    ids: Vec<ParamId>,
    tensors: Vec<FloatTensor<Dispatch>>,
}

impl ModuleVisitor for Removing {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = self.gradients.remove::<D>(param.id) {
            self.ids.push(param.id);
            self.tensors.push(into_any(gradient).into_inner());
        }
    }
}

/// Puts the gradients back, in the same order.
struct Registering<I: Iterator> {
    gradients: GradientsParams,
    clipped: Peekable<I>,
}

impl<I: Iterator<Item = (ParamId, FloatTensor<Dispatch>)>> ModuleVisitor for Registering<I> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // A parameter without a gradient, or one that the module holds twice, is not the next.
        if let Some((id, gradient)) = self.clipped.next_if(|(id, _)| *id == param.id) {
            self.gradients.register::<D>(id, from_any(AnyTensor::Float(gradient)));
        }
    }
}
