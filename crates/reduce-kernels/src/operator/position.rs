//! The positions of elements in their reduction.
#![allow(
    missing_docs,
    missing_debug_implementations,
    reason = "CubeCL's macros add items without documentation and types without Debug"
)]

use cubecl::prelude::*;

/// The positions of a vector's elements in their reduction.
///
/// Positions count in row-major order over the reduced axes, whatever the strides. Component `i`
/// has position `start + i * step`. Operators that do not use positions pay nothing for them,
/// because compilers drop what is not used.
#[derive(CubeType, CubeTypeMut, Clone, Copy, Debug)]
#[expand(derive(Clone, Copy))]
pub struct Position {
    /// Position of component 0.
    pub start: usize,
    /// Difference between the positions of neighbouring components; 0 if the components belong to
    /// different outputs.
    pub step: usize,
}

#[cube]
impl Position {
    /// The position of each component.
    pub fn components<I: Float, N: Size>(self) -> Vector<I, N> {
        let mut positions = Vector::<I, N>::empty();
        #[unroll]
        for nth in 0..N::value().comptime() {
            positions.insert(nth, I::cast_from(self.start + nth * self.step));
        }
        positions
    }
}
