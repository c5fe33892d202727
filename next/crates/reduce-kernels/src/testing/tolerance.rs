//! The tolerance for results.

use core::fmt;

/// How far a result may be from the expected one: by `absolute + relative · scale`, where the check
/// says what the scale is. Equal results, infinities and two NaNs among them, are always close.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    absolute: f64,
    relative: f64,
    period: Option<f64>,
}

impl Tolerance {
    /// Results must be equal. Zeros of either sign are, and so are two NaNs.
    pub const EXACT: Self = Self { absolute: 0.0, relative: 0.0, period: None };

    /// Results of a few operations in f32: `8 · 2⁻²³` of the scale.
    pub const FEW_ROUNDINGS: Self = Self::EXACT.with_relative(8.0 * f32::EPSILON as f64);

    /// Lets results differ by this much, in the results' own unit.
    pub const fn with_absolute(self, absolute: f64) -> Self {
        Self { absolute, ..self }
    }

    /// Lets results differ by this share of the scale.
    pub const fn with_relative(self, relative: f64) -> Self {
        Self { relative, ..self }
    }

    /// Treats results as equal that differ by a multiple of `period`, which must be positive: 2π
    /// for angles.
    pub const fn with_period(self, period: f64) -> Self {
        Self { period: Some(period), ..self }
    }

    /// Whether `found` is close enough to `expected`.
    pub(super) fn allows(self, found: f64, expected: f64, scale: f64) -> bool {
        if found == expected || (found.is_nan() && expected.is_nan()) {
            return true;
        }
        let scale = if scale.is_finite() { scale } else { 0.0 };
        let difference = (found - expected).abs();
        let difference = match self.period {
            None => difference,
            Some(period) => {
                let rest = difference.rem_euclid(period);
                rest.min(period - rest)
            }
        };
        // False if the difference is NaN or infinite.
        difference <= self.absolute + self.relative * scale
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:e} + {:e} · scale", self.absolute, self.relative)?;
        match self.period {
            None => Ok(()),
            Some(period) => write!(f, ", modulo {period}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use core::f64::consts::TAU;

    use super::Tolerance;

    /// Protects what is close: NaN and infinities only to themselves, angles modulo a turn.
    #[test]
    fn closeness() {
        let (infinity, nan) = (f64::INFINITY, f64::NAN);
        let loose = Tolerance::EXACT.with_relative(0.5).with_absolute(1.0);
        for tolerance in [Tolerance::EXACT, loose, loose.with_period(TAU)] {
            assert!(tolerance.allows(nan, nan, 1.0) && tolerance.allows(0.0, -0.0, 1.0));
            assert!(tolerance.allows(infinity, infinity, infinity));
            assert!(!tolerance.allows(infinity, -infinity, infinity));
            assert!(!tolerance.allows(1.0, infinity, infinity) && !tolerance.allows(nan, 1.0, 1.0));
        }
        assert!(loose.allows(3.0, 4.9, 2.0) && !loose.allows(3.0, 5.1, 2.0));
        let angle = Tolerance::EXACT.with_absolute(1e-9).with_period(TAU);
        assert!(angle.allows(-3.0 + 2.0 * TAU, -3.0, 0.0) && !angle.allows(-3.0, 3.0, 0.0));
    }
}
