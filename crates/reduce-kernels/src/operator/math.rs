//! Exponentials, logarithms, powers and roots, including f64 on backends that lack them.
//!
//! CubeCL's `Vector::exp`, `ln` and `powf` of f64 do not compile to SPIR-V or WGSL, whose functions
//! take 32 bits at most. Operators and maps can use the functions of this module instead. For f64,
//! these consist of additions, multiplications, divisions, selects and operations on 64-bit
//! integers, on every backend. For other types, they call the device's own functions.
//!
//! # Accuracy in f64
//!
//! | function | error | worst seen |
//! | --- | --- | --- |
//! | [`exp`](fn@exp) | within 1 ulp | 0.87 |
//! | [`ln`](fn@ln) | within 1 ulp | 0.51 |
//! | [`pow`](fn@pow) | within 1.5 ulp | 1.17 |
//! | [`root`](fn@root) | within 1.5 ulp | 0.95 |
//!
//! Errors are in ulp. An ulp is the distance between neighbouring f64 at the exact result. A result
//! below 2⁻¹⁰²² is within 2⁻¹⁰⁷⁴ of the exact one, or is 0 on devices that flush denormal numbers
//! to zero. The test `functions_of_f64` of the suite measures the errors on the device, against
//! references of 100 bits. The worst errors in the table are those of six million pairs, with the
//! CUDA source compiled for a CPU, with and without fused operations.
//!
//! # Method
//!
//! - Exponentials: the argument is reduced by multiples of ln 2, in two parts, to at most ln 2 / 2
//!   (Cody and Waite, "Software Manual for the Elementary Functions", 1980). The Taylor series up
//!   to the 13th power follows; its remainder is below 2⁻⁵⁷. The power of two is added to the
//!   exponent.
//! - Logarithms follow the scheme of `e_pow.c` in FDLIBM (Sun Microsystems, 1993). With x = 2ᵏ·m, m
//!   from √½ to √2, and s = (m - 1) / (m + 1), they use ln m = ⅔ s (3 + s² + r), where r is the
//!   rest of the series of artanh up to its 25th power. Each factor is split into a head of 26
//!   bits, whose products are exact, and a tail. The logarithm is a head and a tail too. Together
//!   they are correct to more than 60 bits, which powers need.
//! - Powers are exponentials of the exponent times both parts of the logarithm. Roots are
//!   exponentials of both parts divided by the degree.
//!
//! # Compilers
//!
//! Drivers reassociate additions: Mesa computes 1 + (a + b) as (1 + a) + b. They fold `(a + b) - a`
//! to `b`. CubeCL's `fma` becomes a product and a sum in SPIR-V. The functions are written for
//! this:
//!
//! - They are correct with and without fused operations.
//! - Heads are cut off with integer operations.
//! - Where the order of additions matters, an integer operation that changes nothing stands between
//!   them (`settled`). Mesa sees through a select.
//!
//! CUDA and HIP have f64 functions of their own, but use these as well. All backends then have the
//! same error bounds and edge cases, and tests can run without a GPU. The bits of the results still
//! differ between backends, because they fuse different operations.
#![allow(missing_docs, reason = "#[cube] adds an undocumented twin of each function")]

use core::ops::Not;

use cubecl::prelude::*;

use super::{HardwareMath, element_wise::is_nan};

/// 1 / ln 2.
const RECIPROCAL_LN_2: f64 = core::f64::consts::LOG2_E;
/// The first 32 bits of ln 2: its product with any exponent is exact.
const LN_2_HEAD: f64 = 0.693_147_180_369_123_8;
/// The next 53 bits of ln 2.
const LN_2_TAIL: f64 = 1.908_214_929_270_587_7e-10;
/// The first 26 bits of 2/3.
const TWO_THIRDS_HEAD: f64 = 0.666_666_656_732_559_2;
/// The next 53 bits of 2/3.
const TWO_THIRDS_TAIL: f64 = 9.934_107_462_565_104e-9;

