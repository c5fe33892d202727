//! Burn's autodiff backends: each float result is a node of the graph.

use core::iter;

use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind, OpsPrep, unary},
};
use burn_backend::{
    AutodiffBackend,
    tensor::{Device, FloatTensor},
};
use reduce_kernels::PairName;

use crate::{
    AnyTensor, Application, Clipped, Clipping, PairReduction, ReduceBackend, ReduceBurnError,
    Reduction, Results,
    application::{self, gradient::ApplicationGradient},
    clip,
    gradient::{Gradient, forward},
    pair::{
        self,
        gradient::{PairGradient, ResultGradient, has_gradient},
    },
};

impl<B: ReduceBackend, C: CheckpointStrategy> ReduceBackend for Autodiff<B, C> {
    fn planner_device(device: &Device<Self>) -> Option<reduce_kernels::Device> {
        B::planner_device(device)
    }

    #[cfg(feature = "serde")]
    fn use_plans(
        device: &Device<Self>,
        plans: reduce_kernels::PlanStore,
    ) -> Result<(), reduce_kernels::StoreError> {
        B::use_plans(device, plans)
    }

    fn check(reduction: &Reduction, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        B::check(reduction, device)
    }

    fn reduce(
        tensor: AnyTensor<Self>,
        reduction: &Reduction,
    ) -> Result<Results<Self>, ReduceBurnError> {
        let x = match tensor {
            AnyTensor::Float(x) => x,
            AnyTensor::Int(x) => return Ok(inner(B::reduce(AnyTensor::Int(x), reduction)?)),
            AnyTensor::Bool(x) => return Ok(inner(B::reduce(AnyTensor::Bool(x), reduction)?)),
        };
        let results = if x.is_tracked() {
            forward::<B>(x.primitive, reduction)?
        } else {
            let results = B::reduce(AnyTensor::Float(x.primitive), reduction)?;
            results.into_iter().map(|result| (result, None)).collect()
        };
        let node = |result, gradient| {
            let step = Step.prepare::<C>([x.node.clone()]).compute_bound().stateful();
            match (step, gradient) {
                (OpsKind::Tracked(step), Some(gradient)) => step.finish(gradient, result),
                (OpsKind::UnTracked(step), None) => step.finish(result),
                _ => unreachable!("results of a tracked tensor, and only they, have gradients"),
            }
        };
        let results = results.into_iter().map(|(result, gradient)| match result {
            AnyTensor::Float(result) => AnyTensor::Float(node(result, gradient)),
            AnyTensor::Int(result) => AnyTensor::Int(result),
            AnyTensor::Bool(result) => AnyTensor::Bool(result),
        });
        Ok(results.collect())
    }

    fn check_pair(pair: &PairReduction, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        B::check_pair(pair, device)
    }

    fn reduce_pair(
        first: AnyTensor<Self>,
        second: AnyTensor<Self>,
        pair: &PairReduction,
    ) -> Result<Results<Self>, ReduceBurnError> {
        let (x, y) = match (first, second) {
            (AnyTensor::Float(x), AnyTensor::Float(y)) => (x, y),
            (AnyTensor::Int(x), AnyTensor::Int(y)) => {
                return Ok(inner(B::reduce_pair(AnyTensor::Int(x), AnyTensor::Int(y), pair)?));
            }
            _ => unreachable!("`PairReduction::new` refuses other kinds"),
        };
        let is_tracked = x.is_tracked() || y.is_tracked();
        if !is_tracked || !has_gradient(pair.function()) {
            let [x, y] = [x, y].map(|tensor| AnyTensor::Float(tensor.primitive));
            return Ok(inner(B::reduce_pair(x, y, pair)?));
        }
        if pair.function() == PairName::MaxDifference {
            // The maximum of a tensor has a gradient.
            let [x, y] = [x, y].map(AnyTensor::Float);
            return pair::composed::reduce::<Self>(x, y, pair);
        }
        let nodes = [x.node.clone(), y.node.clone()];
        let results = pair::gradient::forward::<B>(x.primitive, y.primitive, pair)?;
        let results = results.into_iter().map(|(result, gradient)| {
            AnyTensor::Float(match gradient {
                ResultGradient::OfFirst(gradient) => {
                    let step = Step.prepare::<C>([nodes[0].clone()]).compute_bound().stateful();
                    match step {
                        OpsKind::Tracked(step) => step.finish(gradient, result),
                        OpsKind::UnTracked(step) => step.finish(result),
                    }
                }
                ResultGradient::OfBoth(gradient) => {
                    match PairStep.prepare::<C>(nodes.clone()).compute_bound().stateful() {
                        OpsKind::Tracked(step) => step.finish(gradient, result),
                        OpsKind::UnTracked(_) => unreachable!("one of the tensors is tracked"),
                    }
                }
            })
        });
        Ok(results.collect())
    }

    fn check_application(
        application: &Application,
        device: &Device<Self>,
    ) -> Result<(), ReduceBurnError> {
        B::check_application(application, device)
    }

    fn check_application_with_statistics(
        application: &Application,
        device: &Device<Self>,
    ) -> Result<(), ReduceBurnError> {
        B::check_application_with_statistics(application, device)
    }

