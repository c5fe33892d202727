//! The element types of one kernel, and the rules that choose them.

use cubecl::prelude::*;
use reduce_planner::ElementType;

/// The element types that one kernel works with.
///
/// Implemented for the tuple `(In, A, B, C, Out)`. Fields that an accumulator does not have are
/// never loaded or stored.
pub trait Types: Copy + Send + Sync + 'static {
    /// Type of the input's elements.
    type In: Float;
    /// Type of an accumulator's first field.
    type A: Float;
    /// Type of an accumulator's second field.
    type B: Float;
    /// Type of an accumulator's third field.
    type C: Float;
    /// Type of the results.
    type Out: Float;
}

impl<In: Float, A: Float, B: Float, C: Float, Out: Float> Types for (In, A, B, C, Out) {
    type In = In;
    type A = A;
    type B = B;
    type C = C;
    type Out = Out;
}

/// The accumulator and output types of one reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    /// Types of the accumulator's fields; those beyond its last field stand idle.
    pub fields: [ElementType; 3],
    /// Type of the results.
    pub output: ElementType,
}

impl Signature {
    /// An accumulator of one field.
    pub const fn one(field: ElementType, output: ElementType) -> Self {
        Self { fields: [field; 3], output }
    }

    /// An accumulator of two fields.
    pub const fn two(first: ElementType, second: ElementType, output: ElementType) -> Self {
        Self { fields: [first, second, second], output }
    }

    /// An accumulator of three fields.
    pub const fn three(fields: [ElementType; 3], output: ElementType) -> Self {
        Self { fields, output }
    }
}

/// Chooses the types for an input type and, where the caller asked for one, an output type.
/// `None` refuses the pair.
pub type TypeRule = fn(input: ElementType, output: Option<ElementType>) -> Option<Signature>;

/// The rules of the crate's operators, for others to use.
pub mod rules {
    use super::{ElementType, Signature};
    use ElementType::{F32, F64, I32, U32};

    /// Accumulates as sums do: f16, bf16 and f32 in f32, f64 in f64, integers modulo 2^32. The
    /// output is of the input's type unless asked otherwise; asking for f64 accumulates in f64, and
    /// asking for a floating point output of integers accumulates in floating point.
    pub fn accumulate(input: ElementType, output: Option<ElementType>) -> Option<Signature> {
        let output = output.unwrap_or(input);
        match (input.is_float(), output.is_float()) {
            (_, true) => Some(Signature::one(wider_float(input, output), output)),
            // Two's complement: the bits of the signed sum are those of the unsigned one, whose
            // overflow is defined in every target language.
            (false, false) => Some(Signature::one(U32, output)),
            (true, false) => None,
        }
    }

    /// Accumulates in floating point: f64 if the input or the requested output is f64, else f32.
    /// The output is of the input's type if that is floating point, else f32.
    pub fn floating(input: ElementType, output: Option<ElementType>) -> Option<Signature> {
        let output = output.unwrap_or(if input.is_float() { input } else { F32 });
        output.is_float().then(|| Signature::one(wider_float(input, output), output))
    }

    /// Keeps values as they are: f16 and bf16 held in f32, others in their own type. Any output
    /// type that the values convert to, but no integers of floating point values.
    pub fn select(input: ElementType, output: Option<ElementType>) -> Option<Signature> {
        let output = output.unwrap_or(input);
        let held = match input {
            F64 | I32 | U32 => input,
            _ => F32,
        };
        (output.is_float() || !input.is_float()).then(|| Signature::one(held, output))
    }

    fn wider_float(input: ElementType, output: ElementType) -> ElementType {
        if input == F64 || output == F64 { F64 } else { F32 }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use ElementType::{BF16, F16};

        /// The contract of docs/SEMANTICS.md on accumulator and output types.
        #[test]
        fn types_follow_the_documented_rules() {
            assert_eq!(accumulate(F16, None), Some(Signature::one(F32, F16)));
            assert_eq!(accumulate(BF16, Some(F32)), Some(Signature::one(F32, F32)));
            assert_eq!(accumulate(F32, Some(F64)), Some(Signature::one(F64, F64)));
            assert_eq!(accumulate(I32, None), Some(Signature::one(U32, I32)));
            assert_eq!(accumulate(I32, Some(F64)), Some(Signature::one(F64, F64)));
            assert_eq!(accumulate(F32, Some(I32)), None);
            assert_eq!(floating(I32, None), Some(Signature::one(F32, F32)));
            assert_eq!(floating(U32, Some(F64)), Some(Signature::one(F64, F64)));
            assert_eq!(floating(F64, None), Some(Signature::one(F64, F64)));
            assert_eq!(floating(F32, Some(U32)), None);
            assert_eq!(select(F16, None), Some(Signature::one(F32, F16)));
            assert_eq!(select(I32, None), Some(Signature::one(I32, I32)));
            assert_eq!(select(F32, Some(I32)), None);
        }
    }
}