/// Coefficients of the Taylor series of (eˣ - 1 - x) / x², from the highest power down: 1 / 13! to
/// 1 / 2!.
const EXP_SERIES: [f64; 12] = [
    1.0 / 6_227_020_800.0,
    1.0 / 479_001_600.0,
    1.0 / 39_916_800.0,
    1.0 / 3_628_800.0,
    1.0 / 362_880.0,
    1.0 / 40_320.0,
    1.0 / 5_040.0,
    1.0 / 720.0,
    1.0 / 120.0,
    1.0 / 24.0,
    1.0 / 6.0,
    1.0 / 2.0,
];

/// Coefficients of the series of 3 (artanh s - s - s³ / 3) / s⁵ in s², from the highest power down.
const ARTANH_SERIES: [f64; 11] = [
    3.0 / 25.0,
    3.0 / 23.0,
    3.0 / 21.0,
    3.0 / 19.0,
    3.0 / 17.0,
    3.0 / 15.0,
    3.0 / 13.0,
    3.0 / 11.0,
    3.0 / 9.0,
    3.0 / 7.0,
    3.0 / 5.0,
];

/// Beyond this magnitude, exponentials are infinite or 0: ln 2¹⁰²⁴ is 709.8, ln 2⁻¹⁰⁷⁵ is -745.1.
/// Below it, scaling in two steps reaches all exponents: 750 is ln 2¹⁰⁸².
const EXP_LIMIT: f64 = 750.0;
/// Exponents of larger magnitude are scaled in two steps.
const FAR_EXPONENT: f64 = 1000.0;
/// The part of the exponent that the second step scales by.
const STEP: f64 = 64.0;
/// 2⁶⁴ and 2⁻⁶⁴, the factors of the second step.
const STEP_UP: f64 = 18_446_744_073_709_551_616.0;
const STEP_DOWN: f64 = 1.0 / STEP_UP;
/// 2⁵⁴, the factor that makes denormal numbers normal.
const NORMALISE: f64 = 18_014_398_509_481_984.0;
const NORMALISE_EXPONENT: f64 = 54.0;
/// 1.5 · 2⁵². Added to a whole number, it gives a sum whose last bits are that number in two's
/// complement.
const WHOLE: f64 = 6_755_399_441_055_744.0;
/// The bits of 2⁵². Its last bits can be replaced by a whole number, which adds that number.
const WHOLE_BITS: u64 = 0x4330_0000_0000_0000;
/// 2⁵² + 1023. Subtracting it from such a sum turns a biased exponent into the exponent.
const WHOLE_BIAS: f64 = 4_503_599_627_370_496.0 + 1023.0;
/// The bits of the fraction of an f64.
const FRACTION_BITS: u64 = 0x000f_ffff_ffff_ffff;
/// The bits of 1, which give a fraction the exponent of numbers from 1 to 2.
const ONE_BITS: u64 = 0x3ff0_0000_0000_0000;
/// All bits except the sign.
const MAGNITUDE_BITS: u64 = 0x7fff_ffff_ffff_ffff;
const INFINITY_BITS: u64 = 0x7ff0_0000_0000_0000;
const NAN_BITS: u64 = 0x7ff8_0000_0000_0000;
/// The number of low bits of an f64 that its head leaves out.
const TAIL_BITS: u64 = 27;
/// The number of bits of the fraction of an f64.
const FRACTION_LEN: u64 = 52;
/// The index of the sign bit of an f64.
const SIGN: u64 = 63;

/// f64 numbers that are each the sum of a head and a tail, which is small beside the head.
#[derive(CubeType, Clone, Copy)]
#[expand(derive(Clone, Copy))]
struct Split<N: Size> {
    head: Vector<f64, N>,
    tail: Vector<f64, N>,
}

