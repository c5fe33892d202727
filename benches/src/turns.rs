//! How several processes share the cases of a command: each has a part of them, and they measure in
//! turns.

use std::{
    fs::{File, OpenOptions},
    io,
    path::PathBuf,
};

use clap::Args;

/// What a process does beside others of the same command.
#[derive(Args, Clone, Debug)]
pub struct Turns {
    /// Time only every `of`th case, from this one on: `0/4`. Several processes can share the work.
    #[arg(long, default_value = "0/1", value_parser = part)]
    part: (usize, usize),
    /// Share this file with the other processes: each compiles all its kernels first, and plans are
    /// timed when none compiles any more, one process after the other.
    #[arg(long)]
    lock: Option<PathBuf>,
}

fn part(text: &str) -> Result<(usize, usize), String> {
    let (nth, of) = text.split_once('/').ok_or("expected `0/4`")?;
    let number = |text: &str| text.parse::<usize>().map_err(|error| error.to_string());
    match (number(nth)?, number(of)?) {
        (nth, of) if nth < of => Ok((nth, of)),
        (nth, of) => Err(format!("there is no part {nth} of {of}")),
    }
}

/// The lock has failed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct LockError {
    path: PathBuf,
    source: io::Error,
}

/// A file that processes lock, or none.
#[derive(Debug)]
pub struct Lock(Option<(File, PathBuf)>);

impl Turns {
    /// The cases of this process.
    #[must_use]
    pub fn part_of<T>(&self, cases: impl IntoIterator<Item = T>) -> Vec<T> {
        let (nth, of) = self.part;
        cases.into_iter().skip(nth).step_by(of).collect()
    }

    /// Whether processes take turns.
    #[must_use]
    pub fn are_taken(&self) -> bool {
        self.lock.is_some()
    }

    /// Opens the file that is shared.
    ///
    /// # Errors
    ///
    /// It cannot be opened.
    pub fn lock(&self) -> Result<Lock, LockError> {
        let Some(path) = &self.lock else { return Ok(Lock(None)) };
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.map_err(|source| LockError { path: path.clone(), source })?;
        Ok(Lock(Some((file, path.clone()))))
    }
}

impl Lock {
    /// Does what other processes may do at the same time: compiling.
    ///
    /// # Errors
    ///
    /// Those of `work` and of the lock.
    pub fn beside_others<T, E: From<LockError>>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.locked(File::lock_shared, work)
    }

    /// Does what no other process may disturb: timing. It begins when no process compiles.
    ///
    /// # Errors
    ///
    /// Those of `work` and of the lock.
    pub fn alone<T, E: From<LockError>>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.locked(File::lock, work)
    }

    fn locked<T, E: From<LockError>>(
        &self,
        lock: impl FnOnce(&File) -> io::Result<()>,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let Some((file, path)) = &self.0 else { return work() };
        let failed = |source| LockError { path: path.clone(), source };
        lock(file).map_err(failed)?;
        // What fails ends the process, which unlocks the file.
        let done = work()?;
        file.unlock().map_err(failed)?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each case has one process, and a part that does not exist is refused.
    #[test]
    fn every_case_has_one_part() {
        let cases = |text: &str| {
            let part = part(text)?;
            Ok::<_, String>(Turns { part, lock: None }.part_of(0..7))
        };
        assert_eq!(cases("0/3"), Ok(vec![0, 3, 6]));
        assert_eq!(cases("2/3"), Ok(vec![2, 5]));
        assert_eq!(cases("0/1"), Ok((0..7).collect()));
        assert_eq!(cases("3/3"), Err("there is no part 3 of 3".to_owned()));
        assert_eq!(cases("3"), Err("expected `0/4`".to_owned()));
    }

    /// What runs alone waits for those that run beside others, in other processes too: each opens
    /// the file for itself.
    #[test]
    fn what_runs_alone_waits_for_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let turns = Turns { part: (0, 1), lock: Some(folder.path().join("lock")) };
        let (first, second) = (turns.lock().unwrap(), turns.lock().unwrap());
        first
            .beside_others(|| {
                second.beside_others(|| Ok::<_, LockError>(()))?;
                let (file, _) = second.0.as_ref().unwrap();
                assert!(matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
                Ok::<_, LockError>(())
            })
            .unwrap();
        second.alone(|| Ok::<_, LockError>(())).unwrap();
    }
}
