//! Exponentials, logarithms and powers to about 100 bits, to measure those of devices.

use core::f64::consts::LN_2;

/// What ln 2 is more than [`LN_2`].
const LN_2_TAIL: f64 = 2.319_046_813_846_299_6e-17;

/// `(head + tail) · 2^exponent`, with a head that is the sum rounded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exact {
    head: f64,
    tail: f64,
    exponent: i32,
}

/// The sum of two numbers as another and its rounding error (Knuth).
fn two_sum(left: f64, right: f64) -> (f64, f64) {
    let sum = left + right;
    let part = sum - left;
    (sum, (left - (sum - part)) + (right - part))
}

/// The same of a product.
fn two_product(left: f64, right: f64) -> (f64, f64) {
    let product = left * right;
    (product, left.mul_add(right, -product))
}

/// `value · 2^exponent`, exact unless the result is denormal or infinite.
fn scaled(value: f64, exponent: i32) -> f64 {
    let half = exponent / 2;
    let step = |exponent: i32| 2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2);
    value * step(half) * step(exponent - half)
}

impl Exact {
    pub(crate) fn of(value: f64) -> Self {
        Self { head: value, tail: 0.0, exponent: 0 }
    }

    fn pair((head, tail): (f64, f64)) -> Self {
        let (head, tail) = two_sum(head, tail);
        Self { head, tail, exponent: 0 }
    }

    /// With an exponent of 0.
    fn flat(self) -> Self {
        let Self { head, tail, exponent } = self;
        Self { head: scaled(head, exponent), tail: scaled(tail, exponent), exponent: 0 }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let (left, right) = (self.flat(), other.flat());
        let (head, rest) = two_sum(left.head, right.head);
        let (tail, more) = two_sum(left.tail, right.tail);
        let (head, rest) = two_sum(head, rest + tail);
        Self::pair((head, rest + more))
    }

    pub(crate) fn times(self, other: Self) -> Self {
        let (head, tail) = two_product(self.head, other.head);
        let tail = tail + (self.head * other.tail + self.tail * other.head);
        Self { exponent: self.exponent + other.exponent, ..Self::pair((head, tail)) }
    }

    pub(crate) fn over(self, divisor: f64) -> Self {
        let first = self.head / divisor;
        let rest = self.plus(Self::pair(two_product(-first, divisor)));
        let second = rest.head / divisor;
        let rest = rest.plus(Self::pair(two_product(-second, divisor)));
        Self::pair((first, second)).plus(Self::of(rest.head / divisor))
    }

    /// The logarithm of a number above 0.
    pub(crate) fn ln(self) -> Self {
        let Self { head, tail, .. } = self.flat();
        // Of head · (1 + ratio); the ratio is at most 2^-53.
        let ratio = Self::of(tail).over(head);
        ln(head).plus(ratio).plus(Self::of(-0.5 * ratio.head * ratio.head))
    }

    /// How many units in the last place of the exact result a number is off.
    pub(crate) fn ulps(self, found: f64) -> f64 {
        let Self { head, tail, exponent } = self;
        let power = head.abs().log2().floor() as i32 + exponent;
        if power > 1023 {
            return if found.is_infinite() { 0.0 } else { f64::INFINITY };
        }
        if head == 0.0 || power < -1100 {
            return found.abs() / f64::from_bits(1);
        }
        let unit = (power - 52).max(-1074);
        let rest = scaled(found, -exponent) - head;
        scaled((rest - tail).abs(), exponent - unit)
    }
}

/// The exponential of a number.
pub(crate) fn exp(value: Exact) -> Exact {
    let value = value.flat();
    if value.head.abs() > 1e4 {
        // Nothing that f64 holds.
        return Exact {
            exponent: if value.head > 0.0 { 10_000 } else { -10_000 },
            ..Exact::of(1.0)
        };
    }
    let count = (value.head / LN_2).round();
    let ln_2 = Exact { head: LN_2, tail: LN_2_TAIL, exponent: 0 };
    let rest = value.plus(ln_2.times(Exact::of(-count)));
    // The series of a 256th part, then its 256th power.
    let rest = Exact { exponent: -8, ..rest }.flat();
    let one = Exact::of(1.0);
    let series = (1..=16).rev().fold(one, |sum, n| one.plus(sum.times(rest).over(f64::from(n))));
    let power = (0..8).fold(series, |power, _| power.times(power));
    Exact { exponent: count as i32, ..power }
}

/// The logarithm of a number above 0.
pub(crate) fn ln(value: f64) -> Exact {
    let distance = value - 1.0;
    if distance.abs() < 1e-3 {
        // The difference is exact; its series.
        let distance = Exact::of(distance);
        let term = |n: i32| Exact::of(1.0).over(f64::from(if n % 2 == 0 { -n } else { n }));
        let series =
            (1..=12).rev().fold(Exact::of(0.0), |sum, n| sum.times(distance).plus(term(n)));
        return series.times(distance);
    }
    let (value, count) = if value < 1e-290 {
        (value * 2f64.powi(600), -600)
    } else if value > 1e290 {
        (value * 2f64.powi(-600), 600)
    } else {
        (value, 0)
    };
    // A step of Newton's from the host's logarithm, whose error is about 2^-50.
    let guess = value.ln();
    let ratio = exp(Exact::of(-guess)).times(Exact::of(value)).flat();
    let error = ratio.plus(Exact::of(-1.0));
    let ln = Exact::of(guess).plus(error).plus(Exact::of(-0.5 * error.head * error.head));
    let ln_2 = Exact { head: LN_2, tail: LN_2_TAIL, exponent: 0 };
    ln.plus(ln_2.times(Exact::of(f64::from(count))))
}

/// A power of a number above 0.
pub(crate) fn pow(base: f64, exponent: Exact) -> Exact {
    exp(ln(base).times(exponent))
}

/// The reference against figures known without it, to 30 digits.
#[test]
fn the_reference_knows_known_figures() {
    let near = |found: Exact, head: f64, tail: f64| {
        let Exact { head: first, tail: second, .. } = found.flat();
        let error = ((first - head) + (second - tail)).abs() / head.abs();
        assert!(error < 1e-29, "{first:e} + {second:e}, expected {head:e} + {tail:e}");
    };
    near(exp(Exact::of(1.0)), core::f64::consts::E, 1.445_646_891_729_250_2e-16);
    near(ln(2.0), LN_2, LN_2_TAIL);
    near(ln(10.0), core::f64::consts::LN_10, -2.170_756_223_382_249_4e-16);
    near(pow(2.0, Exact::of(0.5)), core::f64::consts::SQRT_2, -9.667_293_313_452_913e-17);
    assert_eq!(exp(Exact::of(0.0)).ulps(1.0), 0.0);
    assert_eq!(exp(Exact::of(0.0)).ulps(1.0 + f64::EPSILON), 1.0);
}