/// The exponential of each component. `-inf` gives 0, `inf` gives `inf`, NaN gives NaN. See the
/// [module](self) for the error in f64.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::math::exp};
///
/// #[cube]
/// fn logistic<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
///     let one = Vector::from_int(1);
///     one / (one + exp::<E, N>(-value))
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn exp<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    if comptime![is_f64(element)] {
        let value = Vector::<f64, N>::cast_from(value);
        Vector::cast_from(exp_of(Split::<N> { head: value, tail: Vector::from_int(0) }))
    } else {
        value.exp()
    }
}

/// The exponential of components that are 0 or less, for sums to which 0 contributes 1. NaN gives
/// NaN.
///
/// In f32, CUDA through NVRTC takes the exponential of the hardware, in a third of the instructions
/// of [`exp()`].
/// Its error in units in the last place grows with the magnitude `m` of the value, as `2 + 1.2 m`
/// (CUDA C++ Programming Guide, intrinsic functions). Beside 1, that is at most 0.5 units: `m`
/// times the exponential of `-m` is at most 0.37.
#[cube]
pub(crate) fn exp_of_negative<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let hardware = HardwareMath::value().comptime();
    if comptime![is_f64(element) || hardware == 1] {
        exp::<E, N>(value)
    } else {
        hardware_exp::<E, N>(value)
    }
}

/// [`exp_of_negative`] of the differences of components from `most`, which none is above, for sums
/// whose logarithms are added to `most` and rounded to `R`.
///
/// For results of two bytes, CUDA multiplies before it subtracts, in one instruction instead of two.
/// That changes exponents, and so the logarithm, by up to 2⁻²⁴ of `most`. Halves keep no more than
/// 2⁻¹¹ of themselves; where `most` and the logarithm cancel, it is more than that of their sum.
#[cube]
pub(crate) fn exp_of_differences_for<E: Float, R: Scalar, N: Size>(
    value: Vector<E, N>,
    most: Vector<E, N>,
) -> Vector<E, N> {
    let (element, result) = (elem_type_of::<E>(), elem_type_of::<R>());
    let hardware = HardwareMath::value().comptime();
    if comptime![takes_shorter_forms(element, result, hardware)] {
        let of_two = Vector::<f32, N>::new(f32::new(RECIPROCAL_LN_2 as f32));
        let most = Vector::<f32, N>::cast_from(most) * of_two;
        hardware_power::<E, N>(Vector::<f32, N>::cast_from(value) * of_two - most)
    } else {
        exp_of_negative::<E, N>(value - most)
    }
}

/// The exponential by the instruction for powers of two. Results below the least normal f32 are 0.
#[cube]
fn hardware_exp<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let of_two = Vector::<f32, N>::new(f32::new(RECIPROCAL_LN_2 as f32));
    hardware_power::<E, N>(Vector::<f32, N>::cast_from(value) * of_two)
}

/// The powers of two with these exponents. Those below the least normal f32 are 0.
#[cube]
fn hardware_power<E: Float, N: Size>(exponent: Vector<f32, N>) -> Vector<E, N> {
    let mut power = Vector::<f32, N>::empty();
    #[unroll]
    for nth in 0..N::value() {
        power.insert(nth, hardware_exp2(exponent.extract(nth)));
    }
    Vector::cast_from(power)
}

#[cube]
fn hardware_exp2(power: f32) -> f32 {
    let result: f32;
    gpu_asm!("ex2.approx.ftz.f32 {}, {};", out(_) result, in(_) power, options(pure, nomem));
    result
}

/// The reciprocal of components that are 0, or of magnitudes from 2⁻¹⁰⁰ to 2¹⁰⁰.
///
/// In f32, CUDA takes that of the hardware, which is off by at most one unit in the last place (PTX
/// ISA, `rcp`), where a division takes ten instructions.
#[cube]
pub(crate) fn reciprocal<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let hardware = HardwareMath::value().comptime();
    if comptime![is_f64(element) || hardware == 1] {
        Vector::from_int(1) / value
    } else {
        let value = Vector::<f32, N>::cast_from(value);
        let mut reciprocal = Vector::<f32, N>::empty();
        #[unroll]
        for nth in 0..N::value() {
            reciprocal.insert(nth, hardware_reciprocal(value.extract(nth)));
        }
        Vector::cast_from(reciprocal)
    }
}

