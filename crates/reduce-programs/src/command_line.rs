//! What the programs have in common on the command line: mistakes get one line, and status 2.

use std::{
    fmt,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Parser, error::ErrorKind};

/// The arguments of this program; prints help and version itself.
///
/// # Errors
///
/// What is wrong with them, in one line.
pub fn arguments<A: Parser>() -> Result<A, String> {
    A::try_parse().map_err(|error| {
        if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            error.exit();
        }
        // The first paragraph says what is wrong; usage follows it.
        let text = error.to_string();
        let wrong: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
        let wrong = wrong.join(" ");
        let words: Vec<&str> = wrong.trim_start_matches("error: ").split_whitespace().collect();
        words.join(" ")
    })
}

/// Says in one line why `program` failed.
pub fn fail(program: &str, message: impl fmt::Display) -> ExitCode {
    // Where stderr is closed, the status still tells.
    let _ = writeln!(io::stderr(), "{program}: {message}");
    ExitCode::from(2)
}

/// Prints a line. A reader that has seen enough, such as `head`, is no error.
///
/// # Errors
///
/// What the file system says.
pub fn say(line: impl fmt::Display) -> io::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        said => said,
    }
}
