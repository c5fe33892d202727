//! What the bits of a result may depend on.

use core::{fmt, str::FromStr};

/// What the bits of a result may depend on.
///
/// Floating point addition is not associative, so the bits of a sum depend on the order in which
/// its elements are added. Every plan fixes that order, and no plan leaves it to chance.
///
/// ```
/// use reduce_planner::Numerics;
///
/// assert_eq!("batch-invariant".parse(), Ok(Numerics::BatchInvariant));
/// assert_eq!(Numerics::default(), Numerics::Deterministic);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Numerics {
    /// On the plan: the same plan on the same device gives the same bits on every run. Another
    /// number of outputs may have another plan.
    #[default]
    Deterministic,
    /// On the slice that an output is reduced from: its elements in their order, their number and
    /// type, the layout of the slice, the operator and the device. They do not depend on the number
    /// of other outputs, nor on which of them it is. A row of a batch has the bits that it has
    /// alone.
    ///
    /// The layout of a slice is the extents of its dimensions, after those that follow each other
    /// without a gap are joined; whether its innermost elements are neighbours in memory; and by
    /// how wide a vector all of its rows are aligned.
    BatchInvariant,
    /// On the values of the slice in the order of their positions, and on the operator and its
    /// types. They are the same on every device, through every backend and compiler, and in every
    /// layout.
    ///
    /// Only some operators have such a form ([`OperatorClass::by_position`] and
    /// [`OperatorClass::exact`]); others are refused. The tree in which elements are combined
    /// follows from their number alone ([`lanes`]). Numbers whose magnitude is below two times the
    /// least normal number of f32, or of f64 where that is the type, count as 0, because a
    /// device may take denormal numbers for 0.
    ///
    /// [`OperatorClass::by_position`]: crate::OperatorClass::by_position
    /// [`OperatorClass::exact`]: crate::OperatorClass::exact
    /// [`lanes`]: crate::reproducible::lanes
    Reproducible,
}

/// A name of no [`Numerics`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is none of `deterministic`, `batch-invariant`, `reproducible`")]
pub struct UnknownNumerics {
    name: String,
}

impl Numerics {
    /// All of them, from the fewest promises to the most.
    pub const ALL: [Numerics; 3] =
        [Numerics::Deterministic, Numerics::BatchInvariant, Numerics::Reproducible];

    /// The name in plans and on command lines.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Numerics::Deterministic => "deterministic",
            Numerics::BatchInvariant => "batch-invariant",
            Numerics::Reproducible => "reproducible",
        }
    }

    /// Whether the plan for a slice must not depend on the other outputs. Reproducible plans may:
    /// all of them give the same bits.
    pub(crate) const fn is_batch_invariant(self) -> bool {
        matches!(self, Numerics::BatchInvariant)
    }

    /// Whether bits are the same on every device.
    #[must_use]
    pub const fn is_reproducible(self) -> bool {
        matches!(self, Numerics::Reproducible)
    }

    /// Writes the name after `separator`, where it is not the usual one.
    pub(crate) fn write_unusual(self, f: &mut fmt::Formatter<'_>, separator: &str) -> fmt::Result {
        match self {
            Numerics::Deterministic => Ok(()),
            numerics => write!(f, "{separator}{numerics}"),
        }
    }

    /// Whether these are the numerics of a plan that does not say.
    #[cfg(feature = "serde")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Numerics {
    type Err = UnknownNumerics;

    fn from_str(name: &str) -> Result<Self, UnknownNumerics> {
        let found = Self::ALL.into_iter().find(|numerics| numerics.name() == name);
        found.ok_or_else(|| UnknownNumerics { name: name.to_owned() })
    }
}