#[cube]
fn hardware_reciprocal(value: f32) -> f32 {
    let result: f32;
    gpu_asm!("rcp.approx.ftz.f32 {}, {};", out(_) result, in(_) value, options(pure, nomem));
    result
}

/// The natural logarithm of each component. 0 of either sign gives `-inf`, `inf` gives `inf`,
/// negative numbers and NaN give NaN. See the [module](self) for the error in f64.
///
/// In types other than f64, results are those of the device. They may differ from the above unless
/// the value is finite and above 0.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::math::ln};
///
/// #[cube]
/// fn entropy<E: Float, N: Size>(share: Vector<E, N>) -> Vector<E, N> {
///     -share * ln::<E, N>(share)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn ln<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    if comptime![is_f64(element)] {
        let logarithm = ln_of::<N>(Vector::cast_from(value));
        Vector::cast_from(logarithm.head + logarithm.tail)
    } else {
        value.ln()
    }
}

/// Each component of `base` to the power of the same component of `exponent`, for bases that are
/// not negative.
///
/// This is IEEE 754's `powr`: `exp(exponent · ln(base))`. It gives NaN for a negative base, for a
/// NaN in either operand, for a zero or `inf` to the power of zero, and for 1 to an infinite power.
/// See the [module](self) for the error in f64.
///
/// In types other than f64, results are those of the device. They may differ from the above unless
/// the base is finite and above 0.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::math::pow};
///
/// #[cube]
/// fn weight<E: Float, N: Size>(rank: Vector<E, N>, power: Vector<E, N>) -> Vector<E, N> {
///     pow::<E, N>(rank, power)
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn pow<E: Float, N: Size>(base: Vector<E, N>, exponent: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    if comptime![is_f64(element)] {
        let logarithm = ln_of::<N>(Vector::cast_from(base));
        let exponent = Vector::<f64, N>::cast_from(exponent);
        let finite = logarithm.head.abs().less_equal(&number::<N>(f64::MAX));
        // The head of a denormal exponent may be 0, and 0 times an infinity is NaN.
        let exponent_head = select_many(finite, head_of::<N>(exponent), exponent);
        let exponent_tail = exponent - exponent_head;
        Vector::cast_from(exp_of::<N>(Split::<N> {
            head: exponent_head * logarithm.head,
            tail: exponent_tail * logarithm.head + exponent * logarithm.tail,
        }))
    } else {
        base.powf(exponent)
    }
}

/// [`pow()`] of bases between 0 and 1, for sums to which 1 contributes 1.
///
/// In f32, CUDA through NVRTC takes the logarithm and the exponential of the hardware. The result
/// is off by about `exponent · 2⁻²²` of itself, so the root of that degree of a sum is off by about
/// 2⁻²².
#[cube]
pub(crate) fn pow_of_share<E: Float, N: Size>(
    base: Vector<E, N>,
    exponent: Vector<E, N>,
) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let hardware = HardwareMath::value().comptime();
    if comptime![is_f64(element) || hardware == 1] {
        pow::<E, N>(base, exponent)
    } else {
        hardware_exp::<E, N>(hardware_ln::<E, N>(base) * exponent)
    }
}

/// The natural logarithm of the quotient of two components, which are not divided.
///
/// In f32, CUDA through NVRTC takes both logarithms of the hardware, in a third of the instructions
/// of [`ln()`]. The error of each is at most 2⁻²² between a half and two, and 2⁻²² of itself
/// elsewhere (PTX ISA, `lg2`).
#[cube]
pub(crate) fn ln_of_quotient<E: Float, N: Size>(
    dividend: Vector<E, N>,
    divisor: Vector<E, N>,
) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let hardware = HardwareMath::value().comptime();
    if comptime![is_f64(element) || hardware == 1] {
        ln::<E, N>(dividend) - ln::<E, N>(divisor)
    } else {
        let dividend = Vector::<f32, N>::cast_from(dividend);
        let divisor = Vector::<f32, N>::cast_from(divisor);
        let mut quotient = Vector::<f32, N>::empty();
        #[unroll]
        for nth in 0..N::value() {
            let own = hardware_log2_of_any(dividend.extract(nth));
            quotient.insert(nth, own - hardware_log2_of_any(divisor.extract(nth)));
        }
        Vector::cast_from(quotient * Vector::new(f32::new(core::f32::consts::LN_2)))
    }
}

