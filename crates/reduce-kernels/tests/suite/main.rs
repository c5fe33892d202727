//! The suite: one corpus and random problems through every schedule, on every backend compiled in.
//!
//! `--features vulkan` brings it through SPIR-V (`spirv::`) and through WGSL (`wgsl::`), both on
//! Vulkan's default adapter; `--features wgpu` through WGSL alone; `--features cuda` on an NVIDIA
//! GPU (`cuda::`). A backend that finds no device fails its tests. Where the device reports no
//! plane operations, as Mesa's software adapter does, plane kernels are forced all the same: it
//! runs them.
#![cfg_attr(
    not(any(feature = "cuda-llvm", feature = "wgpu", feature = "vulkan")),
    allow(unused, reason = "without a backend there is no device")
)]

mod applied;
mod applied_outputs;
mod backend;
mod case;
mod contract;
mod corpus;
mod cross_entropy;
#[cfg(any(feature = "wgpu", feature = "nccl"))]
mod devices;
mod documents;
mod gradients;
mod graphs;
mod invariance;
mod large;
mod laws;
mod list;
mod list_scans;
mod masks;
mod nan_quantiles;
mod numerics;
mod operators;
mod oracle;
mod pairs;
mod partials;
mod plans;
mod quantize;
mod random;
mod realigned;
mod reference;
mod reproducible;
mod run;
mod scans;
mod scans_continued;
mod segments;
mod segments_applied;
mod segments_grouped;
#[cfg(any(feature = "wgpu", feature = "nccl"))]
mod sharded;
#[cfg(any(feature = "wgpu", feature = "nccl"))]
mod sharded_scans;
mod testing;
mod top_k;
mod top_k_masks;
mod top_k_parts;
mod top_k_probabilities;
mod top_k_windows;
mod transcendental;
mod types;

/// Waits for what a test has launched and not read. Mesa's software adapter crashes if it still
/// compiles a kernel when the process ends. Errors of such launches are no part of a test.
fn finish(client: &reduce_kernels::cubecl::prelude::Client) {
    let _ = reduce_kernels::cubecl::future::block_on(client.sync());
}

/// Tests named as given, each a function that takes a client of the backend whose module this is
/// in.
macro_rules! tests {
    ($($test:ident: $function:expr;)*) => {
        $(
            #[test]
            fn $test() {
                let client = client();
                $function(&client);
                crate::finish(&client);
            }
        )*
    };
}

/// A test for each operator, named for it: a function of a runtime and an operator.
macro_rules! operator_tests {
    ($module:ident $function:ident; $($name:ident $operator:ident),*) => {
        tests! { $($name: crate::$module::$function::<reduce_kernels::operators::$operator>;)* }
    };
}

