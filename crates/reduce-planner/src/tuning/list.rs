//! The numbers of plans for lists of tensors.

use super::{Nonsense, check, count, power_of_two};

/// The numbers for lists of tensors that are reduced together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
#[non_exhaustive]
pub struct ListTuning {
    /// Units of a cube. Not measured.
    pub units_per_cube: u32,
    /// Most loads of a unit. More cubes than fit the device balance tensors of different sizes. Not
    /// measured.
    pub most_loads_per_unit: u64,
    /// Cubes per multiprocessor below which units have fewer loads. Not measured.
    pub cubes_per_multiprocessor: u32,
    /// Most tensors of a launch. Each is a buffer of its own, and kernels choose among them with
    /// code for each. Not measured.
    pub tensors_per_launch: usize,
    /// Partials that a unit of the merging launch takes, where units are enough. Not measured.
    pub partials_per_merging_unit: u64,
}

impl ListTuning {
    /// The numbers for one NVIDIA H200.
    pub(super) const fn h200() -> Self {
        Self {
            units_per_cube: 256,
            most_loads_per_unit: 64,
            cubes_per_multiprocessor: 8,
            tensors_per_launch: 176,
            partials_per_merging_unit: 4,
        }
    }

    pub(super) fn check(&self, row: &'static str) -> Result<(), Nonsense> {
        let Self {
            units_per_cube,
            most_loads_per_unit,
            cubes_per_multiprocessor,
            tensors_per_launch,
            partials_per_merging_unit,
        } = *self;
        check!(row, power_of_two, units_per_cube);
        check!(
            row,
            count,
            most_loads_per_unit,
            cubes_per_multiprocessor,
            tensors_per_launch,
            partials_per_merging_unit,
        );
        Ok(())
    }
}
