//! Layouts in memory: strides, spans, overlap, and the canonical form of dimensions.

/// A dimension that the result keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeptDim {
    /// Number of indices: at least 2, or 0 if there are no outputs.
    pub extent: usize,
    /// Stride in the input, in elements.
    pub stride: usize,
    /// Stride in the output, in elements.
    pub output_stride: usize,
}

/// A dimension that is reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReducedDim {
    /// Number of indices: at least 2, or 0 in an empty reduction.
    pub extent: usize,
    /// Stride in the input, in elements.
    pub stride: usize,
    /// Stride in the row-major order over the reduced axes. It is 0 unless the operator is
    /// positional or combines elements by their positions.
    pub position_stride: usize,
}

/// Strides of a row-major tensor without padding, in elements.
#[must_use]
pub fn row_major_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

/// Number of elements from the first to the last that a tensor touches. It is 0 for a tensor
/// without elements, and `None` if the number overflows.
#[must_use]
pub fn span(shape: &[usize], strides: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().zip(strides).try_fold(1usize, |span, (&extent, &stride)| {
        span.checked_add((extent - 1).checked_mul(stride)?)
    })
}

/// Whether two indices may share an offset.
///
/// A nested layout never does: each stride is at least what the finer dimensions span. This
/// function also reports layouts that interleave without nesting. Telling those apart in general is
/// a hard problem of number theory, and no tensor library produces them.
pub(super) fn may_overlap(shape: &[usize], strides: &[usize]) -> bool {
    if shape.contains(&0) {
        return false;
    }
    let mut dims: Vec<(usize, usize)> = strides
        .iter()
        .copied()
        .zip(shape.iter().copied())
        .filter(|&(_, extent)| extent > 1)
        .collect();
    dims.sort_unstable();
    let mut reach = 1;
    for (stride, extent) in dims {
        if stride < reach {
            return true;
        }
        reach += (extent - 1) * stride;
    }
    false
}

/// A dimension of all tensors of a problem. Kept and reduced dimensions have the same canonical
/// form.
#[derive(Clone, Debug)]
pub(super) struct DimOfAll {
    /// Number of indices.
    pub(super) extent: usize,
    /// Stride in the input.
    pub(super) stride: usize,
    /// Stride in the output, or in the order of positions.
    pub(super) other: usize,
    /// Strides in further tensors.
    pub(super) companions: Vec<usize>,
}

impl DimOfAll {
    /// Whether this dimension goes on where `inner` ends, in all tensors.
    fn goes_on_from(&self, inner: &Self) -> bool {
        let strides =
            |dim: &Self| [dim.stride, dim.other].into_iter().chain(dim.companions.clone());
        strides(self).eq(strides(inner).map(|stride| stride.saturating_mul(inner.extent)))
    }

    pub(super) fn kept(&self) -> KeptDim {
        KeptDim { extent: self.extent, stride: self.stride, output_stride: self.other }
    }

    pub(super) fn reduced(&self) -> ReducedDim {
        ReducedDim { extent: self.extent, stride: self.stride, position_stride: self.other }
    }
}

/// The strides of companion `nth` along these dimensions; 0 where they have none.
pub(super) fn strides_of(dims: &[DimOfAll], nth: usize) -> Vec<usize> {
    dims.iter().map(|dim| dim.companions.get(nth).copied().unwrap_or(0)).collect()
}

/// Number of elements of a tensor of this shape, if extents of 0 counted as 1. `None` if it
/// overflows. With it, no product of some of the extents does.
pub(super) fn count_of_extents(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent.max(1)))
}

/// Drops dimensions of one index, orders the rest from the largest stride to the smallest with
/// broadcast dimensions first, and merges neighbours that leave no gap in any stride.
///
/// Dimensions without any index are one, whatever the others are: their extents and strides mean
/// nothing, and may be too large to compute with.
pub(super) fn canonical(mut dims: Vec<DimOfAll>) -> Vec<DimOfAll> {
    if let Some(empty) = dims.iter().find(|dim| dim.extent == 0) {
        let companions = vec![0; empty.companions.len()];
        return vec![DimOfAll { extent: 0, stride: 1, other: 0, companions }];
    }
    dims.retain(|dim| dim.extent != 1);
    dims.sort_by_key(|dim| {
        let broadcast_first = if dim.stride == 0 { usize::MAX } else { dim.stride };
        core::cmp::Reverse((broadcast_first, dim.other))
    });
    let mut merged: Vec<DimOfAll> = Vec::with_capacity(dims.len());
    for mut inner in dims {
        match merged.last_mut() {
            Some(outer) if outer.goes_on_from(&inner) => {
                inner.extent *= outer.extent;
                *outer = inner;
            }
            _ => merged.push(inner),
        }
    }
    merged
}
