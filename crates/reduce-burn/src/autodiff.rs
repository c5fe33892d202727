//! Burn's autodiff backends: each float result is a node of the graph.

use core::{fmt::Debug, iter};

use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, NodeGuard, Ops, OpsKind, unary},
};
use burn_backend::{
    AutodiffBackend, Backend,
    tensor::{Device, FloatTensor},
};
use reduce_kernels::by_name::PairName;

use crate::{
    application::Application,
    backend::{LossTensors, Operation, ReduceBackend, Results, floats_of, split_members},
    composed,
    cross_entropy::ClassLoss,
    error::ReduceBurnError,
    gradient::{
        self, Gradient,
        application::ApplicationGradient,
        cross_entropy::LossGradient,
        pair::{PairGradient, ResultGradient, has_gradient},
        scan::ScanGradient,
        segments::{SegmentGradient, has_formula},
        selection::SelectionGradient,
    },
    pair::PairReduction,
    reduction::Reduction,
    scanned::Scan,
    segmented::{GroupTensors, Members},
    selection::Selection,
    tensor::AnyTensor,
};

impl<B: ReduceBackend, C: CheckpointStrategy> ReduceBackend for Autodiff<B, C> {
    fn planner_device(device: &Device<Self>) -> Option<reduce_kernels::Device> {
        B::planner_device(device)
    }

    #[cfg(feature = "serde")]
    fn use_plans(
        device: &Device<Self>,
        plans: reduce_kernels::plans::PlanStore,
    ) -> Result<(), reduce_kernels::plans::StoreError> {
        B::use_plans(device, plans)
    }

    fn check(operation: &Operation, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        B::check(operation, device)
    }

    /// Operations that no gradient flows through are those of the backend.
    fn run(
        tensors: Vec<AnyTensor<Self>>,
        operation: Operation,
    ) -> Result<Results<Self>, ReduceBurnError> {
        let is_tracked = tensors.iter().any(|tensor| match tensor {
            AnyTensor::Float(tensor) => tensor.is_tracked(),
            _ => false,
        });
        match operation {
            Operation::Reduction(reduction) if is_tracked && reduction.segments().is_some() => {
                reduce_segments(tensors, &reduction)
            }
            Operation::Reduction(reduction) if is_tracked => reduce(floats_of(tensors), &reduction),
            Operation::Scan(scanned) if is_tracked => scan(floats_of(tensors), &scanned),
            Operation::Pair(pair) if is_tracked && pair.function() == PairName::MaxDifference => {
                // The maximum of a tensor has a gradient.
                composed::run(tensors, &Operation::Pair(pair))
            }
            Operation::Pair(pair) if is_tracked && has_gradient(pair.function()) => {
                reduce_pair(floats_of(tensors), &pair)
            }
            Operation::Selection(selection) if is_tracked && selection.is_masked() => {
                // A scatter of selected elements has a gradient.
                composed::run(tensors, &Operation::Selection(selection))
            }
            Operation::Selection(selection) if is_tracked => select(floats_of(tensors), &selection),
            Operation::Application(application)
                if is_tracked && !application.function().is_backward() =>
            {
                apply(tensors, &application)
            }
            Operation::ClassLoss(loss) if is_tracked => losses(tensors, &loss),
            // Gradients of gradients, of statistics and of clipped tensors: Burn's operations have
            // their own.
            operation @ (Operation::Application(_)
            | Operation::ApplicationWithStatistics(_)
            | Operation::ClassLossGradient(_)
            | Operation::Clipping(_))
                if is_tracked =>
            {
                composed::run(tensors, &operation)
            }
            // Each kind is named: one that is new has to say here what its gradient is.
            operation @ (Operation::Reduction(_)
            | Operation::Scan(_)
            | Operation::Pair(_)
            | Operation::Application(_)
            | Operation::ApplicationWithStatistics(_)
            | Operation::ClassLoss(_)
            | Operation::ClassLossGradient(_)
            // Integers have no gradient, and no gradient flows through their scales.
            | Operation::Quantization(_)
            | Operation::Selection(_)
            | Operation::SegmentNumbers(_)
            | Operation::Grouping(_)
            | Operation::Clipping(_)) => {
                let tensors = tensors.into_iter().map(|tensor| match tensor {
                    AnyTensor::Float(tensor) => AnyTensor::Float(tensor.into_primitive()),
                    AnyTensor::Int(tensor) => AnyTensor::Int(tensor),
                    AnyTensor::Bool(tensor) => AnyTensor::Bool(tensor),
                });
                let results = B::run(tensors.collect(), operation)?;
                Ok(results.into_iter().map(constant).collect())
            }
        }
    }
}

/// A result that no gradient reaches.
fn constant<B: ReduceBackend, C: CheckpointStrategy>(
    result: AnyTensor<B>,
) -> AnyTensor<Autodiff<B, C>> {
    match result {
        AnyTensor::Float(result) => AnyTensor::Float(Autodiff::<B, C>::from_inner(result)),
        AnyTensor::Int(result) => AnyTensor::Int(result),
        AnyTensor::Bool(result) => AnyTensor::Bool(result),
    }
}

