//! The shape of a problem as kernels see it, and the location of each unit's work in it.

use cubecl::{ir::features::TypeUsage, prelude::*};
use reduce_planner::{Access, Direction};

use crate::operator::copied::copied_through_references;

/// A number that indices are divided by. 32-bit indices are divided by a multiplication and a
/// shift, if the host has prepared them. 64-bit indices are divided by an instruction of the
/// device: few have products of 128 bits.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Divisor {
    narrow: ComptimeOption<Reciprocal>,
    wide: usize,
}

/// The constants with which 32-bit numbers are divided by multiplication: the quotient of `n` is
/// the upper half of `n * multiplier`, plus `n`, shifted right by `shift` bits (T. Granlund, P. L.
/// Montgomery, "Division by Invariant Integers using Multiplication", 1994, figure 4.1). It is
/// exact for numbers below 2^31.
#[derive(CubeType, CubeLaunch)]
struct Reciprocal {
    multiplier: u32,
    shift: u32,
}

impl DivisorLaunch {
    /// The launch argument for a divisor that is not 0.
    pub(crate) fn of(divisor: usize) -> Self {
        let (multiplier, shift) = reciprocal(divisor);
        Self::new(Some(ReciprocalLaunch::new(multiplier, shift)).into(), divisor)
    }
}

/// Multiplier and shift for 32-bit numbers. A problem with a divisor above 2^31 has 64-bit indices
/// and does not use them, so any will do.
fn reciprocal(divisor: usize) -> (u32, u32) {
    let divisor = u64::try_from(divisor).ok().filter(|&divisor| divisor <= 1 << 31).unwrap_or(1);
    let shift = divisor.next_power_of_two().trailing_zeros();
    let multiplier = (((1 << shift) - divisor) << 32) / divisor + 1;
    (u32::try_from(multiplier).expect("the power of two is below twice the divisor"), shift)
}

#[cfg(test)]
mod tests {
    use super::reciprocal;

    /// The constants of all divisors give the quotients of a division.
    #[test]
    fn products_with_reciprocals_are_quotients() {
        let most = (1u64 << 31) - 1;
        for divisor in (1..2000).chain([4095, 65_537, 1 << 24, most - 1, most, 1 << 31]) {
            let (multiplier, shift) = reciprocal(usize::try_from(divisor).unwrap());
            let around = |n: u64| [n.saturating_sub(1), n, n + 1];
            let numbers = [0, 1, divisor, 7 * divisor, most / divisor * divisor, most];
            for n in numbers.into_iter().flat_map(around).filter(|&n| n <= most) {
                let quotient = (((n * u64::from(multiplier)) >> 32) + n) >> shift;
                assert_eq!(quotient, n / divisor, "{n} / {divisor}");
            }
        }
        assert_eq!(reciprocal(usize::MAX), (1, 0));
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
            let quotient = usize::cast_from(narrow.quotient(u32::cast_from(dividend)));
            (quotient, dividend - quotient * self.wide)
        } else {
            // CubeCL's `FastDivmod` is not used: under 64-bit indices, CubeCL 0.10's panicked for
            // most divisors.
            let quotient = dividend / self.wide;
            (quotient, dividend - quotient * self.wide)
        }
    }
}

#[cube]
impl Reciprocal {
    /// CubeCL 0.11's `mul_hi` is not used where the device has products of 64 bits: on CUDA through
    /// NVRTC, HIP and Metal, CubeCL takes the upper half of `1 * multiplier` for the multiplier.
    fn quotient(&self, dividend: u32) -> u32 {
        let properties = comptime::device_properties().comptime();
        let wide = elem_type_of::<u64>();
        let has_wide = comptime![properties.type_usage(wide).contains(TypeUsage::Arithmetic)];
        let high = if comptime![has_wide] {
            u32::cast_from((u64::cast_from(dividend) * u64::cast_from(self.multiplier)) >> 32u64)
        } else {
            u32::mul_hi(dividend, self.multiplier)
        };
        (high + dividend) >> self.shift
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
    /// Loads of the inner dimension: those of whole vectors `Along`, of all outputs `Across`.
    pub(crate) loads_per_inner: Divisor,
    /// `Along`, the number of inner dimensions that one reduction consists of.
    pub(crate) inner_count: usize,
    /// Number of output tiles.
    pub(crate) tiles: usize,
    /// Loads of one tile, without single elements at the ends of rows.
    pub(crate) loads_per_tile: usize,
    /// Number of outputs.
    pub(crate) outputs: usize,
    /// Elements that go into one output.
    pub(crate) reduction_len: usize,
    /// Position of the reduction's first element, if the input is a shard.
    pub(crate) first_position: ComptimeOption<usize>,
    /// How rows across outputs are realigned, if they are.
    pub(crate) realigned: ComptimeOption<Realigned>,
    /// The strides of the second input, if there is one.
    pub(crate) second: ComptimeOption<Companion>,
}

/// Numbers of an access with realigned rows across outputs.
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

