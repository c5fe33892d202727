//! Operations made of Burn's own, for backends without kernels of reduce-kernels.

pub(crate) mod application;
pub(crate) mod clip;
pub(crate) mod cross_entropy;
pub(crate) mod pair;
pub(crate) mod quantization;
pub(crate) mod reduction;
pub(crate) mod scan;
pub(crate) mod segments;
pub(crate) mod selection;

use crate::{
    backend::{LossTensors, Operation, ReduceBackend, Results, floats_of, these, with_operands},
    error::ReduceBurnError,
    tensor::AnyTensor,
};

/// Runs an operation with Burn's own operations.
pub(crate) fn run<B: ReduceBackend>(
    tensors: Vec<AnyTensor<B>>,
    operation: &Operation,
) -> Result<Results<B>, ReduceBurnError> {
    match operation {
        Operation::Reduction(reduction) if reduction.segments().is_some() => {
            segments::reduce(tensors, reduction)
        }
        Operation::Application(application) if application.segments().is_some() => {
            segments::apply(tensors, application)
        }
        Operation::SegmentNumbers(numbers) => {
            let [offsets] = these(tensors);
            segments::numbers(offsets, *numbers)
        }
        Operation::Grouping(grouping) => {
            let [keys] = these(tensors);
            segments::group(keys, *grouping)
        }
        Operation::Reduction(reduction) => {
            let [tensor] = these(tensors);
            Ok(reduction::reduce(tensor, reduction))
        }
        Operation::Scan(scan) => {
            let [tensor] = these(tensors);
            Ok(scan::scan(tensor, scan))
        }
        Operation::Pair(pair) => {
            let [first, second] = these(tensors);
            pair::reduce(first, second, pair)
        }
        Operation::Application(application) => {
            let (tensor, operands) = with_operands(tensors);
            let results = application::apply::<B>(tensor, operands, application)?;
            Ok(results.into_iter().map(AnyTensor::Float).collect())
        }
        Operation::ApplicationWithStatistics(application) => {
            let results = B::run(tensors.clone(), Operation::Application(application.clone()))?;
            let (tensor, operands) = with_operands(tensors);
            let statistics = application::statistics::<B>(tensor, operands, application)?;
            Ok(results.into_iter().chain(statistics.into_iter().map(AnyTensor::Float)).collect())
        }
        Operation::ClassLoss(loss) => {
            let (tensors, _) = LossTensors::of(tensors, loss);
            let losses = cross_entropy::losses::<B>(tensors, loss)?;
            Ok(vec![AnyTensor::Float(losses)])
        }
        Operation::ClassLossGradient(loss) => {
            let (tensors, upstream) = LossTensors::of(tensors, loss);
            let upstream = upstream.expect("a backward pass has the gradient of the losses");
            let gradient = cross_entropy::gradient::<B>(tensors, upstream, loss)?;
            Ok(vec![AnyTensor::Float(gradient)])
        }
        Operation::Quantization(quantization) => {
            let [tensor] = floats_of(tensors).try_into().expect("a quantisation has one input");
            let (integers, scales) = quantization::quantize::<B>(tensor, quantization)?;
            Ok(vec![AnyTensor::Int(integers), AnyTensor::Float(scales)])
        }
        Operation::Selection(selection) => {
            let [tensor] = these(tensors);
            selection::select(tensor, selection)
        }
        Operation::Clipping(clipping) => {
            let tensors = floats_of(tensors);
            let (clipped, norm) = clip::clip_by_global_norm::<B>(tensors, clipping)?;
            Ok(clipped.into_iter().chain([norm]).map(AnyTensor::Float).collect())
        }
    }
}

#[cfg(feature = "flex")]
impl ReduceBackend for burn_flex::Flex {
    fn run(
        tensors: Vec<AnyTensor<Self>>,
        operation: Operation,
    ) -> Result<Results<Self>, ReduceBurnError> {
        run(tensors, &operation)
    }
}
