//! What a backend must do for this crate, as data: for backends of your own, and for code that is
//! generic over backends.
//!
//! An [`Operation`] knows the types and the shapes of its results before it runs:
//!
//! ```
//! use burn_tensor::{DType, Device, Shape, Tensor};
//! use reduce_burn::{
//!     AxisList,
//!     backend::{AnyTensor, Kind, Operation, OperatorName, OperatorOptions, Reduction},
//! };
//! # use burn_backend::{FloatDType, ops::FloatTensorOps};
//! # use burn_flex::Flex;
//!
//! # let tensor = Flex::float_zeros(Shape::new([8, 1024]), &Default::default(), FloatDType::F32);
//! let tensor: AnyTensor<Flex> = AnyTensor::Float(tensor); // shape [8, 1024]
//! let options = OperatorOptions { correction: 1.0, ..Default::default() };
//! let axes = AxisList::from([1]);
//! let reduction = Reduction::new(OperatorName::Var, options, &tensor, &axes, false)?;
//! let outputs = Operation::Reduction(reduction).outputs();
//! assert_eq!(outputs, [(Kind::Float, DType::F32, Shape::new([8]))]);
//! # Ok::<(), reduce_burn::backend::ReduceBurnError>(())
//! ```

use core::iter;

use burn_backend::{
    Backend, DType,
    tensor::{Device, FloatTensor, IntTensor},
};
use burn_tensor::Shape;

use crate::{
    clip::{self, Clipped},
    cross_entropy,
    operand::Operand,
    quantization,
    tensor::floats,
};

pub use burn_tensor::kind::Kind;
pub use reduce_kernels::by_name::{OperatorName, OperatorOptions, PairName, PairOptions};
pub use reduce_kernels::normalize::LossReduction;

pub use crate::{
    application::{Application, AppliedFunction},
    axes::Squeeze,
    clip::Clipping,
    cross_entropy::{ClassLoss, ClassLossOptions},
    error::ReduceBurnError,
    pair::PairReduction,
    quantization::Quantization,
    reduction::Reduction,
    scanned::Scan,
    segmented::{GroupTensors, GroupTypes, Grouping, Members, SegmentNumbers, Segments},
    selection::{Selection, SelectionOutput},
    tensor::AnyTensor,
};

/// The results of an operation, in the order of [`Operation::outputs`].
pub type Results<B> = Vec<AnyTensor<B>>;

/// The results of an application, and the statistics of its slices.
pub(crate) type WithStatistics<B, const N: usize> = ([FloatTensor<B>; N], Vec<FloatTensor<B>>);

/// What a backend computes for this crate.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A reduction of one tensor. [`Members`] of segments follow it if it has segments.
    Reduction(Reduction),
    /// A scan of one tensor.
    Scan(Scan),
    /// A reduction of two tensors.
    Pair(PairReduction),
    /// An application of a tensor and its operands, in that order. [`Members`] of segments follow
    /// them if it has segments.
    Application(Application),
    /// The same, whose statistics follow the results, for a backward pass. Those of no elements
    /// have no meaning.
    ApplicationWithStatistics(Application),
    /// The losses of logits and classes, and of weights if there are any.
    ClassLoss(ClassLoss),
    /// The gradient of such losses by the logits. The gradient of the losses comes last.
    ClassLossGradient(ClassLoss),
    /// A quantisation of one float tensor: its integers and their scales.
    Quantization(Quantization),
    /// A selection of elements of one tensor: their values or probabilities and their positions, or
    /// the tensor with a number in place of all others.
    Selection(Selection),
    /// The numbers of the segments of elements, of offsets.
    SegmentNumbers(SegmentNumbers),
    /// The groups of keys: indices and offsets.
    Grouping(Grouping),
    /// A clipping of tensors, which the norm that they had follows.
    Clipping(Clipping),
}

