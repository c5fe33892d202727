//! A result applied to one element of each reduction: the one of its class.

use cubecl::prelude::*;

use super::{
    args::KernelTypes,
    geometry::strided,
    geometry::{Dim, offsets},
};
use crate::operator::{Applied, Operand, Out, Out2, Real, Stored, element_wise::nan_or_lowest};

/// Minus the logarithm of the softmax of the class's element, for each output: from the largest
/// element and the logarithm of the sum of exponentials of differences from it. A class below 0 or
/// from `extent` on gives NaN. The targets of `kept` are offsets in the results and in the losses.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(crate) fn pick_losses(
    _types: &KernelTypes,
    logits: &[Stored],
    classes: &[Operand],
    most: &[Out],
    logarithms: &[Out2],
    losses: &mut [Applied],
    kept: &Sequence<Dim>,
    class_strides: &Sequence<usize>,
    stride: usize,
    extent: u32,
    outputs: usize,
) {
    // Units leave here, because no barrier follows.
    if ABSOLUTE_POS < outputs {
        let at = offsets(kept, ABSOLUTE_POS);
        let class = classes[strided(kept, class_strides, ABSOLUTE_POS)];
        let index = u32::cast_from(class);
        // Classes that u32 does not hold do not come back from it.
        let known = index < extent && Operand::cast_from(index) == class;
        let element = logits[at.input + select(known, index, 0u32) as usize * stride];
        let difference = Real::cast_from(most[at.target]) - Real::cast_from(element);
        let loss = difference + Real::cast_from(logarithms[at.target]);
        losses[at.target] = Applied::cast_from(select(known, loss, nan_or_lowest::<Real>()));
    }
}
