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
//! Each backend is a feature of this crate, which enables the backend in CubeCL: `cuda` (kernels by
//! NVRTC), `cuda-llvm`, `wgpu` (WGSL), `vulkan` (SPIR-V), `hip`, `metal`. None is enabled by
//! default. Beside `cuda`, `nccl` lets reductions of tensors that lie in shards on several NVIDIA
//! GPUs cross them ([`Sharded`]). With `persistence`, compiled kernels are kept on disk.
//!
//! CubeCL 0.11 names its vector type `Vector<T, N>`. Older texts, including the CubeCL book, call
//! it `Line<T>`.
#![doc = include_str!("../BACKENDS.md")]
#![deny(missing_docs)]

mod applied;
mod axes;
mod confirm;
mod element;
mod error;
mod gradients;
mod host;
mod input;
mod kernels;
mod list;
mod normalize;
pub mod operator;
mod operators;
mod pairs;
mod partials;
mod plans;
#[cfg(feature = "serde")]
mod recorded;
mod reduction;
mod sharded;
#[cfg(feature = "testing")]
pub mod testing;

pub use applied::{AppliedReduction, WithResults};
pub use axes::Axes;
pub use confirm::confirm;
pub use cubecl;
pub use element::{element_type, storage_type};
pub use error::{ErrorKind, ReduceError};
pub use gradients::*;
pub use host::client::device_of;
pub use input::{Input, TensorDescription};
pub use list::{
    AppliedList, AppliedWithResults, ListReduction, ListResults, ResultsOfList,
    clip_by_global_norm, clip_by_global_norm_in_place, global_norm, reduce_list,
};
pub use normalize::*;
pub use operator::{Apply, Map, Mapped, Operator, builtin::*};
pub use operators::*;
pub use pairs::*;
pub use partials::{
    Merge, Partials, PartialsDescription, PartialsError, ShardRange, merge_partials,
};
pub use plans::{
    PlanInUse, PlanSource, allow_waiting_cubes, forbid_waiting_cubes, stop_using_profile,
    use_profile,
};
#[cfg(feature = "serde")]
pub use plans::{stop_using_plans, use_plans};
#[cfg(feature = "serde")]
pub use recorded::{
    RecordedApplication, RecordedCall, RecordedError, RecordedList, RecordedListApplication,
    RecordedOperand, RecordedReduction, RecordedTensor, record_calls, recorded, stop_recording,
};
pub use reduce_planner as planner;
pub use reduce_planner::{Choice, Device, ElementType, Plan, Problem, ScheduleKind, ShardSpec};
#[cfg(feature = "serde")]
pub use reduce_planner::{PlanStore, StoreError, TunedPlan};
pub use reduction::{Outputs, Reduction, reduce, reduce_pair};
pub use sharded::{Shard, Sharded, ShardsError};

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

    #[cfg(feature = "serde")]
    #[doc = include_str!("../../../docs/TUNING.md")]
    struct Tuning;
}
