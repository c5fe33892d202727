//! The suite: one corpus and random problems through every schedule, on every backend compiled in.
//!
//! `--features vulkan` runs it through SPIR-V, `--features wgpu` through WGSL, `--features cuda` on
//! an NVIDIA GPU. Where the device reports no plane operations, as Mesa's software adapter does,
//! plane kernels are forced all the same: it runs them.
#![cfg_attr(
    not(any(feature = "cuda", feature = "wgpu", feature = "vulkan")),
    allow(unused, reason = "without a backend there is no device")
)]

mod case;
mod contract;
mod corpus;
mod large;
mod laws;
mod numerics;
mod operators;
mod oracle;
mod random;
mod reference;
mod run;
mod transcendental;
mod types;

/// The suite on one runtime.
macro_rules! suite {
    ($backend:ident: $runtime:ty) => {
        mod $backend {
            type R = $runtime;

            #[test]
            fn corpus_through_every_schedule() {
                crate::corpus::through_every_schedule::<R>();
            }

            #[test]
            fn corpus_as_chosen() {
                crate::corpus::as_chosen::<R>();
            }

            #[test]
            fn every_operator_and_type() {
                crate::types::every_operator_and_type::<R>();
            }

            #[test]
            fn every_type_through_every_schedule() {
                crate::types::every_type_through_every_schedule::<R>();
            }

            #[test]
            fn requested_types() {
                crate::types::requested_types::<R>();
            }

            #[test]
            fn every_operator_through_every_schedule() {
                crate::types::every_operator_through_every_schedule::<R>();
            }

            #[test]
            fn positions() {
                crate::contract::positions::<R>();
            }

            #[test]
            fn several_results() {
                crate::contract::several_results::<R>();
            }

            #[test]
            fn long_sums() {
                crate::numerics::long_sums::<R>();
            }

            #[test]
            fn variance_far_from_zero() {
                crate::numerics::variance_far_from_zero::<R>();
            }

            #[test]
            fn extreme_magnitudes() {
                crate::numerics::extreme_magnitudes::<R>();
            }

            #[test]
            fn log_sum_exp_at_the_edges() {
                crate::numerics::log_sum_exp_at_the_edges::<R>();
            }

            #[test]
            fn wide_accumulators() {
                crate::numerics::wide_accumulators::<R>();
            }

            #[test]
            fn more_elements_than_32_bits_count() {
                crate::large::more_elements_than_32_bits_count::<R>();
            }

            #[test]
            fn random_problems() {
                crate::random::problems::<R>();
            }

            #[test]
            fn nan_rows() {
                crate::contract::nan_rows::<R>();
            }

            #[test]
            fn infinities() {
                crate::contract::infinities::<R>();
            }

            #[test]
            fn empty_reductions() {
                crate::contract::empty_reductions::<R>();
            }

            #[test]
            fn empty_outputs() {
                crate::contract::empty_outputs::<R>();
            }

            #[test]
            fn shapes_of_results() {
                crate::contract::shapes_of_results::<R>();
            }

            #[test]
            fn errors_before_launch() {
                crate::contract::errors_before_launch::<R>();
            }

            #[test]
            fn integers_wrap() {
                crate::contract::integers_wrap::<R>();
            }

            #[test]
            fn half_sums_pass_the_half_range() {
                crate::contract::half_sums_pass_the_half_range::<R>();
            }

            #[test]
            fn same_bits_every_run() {
                crate::contract::same_bits_every_run::<R>();
            }

            #[test]
            fn tensors_inside_buffers() {
                crate::contract::tensors_inside_buffers::<R>();
            }

            #[test]
            fn wide_indices() {
                crate::contract::wide_indices::<R>();
            }

            #[test]
            fn functions_of_f64() {
                crate::transcendental::functions_of_f64::<R>(&crate::run::client());
            }

            #[test]
            fn functions_of_f64_at_the_edges() {
                crate::transcendental::functions_of_f64_at_the_edges::<R>(&crate::run::client());
            }

            #[test]
            fn f64_through_every_schedule() {
                crate::transcendental::f64_through_every_schedule::<R>(&crate::run::client());
            }

            #[test]
            fn log_sum_exp_of_f64_at_the_edges() {
                crate::transcendental::log_sum_exp_of_f64_at_the_edges::<R>(&crate::run::client());
            }

            #[test]
            fn norm_p_of_f64_at_the_edges() {
                crate::transcendental::norm_p_of_f64_at_the_edges::<R>(&crate::run::client());
            }

            #[test]
            fn own_functions_of_f64() {
                crate::transcendental::own_functions_of_f64::<R>(&crate::run::client());
            }

            #[test]
            fn operator_laws() {
                crate::laws::hold::<R>();
            }
        }
    };
}

#[cfg(feature = "cuda")]
suite!(cuda: reduce_kernels::cubecl::cuda::CudaRuntime);

#[cfg(any(feature = "wgpu", feature = "vulkan"))]
suite!(wgpu: reduce_kernels::cubecl::wgpu::WgpuRuntime);
