//! Arithmetic with the same bits on every device, in kernels of reproducible reductions.
//!
//! Additions and products of f32 and f64 are rounded alike everywhere, with three exceptions. A
//! device may take denormal numbers for 0. Some compilers round a product and an addition together.
//! And quotients and square roots are rounded alike on few devices, so they are computed or
//! corrected here in integers. In other kernels all of these functions are the device's own
//! operations.
#![allow(missing_docs, reason = "#[cube] adds an undocumented twin of each function")]

use core::ops::Not;

use cubecl::{
    ir::{ElemType, FloatKind},
    prelude::*,
};

use super::{
    SameBits,
    element_wise::{constant, magnitude, nan_or_lowest},
};

/// Whether the kernel's results must have the same bits on every device.
#[cube]
pub(crate) fn has_same_bits() -> comptime_type!(bool) {
    let same = SameBits::value().comptime();
    comptime![same > 1]
}

/// The sum of two numbers. In reproducible kernels, it is 0 if its magnitude is below twice the
/// least normal number.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::same_bits::sum};
///
/// #[cube]
/// fn merged<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
///     sum::<E, N>(left, right)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn sum<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
    normal::<E, N>(left + right)
}

/// The product of two numbers. In reproducible kernels, it is 0 if its magnitude is below twice the
/// least normal number, and no compiler rounds it together with an addition.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::same_bits::product};
///
/// #[cube]
/// fn square<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
///     product::<E, N>(value, value)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn product<E: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<E, N> {
    // The selection is also what keeps compilers from a fused multiplication and addition.
    normal::<E, N>(left * right)
}

/// The number as it is, or 0 in reproducible kernels if its magnitude is below twice the least
/// normal number. Integers, f16 and bf16 stay as they are.
///
/// Devices agree on all other numbers. At the least normal number itself they need not: they may
/// decide before they round whether a product is denormal, or afterwards.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::same_bits::normal};
///
/// #[cube]
/// fn halved<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
///     normal::<E, N>(value * Vector::new(E::new(0.5)))
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn normal<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let asked = has_same_bits();
    if comptime![asked && element.is_float() && element.size() >= 4] {
        let least = Vector::new(constant::<E>(2f32.powi(-125), 2f64.powi(-1021)));
        let vanishes = magnitude::<E, N>(value).less_than(&least);
        select_many(vanishes, Vector::from_int(0), value)
    } else {
        value
    }
}

/// The quotient of a number and one that is 1 or more, or 0, which gives NaN. In reproducible
/// kernels it is rounded correctly, to the nearest and of two to the even one.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::same_bits::quotient};
///
/// #[cube]
/// fn mean<E: Float, N: Size>(sum: Vector<E, N>, count: Vector<E, N>) -> Vector<E, N> {
///     quotient::<E, N>(sum, count)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn quotient<E: Float, N: Size>(value: Vector<E, N>, divisor: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let asked = has_same_bits();
    if comptime![!asked || !is_binary(element)] {
        value / divisor
    } else {
        let quotient = if comptime![element.size() == 8] {
            let digits = quotient_bits::<u64, N>(bits_of_wide(value), bits_of_wide(divisor), WIDE);
            of_wide_bits::<E, N>(digits)
        } else {
            let digits = quotient_bits::<u32, N>(bits_of(value), bits_of(divisor), NARROW);
            of_bits::<E, N>(digits)
        };
        let nothing = divisor.equal(&Vector::from_int(0));
        select_many(nothing, Vector::new(nan_or_lowest::<E>()), normal::<E, N>(quotient))
    }
}

/// The square root of a number that is not negative. In reproducible kernels it is rounded
/// correctly, to the nearest.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::same_bits::square_root};
///
/// #[cube]
/// fn norm<E: Float, N: Size>(squares: Vector<E, N>) -> Vector<E, N> {
///     square_root::<E, N>(squares)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn square_root<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let asked = has_same_bits();
    if comptime![!asked || !is_binary(element)] {
        value.sqrt()
    } else if comptime![element.size() == 8] {
        of_wide_bits::<E, N>(root_bits::<u64, N>(bits_of_wide(value), WIDE))
    } else {
        of_bits::<E, N>(root_bits::<u32, N>(bits_of(value), NARROW))
    }
}

