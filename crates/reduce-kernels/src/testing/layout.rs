//! The layouts of test inputs in memory.

use core::fmt;

use reduce_planner::{row_major_strides, span};

/// A tensor and the axes that are reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Layout {
    /// The name of the layout, which says what is particular to it.
    pub name: &'static str,
    /// Extent of each axis.
    pub shape: Vec<usize>,
    /// Stride of each axis, in elements.
    pub strides: Vec<usize>,
    /// The reduced axes, in ascending order.
    pub axes: Vec<usize>,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, shape, strides, axes } = self;
        write!(f, "{name}: shape {shape:?}, strides {strides:?}, over axes {axes:?}")
    }
}

impl Layout {
    /// A tensor whose innermost axis lies in rows of `pitch` elements.
    fn new(name: &'static str, shape: &[usize], pitch: usize, axes: &[usize]) -> Self {
        let mut padded = shape.to_vec();
        padded[shape.len() - 1] = pitch;
        let strides = row_major_strides(&padded);
        Self { name, shape: shape.to_vec(), strides, axes: axes.to_vec() }
    }

    /// Layouts that lead to every way of reading with vectors of up to `vector` elements. They are
    /// long enough to be split between cubes, and shorter than the 65535 iterations after which
    /// Mesa's software adapter leaves a loop.
    pub(super) fn all(vector: usize) -> [Self; 7] {
        let columns = 2 * vector;
        [
            Self::new("rows", &[2, 40_000], 40_000, &[1]),
            Self::new("rows that start off vectors", &[2, 40_001], 40_001, &[1]),
            Self::new("padded rows", &[2, 39_999], 40_000, &[1]),
            Self::new("columns", &[16_000, columns], columns, &[0]),
            Self::new(
                "columns of rows that start off vectors",
                &[16_000, columns + 1],
                columns + 1,
                &[0],
            ),
            Self::new("padded columns", &[16_000, columns - 1], columns, &[0]),
            Self::new("outer and inner axis", &[40, 3, 400], 400, &[0, 2]),
        ]
    }

    /// Elements of the buffer.
    pub(super) fn span(&self) -> usize {
        span(&self.shape, &self.strides).expect("layouts are small")
    }

    /// The offsets of the elements that go into each output, both in row-major order.
    pub(super) fn reductions(&self) -> Vec<Vec<usize>> {
        let reduced = self.offsets(|axis| self.axes.contains(&axis));
        let kept = self.offsets(|axis| !self.axes.contains(&axis));
        kept.iter().map(|from| reduced.iter().map(|to| from + to).collect()).collect()
    }

    /// Offsets of the elements of these axes, in row-major order.
    fn offsets(&self, takes_part: impl Fn(usize) -> bool) -> Vec<usize> {
        let axes = (0..self.shape.len()).filter(|&axis| takes_part(axis));
        axes.fold(vec![0], |offsets, axis| {
            let (extent, stride) = (self.shape[axis], self.strides[axis]);
            let of_axis = |from| (0..extent).map(move |i| from + i * stride);
            offsets.into_iter().flat_map(of_axis).collect()
        })
    }
}
