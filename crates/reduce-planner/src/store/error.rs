//! Why a store of plans cannot be read or written.

use std::{io, path::PathBuf};

use crate::error::PlanError;

/// Why a [`PlanStore`](crate::PlanStore) cannot be read or written, or does not take a plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The operating system refused an operation on a file.
    #[error("cannot {operation} `{}`: {error}", .path.display())]
    File {
        /// What was tried, such as `read`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The text is longer than a store may be.
    #[error("a store of plans has at most {max} bytes, and this one has more")]
    TooLong {
        /// The most bytes of a store.
        max: u64,
    },
    /// The text is not that of a store: it is truncated, not JSON, or has other fields.
    #[error("the store of plans is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// The store has another format.
    #[error("the store of plans has format {found}, and this planner reads format {expected}")]
    Format {
        /// Format of the store.
        found: u64,
        /// Format that this planner reads.
        expected: u64,
    },
    /// Another version of this crate wrote the store.
    #[error("reduce-planner {found} wrote the store of plans, and this is {expected}")]
    Planner {
        /// Version that wrote the store.
        found: String,
        /// Version of this crate.
        expected: &'static str,
    },
    /// The store, or a plan for it, is for another [`Plan::VERSION`](crate::Plan::VERSION).
    #[error("the plans have version {found}, and this planner runs version {expected}")]
    PlanVersion {
        /// Version of the plans.
        found: u32,
        /// Version that this planner runs.
        expected: u32,
    },
    /// The plans were measured on another device.
    #[error("the plans were measured on a device with {field} = {stored}, this one has {found}")]
    OtherDevice {
        /// The first field of [`Device`](crate::Device) that differs.
        field: &'static str,
        /// Its value in the store.
        stored: String,
        /// Its value on this device.
        found: String,
    },
    /// A plan for the store cannot run its problem on the device.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl StoreError {
    /// Whether there is no such file. A caller may start with an empty store.
    #[must_use]
    pub fn is_missing_file(&self) -> bool {
        let Self::File { error, .. } = self else { return false };
        error.kind() == io::ErrorKind::NotFound
    }

    /// Whether another version wrote the store. A caller may measure again.
    #[must_use]
    pub fn is_other_version(&self) -> bool {
        matches!(self, Self::Format { .. } | Self::Planner { .. } | Self::PlanVersion { .. })
    }

    /// Whether the store is that of another device.
    #[must_use]
    pub fn is_other_device(&self) -> bool {
        matches!(self, Self::OtherDevice { .. })
    }
}
