//! What an application works with: the tensors beside the input, and where a load lies in them.

use cubecl::prelude::*;
use reduce_planner::Direction;

use super::ApplySpec;
use crate::{
    kernels::{
        args::{
            AppliedArrays, FurtherSlices, OperandArrays, OperandSlices, further_of, operands_of,
            whole_if_any,
        },
        geometry::{Companion, offsets},
        share::Share,
    },
    operator::{Applied, Parameters, Slice, Wide},
};

/// What an application reads and writes beside the input, and how.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct Applier<'a> {
    pub(super) operands: OperandSlices,
    /// The strides of the stored results, then those of the operands, then those of the outputs
    /// beside the first.
    pub(super) companions: &'a Sequence<Companion>,
    pub(super) parameters: &'a Parameters,
    pub(super) output: ComptimeOption<Slice<Vector<Applied, Wide>>>,
    pub(super) elements: ComptimeOption<Slice<Applied>>,
    /// The outputs beside the first.
    pub(super) further: FurtherSlices,
    #[cube(comptime)]
    pub(super) spec: ApplySpec,
}

#[cube]
pub(super) fn applier_of<'a>(
    operands: &OperandArrays,
    output: &mut AppliedArrays,
    companions: &'a Sequence<Companion>,
    parameters: &'a Parameters,
    #[comptime] spec: ApplySpec,
) -> Applier<'a> {
    Applier::<'a> {
        operands: operands_of(operands),
        companions,
        parameters,
        output: whole_if_any(&output.vectors),
        elements: whole_if_any(&output.elements),
        further: further_of(&*output),
        spec,
    }
}

/// Where a load lies in the output, and in the dimensions that operands share with it.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(super) struct OutputPlace {
    /// Index over the reduced dimensions of the geometry.
    pub(super) outer: usize,
    /// Along, number of the first element in the inner dimension.
    pub(super) element: usize,
    /// Offset of the first element in the output.
    pub(super) output: usize,
    /// Whether the load exists, in a tile with results.
    pub(super) exists: bool,
}

/// The place in the output of load number `nth` of a tile.
#[cube]
pub(super) fn output_place(share: &Share<'_>, nth: usize) -> OutputPlace {
    let (geometry, tile) = (share.geometry, share.tile);
    let access = comptime![share.access];
    let vector = comptime![access.vector];
    let inside = tile.results > 0 && nth < geometry.loads_per_tile;
    match comptime![access.direction] {
        Direction::Along => {
            let outer_dims = geometry.reduced.len().comptime();
            let mut outer = 0usize;
            let mut slot = nth;
            let mut start = tile.input;
            let mut target = tile.output;
            if comptime![outer_dims > 0] {
                let (quotient, load) = geometry.loads_per_inner.div_mod(nth);
                let at = offsets(&geometry.reduced, quotient);
                outer = quotient;
                slot = load;
                start += at.input;
                target += at.target;
            }
            let mut element = slot * vector;
            let mut exists = inside;
            if comptime![access.peeled] {
                element = (start.div_ceil(vector) + slot) * vector - start;
                exists = inside && element + vector <= geometry.inner_len;
            }
            let output = target + element * geometry.inner_target_stride;
            OutputPlace { outer, element, output, exists }
        }
        Direction::Across => {
            let target = offsets(&geometry.reduced, nth).target;
            OutputPlace {
                outer: nth,
                element: 0usize,
                output: tile.output + target,
                exists: inside,
            }
        }
    }
}
