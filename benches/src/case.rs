//! A case in one line, in the words of the peers' programs: `sum f32 [8192, 8192] axis 1`.

use std::{fmt, str::FromStr};

use reduce_kernels::{
    Axes, ElementType,
    by_name::{OperatorName, UnknownOperator},
    planner::{UnknownElementType, row_major_strides},
};

/// One reduction to time. [`Display`](fmt::Display) gives the line in its one spelling, whatever
/// the spelling that was parsed: two equal cases print alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Case {
    /// The operator.
    pub operator: OperatorName,
    /// Type of the elements.
    pub element: ElementType,
    /// Extents of the buffer, row-major.
    pub stored: Vec<usize>,
    /// What is reduced.
    pub over: Over,
}

/// What a case reduces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Over {
    /// All axes.
    All,
    /// These axes, ascending.
    Axes(Vec<usize>),
    /// Axis 1 of the transposed view of a matrix.
    Transposed,
}

/// A line that states no case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{line}` is no case: {reason} (expected `sum f32 [8192, 8192] axis 1`, `axis (0, 2)`, `axis all` or `axis T`)"
)]
pub struct CaseError {
    line: String,
    reason: String,
}

impl Case {
    /// Elements of the input.
    pub fn elements(&self) -> usize {
        self.stored.iter().fold(1, |all, &extent| all.saturating_mul(extent))
    }

    /// Bytes of the input.
    pub fn input_bytes(&self) -> u64 {
        (self.elements() as u64).saturating_mul(self.element.bytes() as u64)
    }

    /// Extents of the tensor that is reduced.
    pub fn shape(&self) -> Vec<usize> {
        self.as_viewed(self.stored.clone())
    }

    /// Strides of the tensor that is reduced, in elements.
    pub fn strides(&self) -> Vec<usize> {
        self.as_viewed(row_major_strides(&self.stored))
    }

    fn as_viewed(&self, mut along_axes: Vec<usize>) -> Vec<usize> {
        if self.over == Over::Transposed {
            along_axes.reverse();
        }
        along_axes
    }

    /// The reduced axes of that tensor.
    pub fn axes(&self) -> Axes {
        match &self.over {
            Over::All => Axes::All,
            Over::Axes(axes) => Axes::List(axes.clone()),
            Over::Transposed => Axes::from(1),
        }
    }
}

impl fmt::Display for Over {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Over::All => f.write_str("all"),
            Over::Transposed => f.write_str("T"),
            Over::Axes(axes) => match axes[..] {
                [axis] => write!(f, "{axis}"),
                _ => {
                    let axes: Vec<String> = axes.iter().map(usize::to_string).collect();
                    write!(f, "({})", axes.join(", "))
                }
            },
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operator, element, stored, over } = self;
        write!(f, "{operator} {element} {stored:?} axis {over}")
    }
}

impl From<Case> for String {
    fn from(case: Case) -> Self {
        case.to_string()
    }
}

impl TryFrom<String> for Case {
    type Error = CaseError;

    fn try_from(line: String) -> Result<Self, CaseError> {
        line.parse()
    }
}

fn numbers(list: &str) -> Option<Vec<usize>> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.parse().ok()).collect()
}

/// Our name for what a peer's program calls otherwise.
fn operator_name(word: &str) -> Result<OperatorName, UnknownOperator> {
    match word {
        "segsum" => Ok(OperatorName::Sum),
        "norm2" => Ok(OperatorName::NormL2),
        word => word.parse(),
    }
}

/// Whether a word names the engine that a result line is of: `CUB`, `TORCH`.
fn is_engine(word: &str) -> bool {
    word.chars().all(|letter| letter.is_ascii_uppercase())
}

impl FromStr for Case {
    type Err = CaseError;

