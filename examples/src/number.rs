//! Numbers of any element type.

use std::fmt;

use half::{bf16, f16};
use reduce_kernels::{
    ElementType,
    cubecl::{e4m3, e5m2},
};
use serde::{Serialize, Serializer};

/// An element's value, exactly: f64 does not hold every 64-bit integer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An element of a floating point type.
    Float(f64),
    /// An element of a signed integer type.
    Signed(i64),
    /// An element of an unsigned integer type.
    Unsigned(u64),
    /// A truth value.
    Bool(bool),
}

impl Number {
    /// The elements that `bytes` hold in this machine's byte order.
    pub fn list(element: ElementType, bytes: &[u8]) -> Vec<Self> {
        fn all<T: bytemuck::Pod>(bytes: &[u8], number: impl Fn(T) -> Number) -> Vec<Number> {
            bytemuck::pod_collect_to_vec::<u8, T>(bytes).into_iter().map(number).collect()
        }
        match element {
            ElementType::F8E4M3 => {
                all(bytes, |value: u8| Self::Float(e4m3::from_bits(value).to_f64()))
            }
            ElementType::F8E5M2 => {
                all(bytes, |value: u8| Self::Float(e5m2::from_bits(value).to_f64()))
            }
            ElementType::F16 => all(bytes, |value: f16| Self::Float(value.to_f64())),
            ElementType::BF16 => all(bytes, |value: bf16| Self::Float(value.to_f64())),
            ElementType::F32 => all(bytes, |value: f32| Self::Float(value.into())),
            ElementType::F64 => all(bytes, Self::Float),
            ElementType::I8 => all(bytes, |value: i8| Self::Signed(value.into())),
            ElementType::I16 => all(bytes, |value: i16| Self::Signed(value.into())),
            ElementType::I32 => all(bytes, |value: i32| Self::Signed(value.into())),
            ElementType::I64 => all(bytes, Self::Signed),
            ElementType::U8 => all(bytes, |value: u8| Self::Unsigned(value.into())),
            ElementType::U16 => all(bytes, |value: u16| Self::Unsigned(value.into())),
            ElementType::U32 => all(bytes, |value: u32| Self::Unsigned(value.into())),
            ElementType::U64 => all(bytes, Self::Unsigned),
            ElementType::Bool => all(bytes, |value: u8| Self::Bool(value != 0)),
        }
    }

    /// The nearest f64.
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Float(value) => value,
            Self::Signed(value) => value as f64,
            Self::Unsigned(value) => value as f64,
            Self::Bool(value) => f64::from(u8::from(value)),
        }
    }

    /// The magnitude, including that of the minimum of a signed integer type.
    pub fn magnitude(self) -> Self {
        match self {
            Self::Float(value) => Self::Float(value.abs()),
            Self::Signed(value) => Self::Unsigned(value.unsigned_abs()),
            other => other,
        }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(value) => value.fmt(f),
            Self::Signed(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Bool(value) => value.fmt(f),
        }
    }
}

/// A number as JSON. A number that is not finite becomes a string.
impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Float(value) if value.is_finite() => serializer.serialize_f64(value),
            Self::Float(value) => serializer.serialize_str(&value.to_string()),
            Self::Signed(value) => serializer.serialize_i64(value),
            Self::Unsigned(value) => serializer.serialize_u64(value),
            Self::Bool(value) => serializer.serialize_bool(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Integers beyond 2^53 stay what they are, in words and in JSON.
    #[test]
    fn integers_of_64_bits_are_exact() {
        let bytes: Vec<u8> = [i64::MIN, i64::MAX].iter().flat_map(|v| v.to_ne_bytes()).collect();
        let signed = Number::list(ElementType::I64, &bytes);
        assert_eq!(
            serde_json::to_string(&signed).unwrap(),
            "[-9223372036854775808,9223372036854775807]"
        );
        assert_eq!(signed[0].magnitude(), Number::Unsigned(1 << 63));
        let unsigned = Number::list(ElementType::U64, &u64::MAX.to_ne_bytes());
        assert_eq!(unsigned[0].to_string(), "18446744073709551615");
    }

    /// JSON has neither NaN nor infinities, and bools are bools.
    #[test]
    fn json_holds_what_is_no_number() {
        let bytes: Vec<u8> =
            [f32::NAN, f32::NEG_INFINITY, 0.5].iter().flat_map(|v| v.to_ne_bytes()).collect();
        let floats = Number::list(ElementType::F32, &bytes);
        assert_eq!(serde_json::to_string(&floats).unwrap(), r#"["NaN","-inf",0.5]"#);
        let bools = Number::list(ElementType::Bool, &[0, 1]);
        assert_eq!(serde_json::to_string(&bools).unwrap(), "[false,true]");
    }
}
