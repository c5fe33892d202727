//! `--probabilities`: the elements over which probabilities add up to 1.

use clap::ValueEnum;
use reduce_kernels::top_k::Over;

/// The elements over which probabilities add up to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OverArgument {
    /// Those that are selected.
    Selected,
    /// All of the slice.
    Slice,
}

impl From<OverArgument> for Over {
    fn from(over: OverArgument) -> Self {
        match over {
            OverArgument::Selected => Over::Selected,
            OverArgument::Slice => Over::Slice,
        }
    }
}
