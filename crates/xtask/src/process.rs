//! Running other programs: their environment, and what can go wrong.

use std::env;

/// What ends a task early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
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
    /// Tests failed.
    #[error("these tests failed:\n{0}")]
    Tests(String),
    /// Tests that should be there are not.
    #[error("{0}")]
    Missing(String),
    /// There is no device, and nothing this program knows to install for one.
    #[error("{0}")]
    NoAdapter(String),
}

/// What programs that compile kernels are given on top of the environment.
pub(crate) fn environment() -> Vec<(&'static str, std::ffi::OsString)> {
    // Tests run a kernel once or twice: what Mesa's software adapter gains by optimising it, it loses.
    let mut variables = vec![("GALLIVM_PERF", "nopt".into())];
    // Mesa complains once per program where no desktop session set this.
    if env::var_os("XDG_RUNTIME_DIR").is_none() {
        variables.push(("XDG_RUNTIME_DIR", env::temp_dir().into()));
    }
    variables
}
