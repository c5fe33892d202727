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

mod contract;
mod gradients;
mod inputs;
mod streams;
mod values;

/// Tests named as given, each a function of a backend that takes its device.
macro_rules! tests {
    ($backend:ty; $($test:ident: $file:ident :: $function:ident;)*) => {
        $(
            #[test]
            fn $test() {
                $file::$function::<$backend>(&super::device());
            }
        )*
    };
}

/// The suite on one runtime.
macro_rules! suite {
    ($module:ident, $runtime:ty, $bool:ty, $chosen:expr, $device:pat => $found:expr) => {
        mod $module {
            use reduce_programs::{Backend, Device};

            type Bare = reduce_burn_examples::Bare<$runtime, $bool>;
            type Fused = reduce_burn_examples::Fused<$runtime, $bool>;

            fn device() -> <$runtime as reduce_kernels::cubecl::Runtime>::Device {
                match reduce_programs::device(Some($chosen)).expect("there is a device") {
                    $device => $found,
                    #[allow(unreachable_patterns, reason = "reachable if there are more backends")]
                    other => panic!("expected {}, found {other:?}", $chosen),
                }
            }

            mod bare {
                use super::Bare;
                use crate::{contract, values};

                tests! {
                    Bare;
                    floats: values::floats;
                    floats_with_nan_and_infinities: values::floats_with_nan_and_infinities;
                    integers: values::integers;
                    truths: values::truths;
                    narrow_types: values::narrow_types;
                    quantised: values::quantised;
                    wrong_in_burn: contract::wrong_in_burn;
                    nothing_to_reduce: contract::nothing_to_reduce;
                    errors_before_launch: contract::errors_before_launch;
                }

                #[test]
                fn flex32_is_f32() {
                    values::flex32_is_f32::<$runtime, $bool>(&super::device());
                }
            }

            mod fused {
                use super::Fused;
                use crate::{contract, streams, values};

                tests! {
                    Fused;
                    floats_of_each_kind: values::floats_of_each_kind;
                    integers: values::integers;
                    truths: values::truths;
                    narrow_types: values::narrow_types;
                    wrong_in_burn: contract::wrong_in_burn;
                    nothing_to_reduce: contract::nothing_to_reduce;
                    errors_before_launch: contract::errors_before_launch;
                }

                #[test]
                fn recording_does_not_wait() {
                    streams::recording_does_not_wait::<super::Bare>(&super::device());
                }

                #[test]
                fn order_is_kept_between_fused_operations() {
                    streams::order_is_kept_between_fused_operations::<super::Bare>(&super::device());
                }

                #[test]
                fn threads_share_tensors() {
                    streams::threads_share_tensors::<super::Bare>(&super::device());
                }
            }

            mod autodiff {
                use burn_autodiff::Autodiff;

                use super::Bare;
                use crate::{gradients, values};

                tests! {
                    Autodiff<Bare>;
                    floats_of_each_kind: values::floats_of_each_kind;
                    gradients: gradients::as_of_flex;
                    gradients_at_the_edges: gradients::at_the_edges;
                }
            }

            mod autodiff_of_fused {
                use burn_autodiff::Autodiff;

                use super::Fused;
                use crate::gradients;

                tests! {
                    Autodiff<Fused>;
                    gradients: gradients::as_of_flex;
                    gradients_at_the_edges: gradients::at_the_edges;
                }
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
