//! Burn's autodiff backends: each float result is a node of the graph.

use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind, unary},
};
use burn_backend::tensor::Device;

use crate::{
    AnyTensor, ReduceBackend, ReduceBurnError, Reduction, Results,
    gradient::{Gradient, forward},
};

impl<B: ReduceBackend, C: CheckpointStrategy> ReduceBackend for Autodiff<B, C> {
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
}

/// The results of a reduction of integers or truth values, which no gradient reaches.
fn inner<B: ReduceBackend, C: CheckpointStrategy>(results: Results<B>) -> Results<Autodiff<B, C>> {
    let results = results.into_iter().map(|result| match result {
        AnyTensor::Float(_) => unreachable!("only float tensors have float results"),
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
