//! Gradients of a module's parameters.

use core::{iter::Peekable, marker::PhantomData};

use burn_backend::{
    AutodiffBackend,
    tensor::{Device, FloatTensor},
};
use burn_core::module::{Module, ModuleVisitor, Param, ParamId};
use burn_optim::GradientsParams;
use burn_tensor::{Tensor, TensorPrimitive};

use super::functions::clip;
use crate::ReduceBackend;

/// Scales the gradients of a module's parameters down together where their global norm is above
/// `max_norm`, as [`clip_by_global_norm`](super::clip_by_global_norm) scales tensors. Returns the
/// gradients and the norm that they had.
///
/// Parameters without a gradient are skipped. Gradients of other parameters than the module's stay
/// as they are. Without any gradient, the norm is 0.
///
/// ```
/// use burn_core::module::AutodiffModule;
/// use burn_optim::{GradientsParams, Optimizer};
/// use burn_tensor::{Tensor, backend::AutodiffBackend};
/// use reduce_burn::{ReduceBackend, clip_gradients};
///
/// /// A step of an optimiser.
/// fn step<B, M, O>(module: M, optimizer: &mut O, loss: Tensor<B, 1>) -> M
/// where
///     B: AutodiffBackend<InnerBackend: ReduceBackend>,
///     M: AutodiffModule<B>,
///     O: Optimizer<M, B>,
/// {
///     let gradients = GradientsParams::from_grads(loss.backward(), &module);
///     let (gradients, _norm) = clip_gradients::<B, _>(&module, gradients, 1.0);
///     optimizer.step(1e-3, module, gradients)
/// }
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors): for gradients on several devices, and a `max_norm` that is not
/// finite and above 0.
#[track_caller]
pub fn clip_gradients<B, M>(
    module: &M,
    gradients: GradientsParams,
    max_norm: f64,
) -> (GradientsParams, Tensor<B::InnerBackend, 1>)
where
    B: AutodiffBackend<InnerBackend: ReduceBackend>,
    M: Module<B>,
{
    let mut removing = Removing::<B> { gradients, ids: Vec::new(), tensors: Vec::new() };
    module.visit(&mut removing);
    let Removing { gradients, ids, tensors } = removing;
    if tensors.is_empty() {
        let device: Device<B> = module.devices().into_iter().next().unwrap_or_default();
        return (gradients, Tensor::zeros([1], &device));
    }
    let (tensors, norm) = clip::<B::InnerBackend>("clip_gradients", tensors, max_norm);
    let clipped = ids.into_iter().zip(tensors).peekable();
    let mut registering = Registering::<B, _> { gradients, clipped, backend: PhantomData };
    module.visit(&mut registering);
    (registering.gradients, Tensor::from_primitive(TensorPrimitive::Float(norm)))
}

/// Takes the gradient of each parameter, in the order of the module.
struct Removing<B: AutodiffBackend> {
    gradients: GradientsParams,
    ids: Vec<ParamId>,
    tensors: Vec<FloatTensor<B::InnerBackend>>,
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Removing<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        if let Some(gradient) = self.gradients.remove::<B::InnerBackend, D>(param.id) {
            self.ids.push(param.id);
            self.tensors.push(gradient.into_primitive().tensor());
        }
    }
}

/// Puts the gradients back, in the same order.
struct Registering<B: AutodiffBackend, I: Iterator> {
    gradients: GradientsParams,
    clipped: Peekable<I>,
    backend: PhantomData<B>,
}

impl<B, I> ModuleVisitor<B> for Registering<B, I>
where
    B: AutodiffBackend,
    I: Iterator<Item = (ParamId, FloatTensor<B::InnerBackend>)>,
{
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        // A parameter without a gradient, or one that the module holds twice, is not the next.
        if let Some((id, gradient)) = self.clipped.next_if(|(id, _)| *id == param.id) {
            let gradient = Tensor::<_, D>::from_primitive(TensorPrimitive::Float(gradient));
            self.gradients.register::<B::InnerBackend, D>(id, gradient);
        }
    }
}
