//! Lines on standard output.

use std::{
    fmt,
    io::{self, Write},
};

/// Prints a line. Where its reader has gone, the tests go on, and the status tells how they ended.
pub(crate) fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}
