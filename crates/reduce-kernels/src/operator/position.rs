//! Where an element stands in its reduction.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use cubecl::prelude::*;

/// Where the elements of a vector stand in the reduction.
///
/// Positions count in row-major order over the reduced axes, whatever the strides. Lane `i` stands
/// at `start + i * step`. Operators that ignore positions pay nothing for them: what is never used
/// is never computed.
#[derive(CubeType, Clone, Copy, Debug)]
pub struct Position {
    /// Position of lane 0.
    pub start: usize,
    /// Distance of neighbouring lanes; 0 where the lanes belong to different outputs.
    pub step: usize,
}

#[cube]
impl Position {
    /// The position of each lane.
    pub fn components<I: Float, N: Size>(self) -> Vector<I, N> {
        let mut lanes = Vector::<I, N>::empty();
        #[unroll]
        for lane in 0..N::value().comptime() {
            lanes[lane] = I::cast_from(self.start + lane * self.step);
        }
        lanes
    }
}