/// The suite on one backend.
macro_rules! suite {
    ($backend:ident) => {
        mod $backend {
            use crate::{applied, applied_outputs, backend::$backend as client, contract, corpus, cross_entropy, gradients, graphs, invariance, large, laws, list, list_scans, masks, nan_quantiles, numerics, pairs, partials, plans, quantize, random, realigned, reproducible, scans, scans_continued, segments, segments_applied, segments_grouped, testing, top_k, top_k_masks, top_k_parts, top_k_probabilities, top_k_windows, transcendental, types};

            tests! {
                applied_by_every_plan: applied::every_plan;
                applied_outputs_by_every_plan: applied_outputs::every_plan;
                applied_sums_and_norms: applied_outputs::sums_and_norms;
                applied_masks: masks::softmax;
                applied_masks_of_this_crate: masks::softmax_with_own_masks;
                masks_of_later_keys: masks::causal;
                masks_of_lengths: masks::lengths;
                masks_of_lengths_far_apart: masks::lengths_far_apart;
                masks_refused: masks::refusals;
                applied_outputs_that_are_wrong: applied_outputs::wrong_outputs;
                applied_to_tiles_in_shared_memory: applied::held_in_shared_memory;
                applied_to_tiles_of_several_cubes: applied::held_by_cubes;
                applied_to_realigned_rows: applied::realigned_rows;
                applied_results_come_back: applied::results_come_back;
                applied_at_the_edges: applied::at_the_edges;
                applied_norms_do_not_overflow: applied::norms_do_not_overflow;
                applied_in_place: applied::in_place;
                applied_residual_in_place: applied::residual_in_place;
                applied_operands: applied::operands;
                applied_contract: applied::contract;
                applied_descriptions: applied::descriptions;
                applied_with_few_bindings: applied::few_bindings;
                cross_entropy: cross_entropy::losses_alone;
                cross_entropy_with_every_option: cross_entropy::every_option;
                cross_entropy_gradients_into: cross_entropy::gradients_into;
                cross_entropy_of_extremes: cross_entropy::extremes;
                cross_entropy_of_wrong_input: cross_entropy::wrong_input;
                quantize_conversions: quantize::conversions;
                quantize_scales: quantize::scales;
                quantize_extremes: quantize::extremes;
                quantize_normalized: quantize::normalized;
                applied_to_groups: applied::groups;
                quantize_blocks: quantize::blocks;
                quantize_int4_packed: quantize::int4_packed;
                quantize_int4_unpacked: quantize::int4_unpacked;
                quantize_int4_inside_buffers: quantize::int4_inside_buffers;
                quantize_int4: quantize::int4_quantized;
                quantize_int4_extremes: quantize::int4_extremes;
                quantize_int4_refused: quantize::int4_refused;
                every_applied_function: applied::every_function;
                every_applied_type: applied::every_type;
                pairs_through_every_schedule: pairs::every_schedule;
                pairs_of_several_outputs: pairs::several_outputs;
                pairs_of_every_layout: pairs::every_layout;
                pairs_of_every_type: pairs::every_type;
                pairs_at_the_edges: pairs::at_the_edges;
                pairs_tolerances: pairs::tolerances;
                pairs_of_large_magnitude: pairs::large_magnitudes;
                pairs_of_long_inputs: pairs::long_moments;
                pairs_contract: pairs::contract;
                gradients_by_every_plan: gradients::every_plan;
                gradients_of_every_type: gradients::every_type;
                graphs_of_every_schedule: graphs::schedules;
                graphs_of_applied_results: graphs::applied;
                graphs_of_every_other_call: graphs::every_other_call;
                graphs_without_a_first_call: graphs::without_a_first_call;
                invariant_layouts: invariance::every_layout;
                invariant_merges: invariance::every_merge;
                invariant_applied: invariance::applied;
                invariant_pairs: invariance::pairs;
                invariant_lists: invariance::lists;
                invariant_process: invariance::of_the_process;
                invariant_plans_refused: invariance::other_plans_refused;
                realigned_positions: realigned::positions;
                realigned_lengths: realigned::lengths;
                realigned_bits: realigned::bits;
                reproducible_sums: reproducible::sums;
                reproducible_means_and_norms: reproducible::means_and_norms;
                reproducible_exact: reproducible::exact;
                reproducible_f64: |client: &_| reproducible::of_type(client, reduce_kernels::ElementType::F64);
                reproducible_f16: |client: &_| reproducible::of_type(client, reduce_kernels::ElementType::F16);
                reproducible_bf16: |client: &_| reproducible::of_type(client, reduce_kernels::ElementType::BF16);
                reproducible_i32: |client: &_| reproducible::of_type(client, reduce_kernels::ElementType::I32);
                reproducible_by_every_plan: reproducible::every_plan;
                reproducible_realigned_rows: reproducible::realigned_rows;
                reproducible_long_slices: reproducible::long_slices;
                reproducible_quotients_and_roots: reproducible::quotients_and_roots;
                reproducible_refusals: reproducible::refusals;
                reproducible_process: reproducible::of_the_process;
                scans_by_every_operator: scans::every_operator;
                scans_of_rows_by_every_plan: scans::rows_by_every_plan;
                scans_of_rows_with_edges: scans::rows_with_edges;
                scans_of_columns_by_every_plan: scans::columns_by_every_plan;
                scans_of_every_layout: scans::every_layout;
                scans_of_random_problems: scans::random_problems;
                scans_of_every_type: scans::every_type;
                scans_by_functions: scans::functions;
                scans_in_place: scans::in_place;
                scans_at_the_edges: scans::at_the_edges;
                scans_of_not_numbers: scans::not_numbers;
                scans_taken_apart: scans::elements_taken_apart;
                scans_of_long_rows: scans::long_sums;
                scans_looking_back: scans::look_back;
                scans_with_the_same_bits: scans::same_bits;
                scans_of_many_runs: scans::many_runs;
                scans_contract: scans::contract;
                scans_in_pieces: scans_continued::in_pieces;
                scans_in_pieces_by_every_plan: scans_continued::by_every_plan;
                scans_of_a_stream: scans_continued::a_stream;
                scans_in_pieces_refused: scans_continued::refused;
                compacted_of_every_type: scans::compacted_of_every_type;
                compacted_of_every_layout: scans::compacted_of_every_layout;
                compacted_at_the_edges: scans::compacted_at_the_edges;
                segments_by_every_operator: segments::every_operator;
                segments_of_every_layout: segments::every_layout;
                segments_of_every_type: segments::every_type;
                segments_by_every_plan: segments::every_plan;
                segments_in_many_runs: segments::many_runs;
                segments_of_many_tiles: segments::many_tiles;
                segments_of_two_inputs: segments::two_inputs;
                segments_without_elements: segments::empty;
                segments_with_hostile_offsets: segments::hostile_offsets;
                segments_of_sorted_keys: segments::sorted_keys;
                segments_of_lengths: segments::lengths;
                segments_contract: segments::contract;
                segments_applied_by_every_function: segments_applied::every_function;
                segments_applied_to_every_layout: segments_applied::every_layout;
                segments_applied_to_every_type: segments_applied::every_type;
                segments_applied_by_every_plan: segments_applied::every_plan;
                segments_applied_with_hostile_offsets: segments_applied::hostile_offsets;
                segments_applied_contract: segments_applied::contract;
                segments_grouped_by_every_operator: segments_grouped::every_operator;
                segments_grouped_in_every_layout: segments_grouped::every_layout;
                segments_grouped_of_every_type: segments_grouped::every_type;
                segments_grouped_by_every_plan: segments_grouped::every_grouping;
                segments_grouped_in_one_call: segments_grouped::by_keys;
                segments_grouped_and_applied: segments_grouped::applied;
                segments_grouped_by_hostile_members: segments_grouped::hostile_members;
                segments_grouped_contract: segments_grouped::contract;
                lists_by_every_operator: list::every_operator;
                lists_of_every_layout: list::every_layout;
                lists_of_every_type: list::every_type;
                lists_by_every_plan: list::every_plan;
                lists_at_the_edges: list::at_the_edges;
                lists_contract: list::contract;
                lists_clipped: list::clipped;
                lists_applied: list::applied;
                lists_descriptions: list::descriptions;
                list_scans_of_every_layout: list_scans::every_layout;
                list_scans_of_every_type: list_scans::every_type;
                list_scans_by_every_plan: list_scans::every_plan;
                list_scans_of_long_rows: list_scans::long_rows;
                list_scans_contract: list_scans::contract;
                top_k_of_every_type: top_k::every_type;
                top_k_of_every_layout: top_k::every_layout;
                top_k_by_every_plan: top_k::every_plan;
                top_k_of_data_that_hurts: top_k::data_that_hurts;
                top_k_in_registers: top_k::in_registers;
                top_k_by_several_cubes: top_k::several_cubes;
                top_k_of_merged_runs: top_k::merged_runs;
                top_k_with_positions: top_k::with_positions;
                top_k_and_quantiles: top_k::of_quantiles;
                nan_quantiles_of_every_interpolation: nan_quantiles::every_interpolation;
                nan_quantiles_by_every_method: nan_quantiles::every_method;
                nan_quantiles_of_every_type_and_layout: nan_quantiles::every_type_and_layout;
                nan_quantiles_contract: nan_quantiles::contract;
                nan_quantiles_of_numpy: nan_quantiles::numpy_agrees;
                top_k_stored_and_recorded: top_k::stored_and_recorded;
                top_k_contract: top_k::contract;
                top_k_probabilities_by_every_method: top_k_probabilities::every_method;
                top_k_probabilities_of_every_layout: top_k_probabilities::every_layout;
                top_k_probabilities_of_every_type: top_k_probabilities::every_type;
                top_k_probabilities_have_the_same_bits: top_k_probabilities::same_bits;
                top_k_probabilities_contract: top_k_probabilities::contract;
                top_k_masks: top_k_masks::masks;
                top_k_masks_planned: top_k_masks::planned;
                top_k_in_windows: top_k_windows::every_type;
                top_k_windows_of_rows_that_hurt: top_k_windows::rows_that_hurt;
                top_k_windows_of_several_numbers: top_k_windows::several_numbers;
                top_k_in_chunks: top_k_parts::chunks;
                top_k_in_chunks_at_the_edges: top_k_parts::chunks_at_the_edges;
                top_k_of_lists: top_k_parts::lists;
                top_k_of_lists_planned: top_k_parts::lists_planned;
                corpus_as_chosen: corpus::as_chosen;
                random_problems: random::problems;
                operator_laws: laws::hold;
                operator_laws_of_pairs: laws::hold_for_pairs;
                tests_of_operators_try_everything: testing::try_everything;
                tests_of_operators_find_what_is_wrong: testing::find_what_is_wrong;
                tests_of_operators_that_cannot_be_built: testing::find_what_never_ran;
                requested_types: types::requested_types;
                calls_in_turn: types::calls_in_turn;
                more_elements_than_32_bits_count: large::more_elements_than_32_bits_count;
                rows_far_apart: large::rows_far_apart;
                long_sums: numerics::long_sums;
                variance_far_from_zero: numerics::variance_far_from_zero;
                extreme_magnitudes: numerics::extreme_magnitudes;
                last_values_have_positions: numerics::last_values_have_positions;
                rare_elements_anywhere: numerics::rare_elements_anywhere;
                gaps_make_no_difference: numerics::gaps_make_no_difference;
                log_sum_exp_at_the_edges: numerics::log_sum_exp_at_the_edges;
                wide_accumulators: numerics::wide_accumulators;
                positions: contract::positions;
                several_results: contract::several_results;
                nan_rows: contract::nan_rows;
                infinities: contract::infinities;
                empty_reductions: contract::empty_reductions;
                empty_outputs: contract::empty_outputs;
                shapes_of_results: contract::shapes_of_results;
                errors_before_launch: contract::errors_before_launch;
                descriptions: contract::descriptions;
                flex32_is_f32: contract::flex32_is_f32;
                integers_wrap: contract::integers_wrap;
                half_sums_pass_the_half_range: contract::half_sums_pass_the_half_range;
                same_bits_every_run: contract::same_bits_every_run;
                tensors_inside_buffers: contract::tensors_inside_buffers;
                wide_indices: contract::wide_indices;
                wide_divisors: contract::wide_divisors;
                partials_through_every_schedule: partials::every_schedule;
                partials_of_every_type: partials::every_type;
                partials_merged: partials::merges;
                partials_with_positions: partials::positions;
                partials_refused: partials::refusals;
                profiles: plans::profiles;
                waiting_forbidden: plans::waiting_forbidden;
                plans_from_a_store: plans::stored;
                plans_from_a_store_in_threads: plans::stored_for_threads;
                plans_of_every_kind_from_a_store: plans::stored_of_every_kind;
                recorded_reductions: plans::recorded_reductions;
                recorded_calls_of_every_kind: plans::recorded_calls;
                functions_of_f64: transcendental::functions_of_f64;
                functions_of_f64_at_the_edges: transcendental::functions_of_f64_at_the_edges;
                f64_through_every_schedule: transcendental::f64_through_every_schedule;
                log_sum_exp_of_f64_at_the_edges: transcendental::log_sum_exp_of_f64_at_the_edges;
                norm_p_of_f64_at_the_edges: transcendental::norm_p_of_f64_at_the_edges;
                own_functions_of_f64: transcendental::own_functions_of_f64;
            }

            mod corpus_through_every_schedule {
                use crate::{backend::$backend as client, corpus};

                tests! {
                    sum_in_every_width: corpus::sum_in_every_width;
                    sum_in_the_widest: corpus::sum_in_the_widest;
                    max_with_index: corpus::max_with_index;
                    mean_var: corpus::mean_var;
                }
            }

            mod every_operator_and_type {
                use crate::{backend::$backend as client, operators::with_operators};

                with_operators!(operator_tests!(types every_type));
            }

            mod every_operator_in_shards {
                use crate::{backend::$backend as client, operators::with_operators};

                with_operators!(operator_tests!(partials every_cut));
            }

            mod every_operator_in_every_batch {
                use crate::{backend::$backend as client, operators::with_operators};

                with_operators!(operator_tests!(invariance every_batch));
            }

            mod every_operator_through_every_schedule {
                use crate::{backend::$backend as client, operators::with_operators};

                with_operators!(operator_tests!(types operator_through_every_schedule));
            }

            mod every_type_through_every_schedule {
                use crate::{backend::$backend as client, types::through_every_schedule};
                use reduce_kernels::{ElementType::*, operators::*};

                tests! {
                    f16: |client: &_| through_every_schedule::<Max>(client, F16);
                    bf16: |client: &_| through_every_schedule::<Mean>(client, BF16);
                    f64: |client: &_| through_every_schedule::<Sum>(client, F64);
                    i8: |client: &_| through_every_schedule::<Sum>(client, I8);
                    u16: |client: &_| through_every_schedule::<SumSquares>(client, U16);
                    u8: |client: &_| through_every_schedule::<ArgMax>(client, U8);
                    i32: |client: &_| through_every_schedule::<Sum>(client, I32);
                    i64: |client: &_| through_every_schedule::<MinMax>(client, I64);
                    bool: |client: &_| through_every_schedule::<CountNonzero>(client, Bool);
                }
            }
        }
    };
}

