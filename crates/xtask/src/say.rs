//! Lines on standard output.

use std::{
    fmt,
    io::{self, Write},
};

/// Prints a line. If its reader has closed the output, the tests continue, and the exit status
/// tells the result.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