/// [`ln()`] of finite components of 2⁻¹⁰⁰ and more.
///
/// In f32, CUDA takes the logarithm of the hardware, of the fraction alone. The error is at most
/// 2⁻²² (PTX ISA, `lg2`), and that of the product of the exponent and ln 2, where [`ln()`] takes
/// three times as many instructions.
#[cube]
pub(crate) fn ln_of_moderate<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    let hardware = HardwareMath::value().comptime();
    if comptime![is_f64(element) || hardware == 1] {
        ln::<E, N>(value)
    } else {
        let value = Vector::<f32, N>::cast_from(value);
        let mut logarithm = Vector::<f32, N>::empty();
        #[unroll]
        for nth in 0..N::value() {
            let bits = u32::reinterpret(value.extract(nth));
            // The exponent of a fraction from 3/4 to 3/2, in its place among the bits.
            let exponent = (bits - THREE_QUARTERS) & EXPONENT_BITS;
            let fraction = f32::reinterpret(bits - exponent);
            let whole = f32::cast_from(i32::reinterpret(exponent)) * f32::new(OF_EXPONENT_BIT);
            logarithm.insert(nth, whole + hardware_log2(fraction));
        }
        Vector::cast_from(logarithm * Vector::new(f32::new(core::f32::consts::LN_2)))
    }
}

/// [`ln_of_moderate`] of components to which numbers are added, and whose sums are rounded to `R`.
///
/// For results of two bytes, CUDA takes the logarithm of the hardware of all of a component, in two
/// instructions instead of seven. Its error is at most 2⁻²² between a half and two, and 2⁻²² of
/// itself elsewhere (PTX ISA, `lg2`).
#[cube]
pub(crate) fn ln_of_moderate_for<E: Float, R: Scalar, N: Size>(
    value: Vector<E, N>,
) -> Vector<E, N> {
    let (element, result) = (elem_type_of::<E>(), elem_type_of::<R>());
    let hardware = HardwareMath::value().comptime();
    if comptime![takes_shorter_forms(element, result, hardware)] {
        hardware_ln::<E, N>(value)
    } else {
        ln_of_moderate::<E, N>(value)
    }
}

/// Whether results are rounded so much that shorter forms of functions serve, with the width of
/// [`HardwareMath`].
fn takes_shorter_forms(
    element: cubecl::ir::ElemType,
    result: cubecl::ir::ElemType,
    hardware: usize,
) -> bool {
    !is_f64(element) && hardware != 1 && result.size() < size_of::<f32>()
}

/// The bits of 3/4 in f32.
const THREE_QUARTERS: u32 = 0x3f40_0000;
/// The bits of the exponent of an f32, and of its sign.
const EXPONENT_BITS: u32 = 0xff80_0000;
/// The reciprocal of the lowest bit of the exponent of an f32.
const OF_EXPONENT_BIT: f32 = 1.0 / (1 << 23) as f32;

/// The logarithm to base two, of values below the least normal f32 too.
#[cube]
fn hardware_log2_of_any(value: f32) -> f32 {
    let result: f32;
    gpu_asm!("lg2.approx.f32 {}, {};", out(_) result, in(_) value, options(pure, nomem));
    result
}

