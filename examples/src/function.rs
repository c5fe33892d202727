//! What a report says that was computed.

use std::fmt;

use serde::Serialize;

/// What was computed, as a field of a report that is named for its option.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Function {
    /// A reduction or a selection.
    Op {
        /// The name of the operator.
        op: &'static str,
    },
    /// A function that results are applied with.
    Apply {
        /// The name of the function.
        apply: &'static str,
    },
    /// A scan.
    Scan {
        /// The name of the scan.
        scan: &'static str,
        /// Whether the element at a position is left out of the result there.
        exclusive: bool,
        /// Whether it goes from the last position to the first.
        reverse: bool,
    },
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Function::Op { op: name } | Function::Apply { apply: name } => name.fmt(f),
            Function::Scan { scan, exclusive, reverse } => {
                let exclusive = if *exclusive { "exclusive " } else { "" };
                let reverse = if *reverse { "reverse " } else { "" };
                write!(f, "{exclusive}{reverse}scan with {scan}")
            }
        }
    }
}
