//! Reductions, softmax and normalisations for [Burn](https://burn.dev) 0.22, over any axes of a
//! tensor, with gradients, and clipping of many tensors. A reduction is one launch.
//!
//! ```
//! use burn_tensor::{Device, Tensor};
//! use reduce_burn::{max_with_index, mean_var, squeeze, sum};
//!
//! /// Batch statistics of images `[batch, channels, height, width]`.
//! fn statistics(x: Tensor<4>) -> (Tensor<1>, Tensor<1>) {
//!     mean_var(x, squeeze([0, 2, 3]), 0.0)
//! }
//!
//! let x = Tensor::<2>::from_data([[1.0, 5.0, 3.0], [4.0, 2.0, 6.0]], &Device::flex());
//! let rows = sum(x.clone(), -1); //                         shape [2, 1]
//! let columns: Tensor<1> = sum(x.clone(), squeeze(0)); //   shape [3]
//! let total: Tensor<1> = sum(x.clone(), squeeze(..)); //    shape [1]
//! let (largest, position) = max_with_index(x, [0, 1]); //   shape [1, 1] each
//! assert_eq!(position.into_scalar::<i32>(), 5);
//! ```
//!
//! # Backends
//!
//! The tensor's device decides, and nothing has to be turned on in this crate. On Burn's CubeCL
//! runtimes (CUDA, ROCm, Metal, Vulkan, WebGPU), fused or not, reductions are kernels of
//! reduce-kernels. On Flex and every other backend of Burn they are made of Burn's own operations.
//! Gradients are this crate's on CubeCL's runtimes and on Flex, and those of Burn's operations on
//! the others.
//!
//! # Axes
//!
//! A number, a list of numbers in any order, or `..` for all axes; negative numbers count from the
//! end. Reduced axes stay with size 1, or [`squeeze`] removes them. An empty list reduces nothing:
//! each element is then a reduction of its own.
//!
//! # Two inputs
//!
//! The functions of [`pairs`], such as [`pairs::dot`], [`pairs::mean_squared_error`] and
//! [`pairs::accuracy`], reduce two tensors in one launch, without storing products or differences.
//! The axes are those of the first tensor. The second one broadcasts to it: along each axis it has
//! the extent of the first tensor, or 1. Gradients reach both.
//!
//! # Softmax and normalisations
//!
//! [`softmax`], [`log_softmax`], [`layer_norm`] and [`rms_norm`] apply the results of a reduction
//! to each element of its input, and give a float tensor of the same shape. They take axes as
//! reductions do. Weight and bias of a normalisation broadcast to the tensor. The gradients are
//! made of Burn's operations and of this crate's reductions, which read the tensors more than once.
//!
//! [`pairs::add_layer_norm`] and [`pairs::add_rms_norm`] add a residual first, and give the sum
//! too. [`pairs::masked_softmax`] and [`pairs::masked_log_softmax`] are of scaled elements plus a
//! mask.
//!
//! [`pairs::CrossEntropy`] is a loss of logits and classes, with smoothing, weights and ignored
//! classes.
//!
//! With the feature `nn`, the module `nn` has modules with the names, fields and records of Burn's:
//! `RmsNorm`, `LayerNorm` and `CrossEntropyLoss`.
//!
//! # Quantisation
//!
//! [`quantize::quantize`] gives integers, and a scale for each slice.
//!
//! # Segments
//!
//! The functions of [`segments`] reduce neighbouring elements of an axis in any numbers, and apply
//! softmax to them: graphs of a batch, sentences that follow each other, events of users.
//!
//! # Scans
//!
//! The functions of [`scan`], such as [`scan::cumsum`], [`scan::cummax_with_positions`] and
//! [`scan::logcumsumexp`], give the results at each position of axes, from either end, with or
//! without the element at the position.
//!
//! # Selections
//!
//! [`top_k`] and [`bottom_k`] select elements along an axis, with their positions;
//! [`top_k_probabilities`] gives their softmax, and [`keep_top_k`] and [`keep_bottom_k`] the tensor
//! with a number in place of all others. [`median`] and [`quantile`] lie between two elements,
//! [`nanmedian`] and [`nanquantile`] between two of those that are not NaN.
//!
//! # Clipping
//!
//! [`clip_by_global_norm`] scales a list of tensors down by the norm of all their elements, without
//! waiting for the norm. With the feature `optim`, `clip_gradients` does so with the gradients of a
//! module.
//!
//! # Types
//!
//! Values have the type of the tensor, or of the first of two, positions and counts the device's
//! integer type, and truth values its bool type. f16, bf16 and flex32 accumulate in f32. Quantised
//! tensors are dequantised first. What each function returns for NaN, infinities and no elements is
//! the contract of reduce-kernels, docs/SEMANTICS.md in its repository.
//!
//! # Errors
//!
//! Functions panic, as Burn's own do, with a message that names the values: for axes that the
//! tensor does not have or that are named twice, for a rank of the result that is not the one asked
//! for, for extrema of no elements, for a weight, a bias, a residual, a mask or a second tensor
//! that does not broadcast to the tensor, for lists of no tensors or of several devices, for
//! parameters out of their range, and for types that the device cannot compute with. They do so
//! when they are called, also on fused backends, and nothing is launched then.
#![deny(missing_docs)]

mod application;
mod autodiff;
mod axes;
pub mod backend;
mod clip;
mod composed;
mod cross_entropy;
#[cfg(feature = "cube")]
mod cube;
#[allow(dead_code, reason = "Burn may have all of the backends that are named there, or none")]
mod dispatch;
mod error;
mod functions;
mod fusion;
mod geometry;
mod gradient;
#[cfg(feature = "nn")]
pub mod nn;
mod operand;
mod pair;
pub mod pairs;
pub mod plans;
mod quantization;
pub mod quantize;
mod reduction;
pub mod scan;
mod scanned;
mod segmented;
pub mod segments;
mod selection;
mod tensor;

pub use axes::{Axes, AxisList, squeeze};
#[cfg(feature = "optim")]
pub use functions::module::clip_gradients;
pub use functions::{
    application::{layer_norm, log_softmax, rms_norm, softmax},
    clip::clip_by_global_norm,
    selection::{
        bottom_k, keep_bottom_k, keep_top_k, median, nanmedian, nanquantile, quantile, top_k,
        top_k_probabilities,
    },
    *,
};
pub use reduce_kernels::{self, top_k::Over};

/// The examples in the repository's documents, compiled as doctests of this crate.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct CrateReadme;

    #[doc = include_str!("../../../docs/BURN.md")]
    struct InBurn;
}
