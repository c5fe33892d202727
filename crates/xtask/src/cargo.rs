//! Calling cargo, and counting the tests that it ran.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

/// What ends a task early.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A command could not be started.
    #[error("`{command}` could not be started: {reason}")]
    NotStarted {
        /// The command line.
        command: String,
        /// What the system said.
        reason: std::io::Error,
    },
    /// A command failed.
    #[error("`{0}` failed")]
    Failed(String),
    /// There is no device, and nothing this program knows to install for one.
    #[error("{0}")]
    NoAdapter(String),
}

/// Runs a command to its end, saying so first.
pub fn run(command: &mut Command) -> Result<(), Failure> {
    let line = announce(command);
    let status =
        command.status().map_err(|reason| Failure::NotStarted { command: line.clone(), reason })?;
    if status.success() { Ok(()) } else { Err(Failure::Failed(line)) }
}

/// Runs cargo.
pub fn cargo(arguments: &[&str]) -> Result<(), Failure> {
    run(&mut cargo_command(arguments))
}

/// Runs `cargo test` and returns how many tests passed.
pub fn cargo_test(arguments: &[&str]) -> Result<usize, Failure> {
    let mut command = cargo_command(&[&["test"], arguments].concat());
    let line = announce(&command);
    let failed = |reason| Failure::NotStarted { command: line.clone(), reason };
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut passed = 0;
    for line in child.stdout.take().into_iter().flat_map(|out| BufReader::new(out).lines()) {
        let line = line.map_err(failed)?;
        passed += passed_in(&line);
        println!("{line}");
    }
    let status = child.wait().map_err(failed)?;
    if status.success() { Ok(passed) } else { Err(Failure::Failed(line)) }
}

/// The tests that passed according to a line such as `test result: ok. 5 passed; 0 failed; ...`.
fn passed_in(line: &str) -> usize {
    line.strip_prefix("test result: ok. ")
        .and_then(|rest| rest.split(' ').next())
        .and_then(|count| count.parse().ok())
        .unwrap_or(0)
}

fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).env("RUSTDOCFLAGS", "--deny warnings");
    // Tests run a kernel once or twice: what Mesa's software adapter gains by optimising it, it loses.
    command.env("GALLIVM_PERF", "nopt");
    // Mesa complains once per program where no desktop session set this.
    if env::var_os("XDG_RUNTIME_DIR").is_none() {
        command.env("XDG_RUNTIME_DIR", env::temp_dir());
    }
    command
}

fn announce(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    let line = words.join(" ");
    eprintln!("$ {line}");
    line
}

#[cfg(test)]
mod tests {
    use super::passed_in;

    /// The closing count of CI rests on this.
    #[test]
    fn results_of_tests_are_counted() {
        assert_eq!(passed_in("test result: ok. 17 passed; 0 failed; 0 ignored; 0 measured"), 17);
        assert_eq!(passed_in("test oracle::the_oracle ... ok"), 0);
    }
}
