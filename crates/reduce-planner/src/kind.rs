//! The names of the schedules.

use core::fmt;

/// The schedules by name, in the order of what they cost to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum ScheduleKind {
    /// One unit works on an output: [`Schedule::Unit`](crate::Schedule::Unit).
    Unit,
    /// Lanes of a plane share an output: [`Schedule::Plane`](crate::Schedule::Plane).
    Plane,
    /// Units of a cube share an output: [`Schedule::Cube`](crate::Schedule::Cube).
    Cube,
    /// Several cubes share an output: [`Schedule::Split`](crate::Schedule::Split).
    Split,
}

impl ScheduleKind {
    /// Every schedule.
    pub const ALL: [ScheduleKind; 4] =
        [ScheduleKind::Unit, ScheduleKind::Plane, ScheduleKind::Cube, ScheduleKind::Split];

    /// The name in plans and messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ScheduleKind::Unit => "unit",
            ScheduleKind::Plane => "plane",
            ScheduleKind::Cube => "cube",
            ScheduleKind::Split => "split",
        }
    }
}

impl fmt::Display for ScheduleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