/// The natural logarithm by the instruction for logarithms to base two. Values below the least
/// normal f32 count as 0.
#[cube]
fn hardware_ln<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
    let value = Vector::<f32, N>::cast_from(value);
    let mut logarithm = Vector::<f32, N>::empty();
    #[unroll]
    for nth in 0..N::value() {
        logarithm.insert(nth, hardware_log2(value.extract(nth)));
    }
    Vector::cast_from(logarithm * Vector::new(f32::new(core::f32::consts::LN_2)))
}

#[cube]
fn hardware_log2(value: f32) -> f32 {
    let result: f32;
    gpu_asm!("lg2.approx.ftz.f32 {}, {};", out(_) result, in(_) value, options(pure, nomem));
    result
}

/// The root of each component of `value`, whose degree is the same component of `degree`. Values
/// must not be negative; degrees must be finite and not 0.
///
/// A root is more accurate than a power with the reciprocal of the degree, because that reciprocal
/// is rounded. See the [module](self) for the error in f64.
///
/// If the degree is positive, 0 gives 0 and `inf` gives `inf`. Negative values and NaN give NaN. In
/// types other than f64, results are those of the device. They may differ from the above unless the
/// value is finite and above 0.
///
/// ```
/// use reduce_kernels::{cubecl::{self, prelude::*}, operator::math::root};
///
/// #[cube]
/// fn cube_root<E: Float, N: Size>(value: Vector<E, N>) -> Vector<E, N> {
///     root::<E, N>(value, Vector::from_int(3))
/// }
/// # fn main() {}
/// ```
#[cube]
pub fn root<E: Float, N: Size>(value: Vector<E, N>, degree: Vector<E, N>) -> Vector<E, N> {
    let element = elem_type_of::<E>();
    if comptime![is_f64(element)] {
        let logarithm = ln_of::<N>(Vector::cast_from(value));
        let degree = Vector::<f64, N>::cast_from(degree);
        let quotient = head_of::<N>(logarithm.head / degree);
        let degree_head = head_of::<N>(degree);
        let above = logarithm.head * logarithm.head + number::<N>(1.0);
        let nothing = Vector::<u64, N>::reinterpret(above) >> bits::<N>(SIGN);
        // This difference is exact, because its operands are close to each other.
        let rest = settled::<N>(logarithm.head - quotient * degree_head, nothing);
        let rest = settled::<N>(rest - quotient * (degree - degree_head), nothing);
        Vector::cast_from(exp_of::<N>(Split::<N> {
            head: quotient,
            tail: (rest + logarithm.tail) / degree,
        }))
    } else {
        value.powf(Vector::from_int(1) / degree)
    }
}

/// The exponential of the sum of head and tail.
#[cube]
fn exp_of<N: Size>(value: Split<N>) -> Vector<f64, N> {
    let limit = number::<N>(EXP_LIMIT);
    let least = number::<N>(-EXP_LIMIT);
    let zero = number::<N>(0.0);
    let one = number::<N>(1.0);
    let inside = value.head.abs().less_equal(&limit);
    let tail = select_many(inside, value.tail, zero);
    let head = select_many(value.head.greater_than(&limit), limit, value.head);
    let head = select_many(value.head.less_than(&least), least, head);

    // From here on, the value is count · ln 2 + rest + small.
    let count = (head * number::<N>(RECIPROCAL_LN_2)).round();
    let rest = head - count * number::<N>(LN_2_HEAD);
    // The sum is far above 0, but compilers do not know its sign: the result is 0.
    let nothing = Vector::<u64, N>::reinterpret(count + number::<N>(WHOLE)) >> bits::<N>(SIGN);
    let rest = settled::<N>(rest, nothing);
    let small = tail - count * number::<N>(LN_2_TAIL);
    let both = rest + small;
    let series = polynomial::<N>(both, EXP_SERIES.to_vec());
    let small = settled::<N>(small + both * both * series, nothing);
    let power = one + settled::<N>(rest + small, nothing);

    // Multiplies by 2^count: with one addition to the exponent where the result stays in range,
    // otherwise in two steps.
    let up = count.greater_than(&number::<N>(FAR_EXPONENT));
    let down = count.less_than(&number::<N>(-FAR_EXPONENT));
    let step = select_many(up, number::<N>(STEP), zero);
    let step = select_many(down, number::<N>(-STEP), step);
    let factor = select_many(up, number::<N>(STEP_UP), one);
    let factor = select_many(down, number::<N>(STEP_DOWN), factor);
    let whole = Vector::<u64, N>::reinterpret((count - step) + number::<N>(WHOLE));
    let bits = Vector::<u64, N>::reinterpret(power) + (whole << bits::<N>(FRACTION_LEN));
    let result = Vector::<f64, N>::reinterpret(bits) * factor;
    select_many(has_nan_bits::<f64, N>(value.head), value.head, result)
}

