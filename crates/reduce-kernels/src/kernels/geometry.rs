//! The shape of a problem as kernels see it, and where each unit's work lies in it.

use cubecl::{prelude::*, std::FastDivmod};
use reduce_planner::{Access, Direction};

/// A number to divide indices by. Narrow indices multiply and shift; CubeCL 0.10 cannot pass the
/// multiplier of a 64-bit division to a kernel, so wide ones divide.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Divisor {
    narrow: FastDivmod<u32>,
    wide: usize,
}

impl<R: Runtime> DivisorLaunch<R> {
    /// The launch argument for a divisor that is not 0.
    pub(crate) fn of(divisor: usize) -> Self {
        Self::new(narrow(divisor), divisor)
    }
}

/// The divisor for narrow indices. Where it is too large for them, the problem has wide ones, and any number
/// does; CubeCL's constants of a division overflow above 2^31.
fn narrow(divisor: usize) -> u32 {
    u32::try_from(divisor).ok().filter(|&divisor| divisor <= 1 << 31).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::narrow;

    /// CubeCL takes the next power of two of what it is given, in 32 bits.
    #[test]
    fn narrow_divisors_have_a_power_of_two_above_them() {
        for divisor in [1, 3, 1 << 31, (1 << 31) + 8, u32::MAX as usize, usize::MAX] {
            assert!(narrow(divisor).checked_next_power_of_two().is_some(), "{divisor}");
        }
        assert_eq!((narrow(7), narrow(1 << 31)), (7, 1 << 31));
    }
}

#[cube]
impl Divisor {
    /// Quotient and remainder.
    pub(crate) fn div_mod(&self, dividend: usize) -> (usize, usize) {
        let index = storage_type_of::<usize>();
        if comptime![index.size() == 4] {
            let (quotient, remainder) = self.narrow.div_mod(u32::cast_from(dividend));
            (usize::cast_from(quotient), usize::cast_from(remainder))
        } else {
            let quotient = dividend / self.wide;
            (quotient, dividend - quotient * self.wide)
        }
    }
}

/// One dimension, with its stride in the input (`stride`) and in what its indices lead to
/// (`target_stride`): the output for a kept dimension, the reduction's row-major order for a reduced
/// one.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Dim {
    pub(crate) extent: Divisor,
    pub(crate) stride: usize,
    pub(crate) target_stride: usize,
}

/// A problem as its kernels see it. The inner dimension stands apart from the others: the last
/// reduced one `Along`, the last kept one `Across`.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Geometry {
    /// Kept dimensions from the outermost in, without the inner dimension.
    pub(crate) kept: Sequence<Dim>,
    /// Reduced dimensions likewise.
    pub(crate) reduced: Sequence<Dim>,
    /// Elements of the inner dimension.
    pub(crate) inner_len: usize,
    /// Its stride in the input.
    pub(crate) inner_stride: usize,
    /// Its stride in the output (`Across`) or in the reduction's row-major order (`Along`).
    pub(crate) inner_target_stride: usize,
    /// Loads that cover the inner dimension: whole vectors `Along`, all outputs `Across`.
    pub(crate) loads_per_inner: Divisor,
    /// How many times a reduction runs through its inner dimension (`Along`).
    pub(crate) inner_count: usize,
    /// Output tiles.
    pub(crate) tiles: usize,
    /// Loads of one tile, peeled edges aside.
    pub(crate) loads_per_tile: usize,
    /// Number of outputs.
    pub(crate) outputs: usize,
    /// Elements that go into one output.
    pub(crate) reduction_len: usize,
}

/// Two offsets found together: in the input, and in what the indices lead to.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Offsets {
    pub(crate) input: usize,
    pub(crate) target: usize,
}

/// The offsets of a row-major index over `dims`.
#[cube]
pub(crate) fn offsets(dims: &Sequence<Dim>, index: usize) -> Offsets {
    let rank = dims.len().comptime();
    let mut rest = index;
    let mut input = 0usize;
    let mut target = 0usize;
    #[unroll]
    for i in 0..rank {
        let dim = dims.index(comptime![rank - 1 - i]);
        if comptime![i + 1 < rank] {
            let (outer, coordinate) = dim.extent.div_mod(rest);
            input += coordinate * dim.stride;
            target += coordinate * dim.target_stride;
            rest = outer;
        } else {
            input += rest * dim.stride;
            target += rest * dim.target_stride;
        }
    }
    Offsets { input, target }
}

/// An output tile: one output (`Along`), or a vector of neighbouring outputs (`Across`).
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Tile {
    /// Offset of its first element in the input.
    pub(crate) input: usize,
    /// Offset of its first result in the output.
    pub(crate) output: usize,
    /// Number of its first result in row-major order over the canonical kept dimensions.
    pub(crate) index: usize,
    /// Results it has: 1 `Along`, those inside the row `Across`, 0 past the last tile.
    pub(crate) results: u32,
}

/// Locates a tile. One past the last repeats the last one's loads and has no results, so that all
/// units of a cube stay together.
#[cube]
pub(crate) fn locate(geometry: &Geometry, number: usize, #[comptime] access: Access) -> Tile {
    let tile = clamp_max(number, geometry.tiles - 1);
    let inside = number < geometry.tiles;
    match comptime![access.direction] {
        Direction::Along => {
            let at = offsets(&geometry.kept, tile);
            Tile {
                input: at.input,
                output: at.target,
                index: tile,
                results: u32::cast_from(inside),
            }
        }
        Direction::Across => {
            let vector = comptime![access.vector];
            let (row, load) = geometry.loads_per_inner.div_mod(tile);
            let column = load * vector;
            let at = offsets(&geometry.kept, row);
            let rest = geometry.inner_len - column;
            let components = comptime![vector as u32];
            let components = select(rest < vector, u32::cast_from(rest), components);
            Tile {
                input: at.input + column * geometry.inner_stride,
                output: at.target + column * geometry.inner_target_stride,
                index: row * geometry.inner_len + column,
                results: select(inside, components, 0u32),
            }
        }
    }
}