#[cfg(feature = "cuda-llvm")]
suite!(cuda);

#[cfg(feature = "vulkan")]
suite!(spirv);

#[cfg(feature = "wgpu")]
suite!(wgsl);

/// Sharded tensors. One adapter under several names stands for several devices; partial results
/// cannot cross them.
#[cfg(feature = "wgpu")]
mod sharded_on_one_adapter {
    use reduce_kernels::{ArgMax, MeanVar, Sum, operators::MinMax};

    use crate::{devices::three_devices, sharded, sharded_scans};

    #[test]
    fn without_exchange() {
        sharded::without_exchange(&three_devices());
    }

    #[test]
    fn second_inputs() {
        sharded::second_inputs(&three_devices());
    }

    #[test]
    fn refusals() {
        sharded::refusals(&three_devices());
    }

    #[test]
    fn through_host() {
        sharded::through_host(&three_devices());
    }

    #[test]
    fn selections_through_host() {
        sharded::selections(&three_devices(), sharded::Transport::Host);
    }

    #[test]
    fn selections_refused() {
        sharded::selections_refused(&three_devices());
    }

    #[test]
    fn exchanged_through_host() {
        fn exchanged<O: crate::operators::Checked>() {
            let transport = sharded::Transport::Host;
            sharded::with_exchange::<O>(&three_devices(), transport);
        }
        exchanged::<Sum>();
        exchanged::<ArgMax>();
        exchanged::<MeanVar>();
        exchanged::<MinMax>();
    }

