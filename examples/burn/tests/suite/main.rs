//! reduce-burn on devices, on every runtime compiled in: values and gradients against burn-flex,
//! the contract at its edges, and Burn's streams.
//!
//! `--features vulkan` brings Vulkan's default adapter through SPIR-V (`vulkan::`), `--features
//! wgpu` the default adapter through WGSL (`wgsl::`), `--features cuda` an NVIDIA GPU (`cuda::`),
//! and `--features fusion` makes each of them a fused backend, as Burn's users have it. A runtime
//! that finds no device fails its tests.
#![cfg_attr(
    not(any(feature = "cuda", feature = "wgpu", feature = "vulkan")),
    allow(unused, reason = "without a runtime there is no device")
)]

mod applications;
mod clip;
mod contract;
mod gradients;
mod inputs;
mod losses;
mod pairs;
mod plans;
mod quantize;
mod scans;
mod segments;
mod selections;
#[cfg(feature = "fusion")]
mod streams;
mod values;

/// Calls a function with each of these devices, in one process: they share compiled kernels, which
/// take most of the time.
///
/// A function may leave launches behind that nobody reads. NVIDIA's Vulkan driver crashes if the
/// process ends while a thread of CubeCL's still compiles their kernels, so they are waited for.
macro_rules! on_each {
    ([$($device:expr),*] $file:ident $function:ident) => {
        $(
            let device = $device;
            println!("{device:?}");
            $file::$function(&device);
            device.sync().expect("the device answers");
        )*
    };
}

/// Tests named as given, each a function of a device.
macro_rules! tests {
    ($devices:tt; $($test:ident: $file:ident :: $function:ident;)*) => {
        $(
            #[test]
            fn $test() {
                on_each! { $devices $file $function }
            }
        )*
    };
}

/// The suite on one runtime.
macro_rules! suite {
    ($module:ident, $device:expr) => {
        mod $module {
            use burn_tensor::Device;

            #[cfg(feature = "fusion")]
            use crate::streams;
            use crate::{
                applications, clip, contract, gradients, losses, pairs, plans, quantize, scans,
                segments, selections, values,
            };

            fn device() -> Device {
                $device
            }

            tests! {
                [device(), device().autodiff()];
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
                losses: losses::values;
                pairs: pairs::values;
                pairs_of_types: pairs::types;
                pairs_between_operations: pairs::between_operations;
                pairs_that_are_wrong: pairs::errors_before_launch;
                quantize: quantize::values;
                quantize_extremes: quantize::extremes;
                quantize_between_operations: quantize::between_operations;
                quantize_that_is_wrong: quantize::errors_before_launch;
                selections: selections::values;
                selections_probabilities: selections::probabilities;
                selections_masks: selections::masks;
                selections_quantiles: selections::quantiles;
                selections_quantiles_of_numbers: selections::quantiles_of_numbers;
                selections_between_operations: selections::between_operations;
                selections_that_are_wrong: selections::errors_before_launch;
                segments: segments::values;
                scans: scans::values;
                scans_of_integers: scans::integers;
                scans_at_the_edges: scans::edges;
                scans_between_operations: scans::between_operations;
                scans_that_are_wrong: scans::errors_before_launch;
                clip_lists: clip::lists;
                clip_types: clip::types;
                clip_norms_that_are_not_finite: clip::norms_that_are_not_finite;
                clip_between_operations: clip::between_operations;
                clip_that_is_wrong: clip::errors_before_launch;
                stored_plans: plans::stored;
            }

            tests! {
                [device().autodiff(), device().autodiff().gradient_checkpointing()];
                gradients: gradients::as_of_flex;
                gradients_at_the_edges: gradients::at_the_edges;
                gradients_of_applications: applications::gradients;
                gradients_of_losses: losses::gradients;
                gradients_of_pairs: pairs::gradients;
                gradients_do_not_pass_quantisation: quantize::no_gradient;
                gradients_of_selections: selections::gradients;
                gradients_of_segments: segments::gradients;
                gradients_of_scans: scans::gradients;
                gradients_of_probabilities: selections::gradients_of_probabilities;
                gradients_of_narrow_applications: applications::gradients_of_narrow_types;
                gradients_of_narrow_pairs: pairs::gradients_of_narrow_types;
                gradients_of_narrow_types: gradients::of_narrow_types;
                clip_gradients_of_a_module: clip::gradients_of_a_module;
                clip_passes_gradients: clip::passes_gradients;
                results_and_gradients_in_every_batch: plans::in_every_batch;
            }

            tests! {
                [device()];
                quantised: values::quantised;
            }

            #[cfg(feature = "fusion")]
            tests! {
                [device()];
                recording_does_not_wait: streams::recording_does_not_wait;
                order_is_kept_between_fused_operations:
                    streams::order_is_kept_between_fused_operations;
                threads_share_tensors: streams::threads_share_tensors;
                clip_is_one_operation: clip::is_one_operation;
            }

            #[cfg(not(feature = "fusion"))]
            tests! {
                [device()];
                clip_in_place: clip::in_place;
                flex32_is_f32: values::flex32_is_f32;
            }
        }
    };
}

#[cfg(feature = "cuda")]
suite!(cuda, Device::cuda(0));

#[cfg(feature = "vulkan")]
suite!(vulkan, Device::vulkan(burn_tensor::DeviceKind::DefaultDevice));

#[cfg(all(feature = "wgpu", not(feature = "vulkan")))]
suite!(wgsl, Device::wgpu(burn_tensor::DeviceKind::DefaultDevice));
