//! The element types.

use core::{fmt, str::FromStr};

/// The type of a tensor's elements, or of one field of an accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum ElementType {
    /// 8 bits of OCP, E4M3: 4 bits of exponent, 3 of fraction, up to 448. It has NaN and no
    /// infinity.
    F8E4M3,
    /// 8 bits of OCP, E5M2: 5 bits of exponent, 2 of fraction, up to 57344. It has infinities and
    /// NaN.
    F8E5M2,
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// Unsigned 16-bit integer.
    U16,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// A byte that is 0 or 1.
    Bool,
}

impl ElementType {
    /// Every element type: floating point, signed, unsigned, each narrow to wide; bool last.
    pub const ALL: [ElementType; 15] = [
        ElementType::F8E4M3,
        ElementType::F8E5M2,
        ElementType::F16,
        ElementType::BF16,
        ElementType::F32,
        ElementType::F64,
        ElementType::I8,
        ElementType::I16,
        ElementType::I32,
        ElementType::I64,
        ElementType::U8,
        ElementType::U16,
        ElementType::U32,
        ElementType::U64,
        ElementType::Bool,
    ];

    /// Size of one element in bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            ElementType::F8E4M3
            | ElementType::F8E5M2
            | ElementType::I8
            | ElementType::U8
            | ElementType::Bool => 1,
            ElementType::F16 | ElementType::BF16 | ElementType::I16 | ElementType::U16 => 2,
            ElementType::F32 | ElementType::I32 | ElementType::U32 => 4,
            ElementType::F64 | ElementType::I64 | ElementType::U64 => 8,
        }
    }

    /// Whether the type is a floating point type.
    #[must_use]
    pub const fn is_float(self) -> bool {
        matches!(self, ElementType::F16 | ElementType::BF16 | ElementType::F32 | ElementType::F64)
            || self.is_f8()
    }

    /// Whether the type is a floating point type of 8 bits.
    #[must_use]
    pub const fn is_f8(self) -> bool {
        matches!(self, ElementType::F8E4M3 | ElementType::F8E5M2)
    }

    /// Whether the type is a signed integer.
    #[must_use]
    pub const fn is_signed(self) -> bool {
        matches!(self, ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64)
    }

    /// The short name used in plans, messages and on command lines, such as `f32`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ElementType::F8E4M3 => "f8e4m3",
            ElementType::F8E5M2 => "f8e5m2",
            ElementType::F16 => "f16",
            ElementType::BF16 => "bf16",
            ElementType::F32 => "f32",
            ElementType::F64 => "f64",
            ElementType::I8 => "i8",
            ElementType::I16 => "i16",
            ElementType::I32 => "i32",
            ElementType::I64 => "i64",
            ElementType::U8 => "u8",
            ElementType::U16 => "u16",
            ElementType::U32 => "u32",
            ElementType::U64 => "u64",
            ElementType::Bool => "bool",
        }
    }

    /// The names of all element types, separated by commas.
    #[must_use]
    pub fn names() -> String {
        ElementType::ALL.map(ElementType::name).join(", ")
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is not the short name of an element type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown element type `{0}`: expected one of {names}", names = ElementType::names())]
pub struct UnknownElementType(String);

impl FromStr for ElementType {
    type Err = UnknownElementType;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        ElementType::ALL
            .into_iter()
            .find(|element| element.name() == name)
            .ok_or_else(|| UnknownElementType(name.to_owned()))
    }
}
