//! A case in one line, in the words of the peers' programs: `sum f32 [8192, 8192] axis 1`.

use std::{fmt, str::FromStr};

use reduce_kernels::{
    Axes, ElementType, OperatorName,
    operator::UnknownOperator,
    planner::{UnknownElementType, row_major_strides},
};

/// One reduction to time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// The operator.
    pub operator: OperatorName,
    /// Type of the elements.
    pub element: ElementType,
    /// Extents.
    pub shape: Vec<usize>,
    /// Strides in elements.
    pub strides: Vec<usize>,
    /// The reduced axes.
    pub axes: Axes,
    line: String,
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
        self.shape.iter().product()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

fn numbers(list: &str) -> Option<Vec<usize>> {
    let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts.map(|part| part.parse().ok()).collect()
}

impl FromStr for Case {
    type Err = CaseError;

    fn from_str(line: &str) -> Result<Self, Self::Err> {
        let line = line.trim();
        let error = |reason: &str| CaseError { line: line.into(), reason: reason.into() };
        let (head, rest) = line.split_once('[').ok_or_else(|| error("no shape in brackets"))?;
        let (shape, axes) = rest.split_once(']').ok_or_else(|| error("no shape in brackets"))?;
        let [operator, element] = head.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(error("no operator and element type before the shape"));
        };
        let operator =
            operator.parse().map_err(|unknown: UnknownOperator| error(&unknown.to_string()))?;
        let element =
            element.parse().map_err(|unknown: UnknownElementType| error(&unknown.to_string()))?;
        let mut shape = numbers(shape).ok_or_else(|| error("the shape is no list of numbers"))?;
        let mut strides = row_major_strides(&shape);
        let axes = axes.trim().strip_prefix("axis").ok_or_else(|| error("no `axis`"))?.trim();
        let axes = match axes.trim_matches(['(', ')']) {
            "all" => Axes::All,
            // A transposed view, summed along axis 1.
            "T" => {
                shape.reverse();
                strides.reverse();
                Axes::from(1)
            }
            list => Axes::List(numbers(list).ok_or_else(|| error("the axes are no numbers"))?),
        };
        Ok(Case { operator, element, shape, strides, axes, line: line.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms that the peers' programs print.
    #[test]
    fn cases_parse_in_the_words_of_peers() {
        let case: Case = "sum f32 [64, 256, 56, 56] axis (0, 2, 3)".parse().unwrap();
        assert_eq!(case.axes, Axes::from([0, 2, 3]));
        assert_eq!(case.elements(), 64 * 256 * 56 * 56);
        assert_eq!("max f16 [1024] axis all".parse::<Case>().unwrap().axes, Axes::All);
        assert_eq!("sum f32 [16, 32] axis (1,)".parse::<Case>().unwrap().axes, Axes::from(1));
        let transposed: Case = "sum f32 [4, 8] axis T".parse().unwrap();
        assert_eq!((transposed.shape, transposed.strides), (vec![8, 4], vec![1, 8]));
        let error = "sum f99 [4] axis all".parse::<Case>().unwrap_err();
        assert!(error.to_string().contains("f99"), "{error}");
    }
}
