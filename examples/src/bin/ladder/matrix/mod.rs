//! The rows of a matrix, or its columns, to the sum of each.

mod per_output;
mod tile;

use reduce_kernels::{ReduceError, Sum, cubecl::prelude::*, reduce};

use crate::{
    data::{Element, Elements, total},
    gpu::{Gpu, grid},
};

/// Width of a tile, and units of the cube that loads it.
const TILE: usize = 32;

/// Rows of the lower tile.
const LOW_TILE_ROWS: usize = 8;

/// Units of a cube that takes an output per unit.
const UNITS: u32 = 128;

/// A matrix in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub rows: usize,
    pub columns: usize,
}

/// What is added up: axis 0 gives a total for each column, axis 1 one for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Columns = 0,
    Rows = 1,
}

impl Axis {
    pub(crate) const ALL: [Axis; 2] = [Axis::Columns, Axis::Rows];
}

impl Matrix {
    /// Elements of the matrix.
    pub(crate) fn elements(self) -> usize {
        self.rows * self.columns
    }

    /// Totals along an axis.
    pub(crate) fn totals(self, axis: Axis) -> usize {
        match axis {
            Axis::Columns => self.columns,
            Axis::Rows => self.rows,
        }
    }

    /// The oracle: the totals along an axis.
    pub(crate) fn expected(self, axis: Axis) -> Vec<i64> {
        let Matrix { rows, columns } = self;
        let of_total = |nth: usize| match axis {
            Axis::Columns => total((0..rows).map(|row| row * columns + nth)),
            Axis::Rows => total(nth * columns..(nth + 1) * columns),
        };
        (0..self.totals(axis)).map(of_total).collect()
    }
}

/// A rung of the reduction of a matrix along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    UnitPerOutput,
    VectorisedRows,
    Tile32x32,
    Tile32x8,
    Library,
}

impl Rung {
    /// The rungs along an axis, from the lowest. Columns need neither tiles nor vectors: units side
    /// by side read them side by side.
    pub(crate) fn along(axis: Axis) -> &'static [Rung] {
        match axis {
            Axis::Columns => &[Rung::UnitPerOutput, Rung::Library],
            Axis::Rows => &[
                Rung::UnitPerOutput,
                Rung::VectorisedRows,
                Rung::Tile32x32,
                Rung::Tile32x8,
                Rung::Library,
            ],
        }
    }

    /// The name in tables and pictures.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Rung::UnitPerOutput => "one unit per output",
            Rung::VectorisedRows => "one unit per row, vectors (CubeCL book)",
            Rung::Tile32x32 => "tile of 32 × 32 in shared memory",
            Rung::Tile32x8 => "tile of 32 × 8, 4 units per row",
            Rung::Library => "the library's own plan",
        }
    }

    /// Most elements of one total on Mesa's software adapter, as in
    /// [`full::Rung::most_in_software`](crate::full::Rung::most_in_software).
    pub(crate) fn most_in_software(self) -> usize {
        match self {
            Rung::UnitPerOutput | Rung::VectorisedRows => 1 << 15,
            Rung::Tile32x32 | Rung::Tile32x8 => TILE << 15,
            Rung::Library => usize::MAX,
        }
    }

    /// Launches the rung, whose `totals` are an array of the matrix's totals along the axis.
    ///
    /// # Errors
    ///
    /// What the library refuses, on its rung.
    pub(crate) fn launch<E: Element>(
        self,
        gpu: &Gpu<'_>,
        input: &Elements,
        matrix: Matrix,
        axis: Axis,
        totals: &Elements,
    ) -> Result<(), ReduceError> {
        let Matrix { rows, columns } = matrix;
        let per_unit = grid(totals.length.div_ceil(UNITS as usize));
        // SAFETY: units past the last total do nothing, and the others stay inside their rows and
        // columns.
        unsafe {
            match self {
                Rung::UnitPerOutput => {
                    let (length, distance, step) = match axis {
                        Axis::Columns => (rows, 1, columns),
                        Axis::Rows => (columns, columns, 1),
                    };
                    per_output::unit_per_output::launch_unchecked::<E>(
                        gpu.client,
                        per_unit,
                        CubeDim::new_1d(UNITS),
                        input.array(),
                        totals.array(),
                        length,
                        distance,
                        step,
                    );
                }
                Rung::VectorisedRows => {
                    // The widest vectors that rows consist of.
                    let lanes = 1 << gpu.lanes::<E>().ilog2().min(columns.trailing_zeros());
                    per_output::vectorised_rows::launch_unchecked::<E>(
                        gpu.client,
                        per_unit,
                        CubeDim::new_1d(UNITS),
                        lanes,
                        input.vectors(lanes),
                        totals.array(),
                        columns / lanes,
                    );
                }
                Rung::Tile32x32 | Rung::Tile32x8 => {
                    let tile_rows = if self == Rung::Tile32x32 { TILE } else { LOW_TILE_ROWS };
                    tile::tiled_rows::launch_unchecked::<E>(
                        gpu.client,
                        grid(rows.div_ceil(tile_rows)),
                        CubeDim::new_1d(TILE as u32),
                        input.array(),
                        totals.array(),
                        columns,
                        tile_rows,
                    );
                }
                Rung::Library => {
                    let tensor = input.tensor::<E>(&[rows, columns]);
                    let totals = match axis {
                        Axis::Columns => totals.tensor::<E>(&[1, columns]),
                        Axis::Rows => totals.tensor::<E>(&[rows, 1]),
                    };
                    let axis = axis as usize;
                    return reduce(Sum, &tensor).over(axis).run_into(gpu.client, totals.binding());
                }
            }
        }
        Ok(())
    }
}