/// The logarithm, split into a head of 26 bits and a tail.
#[cube]
fn ln_of<N: Size>(value: Vector<f64, N>) -> Split<N> {
    let zero = number::<N>(0.0);
    let one = number::<N>(1.0);
    let two = number::<N>(2.0);
    let is_denormal = value.less_than(&number::<N>(f64::MIN_POSITIVE));
    let normal = select_many(is_denormal, value * number::<N>(NORMALISE), value);
    let normal = Vector::<u64, N>::reinterpret(normal);

    // The value is fraction · 2^count.
    let biased = (normal >> bits::<N>(FRACTION_LEN)) | bits::<N>(WHOLE_BITS);
    let count = Vector::<f64, N>::reinterpret(biased) - number::<N>(WHOLE_BIAS);
    let count = select_many(is_denormal, count - number::<N>(NORMALISE_EXPONENT), count);
    let fraction = (normal & bits::<N>(FRACTION_BITS)) | bits::<N>(ONE_BITS);
    let fraction = Vector::<f64, N>::reinterpret(fraction);
    let is_large = fraction.greater_than(&number::<N>(core::f64::consts::SQRT_2));
    let fraction = select_many(is_large, fraction * number::<N>(0.5), fraction);
    let count = select_many(is_large, count + one, count);

    // s = over / under, as a head and a tail.
    let over = fraction - one;
    let under = over + two;
    let nothing = Vector::<u64, N>::reinterpret(under) >> bits::<N>(SIGN);
    let s = over / under;
    let s_head = head_of::<N>(s);
    let under_head = head_of::<N>(under);
    let under_rest = settled::<N>(under_head - two, nothing);
    let under_tail = settled::<N>(over - under_rest, nothing);
    let over_rest = settled::<N>(over - s_head * under_head, nothing);
    let s_tail = (over_rest - s_head * under_tail) / under;

    // 3 + s² + r.
    let square = s * s;
    let square_head = s_head * s_head;
    let series = polynomial::<N>(square, ARTANH_SERIES.to_vec());
    let rest = square * square * series + s_tail * (s_head + s);
    let three = number::<N>(3.0);
    let sum_head = head_of::<N>(three + (square_head + rest));
    let sum_rest = settled::<N>(sum_head - three, nothing);
    let sum_tail = rest - settled::<N>(sum_rest - square_head, nothing);

    // The product of both, and two thirds of it.
    let exact = s_head * sum_head;
    let inexact = s_tail * sum_head + sum_tail * s;
    let product_head = head_of::<N>(exact + inexact);
    let product_tail = inexact - settled::<N>(product_head - exact, nothing);
    let head = number::<N>(TWO_THIRDS_HEAD) * product_head;
    let tail = number::<N>(TWO_THIRDS_TAIL) * product_head
        + number::<N>(2.0 / 3.0) * product_tail
        + count * number::<N>(LN_2_TAIL);

    // Adds the logarithm of the power of two.
    let whole = count * number::<N>(LN_2_HEAD);
    let sum = head_of::<N>(whole + (head + tail));
    let gained = settled::<N>(sum - whole, nothing);
    let tail = tail - settled::<N>(gained - head, nothing);

    // Selects -inf, inf and NaN.
    let value_bits = Vector::<u64, N>::reinterpret(value);
    let magnitude_bits = Vector::<u64, N>::reinterpret(value.abs());
    let infinity = Vector::<f64, N>::reinterpret(magnitude_bits | bits::<N>(INFINITY_BITS));
    let nan = Vector::<f64, N>::reinterpret(value_bits | bits::<N>(NAN_BITS));
    let other = select_many(is_zero::<N>(value), zero - infinity, nan);
    let other = select_many(value.greater_than(&zero), value, other);
    let is_usual = value.greater_than(&zero).vec_and(value.less_equal(&number::<N>(f64::MAX)));
    Split::<N> { head: select_many(is_usual, sum, other), tail: select_many(is_usual, tail, zero) }
}

