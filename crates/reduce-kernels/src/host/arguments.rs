//! Arguments of kernels that several kinds of task pass: types, parameters, results, partials,
//! geometry.

use cubecl::prelude::*;
use reduce_planner::{Access, Direction, ElementType, KeptDim, Plan, Problem, ReducedDim};

use super::{bound::Bound, client::has_hardware_math, companion::companion_launch};
use crate::{
    element::{memory_type, storage_type},
    kernels::{
        args::{
            KernelTypesArg, PartialArraysLaunch, ResultArraysLaunch, Stores, TargetArraysLaunch,
        },
        geometry::{Dim, DimLaunch, DivisorLaunch, GeometryLaunch, RealignedLaunch},
    },
    operator::{ParametersLaunch, Signature},
};

/// The types of a kernel that merges accumulators. It reads no tensor, so one kernel does for
/// tensors of all types. Kernels that read tensors name the types of these instead.
pub(super) fn merging_types(client: &Client, signature: &Signature) -> KernelTypesArg {
    let value = memory_type(signature.value);
    KernelTypesArg {
        stored: value,
        second: None,
        value,
        fields: signature.fields.map(memory_type),
        results: signature.results.map(memory_type),
        width: 1,
        hardware_math: has_hardware_math(client),
        chains: false,
        same_bits: false,
        offsets: None,
        indices: None,
        application: None,
        stores: Stores::Elements,
        of_shard: false,
        has_policy: false,
    }
}

/// The launch argument for an operator's parameters, in the type that [`parameter_type`] names.
pub(super) fn parameters(parameters: &[f64], signature: &Signature) -> ParametersLaunch {
    ParametersLaunch::of(parameters, storage_type(parameter_type(signature)))
}

/// The type in which an operator gets its parameters: that of the accumulator, or of the elements
/// if that is an integer type, or f32 if both are.
pub(crate) fn parameter_type(signature: &Signature) -> ElementType {
    let types = [signature.fields[0], signature.value];
    types.into_iter().find(|element| element.is_float()).unwrap_or(ElementType::F32)
}

/// A target for words of accumulators.
pub(super) fn words_target(words: &Bound<'_>) -> TargetArraysLaunch {
    TargetArraysLaunch::new(result_arrays(&[]), Some(words.elements()).into())
}

/// The results as arrays of elements.
pub(crate) fn result_arrays(results: &[Bound<'_>]) -> ResultArraysLaunch {
    let mut arrays = results.iter().map(Bound::elements);
    ResultArraysLaunch::new(
        arrays.next().into(),
        arrays.next().into(),
        arrays.next().into(),
        None.into(),
        None.into(),
        None.into(),
    )
}

/// The results as arrays of elements, and as arrays of vectors of so many.
pub(super) fn result_arrays_in_vectors(results: &[Bound<'_>], vector: usize) -> ResultArraysLaunch {
    let mut elements = results.iter().map(Bound::elements);
    let mut vectors = results.iter().map(|result| result.vectors(vector));
    ResultArraysLaunch::new(
        elements.next().into(),
        elements.next().into(),
        elements.next().into(),
        vectors.next().into(),
        vectors.next().into(),
        vectors.next().into(),
    )
}

/// The partials of each field as arrays.
pub(super) fn partial_arrays(partials: &[Bound<'_>]) -> PartialArraysLaunch {
    let mut arrays = partials.iter().map(Bound::elements);
    PartialArraysLaunch::new(
        arrays.next().into(),
        arrays.next().into(),
        arrays.next().into(),
        arrays.next().into(),
        arrays.next().into(),
    )
}

pub(super) fn count([x, y, z]: [u32; 3]) -> CubeCount {
    CubeCount::Static(x, y, z)
}

/// What describes a problem to kernels: the inner dimension apart from the others, and numbers that
/// follow from a plan.
pub(super) struct Shape<'a> {
    pub(super) kept: &'a [KeptDim],
    pub(super) reduced: &'a [ReducedDim],
    pub(super) inner_len: usize,
    pub(super) inner_stride: usize,
    pub(super) inner_target_stride: usize,
    pub(super) loads_per_inner: usize,
    pub(super) inner_count: usize,
    pub(super) tiles: usize,
    pub(super) loads_per_tile: usize,
    pub(super) outputs: usize,
    pub(super) reduction_len: usize,
}

impl<'a> Shape<'a> {
    /// That of a problem whose rows are not realigned across outputs.
    pub(super) fn new(problem: &'a Problem, access: Access) -> Self {
        let (mut kept, mut reduced) = (problem.kept(), problem.reduced());
        let (inner_len, inner_stride, inner_target_stride) = match access.direction {
            Direction::Along => match reduced.split_last() {
                None => (1, 1, 0),
                Some((inner, outer)) => {
                    reduced = outer;
                    (inner.extent, inner.stride, inner.position_stride)
                }
            },
            Direction::Across => match kept.split_last() {
                None => (1, 1, 1),
                Some((inner, outer)) => {
                    kept = outer;
                    (inner.extent, inner.stride, inner.output_stride)
                }
            },
        };
        let loads = match access.direction {
            Direction::Along => access.whole_loads(inner_len),
            Direction::Across => inner_len.div_ceil(access.vector),
        };
        Self {
            kept,
            reduced,
            inner_len,
            inner_stride,
            inner_target_stride,
            loads_per_inner: loads.max(1),
            inner_count: problem.reduction_len() / inner_len.max(1),
            tiles: access.output_tiles(problem) as usize,
            loads_per_tile: access.loads_per_output(problem) as usize,
            outputs: problem.outputs(),
            reduction_len: problem.reduction_len(),
        }
    }
}

/// The launch argument that describes a problem to kernels.
pub(super) fn geometry(problem: &Problem, plan: &Plan) -> GeometryLaunch {
    let Plan { access, schedule, .. } = *plan;
    let shape = Shape::new(problem, access);
    let tiles_per_cube = schedule.outputs_per_cube();
    let across = access.realigns_across();
    let blocks = across.then(|| access.realigned_blocks(problem, tiles_per_cube));
    let loads =
        blocks.map_or(shape.loads_per_inner, |blocks| blocks.per_row * tiles_per_cube as usize);
    let realigned = blocks.map(|blocks| RealignedLaunch::new(blocks.outputs, problem.input_span()));
    GeometryLaunch::new(
        dims(shape.kept, |dim| (dim.extent, dim.stride, dim.output_stride)),
        dims(shape.reduced, |dim| (dim.extent, dim.stride, dim.position_stride)),
        shape.inner_len,
        shape.inner_stride,
        shape.inner_target_stride,
        DivisorLaunch::of(loads.max(1)),
        shape.inner_count,
        plan.output_tiles(problem) as usize,
        shape.loads_per_tile,
        shape.outputs,
        shape.reduction_len,
        problem.is_shard().then_some(problem.first_position()).into(),
        realigned.into(),
        problem
            .second()
            .map(|second| companion_launch(second.strides(), access.direction, 0))
            .into(),
    )
}

pub(super) fn dims<D>(dims: &[D], parts: impl Fn(&D) -> (usize, usize, usize)) -> SequenceArg<Dim> {
    let mut sequence = SequenceArg::new();
    for dim in dims {
        let (extent, stride, target_stride) = parts(dim);
        sequence.push(DimLaunch::new(DivisorLaunch::of(extent.max(1)), stride, target_stride));
    }
    sequence
}