/// A reduction of a tracked tensor.
fn reduce<B: ReduceBackend, C: CheckpointStrategy>(
    tensors: Vec<FloatTensor<Autodiff<B, C>>>,
    reduction: &Reduction,
) -> Result<Results<Autodiff<B, C>>, ReduceBurnError> {
    let [x] = tensors.try_into().expect("a reduction has one input");
    let guards: Vec<_> = reduction.outputs().iter().map(|_| [x.node()]).collect();
    let results = gradient::forward::<B>(x.into_primitive(), reduction)?;
    Ok(nodes::<B, C, _>(guards, results, Gradient::of))
}

/// A scan of a tracked tensor.
fn scan<B: ReduceBackend, C: CheckpointStrategy>(
    tensors: Vec<FloatTensor<Autodiff<B, C>>>,
    scan: &Scan,
) -> Result<Results<Autodiff<B, C>>, ReduceBurnError> {
    let [x] = tensors.try_into().expect("a scan has one input");
    let guards: Vec<_> = scan.outputs().iter().map(|_| [x.node()]).collect();
    let results = gradient::scan::forward::<B>(x.into_primitive(), scan)?;
    Ok(nodes::<B, C, _>(guards, results, ScanGradient::of))
}

/// A reduction of segments of a tracked tensor.
fn reduce_segments<B: ReduceBackend, C: CheckpointStrategy>(
    tensors: Vec<AnyTensor<Autodiff<B, C>>>,
    reduction: &Reduction,
) -> Result<Results<Autodiff<B, C>>, ReduceBurnError> {
    if !has_formula(reduction.operator()) {
        return composed::run(tensors, &Operation::Reduction(reduction.clone()));
    }
    let (tensors, members) = split_members(tensors, reduction.segments());
    let [x] = floats_of(tensors).try_into().expect("a reduction has one input");
    let members = members.expect("there are segments");
    let guards: Vec<_> = reduction.outputs().iter().map(|_| [x.node()]).collect();
    let results =
        gradient::segments::forward::<B>(x.into_primitive(), untracked(members), reduction)?;
    Ok(nodes::<B, C, _>(guards, results, SegmentGradient::of))
}

/// A node of the graph for each result that has a gradient, which `of` makes that of the input.
fn nodes<B: ReduceBackend, C: CheckpointStrategy, S: Clone + Debug + Send + 'static>(
    guards: Vec<[NodeGuard; 1]>,
    results: Vec<(AnyTensor<B>, Option<S>)>,
    of: fn(S, FloatTensor<B>) -> FloatTensor<B>,
) -> Results<Autodiff<B, C>> {
    let nodes = results.into_iter().zip(guards).map(|(result, guards)| match result {
        (AnyTensor::Float(result), Some(gradient)) => {
            AnyTensor::Float(node::<_, C, _, 1>(Step(of), guards, result, gradient))
        }
        (result, _) => constant(result),
    });
    nodes.collect()
}

/// What segments have, which is of integers: no gradient reaches it.
#[allow(clippy::map_identity, reason = "the tensors are those of another backend")]
fn untracked<B: ReduceBackend, C: CheckpointStrategy>(
    members: Members<Autodiff<B, C>>,
) -> Members<B> {
    let Members { offsets, groups } = members;
    let groups = groups.map(|GroupTensors { indices, keys }| GroupTensors { indices, keys });
    Members { offsets, groups }
}

/// A reduction of two tensors of which one is tracked at least.
fn reduce_pair<B: ReduceBackend, C: CheckpointStrategy>(
    tensors: Vec<FloatTensor<Autodiff<B, C>>>,
    pair: &PairReduction,
) -> Result<Results<Autodiff<B, C>>, ReduceBurnError> {
    let [x, y] = tensors.try_into().expect("a reduction of two inputs has two");
    let guards: Vec<_> = pair.outputs().iter().map(|_| [x.node(), y.node()]).collect();
    let results = gradient::pair::forward::<B>(x.into_primitive(), y.into_primitive(), pair)?;
    let nodes = results.into_iter().zip(guards).map(|((result, gradient), guards)| {
        AnyTensor::Float(match gradient {
            ResultGradient::OfFirst(gradient) => {
                let [first, _] = guards;
                node::<_, C, _, 1>(Step(Gradient::of), [first], result, gradient)
            }
            ResultGradient::OfBoth(gradient) => {
                node::<_, C, _, 2>(PairStep, guards, result, gradient)
            }
        })
    });
    Ok(nodes.collect())
}