/// A number of elements below 2⁴⁸ as a floating point number, rounded to the nearest.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::same_bits::{of_count, quotient}};
///
/// #[cube]
/// fn mean<E: Float, N: Size>(sum: Vector<E, N>, count: usize) -> Vector<E, N> {
///     quotient::<E, N>(sum, of_count::<E, N>(count))
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn of_count<E: Float, N: Size>(count: usize) -> Vector<E, N> {
    let asked = has_same_bits();
    if comptime![!asked] {
        Vector::cast_from(count)
    } else {
        let high = Vector::cast_from(count >> 24usize);
        of_halves::<E, N>(high, Vector::cast_from(count & 0xff_ffffusize))
    }
}

/// [`of_count`] of numbers that the kernel has counted, of u32 or u64.
#[cube]
pub(crate) fn of_counted<C: Float, E: Float, N: Size>(count: Vector<C, N>) -> Vector<E, N> {
    let element = elem_type_of::<C>();
    let asked = has_same_bits();
    if comptime![!asked] {
        Vector::cast_from(count)
    } else if comptime![element.size() == 8] {
        let count = Vector::<u64, N>::cast_from(count);
        let high = Vector::cast_from(count >> number::<u64, N>(24u64));
        of_halves::<E, N>(high, Vector::cast_from(count & number::<u64, N>(0xff_ffffu64)))
    } else {
        let count = Vector::<u32, N>::cast_from(count);
        let high = Vector::cast_from(count >> number::<u32, N>(24u64));
        of_halves::<E, N>(high, Vector::cast_from(count & number::<u32, N>(0xff_ffffu64)))
    }
}

/// A number with these halves, of which the low one has 24 bits. How a conversion of all of them
/// rounds is up to the device. Both halves are exact, and so is the product.
#[cube]
fn of_halves<E: Float, N: Size>(high: Vector<E, N>, low: Vector<E, N>) -> Vector<E, N> {
    high * Vector::new(E::new(16_777_216.0)) + low
}

/// A number in the type of a result. In reproducible kernels, one of f32 becomes the nearest of
/// bf16, and of two the even one. SPIR-V leaves that to the device: NVIDIA's cuts the last bits off.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::same_bits::{converted, sum}};
///
/// #[cube]
/// fn result<E: Float, R: Float, N: Size>(left: Vector<E, N>, right: Vector<E, N>) -> Vector<R, N> {
///     converted::<E, R, N>(sum::<E, N>(left, right))
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn converted<E: Float, R: Float, N: Size>(value: Vector<E, N>) -> Vector<R, N> {
    let from = elem_type_of::<E>();
    let to = elem_type_of::<R>();
    let asked = has_same_bits();
    let short = comptime![asked && is_binary(from) && from.size() == 4 && is_bf16(to)];
    if comptime![short] {
        let bits = bits_of(value);
        let last = (bits >> number::<u32, N>(16u64)) & number::<u32, N>(1u64);
        let half = number::<u32, N>(0x7fffu64);
        let rounded = (bits + half + last) & number::<u32, N>(0xffff_0000u64);
        let size = magnitude_bits::<u32, N>(bits);
        let is_nan = size.greater_than(&infinity::<u32, N>(NARROW));
        Vector::cast_from(of_bits::<f32, N>(select_many(is_nan, bits, rounded)))
    } else {
        Vector::cast_from(value)
    }
}

/// A result as all devices store it in reproducible kernels: zeros without a sign and, in f32 and
/// f64, one bit pattern for NaN.
#[cube]
pub(crate) fn uniform<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let asked = has_same_bits();
    if comptime![!asked || !element.is_float()] {
        value
    } else if comptime![!is_binary(element)] {
        // NVIDIA's compiler for SPIR-V cannot compare numbers of bf16.
        let wide = Vector::<f32, N>::cast_from(value);
        let zero = Vector::from_int(0);
        Vector::cast_from(select_many(wide.equal(&zero), zero, wide))
    } else if comptime![element.size() == 8] {
        of_wide_bits::<E, N>(uniform_bits::<u64, N>(bits_of_wide(value), WIDE))
    } else {
        of_bits::<E, N>(uniform_bits::<u32, N>(bits_of(value), NARROW))
    }
}

