//! The functions of segments that users call, but for those that a macro writes.

use burn_backend::TensorMetadata;
use burn_dispatch::Dispatch;
use burn_tensor::{Int, Tensor, kind::Basic};
use reduce_kernels::by_name::{OperatorName, OperatorOptions};

use super::next;
use crate::{
    application::{Application, AppliedFunction},
    axes::AxisList,
    backend::{self, Operation, ReduceBackend, reduce_segments, these},
    reduction::Reduction,
    segmented::{GroupTensors, Grouping, Members},
    tensor::{AnyTensor, from_any, into_any},
};

/// Elements of an axis by group; see [`group_by_keys`].
#[derive(Clone, Debug)]
pub struct Groups {
    keys: Tensor<1, Int>,
    indices: Tensor<1, Int>,
    offsets: Tensor<1, Int>,
}

impl Groups {
    /// The group of each element.
    pub fn keys(&self) -> &Tensor<1, Int> {
        &self.keys
    }

    /// The elements in the order of their groups, those of a group in the order of the axis, and those
    /// of no group last.
    pub fn indices(&self) -> &Tensor<1, Int> {
        &self.indices
    }

    /// Where groups begin among the indices, one more than there are groups.
    pub fn offsets(&self) -> &Tensor<1, Int> {
        &self.offsets
    }
}

/// Which elements of an axis segments have: neighbours, by the offsets of segments, or those of
/// [`Groups`].
#[derive(Clone, Debug)]
pub struct SegmentTensors {
    offsets: Tensor<1, Int>,
    groups: Option<Groups>,
}

impl SegmentTensors {
    fn members(self) -> Members<Dispatch> {
        let inner = |tensor: Tensor<1, Int>| into_any(tensor).into_inner();
        let groups = self.groups.map(|Groups { keys, indices, .. }| GroupTensors {
            indices: inner(indices),
            keys: inner(keys),
        });
        Members { offsets: inner(self.offsets), groups }
    }
}

impl From<Tensor<1, Int>> for SegmentTensors {
    fn from(offsets: Tensor<1, Int>) -> Self {
        Self { offsets, groups: None }
    }
}

impl From<Groups> for SegmentTensors {
    fn from(groups: Groups) -> Self {
        Self { offsets: groups.offsets.clone(), groups: Some(groups) }
    }
}

impl From<&Groups> for SegmentTensors {
    fn from(groups: &Groups) -> Self {
        groups.clone().into()
    }
}

/// Groups the elements of an axis by their keys, which are in any order: element number `i` belongs to
/// group number `keys[i]`, and to none if that is no number below `groups`. Groups serve any number of
/// [functions](crate::segments), whose results have the number of groups in place of the axis, and
/// are the same in every run.
///
/// ```
/// use burn_tensor::{Device, Int, Tensor};
/// use reduce_burn::segments;
///
/// let device = Device::flex();
/// // The messages of four edges, [edges, features], and the node that each leads to.
/// let messages = Tensor::<2>::from_data([[1.0], [2.0], [4.0], [8.0]], &device);
/// let targets = Tensor::<1, Int>::from_data([1, 0, 1, 1], &device);
/// let edges = segments::group_by_keys(targets, 3);
/// let received = segments::sum(messages.clone(), 0, &edges); // shape [3, 1]
/// assert_eq!(received.into_data().to_vec::<f32>().unwrap(), [2.0, 13.0, 0.0]);
/// let attention = segments::softmax(messages, 0, &edges); // shape [4, 1]
/// # assert_eq!(attention.dims(), [4, 1]);
/// ```
///
/// # Panics
///
/// As [all functions](crate#errors), and for more groups than the type of the keys or 32 bits count.
#[track_caller]
pub fn group_by_keys(keys: Tensor<1, Int>, groups: usize) -> Groups {
    let inner = into_any(keys.clone()).into_inner();
    let run = || {
        let grouping = Grouping::new::<Dispatch>(&inner, groups)?;
        Dispatch::run(vec![AnyTensor::Int(inner)], Operation::Grouping(grouping))
    };
    match run() {
        Ok(results) => {
            let [indices, offsets] = these(results);
            Groups { keys, indices: from_any(indices), offsets: from_any(offsets) }
        }
        Err(error) => panic!("{groups} groups of keys: {error}"),
    }
}

/// The results of an operator over the segments of an axis.
#[track_caller]
pub(super) fn results<const D: usize, K: Basic>(
    operator: OperatorName,
    options: OperatorOptions,
    tensor: Tensor<D, K>,
    axis: AxisList,
    segments: SegmentTensors,
) -> impl Iterator<Item = AnyTensor<Dispatch>> + use<D, K> {
    let (tensor, members) = (into_any(tensor), segments.members());
    let shape = tensor.shape().to_vec();
    let run = || {
        let reduction = Reduction::new(operator, options, &tensor, &axis, true)?;
        let reduction = reduction.of_segments(&members)?;
        reduce_segments::<Dispatch>(tensor, members, &reduction)
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
    segments: impl Into<SegmentTensors>,
) -> Tensor<D> {
    let options = OperatorOptions::default();
    next(&mut results(OperatorName::Mean, options, tensor, axis.into(), segments.into()))
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
    segments: impl Into<SegmentTensors>,
) -> Tensor<D> {
    apply(AppliedFunction::Softmax, tensor, axis.into(), segments.into())
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
    segments: impl Into<SegmentTensors>,
) -> Tensor<D> {
    apply(AppliedFunction::LogSoftmax, tensor, axis.into(), segments.into())
}

#[track_caller]
fn apply<const D: usize>(
    function: AppliedFunction,
    tensor: Tensor<D>,
    axis: AxisList,
    segments: SegmentTensors,
) -> Tensor<D> {
    let (tensor, members) = (into_any(tensor).into_inner(), segments.members());
    let shape = tensor.shape().to_vec();
    let run = || {
        let application = Application::new::<Dispatch>(function, &tensor, &axis, &[])?;
        let application = application.of_segments(&members)?;
        backend::apply::<Dispatch>(tensor, Vec::new(), Some(members), &application)
    };
    match run() {
        Ok(result) => from_any(AnyTensor::Float(result)),
        Err(error) => panic!("`{function}` of segments of a tensor of shape {shape:?}: {error}"),
    }
}
