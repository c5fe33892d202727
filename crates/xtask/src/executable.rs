//! Test executables.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::process::{Failure, environment};

/// A test executable, and where and how to run it.
#[derive(Clone, Debug)]
pub(crate) struct Executable {
    /// The file.
    pub path: PathBuf,
    /// What it is called in reports.
    pub name: String,
    /// The folder to run it in; the current one if not given.
    pub folder: Option<PathBuf>,
}

impl Executable {
    /// A file given by its path.
    pub(crate) fn at(path: &Path) -> Self {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        // Cargo puts a hash behind the target's name.
        let name = stem.rsplit_once('-').map_or(&*stem, |(name, _)| name).to_owned();
        Self { path: path.to_owned(), name, folder: None }
    }

    /// A command that runs it.
    pub(crate) fn command(&self, wrap: Option<&str>) -> Command {
        let mut words = wrap.into_iter().flat_map(str::split_whitespace);
        let mut command = match words.next() {
            Some(program) => {
                let mut command = Command::new(program);
                command.args(words).arg(&self.path);
                command
            }
            None => Command::new(&self.path),
        };
        command.envs(environment());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command
    }

    /// The names of its tests.
    ///
    /// # Errors
    ///
    /// It does not run here, or does not list any.
    pub(crate) fn tests(&self) -> Result<Vec<String>, Failure> {
        let mut command = self.command(None);
        command.args(["--list", "--format", "terse"]);
        let line = format!("{} --list", self.path.display());
        let output = command
            .output()
            .map_err(|reason| Failure::NotStarted { command: line.clone(), reason })?;
        if !output.status.success() {
            return Err(Failure::Failed(line));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        Ok(said.lines().filter_map(|line| line.strip_suffix(": test")).map(String::from).collect())
    }
}