impl Operation {
    /// The name of the function.
    pub fn name(&self) -> &'static str {
        match self {
            Operation::Reduction(reduction) => reduction.operator().name(),
            Operation::Scan(scan) => scan.name(),
            Operation::Pair(pair) => pair.function().name(),
            Operation::Application(application)
            | Operation::ApplicationWithStatistics(application) => application.function().name(),
            Operation::ClassLoss(_) => cross_entropy::NAME,
            Operation::ClassLossGradient(_) => cross_entropy::GRADIENT_NAME,
            Operation::Quantization(_) => quantization::NAME,
            Operation::Selection(selection) => selection.name(),
            Operation::SegmentNumbers(_) => "segment_numbers",
            Operation::Grouping(_) => "group_by_keys",
            Operation::Clipping(_) => clip::NAME,
        }
    }

    /// The kind, the type and the shape of each result.
    pub fn outputs(&self) -> Vec<Output> {
        let floats = |outputs: Vec<(DType, Shape)>| {
            outputs.into_iter().map(|(dtype, shape)| (Kind::Float, dtype, shape)).collect()
        };
        match self {
            Operation::Reduction(reduction) => {
                of_one_shape(reduction.outputs(), reduction.output_shape())
            }
            Operation::Scan(scan) => of_one_shape(scan.outputs(), scan.shape().clone()),
            Operation::Pair(pair) => of_one_shape(pair.outputs(), pair.output_shape()),
            Operation::Application(application) => floats(application.outputs()),
            Operation::ApplicationWithStatistics(application) => {
                let (count, dtype, shape) = application.statistics();
                let mut outputs = application.outputs();
                outputs.extend(iter::repeat_n((dtype, shape), count));
                floats(outputs)
            }
            Operation::ClassLoss(loss) => floats(vec![(loss.loss_dtype(), loss.loss_shape())]),
            Operation::ClassLossGradient(loss) => {
                floats(vec![(loss.dtype(), loss.shape().clone())])
            }
            Operation::Quantization(quantization) => {
                let integers = quantization.integers().into();
                vec![
                    (Kind::Int, integers, quantization.shape().clone()),
                    (Kind::Float, quantization.scale_dtype(), quantization.scale_shape()),
                ]
            }
            Operation::Selection(selection) => {
                of_one_shape(selection.outputs(), selection.output_shape())
            }
            Operation::SegmentNumbers(numbers) => {
                vec![(Kind::Int, numbers.dtype(), numbers.shape())]
            }
            Operation::Grouping(grouping) => {
                let shapes = [[grouping.count()], [grouping.groups() + 1]].map(Shape::from);
                shapes.map(|shape| (Kind::Int, grouping.dtype(), shape)).to_vec()
            }
            Operation::Clipping(clipping) => {
                let norm = (clipping.norm_dtype(), clipping.norm_shape());
                floats([clipping.tensors(), &[norm]].concat())
            }
        }
    }
}

/// The kind, the type and the shape of a result.
pub type Output = (Kind, DType, Shape);

fn of_one_shape(outputs: Vec<(Kind, DType)>, shape: Shape) -> Vec<Output> {
    outputs.into_iter().map(|(kind, dtype)| (kind, dtype, shape.clone())).collect()
}

/// A backend whose tensors this crate's functions take.
///
/// It is implemented for `CubeBackend` with the kernels of reduce-kernels, for `Flex` with Burn's
/// own operations, for `Fusion` and `Autodiff` of both, and for `Dispatch`, which users' tensors
/// are on.
pub trait ReduceBackend: Backend {
    /// A device as the planner of reduce-kernels sees it; see
    /// [`planner_device`](crate::plans::planner_device).
    fn planner_device(device: &Device<Self>) -> Option<reduce_kernels::Device> {
        let _ = device;
        None
    }

    /// Takes the plans of all reductions on a device from `plans`; see
    /// [`use_plans`](crate::plans::use_plans).
    ///
    /// # Errors
    ///
    /// The plans are those of another device.
    #[cfg(feature = "serde")]
    fn use_plans(
        device: &Device<Self>,
        plans: reduce_kernels::plans::PlanStore,
    ) -> Result<(), reduce_kernels::plans::StoreError> {
        let _ = (device, plans);
        Ok(())
    }

    /// Whether [`run`](Self::run) would run an operation on a device.
    ///
    /// `Fusion` asks this when it records an operation, because it runs on the device's thread
    /// later, where an error could not reach the caller.
    ///
    /// # Errors
    ///
    /// The error that `run` would return.
    fn check(operation: &Operation, device: &Device<Self>) -> Result<(), ReduceBurnError> {
        let _ = (operation, device);
        Ok(())
    }

    /// Runs an operation on tensors, which are those that it was made of. The results have the
    /// kinds, the types and the shapes that it says. Does not wait for the device.
    ///
    /// # Errors
    ///
    /// What the device cannot run. Nothing is launched then.
    fn run(
        tensors: Vec<AnyTensor<Self>>,
        operation: Operation,
    ) -> Result<Results<Self>, ReduceBurnError>;
}

