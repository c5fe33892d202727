//! Scans of many tensors in one launch. A table tells each cube which rows of which tensor it has,
//! and all that follows is [`scan_part`].

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::{Cuts, Part, ScanSpec, exchange::Exchange, scan_part};
use crate::{
    kernels::{
        args::{KernelTypes, ListArrays, Output, ResultArrays, input_of_list, output_of},
        geometry::{Companion, Dim, Divisor, Geometry},
        reducer::Reducer,
        share::share_among_cubes,
    },
    operator::{OperatorRef, Parameters, Single, Wide, Width},
};

/// Words of a tensor in a table, beside those of its outer dimensions: the number of its first
/// cube, the element of each output at which its results begin, the length of its inner dimension
/// with the strides in the input, in the target and in the outputs, the loads and the number of
/// inner dimensions, its tiles with their loads, its outputs with their elements, and the chunks of
/// a row.
pub(crate) const WORDS_OF_SCAN: usize = 13;

/// Words of an outer kept dimension: its extent, its stride and its stride in the outputs.
pub(crate) const WORDS_OF_KEPT: usize = 3;

/// Words of an outer scanned dimension: its extent, its stride, its stride in the order of
/// positions and its stride in the outputs.
pub(crate) const WORDS_OF_SCANNED: usize = 4;

/// The rows of a list that a cube scans.
#[derive(CubeType)]
struct Listed {
    geometry: Geometry,
    output: Companion,
    cuts: Cuts,
    /// The number of the tensor's first cube.
    first_cube: usize,
    /// The element of each output at which its results begin.
    first_result: usize,
}

/// Reads what the table says of tensor `nth`. A word for each of `cubes` cubes, which names its
/// tensor, comes before the words of each tensor.
#[cube]
fn listed(
    table: &[u32],
    nth: u32,
    cubes: usize,
    #[comptime] kept_dims: usize,
    #[comptime] scanned_dims: usize,
) -> Listed {
    let words =
        comptime![WORDS_OF_SCAN + WORDS_OF_KEPT * kept_dims + WORDS_OF_SCANNED * scanned_dims];
    let at = cubes + usize::cast_from(nth) * words;
    let mut kept = Sequence::<Dim>::new();
    #[unroll]
    for dim in 0..kept_dims {
        let from = at + comptime![WORDS_OF_SCAN + WORDS_OF_KEPT * dim];
        kept.push(dim_at(table, from));
    }
    let mut reduced = Sequence::<Dim>::new();
    let mut reduced_output = Sequence::<usize>::new();
    #[unroll]
    for dim in 0..scanned_dims {
        let from =
            at + comptime![WORDS_OF_SCAN + WORDS_OF_KEPT * kept_dims + WORDS_OF_SCANNED * dim];
        reduced.push(dim_at(table, from));
        reduced_output.push(usize::cast_from(table[from + 3]));
    }
    let chunks = usize::cast_from(table[at + 12]);
    Listed {
        geometry: Geometry {
            kept,
            reduced,
            inner_len: usize::cast_from(table[at + 2]),
            inner_stride: usize::cast_from(table[at + 3]),
            inner_target_stride: usize::cast_from(table[at + 4]),
            loads_per_inner: Divisor::of_kernel(usize::cast_from(table[at + 6])),
            inner_count: usize::cast_from(table[at + 7]),
            tiles: usize::cast_from(table[at + 8]),
            loads_per_tile: usize::cast_from(table[at + 9]),
            outputs: usize::cast_from(table[at + 10]),
            reduction_len: usize::cast_from(table[at + 11]),
            first_position: ComptimeOption::new_None(),
            realigned: ComptimeOption::new_None(),
            second: ComptimeOption::new_None(),
        },
        output: Companion {
            // Along kept dimensions, results lie where the geometry says.
            kept: Sequence::<usize>::new(),
            reduced: reduced_output,
            inner: usize::cast_from(table[at + 5]),
            segment: 0usize.runtime(),
        },
        cuts: Cuts { cubes: 1usize.runtime(), chunks, chunks_per_cube: chunks },
        first_cube: usize::cast_from(table[at]),
        first_result: usize::cast_from(table[at + 1]),
    }
}

/// The dimension whose words begin there.
#[cube]
fn dim_at(table: &[u32], from: usize) -> Dim {
    Dim {
        extent: Divisor::of_kernel(usize::cast_from(table[from])),
        stride: usize::cast_from(table[from + 1]),
        target_stride: usize::cast_from(table[from + 2]),
    }
}

/// Scans rows of the tensors of a list, each of which has one cube. The results of all tensors lie
/// in one buffer for each result.
///
/// Buffers of their own would take a choice among arrays for each store, as there is one for each
/// block of loads, and twice the bindings.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn scan_list(
    _types: &KernelTypes,
    tensors: &ListArrays,
    results: &mut ResultArrays,
    table: &[u32],
    parameters: &Parameters,
    cubes: usize,
    #[comptime] kept_dims: usize,
    #[comptime] scanned_dims: usize,
    #[comptime] spec: ScanSpec,
    #[comptime] operator: OperatorRef,
) {
    let mut results = output_of(results);
    let reducer = Reducer::new(parameters, comptime![spec.team], operator);
    // The grid may hold a few cubes past the last. They take blocks past the last one of the last
    // tensor, which have no results.
    let nth = table[clamp_max(CUBE_POS, cubes - 1)];
    let listed = listed(table, nth, cubes, kept_dims, scanned_dims);
    let input = input_of_list(tensors, nth, nth);
    let block = CUBE_POS - listed.first_cube;
    let (access, team) = comptime![(spec.access, spec.team)];
    let share = share_among_cubes(&input, &listed.geometry, block, 0, 1, access, team);
    let share = share.with_tile(share.tile.with_output(share.tile.output + listed.first_result));
    let part = Part::new(&share, &listed.cuts, 0usize.runtime(), 0usize.runtime(), spec);
    match comptime![access.direction] {
        Direction::Along => scan_whole::<Single>(&mut results, &listed.output, &part, &reducer),
        Direction::Across => scan_whole::<Wide>(&mut results, &listed.output, &part, &reducer),
    }
}

/// Scans a part before which lies nothing.
#[cube]
fn scan_whole<N: Width>(
    results: &mut Output,
    output: &Companion,
    part: &Part<'_>,
    reducer: &Reducer<'_>,
) {
    let exchange = Exchange::<N>::new(comptime![part.spec], reducer);
    let before = reducer.identity::<N>();
    scan_part::<N>(results, output, before, part, &exchange, reducer);
}
