//! The problem that a batch-invariant plan is made for: the same slices, and a number of them that
//! does not depend on the problem's.

use super::{Companion, Direction, KeptDim, Problem, Second};
use crate::numerics::Numerics;

impl Problem {
    /// `outputs` slices like those of this problem, read in the same direction. Everything that
    /// depends on the number of slices, or on where they lie, has a value of its own. Along the
    /// reduction, the kept dimensions are one, between the inner reduced dimension and the outer
    /// ones. Its rows begin at a multiple of `aligned` elements, and at none of twice as many if
    /// that is less than `widest`. Across outputs, they are one inner dimension.
    pub(crate) fn reference(&self, outputs: usize, aligned: usize, widest: usize) -> Self {
        let (inner, kept_stride) = match self.direction() {
            Direction::Along => {
                let inner = self.reduced.last();
                let row = inner.map_or(1, |dim| dim.extent.saturating_mul(dim.stride.max(1)));
                let row = row.max(1).checked_next_multiple_of(aligned.max(1)).unwrap_or(row);
                let further = aligned < widest && row.is_multiple_of(2 * aligned);
                let row = if further { row.saturating_add(aligned) } else { row };
                (self.reduced.len().saturating_sub(1), row)
            }
            Direction::Across => (self.reduced.len(), 1),
        };
        let mut reduced = self.reduced.clone();
        let mut stride = kept_stride.saturating_mul(outputs);
        for dim in reduced[..inner].iter_mut().rev().filter(|dim| dim.stride > 0) {
            dim.stride = stride;
            stride = stride.saturating_mul(dim.extent.max(1));
        }
        let second = self.second.as_ref().map(|second| {
            // A second input has the strides of the first, except where it repeats its elements
            // within a slice. Whether all slices have the same elements of it depends on their
            // number: a single one tells nothing.
            let like = |(&second, first): (&usize, usize)| if second == 0 { 0 } else { first };
            let strides = second.strides.reduced.iter().zip(reduced.iter().map(|dim| dim.stride));
            Second {
                strides: Companion {
                    kept: vec![kept_stride],
                    reduced: strides.map(like).collect(),
                },
                ..second.clone()
            }
        });
        Self {
            kept: vec![KeptDim { extent: outputs, stride: kept_stride, output_stride: 1 }],
            reduced,
            second,
            input_span: stride,
            output_span: outputs,
            positions: None,
            numerics: Numerics::Deterministic,
            ..self.clone()
        }
    }
}
