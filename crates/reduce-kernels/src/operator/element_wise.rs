//! Functions of single elements for operators, of types that are known only when a kernel is built.
//! They use only constructs that the compilers of all backends translate faithfully.
#![allow(missing_docs, reason = "#[cube] adds an undocumented twin of each function")]

use core::ops::Not;

use cubecl::prelude::*;

/// Bits of the binary32 `+inf`.
const INFINITY_BITS: u32 = 0x7f80_0000;
/// Bits of the binary32 `-inf`.
const NEGATIVE_INFINITY_BITS: u32 = 0xff80_0000;
/// Bits of a quiet binary32 NaN.
const NAN_BITS: u32 = 0x7fc0_0000;

/// A value that is not above any other: `-inf`, or the minimum of an integer type.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::lowest};
///
/// #[cube]
/// fn start<E: Float, N: Size>() -> Vector<E, N> {
///     Vector::new(lowest::<E>())
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn lowest<E: Float>() -> E {
    let element = elem_type_of::<E>();
    if comptime![element.is_float()] {
        from_bits::<E>(NEGATIVE_INFINITY_BITS)
    } else {
        E::min_value()
    }
}

/// A value that is not below any other: `+inf`, or the maximum of an integer type.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::highest};
///
/// #[cube]
/// fn start<E: Float, N: Size>() -> Vector<E, N> {
///     Vector::new(highest::<E>())
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn highest<E: Float>() -> E {
    let element = elem_type_of::<E>();
    if comptime![element.is_float()] { from_bits::<E>(INFINITY_BITS) } else { E::max_value() }
}

/// NaN, or the minimum of an integer type.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::nan_or_lowest};
///
/// #[cube]
/// fn start<E: Float, N: Size>() -> Vector<E, N> {
///     Vector::new(nan_or_lowest::<E>())
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn nan_or_lowest<E: Float>() -> E {
    let element = elem_type_of::<E>();
    if comptime![element.is_float()] { from_bits::<E>(NAN_BITS) } else { E::min_value() }
}

/// NaN, or the maximum of an integer type.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::nan_or_highest};
///
/// #[cube]
/// fn start<E: Float, N: Size>() -> Vector<E, N> {
///     Vector::new(nan_or_highest::<E>())
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn nan_or_highest<E: Float>() -> E {
    let element = elem_type_of::<E>();
    if comptime![element.is_float()] { from_bits::<E>(NAN_BITS) } else { E::max_value() }
}

/// The float with these binary32 bits. WGSL rejects constant expressions that are not finite, so
/// the bits are added to a value that is known only at run time: `UNIT_POS_Z`, which is 0 because
/// every cube of this crate has one unit along z.
#[cube]
fn from_bits<E: Float>(#[comptime] bits: u32) -> E {
    E::cast_from(f32::reinterpret(UNIT_POS_Z + bits))
}

/// Whether each component is NaN. Integers never are.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::is_nan};
///
/// #[cube]
/// fn number_or_zero<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
///     select_many(is_nan::<E, N>(value), Vector::from_int(0), value)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn is_nan<E: Float, N: Size>(value: Vector<E, N>) -> Vector<bool, N> {
    let element = elem_type_of::<E>();
    if comptime![element.is_float()] { value.is_nan() } else { Vector::new(false) }
}

/// Whether each component is finite: neither infinite nor NaN.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::is_finite};
///
/// #[cube]
/// fn finite_or_zero<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
///     select_many(is_finite::<E, N>(value), value, Vector::from_int(0))
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn is_finite<E: Float, N: Size>(value: Vector<E, N>) -> Vector<bool, N> {
    value.abs().less_equal(&Vector::new(E::max_value()))
}

/// `condition`, but true in the components where `value` is NaN.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::or_nan};
///
/// #[cube]
/// fn is_positive_or_nan<E: Float, N: Size>(value: Vector<E, N>) -> Vector<bool, N> {
///     or_nan::<E, N>(value.greater_than(&Vector::from_int(0)), value)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn or_nan<E: Float, N: Size>(
    condition: Vector<bool, N>,
    value: Vector<E, N>,
) -> Vector<bool, N> {
    let element = elem_type_of::<E>();
    if comptime![element.is_float()] { condition.or(is_nan::<E, N>(value)) } else { condition }
}

/// `condition`, but false in the components where `value` is NaN.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::and_not_nan};
///
/// #[cube]
/// fn is_not_one_nor_nan<E: Float, N: Size>(value: Vector<E, N>) -> Vector<bool, N> {
///     and_not_nan::<E, N>(value.not_equal(&Vector::from_int(1)), value)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn and_not_nan<E: Float, N: Size>(
    condition: Vector<bool, N>,
    value: Vector<E, N>,
) -> Vector<bool, N> {
    let element = elem_type_of::<E>();
    if comptime![element.is_float()] {
        condition.vec_and(is_nan::<E, N>(value).not())
    } else {
        condition
    }
}

/// `value`, but `other` in the components where `value` is NaN.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::unless_nan};
///
/// #[cube]
/// fn number_or_one<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
///     unless_nan::<E, N>(value, Vector::from_int(1))
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn unless_nan<E: Float, N: Size>(value: Vector<E, N>, other: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    if comptime![element.is_float()] {
        select_many(is_nan::<E, N>(value), other, value)
    } else {
        value
    }
}

/// The magnitude of each component. The minimum of a signed integer type has no magnitude in that
/// type and stays as it is.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::magnitude};
///
/// #[cube]
/// fn distance<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
///     magnitude::<E, N>(left - right)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn magnitude<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    if comptime![element.is_unsigned_int()] {
        value
    } else if comptime![!element.is_float() || element.size() == 8] {
        // LLVM 23 crashes for NVIDIA's GPUs where it simplifies CubeCL 0.11.3's magnitude of a
        // signed integer, and where it compiles sums of `llvm.fabs.v2f64`, of which it makes pairs
        // of single magnitudes too. A comparison with 0 was rejected: Mesa's software adapter gives
        // the element itself for an i32 that became an i64. A zero keeps its sign here, which no
        // sum shows.
        let negative = -value;
        select_many(negative.greater_than(&value), negative, value)
    } else {
        value.abs()
    }
}

/// 1 in the components that are not zero, including NaN, otherwise 0.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::is_nonzero};
///
/// #[cube]
/// fn counted<E: Float, N: Size>(count: Vector<f32, N>, value: Vector<E, N>) -> Vector<f32, N> {
///     count + is_nonzero::<E, f32, N>(value)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn is_nonzero<E: Float, U: Float, N: Size>(value: Vector<E, N>) -> Vector<U, N> {
    let nonzero = value.not_equal(&Vector::from_int(0));
    select_many(or_nan::<E, N>(nonzero, value), Vector::from_int(1), Vector::from_int(0))
}

/// A constant of type `E`: `wide` for types of 64 bits, otherwise `narrow`. It serves bounds that
/// depend on the range of the type.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::element_wise::constant};
///
/// #[cube]
/// fn is_tiny<E: Float, N: Size>(value: Vector<E, N>) -> Vector<bool, N> {
///     value.less_than(&Vector::new(constant::<E>(1e-30, 1e-300)))
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn constant<E: Float>(#[comptime] narrow: f32, #[comptime] wide: f64) -> E {
    let element = elem_type_of::<E>();
    if comptime![element.size() == 8] { E::cast_from(wide) } else { E::new(narrow) }
}