    #[test]
    fn no_collectives() {
        sharded::no_collectives(&three_devices());
        sharded_scans::no_collectives(&three_devices());
    }

    #[test]
    fn scans_through_host() {
        sharded_scans::scans(&three_devices(), sharded::Transport::Host);
    }

    #[test]
    fn scans_at_the_edges() {
        sharded_scans::scans_at_the_edges(&three_devices());
    }
}

/// Sharded tensors on all NVIDIA GPUs of the machine: `--ignored gpus`, with the feature `nccl`.
#[cfg(feature = "nccl")]
mod gpus {
    use reduce_kernels::operators::*;

    use crate::{devices::gpus, operators::with_operators, sharded, sharded_scans};

    #[test]
    #[ignore = "needs several GPUs"]
    fn second_inputs() {
        sharded::second_inputs(&gpus());
    }

    #[test]
    #[ignore = "needs several GPUs"]
    fn through_host() {
        sharded::through_host(&gpus());
    }

    #[test]
    #[ignore = "needs several GPUs"]
    fn selections() {
        sharded::selections(&gpus(), sharded::Transport::Collectives);
        sharded::selections(&gpus(), sharded::Transport::Host);
    }

    #[test]
    #[ignore = "needs several GPUs"]
    fn scans() {
        for transport in [sharded::Transport::Collectives, sharded::Transport::Host] {
            sharded_scans::scans(&gpus(), transport);
        }
        sharded_scans::scans_at_the_edges(&gpus());
    }

    #[test]
    #[ignore = "needs several GPUs"]
    fn refusals() {
        sharded::refusals(&gpus());
    }

    #[test]
    #[ignore = "needs several GPUs"]
    fn a_thousand_runs() {
        sharded::a_thousand_runs(&gpus());
    }

    macro_rules! exchange_tests {
        (; $($name:ident $operator:ident),*) => {
            $(
                #[test]
                #[ignore = "needs several GPUs"]
                fn $name() {
                    let transport = sharded::Transport::Collectives;
                    sharded::with_exchange::<$operator>(&gpus(), transport);
                }
            )*
        };
    }

    with_operators!(exchange_tests!());
}