    /// The position of an element that comes `target` after the first of the input.
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
        // What is left is the coordinate of the outermost dimension, which needs no division. With
        // one dimension there is none at all.
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

#[cube]
impl Tile {
    /// The same tile with its first result elsewhere in the output.
    pub(super) fn with_output(&self, output: usize) -> Tile {
        Tile {
            input: self.input,
            output,
            index: self.index,
            results: self.results,
            block: self.block,
            second: self.second,
        }
    }
}

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
    // Units past the last tile do not leave: WGSL demands that all units of a cube reach a barrier,
    // and plane operations on CUDA take part with the units that are there.
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
            let block = if comptime![access.realigns_across()] {
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
            // The last tile of a row may begin past the block's outputs where rows are realigned,
            // because a cube always has the same number of tiles.
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

/// The offset in the second input of an index over the kept dimensions and of a `column` of the
/// inner one; 0 if there is no such input.
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
///
/// Other zeros were rejected, because compilers bound them: `UNIT_POS_Z` is below the limit of a
/// cube's size along z, and a comparison of the grid's size with 0, like any truth value, is at
/// most 1. `any` is an argument of the kernel, so the selection may be any number.
#[cube]
pub(super) fn unknown_zero(number: usize, any: usize) -> u32 {
    select(number == 0, u32::cast_from(any), 0u32)
}

/// The strides of a tensor beside the input, for the dimensions of a [`Geometry`].
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Companion {
    /// Strides along [`Geometry::kept`].
    pub(crate) kept: Sequence<usize>,
    /// Strides along [`Geometry::reduced`].
    pub(crate) reduced: Sequence<usize>,
    /// Stride along the inner dimension.
    pub(crate) inner: usize,
    /// Stride from one segment to the next, 0 if it has no segments.
    pub(crate) segment: usize,
}

/// How the components of a companion that belong to one load are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CompanionAccess {
    /// There is no such companion.
    None,
    /// All components are the same element.
    Same,
    /// All elements of the tile have the same one, along.
    OfTile,
    /// They are a vector in memory.
    Vector,
    /// They are read one by one.
    Elements,
    /// They are those of the second input, which have been read.
    Second,
    /// They are those of the second input, which are read again: all slices have the same, and
    /// units that hold a tile have better use for the registers.
    SecondAgain,
}

/// The offset in the input of a row-major index over `dims`, in vectors: all strides are multiples
/// of them. Compilers divide a stride once, and not the offset of each load.
#[cube]
pub(super) fn strided_vectors(
    dims: &Sequence<Dim>,
    index: usize,
    #[comptime] vector: usize,
) -> usize {
    let mut strides = Sequence::<usize>::new();
    #[unroll]
    for nth in 0..dims.len().comptime() {
        strides.push(dims.index(nth).stride / vector);
    }
    strided(dims, &strides, index)
}

/// The offset of a row-major index over `dims` with other strides.
#[cube]
pub(super) fn strided(dims: &Sequence<Dim>, strides: &Sequence<usize>, index: usize) -> usize {
    let rank = dims.len().comptime();
    let mut rest = index;
    let mut offset = 0usize;
    #[unroll]
    for i in 0..rank {
        let nth = comptime![rank - 1 - i];
        let dim = dims.index(nth);
        let stride = *strides.index(nth);
        if comptime![i + 1 < rank] {
            let (outer, coordinate) = dim.extent.div_mod(rest);
            offset += coordinate * stride;
            rest = outer;
        } else {
            offset += rest * stride;
        }
    }
    offset
}
