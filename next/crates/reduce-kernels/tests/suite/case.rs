//! A case: a view of a buffer and the axes to reduce.

/// What to reduce, and how it lies in memory.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub shape: Vec<usize>,
    /// In elements.
    pub strides: Vec<usize>,
    pub axes: Vec<usize>,
}

impl Case {
    /// A row-major tensor.
    pub(crate) fn contiguous(shape: &[usize], axes: &[usize]) -> Self {
        let strides = reduce_kernels::planner::row_major_strides(shape);
        Self { shape: shape.to_vec(), strides, axes: axes.to_vec() }
    }

    /// Rows padded to `pitch` elements, as CUDA's allocator gives them.
    pub(crate) fn pitched(shape: &[usize], pitch: usize, axes: &[usize]) -> Self {
        let mut padded = shape.to_vec();
        *padded.last_mut().unwrap() = pitch;
        Self {
            strides: reduce_kernels::planner::row_major_strides(&padded),
            ..Self::contiguous(shape, axes)
        }
    }

    /// A row-major tensor of `shape`, seen with its axes in another order; `axes` count after that.
    pub(crate) fn permuted(shape: &[usize], order: &[usize], axes: &[usize]) -> Self {
        let base = Self::contiguous(shape, axes);
        let pick = |values: &[usize]| order.iter().map(|&axis| values[axis]).collect();
        Self { shape: pick(&base.shape), strides: pick(&base.strides), axes: base.axes }
    }

    /// Every `step`-th element of each axis.
    pub(crate) fn sliced(shape: &[usize], steps: &[usize], axes: &[usize]) -> Self {
        let base = Self::contiguous(shape, axes);
        let zip = |values: &[usize], f: fn(usize, usize) -> usize| {
            values.iter().zip(steps).map(|(&value, &step)| f(value, step)).collect()
        };
        Self {
            shape: zip(&base.shape, usize::div_ceil),
            strides: zip(&base.strides, |stride, step| stride * step),
            axes: base.axes,
        }
    }

    /// A tensor whose `repeated` axes have stride 0.
    pub(crate) fn broadcast(shape: &[usize], repeated: &[usize], axes: &[usize]) -> Self {
        let mut stored = shape.to_vec();
        repeated.iter().for_each(|&axis| stored[axis] = 1);
        let mut case = Self { shape: shape.to_vec(), ..Self::contiguous(&stored, axes) };
        repeated.iter().for_each(|&axis| case.strides[axis] = 0);
        case
    }

    /// Elements of the buffer that the view needs.
    pub(crate) fn span(&self) -> usize {
        reduce_kernels::planner::span(&self.shape, &self.strides).unwrap()
    }

    /// Extents of the kept axes.
    pub(crate) fn kept_shape(&self) -> Vec<usize> {
        let kept = (0..self.shape.len()).filter(|axis| !self.axes.contains(axis));
        kept.map(|axis| self.shape[axis]).collect()
    }

    /// Elements that go into one result.
    pub(crate) fn reduction_len(&self) -> usize {
        self.axes.iter().map(|&axis| self.shape[axis]).product()
    }
}