fn is_bf16(element: ElemType) -> bool {
    matches!(element, ElemType::Float(FloatKind::BF16))
}

/// Whether the type is f32 or f64.
fn is_binary(element: ElemType) -> bool {
    matches!(element, ElemType::Float(FloatKind::F32 | FloatKind::F64))
}

/// The fields of a number in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Format {
    /// Bits of all fields.
    len: u32,
    /// Bits of the fraction.
    fraction: u32,
    /// The exponent of 1.
    bias: u32,
}

/// binary32.
const NARROW: Format = Format { len: 32, fraction: 23, bias: 127 };

/// binary64.
const WIDE: Format = Format { len: 64, fraction: 52, bias: 1023 };

#[cube]
fn bits_of<E: Float, N: Size>(value: Vector<E, N>) -> Vector<u32, N> {
    Vector::reinterpret(Vector::<f32, N>::cast_from(value))
}

#[cube]
fn of_bits<E: Float, N: Size>(bits: Vector<u32, N>) -> Vector<E, N> {
    Vector::cast_from(Vector::<f32, N>::reinterpret(bits))
}

#[cube]
fn bits_of_wide<E: Float, N: Size>(value: Vector<E, N>) -> Vector<u64, N> {
    Vector::reinterpret(Vector::<f64, N>::cast_from(value))
}

#[cube]
fn of_wide_bits<E: Float, N: Size>(bits: Vector<u64, N>) -> Vector<E, N> {
    Vector::cast_from(Vector::<f64, N>::reinterpret(bits))
}

#[cube]
fn number<U: Int, N: Size>(#[comptime] value: u64) -> Vector<U, N> {
    Vector::new(U::cast_from(value))
}

/// The bits without the sign.
#[cube]
fn magnitude_bits<U: Int, N: Size>(bits: Vector<U, N>) -> Vector<U, N> {
    let one = number::<U, N>(1u64);
    (bits << one) >> one
}

/// The bits of `+inf`.
#[cube]
fn infinity<U: Int, N: Size>(#[comptime] format: Format) -> Vector<U, N> {
    number::<U, N>(comptime![u64::from(2 * format.bias + 1) << format.fraction])
}

/// The significand of a normal number, whose leading bit is 1.
#[cube]
fn significand<U: Int, N: Size>(
    magnitude: Vector<U, N>,
    #[comptime] format: Format,
) -> Vector<U, N> {
    let leading = comptime![1u64 << format.fraction];
    (magnitude & number::<U, N>(comptime![leading - 1])) | number::<U, N>(leading)
}

/// The number with this biased exponent and these digits, rounded to the nearest, and of two to the
/// even one.
#[cube]
fn rounded<U: Int, N: Size>(
    exponent: Vector<U, N>,
    digits: Digits<U, N>,
    #[comptime] format: Format,
) -> Vector<U, N> {
    let one = number::<U, N>(1u64);
    let zero = number::<U, N>(0u64);
    let whole = digits.digits >> one;
    let sticky = select_many(digits.rest.equal(&zero), zero, one);
    let up = (digits.digits & one) & (sticky | (whole & one));
    // A carry out of the fraction goes into the exponent.
    let fraction = whole + up - number::<U, N>(comptime![1u64 << format.fraction]);
    (exponent << number::<U, N>(comptime![u64::from(format.fraction)])) + fraction
}

