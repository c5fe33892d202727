//! The conversion of loaded elements to the type in which they are pushed.

use cubecl::{
    ir::{ElemType, FloatKind},
    prelude::*,
};

use crate::operator::{HardwareMath, In};

/// Loaded elements in the type in which they are pushed.
///
/// A bf16 is the upper half of an f32. NVRTC takes one instruction for the lower of two that share
/// a word, and two for the upper: it moves that down and then up. Here it stays where it is.
#[cube]
pub(super) fn as_pushed<E: Scalar, N: Size>(value: Vector<E, N>) -> Vector<In, N> {
    let stored = elem_type_of::<E>();
    let pushed = elem_type_of::<In>();
    let by_nvrtc = HardwareMath::value().comptime() == 2;
    let halves = comptime![
        by_nvrtc
            && stored == ElemType::Float(FloatKind::BF16)
            && pushed == ElemType::Float(FloatKind::F32)
    ];
    let width = N::value().comptime();
    if comptime![halves && width == 8] {
        of_words::<E, N, Const<4>>(value)
    } else if comptime![halves && width == 4] {
        of_words::<E, N, Const<2>>(value)
    } else if comptime![halves && width == 2] {
        of_words::<E, N, Const<1>>(value)
    } else {
        Vector::cast_from(value)
    }
}

/// Elements of bf16 of which two share each of `W` words.
#[cube]
fn of_words<E: Scalar, N: Size, W: Size>(value: Vector<E, N>) -> Vector<In, N> {
    let words = Vector::<u32, W>::reinterpret(value);
    let mut wide = Vector::<f32, N>::empty();
    #[unroll]
    for nth in 0..W::value() {
        let word = words.extract(nth);
        wide.insert(2 * nth, f32::reinterpret(word << 16u32));
        wide.insert(2 * nth + 1, f32::reinterpret(word & 0xffff_0000u32));
    }
    Vector::cast_from(wide)
}
