//! What a device must have in common with another for a plan to be as fast on both.

use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::Device;

/// The facts of a device that a measured plan depends on.
///
/// It has neither the tuning nor the speeds: these decide what is chosen, and not how fast a given
/// plan runs. It does not have the element types either, because plans are checked against them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceSignature {
    name: String,
    plane_size_min: u32,
    plane_size_max: u32,
    plane_operations: bool,
    max_units_per_cube: u32,
    max_bindings: u32,
    max_cube_count: [u32; 3],
    shared_memory_bytes: usize,
    most_shared_memory_bytes: usize,
    load_bytes: usize,
    max_vector: usize,
    multiprocessors: u32,
    units_per_multiprocessor: u32,
    cache_bytes: u64,
    wide_indices: bool,
    wide_atomics: bool,
    forward_progress: bool,
}

impl DeviceSignature {
    pub(super) fn of(device: &Device) -> Self {
        // Every field is named here, so that a new one is not forgotten.
        let Device {
            name,
            plane_size_min,
            plane_size_max,
            plane_operations,
            max_units_per_cube,
            max_bindings,
            max_cube_count,
            shared_memory_bytes,
            most_shared_memory_bytes,
            load_bytes,
            max_vector,
            multiprocessors,
            units_per_multiprocessor,
            // How much resides together only makes estimates.
            cubes_per_multiprocessor: _,
            registers_per_multiprocessor: _,
            shared_memory_per_multiprocessor: _,
            cache_bytes,
            wide_indices,
            wide_atomics,
            forward_progress,
            elements: _,
            profile: _,
            tuning: _,
        } = device;
        Self {
            name: name.clone(),
            plane_size_min: *plane_size_min,
            plane_size_max: *plane_size_max,
            plane_operations: *plane_operations,
            max_units_per_cube: *max_units_per_cube,
            max_bindings: *max_bindings,
            max_cube_count: *max_cube_count,
            shared_memory_bytes: *shared_memory_bytes,
            most_shared_memory_bytes: *most_shared_memory_bytes,
            load_bytes: *load_bytes,
            max_vector: *max_vector,
            multiprocessors: *multiprocessors,
            units_per_multiprocessor: *units_per_multiprocessor,
            cache_bytes: *cache_bytes,
            wide_indices: *wide_indices,
            wide_atomics: *wide_atomics,
            forward_progress: *forward_progress,
        }
    }

    /// Checks that this device is like the one of a store.
    ///
    /// # Errors
    ///
    /// [`StoreError::OtherDevice`] with the first field that differs.
    pub(super) fn check(&self, stored: &Self) -> Result<(), StoreError> {
        let pairs = self.fields().into_iter().zip(stored.fields());
        match pairs.into_iter().find(|(found, stored)| found != stored) {
            None => Ok(()),
            Some(((field, found), (_, stored))) => {
                Err(StoreError::OtherDevice { field, stored, found })
            }
        }
    }

    /// The names and values of all fields.
    fn fields(&self) -> [(&'static str, String); 17] {
        macro_rules! fields {
            ($($field:ident),* $(,)?) => {{
                let Self { $($field),* } = self;
                [$((stringify!($field), format!("{:?}", $field))),*]
            }};
        }
        fields!(
            name,
            plane_size_min,
            plane_size_max,
            plane_operations,
            max_units_per_cube,
            max_bindings,
            max_cube_count,
            shared_memory_bytes,
            most_shared_memory_bytes,
            load_bytes,
            max_vector,
            multiprocessors,
            units_per_multiprocessor,
            cache_bytes,
            wide_indices,
            wide_atomics,
            forward_progress,
        )
    }
}