/// The bits of a quotient. The divisor is normal and not negative. A quotient below the normal
/// numbers is 0.
#[cube]
fn quotient_bits<U: Int, N: Size>(
    value: Vector<U, N>,
    divisor: Vector<U, N>,
    #[comptime] format: Format,
) -> Vector<U, N> {
    let one = number::<U, N>(1u64);
    let zero = number::<U, N>(0u64);
    let fraction = number::<U, N>(comptime![u64::from(format.fraction)]);
    let size = magnitude_bits::<U, N>(value);
    let sign = value - size;
    let by = significand::<U, N>(divisor, format);
    let own = significand::<U, N>(size, format);
    let is_less = own.less_than(&by);
    let own = select_many(is_less, own << one, own);
    let digits = if comptime![format.len == 32] {
        let own = Vector::<u32, N>::cast_from(own);
        cast_digits::<u32, U, N>(corrected_quotient::<N>(own, Vector::cast_from(by)))
    } else {
        long_division::<U, N>(own, by, format)
    };
    let above = (size >> fraction) + number::<U, N>(comptime![u64::from(format.bias)]);
    let below = (divisor >> fraction) + select_many(is_less, one, zero);
    let quotient = rounded::<U, N>(above - below, digits, format);
    let is_normal = above.greater_than(&below).vec_and(size.equal(&zero).not());
    let quotient = select_many(is_normal, quotient, zero);
    let is_finite = size.less_than(&infinity::<U, N>(format));
    select_many(is_finite, sign | quotient, value)
}

/// The digits of `own / by`, which is 1 or more and less than 2, one at a time.
#[cube]
fn long_division<U: Int, N: Size>(
    own: Vector<U, N>,
    by: Vector<U, N>,
    #[comptime] format: Format,
) -> Digits<U, N> {
    let one = number::<U, N>(1u64);
    let zero = number::<U, N>(0u64);
    let mut rest = own;
    let mut digits = zero;
    for _ in 0..comptime![format.fraction + 2] {
        let takes = rest.greater_equal(&by);
        digits = (digits << one) | select_many(takes, one, zero);
        rest = select_many(takes, rest - by, rest) << one;
    }
    Digits::of(digits, rest)
}

/// The digits of [`long_division`] in f32: the device's own quotient, which is off by a few units
/// in the last place, corrected by what remains of the dividend. With long division, means of 65536
/// rows of 1024 f32 took 68.1 us on one H200 where sums took 64.4.
#[cube]
fn corrected_quotient<N: Size>(own: Vector<u32, N>, by: Vector<u32, N>) -> Digits<u32, N> {
    let one = number::<u32, N>(1u64);
    let scale = number::<u32, N>(comptime![u64::from(NARROW.fraction)]);
    // Both are exact, and the quotient has as many digits as a significand before its point.
    let scaled = Vector::<f32, N>::cast_from(own) * Vector::new(8_388_608f32);
    let mut quotient = Vector::<u32, N>::cast_from(scaled / Vector::<f32, N>::cast_from(by));
    // Products and differences wrap, but what remains is small.
    let mut rest = (own << scale) - quotient * by;
    #[unroll]
    for _ in 0..4 {
        let below = is_negative::<N>(rest);
        quotient = select_many(below, quotient - one, quotient);
        rest = select_many(below, rest + by, rest);
    }
    #[unroll]
    for _ in 0..4 {
        let above = rest.greater_equal(&by);
        quotient = select_many(above, quotient + one, quotient);
        rest = select_many(above, rest - by, rest);
    }
    let twice = rest << one;
    let takes = twice.greater_equal(&by);
    let digits = (quotient << one) | select_many(takes, one, number::<u32, N>(0u64));
    Digits::of(digits, select_many(takes, twice - by, twice))
}

/// The bits of a square root.
#[cube]
fn root_bits<U: Int, N: Size>(value: Vector<U, N>, #[comptime] format: Format) -> Vector<U, N> {
    let one = number::<U, N>(1u64);
    let zero = number::<U, N>(0u64);
    let exponent = value >> number::<U, N>(comptime![u64::from(format.fraction)]);
    let own = significand::<U, N>(value, format);
    // An even power of two is left, because the exponents' bias is odd.
    let is_even = (exponent & one).equal(&zero);
    let own = select_many(is_even, own << one, own);
    let digits = if comptime![format.len == 32] {
        cast_digits::<u32, U, N>(corrected_root::<N>(Vector::cast_from(own)))
    } else {
        long_root::<U, N>(own, format)
    };
    let halved = (exponent + number::<U, N>(comptime![u64::from(format.bias)])) >> one;
    let root = rounded::<U, N>(halved, digits, format);
    let is_usual = value.equal(&zero).not().vec_and(value.less_than(&infinity::<U, N>(format)));
    select_many(is_usual, root, value)
}

