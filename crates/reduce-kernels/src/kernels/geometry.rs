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

/// One dimension with the distance of its neighbours in the input (`stride`) and in what they lead to
/// (`target`): the output for kept dimensions, the reduction's row-major order for reduced ones.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Dim {
    pub(crate) extent: Divisor,
    pub(crate) stride: usize,
    pub(crate) target: usize,
}

/// A problem as its kernels see it. The innermost dimension in the direction of the access stands
/// apart from the others: the last reduced one `Along`, the last kept one `Across`.
#[derive(CubeType, CubeLaunch)]
pub(crate) struct Geometry {
    /// Kept dimensions from the outermost in, without the innermost if it stands apart.
    pub(crate) kept: Sequence<Dim>,
    /// Reduced dimensions likewise.
    pub(crate) reduced: Sequence<Dim>,
    /// The innermost dimension: elements of a run.
    pub(crate) run: usize,
    pub(crate) run_stride: usize,
    pub(crate) run_target: usize,
    /// Loads that cover a run: whole vectors `Along`, all columns `Across`.
    pub(crate) loads: Divisor,
    /// Runs of a reduction (`Along`).
    pub(crate) runs: usize,
    /// Outputs (`Along`) or vectors of outputs (`Across`).
    pub(crate) groups: usize,
    /// Loads of one group, edges aside.
    pub(crate) steps: usize,
    /// Number of outputs.
    pub(crate) outputs: usize,
    /// Elements that go into one output.
    pub(crate) reduction_len: usize,
}

/// Two offsets found together.
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Offsets {
    pub(crate) stride: usize,
    pub(crate) target: usize,
}

/// The offsets of a row-major index over `dims`.
#[cube]
pub(crate) fn offsets(dims: &Sequence<Dim>, index: usize) -> Offsets {
    let rank = dims.len().comptime();
    let mut rest = index;
    let mut stride = 0usize;
    let mut target = 0usize;
    #[unroll]
    for i in 0..rank {
        let dim = dims.index(comptime![rank - 1 - i]);
        if comptime![i + 1 < rank] {
            let (outer, coordinate) = dim.extent.div_mod(rest);
            stride += coordinate * dim.stride;
            target += coordinate * dim.target;
            rest = outer;
        } else {
            stride += rest * dim.stride;
            target += rest * dim.target;
        }
    }
    Offsets { stride, target }
}

/// The work of one output (`Along`), or of one vector of neighbouring outputs (`Across`).
#[derive(CubeType, Clone, Copy)]
pub(crate) struct Group {
    /// Offset of its first element in the input.
    pub(crate) input: usize,
    /// Offset of its first result in the output.
    pub(crate) output: usize,
    /// Number of its first result in row-major order over the canonical kept dimensions.
    pub(crate) index: usize,
    /// Results it has: 1 `Along`, the lanes inside the row `Across`, 0 past the last group.
    pub(crate) results: u32,
}

/// Locates a group. One past the last repeats the last one's loads and has no results, so that
/// all units of a cube stay together.
#[cube]
pub(crate) fn locate(geometry: &Geometry, number: usize, #[comptime] access: Access) -> Group {
    let group = clamp_max(number, geometry.groups - 1);
    let inside = number < geometry.groups;
    match comptime![access.direction] {
        Direction::Along => {
            let at = offsets(&geometry.kept, group);
            Group {
                input: at.stride,
                output: at.target,
                index: group,
                results: u32::cast_from(inside),
            }
        }
        Direction::Across => {
            let vector = comptime![access.vector];
            let (row, load) = geometry.loads.div_mod(group);
            let column = load * vector;
            let at = offsets(&geometry.kept, row);
            let rest = geometry.run - column;
            let lanes = comptime![vector as u32];
            let lanes = select(rest < vector, u32::cast_from(rest), lanes);
            Group {
                input: at.stride + column * geometry.run_stride,
                output: at.target + column * geometry.run_target,
                index: row * geometry.run + column,
                results: select(inside, lanes, 0u32),
            }
        }
    }
}
