//! Decodes the elements of a buffer to numbers.

use reduce_planner::ElementType;

/// The elements in `bytes`. Integers beyond 2⁵³ are rounded.
pub(super) fn decode(element: ElementType, bytes: &[u8]) -> Vec<f64> {
    macro_rules! numbers {
        ($type:ty) => {
            bytes.as_chunks().0.iter().map(|&of| <$type>::from_le_bytes(of) as f64).collect()
        };
    }
    match element {
        ElementType::F16 => {
            bytes.as_chunks().0.iter().map(|&of| half(u16::from_le_bytes(of))).collect()
        }
        ElementType::BF16 => {
            let wide = |of| f32::from_bits(u32::from(u16::from_le_bytes(of)) << 16);
            bytes.as_chunks().0.iter().map(|&of| f64::from(wide(of))).collect()
        }
        ElementType::F32 => numbers!(f32),
        ElementType::F64 => numbers!(f64),
        ElementType::I8 => numbers!(i8),
        ElementType::I16 => numbers!(i16),
        ElementType::I32 => numbers!(i32),
        ElementType::I64 => numbers!(i64),
        ElementType::U8 | ElementType::Bool => numbers!(u8),
        ElementType::U16 => numbers!(u16),
        ElementType::U32 => numbers!(u32),
        ElementType::U64 => numbers!(u64),
    }
}

/// The binary16 with these bits.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::{decode, half};
    use reduce_planner::ElementType;

    /// Protects the widening of 16-bit floating point: all of f16, and a bf16.
    #[test]
    fn sixteen_bits() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (half(bits), ::half::f16::from_bits(bits).to_f64());
            assert!(found == expected || (found.is_nan() && expected.is_nan()), "{bits:#x}");
        }
        let bytes = ::half::bf16::from_f32(-1.5).to_le_bytes();
        assert_eq!(decode(ElementType::BF16, &bytes), [-1.5]);
    }
}
