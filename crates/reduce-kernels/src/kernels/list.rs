//! Lists of tensors: the partials of each in a few launches, one more that merges them, and the
//! application of their results.

use cubecl::prelude::*;
use reduce_planner::Access;

use super::{
    args::{
        KernelTypes, ListArrays, PartialArrays, ResultArrays, input_of_list, output_of, partials_of,
    },
    geometry::{Dim, Divisor, Geometry, RowBlock, Tile, unknown_zero},
    load::{Loaded, edge_slots, load_block_of_list, load_edge},
    reducer::Reducer,
    share::Share,
    team::{Team, UnitPlace, place},
    total::{combine_team, total_with_edges},
};
use crate::operator::{
    ApplyRef, Operands, OperatorRef, Parameters, Real, RealTypes, Reals, Single, Stored, Wide,
    apply_to, copied::copied_through_references,
};

/// Words of a tensor in a table, beside those of its outer dimensions: numbers of its first cube,
/// its cubes, its first partial and its array of elements, then the length, the stride and the
/// number of its inner dimensions, the loads of each and their stride in the output, in two words
/// each.
pub(crate) const WORDS_OF_TENSOR: usize = 4 + 2 * 5;

/// Words of an outer dimension: its extent, its stride and its stride in the output, in two words
/// each.
pub(crate) const WORDS_OF_DIM: usize = 2 * 3;

/// The number of the array of elements of a tensor that needs none.
pub(crate) const NO_ELEMENTS: u32 = u32::MAX;

/// A number from two words of a table. Where indices have 32 bits, the low word is the number.
#[cube]
fn number_at(table: &[u32], at: usize) -> usize {
    let low = usize::cast_from(table[at]);
    let index_bytes = usize::size().comptime();
    if comptime![index_bytes == 4] {
        low
    } else {
        low + usize::cast_from(table[at + 1]) * comptime![1usize << 32]
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

/// Reads the part of a cube from the table: a word for each of `cubes` cubes, which names its
/// tensor, then the words of each tensor.
#[cube]
fn part_of(table: &[u32], number: usize, cubes: usize, #[comptime] outer_dims: usize) -> Part {
    let nth = table[number];
    let words = comptime![WORDS_OF_TENSOR + WORDS_OF_DIM * outer_dims];
    let at = cubes + usize::cast_from(nth) * words;
    let cube = number - usize::cast_from(table[at]);
    let cubes_of_tensor = usize::cast_from(table[at + 1]);
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
            target_stride: number_at(table, from + 4),
        });
    }
    let geometry = Geometry {
        kept: Sequence::<Dim>::new(),
        reduced,
        inner_len,
        inner_stride: number_at(table, at + 6),
        inner_target_stride: number_at(table, at + 12),
        loads_per_inner: Divisor::of_kernel(loads_per_inner),
        // Edges are counted by inner dimensions. A tensor without an array of elements has none.
        inner_count: select(nth_of_elements == NO_ELEMENTS, 0usize, inner_count),
        tiles: cubes,
        loads_per_tile: inner_count * loads_per_inner,
        // Not that of the tiles: `unknown_zero` needs two numbers that compilers cannot relate.
        outputs: cubes_of_tensor,
        reduction_len: inner_count * inner_len,
        first_position: ComptimeOption::new_None(),
        realigned: ComptimeOption::new_None(),
        second: ComptimeOption::new_None(),
    };
    Part {
        nth,
        nth_of_elements,
        geometry,
        cube,
        cubes: cubes_of_tensor,
        partial: usize::cast_from(table[at + 2]) + cube,
    }
}

/// The tile of a tensor, which is all of it.
#[cube]
fn whole_tensor() -> Tile {
    Tile {
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
    }
}

