//! Reductions of tensors that are cut over several devices: what `shards` times, and what it makes
//! of the times.

mod case;
mod check;
mod inputs;
mod measure;
mod picture;
mod record;

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

pub use case::CutCase;
pub use check::{Mismatch, ReadError, Values, agree, read_values, same_bits};
pub use inputs::{Part, fill};
pub use measure::{
    ShardsRunError, cut_on_one, cut_over, results_on_all, results_through_host, time_on_all,
    time_parts, time_whole,
};
pub use picture::shards_picture;
pub use record::{
    ShardsRecord, ShardsTiming, SimulatedTiming, Skipped, efficiency, exchange_microseconds,
};

/// The operators that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// [`Sum`](reduce_kernels::Sum).
    Sum,
    /// [`Max`](reduce_kernels::Max).
    Max,
    /// [`ArgMax`](reduce_kernels::ArgMax).
    Argmax,
    /// [`MeanVar`](reduce_kernels::MeanVar).
    MeanVar,
    /// [`LogSumExp`](reduce_kernels::operators::LogSumExp).
    Logsumexp,
    /// [`MeanAngle`](reduce_own_operator::MeanAngle), which is an operator of a user's own.
    MeanAngle,
}

/// Evaluates an expression with the operator that a [`Work`](crate::shards::Work) stands for.
#[macro_export]
macro_rules! with_work {
    ($work:expr, $operator:ident => $body:expr) => {{
        use $crate::shards::Work;
        match $work {
            Work::Sum => {
                let $operator = ::reduce_kernels::Sum;
                $body
            }
            Work::Max => {
                let $operator = ::reduce_kernels::Max;
                $body
            }
            Work::Argmax => {
                let $operator = ::reduce_kernels::ArgMax;
                $body
            }
            Work::MeanVar => {
                let $operator = ::reduce_kernels::MeanVar { correction: 0.0 };
                $body
            }
            Work::Logsumexp => {
                let $operator = ::reduce_kernels::operators::LogSumExp;
                $body
            }
            Work::MeanAngle => {
                let $operator = ::reduce_own_operator::MeanAngle;
                $body
            }
        }
    }};
}

/// Why the arguments are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShardsArgumentError {
    /// No such operator.
    #[error("`{0}` is none of the timed operators: {names}", names = names())]
    Operator(String),
    /// A list without anything in it.
    #[error("the list of {what} is empty")]
    EmptyList {
        /// What is listed.
        what: &'static str,
    },
    /// Not a number of devices.
    #[error("`{0}` is no number of devices: expected a list such as 1,2,4")]
    Count(String),
    /// More devices than there are.
    #[error("--gpus asks for {asked} devices, and there are {present}")]
    Devices {
        /// The number in the list.
        asked: usize,
        /// The number of devices.
        present: usize,
    },
    /// A tensor of less than one element along the cut axis for each shard.
    #[error(
        "--elements {elements} in rows of {outputs} are {rows} rows, too few for {shards} shards"
    )]
    TooFew {
        /// Number of elements.
        elements: usize,
        /// Elements of a row.
        outputs: usize,
        /// Number of whole rows.
        rows: usize,
        /// Number of shards.
        shards: usize,
    },
    /// A tensor whose bytes no 64 bits count.
    #[error("--elements {0} have more bytes than 64 bits can count")]
    TooMany(usize),
    /// A number that must not be 0.
    #[error("{0} must be positive")]
    Zero(&'static str),
}

fn names() -> String {
    Work::ALL.map(Work::name).join(", ")
}

impl Work {
    /// All operators, in the order in which they are timed.
    pub const ALL: [Work; 6] =
        [Work::Sum, Work::Max, Work::Argmax, Work::MeanVar, Work::Logsumexp, Work::MeanAngle];

    /// The name, such as `sum`.
    pub const fn name(self) -> &'static str {
        match self {
            Work::Sum => "sum",
            Work::Max => "max",
            Work::Argmax => "argmax",
            Work::MeanVar => "mean_var",
            Work::Logsumexp => "logsumexp",
            Work::MeanAngle => "mean_angle",
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Work {
    type Err = ShardsArgumentError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Work::ALL.into_iter().find(|work| work.name() == name);
        found.ok_or_else(|| ShardsArgumentError::Operator(name.into()))
    }
}

/// The operators of a list such as `sum,max`.
///
/// # Errors
///
/// A name that is none, or an empty list.
pub fn works(list: &str) -> Result<Vec<Work>, ShardsArgumentError> {
    items(list, "operators")?.into_iter().map(str::parse).collect()
}

/// The numbers of a list such as `1,2,4`, each once, in ascending order.
///
/// # Errors
///
/// A number that is none or 0, or an empty list.
pub fn counts(list: &str) -> Result<Vec<usize>, ShardsArgumentError> {
    let count = |text: &str| {
        let count = text.parse().ok().filter(|&count: &usize| count > 0);
        count.ok_or_else(|| ShardsArgumentError::Count(text.into()))
    };
    let mut counts =
        items(list, "devices")?.into_iter().map(count).collect::<Result<Vec<_>, _>>()?;
    counts.sort_unstable();
    counts.dedup();
    Ok(counts)
}

fn items<'a>(list: &'a str, what: &'static str) -> Result<Vec<&'a str>, ShardsArgumentError> {
    let items: Vec<&str> = list.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    if items.is_empty() { Err(ShardsArgumentError::EmptyList { what }) } else { Ok(items) }
}

/// The powers of two up to `devices`.
pub fn powers_of_two(devices: usize) -> Vec<usize> {
    (0..usize::BITS).map(|log2| 1 << log2).take_while(|&count| count <= devices).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read() {
        assert_eq!(works("sum, mean_angle").unwrap(), [Work::Sum, Work::MeanAngle]);
        for work in Work::ALL {
            assert_eq!(works(work.name()), Ok(vec![work]));
        }
        let unknown = works("sum,variance").unwrap_err().to_string();
        assert!(unknown.starts_with("`variance` is none of the timed operators: sum, max,"));
        assert_eq!(works(","), Err(ShardsArgumentError::EmptyList { what: "operators" }));

        assert_eq!(counts("4,1, 2,4").unwrap(), [1, 2, 4]);
        assert_eq!(counts("1,0"), Err(ShardsArgumentError::Count("0".into())));
        assert_eq!(counts("two"), Err(ShardsArgumentError::Count("two".into())));
        assert_eq!(counts(""), Err(ShardsArgumentError::EmptyList { what: "devices" }));
        assert_eq!(powers_of_two(8), [1, 2, 4, 8]);
        assert_eq!(powers_of_two(6), [1, 2, 4]);
        assert!(powers_of_two(0).is_empty());
    }
}
