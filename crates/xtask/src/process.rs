//! Running other programs: their environment, and what can go wrong.

use std::env;

/// The error that ends a task early.
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
    /// The API of a library is not the listed one, or its root has too many names.
    #[error("{0}")]
    Api(String),
    /// A file could not be read or written.
    #[error("{path}: {reason}", path = path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// There is no device, and nothing this program knows to install for one.
    #[error("{0}")]
    NoAdapter(String),
}

/// The environment variables for programs that compile kernels.
pub(crate) fn environment() -> Vec<(&'static str, std::ffi::OsString)> {
    // A test runs a kernel once or twice. Optimising it takes Mesa's software adapter longer than
    // it saves.
    let mut variables = vec![("GALLIVM_PERF", "nopt".into())];
    // Mesa complains once per program where no desktop session set this.
    if env::var_os("XDG_RUNTIME_DIR").is_none() {
        variables.push(("XDG_RUNTIME_DIR", env::temp_dir().into()));
    }
    variables
}