/// The tensors of an operation that takes `N`.
pub(crate) fn these<B: Backend, const N: usize>(tensors: Vec<AnyTensor<B>>) -> [AnyTensor<B>; N] {
    tensors.try_into().expect("an operation is given the tensors that it was made of")
}

/// The tensors of an operation that takes float tensors.
pub(crate) fn floats_of<B: Backend>(tensors: Vec<AnyTensor<B>>) -> Vec<FloatTensor<B>> {
    let floats = tensors.into_iter().map(|tensor| match tensor {
        AnyTensor::Float(tensor) => tensor,
        _ => panic!("an operation is given the tensors that it was made of"),
    });
    floats.collect()
}

/// The tensors of an operation without those of its segments, which come last, and these.
pub(crate) fn split_members<B: Backend>(
    mut tensors: Vec<AnyTensor<B>>,
    segments: Option<Segments>,
) -> (Vec<AnyTensor<B>>, Option<Members<B>>) {
    let Some(segments) = segments else { return (tensors, None) };
    let first = tensors.len().saturating_sub(segments.tensors());
    let members = tensors.split_off(first).into_iter().map(|tensor| match tensor {
        AnyTensor::Int(tensor) => tensor,
        _ => panic!("an operation is given the tensors that it was made of"),
    });
    let mut members = members.fuse();
    let offsets = members.next().expect("an operation is given the tensors that it was made of");
    let groups = members.next().zip(members.next());
    let groups = groups.map(|(indices, keys)| GroupTensors { indices, keys });
    (tensors, Some(Members { offsets, groups }))
}

/// The input and the operands of an application.
pub(crate) fn with_operands<B: Backend>(
    tensors: Vec<AnyTensor<B>>,
) -> (FloatTensor<B>, Vec<FloatTensor<B>>) {
    let mut tensors = floats_of(tensors);
    let operands = tensors.split_off(1);
    let [tensor] = tensors.try_into().expect("an application has an input");
    (tensor, operands)
}

pub(crate) fn reduce<B: ReduceBackend>(
    tensor: AnyTensor<B>,
    reduction: &Reduction,
) -> Result<Results<B>, ReduceBurnError> {
    B::run(vec![tensor], Operation::Reduction(reduction.clone()))
}

pub(crate) fn scan<B: ReduceBackend>(
    tensor: AnyTensor<B>,
    scan: Scan,
) -> Result<Results<B>, ReduceBurnError> {
    B::run(vec![tensor], Operation::Scan(scan))
}

pub(crate) fn reduce_segments<B: ReduceBackend>(
    tensor: AnyTensor<B>,
    members: Members<B>,
    reduction: &Reduction,
) -> Result<Results<B>, ReduceBurnError> {
    let tensors = iter::once(tensor).chain(members.into_tensors()).collect();
    B::run(tensors, Operation::Reduction(reduction.clone()))
}

pub(crate) fn reduce_pair<B: ReduceBackend>(
    first: AnyTensor<B>,
    second: AnyTensor<B>,
    pair: &PairReduction,
) -> Result<Results<B>, ReduceBurnError> {
    B::run(vec![first, second], Operation::Pair(pair.clone()))
}

pub(crate) fn apply<B: ReduceBackend>(
    tensor: FloatTensor<B>,
    operands: Vec<FloatTensor<B>>,
    members: Option<Members<B>>,
    application: &Application,
) -> Result<FloatTensor<B>, ReduceBurnError> {
    let floats_first = iter::once(tensor).chain(operands).map(AnyTensor::Float);
    let tensors = floats_first.chain(members.into_iter().flat_map(Members::into_tensors)).collect();
    let results = B::run(tensors, Operation::Application(application.clone()))?;
    let [result] = floats(results);
    Ok(result)
}

/// The `N` results of an application, and its statistics.
pub(crate) fn apply_with_statistics<B: ReduceBackend, const N: usize>(
    tensor: FloatTensor<B>,
    operands: Vec<FloatTensor<B>>,
    application: &Application,
) -> Result<WithStatistics<B, N>, ReduceBurnError> {
    let tensors = iter::once(tensor).chain(operands).map(AnyTensor::Float).collect();
    let operation = Operation::ApplicationWithStatistics(application.clone());
    let mut results = floats_of(B::run(tensors, operation)?);
    let statistics = results.split_off(N);
    Ok((results.try_into().expect("the function has this many results"), statistics))
}