/// A selection of a tracked tensor. Positions have no gradient.
fn select<B: ReduceBackend, C: CheckpointStrategy>(
    tensors: Vec<FloatTensor<Autodiff<B, C>>>,
    selection: &Selection,
) -> Result<Results<Autodiff<B, C>>, ReduceBurnError> {
    let [x] = tensors.try_into().expect("a selection has one input");
    let guards = [x.node()];
    let (values, gradient) = gradient::selection::forward::<B>(x.into_primitive(), selection)?;
    let positions = AnyTensor::Int(gradient.positions());
    let values = node::<_, C, _, 1>(Step(SelectionGradient::of), guards, values, gradient);
    Ok(vec![AnyTensor::Float(values), positions])
}

/// Losses of tensors of which one is tracked at least.
fn losses<B: ReduceBackend, C: CheckpointStrategy>(
    tensors: Vec<AnyTensor<Autodiff<B, C>>>,
    loss: &ClassLoss,
) -> Result<Results<Autodiff<B, C>>, ReduceBurnError> {
    let (LossTensors { logits, classes, weights }, _) = LossTensors::of(tensors, loss);
    if weights.as_ref().is_some_and(|weights| weights.is_tracked()) {
        // Kernels give the gradient by logits alone.
        let tensors = LossTensors { logits, classes, weights }.into_tensors().collect();
        return composed::run(tensors, &Operation::ClassLoss(loss.clone()));
    }
    let guards = [logits.node()];
    let weights = weights.map(|weights| weights.into_primitive());
    let tensors = LossTensors::<B> { logits: logits.into_primitive(), classes, weights };
    let (losses, gradient) = gradient::cross_entropy::forward(tensors, loss)?;
    let node = node::<_, C, _, 1>(Step(LossGradient::of), guards, losses, gradient);
    Ok(vec![AnyTensor::Float(node)])
}

/// An application of tensors of which one is tracked at least.
fn apply<B: ReduceBackend, C: CheckpointStrategy>(
    tensors: Vec<AnyTensor<Autodiff<B, C>>>,
    application: &Application,
) -> Result<Results<Autodiff<B, C>>, ReduceBurnError> {
    let (tensors, members) = split_members(tensors, application.segments());
    let members = members.map(untracked);
    let tensors = floats_of(tensors);
    let guards: Vec<_> = tensors.iter().map(|tensor| tensor.node()).collect();
    let mut tensors = tensors.into_iter().map(|tensor| tensor.into_primitive());
    let x = tensors.next().expect("the input is the first of the tensors");
    let operands = tensors.collect();
    if let Some(function) = application.function().of_sum() {
        let [(sum, addition), (normalized, normalization)] =
            gradient::application::forward_of_sum::<B>(x, operands, function, application)?;
        let mut terms = guards;
        let others = terms.split_off(2);
        // The sum is a parent of the sum normalised, so the gradients of both meet there.
        let sum = applied::<B, C>(terms, sum, addition);
        let parents = iter::once(sum.node()).chain(others).collect();
        let normalized = applied::<B, C>(parents, normalized, normalization);
        return Ok(vec![AnyTensor::Float(sum), AnyTensor::Float(normalized)]);
    }
    let (result, gradient) =
        gradient::application::forward::<B>(x, operands, members, application)?;
    Ok(vec![AnyTensor::Float(applied::<B, C>(guards, result, gradient))])
}

/// The node of a result of an application, whose parents are what it is made of.
fn applied<B: ReduceBackend, C: CheckpointStrategy>(
    parents: Vec<NodeGuard>,
    result: FloatTensor<B>,
    gradient: ApplicationGradient<B>,
) -> FloatTensor<Autodiff<B, C>> {
    let step = ApplicationStep;
    match parents.len() {
        1 => node::<_, C, _, 1>(step, array(parents), result, gradient),
        2 => node::<_, C, _, 2>(step, array(parents), result, gradient),
        3 => node::<_, C, _, 3>(step, array(parents), result, gradient),
        _ => unreachable!("no result is made of more than an input and two operands"),
    }
}

fn array<const N: usize>(guards: Vec<NodeGuard>) -> [NodeGuard; N] {
    guards.try_into().expect("there are this many guards")
}

/// A node of the graph for a result, if a parent is tracked.
fn node<B, C, S, const N: usize>(
    step: S,
    parents: [NodeGuard; N],
    result: FloatTensor<B>,
    gradient: S::State,
) -> FloatTensor<Autodiff<B, C>>
where
    B: ReduceBackend,
    C: CheckpointStrategy,
    S: Backward<B, N>,
{
    match step.prepare::<C>(parents).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish(gradient, result),
        OpsKind::UnTracked(step) => step.finish(result),
    }
}

/// The backward pass of one result of one input. It has the function that makes the gradient of the
/// input of the state and the gradient of the result.
#[derive(Debug)]
struct Step<B: Backend, S>(fn(S, FloatTensor<B>) -> FloatTensor<B>);

impl<B: ReduceBackend, S: Clone + Send + Debug + 'static> Backward<B, 1> for Step<B, S> {
    type State = S;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        gradients: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        unary::<B, _>(ops.parents, ops.node, gradients, |result| (self.0)(ops.state, result));
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
