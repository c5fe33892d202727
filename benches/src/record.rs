//! What a run measured, as JSON.

use std::path::{Path, PathBuf};

use reduce_kernels::{Device, planner::Plan};
use reduce_programs::{FileError, Floor, gigabytes_per_second, read, write};
use serde::{Deserialize, Serialize};

use crate::Case;

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
    /// The plan that ran: the planner's choice, or that of a store.
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

/// A record that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// What the file system says.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file holds no record.
    #[error("{path}: {source}", path = path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
}

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    ///
    /// A file that cannot be read, or that is no record.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        serde_json::from_str(&read(path)?)
            .map_err(|source| RecordError::Json { path: path.into(), source })
    }

    /// Writes the record, whole or not at all.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let mut text = serde_json::to_string_pretty(self)
            .map_err(|source| RecordError::Json { path: path.into(), source })?;
        text.push('\n');
        Ok(write(path, &text)?)
    }
}