/// The tensors of a loss of classes.
#[derive(Clone, Debug)]
pub(crate) struct LossTensors<B: Backend> {
    pub(crate) logits: FloatTensor<B>,
    pub(crate) classes: IntTensor<B>,
    pub(crate) weights: Option<FloatTensor<B>>,
}

impl<B: Backend> LossTensors<B> {
    /// Those of an operation, and the gradient of the losses if it is a backward pass.
    pub(crate) fn of(
        tensors: Vec<AnyTensor<B>>,
        loss: &ClassLoss,
    ) -> (Self, Option<FloatTensor<B>>) {
        let (mut floats, mut classes) = (Vec::new(), None);
        for tensor in tensors {
            match tensor {
                AnyTensor::Float(tensor) => floats.push(tensor),
                AnyTensor::Int(tensor) => classes = Some(tensor),
                AnyTensor::Bool(_) => {}
            }
        }
        let mut floats = floats.into_iter();
        let logits = floats.next();
        let (Some(logits), Some(classes)) = (logits, classes) else {
            panic!("an operation is given the tensors that it was made of")
        };
        let weights = loss.weights().and_then(|_| floats.next());
        (Self { logits, classes, weights }, floats.next())
    }

    pub(crate) fn into_tensors(self) -> impl Iterator<Item = AnyTensor<B>> {
        let first = [AnyTensor::Float(self.logits), AnyTensor::Int(self.classes)];
        first.into_iter().chain(self.weights.map(AnyTensor::Float))
    }
}

/// The values and the positions of a selection of floats, which gives these.
pub(crate) fn select<B: ReduceBackend>(
    x: FloatTensor<B>,
    selection: Selection,
) -> Result<(FloatTensor<B>, IntTensor<B>), ReduceBurnError> {
    let results = B::run(vec![AnyTensor::Float(x)], Operation::Selection(selection))?;
    match these(results) {
        [AnyTensor::Float(values), AnyTensor::Int(positions)] => Ok((values, positions)),
        _ => unreachable!("a selection of floats gives floats and positions"),
    }
}

pub(crate) fn clip_by_global_norm<B: ReduceBackend>(
    tensors: Vec<FloatTensor<B>>,
    clipping: Clipping,
) -> Result<Clipped<B>, ReduceBurnError> {
    let tensors = tensors.into_iter().map(AnyTensor::Float).collect();
    let mut results = floats_of(B::run(tensors, Operation::Clipping(clipping))?);
    let norm = results.pop().expect("the norm is the last result");
    Ok((results, norm))
}

/// The result of a function without parameters over `axes`, or over the segments of the one axis,
/// of the type of `x`.
pub(crate) fn applied<B: ReduceBackend>(
    function: AppliedFunction,
    x: Operand<B>,
    operands: Vec<FloatTensor<B>>,
    members: Option<Members<B>>,
    axes: &[usize],
) -> Result<Operand<B>, ReduceBurnError> {
    let mut application = Application::new::<B>(function, &x.0, &axes.into(), &operands)?;
    if let Some(members) = &members {
        application = application.of_segments::<B>(members)?;
    }
    Ok(Operand(apply::<B>(x.0, operands, members, &application)?))
}

/// The results of an operator over `axes`, which they keep with size 1.
pub(crate) fn reduced<B: ReduceBackend, const N: usize>(
    operator: OperatorName,
    x: &Operand<B>,
    axes: &[usize],
) -> Result<[Operand<B>; N], ReduceBurnError> {
    let x = AnyTensor::Float(x.0.clone());
    let options = OperatorOptions { correction: 0.0, ..OperatorOptions::default() };
    let reduction = Reduction::new(operator, options, &x, &axes.into(), true)?;
    Ok(floats(reduce::<B>(x, &reduction)?).map(Operand))
}

/// The results of a function without parameters over `axes`, which they keep with size 1.
pub(crate) fn reduced_pair<B: ReduceBackend, const N: usize>(
    function: PairName,
    x: Operand<B>,
    y: Operand<B>,
    axes: &[usize],
) -> Result<[Operand<B>; N], ReduceBurnError> {
    let [x, y] = [x.0, y.0].map(AnyTensor::Float);
    let pair = PairReduction::new(function, PairOptions::default(), &x, &y, &axes.into(), true)?;
    Ok(floats(reduce_pair::<B>(x, y, &pair)?).map(Operand))
}
