//! What a run measured, as JSON.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use reduce_kernels::{Device, Plan};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::{Case, Floor};

/// Everything that one run of `side_by_side` measured on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// CubeCL's name of the runtime: `cuda`, `wgpu<spirv>`.
    pub runtime: String,
    /// The device as the planner sees it.
    pub device: Device,
    /// What no case can be faster than.
    pub floor: Floor,
    /// The cases in the order in which they were stated, without those that were skipped.
    pub cases: Vec<Timing>,
}

/// The times of one case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The case.
    pub case: Case,
    /// Bytes that must move: each input element read once, each result written once.
    pub bytes: u64,
    /// The plan that the library chose.
    pub plan: Plan,
    /// The same in words.
    pub plan_text: String,
    /// Time per call in a stream of back-to-back calls over rotating buffers.
    pub microseconds: f64,
    /// Device time per call without the host; see [`Delay`](crate::Delay). Absent where it was not
    /// asked for or the host's work could not be hidden.
    pub kernel_microseconds: Option<f64>,
    /// `bytes` over `microseconds`, in 10⁹ bytes per second.
    pub gigabytes_per_second: f64,
    /// What no call can be faster than.
    pub floor_microseconds: f64,
    /// `floor_microseconds` over `microseconds`: 1 is as fast as can be.
    pub floor_share: f64,
    /// Other plans that were timed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// The fastest routine of cubek-reduce, if it has one for the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubek: Option<CubekTiming>,
}

/// The time of a plan that the library did not choose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The plan.
    pub plan: Plan,
    /// The same in words.
    pub plan_text: String,
    /// Time per call in a stream of back-to-back calls.
    pub microseconds: f64,
}

/// The time of cubek-reduce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CubekTiming {
    /// The routine that was fastest.
    pub routine: String,
    /// Time per call in a stream of back-to-back calls.
    pub microseconds: f64,
}

impl Timing {
    /// States the times of a case, with what follows from them.
    pub fn new(case: Case, bytes: u64, plan: Plan, microseconds: f64, floor: &Floor) -> Self {
        let floor_microseconds = floor.microseconds(bytes);
        Self {
            case,
            bytes,
            plan,
            plan_text: plan.to_string(),
            microseconds,
            kernel_microseconds: None,
            gigabytes_per_second: gigabytes_per_second(bytes, microseconds),
            floor_microseconds,
            floor_share: floor_microseconds / microseconds,
            tried: Vec::new(),
            cubek: None,
        }
    }
}

/// A rate in 10⁹ bytes per second.
pub fn gigabytes_per_second(bytes: u64, microseconds: f64) -> f64 {
    bytes as f64 / microseconds / 1e3
}

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// What the file system says.
    #[error("{path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Text that is not what the file should hold.
    #[error("{path}: {source}", path = path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
}

/// The text of a file.
///
/// # Errors
///
/// What the file system says.
pub fn read(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|source| FileError::Io { path: path.into(), source })
}

/// A file to be: it takes its place whole or not at all, and whether it can is known beforehand.
#[derive(Debug)]
pub struct Staged {
    file: NamedTempFile,
    path: PathBuf,
}

impl Staged {
    /// An empty file beside `path`, which goes away unless it is put there.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn beside(path: &Path) -> Result<Self, FileError> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let file = match path.is_dir() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => NamedTempFile::new_in(folder),
        };
        let file = file.map_err(|source| FileError::Io { path: path.into(), source })?;
        Ok(Self { file, path: path.into() })
    }

    /// Writes a text and puts the file in its place.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn put(self, text: &str) -> Result<(), FileError> {
        let Self { mut file, path } = self;
        let written = file.write_all(text.as_bytes());
        let put = written.and_then(|()| Ok(file.persist(&path)?));
        put.map(drop).map_err(|source| FileError::Io { path, source })
    }
}

/// Writes a file that appears whole or not at all.
///
/// # Errors
///
/// What the file system says.
pub fn write(path: &Path, text: &str) -> Result<(), FileError> {
    Staged::beside(path)?.put(text)
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or that is no record.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        serde_json::from_str(&read(path)?)
            .map_err(|source| FileError::Json { path: path.into(), source })
    }

    /// Writes the record, whole or not at all.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|source| FileError::Json { path: path.into(), source })?;
        text.push('\n');
        write(path, &text)
    }
}