/// Each of `cubes` cubes reduces a share of a tensor and stores its accumulator as a partial.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn reduce_list(
    _types: &KernelTypes,
    tensors: &ListArrays,
    table: &[u32],
    partials: &mut PartialArrays,
    parameters: &Parameters,
    cubes: usize,
    #[comptime] outer_dims: usize,
    #[comptime] access: Access,
    #[comptime] team: Team,
    #[comptime] operator: OperatorRef,
) {
    // CubeCL 0.11 has neither arrays of arrays nor addresses, so a launch binds a buffer for each
    // tensor and the table says which one is a cube's. The alternative, a launch for each tensor,
    // takes 5 to 7 us of the host each: 162 small tensors took 42 us in one launch of 168 buffers
    // on one H200, 56 in three launches, and 128 in six of 32 buffers.
    let mut partials = partials_of(partials);
    // The grid may hold a few cubes past the last. They repeat its loads.
    let part = part_of(table, clamp_max(CUBE_POS, cubes - 1), cubes, outer_dims);
    let arrays = tensors.elements.len().comptime();
    let edges = comptime![arrays > 0];
    let input = input_of_list(tensors, part.nth, part.nth_of_elements);
    let units = comptime![team.units_per_tile as usize];
    let first = part.cube * units + UNIT_POS as usize;
    let stride = part.cubes * units;
    let place = place(team);
    let share = Share::new(&input, &part.geometry, whole_tensor(), place, first, stride, access);
    let reducer = Reducer::new(parameters, team, operator);
    let total = total_with_edges::<Single>(&share, &reducer, edges);
    if share.place.member == 0 && CUBE_POS < cubes {
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
    table: &[u32],
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
    // The merge has a launch of its own and needs no atomics, so lists are the same on every
    // backend.
    //
    // The cube after those of the tensors merges all. The grid may hold a few more.
    let nth = clamp_max(CUBE_POS, tensors);
    let is_all = nth == tensors;
    let last = usize::cast_from(table[tensors]);
    let first = select(is_all, 0usize, usize::cast_from(table[nth]));
    let end = select(is_all, last, usize::cast_from(table[clamp_max(nth + 1, tensors)]));
    let reducer = Reducer::new(parameters, team, operator);
    let mut total = reducer.identity::<Single>();
    let mut at = first + UNIT_POS as usize;
    while at < end {
        total = reducer.merge::<Single>(total, partials.at(at));
        at += units;
    }
    let zero = unknown_zero(tensors + 1, each);
    total = combine_team::<Single>(total, zero, &reducer);
    let count = number_at(table, tensors + 1 + 2 * nth);
    let result = reducer.finish::<Single>(total, count);
    if UNIT_POS == 0 && CUBE_POS <= tensors {
        output.elements.put(select(is_all, 0usize, each + nth), result);
    }
}

/// Applies the results of all tensors, the first elements of `results`, to a share of a tensor for
/// each of `cubes` cubes. Without inputs, elements are read from the outputs and replaced there.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn apply_to_list(
    _types: &KernelTypes,
    inputs: &ListArrays,
    outputs: &mut ListArrays,
    table: &[u32],
    results: &mut ResultArrays,
    parameters: &Parameters,
    cubes: usize,
    #[comptime] outer_dims: usize,
    #[comptime] access: Access,
    #[comptime] units: u32,
    #[comptime] apply: ApplyRef,
) {
    let results = output_of(results).elements.at(0usize).converted::<RealTypes>();
    let one = Vector::<Real, Single>::from_int(1);
    let none = Operands::<Single>::none();
    let of_one = apply_to::<Single>(apply, one, results, none, parameters).a().extract(0usize);
    let arrays = inputs.vectors.len().comptime();
    let in_place = comptime![arrays == 0];
    // Gradients that need no clipping are not written. Clipping 4.0 GB in place, the norm included,
    // took 926 us on one H200 where nothing was scaled, and 2983 where all was.
    let scales = comptime![apply.0.scales];
    let unchanged = comptime![in_place && scales].runtime() && of_one == Real::from_int(1);
    if !unchanged {
        // The grid may hold a few cubes past the last. They have no loads.
        let part = part_of(table, clamp_max(CUBE_POS, cubes - 1), cubes, outer_dims);
        let input = if comptime![in_place] {
            input_of_list(&*outputs, part.nth, part.nth_of_elements)
        } else {
            input_of_list(inputs, part.nth, part.nth_of_elements)
        };
        let first = part.cube * comptime![units as usize] + UNIT_POS as usize;
        let stride = part.cubes * comptime![units as usize];
        let place = UnitPlace { tile: 0u32.runtime(), member: UNIT_POS };
        let share =
            Share::new(&input, &part.geometry, whole_tensor(), place, first, stride, access);
        let applied = AppliedResults { results, of_one, apply };
        apply_to_part(outputs, &part, &share, &applied, parameters, CUBE_POS < cubes);
    }
}

