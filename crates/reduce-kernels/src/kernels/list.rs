//! Lists of tensors: the partials of each in a few launches, and one more that merges them.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    accumulate::Share,
    args::{
        KernelTypes, ListArrays, PartialArrays, ResultArrays, input_of_list, output_of, partials_of,
    },
    geometry::{Dim, Divisor, Geometry, RowBlock, Tile, unknown_zero},
    team::{Team, place},
    total::{combine_team, total_with_edges},
};
use crate::operator::{OperatorRef, Parameters, Single, finish, identity, merge};

/// Words of a tensor in a table, beside those of its outer dimensions: numbers of its first cube, its
/// cubes, its first partial and its array of elements, then the length, the stride and the number of
/// its inner dimensions and the loads of each, in two words each.
pub(crate) const WORDS_OF_TENSOR: usize = 4 + 2 * 4;

/// Words of an outer dimension: its extent and its stride, in two words each.
pub(crate) const WORDS_OF_DIM: usize = 2 * 2;

/// The number of the array of elements of a tensor that needs none.
pub(crate) const NO_ELEMENTS: u32 = u32::MAX;

/// A number from two words of a table. Where indices have 32 bits, the low word is the number.
#[cube]
fn number_at(table: &Array<u32>, at: usize) -> usize {
    let low = usize::cast_from(table[at]);
    let index = storage_type_of::<usize>();
    if comptime![index.size() == 4] {
        low
    } else {
        // CubeCL 0.10 gives constants of `usize` 32 bits, so the factor must be a run-time value.
        let half = usize::cast_from(comptime![1u32 << 16].runtime() + UNIT_POS_Z);
        low + usize::cast_from(table[at + 1]) * half * half
    }
}

/// The part of a tensor that a cube reduces.
#[derive(CubeType)]
struct Part {
    /// The number of the tensor in its launch.
    nth: u32,
    /// The number of its array of elements.
    nth_of_elements: u32,
    geometry: Geometry,
    /// The number of the cube among those of the tensor.
    cube: usize,
    /// The cubes of the tensor.
    cubes: usize,
    /// The number of the cube's partial.
    partial: usize,
}

/// Reads the part of a cube from the table: a word for each of `cubes` cubes, which names its tensor,
/// then the words of each tensor.
#[cube]
fn part_of(table: &Array<u32>, number: usize, cubes: usize, #[comptime] outer_dims: usize) -> Part {
    let nth = table[number];
    let words = comptime![WORDS_OF_TENSOR + WORDS_OF_DIM * outer_dims];
    let at = cubes + usize::cast_from(nth) * words;
    let cube = number - usize::cast_from(table[at]);
    let nth_of_elements = table[at + 3];
    let inner_len = number_at(table, at + 4);
    let loads_per_inner = number_at(table, at + 10);
    let inner_count = number_at(table, at + 8);
    let mut reduced = Sequence::<Dim>::new();
    #[unroll]
    for dim in 0..outer_dims {
        let from = at + comptime![WORDS_OF_TENSOR + WORDS_OF_DIM * dim];
        reduced.push(Dim {
            extent: Divisor::of_kernel(number_at(table, from)),
            stride: number_at(table, from + 2),
            target_stride: 0usize.runtime(),
        });
    }
    let geometry = Geometry {
        kept: Sequence::<Dim>::new(),
        reduced,
        inner_len,
        inner_stride: number_at(table, at + 6),
        inner_target_stride: 0usize.runtime(),
        loads_per_inner: Divisor::of_kernel(loads_per_inner),
        // Edges are counted by inner dimensions. A tensor without an array of elements has none.
        inner_count: select(nth_of_elements == NO_ELEMENTS, 0usize, inner_count),
        tiles: cubes,
        loads_per_tile: inner_count * loads_per_inner,
        outputs: cubes,
        reduction_len: inner_count * inner_len,
        realigned: ComptimeOption::new_None(),
        second: ComptimeOption::new_None(),
    };
    Part {
        nth,
        nth_of_elements,
        geometry,
        cube,
        cubes: usize::cast_from(table[at + 1]),
        partial: usize::cast_from(table[at + 2]) + cube,
    }
}

/// Each of `cubes` cubes reduces a share of a tensor and stores its accumulator as a partial.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_list(
    _types: &KernelTypes,
    tensors: &ListArrays,
    table: &Array<u32>,
    partials: &mut PartialArrays,
    parameters: &Parameters,
    cubes: usize,
    #[comptime] outer_dims: usize,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let mut partials = partials_of(partials);
    // The grid may hold a few cubes past the last. They repeat its loads.
    let part = part_of(table, clamp_max(CUBE_POS, cubes - 1), cubes, outer_dims);
    let arrays = tensors.elements.len().comptime();
    let edges = comptime![arrays > 0];
    let input = input_of_list(tensors, part.nth, part.nth_of_elements);
    let units = comptime![team.units_per_tile as usize];
    let member = UNIT_POS as usize;
    let share = Share { first: part.cube * units + member, stride: part.cubes * units };
    let tile = Tile {
        input: 0usize.runtime(),
        output: 0usize.runtime(),
        index: 0usize.runtime(),
        results: 1u32.runtime(),
        block: RowBlock {
            first: 0usize.runtime(),
            before: 0usize.runtime(),
            outputs: 1usize.runtime(),
            from: 0usize.runtime(),
            until: 1usize.runtime(),
        },
        second: 0usize.runtime(),
    };
    let total = total_with_edges(
        &input,
        &part.geometry,
        parameters,
        tile,
        share,
        edges,
        access,
        team,
        operator,
    );
    if place(team).member == 0 && CUBE_POS < cubes {
        partials.put(part.partial, total);
    }
}

/// Merges the partials of each of `tensors` tensors, and those of all of them, in an order that
/// depends on nothing but the plan. The table has the number of each tensor's first partial, the
/// number of partials, and in two words each the elements of each tensor and of all.
///
/// The result of all is the first element of each output, those of the tensors begin at `each`.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn merge_list(
    _types: &KernelTypes,
    partials: &mut PartialArrays,
    table: &Array<u32>,
    output: &mut ResultArrays,
    parameters: &Parameters,
    tensors: usize,
    each: usize,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    let partials = partials_of(partials);
    let mut output = output_of(output);
    let units = comptime![team.units_per_tile as usize];
    // The cube after those of the tensors merges all. The grid may hold a few more.
    let nth = clamp_max(CUBE_POS, tensors);
    let is_all = nth == tensors;
    let last = usize::cast_from(table[tensors]);
    let first = select(is_all, 0usize, usize::cast_from(table[nth]));
    let end = select(is_all, last, usize::cast_from(table[clamp_max(nth + 1, tensors)]));
    let mut total = identity::<Single>(operator);
    let mut at = first + UNIT_POS as usize;
    while at < end {
        let partial = partials.at(at);
        total = merge::<Single>(operator, total, partial, parameters);
        at += units;
    }
    let zero = unknown_zero(tensors + 1, each);
    total = combine_team::<Single>(total, parameters, zero, team, operator);
    let count = number_at(table, tensors + 1 + 2 * nth);
    let result = finish::<Single>(operator, total, count, parameters);
    if UNIT_POS == 0 && CUBE_POS <= tensors {
        output.elements.put(select(is_all, 0usize, each + nth), result);
    }
}
