//! reduce-burn on devices, on every backend compiled in: values and gradients against burn-flex,
//! the contract at its edges, and Burn's streams.
//!
//! `--features vulkan` brings Vulkan's default adapter through SPIR-V (`spirv::`) and through WGSL
//! (`wgsl::`), `--features cuda` an NVIDIA GPU (`cuda::`). A backend that finds no device fails its
//! tests.
#![cfg_attr(
    not(any(feature = "cuda", feature = "wgpu", feature = "vulkan")),
    allow(unused, reason = "without a backend there is no device")
)]

mod applications;
mod clip;
mod contract;
mod gradients;
mod inputs;
mod pairs;
mod plans;
mod streams;
mod values;

/// Calls a function of a backend with each of these backends, in one process: they share compiled
/// kernels, which take most of the time.
///
/// A function may leave launches behind that nobody reads. NVIDIA's Vulkan driver crashes if the
/// process ends while a thread of CubeCL's still compiles their kernels, so they are waited for.
macro_rules! on_each {
    ([$($backend:ty),*] $file:ident $function:ident) => {
        $(
            println!("{}", <$backend as burn_backend::Backend>::name(&device()));
            $file::$function::<$backend>(&device());
            <$backend as burn_backend::Backend>::sync(&device()).expect("the device answers");
        )*
    };
}

/// Tests named as given, each a function of a backend that takes its device.
macro_rules! tests {
    ($backends:tt; $($test:ident: $file:ident :: $function:ident;)*) => {
        $(
            #[test]
            fn $test() {
                on_each! { $backends $file $function }
            }
        )*
    };
}

/// The suite on one runtime.
macro_rules! suite {
    ($module:ident, $runtime:ty, $bool:ty, $chosen:expr, $device:pat => $found:expr) => {
        mod $module {
            use burn_autodiff::Autodiff;
            use reduce_programs::{Backend, Device};

            use crate::{applications, clip, contract, gradients, pairs, plans, streams, values};

            type Bare = reduce_burn_examples::Bare<$runtime, $bool>;
            type Fused = reduce_burn_examples::Fused<$runtime, $bool>;

            fn device() -> <$runtime as reduce_kernels::cubecl::Runtime>::Device {
                match reduce_programs::device(Some($chosen)).expect("there is a device") {
                    $device => $found,
                    #[allow(unreachable_patterns, reason = "reachable if there are more backends")]
                    other => panic!("expected {}, found {other:?}", $chosen),
                }
            }

            tests! {
                [Bare, Fused, Autodiff<Bare>];
                floats: values::floats;
                floats_with_nan_and_infinities: values::floats_with_nan_and_infinities;
                integers: values::integers;
                truths: values::truths;
                narrow_types: values::narrow_types;
                wrong_in_burn: contract::wrong_in_burn;
                corrections_above_the_number_of_elements:
                    contract::corrections_above_the_number_of_elements;
                nothing_to_reduce: contract::nothing_to_reduce;
                errors_before_launch: contract::errors_before_launch;
                applications: applications::values;
                applications_of_long_rows: applications::lengths_and_types;
                applications_between_operations: applications::between_operations;
                applications_that_are_wrong: applications::errors_before_launch;
                pairs: pairs::values;
                pairs_of_types: pairs::types;
                pairs_between_operations: pairs::between_operations;
                pairs_that_are_wrong: pairs::errors_before_launch;
                clip_lists: clip::lists;
                clip_types: clip::types;
                clip_norms_that_are_not_finite: clip::norms_that_are_not_finite;
                clip_between_operations: clip::between_operations;
                clip_that_is_wrong: clip::errors_before_launch;
            }

            tests! {
                [Autodiff<Bare>, Autodiff<Fused>];
                gradients: gradients::as_of_flex;
                gradients_at_the_edges: gradients::at_the_edges;
                gradients_of_applications: applications::gradients;
                gradients_of_pairs: pairs::gradients;
                gradients_of_narrow_applications: applications::gradients_of_narrow_types;
                gradients_of_narrow_pairs: pairs::gradients_of_narrow_types;
                clip_gradients_of_a_module: clip::gradients_of_a_module;
            }

            // Through SPIR-V, NVIDIA's compiler crashes at kernels that Burn fuses from the second two
            // (docs/BURN.md, "What it cannot do"), which therefore have processes of their own.
            tests! {
                [Autodiff<Bare>];
                gradients_of_narrow_types: gradients::of_narrow_types;
                clip_passes_gradients: clip::passes_gradients;
            }

            tests! {
                [Autodiff<Fused>];
                fused_gradients_of_narrow_types: gradients::of_narrow_types;
                fused_clip_passes_gradients: clip::passes_gradients;
            }

            tests! {
                [Bare];
                quantised: values::quantised;
                recording_does_not_wait: streams::recording_does_not_wait;
                order_is_kept_between_fused_operations:
                    streams::order_is_kept_between_fused_operations;
                threads_share_tensors: streams::threads_share_tensors;
                clip_is_one_operation: clip::is_one_operation;
            }

            #[test]
            fn flex32_is_f32() {
                values::flex32_is_f32::<$runtime, $bool>(&device());
            }

            #[test]
            fn stored_plans() {
                plans::stored::<$runtime, Bare>(&device());
                plans::stored::<$runtime, Autodiff<Fused>>(&device());
            }

            #[test]
            fn clip_in_place() {
                clip::in_place::<$runtime, $bool>(&device());
            }
        }
    };
}

#[cfg(feature = "cuda")]
suite!(cuda, reduce_kernels::cubecl::cuda::CudaRuntime, u8, Backend::Cuda,
    Device::Cuda(device) => device);

#[cfg(feature = "vulkan")]
suite!(spirv, reduce_kernels::cubecl::wgpu::WgpuRuntime, u8, Backend::Vulkan,
    Device::Wgpu { device, .. } => device);

#[cfg(any(feature = "wgpu", feature = "vulkan"))]
suite!(wgsl, reduce_kernels::cubecl::wgpu::WgpuRuntime, u32, Backend::Wgpu,
    Device::Wgpu { device, .. } => device);