/// The results that are applied to the tensors of a list, and by what function.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct AppliedResults {
    results: Reals<Single>,
    /// The output of 1.
    of_one: Real,
    #[cube(comptime)]
    apply: ApplyRef,
}

/// Applies results to a share of a tensor. A unit of a cube that does not work writes nothing.
#[cube]
fn apply_to_part(
    outputs: &mut ListArrays,
    part: &Part,
    share: &Share<'_>,
    applied: &AppliedResults,
    parameters: &Parameters,
    works: bool,
) {
    let geometry = share.geometry;
    let results = applied.results;
    let apply = comptime![applied.apply];
    let vector = comptime![share.access.vector];
    let in_flight = comptime![share.access.loads_in_flight];
    let mut first = share.first;
    while first < geometry.loads_per_tile {
        let mut loads = Sequence::<Loaded>::new();
        load_block_of_list(&mut loads, share, first);
        let mut stored = Sequence::<StoredVector>::new();
        #[unroll]
        for k in 0..in_flight {
            let loaded = *loads.index(k);
            let value = Vector::<Real, Wide>::cast_from(loaded.value);
            // A function that scales is known by what it makes of 1, so the loop only multiplies.
            let output = if comptime![apply.0.scales] {
                value * Vector::new(applied.of_one)
            } else {
                let none = Operands::<Wide>::none();
                apply_to::<Wide>(apply, value, results.repeated::<Wide>(), none, parameters).a()
            };
            stored.push(StoredVector {
                at: loaded.position.start / vector,
                value: Vector::cast_from(output),
                exists: works && loaded.valid,
            });
        }
        // One choice among the arrays serves all stores of the turn, as it does for the loads.
        let count = outputs.vectors.len().comptime();
        put_each(&mut outputs.vectors, part.nth, &stored, 0usize, count);
        first += share.block_stride();
    }
    let arrays = outputs.elements.len().comptime();
    if comptime![arrays > 0] {
        let slots = geometry.inner_count * comptime![edge_slots(vector)];
        let mut slot = share.first;
        while slot < slots {
            let edge = load_edge(share, slot);
            if works && edge.valid {
                let value = Vector::<Real, Single>::cast_from(edge.value);
                let none = Operands::<Single>::none();
                let output = apply_to::<Single>(apply, value, results, none, parameters).a();
                let at = edge.position.start;
                let value = Stored::cast_from(output.extract(0usize));
                let nth = part.nth_of_elements;
                put_element(&mut outputs.elements, nth, at, value, 0usize, arrays);
            }
            slot += share.stride;
        }
    }
}

/// A vector to write.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct StoredVector {
    /// Its index in the output.
    at: usize,
    value: Vector<Stored, Wide>,
    /// Whether it is written.
    exists: bool,
}

copied_through_references!(StoredVectorExpand);

/// Writes vectors to one of the arrays `from..until`, which is found once for all of them.
#[cube]
fn put_each(
    arrays: &mut Sequence<Box<[Vector<Stored, Wide>]>>,
    nth: u32,
    vectors: &Sequence<StoredVector>,
    #[comptime] from: usize,
    #[comptime] until: usize,
) {
    if comptime![until - from == 1] {
        let array = arrays.index_mut(from);
        #[unroll]
        for k in 0..vectors.len().comptime() {
            let vector = *vectors.index(k);
            if vector.exists {
                array[vector.at] = vector.value;
            }
        }
    } else {
        let middle = comptime![(from + until) / 2];
        if nth < comptime![middle as u32] {
            put_each(arrays, nth, vectors, from, middle);
        } else {
            put_each(arrays, nth, vectors, middle, until);
        }
    }
}

/// Writes an element to one of the arrays `from..until`.
#[cube]
fn put_element(
    arrays: &mut Sequence<Box<[Stored]>>,
    nth: u32,
    at: usize,
    value: Stored,
    #[comptime] from: usize,
    #[comptime] until: usize,
) {
    if comptime![until - from == 1] {
        let array = arrays.index_mut(from);
        array[at] = value;
    } else {
        let middle = comptime![(from + until) / 2];
        if nth < comptime![middle as u32] {
            put_element(arrays, nth, at, value, from, middle);
        } else {
            put_element(arrays, nth, at, value, middle, until);
        }
    }
}
