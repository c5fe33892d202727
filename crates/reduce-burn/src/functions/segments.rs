//! The functions of segments that users call, but for those that a macro writes.

use burn_backend::TensorMetadata;
use burn_dispatch::Dispatch;
use burn_tensor::{Int, Tensor, kind::Basic};
use reduce_kernels::by_name::{OperatorName, OperatorOptions};

use super::next;
use crate::{
    application::{Application, AppliedFunction},
    axes::AxisList,
    backend::{Operation, ReduceBackend},
    reduction::Reduction,
    tensor::{AnyTensor, from_any, into_any},
};

/// The results of an operator over the segments of an axis.
#[track_caller]
pub(super) fn results<const D: usize, K: Basic>(
    operator: OperatorName,
    options: OperatorOptions,
    tensor: Tensor<D, K>,
    axis: AxisList,
    offsets: Tensor<1, Int>,
) -> impl Iterator<Item = AnyTensor<Dispatch>> + use<D, K> {
    let (tensor, offsets) = (into_any(tensor), into_any(offsets).into_inner());
    let shape = tensor.shape().to_vec();
    let run = || {
        let reduction = Reduction::new(operator, options, &tensor, &axis, true)?;
        let reduction = reduction.of_segments::<Dispatch>(&offsets)?;
        Dispatch::run(vec![tensor, AnyTensor::Int(offsets)], Operation::Reduction(reduction))
    };
    match run() {
        Ok(results) => results.into_iter(),
        Err(error) => panic!("`{operator}` of segments of a tensor of shape {shape:?}: {error}"),
    }
}

/// [`mean`](fn@crate::mean) of each segment of `axis`, as [all functions](crate::segments) of segments:
/// NaN of a segment without elements.
///
/// ```
/// # use burn_tensor::{Device, Int, Tensor};
/// use reduce_burn::segments;
///
/// let device = Device::flex();
/// let x = Tensor::<1>::from_data([1.0, 5.0, 4.0], &device);
/// let offsets = Tensor::<1, Int>::from_data([0, 2, 3], &device);
/// let means = segments::mean(x, 0, offsets);
/// assert_eq!(means.into_data().to_vec::<f32>().unwrap(), [3.0, 4.0]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), for several axes, and for offsets without elements.
#[track_caller]
pub fn mean<const D: usize>(
    tensor: Tensor<D>,
    axis: impl Into<AxisList>,
    offsets: Tensor<1, Int>,
) -> Tensor<D> {
    let options = OperatorOptions::default();
    next(&mut results(OperatorName::Mean, options, tensor, axis.into(), offsets))
}

/// [`softmax`](crate::softmax) over each segment of `axis`, as [all functions](crate::segments) of
/// segments. The result has the shape of the tensor; elements that no segment has become 0.
///
/// ```
/// # use burn_tensor::{Device, Int, Tensor};
/// use reduce_burn::segments;
///
/// let device = Device::flex();
/// let x = Tensor::<1>::from_data([2.0, 2.0, 4.0], &device);
/// let offsets = Tensor::<1, Int>::from_data([0, 2, 3], &device);
/// let shares = segments::softmax(x, 0, offsets);
/// assert_eq!(shares.into_data().to_vec::<f32>().unwrap(), [0.5, 0.5, 1.0]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), for several axes, and for offsets without elements.
#[track_caller]
pub fn softmax<const D: usize>(
    tensor: Tensor<D>,
    axis: impl Into<AxisList>,
    offsets: Tensor<1, Int>,
) -> Tensor<D> {
    apply(AppliedFunction::Softmax, tensor, axis.into(), offsets)
}

/// The logarithm of [`softmax`]. Elements that no segment has become 0.
///
/// ```
/// # use burn_tensor::{Device, Int, Tensor};
/// use reduce_burn::segments;
///
/// let device = Device::flex();
/// let x = Tensor::<1>::from_data([2.0, 2.0, 4.0], &device);
/// let offsets = Tensor::<1, Int>::from_data([0, 2, 3], &device);
/// let logarithms = segments::log_softmax(x, 0, offsets); // shape [3]
/// # assert_eq!(logarithms.dims(), [3]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), for several axes, and for offsets without elements.
#[track_caller]
pub fn log_softmax<const D: usize>(
    tensor: Tensor<D>,
    axis: impl Into<AxisList>,
    offsets: Tensor<1, Int>,
) -> Tensor<D> {
    apply(AppliedFunction::LogSoftmax, tensor, axis.into(), offsets)
}

#[track_caller]
fn apply<const D: usize>(
    function: AppliedFunction,
    tensor: Tensor<D>,
    axis: AxisList,
    offsets: Tensor<1, Int>,
) -> Tensor<D> {
    let (tensor, offsets) = (into_any(tensor).into_inner(), into_any(offsets).into_inner());
    let shape = tensor.shape().to_vec();
    let run = || {
        let application = Application::new::<Dispatch>(function, &tensor, &axis, &[])?;
        let application = application.of_segments::<Dispatch>(&offsets)?;
        let tensors = vec![AnyTensor::Float(tensor), AnyTensor::Int(offsets)];
        Dispatch::run(tensors, Operation::Application(application))
    };
    match run() {
        Ok(mut results) => from_any(results.remove(0)),
        Err(error) => panic!("`{function}` of segments of a tensor of shape {shape:?}: {error}"),
    }
}
