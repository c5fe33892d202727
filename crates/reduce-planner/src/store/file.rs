//! Files of stores: reading, and replacing one whole while no other process does.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use super::{StoreError, format::MOST_BYTES};

/// The file's text.
///
/// # Errors
///
/// The file cannot be read, is too long, or is not UTF-8.
pub(super) fn read(path: &Path) -> Result<String, StoreError> {
    let failed = |error| StoreError::File { operation: "read", path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(failed)?;
    file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(StoreError::TooLong { max: MOST_BYTES });
    }
    String::from_utf8(bytes)
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidData, error)))
}

/// A file that only this process changes, as long as the value lives.
pub(super) struct Locked {
    path: PathBuf,
    /// The lock is on a file of its own, because replacing the file itself would leave other
    /// processes with a lock on the replaced one. It ends when this is closed.
    _lock: File,
}

impl Locked {
    /// Waits until no other process has the file.
    ///
    /// # Errors
    ///
    /// The path names no file, or the file beside it cannot be created or locked.
    pub(super) fn wait(path: &Path) -> Result<Self, StoreError> {
        // A link stays a link to the file that is replaced. A file that does not exist yet has no
        // canonical path.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let beside = beside(&path, ".lock")?;
        let open = OpenOptions::new().create(true).truncate(false).write(true).open(&beside);
        let lock = open.and_then(|lock| lock.lock().map(|()| lock));
        let lock = lock.map_err(|error| failed("lock", &beside, error))?;
        Ok(Self { path, _lock: lock })
    }

    /// The file's text, or `None` if there is no file.
    pub(super) fn read(&self) -> Result<Option<String>, StoreError> {
        match read(&self.path) {
            Err(error) if error.is_missing_file() => Ok(None),
            read => read.map(Some),
        }
    }

    /// Puts a file with this text in place of the old one. Whoever reads at that moment sees one of
    /// the two, and so does whoever reads after a crash.
    pub(super) fn replace(&self, text: &str) -> Result<(), StoreError> {
        // Only who has the lock writes this file, so one name does for all. A crash may leave it.
        let temporary = beside(&self.path, ".new")?;
        let write = || {
            let mut file = File::create(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&temporary, &self.path)
        };
        write().map_err(|error| {
            // The first error is the one to report.
            let _ = fs::remove_file(&temporary);
            failed("write", &self.path, error)
        })?;
        self.sync_folder().map_err(|error| failed("write", &self.path, error))
    }

    /// Makes the new name of the file last through a crash.
    #[cfg(unix)]
    fn sync_folder(&self) -> io::Result<()> {
        match self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => File::open(folder)?.sync_all(),
            None => File::open(".")?.sync_all(),
        }
    }

    /// Other systems do not open folders as files.
    #[cfg(not(unix))]
    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }
}

fn failed(operation: &'static str, path: &Path, error: io::Error) -> StoreError {
    StoreError::File { operation, path: path.to_owned(), error }
}

/// The path of a file in the same folder, with `ending` after the name.
fn beside(path: &Path, ending: &str) -> Result<PathBuf, StoreError> {
    let Some(name) = path.file_name() else {
        return Err(failed("write", path, io::ErrorKind::InvalidInput.into()));
    };
    let mut name = OsString::from(name);
    name.push(ending);
    Ok(path.with_file_name(name))
}
