//! The rules that choose the element types of a reduction.

use reduce_planner::ElementType;

/// The input of a [`TypeRule`]: the type of the elements, and what the caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct TypeRequest {
    /// Type of the input's elements.
    pub input: ElementType,
    /// The accumulator type that the caller asked for, if any.
    pub accumulator: Option<ElementType>,
    /// For each result, the type that the caller asked for, if any.
    pub outputs: [Option<ElementType>; 3],
    /// Number of elements per output. Indices and counts must be able to hold it.
    pub reduction_len: usize,
}

impl TypeRequest {
    /// A request for an input type with the default accumulator and outputs. `reduction_len` is 0.
    pub const fn of(input: ElementType) -> Self {
        Self { input, accumulator: None, outputs: [None; 3], reduction_len: 0 }
    }
}

/// The element types of one reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    /// Type of the elements that are pushed: 32 or 64 bits wide.
    pub value: ElementType,
    /// Types of the accumulator's fields. Entries beyond the operator's last field are not used.
    pub fields: [ElementType; 5],
    /// Types of the results. Entries beyond the operator's last result are not used.
    pub results: [ElementType; 3],
}

impl Signature {
    /// A signature that pushes elements as `value`, and uses `field` for every accumulator field
    /// and `result` for every result.
    pub const fn one(value: ElementType, field: ElementType, result: ElementType) -> Self {
        Self { value, fields: [field; 5], results: [result; 3] }
    }

    /// Replaces the types of the second accumulator field and all later ones.
    pub const fn second(self, field: ElementType) -> Self {
        Self { fields: [self.fields[0], field, field, field, field], ..self }
    }

    /// Replaces the types of the second result and all later ones.
    pub const fn second_result(self, result: ElementType) -> Self {
        Self { results: [self.results[0], result, result], ..self }
    }
}

/// Chooses the types of a reduction. `None` refuses the request; the reduction then returns
/// an error of [`ErrorKind::Type`](crate::ErrorKind::Type).
pub type TypeRule = fn(&TypeRequest) -> Option<Signature>;

/// The type rules of this crate's operators, for use in your own.
pub mod rules {
    use super::{ElementType, Signature, TypeRequest};
    use ElementType::{
        BF16, Bool, F8E4M3, F8E5M2, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64,
    };

    /// The rule of sums and products.
    ///
    /// - Floating point: fp8, f16, bf16 and f32 accumulate in f32, f64 in f64. The output has the
    ///   input's type, but f32 for fp8. A caller can ask for an accumulator of f32 or f64, and for
    ///   any floating point output. An output of f64 accumulates in f64, unless the caller asks for
    ///   f32.
    /// - Integers and bools accumulate modulo 2^32, 64-bit integers modulo 2^64. The output has the
    ///   input's type, but i32 or u32 for narrower integers and u32 for bools. If a caller asks for
    ///   64 bits of either the accumulator or the output, the other gets 64 bits too. A caller can
    ///   also ask for an output that is narrower than the accumulator; it keeps the low bits. An
    ///   output of bool is refused.
    /// - Asking for a floating point accumulator or output of integers or bools accumulates in
    ///   floating point, as [`floating`] does.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::{TypeRequest, rules}};
    ///
    /// let types = rules::accumulate(&TypeRequest::of(ElementType::U8)).unwrap();
    /// assert_eq!(types.results[0], ElementType::U32);
    /// ```
    pub fn accumulate(request: &TypeRequest) -> Option<Signature> {
        let TypeRequest { input, accumulator, outputs: [output, ..], .. } = *request;
        let wants_float =
            [accumulator, output].into_iter().flatten().any(|wanted| wanted.is_float());
        if input.is_float() || wants_float { floating(request) } else { integers(request) }
    }

    /// Integers, in two's complement: the bits of a signed sum are those of the unsigned sum.
    /// Accumulators are unsigned, because every target language defines the overflow of unsigned
    /// additions. Elements are sign-extended first.
    fn integers(request: &TypeRequest) -> Option<Signature> {
        let TypeRequest { input, accumulator, outputs: [output, ..], .. } = *request;
        let is_wide = |element: ElementType| element.bytes() == 8;
        let wide = accumulator.or(output).is_some_and(is_wide)
            || output.is_some_and(is_wide)
            || is_wide(input);
        if [accumulator, output].contains(&Some(Bool))
            || accumulator.is_some_and(|asked| asked.bytes() < 4 || is_wide(asked) != wide)
        {
            return None;
        }
        let (value, field) = match (input.is_signed(), wide) {
            (true, false) => (I32, U32),
            (true, true) => (I64, U64),
            (false, false) => (U32, U32),
            (false, true) => (U64, U64),
        };
        Some(Signature::one(value, field, output.unwrap_or(value)))
    }

