//! Why a schedule was not taken.

use core::fmt;

use crate::{
    estimate::{Estimate, Limit},
    illegal::Illegal,
    kind::ScheduleKind,
    numerics::Numerics,
};

/// Why a schedule was not taken.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Reason {
    /// The device reports no plane operations.
    #[error("the device reports no plane operations")]
    NoPlaneOperations,
    /// Across outputs, lanes need planes of one size.
    #[error("planes have {min} to {max} units, and lanes across outputs need planes of one size")]
    PlaneSizeVaries {
        /// Units of the smallest plane.
        min: u32,
        /// Units of the largest plane.
        max: u32,
    },
    /// An output has too few loads for units to share.
    #[error("{loads} loads per output are too few to share among units")]
    NothingToShare {
        /// Loads per output.
        loads: u64,
    },
    /// Adjacent outputs take all lanes of a plane.
    #[error("{adjacent} adjacent outputs fill a plane of {plane} units")]
    OutputsFillPlane {
        /// Adjacent outputs, or vectors of outputs.
        adjacent: u64,
        /// Units of a plane.
        plane: u32,
    },
    /// An output has too few loads for several cubes.
    #[error("too short to split: {loads} loads per output, and two cubes need {needed}")]
    TooShortToSplit {
        /// Loads per output.
        loads: u64,
        /// The number of loads from which two cubes have enough to do.
        needed: u64,
    },
    /// The outputs keep every multiprocessor busy without a split.
    #[error("no need to split: {cubes} cubes without a split, and {wanted} fill the device")]
    OutputsFillDevice {
        /// Cubes without a split.
        cubes: u64,
        /// Cubes that fill the device.
        wanted: u64,
    },
    /// The schedule applies, and another one should be faster.
    #[error(
        "slower: {:.1} us expected (limited by {}) against {best_microseconds:.1} us (limited by \
         {best_limit})",
        estimate.microseconds(),
        estimate.limit()
    )]
    Slower {
        /// The estimate of this schedule.
        estimate: Estimate,
        /// What the schedule that was taken should take, in microseconds.
        best_microseconds: f64,
        /// The longest term of that estimate. The other terms are in the choice.
        best_limit: Limit,
    },
    /// The schedule would give other bits than the one that all problems with such slices have.
    #[error(
        "other bits: {numerics} results of such slices have {units} units of each of {cubes} cubes \
         per output"
    )]
    OtherBits {
        /// What bits may depend on.
        numerics: Numerics,
        /// Units of a cube that share an output.
        units: u32,
        /// Cubes that share an output.
        cubes: u32,
    },
    /// The schedule applies, and its launch would break a rule that plans must obey.
    #[error("{limit}")]
    PassesLimits {
        /// The rule, with the numbers.
        limit: Illegal,
    },
}

/// A schedule or a kind of plans that was not taken, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct Refusal<K = ScheduleKind, R = Reason> {
    /// What was not taken.
    pub kind: K,
    /// The reason.
    pub reason: R,
}

impl<K, R> Refusal<K, R> {
    /// A refusal of `kind` for `reason`.
    #[must_use]
    pub const fn new(kind: K, reason: R) -> Self {
        Self { kind, reason }
    }
}

impl<K: fmt::Display, R: fmt::Display> fmt::Display for Refusal<K, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.reason)
    }
}

/// The type of refusals where a plan has no alternatives. It has no values.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum NoRefusal {}

impl fmt::Display for NoRefusal {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
