//! Outputs in the types of their tensors.

use cubecl::{
    ir::{ElemType, IntKind, UIntKind},
    prelude::*,
};

use crate::operator::{Real, element_wise::constant, math::has_nan_bits};

/// A number of f32 without a fraction: 1.5 * 2^23.
const WHOLE: f32 = 12_582_912.0;

/// The same number, as `constant` takes it.
const WIDE_WHOLE: f64 = WHOLE as f64;

/// The integers of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Integers {
    is_signed: bool,
    bits: u32,
}

impl Integers {
    /// Those of a type, if it is an integer type.
    fn of(element: ElemType) -> Option<Self> {
        let (is_signed, bits) = match element {
            ElemType::Int(IntKind::I8) => (true, 8),
            ElemType::Int(IntKind::I16) => (true, 16),
            ElemType::Int(IntKind::I32) => (true, 32),
            ElemType::Int(IntKind::I64) => (true, 64),
            ElemType::UInt(UIntKind::U8) => (false, 8),
            ElemType::UInt(UIntKind::U16) => (false, 16),
            ElemType::UInt(UIntKind::U32) => (false, 32),
            ElemType::UInt(UIntKind::U64) => (false, 64),
            _ => return None,
        };
        Some(Self { is_signed, bits })
    }

    /// The least of them, which is exact in every floating point type.
    fn least(self) -> f64 {
        if self.is_signed { -2f64.powi(self.bits as i32 - 1) } else { 0.0 }
    }

    /// The power of 2 above the largest of them.
    fn above(self) -> f64 {
        2f64.powi(self.bits as i32 - i32::from(self.is_signed))
    }

    /// The largest number of f32 that none of them is below.
    fn most_in_f32(self) -> f32 {
        let above = self.above() as f32;
        if self.bits < 24 { above - 1.0 } else { above.next_down() }
    }

    /// The same of f64.
    fn most_in_f64(self) -> f64 {
        let above = self.above();
        if self.bits < 53 { above - 1.0 } else { above.next_down() }
    }
}

/// Values in the type of a tensor. Integers are the nearest ones, the even one of two that are as
/// near, and the least or the largest of their type if that is nearest; NaN becomes 0.
#[cube]
pub(super) fn converted<E: Float, N: Size>(value: Vector<Real, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let real = elem_type_of::<Real>();
    let integers = comptime![Integers::of(element)];
    match comptime![integers] {
        None => Vector::cast_from(value),
        Some(integers) => {
            let least = comptime![integers.least()];
            let least = Vector::new(constant::<Real>(least as f32, least));
            let above = comptime![integers.above()];
            let above = Vector::new(constant::<Real>(above as f32, above));
            let most = constant::<Real>(
                comptime![integers.most_in_f32()],
                comptime![integers.most_in_f64()],
            );
            let zero = Vector::<Real, N>::from_int(0);
            let number = select_many(has_nan_bits::<Real, N>(value), zero, value);
            let narrow = comptime![integers.bits <= 16 && real.size() == 4];
            if comptime![narrow] {
                // Numbers this large have no fraction, and this one's last 16 bits are 0: the sum
                // rounds, and its last bits are the integer. Fewer instructions than a rounding and
                // a conversion, which take four cycles each on NVIDIA's GPUs.
                let whole = Vector::new(constant::<Real>(WHOLE, WIDE_WHOLE));
                let sum = min(max(number, least), Vector::new(most)) + whole;
                Vector::<E, N>::cast_from(Vector::<i32, N>::reinterpret(sum))
            } else {
                let number = max(number, least).round();
                let inside = Vector::<E, N>::cast_from(min(number, Vector::new(most)));
                // Not every largest integer is a number of the type that is converted from.
                let is_above = number.greater_equal(&above);
                select_many(is_above, Vector::new(E::max_value()), inside)
            }
        }
    }
}
