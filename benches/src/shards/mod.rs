//! Reductions of tensors that are cut over several devices: what `shards` times, and what it makes
//! of the times.

mod check;
mod inputs;
mod measure;
mod picture;
mod record;

use std::{fmt, ops::Range, str::FromStr};

use serde::{Deserialize, Serialize};

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
    /// [`LogSumExp`](reduce_kernels::LogSumExp).
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
                let $operator = ::reduce_kernels::LogSumExp;
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

/// A tensor of f32 that is reduced over axis 0 and cut along it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CutCase {
    /// The extent of axis 0.
    pub rows: usize,
    /// The extent of axis 1; `None` for a vector.
    pub outputs: Option<usize>,
}

impl CutCase {
    /// A vector, and a matrix with `outputs` columns, of `elements` each; the matrix has the rows
    /// that are whole.
    ///
    /// # Errors
    ///
    /// Elements that no 64 bits count the bytes of, or fewer rows than `shards`.
    pub fn both(
        elements: usize,
        outputs: usize,
        shards: usize,
    ) -> Result<[Self; 2], ShardsArgumentError> {
        if elements.checked_mul(size_of::<f32>()).is_none() {
            return Err(ShardsArgumentError::TooMany(elements));
        }
        if outputs == 0 {
            return Err(ShardsArgumentError::Zero("--outputs"));
        }
        let rows = elements / outputs;
        // A vector has at least as many rows.
        if rows < shards {
            return Err(ShardsArgumentError::TooFew { elements, outputs, rows, shards });
        }
        let vector = Self { rows: elements, outputs: None };
        Ok([vector, Self { rows, outputs: Some(outputs) }])
    }

    /// Elements of a row.
    pub fn row_len(&self) -> usize {
        self.outputs.unwrap_or(1)
    }

    /// Shape of a part of `rows` rows.
    pub fn shape(&self, rows: usize) -> Vec<usize> {
        [Some(rows), self.outputs].into_iter().flatten().collect()
    }

    /// Bytes of `rows` rows.
    pub fn bytes(&self, rows: usize) -> u64 {
        (rows * self.row_len() * size_of::<f32>()) as u64
    }

    /// The rows of each of `shards` shards. Their numbers differ by one at most.
    pub fn shards(&self, shards: usize) -> Vec<Range<usize>> {
        let (least, larger) = (self.rows / shards, self.rows % shards);
        let start = |nth: usize| nth * least + nth.min(larger);
        (0..shards).map(|nth| start(nth)..start(nth + 1)).collect()
    }

    /// The rows that have larger elements than all others. They lie in the last eighth, so a wrong
    /// start of a shard shows in positions.
    pub fn peak(&self) -> Range<usize> {
        const ELEMENTS: usize = 4096;

        let start = self.rows - self.rows.div_ceil(8);
        let rows = ELEMENTS.div_ceil(self.row_len());
        start..self.rows.min(start + rows)
    }

    /// Bytes of the largest of `shards` shards, if that is more than the `available` bytes that an
    /// input on one device may have.
    pub fn too_large(&self, shards: usize, available: u64) -> Option<u64> {
        let needed = self.bytes(self.rows.div_ceil(shards));
        (needed > available).then_some(needed)
    }
}

impl fmt::Display for CutCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "f32 {:?} axis 0", self.shape(self.rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_cover_all_rows_evenly() {
        let case = CutCase { rows: 10, outputs: Some(3) };
        assert_eq!(case.shards(4), [0..3, 3..6, 6..8, 8..10]);
        assert_eq!(case.shards(2), [0..5, 5..10]);
        assert_eq!((case.shape(3), case.bytes(3)), (vec![3, 3], 36));
        let large = CutCase { rows: 50_000_000_000, outputs: None };
        assert_eq!(large.shards(2), [0..25_000_000_000, 25_000_000_000..50_000_000_000]);
        assert_eq!(large.to_string(), "f32 [50000000000] axis 0");
    }

    #[test]
    fn cases_have_rows_for_all_shards() {
        let [vector, columns] = CutCase::both(1 << 32, 1024, 8).unwrap();
        assert_eq!((vector.rows, columns.rows), (1 << 32, 1 << 22));
        assert_eq!(columns.to_string(), "f32 [4194304, 1024] axis 0");
        assert_eq!(
            CutCase::both(3000, 1024, 4),
            Err(ShardsArgumentError::TooFew { elements: 3000, outputs: 1024, rows: 2, shards: 4 })
        );
        assert_eq!(CutCase::both(8, 0, 1), Err(ShardsArgumentError::Zero("--outputs")));
        assert!(matches!(CutCase::both(usize::MAX, 1, 1), Err(ShardsArgumentError::TooMany(_))));
    }

    /// The largest elements lie in the last of up to eight shards, within the tensor.
    #[test]
    fn peaks_lie_in_the_last_shard() {
        for (rows, outputs) in [(1, None), (7, None), (1 << 32, None), (9, Some(1024))] {
            let case = CutCase { rows, outputs };
            let peak = case.peak();
            assert!(!peak.is_empty() && peak.end <= rows, "{case}: {peak:?}");
            let last = case.shards(rows.min(8)).pop().unwrap();
            assert!(peak.start >= last.start || rows < 16, "{case}: {peak:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_skipped() {
        let case = CutCase { rows: 1000, outputs: Some(1024) };
        assert_eq!(case.too_large(1, 4 << 20), None);
        assert_eq!(case.too_large(1, 4 << 18), Some(4_096_000));
        assert_eq!(case.too_large(4, 4 << 18), None);
        // The largest of three shards has 334 rows.
        assert_eq!(case.too_large(3, 333 * 4096), Some(334 * 4096));
    }

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
