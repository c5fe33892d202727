//! The shape of a problem as kernels see it, and the location of each unit's work in it.

use cubecl::{prelude::*, std::FastDivmod};
use reduce_planner::{Access, Direction};

use super::companion::{Companion, strided};
use crate::operator::derived::copied_through_references;

/// A number that indices are divided by. 32-bit indices are divided with a multiplication and a
/// shift, if the host has prepared them. 64-bit indices use a division, because CubeCL 0.10 cannot
/// pass the multiplier of a 64-bit division to a kernel.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Divisor {
    narrow: ComptimeOption<FastDivmod<u32>>,
    wide: usize,
}

impl DivisorLaunch {
    /// The launch argument for a divisor that is not 0.
    pub(crate) fn of(divisor: usize) -> Self {
        Self::new(Some(narrow(divisor)).into(), divisor)
    }
}

/// The divisor for 32-bit indices. CubeCL's constants of a division overflow above 2^31. A problem
/// with a larger divisor has 64-bit indices and does not use this one, so any number will do.
fn narrow(divisor: usize) -> u32 {
    u32::try_from(divisor).ok().filter(|&divisor| divisor <= 1 << 31).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::narrow;

    /// CubeCL computes the next power of two of the divisor in 32 bits.
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
    /// A divisor that only the kernel knows.
    pub(super) fn of_kernel(divisor: usize) -> Divisor {
        Divisor { narrow: ComptimeOption::new_None(), wide: divisor }
    }

    /// Quotient and remainder.
    pub(crate) fn div_mod(&self, dividend: usize) -> (usize, usize) {
        let index_bytes = usize::size().comptime();
        let prepared = self.narrow.is_some();
        if comptime![index_bytes == 4 && prepared] {
            let narrow = self.narrow.as_ref().unwrap();
            let (quotient, remainder) = narrow.div_mod(u32::cast_from(dividend));
            (usize::cast_from(quotient), usize::cast_from(remainder))
        } else {
            let quotient = dividend / self.wide;
            (quotient, dividend - quotient * self.wide)
        }
    }
}

/// One dimension, with its stride in the input (`stride`) and in the target (`target_stride`). The
/// target is the output for a kept dimension, and the reduction's row-major order for a reduced
/// one.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Dim {
    pub(crate) extent: Divisor,
    pub(crate) stride: usize,
    pub(crate) target_stride: usize,
}

/// A problem as its kernels see it. The inner dimension is kept apart from the others. It is the
/// last reduced dimension `Along`, the last kept one `Across`.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Geometry {
    /// Kept dimensions, from the outermost to the innermost, without the inner dimension.
    pub(crate) kept: Sequence<Dim>,
    /// Reduced dimensions in the same order, without the inner dimension.
    pub(crate) reduced: Sequence<Dim>,
    /// Elements of the inner dimension.
    pub(crate) inner_len: usize,
    /// Its stride in the input.
    pub(crate) inner_stride: usize,
    /// Its stride in the output (`Across`) or in the reduction's row-major order (`Along`).
    pub(crate) inner_target_stride: usize,
    /// Loads that cover the inner dimension: whole vectors `Along`, all outputs `Across`.
    pub(crate) loads_per_inner: Divisor,
    /// `Along`, the number of inner dimensions that one reduction consists of.
    pub(crate) inner_count: usize,
    /// Number of output tiles.
    pub(crate) tiles: usize,
    /// Loads of one tile, without peeled edges.
    pub(crate) loads_per_tile: usize,
    /// Number of outputs.
    pub(crate) outputs: usize,
    /// Elements that go into one output.
    pub(crate) reduction_len: usize,
    /// Position of the reduction's first element, if the input is a shard.
    pub(crate) first_position: ComptimeOption<usize>,
    /// How rows are realigned, if they are.
    pub(crate) realigned: ComptimeOption<Realigned>,
    /// The strides of the second input, if there is one.
    pub(crate) second: ComptimeOption<Companion>,
}

/// Numbers of an access with realigned rows.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Realigned {
    /// Outputs of a block, which one cube works on. The last block of a row may have fewer.
    pub(crate) outputs_per_block: usize,
    /// Elements from the first to the last of the input.
    pub(crate) elements: usize,
}

/// The offsets of one index in the input and in the target (see [`Dim`]).
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct Offsets {
    pub(crate) input: usize,
    pub(crate) target: usize,
}

