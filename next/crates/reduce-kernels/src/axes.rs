//! The axes that a reduction removes.

use core::ops::RangeFull;

/// The axes that a reduction removes.
///
/// `..` converts to all axes. A single axis converts too, and so does any list of axes, in any
/// order.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub enum Axes {
    /// Every axis.
    #[default]
    All,
    /// These axes, counted from 0, in any order.
    List(Vec<usize>),
}

impl Axes {
    pub(crate) fn as_slice(&self) -> Option<&[usize]> {
        match self {
            Axes::All => None,
            Axes::List(axes) => Some(axes),
        }
    }
}

impl From<RangeFull> for Axes {
    fn from(_: RangeFull) -> Self {
        Axes::All
    }
}

impl From<usize> for Axes {
    fn from(axis: usize) -> Self {
        Axes::List(vec![axis])
    }
}

impl<const N: usize> From<[usize; N]> for Axes {
    fn from(axes: [usize; N]) -> Self {
        Axes::List(axes.to_vec())
    }
}

impl From<&[usize]> for Axes {
    fn from(axes: &[usize]) -> Self {
        Axes::List(axes.to_vec())
    }
}

impl From<Vec<usize>> for Axes {
    fn from(axes: Vec<usize>) -> Self {
        Axes::List(axes)
    }
}
