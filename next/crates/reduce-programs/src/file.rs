//! Files that appear whole or not at all.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = path.display())]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What the file system says.
    pub source: io::Error,
}

impl FileError {
    /// What the file system says about the file at `path`.
    pub fn new(path: &Path, source: io::Error) -> Self {
        Self { path: path.into(), source }
    }
}

/// The text of a file.
///
/// # Errors
///
/// What the file system says.
pub fn read(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(|source| FileError::new(path, source))
}

/// Writes a file that appears whole or not at all.
///
/// # Errors
///
/// What the file system says.
pub fn write(path: &Path, text: &str) -> Result<(), FileError> {
    let mut file = Staged::beside(path)?;
    file.append(text.as_bytes())?;
    file.put()
}

/// A temporary file in the folder of its final place. [`put`](Self::put) moves it there; otherwise
/// it is deleted. A program that creates one before its work finds out early whether the place can
/// be written.
#[derive(Debug)]
pub struct Staged {
    file: NamedTempFile,
    path: PathBuf,
}

impl Staged {
    /// An empty temporary file in the folder of `path`.
    ///
    /// # Errors
    ///
    /// What the file system says, or a folder at `path`.
    pub fn beside(path: &Path) -> Result<Self, FileError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let file = match path.is_dir() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => NamedTempFile::new_in(folder),
        };
        let file = file.map_err(|source| FileError::new(path, source))?;
        Ok(Self { file, path: path.into() })
    }

    /// Writes `bytes` at the end of the temporary file.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all(bytes).map_err(|source| FileError::new(&self.path, source))
    }

    /// Moves the file to its place, over the one that may be there.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn put(self) -> Result<(), FileError> {
        let Self { file, path } = self;
        match file.persist(&path) {
            Ok(_) => Ok(()),
            Err(error) => Err(FileError { path, source: error.error }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody sees half a file, and a file that is not put leaves nothing behind.
    #[test]
    fn files_appear_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.txt");
        let files = || fs::read_dir(folder.path()).unwrap().count();
        let mut file = Staged::beside(&path).unwrap();
        file.append(b"one, ").unwrap();
        file.append(b"two").unwrap();
        assert!(!path.exists());
        file.put().unwrap();
        assert_eq!(read(&path).unwrap(), "one, two");
        drop(Staged::beside(&path).unwrap());
        assert_eq!((read(&path).unwrap().as_str(), files()), ("one, two", 1));
        let refused = write(folder.path(), "text").unwrap_err();
        assert_eq!(refused.source.kind(), io::ErrorKind::IsADirectory);
    }
}