    /// The rule of means, variances and norms: accumulates in floating point.
    ///
    /// The accumulator is f64 if the input or a requested output is f64, otherwise f32; a caller
    /// can ask for either. The output has the input's type if that is floating point of more than 8
    /// bits, otherwise the accumulator's; a caller can ask for any floating point type.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::{TypeRequest, rules}};
    ///
    /// let types = rules::floating(&TypeRequest::of(ElementType::I32)).unwrap();
    /// assert_eq!(types.results[0], ElementType::F32);
    /// ```
    pub fn floating(request: &TypeRequest) -> Option<Signature> {
        let TypeRequest { input, accumulator, outputs, .. } = *request;
        let default = if input == F64 || outputs.contains(&Some(F64)) { F64 } else { F32 };
        let accumulator = accumulator.unwrap_or(default);
        let output = outputs[0].unwrap_or(computed(input, accumulator));
        let second = outputs[1].unwrap_or(output);
        let fits = matches!(accumulator, F32 | F64) && output.is_float() && second.is_float();
        let signature = Signature::one(accumulator, accumulator, output);
        fits.then(|| signature.second_result(second))
    }

    /// The rule of extrema: keeps values as they are.
    ///
    /// The accumulator has the input's type, or 32 bits for narrower inputs ([`held`]), and a
    /// caller can ask for no other. The output has the input's type. A caller can ask for any
    /// floating point type, for any integer type if the input is an integer or a bool, and for bool
    /// if the input is a bool.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::{TypeRequest, rules}};
    ///
    /// let types = rules::select(&TypeRequest::of(ElementType::F16)).unwrap();
    /// assert_eq!(types.results[0], ElementType::F16);
    /// ```
    pub fn select(request: &TypeRequest) -> Option<Signature> {
        let TypeRequest { input, accumulator, outputs, .. } = *request;
        let held = held(input);
        let output = outputs[0].unwrap_or(input);
        let second = outputs[1].unwrap_or(output);
        let converts = |to: ElementType| match to {
            Bool => input == Bool,
            _ => to.is_float() || !input.is_float(),
        };
        let fits = accumulator.is_none_or(|asked| asked == held);
        (fits && converts(output) && converts(second))
            .then(|| Signature::one(held, held, output).second_result(second))
    }

    /// The rule of positions.
    ///
    /// The accumulator holds a value as [`select`] does and, in its second field, an index of u32,
    /// or of u64 if one reduction has more elements than u32 counts. The output has the index's
    /// type. A caller can ask for i32, u32, i64 or u64, if the type holds every index.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::{TypeRequest, rules}};
    ///
    /// let types = rules::index(&TypeRequest::of(ElementType::F16)).unwrap();
    /// assert_eq!(types.results[0], ElementType::U32);
    /// ```
    pub fn index(request: &TypeRequest) -> Option<Signature> {
        let TypeRequest { input, accumulator, outputs: [output, ..], reduction_len } = *request;
        let held = held(input);
        let index = counting(reduction_len);
        let fits = accumulator.is_none_or(|asked| asked == held);
        let output = output.unwrap_or(index);
        (fits && counts(output, reduction_len))
            .then(|| Signature::one(held, held, output).second(index))
    }

    /// The rule of values with their positions. The first result is typed as [`select`] types it,
    /// the second as [`index`] does.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::{TypeRequest, rules}};
    ///
    /// let types = rules::value_and_index(&TypeRequest::of(ElementType::F16)).unwrap();
    /// assert_eq!(types.results[1], ElementType::U32);
    /// ```
    pub fn value_and_index(request: &TypeRequest) -> Option<Signature> {
        let [first, second, third] = request.outputs;
        let value = select(&TypeRequest { outputs: [first, None, None], ..*request })?;
        let indices = index(&TypeRequest { outputs: [second, second, third], ..*request })?;
        Some(indices).map(|signature| Signature {
            results: [value.results[0], indices.results[0], indices.results[0]],
            ..signature
        })
    }

    /// The rule of counts.
    ///
    /// The accumulator is u32, or u64 if one reduction has more elements than u32 counts; a caller
    /// can ask for u64. The output has the accumulator's type. A caller can ask for i32, u32, i64
    /// or u64, if the type holds the count, and for any floating point type.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::{TypeRequest, rules}};
    ///
    /// let types = rules::count(&TypeRequest::of(ElementType::F16)).unwrap();
    /// assert_eq!(types.results[0], ElementType::U32);
    /// ```
    pub fn count(request: &TypeRequest) -> Option<Signature> {
        let TypeRequest { input, accumulator, outputs: [output, ..], reduction_len } = *request;
        let field = accumulator.unwrap_or(counting(reduction_len));
        let output = output.unwrap_or(field);
        let fits = matches!(field, U32 | U64)
            && counts(field, reduction_len)
            && (output.is_float() || counts(output, reduction_len));
        fits.then(|| Signature::one(held(input), field, output))
    }

