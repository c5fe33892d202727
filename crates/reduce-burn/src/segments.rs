//! Reductions and softmax of segments: neighbouring elements along an axis, in any numbers.
//!
//! `offsets` says where segments begin: segment number `s` has the elements from `offsets[s]` up to
//! `offsets[s + 1]` of the axis, so there is one offset more than there are segments. Elements before
//! the first offset and behind the last belong to none. Results have the shape of the tensor with the
//! number of segments in place of the axis. A segment without elements has the value with which the
//! operator starts: 0 of a sum, NaN of a mean, `-inf` of a maximum; its position has no meaning.
//! Positions count from the beginning of the axis.
//!
//! Offsets must ascend. Nothing is read back, so wrong ones are no error on CubeCL's backends, where
//! results are then wrong and nothing outside of the tensors is read.
//!
//! Elements may also have keys in any order, which say to which group each belongs: every function
//! takes the groups of [`group_by_keys`] in place of offsets.
//!
//! Gradients are this crate's for [`sum`], [`mean`], [`min`], [`max`], [`min_max`],
//! [`min_with_index`], [`max_with_index`], [`logsumexp`], [`softmax`] and [`log_softmax`]. Others read
//! the offsets back and take one segment after the other where they are tracked.
//!
//! ```
//! use burn_tensor::{Device, Int, Tensor};
//! use reduce_burn::segments;
//!
//! let device = Device::flex();
//! // The nodes of two graphs, [nodes, features], and where each begins.
//! let nodes = Tensor::<2>::from_data([[1.0, 5.0], [3.0, 1.0], [4.0, 2.0]], &device);
//! let offsets = Tensor::<1, Int>::from_data([0, 2, 3], &device);
//! let graphs = segments::mean(nodes.clone(), 0, offsets.clone()); // shape [2, 2]
//! assert_eq!(graphs.into_data().to_vec::<f32>().unwrap(), [2.0, 3.0, 4.0, 2.0]);
//! // The attention of each graph to its nodes.
//! let attention = segments::softmax(nodes, 0, offsets); // shape [3, 2]
//! # assert_eq!(attention.dims(), [3, 2]);
//! ```

pub use crate::functions::{
    of_segments::*,
    segments::{Groups, SegmentTensors, group_by_keys, log_softmax, mean, softmax},
};
