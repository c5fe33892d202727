//! What a device must have in common with another for a plan to be as fast on both.

use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::device::Device;

/// Declares the signature with the facts that it has, and without the others. A field of the device
/// that is not named does not compile.
macro_rules! signature {
    ($(#[$attribute:meta])* struct $name:ident {
        $($field:ident: $type:ty,)+
    } without {
        $($other:ident,)+
    }) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $name {
            $($field: $type,)+
        }

        impl $name {
            pub(super) fn of(device: &Device) -> Self {
                let Device { $($field,)+ $($other: _,)+ } = device;
                Self { $($field: $field.clone(),)+ }
            }

            /// The names and values of all fields.
            fn fields(&self) -> impl Iterator<Item = (&'static str, String)> {
                [$((stringify!($field), format!("{:?}", self.$field)),)+].into_iter()
            }
        }
    };
}

signature! {
    /// The facts of a device that a measured plan depends on.
    ///
    /// It has neither the tuning nor the speeds: these decide what is chosen, and not how fast a
    /// given plan runs. It does not have the element types either, because plans are checked
    /// against them.
    struct DeviceSignature {
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
    } without {
        // A plan that needs them is refused without.
        plane_barriers,
        // How much resides together only makes estimates.
        cubes_per_multiprocessor,
        registers_per_multiprocessor,
        shared_memory_per_multiprocessor,
        elements,
        profile,
        tuning,
    }
}

impl DeviceSignature {
    /// Checks that this device is like the one of a store.
    ///
    /// # Errors
    ///
    /// [`StoreError::OtherDevice`] with the first field that differs.
    pub(super) fn check(&self, stored: &Self) -> Result<(), StoreError> {
        let mut pairs = self.fields().zip(stored.fields());
        match pairs.find(|(found, stored)| found != stored) {
            None => Ok(()),
            Some(((field, found), (_, stored))) => {
                Err(StoreError::OtherDevice { field, stored, found })
            }
        }
    }
}