    /// The rule of truth values. The accumulator is u32. The output is bool; a caller can ask for
    /// any other type, and gets 0 and 1.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::{TypeRequest, rules}};
    ///
    /// let types = rules::truth(&TypeRequest::of(ElementType::F16)).unwrap();
    /// assert_eq!(types.results[0], ElementType::Bool);
    /// ```
    pub fn truth(request: &TypeRequest) -> Option<Signature> {
        let TypeRequest { input, accumulator, outputs: [output, ..], .. } = *request;
        let fits = accumulator.is_none_or(|asked| asked == U32);
        fits.then(|| Signature::one(held(input), U32, output.unwrap_or(Bool)))
    }

    /// The type that elements of two inputs are converted to before an operator of pairs takes
    /// them: that of both if they agree, the floating point type if one is of integers or bools,
    /// f32 for two that differ and have no 64 bits, and otherwise an integer type that holds both.
    /// Integers of 64 bits with floating point of less than 64 bits give f64. u64 with a signed
    /// type gives i64, which holds all but half of them.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::rules};
    ///
    /// assert_eq!(rules::common(ElementType::U8, ElementType::I8), ElementType::I16);
    /// ```
    pub fn common(first: ElementType, second: ElementType) -> ElementType {
        let wide = |element: ElementType| element.bytes() == 8;
        match (first, second) {
            _ if first == second => first,
            (Bool, other) | (other, Bool) => other,
            _ if first.is_float() && second.is_float() => {
                if wide(first) || wide(second) {
                    F64
                } else {
                    F32
                }
            }
            (float, integer) | (integer, float) if float.is_float() => {
                if wide(integer) {
                    F64
                } else {
                    float
                }
            }
            _ if first.is_signed() == second.is_signed() => {
                if first.bytes() > second.bytes() {
                    first
                } else {
                    second
                }
            }
            _ => {
                let (signed, unsigned) =
                    if first.is_signed() { (first, second) } else { (second, first) };
                match signed.bytes().max(2 * unsigned.bytes()) {
                    1 | 2 => I16,
                    4 => I32,
                    _ => I64,
                }
            }
        }
    }

    /// The type of a number that is computed from elements of `input` in the type `accumulator`, if
    /// the caller asks for none: that of the elements if it is a floating point type of 16 bits or
    /// more, and otherwise the accumulator's. A type of 8 bits has no room for sums.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::rules};
    ///
    /// assert_eq!(rules::computed(ElementType::F16, ElementType::F32), ElementType::F16);
    /// assert_eq!(rules::computed(ElementType::F8E4M3, ElementType::F32), ElementType::F32);
    /// ```
    pub fn computed(input: ElementType, accumulator: ElementType) -> ElementType {
        if input.is_float() && !input.is_f8() { input } else { accumulator }
    }

    /// The type in which values of `input` are compared: f32, i32 or u32 for types of at most 32
    /// bits, otherwise the type itself.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::rules};
    ///
    /// assert_eq!(rules::held(ElementType::BF16), ElementType::F32);
    /// ```
    pub fn held(input: ElementType) -> ElementType {
        match input {
            F8E4M3 | F8E5M2 | F16 | BF16 | F32 => F32,
            F64 => F64,
            I8 | I16 | I32 => I32,
            I64 => I64,
            U8 | U16 | U32 | Bool => U32,
            U64 => U64,
        }
    }

    /// The type that counts up to `len`: u32 if it can, otherwise u64.
    ///
    /// ```
    /// use reduce_kernels::{ElementType, operator::rules};
    ///
    /// assert_eq!(rules::counting(1 << 33), ElementType::U64);
    /// ```
    pub fn counting(len: usize) -> ElementType {
        if u32::try_from(len).is_ok() { U32 } else { U64 }
    }

