//! docs/SEMANTICS.md beside the list of operators.

use reduce_kernels::{
    Operator,
    by_name::{OperatorName, OperatorOptions, with_operator},
    operator::Reproducible,
};

const SEMANTICS: &str = include_str!("../../../../docs/SEMANTICS.md");

/// A row of the table for each operator, in the order of the list: its name, its type, whether it
/// has a value for a reduction of no elements, and what makes it reproducible.
#[test]
fn every_operator_has_its_row() {
    fn properties<O: Operator>(_: O) -> (bool, &'static str) {
        let reproducible = match O::REPRODUCIBLE {
            Reproducible::ByPosition => "by position",
            Reproducible::Exact => "exact",
            _ => "no",
        };
        (O::DEFINED_ON_EMPTY, reproducible)
    }
    let lines = SEMANTICS.lines().skip_while(|line| !line.starts_with("| name | Rust |")).skip(2);
    let rows: Vec<Vec<&str>> = lines
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    let names: Vec<&str> = rows.iter().map(|row| row[1]).collect();
    let listed: Vec<&str> = OperatorName::ALL.iter().map(|operator| operator.name()).collect();
    assert_eq!(names, listed);
    for (row, &operator) in rows.iter().zip(OperatorName::ALL) {
        assert_eq!(row[2], format!("{operator:?}"));
        let options = OperatorOptions::default();
        let (defined, reproducible) =
            with_operator!(operator, options, operator => properties(operator));
        assert_eq!(row[4] != "an error", defined, "{operator}");
        assert_eq!(row[10], reproducible, "{operator}");
    }
}