/// The value, unchanged. Compilers do not move additions across the integer operation in it.
/// `nothing` is 0, computed in a way that they cannot predict.
#[cube]
fn settled<N: Size>(value: Vector<f64, N>, nothing: Vector<u64, N>) -> Vector<f64, N> {
    Vector::reinterpret(Vector::<u64, N>::reinterpret(value) | nothing)
}

/// Whether each component is NaN. In f64, this is decided by the bits. Through Vulkan on an H200,
/// comparing a difference of f64 with itself missed a NaN; comparing a loaded value with itself
/// found it. A driver may assume that arithmetic gives no NaN, but it cannot assume that of bits.
#[cube]
pub(crate) fn has_nan_bits<E: Float, N: Size>(value: Vector<E, N>) -> Vector<bool, N> {
    let element = elem_type_of::<E>();
    if comptime![is_f64(element)] {
        let value = Vector::<u64, N>::reinterpret(Vector::<f64, N>::cast_from(value));
        let magnitude = value & bits::<N>(MAGNITUDE_BITS);
        magnitude.greater_than(&bits::<N>(INFINITY_BITS))
    } else {
        is_nan::<E, N>(value)
    }
}

/// Whether either component is NaN.
///
/// NVRTC makes one comparison of those that say here whether two numbers are ordered, and two of two
/// questions for NaN. Drivers that may assume that there is none are asked twice.
#[cube]
pub(crate) fn is_either_nan<E: Float, N: Size>(
    left: Vector<E, N>,
    right: Vector<E, N>,
) -> Vector<bool, N> {
    let element = elem_type_of::<E>();
    let hardware = HardwareMath::value().comptime();
    if comptime![element.is_float() && hardware == 2] {
        left.less_equal(&right).or(left.greater_than(&right)).not()
    } else {
        is_nan::<E, N>(left).or(is_nan::<E, N>(right))
    }
}

/// The first 26 bits of each component: its head.
#[cube]
fn head_of<N: Size>(value: Vector<f64, N>) -> Vector<f64, N> {
    let tail = bits::<N>(TAIL_BITS);
    Vector::reinterpret((Vector::<u64, N>::reinterpret(value) >> tail) << tail)
}

#[cube]
fn is_zero<N: Size>(value: Vector<f64, N>) -> Vector<bool, N> {
    value.equal(&number::<N>(0.0))
}

/// The value of a polynomial. Its coefficients are in order from the highest power down.
#[cube]
#[allow(clippy::needless_range_loop, reason = "kernels index what they know when they are made")]
fn polynomial<N: Size>(
    value: Vector<f64, N>,
    #[comptime] coefficients: Vec<f64>,
) -> Vector<f64, N> {
    let mut sum = number::<N>(coefficients[0]);
    #[unroll]
    for nth in 1..coefficients.len() {
        sum = sum * value + number::<N>(coefficients[nth]);
    }
    sum
}

#[cube]
fn number<N: Size>(#[comptime] number: f64) -> Vector<f64, N> {
    Vector::new(f64::cast_from(number))
}

#[cube]
fn bits<N: Size>(#[comptime] bits: u64) -> Vector<u64, N> {
    Vector::new(u64::cast_from(bits))
}

fn is_f64(storage: cubecl::ir::ElemType) -> bool {
    storage.is_float() && storage.size() == 8
}