    /// Whether `element` is an integer type that holds every number up to `len`.
    fn counts(element: ElementType, len: usize) -> bool {
        let len = len as u64;
        match element {
            U32 => len <= u64::from(u32::MAX),
            I32 => len <= i32::MAX as u64,
            I64 => len <= i64::MAX as u64,
            U64 => true,
            _ => false,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        fn request(input: ElementType, output: Option<ElementType>) -> TypeRequest {
            TypeRequest { outputs: [output, None, None], ..TypeRequest::of(input) }
        }

        fn accumulated(
            input: ElementType,
            accumulator: Option<ElementType>,
            output: Option<ElementType>,
        ) -> Option<(ElementType, ElementType, ElementType)> {
            let signature = accumulate(&TypeRequest { accumulator, ..request(input, output) })?;
            Some((signature.value, signature.fields[0], signature.results[0]))
        }

        /// docs/SEMANTICS.md on sums: accumulators and outputs by rule and by request.
        #[test]
        fn sums_accumulate_as_documented() {
            assert_eq!(accumulated(F16, None, None), Some((F32, F32, F16)));
            assert_eq!(accumulated(BF16, None, Some(F32)), Some((F32, F32, F32)));
            assert_eq!(accumulated(F8E5M2, None, None), Some((F32, F32, F32)));
            assert_eq!(accumulated(F8E4M3, None, Some(F8E4M3)), Some((F32, F32, F8E4M3)));
            assert_eq!(accumulated(F32, None, Some(F64)), Some((F64, F64, F64)));
            assert_eq!(accumulated(F32, Some(F64), None), Some((F64, F64, F32)));
            assert_eq!(accumulated(F64, Some(F32), None), Some((F32, F32, F64)));
            assert_eq!(accumulated(F32, None, Some(I32)), None);
            assert_eq!(accumulated(F32, Some(F16), None), None);
            assert_eq!(accumulated(I8, None, None), Some((I32, U32, I32)));
            assert_eq!(accumulated(U16, None, None), Some((U32, U32, U32)));
            assert_eq!(accumulated(Bool, None, None), Some((U32, U32, U32)));
            assert_eq!(accumulated(I32, None, None), Some((I32, U32, I32)));
            assert_eq!(accumulated(I32, Some(I64), None), Some((I64, U64, I64)));
            assert_eq!(accumulated(I32, None, Some(I64)), Some((I64, U64, I64)));
            assert_eq!(accumulated(U8, None, Some(U64)), Some((U64, U64, U64)));
            assert_eq!(accumulated(I64, None, None), Some((I64, U64, I64)));
            assert_eq!(accumulated(I64, Some(I32), None), None);
            assert_eq!(accumulated(I32, None, Some(F64)), Some((F64, F64, F64)));
            assert_eq!(accumulated(I32, Some(F32), None), Some((F32, F32, F32)));
            assert_eq!(accumulated(I32, Some(I16), None), None);
            assert_eq!(accumulated(U8, None, Some(Bool)), None);
        }

        /// docs/SEMANTICS.md on means and on what keeps values as they are.
        #[test]
        fn means_are_floating_point_and_extrema_keep_their_type() {
            let result = |signature: Option<Signature>| signature.map(|s| (s.value, s.results[0]));
            assert_eq!(result(floating(&request(I32, None))), Some((F32, F32)));
            assert_eq!(result(floating(&request(I64, Some(F64)))), Some((F64, F64)));
            assert_eq!(result(floating(&request(F16, None))), Some((F32, F16)));
            assert_eq!(result(floating(&request(F32, Some(U32)))), None);
            assert_eq!(result(select(&request(F16, None))), Some((F32, F16)));
            assert_eq!(result(select(&request(I8, None))), Some((I32, I8)));
            assert_eq!(result(select(&request(F8E4M3, None))), Some((F32, F8E4M3)));
            assert_eq!(result(select(&request(U64, Some(F64)))), Some((U64, F64)));
            assert_eq!(result(select(&request(F32, Some(I32)))), None);
            assert_eq!(result(select(&request(U8, Some(Bool)))), None);
            assert_eq!(result(truth(&request(F32, None))), Some((F32, Bool)));
            assert_eq!(result(truth(&request(I64, Some(U32)))), Some((I64, U32)));
        }

        /// Indices are u32, u64 on request or by need, and never too narrow.
        #[test]
        fn indices_have_room() {
            let index_of = |len: usize, output: Option<ElementType>| {
                let request = TypeRequest { reduction_len: len, ..request(F32, output) };
                index(&request).map(|signature| (signature.fields[1], signature.results[0]))
            };
            let many = 1usize << 32;
            assert_eq!(index_of(10, None), Some((U32, U32)));
            assert_eq!(index_of(10, Some(U64)), Some((U32, U64)));
            assert_eq!(index_of(many - 1, None), Some((U32, U32)));
            assert_eq!(index_of(many, None), Some((U64, U64)));
            assert_eq!(index_of(many, Some(U32)), None);
            assert_eq!(index_of(many, Some(I32)), None);
            assert_eq!(index_of(many, Some(I64)), Some((U64, I64)));
            assert_eq!(index_of(10, Some(U16)), None);
            let counted = |len| count(&TypeRequest { reduction_len: len, ..request(U8, None) });
            assert_eq!(counted(many).map(|signature| signature.results[0]), Some(U64));
            let both = value_and_index(&TypeRequest {
                outputs: [None, Some(U64), None],
                ..TypeRequest::of(F16)
            });
            assert_eq!(both.map(|signature| signature.results), Some([F16, U64, U64]));
        }
    }
}
