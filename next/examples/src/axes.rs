//! `--axes`: all axes, or some counted from either end.

use std::str::FromStr;

/// The axes of a command line: `all`, or numbers such as `0,-1`, of which negative ones count from
/// the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AxesArgument {
    /// All axes of the tensor.
    All,
    /// These axes.
    List(Vec<isize>),
}

/// Axes that no tensor has, or not this one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AxisError {
    /// The text is no number.
    #[error("`{0}` is no axis: expected `all` or numbers such as 0,-1")]
    NoNumber(String),
    /// A negative axis counts to before the first.
    #[error("axis {axis} is out of range for a tensor of rank {rank}")]
    OutOfRange {
        /// The axis as given.
        axis: isize,
        /// The rank of the tensor.
        rank: usize,
    },
}

impl AxesArgument {
    /// The axes of a tensor of this rank, counted from the front. Those beyond the last stay so,
    /// for the library to name.
    ///
    /// # Errors
    ///
    /// A negative axis counts to before the first.
    pub fn from_the_front(&self, rank: usize) -> Result<Vec<usize>, AxisError> {
        let axes = match self {
            Self::All => return Ok((0..rank).collect()),
            Self::List(axes) => axes,
        };
        let front = |&axis: &isize| {
            let from_end = (rank as isize).saturating_add(axis);
            usize::try_from(axis)
                .or(usize::try_from(from_end))
                .map_err(|_| AxisError::OutOfRange { axis, rank })
        };
        axes.iter().map(front).collect()
    }
}

impl FromStr for AxesArgument {
    type Err = AxisError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Self::All);
        }
        let number = |axis: &str| axis.parse().map_err(|_| AxisError::NoNumber(axis.to_owned()));
        text.split(',').map(number).collect::<Result<_, _>>().map(Self::List)
    }
}