    /// Reads a case, or the case of a result line: the engine before it and what follows the colon
    /// are ignored.
    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let line = line.trim();
        let error = |reason: &str| CaseError { line: line.into(), reason: reason.into() };
        let stated = line.split(':').next().unwrap_or(line);
        let (head, rest) = stated.split_once('[').ok_or_else(|| error("no shape in brackets"))?;
        let (shape, axes) = rest.split_once(']').ok_or_else(|| error("no shape in brackets"))?;
        let (operator, element) = match head.split_whitespace().collect::<Vec<_>>()[..] {
            [operator, element] => (operator, element),
            [engine, operator, element] if is_engine(engine) => (operator, element),
            _ => return Err(error("no operator and element type before the shape")),
        };
        let operator = operator_name(operator).map_err(|unknown| error(&unknown.to_string()))?;
        let element =
            element.parse().map_err(|unknown: UnknownElementType| error(&unknown.to_string()))?;
        let stored = numbers(shape).ok_or_else(|| error("the shape is no list of numbers"))?;
        let axes = axes.trim().strip_prefix("axis").ok_or_else(|| error("no `axis`"))?.trim();
        let over = match axes.trim_matches(['(', ')']) {
            "all" => Over::All,
            "T" if stored.len() == 2 => Over::Transposed,
            "T" => return Err(error("`axis T` is of a matrix")),
            list => {
                let mut axes = numbers(list).ok_or_else(|| error("the axes are no numbers"))?;
                axes.sort_unstable();
                Over::Axes(axes)
            }
        };
        Ok(Case { operator, element, stored, over })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Case {
        line.parse().unwrap()
    }

    /// The forms that the peers' programs print.
    #[test]
    fn cases_parse_in_the_words_of_peers() {
        let case = parsed("sum f32 [64, 256, 56, 56] axis (0, 2, 3)");
        assert_eq!(case.axes(), Axes::from([0, 2, 3]));
        assert_eq!(case.elements(), 64 * 256 * 56 * 56);
        assert_eq!(parsed("max f16 [1024] axis all").axes(), Axes::All);
        assert_eq!(parsed("sum f32 [16, 32] axis (1,)").axes(), Axes::from(1));
        let transposed = parsed("sum f32 [4, 8] axis T");
        assert_eq!((transposed.shape(), transposed.strides()), (vec![8, 4], vec![1, 8]));
        let error = "sum f99 [4] axis all".parse::<Case>().unwrap_err();
        assert!(error.to_string().contains("f99"), "{error}");
    }

    /// A report joins by the printed line, so every spelling must print alike.
    #[test]
    fn spellings_of_a_case_print_alike() {
        for (line, printed) in [
            (
                "CUB segsum f32 [65536, 1024] axis 1: 136.00 us 1975.2 GB/s",
                "sum f32 [65536, 1024] axis 1",
            ),
            (
                "TORCH norm2 f32 [65536, 1024] axis (1,): 73.60 us 1.0 GB/s",
                "norm_l2 f32 [65536, 1024] axis 1",
            ),
            ("sum f32 [4,8,2] axis (2, 0)", "sum f32 [4, 8, 2] axis (0, 2)"),
            ("sum f32 [8192, 8192] axis T", "sum f32 [8192, 8192] axis T"),
            ("CUB argmax f32 [268435456] axis all: 1 us", "argmax f32 [268435456] axis all"),
        ] {
            assert_eq!(parsed(line).to_string(), printed);
            assert_eq!(parsed(printed), parsed(line));
        }
    }

    /// Lines of a peer's program that state no result.
    #[test]
    fn other_lines_are_refused() {
        for line in [
            "COPY 4GiB d2d: 3942.1 GB/s read+write",
            "NVIDIA H200 SMs 132 L2 62914560 CUB 300001",
            "FAIL logsumexp (8192, 8192) (1,) out of memory",
            "sum f32 [4, 4, 4] axis T",
        ] {
            assert!(line.parse::<Case>().is_err(), "{line}");
        }
    }

    /// A typing error in the file would otherwise show on the device.
    #[test]
    fn the_file_of_facts_holds_cases_once_each() {
        let stated = include_str!("../cases/facts.txt").lines();
        let stated = stated.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut seen = std::collections::HashSet::new();
        for line in stated {
            assert_eq!(parsed(line).to_string(), line);
            assert!(seen.insert(line), "{line} is there twice");
        }
    }
}