#[cube]
impl Geometry {
    /// The offsets of an index over the outer reduced dimensions. The target is the position of the
    /// first element there.
    pub(super) fn at_reduced(&self, index: usize) -> Offsets {
        let at = offsets(&self.reduced, index);
        Offsets { input: at.input, target: self.position(at.target) }
    }

    /// The position of an element that comes `target` after the first of the input. `target` must
    /// be a run-time value: CubeCL 0.10 gives constants that are arguments 32 bits, and what is
    /// added to them too.
    pub(super) fn position(&self, target: usize) -> usize {
        #[comptime]
        match &self.first_position {
            ComptimeOption::Some(first) => *first + target,
            ComptimeOption::None => target,
        }
    }
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
#[expand(derive(Clone, Copy))]
pub(crate) struct Tile {
    /// Offset of its first element in the input.
    pub(crate) input: usize,
    /// Offset of its first result in the output.
    pub(crate) output: usize,
    /// Number of its first result in row-major order over the canonical kept dimensions.
    pub(crate) index: usize,
    /// Number of its results: 1 `Along`, those inside the row `Across`, 0 past the last tile.
    pub(crate) results: u32,
    /// Where it lies in its row, `Across`.
    pub(crate) block: RowBlock,
    /// Offset of its first element in the second input, if there is one.
    pub(crate) second: usize,
}

copied_through_references!(TileExpand);

/// The outputs of a row that one cube works on if rows are realigned, otherwise all of them.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
pub(crate) struct RowBlock {
    /// Outputs of the row before those of the block.
    pub(crate) first: usize,
    /// Outputs of the block before those of the tile.
    pub(crate) before: usize,
    /// Outputs of the block.
    pub(crate) outputs: usize,
    /// The first component of the unit's vectors that belongs to the block.
    pub(crate) from: usize,
    /// The first component after it that does not.
    pub(crate) until: usize,
}

/// Locates a tile. A tile past the last repeats the loads of the last and has no results, so all
/// units of a cube take the same path.
#[cube]
pub(crate) fn locate(
    geometry: &Geometry,
    number: usize,
    #[comptime] access: Access,
    #[comptime] tiles_per_cube: usize,
) -> Tile {
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
                block: RowBlock {
                    first: 0usize,
                    before: 0usize,
                    outputs: 1usize,
                    from: 0usize,
                    until: 1usize,
                },
                second: second_offset(geometry, tile, 0usize),
            }
        }
        Direction::Across => {
            let vector = comptime![access.vector];
            let (row, load) = geometry.loads_per_inner.div_mod(tile);
            let at = offsets(&geometry.kept, row);
            let block = if comptime![access.realigned] {
                let most = geometry.realigned.unwrap().outputs_per_block;
                let first = load / tiles_per_cube * most;
                RowBlock {
                    first,
                    before: load % tiles_per_cube * vector,
                    outputs: clamp_max(geometry.inner_len - first, most),
                    from: 0usize,
                    until: vector.runtime(),
                }
            } else {
                RowBlock {
                    first: 0usize,
                    before: load * vector,
                    outputs: geometry.inner_len,
                    from: 0usize,
                    until: vector.runtime(),
                }
            };
            let column = block.first + block.before;
            let rest = clamp_min(block.outputs, block.before) - block.before;
            let components = comptime![vector as u32];
            let components = select(rest < vector, u32::cast_from(rest), components);
            Tile {
                input: at.input + column * geometry.inner_stride,
                output: at.target + column * geometry.inner_target_stride,
                index: row * geometry.inner_len + column,
                results: select(inside, components, 0u32),
                block,
                second: second_offset(geometry, row, column),
            }
        }
    }
}

/// The offset in the second input of an index over the kept dimensions and of a `column` of the inner
/// one; 0 if there is no such input.
#[cube]
fn second_offset(geometry: &Geometry, row: usize, column: usize) -> usize {
    #[comptime]
    match &geometry.second {
        ComptimeOption::Some(second) => {
            strided(&geometry.kept, &second.kept, row) + column * second.inner
        }
        ComptimeOption::None => 0usize.runtime(),
    }
}

/// 0, for a `number` that is not 0. Compilers cannot know it, nor any bound on it, if they know
/// neither `number` nor `any`.
///
/// A loop whose number of turns compilers know, or can bound, is unrolled. That takes NVRTC seconds
/// for large bodies.
#[cube]
pub(super) fn unknown_zero(number: usize, any: usize) -> u32 {
    select(number == 0, u32::cast_from(any), 0u32)
}
