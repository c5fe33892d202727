//! Tensor reductions on every GPU that CubeCL supports, from one Rust source.
//!
//! The crate computes sums, means, extrema and their positions, variances, norms, logsumexp and
//! operators of your own, over any axes of any strided tensor. A planner ([`planner`], re-exported)
//! decides for each problem and each device how to launch the kernels. Plans are data: you can read
//! them, save them and run them again.
//!
//! ```no_run
//! use reduce_kernels::{ElementType, Mean, cubecl, mean, reduce, storage_type};
//! use cubecl::{prelude::*, std::tensor::TensorHandle};
//!
//! # fn example(device: &cubecl::Device) -> Result<(), reduce_kernels::ReduceError> {
//! let client = device.client();
//! let data: Vec<f32> = (0..6).map(|i| i as f32).collect();
//! let handle = client.create_from_slice(f32::as_bytes(&data));
//! let x = TensorHandle::new_contiguous([2, 3], handle, storage_type(ElementType::F32));
//!
//! let rows = mean(&client, &x, [1])?; // shape [2, 1]
//! let total = reduce(Mean, &x).over(..).keep_dims(false).run(&client)?; // shape []
//! println!("{}", reduce(Mean, &x).over([1]).choose(&client)?.plan);
//! # Ok(()) }
//! ```
//!
//! # Where to look
//!
//! | module | what it holds |
//! | --- | --- |
//! | the root | [`reduce`], the functions and operators that are used most, tensors, errors |
//! | [`functions`], [`operators`] | reductions of one input: as functions, as values for [`reduce`] |
//! | [`pairs`] | reductions of two inputs, such as dot products and losses |
//! | [`normalize`] | results applied to their elements: softmax, normalisations, gradients |
//! | [`top_k`] | the largest or smallest elements of each slice, with their positions |
//! | [`quantiles`] | medians, quantiles and percentiles, with NaN or without |
//! | [`scan`] | the results at each position: running sums, maxima, means; elements by a predicate |
//! | [`segments`] | neighbouring elements of an axis, in any numbers |
//! | [`list`] | many tensors in one call, such as the gradients of a model |
//! | [`partials`], [`sharded`] | tensors in parts: on several devices, or on machines |
//! | [`plans`], [`planner`] | which plan runs, stores of measured plans; how plans are chosen |
//! | [`by_name`] | operators by name, for programs |
//! | [`operator`] | operators, maps and applied functions of your own |
//!
//! # Features
//!
//! Each backend is a feature of this crate, which enables the backend in CubeCL: `cuda` (kernels by
//! NVRTC), `cuda-llvm`, `wgpu` (WGSL), `vulkan` (SPIR-V), `hip`, `metal`. None is enabled by
//! default. Beside `cuda`, `nccl` lets reductions of tensors that lie in shards on several NVIDIA
//! GPUs cross them ([`sharded`]). With `persistence`, compiled kernels are kept on disk.
//!
//! CubeCL 0.11 names its vector type `Vector<T, N>`. Older texts, including the CubeCL book, call
//! it `Line<T>`.
#![doc = include_str!("../BACKENDS.md")]
#![deny(missing_docs)]

mod applied_reduction;
mod axes;
pub mod by_name;
mod compact;
mod confirm;
mod cross_entropy;
mod element;
mod error;
pub mod functions;
mod gradients;
mod groups;
mod host;
mod input;
mod kernels;
mod keyed_reduction;
pub mod list;
mod list_scan;
mod list_selection;
mod masks;
pub mod normalize;
mod one_input;
pub mod operator;
pub mod operators;
pub mod pairs;
pub mod partials;
mod plan_in_use;
pub mod plans;
pub mod quantiles;
pub mod quantize;
#[cfg(feature = "serde")]
mod recorded;
#[cfg(feature = "serde")]
mod recording;
mod reduction;
pub mod scan;
mod segmented_reduction;
pub mod segments;
mod selected_partials;
pub mod sharded;
#[cfg(feature = "testing")]
pub mod testing;
pub mod top_k;
mod top_k_mask;
mod two_inputs;
pub mod warm_up;

pub use axes::Axes;
pub use confirm::confirm;
pub use cubecl;
pub use element::{element_type, storage_type};
pub use error::{ErrorKind, ReduceError};
#[doc(inline)]
pub use functions::{argmax, argmin, max, mean, mean_var, min, norm_l2, prod, std, sum, var};
pub use host::client::device_of;
pub use input::{Input, TensorDescription};
#[doc(inline)]
pub use operator::{Map, Operator};
#[doc(inline)]
pub use operators::{ArgMax, ArgMin, Max, Mean, MeanVar, Min, NormL2, Prod, Std, Sum, Var};
pub use reduce_planner as planner;
#[doc(no_inline)]
pub use reduce_planner::{Device, ElementType};
pub use reduction::{Outputs, Reduction, reduce};

/// The examples in the repository's documents, compiled and run as doctests of this crate.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../README.md")]
    struct CrateReadme;

    #[doc = include_str!("../../../docs/ADDING_AN_OPERATOR.md")]
    struct AddingAnOperator;

    #[doc = include_str!("../../../docs/SCALE.md")]
    struct Scale;

    #[doc = include_str!("../../../docs/SEMANTICS.md")]
    struct Semantics;

    #[doc = include_str!("../../../docs/SERVING.md")]
    struct Serving;

    #[doc = include_str!("../../../docs/TOPK.md")]
    struct TopK;

    #[doc = include_str!("../../../docs/SEGMENTS.md")]
    struct Segments;

    #[doc = include_str!("../../../docs/SCANS.md")]
    struct Scans;

    #[cfg(feature = "serde")]
    #[doc = include_str!("../../../docs/TUNING.md")]
    struct Tuning;
}
