//! The command line of the programs. A mistake is reported in one line, with exit status 2.

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
    // If stderr is closed, the exit status still reports the failure.
    let _ = writeln!(io::stderr(), "{program}: {message}");
    ExitCode::from(2)
}

/// Prints a line. A reader that has closed the output, such as `head`, is no error.
///
/// # Errors
///
/// The error of the file system.
pub fn say(line: impl fmt::Display) -> io::Result<()> {
    match writeln!(io::stdout(), "{line}") {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        said => said,
    }
}
