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
        ElementType::F8E4M3 => bytes.iter().map(|&bits| f8_e4m3(bits)).collect(),
        // Its bits are the upper half of a binary16.
        ElementType::F8E5M2 => bytes.iter().map(|&bits| half(u16::from(bits) << 8)).collect(),
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

/// The number of 8 bits of OCP's E4M3. It has no infinity, and its largest exponent is one of
/// numbers but for NaN.
fn f8_e4m3(bits: u8) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 3 & 15), f64::from(bits & 7) / 8.0);
    let magnitude = match (exponent, bits & 7) {
        (0, _) => fraction * 2f64.powi(-6),
        (15, 7) => f64::NAN,
        _ => (1.0 + fraction) * 2f64.powi(exponent - 7),
    };
    if bits >> 7 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::{decode, f8_e4m3, half};
    use reduce_planner::ElementType;

    /// Protects the widening of narrow floating point: all of f16 and of fp8, and a bf16.
    #[test]
    fn narrow_floats() {
        for bits in 0..=u16::MAX {
            let (found, expected) = (half(bits), ::half::f16::from_bits(bits).to_f64());
            assert!(found == expected || (found.is_nan() && expected.is_nan()), "{bits:#x}");
        }
        let same =
            |found: f64, expected: f64| found == expected || (found.is_nan() && expected.is_nan());
        for bits in 0..=u8::MAX {
            let expected = cubecl::e4m3::from_bits(bits).to_f64();
            assert!(same(f8_e4m3(bits), expected), "{bits:#x}");
            let expected = cubecl::e5m2::from_bits(bits).to_f64();
            assert!(same(decode(ElementType::F8E5M2, &[bits])[0], expected), "{bits:#x}");
        }
        let bytes = ::half::bf16::from_f32(-1.5).to_le_bytes();
        assert_eq!(decode(ElementType::BF16, &bytes), [-1.5]);
    }
}
