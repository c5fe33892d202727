//! Checkpoints in the safetensors format, read a tensor at a time.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use reduce_kernels::ElementType;
use safetensors::{
    Dtype,
    tensor::{Metadata, TensorInfo},
};

/// Bytes in front of the header, which tell its length.
const LENGTH_BYTES: u64 = 8;

/// The largest header in bytes. A larger one is damaged; the format's own library has the same
/// limit.
const MOST_HEADER_BYTES: u64 = 100_000_000;

/// A checkpoint whose header has been checked against the file.
///
/// Tensors are read, not mapped. If the file shrinks meanwhile, reading is an error and not a
/// signal.
pub(crate) struct Checkpoint {
    path: PathBuf,
    file: File,
    data_start: u64,
    tensors: Vec<(String, TensorInfo)>,
}

/// Why a checkpoint could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointError {
    /// The file system reported an error.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the file system.
        source: io::Error,
    },
    /// The file does not begin like a checkpoint.
    #[error("{path}: not a safetensors file: {reason}")]
    NotSafetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The header is invalid, or contradicts itself.
    #[error("{path}: the header is damaged: {reason}")]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file is shorter than its header says.
    #[error("{path}: truncated: its tensors end at byte {needed}, the file at byte {found}")]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where the last tensor ends.
        needed: u64,
        /// Where the file ends.
        found: u64,
    },
    /// The file is longer than its header says.
    #[error("{path}: damaged: its tensors end at byte {needed}, the file at byte {found}")]
    Overlong {
        /// The file.
        path: PathBuf,
        /// Where the last tensor ends.
        needed: u64,
        /// Where the file ends.
        found: u64,
    },
}

impl Checkpoint {
    /// Reads the header of a file.
    ///
    /// # Errors
    ///
    /// A file that is missing, of another format, damaged or truncated.
    pub(crate) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let path = path.to_path_buf();
        let io_error = |source| CheckpointError::Io { path: path.clone(), source };
        let not_safetensors =
            |reason| CheckpointError::NotSafetensors { path: path.clone(), reason };
        let damaged = |reason| CheckpointError::Header { path: path.clone(), reason };
        let mut file = File::open(&path).map_err(io_error)?;
        let about = file.metadata().map_err(io_error)?;
        let found = about.len();
        if about.is_dir() {
            return Err(io_error(io::ErrorKind::IsADirectory.into()));
        }
        if found == 0 {
            return Err(not_safetensors("the file is empty".into()));
        }
        let Some(after_length) = found.checked_sub(LENGTH_BYTES) else {
            return Err(not_safetensors(format!(
                "the file has {found} bytes, the length of a header takes {LENGTH_BYTES}"
            )));
        };
        let mut length = [0; LENGTH_BYTES as usize];
        file.read_exact(&mut length).map_err(io_error)?;
        let length = u64::from_le_bytes(length);
        // This check comes before any allocation, because a damaged file can state any length.
        if length > after_length || length > MOST_HEADER_BYTES {
            return Err(not_safetensors(format!(
                "it announces a header of {length} bytes, {after_length} follow"
            )));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(io_error)?;
        let header = str::from_utf8(&header).map_err(|error| damaged(error.to_string()))?;
        let header: Metadata =
            serde_json::from_str(header).map_err(|error| damaged(error.to_string()))?;
        let data_start = LENGTH_BYTES + length;
        let needed = data_start.saturating_add(header.data_len() as u64);
        if needed > found {
            return Err(CheckpointError::Truncated { path, needed, found });
        }
        if needed < found {
            return Err(CheckpointError::Overlong { path, needed, found });
        }
        let in_order = header.offset_keys().into_iter();
        let tensors = in_order
            .filter_map(|name| header.info(&name).cloned().map(|info| (name, info)))
            .collect();
        Ok(Self { path, file, data_start, tensors })
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Names and descriptions of the tensors, in the order of their bytes.
    pub(crate) fn tensors(&self) -> &[(String, TensorInfo)] {
        &self.tensors
    }

    /// The bytes of a tensor.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub(crate) fn read(&self, tensor: &TensorInfo) -> Result<Vec<u8>, CheckpointError> {
        let (start, end) = tensor.data_offsets;
        let mut bytes = vec![0; end - start];
        let mut file = &self.file;
        file.seek(SeekFrom::Start(self.data_start + start as u64))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|source| CheckpointError::Io { path: self.path.clone(), source })?;
        Ok(bytes)
    }
}

/// The library's name for a type of the format, if it reduces it.
pub(crate) fn element_of(dtype: Dtype) -> Option<ElementType> {
    match dtype {
        Dtype::F8_E4M3 => Some(ElementType::F8E4M3),
        Dtype::F8_E5M2 => Some(ElementType::F8E5M2),
        Dtype::F16 => Some(ElementType::F16),
        Dtype::BF16 => Some(ElementType::BF16),
        Dtype::F32 => Some(ElementType::F32),
        Dtype::F64 => Some(ElementType::F64),
        Dtype::I8 => Some(ElementType::I8),
        Dtype::I16 => Some(ElementType::I16),
        Dtype::I32 => Some(ElementType::I32),
        Dtype::I64 => Some(ElementType::I64),
        Dtype::U8 => Some(ElementType::U8),
        Dtype::U16 => Some(ElementType::U16),
        Dtype::U32 => Some(ElementType::U32),
        Dtype::U64 => Some(ElementType::U64),
        Dtype::BOOL => Some(ElementType::Bool),
        _ => None,
    }
}