/// The digits of a square root, one at a time.
#[cube]
fn long_root<U: Int, N: Size>(own: Vector<U, N>, #[comptime] format: Format) -> Digits<U, N> {
    let one = number::<U, N>(1u64);
    let two = number::<U, N>(2u64);
    let zero = number::<U, N>(0u64);
    // Each digit takes two more bits of the radicand, from the highest on.
    let mut radicand =
        own << number::<U, N>(comptime![u64::from(format.len - format.fraction - 2)]);
    let mut rest = zero;
    let mut digits = zero;
    for _ in 0..comptime![format.fraction + 2] {
        let pair = radicand >> number::<U, N>(comptime![u64::from(format.len - 2)]);
        radicand <<= two;
        rest = (rest << two) | pair;
        let subtrahend = (digits << two) | one;
        let takes = rest.greater_equal(&subtrahend);
        rest = select_many(takes, rest - subtrahend, rest);
        digits = (digits << one) | select_many(takes, one, zero);
    }
    Digits::of(digits, rest)
}

/// The digits of [`long_root`] in f32, from the device's own root, as in [`corrected_quotient`].
#[cube]
fn corrected_root<N: Size>(own: Vector<u32, N>) -> Digits<u32, N> {
    let one = number::<u32, N>(1u64);
    let zero = number::<u32, N>(0u64);
    let scale = number::<u32, N>(comptime![u64::from(NARROW.fraction)]);
    let scaled = Vector::<f32, N>::cast_from(own) * Vector::new(8_388_608f32);
    let mut root = Vector::<u32, N>::cast_from(scaled.sqrt());
    let mut rest = (own << scale) - root * root;
    #[unroll]
    for _ in 0..6 {
        let below = is_negative::<N>(rest);
        root = select_many(below, root - one, root);
        rest = select_many(below, rest + (root << one) + one, rest);
    }
    #[unroll]
    for _ in 0..6 {
        let above = rest.greater_than(&(root << one));
        rest = select_many(above, rest - (root << one) - one, rest);
        root = select_many(above, root + one, root);
    }
    // Half a unit more is nearer if the rest exceeds the root. No root lies halfway.
    let takes = rest.greater_than(&root);
    let digits = (root << one) | select_many(takes, one, zero);
    Digits::of(digits, select_many(takes, one, rest))
}

/// Whether a difference that wrapped is below 0.
#[cube]
fn is_negative<N: Size>(difference: Vector<u32, N>) -> Vector<bool, N> {
    difference.greater_equal(&number::<u32, N>(0x8000_0000u64))
}

/// The digits of a significand, with one more than fits, and what remained after the last.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Digits<U: Int, N: Size> {
    digits: Vector<U, N>,
    rest: Vector<U, N>,
}

#[cube]
impl<U: Int, N: Size> Digits<U, N> {
    fn of(digits: Vector<U, N>, rest: Vector<U, N>) -> Digits<U, N> {
        Digits::<U, N> { digits, rest }
    }
}

#[cube]
fn cast_digits<U: Int, V: Int, N: Size>(digits: Digits<U, N>) -> Digits<V, N> {
    Digits::of(Vector::cast_from(digits.digits), Vector::cast_from(digits.rest))
}

/// The bits with no sign of a zero, and those of one NaN.
#[cube]
fn uniform_bits<U: Int, N: Size>(bits: Vector<U, N>, #[comptime] format: Format) -> Vector<U, N> {
    let size = magnitude_bits::<U, N>(bits);
    let infinity = infinity::<U, N>(format);
    let quiet = number::<U, N>(comptime![1u64 << (format.fraction - 1)]);
    let is_nan = size.greater_than(&infinity);
    let other = select_many(size.equal(&number::<U, N>(0u64)), size, bits);
    select_many(is_nan, infinity | quiet, other)
}