    fn apply(
        tensor: FloatTensor<Self>,
        operands: Vec<FloatTensor<Self>>,
        application: &Application,
    ) -> Result<FloatTensor<Self>, ReduceBurnError> {
        let tensors: Vec<_> = iter::once(tensor).chain(operands).collect();
        let is_tracked = tensors.iter().any(|tensor| tensor.is_tracked());
        if is_tracked && application.function().is_backward() {
            // Gradients of gradients: the backward pass is made of operations that have their own.
            let mut tensors = tensors.into_iter();
            let gradient = tensors.next().expect("the gradient is the first of the tensors");
            return application::composed::apply::<Self>(gradient, tensors.collect(), application);
        }
        let nodes: Vec<_> = tensors.iter().map(|tensor| tensor.node.clone()).collect();
        let mut inner = tensors.into_iter().map(|tensor| tensor.primitive);
        let x = inner.next().expect("the input is the first of the tensors");
        let operands = inner.collect();
        let (result, gradient) = if is_tracked {
            let (result, gradient) = application::gradient::forward::<B>(x, operands, application)?;
            (result, Some(gradient))
        } else {
            (B::apply(x, operands, application)?, None)
        };
        let step = ApplicationStep;
        Ok(match nodes.as_slice() {
            [x] => node(step.prepare::<C>([x].map(Clone::clone)), result, gradient),
            [x, weight] => node(step.prepare::<C>([x, weight].map(Clone::clone)), result, gradient),
            [x, weight, bias] => {
                node(step.prepare::<C>([x, weight, bias].map(Clone::clone)), result, gradient)
            }
            _ => unreachable!("no function takes more than two operands"),
        })
    }

    fn check_clipping(clipping: &Clipping, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        B::check_clipping(clipping, device)
    }

    /// Tracked tensors are clipped by operations that have gradients. The norm has one too.
    fn clip_by_global_norm(
        tensors: Vec<FloatTensor<Self>>,
        clipping: &Clipping,
    ) -> Result<Clipped<Self>, ReduceBurnError> {
        if tensors.iter().any(|tensor| tensor.is_tracked()) {
            return clip::composed::clip_by_global_norm::<Self>(tensors, clipping);
        }
        let tensors = tensors.into_iter().map(|tensor| tensor.primitive).collect();
        let (clipped, norm) = B::clip_by_global_norm(tensors, clipping)?;
        let clipped = clipped.into_iter().map(Self::from_inner).collect();
        Ok((clipped, Self::from_inner(norm)))
    }
}

/// A node of the graph for the result of an application. It has a gradient if a parent is tracked.
fn node<B: ReduceBackend, C: CheckpointStrategy, const N: usize>(
    step: OpsPrep<ApplicationStep, B, ApplicationGradient<B>, C, N>,
    result: FloatTensor<B>,
    gradient: Option<ApplicationGradient<B>>,
) -> FloatTensor<Autodiff<B, C>> {
    match (step.compute_bound().stateful(), gradient) {
        (OpsKind::Tracked(step), Some(gradient)) => step.finish(gradient, result),
        (OpsKind::UnTracked(step), None) => step.finish(result),
        _ => unreachable!("results of tracked tensors, and only they, have gradients"),
    }
}

/// The results of a reduction that no gradient reaches.
fn inner<B: ReduceBackend, C: CheckpointStrategy>(results: Results<B>) -> Results<Autodiff<B, C>> {
    let results = results.into_iter().map(|result| match result {
        AnyTensor::Float(result) => AnyTensor::Float(Autodiff::<B, C>::from_inner(result)),
        AnyTensor::Int(result) => AnyTensor::Int(result),
        AnyTensor::Bool(result) => AnyTensor::Bool(result),
    });
    results.collect()
}

/// The backward pass of one result. Its state is the result's [`Gradient`].
#[derive(Debug)]
struct Step;

impl<B: ReduceBackend> Backward<B, 1> for Step {
    type State = Gradient<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        gradients: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        unary::<B, _>(ops.parents, ops.node, gradients, |result| ops.state.of(result));
    }
}

/// The backward pass of one result of two inputs. Its state is the result's [`PairGradient`].
#[derive(Debug)]
struct PairStep;

impl<B: ReduceBackend> Backward<B, 2> for PairStep {
    type State = PairGradient<B>;

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        gradients: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let result = gradients.consume::<B>(&ops.node);
        let wanted = ops.parents.each_ref().map(Option::is_some);
        for (parent, gradient) in ops.parents.into_iter().zip(ops.state.of(result, wanted)) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// The backward pass of an application. Its state is the result's [`ApplicationGradient`].
#[derive(Debug)]
struct ApplicationStep;

impl<B: ReduceBackend, const N: usize> Backward<B, N> for ApplicationStep {
    type State = ApplicationGradient<B>;

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        gradients: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let result = gradients.consume::<B>(&ops.node);
        let wanted = ops.parents.each_ref().map(Option::is_some);
        for (parent, gradient) in ops.parents.into_iter().zip(ops.state.of(result, &wanted)) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}
